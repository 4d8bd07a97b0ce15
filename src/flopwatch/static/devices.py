"""What is known of the GPUs that can be pretended: limits of a multiprocessor, and peaks of the chip."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from flopwatch.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

_TUNING_GUIDE = "https://docs.nvidia.com/cuda"
_WARP_SIZE = 32


@dataclass(frozen=True, kw_only=True, slots=True)
class Device:
    """A GPU as a compiler and an occupancy calculator see it.

    Bytes of shared memory are those that a program can use: `max_shared_bytes_per_block` after opting in, of which the
    driver reserves `reserved_shared_bytes_per_block` on top for every block. `dense_fp16_tflops` is the peak of the
    tensor cores without sparsity. `arch` is what Triton's targets use: 90 for sm_90.
    """

    name: str
    key: str
    backend: str
    arch: int
    compute_capability: tuple[int, int]
    sms: int
    max_shared_bytes_per_block: int
    shared_bytes_per_sm: int
    reserved_shared_bytes_per_block: int
    registers_per_sm: int
    max_warps_per_sm: int
    max_blocks_per_sm: int
    l2_bytes: int
    memory_bytes: int
    memory_gbps: float
    dense_fp16_tflops: float
    source: str
    warp_size: int = _WARP_SIZE

    def least_seconds(self, flops: float, bytes_moved: float) -> float:
        """Return the least time that work takes: its operations and its bytes at their peaks, whichever is longer.

        >>> DEVICES["h200"].least_seconds(989.4e9, 4.8e6), DEVICES["h200"].least_seconds(0.0, 9.6e9)
        (0.001, 0.002)
        """
        return max(flops / (self.dense_fp16_tflops * 1e12), bytes_moved / (self.memory_gbps * 1e9))


def _datacenter(
    *,
    name: str,
    key: str,
    arch: int,
    sms: int,
    shared_kib_per_sm: int,
    l2_bytes: int,
    memory_bytes: int,
    memory_gbps: float,
    dense_fp16_tflops: float,
    source: str,
) -> Device:
    """Fill in what data centre chips from sm_80 to sm_100 share (CUDA programming guide, compute capabilities)."""
    return Device(
        name=name,
        key=key,
        backend="cuda",
        arch=arch,
        compute_capability=(arch // 10, arch % 10),
        sms=sms,
        max_shared_bytes_per_block=(shared_kib_per_sm - 1) * 1024,
        shared_bytes_per_sm=shared_kib_per_sm * 1024,
        reserved_shared_bytes_per_block=1024,
        registers_per_sm=65536,
        max_warps_per_sm=64,
        max_blocks_per_sm=32,
        l2_bytes=l2_bytes,
        memory_bytes=memory_bytes,
        memory_gbps=memory_gbps,
        dense_fp16_tflops=dense_fp16_tflops,
        source=source,
    )


_ALL = (
    _datacenter(
        name="NVIDIA A100-SXM4-80GB",
        key="a100",
        arch=80,
        sms=108,
        shared_kib_per_sm=164,
        l2_bytes=40 << 20,
        memory_bytes=80 << 30,
        memory_gbps=2039.0,
        dense_fp16_tflops=312.0,
        source=f"NVIDIA A100 80GB SXM data sheet; {_TUNING_GUIDE}/ampere-tuning-guide",
    ),
    _datacenter(
        name="NVIDIA H100 80GB HBM3",
        key="h100",
        arch=90,
        sms=132,
        shared_kib_per_sm=228,
        l2_bytes=50 << 20,
        memory_bytes=80 << 30,
        memory_gbps=3352.0,
        dense_fp16_tflops=989.4,
        source=f"NVIDIA H100 SXM5 data sheet and architecture white paper; {_TUNING_GUIDE}/hopper-tuning-guide",
    ),
    _datacenter(
        name="NVIDIA H200",
        key="h200",
        arch=90,
        sms=132,
        shared_kib_per_sm=228,
        l2_bytes=50 << 20,
        memory_bytes=141 * 10**9,
        memory_gbps=4800.0,
        dense_fp16_tflops=989.4,
        source=f"NVIDIA H200 SXM data sheet; {_TUNING_GUIDE}/hopper-tuning-guide",
    ),
    _datacenter(
        name="NVIDIA B200",
        key="b200",
        arch=100,
        sms=148,
        shared_kib_per_sm=228,
        l2_bytes=126 << 20,
        memory_bytes=180 * 10**9,
        memory_gbps=8000.0,
        dense_fp16_tflops=2250.0,
        source=f"NVIDIA HGX B200 data sheet, an eighth of eight GPUs; {_TUNING_GUIDE}/blackwell-tuning-guide",
    ),
)

#: Every device that can be pretended, by key.
DEVICES: Mapping[str, Device] = MappingProxyType({device.key: device for device in _ALL})


def device_called(gpu: str | None) -> Device | None:
    """Return the device that the driver calls by that name; None where its peaks are not known.

    >>> device_called("NVIDIA H200").key, device_called("another")
    ('h200', None)
    """
    return next((device for device in DEVICES.values() if device.name == gpu), None)


def find_device(key: str) -> Device:
    """Return the device of that key.

    Raises:
        UsageError: there is none; the message lists the keys.

    >>> find_device("h200").compute_capability
    (9, 0)
    """
    try:
        return DEVICES[key]
    except KeyError:
        raise UsageError(
            f"no device is called {key!r}", why=f"flopwatch knows {', '.join(DEVICES)}", todo="choose one of these"
        ) from None

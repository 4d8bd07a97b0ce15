"""What is known of the GPUs that can be pretended: limits of a multiprocessor, and peaks of the chip.

AMD's words for the same: a multiprocessor is a compute unit, a warp a wave, a block a work-group, shared memory LDS.
"""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from flopwatch.errors import UsageError
from flopwatch.static.device import Device, Peaks

if TYPE_CHECKING:
    from collections.abc import Mapping


def _nvidia(
    *,
    name: str,
    key: str,
    arch: int,
    sms: int,
    shared_kib_per_sm: int,
    l2_bytes: int,
    memory_bytes: int,
    memory_gbps: float,
    peaks: Peaks,
) -> Device:
    """Fill in what data centre chips from sm_80 to sm_100 share."""
    return Device(
        name=name,
        key=key,
        backend="cuda",
        arch=arch,
        compute_capability=divmod(arch, 10),
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
        peaks=peaks,
    )


def _amd(
    *,
    name: str,
    key: str,
    arch: str,
    sms: int,
    shared_kib_per_sm: int,
    memory_bytes: int,
    memory_gbps: float,
    peaks: Peaks,
) -> Device:
    """Fill in what the chips of CDNA 3 and 4 share.

    A compute unit has four SIMD units of 512 vector registers of 64 lanes and 8 waves each. Nothing of its shared
    memory is reserved; each of the chip's 8 dies has 4 MiB of second-level cache.
    """
    return Device(
        name=name,
        key=key,
        backend="hip",
        arch=arch,
        compute_capability=(9, int(arch[-2])),
        sms=sms,
        max_shared_bytes_per_block=shared_kib_per_sm * 1024,
        shared_bytes_per_sm=shared_kib_per_sm * 1024,
        reserved_shared_bytes_per_block=0,
        registers_per_sm=4 * 512 * 64,
        max_warps_per_sm=4 * 8,
        max_blocks_per_sm=4 * 8,
        l2_bytes=32 << 20,
        memory_bytes=memory_bytes,
        memory_gbps=memory_gbps,
        peaks=peaks,
        warp_size=64,
    )


_HOPPER = Peaks(
    float64=66.9,
    float32=66.9,
    tfloat32=494.7,
    float16=989.4,
    bfloat16=989.4,
    float8=1978.9,
    int8=1978.9,
)

_ALL = (
    _nvidia(
        name="NVIDIA A100-SXM4-80GB",
        key="a100",
        arch=80,
        sms=108,
        shared_kib_per_sm=164,
        l2_bytes=40 << 20,
        memory_bytes=80 << 30,
        memory_gbps=2039.0,
        peaks=Peaks(float64=19.5, float32=19.5, tfloat32=156.0, float16=312.0, bfloat16=312.0, int8=624.0),
    ),
    _nvidia(
        name="NVIDIA H100 80GB HBM3",
        key="h100",
        arch=90,
        sms=132,
        shared_kib_per_sm=228,
        l2_bytes=50 << 20,
        memory_bytes=80 << 30,
        memory_gbps=3352.0,
        peaks=_HOPPER,
    ),
    _nvidia(
        name="NVIDIA H200",
        key="h200",
        arch=90,
        sms=132,
        shared_kib_per_sm=228,
        l2_bytes=60 << 20,
        memory_bytes=141 << 30,
        memory_gbps=4800.0,
        peaks=_HOPPER,
    ),
    _nvidia(
        name="NVIDIA B200",
        key="b200",
        arch=100,
        sms=148,
        shared_kib_per_sm=228,
        l2_bytes=129536 << 10,
        memory_bytes=180 << 30,
        memory_gbps=7700.0,
        peaks=Peaks(
            float64=37.0,
            float32=75.0,
            tfloat32=1100.0,
            float16=2250.0,
            bfloat16=2250.0,
            float8=4500.0,
            int8=4500.0,
        ),
    ),
    replace(
        _nvidia(
            name="NVIDIA L40S",
            key="l40s",
            arch=89,
            sms=142,
            shared_kib_per_sm=100,
            l2_bytes=96 << 20,
            memory_bytes=48 << 30,
            memory_gbps=864.0,
            peaks=Peaks(
                float64=1.43,
                float32=91.6,
                tfloat32=183.0,
                float16=366.5,
                bfloat16=366.5,
                float8=733.0,
                int8=733.0,
            ),
        ),
        max_warps_per_sm=48,
        max_blocks_per_sm=24,
    ),
    replace(
        _nvidia(
            name="NVIDIA GeForce RTX 5090",
            key="rtx5090",
            arch=120,
            sms=170,
            shared_kib_per_sm=100,
            l2_bytes=96 << 20,
            memory_bytes=32 << 30,
            memory_gbps=1792.0,
            peaks=Peaks(
                float64=1.64,
                float32=104.8,
                tfloat32=104.8,
                float16=209.5,
                bfloat16=209.5,
                float8=419.0,
                int8=838.0,
            ),
        ),
        max_warps_per_sm=48,
        max_blocks_per_sm=24,
    ),
    _amd(
        name="AMD Instinct MI300X",
        key="mi300x",
        arch="gfx942",
        sms=304,
        shared_kib_per_sm=64,
        memory_bytes=192 << 30,
        memory_gbps=5325.0,
        peaks=Peaks(
            float64=163.4,
            float32=163.4,
            tfloat32=653.7,
            float16=1307.4,
            bfloat16=1307.4,
            float8=2614.9,
            int8=2614.9,
        ),
    ),
    _amd(
        name="AMD Instinct MI350X",
        key="mi350x",
        arch="gfx950",
        sms=256,
        shared_kib_per_sm=160,
        memory_bytes=288 << 30,
        memory_gbps=8000.0,
        peaks=Peaks(float64=72.1, float32=144.2, float16=2306.9, bfloat16=2306.9, float8=4614.0, int8=4614.0),
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

"""What the GPU of this machine can do, told by its compute capability and never by its name."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from flopwatch.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping

#: PyTorch's name for the shared memory of one multiprocessor in bytes (pytorch/pytorch#143119).
_PER_SM = "shared_memory_per_multiprocessor"

#: PyTorch's name for the most that one block can ask for in bytes (pytorch/pytorch#143226), which not every build has
#: beside the other.
_PER_BLOCK = "shared_memory_per_block_optin"

#: From compute capability 8.0 on the system keeps 1 KiB of shared memory a block for itself, so that a multiprocessor
#: has that much more than its largest block can ask for; before 8.0 both are the same (CUDA C++ Programming Guide,
#: "Technical Specifications per Compute Capability").
_RESERVED_PER_BLOCK_BYTES = 1024
_FIRST_WITH_RESERVED = (8, 0)
_FIRST_WITH_FP8 = (8, 9)
_FIRST_WITH_TMA = (9, 0)
_ONLY_WITH_WGMMA = (9, 0)


class GPUArch(enum.Enum):
    """An NVIDIA architecture; the value is the compute target that introduced it."""

    VOLTA = "sm_70"
    TURING = "sm_75"
    AMPERE = "sm_80"
    ADA = "sm_89"
    HOPPER = "sm_90"
    BLACKWELL = "sm_100"
    UNKNOWN = "unknown"


#: https://developer.nvidia.com/cuda-gpus and, for the embedded parts (7.2, 8.7, 10.1, 11.0), /cuda-legacy-gpus.
_ARCH_BY_CAPABILITY: Mapping[tuple[int, int], GPUArch] = {
    (7, 0): GPUArch.VOLTA,
    (7, 2): GPUArch.VOLTA,
    (7, 5): GPUArch.TURING,
    (8, 0): GPUArch.AMPERE,
    (8, 6): GPUArch.AMPERE,
    (8, 7): GPUArch.AMPERE,
    (8, 9): GPUArch.ADA,
    (9, 0): GPUArch.HOPPER,
    (10, 0): GPUArch.BLACKWELL,
    (10, 1): GPUArch.BLACKWELL,
    (10, 3): GPUArch.BLACKWELL,
    (11, 0): GPUArch.BLACKWELL,
    (12, 0): GPUArch.BLACKWELL,
    (12, 1): GPUArch.BLACKWELL,
}


@dataclass(frozen=True, slots=True)
class GPUCapabilities:
    """One GPU.

    Attributes:
        name: the product name, for people; nothing is decided by it.
        arch: the architecture family.
        compute_capability: major and minor.
        has_tma: the tensor memory accelerator (bulk asynchronous copies by descriptor): 9.0 and later.
        has_fp8: tensor cores take float8 operands: 8.9 and later.
        has_warpgroup_mma: the ``wgmma`` instructions of Hopper: exactly 9.0. Later architectures replaced them
            (``tcgen05``), earlier ones do not have them.
        sram_per_sm: shared memory of one multiprocessor, in bytes. A single block can use 1 KiB less (from 8.0 on).
        num_sms: number of streaming multiprocessors.
        total_memory_gb: memory of the device in GiB (2**30 bytes).
    """

    name: str
    arch: GPUArch
    compute_capability: tuple[int, int]
    has_tma: bool
    has_fp8: bool
    has_warpgroup_mma: bool
    sram_per_sm: int
    num_sms: int
    total_memory_gb: float


def arch_of(compute_capability: tuple[int, int]) -> GPUArch:
    """Return the architecture of a compute capability, `GPUArch.UNKNOWN` for one that is not in the table.

    >>> arch_of((8, 6))
    <GPUArch.AMPERE: 'sm_80'>
    >>> arch_of((6, 1))
    <GPUArch.UNKNOWN: 'unknown'>
    """
    return _ARCH_BY_CAPABILITY.get(compute_capability, GPUArch.UNKNOWN)


def detect_gpu(device_id: int = 0) -> GPUCapabilities:
    """Ask PyTorch what a GPU can do.

    Args:
        device_id: the index of the device among those visible to this process.

    Raises:
        RuntimeError: "CUDA is not available", with the cause; or the installed PyTorch does not tell the size of
            shared memory.
        ValueError: there is no device of that index.
    """
    require_cuda()
    count = torch.cuda.device_count()
    if not 0 <= device_id < count:
        raise ValueError(
            f"no CUDA device {device_id}\n"
            f"  why: this process sees {count} device{'' if count == 1 else 's'}, numbered from 0\n"
            "  do:  pass a smaller device_id, or make more devices visible (CUDA_VISIBLE_DEVICES)"
        )
    properties = torch.cuda.get_device_properties(device_id)
    capability = (properties.major, properties.minor)
    return GPUCapabilities(
        name=properties.name,
        arch=arch_of(capability),
        compute_capability=capability,
        has_tma=capability >= _FIRST_WITH_TMA,
        has_fp8=capability >= _FIRST_WITH_FP8,
        has_warpgroup_mma=capability == _ONLY_WITH_WGMMA,
        sram_per_sm=_sram_per_sm_bytes(properties, capability),
        num_sms=properties.multi_processor_count,
        total_memory_gb=properties.total_memory / 2**30,
    )


def print_gpu_info(caps: GPUCapabilities | None = None) -> None:
    """Print a GPU's capabilities as a table; those of device 0 if none are given.

    Raises:
        RuntimeError: none are given and CUDA is not available.
    """
    caps = detect_gpu() if caps is None else caps
    table = Table(title=escape(caps.name), show_header=False)
    for label, value in (
        ("architecture", f"{caps.arch.name.lower()} ({caps.arch.value})"),
        ("compute capability", f"{caps.compute_capability[0]}.{caps.compute_capability[1]}"),
        ("multiprocessors", str(caps.num_sms)),
        ("shared memory per multiprocessor", format_bytes(caps.sram_per_sm)),
        ("memory", format_bytes(round(caps.total_memory_gb * 2**30))),
        ("tensor memory accelerator", _yes_or_no(caps.has_tma)),
        ("float8 tensor cores", _yes_or_no(caps.has_fp8)),
        ("warpgroup matrix multiply (wgmma)", _yes_or_no(caps.has_warpgroup_mma)),
    ):
        table.add_row(label, value)
    Console().print(table)


def require_cuda() -> None:
    """Raise RuntimeError("CUDA is not available"), with the cause, where it is not."""
    if torch.version.hip is not None:
        # A ROCm build answers torch.cuda too, with AMD's own version numbers: gfx900 would pass for Hopper.
        raise RuntimeError(
            "CUDA is not available\n"
            f"  why: this PyTorch ({torch.__version__}) is built for ROCm\n"
            "  do:  install a CUDA build of PyTorch"
        )
    if not torch.cuda.is_available():
        cause = "is built without CUDA" if torch.version.cuda is None else "finds no NVIDIA driver or device"
        raise RuntimeError(
            "CUDA is not available\n"
            f"  why: this PyTorch ({torch.__version__}) {cause}\n"
            "  do:  run `nvidia-smi` to see whether the machine has a GPU, and install a CUDA build of PyTorch"
        )


def _sram_per_sm_bytes(properties: object, capability: tuple[int, int]) -> int:
    per_sm: int | None = getattr(properties, _PER_SM, None)
    if per_sm is not None:
        return per_sm
    per_block: int | None = getattr(properties, _PER_BLOCK, None)
    if per_block is not None:
        return per_block + (_RESERVED_PER_BLOCK_BYTES if capability >= _FIRST_WITH_RESERVED else 0)
    raise RuntimeError(
        "the size of shared memory is unknown\n"
        f"  why: the device properties of PyTorch {torch.__version__} have neither {_PER_SM} nor {_PER_BLOCK}\n"
        "  do:  install torch 2.11 to 2.15"
    )


def _yes_or_no(value: bool) -> str:  # noqa: FBT001 - a table cell
    return "yes" if value else "no"

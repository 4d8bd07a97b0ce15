"""How many blocks of a kernel a multiprocessor holds, and what bounds them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flopwatch.static.device import Device

_PARTITIONS_PER_SM = 4
_REGISTER_UNIT_PER_WARP = 256
_SHARED_UNIT_BYTES = 128
_TENSOR_MEMORY_COLUMNS = 512

_AMD_REGISTER_UNIT = 8
_AMD_BARRIERS = 16
#: Of a wave; with more of them a SIMD unit holds seven waves and not eight.
_AMD_MOST_SCALARS = 100
_AMD_USUAL_SHARED_UNIT_BYTES = 512
_AMD_SHARED_UNIT_BYTES: dict[int | str, int] = {"gfx950": 1280}


@dataclass(frozen=True, kw_only=True, slots=True)
class Occupancy:
    """Resident blocks of a multiprocessor; `share` is that of its warp slots, 0 to 1; `limit` is what bounds them."""

    blocks_per_sm: int
    share: float
    limit: str


def occupancy(
    device: Device,
    *,
    registers: int,
    shared_bytes: int,
    num_warps: int,
    tensor_memory_columns: int = 0,
    scalar_registers: int = 0,
) -> Occupancy:
    """Count the blocks that fit on one multiprocessor.

    For NVIDIA the rules are those of its occupancy calculator (``cuda_occupancy.h`` of the CUDA toolkit) for compute
    capability 8.0 to 12.x: registers are granted per warp in units of 256 and warps per partition, a quarter of the
    multiprocessor; shared memory in units of 128 bytes, after the driver's reservation for each block. Tensor memory
    (sm_100) has 512 columns a multiprocessor.

    For AMD they are those of LLVM (``AMDGPUBaseInfo.cpp``, namespace ``IsaInfo``; ``llvm-calc-occupancy``) for gfx942
    and gfx950: a partition, which is a SIMD unit, has 512 vector registers a lane, granted in units of 8, and fewer
    waves where one needs more than 100 scalar registers; blocks of more than one wave take one of 16 barriers; shared
    memory is granted in units of 512 bytes, of 1280 on gfx950 (llvm/llvm-project#208046).

    Args:
        device: the GPU.
        registers: per thread; AMD's accumulators included.
        shared_bytes: per block, static and dynamic together.
        num_warps: per block.
        tensor_memory_columns: per block.
        scalar_registers: per wave.

    >>> from flopwatch.static.devices import find_device
    >>> occupancy(find_device("h200"), registers=168, shared_bytes=147456, num_warps=8)
    Occupancy(blocks_per_sm=1, share=0.125, limit='registers')
    >>> occupancy(find_device("mi300x"), registers=104, shared_bytes=32768, num_warps=4, scalar_registers=33)
    Occupancy(blocks_per_sm=2, share=0.25, limit='shared memory')
    """
    limits = (
        _amd_limits(device, registers, shared_bytes, num_warps, scalar_registers)
        if device.is_amd
        else _nvidia_limits(device, registers, shared_bytes, num_warps, tensor_memory_columns)
    )
    limit = min(limits, key=limits.__getitem__)
    blocks = limits[limit]
    return Occupancy(blocks_per_sm=blocks, share=blocks * num_warps / device.max_warps_per_sm, limit=limit)


def _nvidia_limits(
    device: Device, registers: int, shared_bytes: int, num_warps: int, tensor_memory_columns: int
) -> dict[str, int]:
    """Return how many blocks each resource has room for."""
    registers_per_warp = _round_up(max(registers, 1) * device.warp_size, _REGISTER_UNIT_PER_WARP)
    warps_by_registers = device.registers_per_sm // _PARTITIONS_PER_SM // registers_per_warp * _PARTITIONS_PER_SM
    shared_per_block = _round_up(shared_bytes + device.reserved_shared_bytes_per_block, _SHARED_UNIT_BYTES)
    limits = {
        "warps": device.max_warps_per_sm // num_warps,
        "blocks": device.max_blocks_per_sm,
        "registers": warps_by_registers // num_warps,
        "shared memory": device.shared_bytes_per_sm // shared_per_block,
    }
    if tensor_memory_columns:
        limits["tensor memory"] = _TENSOR_MEMORY_COLUMNS // tensor_memory_columns
    return limits


def _amd_limits(
    device: Device, registers: int, shared_bytes: int, num_warps: int, scalar_registers: int
) -> dict[str, int]:
    """Likewise; a block's waves are spread over the SIMD units."""
    per_lane = device.registers_per_sm // _PARTITIONS_PER_SM // device.warp_size
    waves_by_registers = per_lane // _round_up(max(registers, 1), _AMD_REGISTER_UNIT) * _PARTITIONS_PER_SM
    limits = {
        "warps": device.max_warps_per_sm // num_warps,
        "blocks": device.max_blocks_per_sm if num_warps == 1 else _AMD_BARRIERS,
        "registers": waves_by_registers // num_warps,
    }
    if scalar_registers > _AMD_MOST_SCALARS:
        limits["scalar registers"] = (device.max_warps_per_sm - _PARTITIONS_PER_SM) // num_warps
    if shared_bytes:
        unit = _AMD_SHARED_UNIT_BYTES.get(device.arch, _AMD_USUAL_SHARED_UNIT_BYTES)
        limits["shared memory"] = device.shared_bytes_per_sm // _round_up(shared_bytes, unit)
    return limits


def _round_up(value: int, unit: int) -> int:
    return -(-value // unit) * unit

"""How many blocks of a kernel a multiprocessor holds, and what bounds them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flopwatch.static.devices import Device

_REGISTER_UNIT_PER_WARP = 256
_PARTITIONS_PER_SM = 4
_SHARED_UNIT_BYTES = 128
_TENSOR_MEMORY_COLUMNS = 512


@dataclass(frozen=True, kw_only=True, slots=True)
class Occupancy:
    """Resident blocks of a multiprocessor; `share` is that of its warp slots, 0 to 1; `limit` is what bounds them."""

    blocks_per_sm: int
    share: float
    limit: str


def occupancy(
    device: Device, *, registers: int, shared_bytes: int, num_warps: int, tensor_memory_columns: int = 0
) -> Occupancy:
    """Count the blocks that fit on one multiprocessor.

    The rules are those of NVIDIA's occupancy calculator (``cuda_occupancy.h`` of the CUDA toolkit) for compute
    capability 8.0 to 10.x: registers are granted per warp in units of 256 and warps per partition, a quarter of the
    multiprocessor; shared memory in units of 128 bytes, after the driver's reservation for each block. Tensor memory
    (sm_100) has 512 columns a multiprocessor.

    Args:
        device: the GPU.
        registers: per thread.
        shared_bytes: per block, static and dynamic together.
        num_warps: per block.
        tensor_memory_columns: per block.

    >>> from flopwatch.static.devices import find_device
    >>> occupancy(find_device("h200"), registers=168, shared_bytes=147456, num_warps=8)
    Occupancy(blocks_per_sm=1, share=0.125, limit='registers')
    """
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
    limit = min(limits, key=limits.__getitem__)
    blocks = limits[limit]
    return Occupancy(blocks_per_sm=blocks, share=blocks * num_warps / device.max_warps_per_sm, limit=limit)


def _round_up(value: int, unit: int) -> int:
    return -(-value // unit) * unit

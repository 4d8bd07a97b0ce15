from __future__ import annotations

import pytest

from flopwatch.static.devices import find_device
from flopwatch.static.occupancy import Occupancy, occupancy

H200 = find_device("h200")


@pytest.mark.parametrize(
    ("registers", "shared_bytes", "num_warps", "blocks", "limit"),
    [
        (32, 0, 4, 16, "warps"),
        (32, 0, 1, 32, "blocks"),
        (255, 0, 8, 1, "registers"),
        # A warp takes 168 * 32 = 5376 = 21 * 256 registers, three warps fit in each quarter, twelve in all.
        (168, 0, 4, 3, "registers"),
        # One register more takes another 256.
        (169, 0, 4, 2, "registers"),
        (32, 232448, 4, 1, "shared memory"),
        (32, 232449, 4, 0, "shared memory"),
        # 113 KiB and the reserved KiB fit twice in 228 KiB, one byte more does not.
        (32, 113 * 1024, 4, 2, "shared memory"),
        (32, 113 * 1024 + 1, 4, 1, "shared memory"),
    ],
)
def test_the_scarcest_resource_bounds_the_blocks(
    registers: int, shared_bytes: int, num_warps: int, blocks: int, limit: str
) -> None:
    expected = Occupancy(blocks_per_sm=blocks, share=blocks * num_warps / 64, limit=limit)
    assert expected == occupancy(H200, registers=registers, shared_bytes=shared_bytes, num_warps=num_warps)


def test_tensor_memory_bounds_the_blocks_of_blackwell() -> None:
    resident = occupancy(find_device("b200"), registers=32, shared_bytes=0, num_warps=4, tensor_memory_columns=256)
    assert resident == Occupancy(blocks_per_sm=2, share=0.125, limit="tensor memory")


@pytest.mark.parametrize(
    ("key", "registers", "shared_bytes", "num_warps", "blocks", "limit"),
    [
        ("l40s", 32, 0, 4, 12, "warps"),
        ("l40s", 32, 0, 1, 24, "blocks"),
        # 49 KiB and the reserved KiB fit twice in 100 KiB, one byte more does not.
        ("l40s", 32, 49 * 1024, 4, 2, "shared memory"),
        ("rtx5090", 32, 49 * 1024 + 1, 4, 1, "shared memory"),
        ("rtx5090", 168, 0, 4, 3, "registers"),
    ],
)
def test_smaller_multiprocessors_hold_fewer_blocks(  # noqa: PLR0917 - one column each
    key: str, registers: int, shared_bytes: int, num_warps: int, blocks: int, limit: str
) -> None:
    expected = Occupancy(blocks_per_sm=blocks, share=blocks * num_warps / 48, limit=limit)
    assert expected == occupancy(find_device(key), registers=registers, shared_bytes=shared_bytes, num_warps=num_warps)


@pytest.mark.parametrize(
    ("key", "registers", "shared_bytes", "num_warps", "blocks", "limit"),
    [
        ("mi300x", 64, 0, 4, 8, "warps"),
        ("mi300x", 64, 0, 1, 32, "warps"),
        # One of 16 barriers for each block of two waves.
        ("mi300x", 32, 0, 2, 16, "warps"),
        # 65 registers take 72, seven waves a SIMD unit.
        ("mi300x", 65, 0, 4, 7, "registers"),
        ("mi300x", 512, 0, 4, 1, "registers"),
        # 21 KiB and 341 bytes are 43 units of 512, which fit twice; 42 units fit three times.
        ("mi300x", 32, 42 * 512, 4, 3, "shared memory"),
        ("mi300x", 32, 42 * 512 + 1, 4, 2, "shared memory"),
        # 160 KiB are 128 units of 1280.
        ("mi350x", 32, 64 * 1280, 4, 2, "shared memory"),
        ("mi350x", 32, 64 * 1280 + 1, 4, 1, "shared memory"),
        ("mi350x", 32, 160 * 1024 + 1, 4, 0, "shared memory"),
    ],
)
def test_compute_units_follow_the_rules_of_llvm(  # noqa: PLR0917 - one column each
    key: str, registers: int, shared_bytes: int, num_warps: int, blocks: int, limit: str
) -> None:
    expected = Occupancy(blocks_per_sm=blocks, share=blocks * num_warps / 32, limit=limit)
    assert expected == occupancy(find_device(key), registers=registers, shared_bytes=shared_bytes, num_warps=num_warps)


@pytest.mark.parametrize(("scalars", "blocks", "limit"), [(100, 8, "warps"), (101, 7, "scalar registers")])
def test_scalar_registers_bound_the_waves_of_amd(scalars: int, blocks: int, limit: str) -> None:
    resident = occupancy(find_device("mi300x"), registers=32, shared_bytes=0, num_warps=4, scalar_registers=scalars)
    assert (resident.blocks_per_sm, resident.limit) == (blocks, limit)

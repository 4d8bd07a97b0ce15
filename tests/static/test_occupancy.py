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

"""What an order of tiles asks of memory: different bytes that each wave of programs reads, without a GPU.

A wave is as many programs as the GPU holds at once. Its programs walk along K in step, so that a panel of A or B which
several of them need comes from memory once; the next wave, a hundred steps of K later, finds it in the L2 cache no more
(a square matrix of 12288 has 302 MB). What all waves read is then what memory has to give. The orders are those of
`flopwatch.kernels.matmul` and of TileLang's ``rasterization2DRow``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from collections.abc import Iterator

Numbers: TypeAlias = NDArray[np.int64]
BYTES_PER_ELEMENT = 2


@dataclass(frozen=True, kw_only=True, slots=True)
class Tiles:
    """A square product in tiles.

    Attributes:
        size: rows, columns and depth.
        block_m: rows of a tile.
        block_n: columns of a tile.
    """

    size: int
    block_m: int
    block_n: int

    @property
    def rows(self) -> int:
        """Tiles below each other."""
        return math.ceil(self.size / self.block_m)

    @property
    def columns(self) -> int:
        """Tiles beside each other."""
        return math.ceil(self.size / self.block_n)


def grouped(tiles: Tiles, group: int) -> tuple[Numbers, Numbers]:
    """Return the row and the column of each program's tile, in groups of rows, each walked column by column.

    >>> grouped(Tiles(size=3, block_m=1, block_n=1), 2)[0].tolist()
    [0, 1, 0, 1, 0, 1, 2, 2, 2]
    """
    programs = np.arange(tiles.rows * tiles.columns)
    first = programs // (group * tiles.columns) * group
    within = programs % (group * tiles.columns)
    height = np.minimum(tiles.rows - first, group)
    return first + within % height, within // height


def paneled(tiles: Tiles, panel: int) -> tuple[Numbers, Numbers]:
    """Return the same for TileLang's panels: every other one is walked from its last column to the first.

    >>> paneled(Tiles(size=3, block_m=1, block_n=1), 2)[1].tolist()
    [0, 0, 1, 1, 2, 2, 2, 1, 0]
    """
    rows, columns = grouped(tiles, panel)
    return rows, np.where(rows // panel % 2, tiles.columns - 1 - columns, columns)


def wave_bytes(tiles: Tiles, order: tuple[Numbers, Numbers], resident: int) -> list[int]:
    """Return the different bytes of A and B that each wave reads.

    Args:
        tiles: of the product.
        order: the row and the column of each program's tile.
        resident: programs that the GPU holds at once.

    >>> tiles = Tiles(size=4, block_m=1, block_n=1)
    >>> wave_bytes(tiles, grouped(tiles, 1), 4), wave_bytes(tiles, grouped(tiles, 2), 4)
    ([40, 40, 40, 40], [32, 32, 32, 32])
    """
    return [
        (rows * tiles.block_m + columns * tiles.block_n) * tiles.size * BYTES_PER_ELEMENT
        for rows, columns in _needed(order, resident)
    ]


def _needed(order: tuple[Numbers, Numbers], resident: int) -> Iterator[tuple[int, int]]:
    rows, columns = order
    for start in range(0, len(rows), resident):
        wave = slice(start, start + resident)
        yield len(np.unique(rows[wave])), len(np.unique(columns[wave]))

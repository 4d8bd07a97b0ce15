"""Rows that no tensor map describes: how warps read and write them, and how C is stored so."""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators
# Triton types what is compiled, and ships no types itself.

from __future__ import annotations

import triton.language as tl  # noqa: F401 - Triton looks for it in the module of what it runs
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

#: Sixteen rows of so many columns are still counted in 32 bits.
MOST_COLUMNS = 2**27


@gluon.constexpr_function
def row_layout(columns, width, warps=4):
    """Return the layout in which the threads of so many warps read or write rows, so many elements at once."""
    across = min(32, columns // width)
    return gl.BlockedLayout([1, width], [32 // across, across], [warps, 1], [1, 0])


@gluon.jit
def store_rows(buffer, c_ptr, row, column, M, N, WIDTH: gl.constexpr, WARPS: gl.constexpr = 4):  # noqa: PLR0917 - a kernel's arguments
    """Write a tile of C to rows that no tensor map describes, a few at a time: of all addresses at once some spilled.

    For the same reason offsets within a few rows are 32-bit.

    Args:
        buffer: the tile, of 16-bit elements in shared memory.
        c_ptr: to C, (M, N), contiguous.
        row: of C, where the tile begins.
        column: likewise.
        M: rows of C.
        N: columns of C, fewer than MOST_COLUMNS.
        WIDTH: elements that are written at once; divides N.
        WARPS: that write it.
    """
    LAYOUT: gl.constexpr = row_layout(buffer.shape[1], WIDTH, WARPS)
    ROWS: gl.constexpr = 16
    ALL_ROWS: gl.constexpr = buffer.shape[0]
    N = N // WIDTH * WIDTH
    rows = gl.arange(0, ROWS, layout=gl.SliceLayout(1, LAYOUT))[:, None]
    columns = (column + gl.arange(0, buffer.shape[1], layout=gl.SliceLayout(0, LAYOUT)))[None, :]
    for first in gl.static_range(0, ALL_ROWS, ROWS):
        part = buffer.slice(first, ROWS, 0).load(LAYOUT)
        first_ptr = c_ptr + (row + first).to(gl.int64) * N
        gl.store(first_ptr + (rows * N + columns), part, mask=(rows < M - row - first) & (columns < N))

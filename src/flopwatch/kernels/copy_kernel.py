"""Copy matrices into rows that kernels read fast: one launch for both operands of a product.

torch's ``pad`` fills all of a copy with zeros and then writes over most of it, in a launch each. Here an element of a
copy is written once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl

from flopwatch.kernels.launch import Launched
from flopwatch.kernels.prepared import Prepared
from flopwatch.kernels.scratch import CopyLayout, rows_copy, scratch_copies, width_of

if TYPE_CHECKING:
    from flopwatch.kernels.launch import Arrange

#: Of a tile: its rows, and its columns, 512 bytes of 16-bit elements: of fifteen sizes the fastest of eight kinds of
#: copies in the geometric mean (H100, 2026-11-26; decision 12).
_ROWS, _COLUMNS = 16, 256


@triton.jit  # type: ignore[untyped-decorator] # Triton ships no types
def copy_kernel(  # type: ignore[no-untyped-def] # Triton types them # noqa: PLR0917 - a kernel's arguments
    first_ptr,  # (first_rows, first_columns)
    first_copy_ptr,  # (first_height, first_pitch)
    second_ptr,  # (second_rows, second_columns)
    second_copy_ptr,  # (second_height, second_pitch)
    first_tiles,
    first_rows,
    first_columns,
    first_row_stride,
    first_column_stride,
    first_height,
    first_pitch,
    second_rows,
    second_columns,
    second_row_stride,
    second_column_stride,
    second_height,
    second_pitch,
    FIRST_WIDTH: tl.constexpr,
    SECOND_WIDTH: tl.constexpr,
    BLOCK_R: tl.constexpr,
    BLOCK_C: tl.constexpr,
):
    """Copy two matrices into rows of a pitch, with zeros in what they do not fill.

    Formula: ``copy[i, j] = matrix[i, j]`` where the matrix has such an element, and 0 elsewhere.

    ========  ==================  ===========  ========
    tensor    shape               strides      dtype
    ========  ==================  ===========  ========
    matrices  (rows, columns)     any          any one
    copies    (height, pitch)     contiguous   the same
    ========  ==================  ===========  ========

    One program copies a tile of BLOCK_R rows and BLOCK_C columns: the first `first_tiles` of the one matrix, those
    after them of the other. WIDTH divides the columns of a matrix, the stride from row to row and the pitch, and is 1
    where columns are not next to each other.

    Numerics and limits: bits are kept. Offsets are 64-bit.
    """
    program = tl.program_id(0)
    # fmt: off
    if program < first_tiles:
        _copy_tile(
            first_ptr, first_copy_ptr, program,
            first_rows, first_columns, first_row_stride, first_column_stride, first_height, first_pitch,
            FIRST_WIDTH, BLOCK_R, BLOCK_C,
        )
    else:
        _copy_tile(
            second_ptr, second_copy_ptr, program - first_tiles,
            second_rows, second_columns, second_row_stride, second_column_stride, second_height, second_pitch,
            SECOND_WIDTH, BLOCK_R, BLOCK_C,
        )
    # fmt: on


@triton.jit  # type: ignore[untyped-decorator] # as above
def _copy_tile(  # type: ignore[no-untyped-def] # as above # noqa: PLR0917 - as above
    matrix_ptr,
    copy_ptr,
    tile,
    rows,
    columns,
    row_stride,
    column_stride,
    height,
    pitch,
    WIDTH: tl.constexpr,
    BLOCK_R: tl.constexpr,
    BLOCK_C: tl.constexpr,
):
    columns, row_stride, pitch = columns // WIDTH * WIDTH, row_stride // WIDTH * WIDTH, pitch // WIDTH * WIDTH
    across = tl.cdiv(pitch, BLOCK_C)
    first_row, first_column = (tile // across).to(tl.int64) * BLOCK_R, (tile % across).to(tl.int64) * BLOCK_C
    row, column = (first_row + tl.arange(0, BLOCK_R))[:, None], (first_column + tl.arange(0, BLOCK_C))[None, :]
    there = (row < rows) & (column < columns)
    elements = tl.load(matrix_ptr + row * row_stride + column * column_stride, mask=there, other=0.0)
    # Stored as they are in one line: what Triton loads and stores in one shape it also loads as wide as it can store.
    place = tl.arange(0, BLOCK_R * BLOCK_C)
    row, column = first_row + place // BLOCK_C, first_column + place % BLOCK_C
    elements = tl.reshape(elements, (BLOCK_R * BLOCK_C,))
    tl.store(copy_ptr + row * pitch + column, elements, mask=(row < height) & (column < pitch))


@dataclass(frozen=True, kw_only=True, slots=True)
class Copies:
    """How both operands of a product are copied."""

    a: CopyLayout
    b: CopyLayout


@dataclass(frozen=True, kw_only=True, slots=True)
class Copied:
    """Copies of both operands.

    Attributes:
        a: (M, K).
        b: (K, N).
        memory: that the copies are in, that of A at its start.
        b_begins: where that of B begins there, in bytes.
        launched: what made them.
    """

    a: torch.Tensor
    b: torch.Tensor
    memory: torch.Tensor
    b_begins: int
    launched: Launched


def make_copies(copies: Copies, a: torch.Tensor, b: torch.Tensor) -> Copied:
    """Copy operands of a product on the current stream.

    Args:
        copies: as `a` and `b` lie.
        a: (M, K).
        b: (K, N), of the same dtype.

    Raises:
        torch.OutOfMemoryError: there is no memory for them.
    """
    begins = copies.a.elements  # whose rows are whole lines
    memory = torch.empty(begins + copies.b.elements, dtype=b.dtype, device=b.device)
    b_begins = begins * memory.element_size()
    a_copy = memory.as_strided(copies.a.view_shape, copies.a.view_strides)
    b_copy = memory[begins:].as_strided(copies.b.view_shape, copies.b.view_strides)
    made = [(a, copies.a, a_copy), (b, copies.b, b_copy)]

    def arrange(_stream: int, a: int, b: int, memory: int) -> tuple[tuple[int, ...], None]:
        return (a, memory, b, memory + b_begins), None

    return Copied(a=a_copy, b=b_copy, memory=memory, b_begins=b_begins, launched=_prepared(made, arrange).launch())


def first_columns(c: torch.Tensor, columns: int) -> tuple[torch.Tensor, Launched]:
    """Copy the first columns of a matrix; return them, contiguous, and what did it."""
    rows = c.shape[0]
    out = torch.empty((rows, columns), dtype=c.dtype, device=c.device)
    copy = rows_copy(c, rows, columns)
    return out, _prepared([(c, copy, out)], lambda _stream, c, out: ((c, out) * 2, None)).launch()


def copies_in_scratch(a: torch.Tensor, b: torch.Tensor) -> Copies:
    """Return how operands of a product are copied, as `scratch_copies` describes it."""
    of_a, of_b = scratch_copies(a, b)
    return Copies(a=of_a, b=of_b)


def in_scratch(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return copies of both operands of a product.

    Args:
        a: (M, K), any strides.
        b: (K, N), any strides.

    Returns:
        (M, K rounded up) and (K rounded up, N rounded up), without gaps.
    """
    copied = make_copies(copies_in_scratch(a, b), a, b)
    return copied.a, copied.b


def _prepared(copies: list[tuple[torch.Tensor, CopyLayout, torch.Tensor]], arrange: Arrange) -> Prepared:
    """Prepare the launch that makes one copy or two, each of a matrix, as it is described, and where it is to be."""
    tiles = [math.ceil(copy.height / _ROWS) * math.ceil(copy.pitch / _COLUMNS) for _, copy, _ in copies]
    both = (copies * 2)[:2]  # of one copy the other's tiles are none
    numbers = [
        number
        for _, copy, _ in both
        for number in (copy.rows, copy.columns, *copy.source_strides, copy.height, copy.pitch)
    ]
    first, second = (width_of(copy.source_strides, copy.columns, copy.pitch) for _, copy, _ in both)
    return Prepared(
        kernel=copy_kernel,
        grid=(sum(tiles),),
        arguments=(*(each for matrix, _, place in both for each in (matrix, place)), tiles[0], *numbers),
        constants={"FIRST_WIDTH": first, "SECOND_WIDTH": second, "BLOCK_R": _ROWS, "BLOCK_C": _COLUMNS},
        arrange=arrange,
    )

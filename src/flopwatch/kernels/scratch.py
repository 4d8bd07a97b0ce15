"""How matrices that kernels cannot read fast are copied to where they can, and which products gain by that."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

#: What Triton asks of a pointer, in bytes, and of a stride, in elements, to read 16 bytes at a time by itself.
ALIGNMENT = 16
#: To what the depth of a product is rounded: most configurations take steps of that, and need no masks then.
DEPTH = 64
#: Operands that cannot be read 16 bytes at a time are copied where there are so many multiply-adds, in all and for each
#: element of the three matrices: a thin product reads an element few times. Microseconds without and with copies:
#: 777x1234x5678 119 and 71, 4095x4097x4099 900 and 380; 1000x1000x1000 25 and 22, where the host took longer
#: to make the copies (H200, 2026-11-22; with another number here ``flopwatch compare HEAD -k Matmul`` tells anew; rows
#: of 1000 elements are read fast without copies since, `flopwatch.kernels.eights`).
SCRATCH_FROM = 2**31
SCRATCH_INTENSITY = 256
#: Likewise where one launch copies and multiplies. With 148 and 182 that took 0.56 of the plain kernel's time without
#: copies, and with 154 as long; below, it may be 0.61 (120), 0.92 (124) or 1.36 (126, where no cache holds B). The
#: sizes are 160 and 200x4097x4099, 8191x160x8191, and 128 rows by 4097x4099, 8191x8191 and 16385x16384
#: (``evidence/h100/matmul-held-out-odd-2026-11-27.json``).
COPYING_INTENSITY = 140
#: Elements of 16 bits in a line of memory, 128 bytes that a GPU fetches at once, and in a sector, a quarter of it.
LINE, SECTOR = 64, 16
#: B is copied so that its rows begin with lines where A has so many rows, and there are so many multiply-adds. Such
#: products are 1.02 to 1.36 times as fast by that, the copy included, but for one of 2048 rows, which is level; with
#: 1504 rows and fewer they take longer, and so do 2048 rows of a B that no L2 cache holds. With fewer multiply-adds
#: some gain as much, and others nothing (H100, 2026-11-26, ``python -m evidence.lines gains
#: evidence/h100/lines-2026-11-26.json``).
LINES_ROWS, LINES_FROM = 2000, 15 * 10**9
#: Elements of B, 64 MiB, beyond which twice the rows are asked for.
LINES_LARGE = 2**25
#: Elements of 16 bits in 16 bytes; and from row to row, so many that 32 bits do not count the bytes of 64 rows.
WIDE, FAR = 8, 2**22


@dataclass(frozen=True, kw_only=True, slots=True)
class CopyLayout:
    """How a matrix is copied: into rows of a pitch, with zeros in what it does not fill.

    Attributes:
        rows: of the matrix, as the copy has them.
        columns: likewise.
        source_strides: of the matrix, from row to row and from column to column.
        height: rows of the copy.
        pitch: elements of each; columns beyond are left out.
        view_shape: of what is made of the copy.
        view_strides: likewise.
    """

    rows: int
    columns: int
    source_strides: tuple[int, int]
    height: int
    pitch: int
    view_shape: tuple[int, int]
    view_strides: tuple[int, int]

    @property
    def elements(self) -> int:
        """Of the copy."""
        return self.height * self.pitch


def is_aligned(pointer: int, strides: tuple[int, ...]) -> bool:
    """Tell whether Triton reads a matrix 16 bytes at a time by itself, whatever its elements.

    >>> is_aligned(4096, (1008, 1)), is_aligned(4096, (1001, 1)), is_aligned(4098, (1008, 1))
    (True, False, False)
    """
    return pointer % ALIGNMENT == 0 and 1 in strides and max(strides) % ALIGNMENT == 0


def is_worth_scratch(M: int, N: int, K: int, *, within_launch: bool = False) -> bool:
    """Tell whether a product gains more by fast reads than copies of its operands cost, and one of its result.

    Args:
        M: rows of A.
        N: columns of B.
        K: columns of A.
        within_launch: whether the launch that multiplies makes the copies.

    >>> is_worth_scratch(777, 1234, 5678), is_worth_scratch(1000, 1000, 1000), is_worth_scratch(64, 8191, 8191)
    (True, False, False)
    """
    work = M * N * K
    intensity = COPYING_INTENSITY if within_launch else SCRATCH_INTENSITY
    return work >= SCRATCH_FROM and work >= intensity * (M * K + K * N + M * N)


def scratch_copies(a: torch.Tensor, b: torch.Tensor) -> tuple[CopyLayout, CopyLayout]:
    """Describe copies of both operands of a product whose rows start at multiples of 16 elements.

    Zeros round the depth up to `DEPTH`, which adds nothing to the product, and its columns up to `ALIGNMENT`. That of
    A lies by rows, however A does, and that of B by columns only where B does.

    Args:
        a: (M, K), any strides.
        b: (K, N), any strides.

    >>> import torch
    >>> a, b = (torch.empty(shape, device="meta") for shape in ((45, 71), (71, 33)))
    >>> [(copy.view_shape, copy.view_strides) for copy in scratch_copies(a, b)]
    [((45, 128), (128, 1)), ((128, 48), (48, 1))]
    >>> scratch_copies(a, torch.empty(33, 71, device="meta").T)[1].view_strides
    (1, 128)
    """
    (M, K), N = a.shape, b.shape[1]
    depth, width = rounded(K, DEPTH), rounded(N, ALIGNMENT)
    return rows_copy(a, M, depth), rows_copy(b, depth, width) if _by_rows(b) else _columns_copy(b, depth, width)


def rows_copy(matrix: torch.Tensor, height: int, pitch: int) -> CopyLayout:
    """Describe a copy by rows, of which the zeros that fill it up are a part."""
    rows, columns = matrix.shape
    row, column = matrix.stride()
    return CopyLayout(
        rows=rows,
        columns=columns,
        source_strides=(row, column),
        height=height,
        pitch=pitch,
        view_shape=(height, pitch),
        view_strides=(pitch, 1),
    )


def _columns_copy(matrix: torch.Tensor, height: int, width: int) -> CopyLayout:
    """Describe a copy by columns, of so many rows and columns."""
    return replace(rows_copy(matrix.T, width, height), view_shape=(height, width), view_strides=(1, height))


def is_worth_lines(b: torch.Tensor, M: int) -> bool:
    """Tell whether a product gains more by rows of B that begin with lines of memory than their copy costs.

    Args:
        b: (K, N) of 16-bit elements, by rows or by columns.
        M: rows of the product.

    >>> import torch
    >>> is_worth_lines(torch.empty(5000, 5000, dtype=torch.float16, device="meta"), 5000)
    True
    >>> is_worth_lines(torch.empty(5008, 5008, dtype=torch.float16, device="meta"), 5000)
    False
    """
    rows = b if _by_rows(b) else b.T
    return (
        (LINES_ROWS if b.numel() <= LINES_LARGE else 2 * LINES_ROWS) <= M
        and M * b.numel() >= LINES_FROM
        and rows.stride(0) % SECTOR != 0
        and rows.stride(0) < FAR
        and rows.shape[1] % WIDE == rows.stride(0) % WIDE == 0
    )


def _by_rows(matrix: torch.Tensor) -> bool:
    """Tell whether a matrix does not lie by columns: elements of a row are next to each other, or nothing is."""
    row, column = matrix.stride()
    return column == 1 or row != 1


def width_of(strides: tuple[int, ...], *lengths: int) -> int:
    """Return how many 16-bit elements of a row may be read, and written, at once: Triton asks besides where they begin.

    Args:
        strides: of the matrix, from row to row and from column to column.
        lengths: of its rows, and of those that they are copied to.

    >>> width_of((1004, 1), 1002), width_of((1008, 1), 1008), width_of((1, 1008), 1008)
    (2, 8, 1)
    """
    row, column = strides
    return math.gcd(row, *lengths, WIDE) if column == 1 else 1


def rounded(length: int, unit: int) -> int:
    """Round up to a multiple of a unit."""
    return math.ceil(length / unit) * unit

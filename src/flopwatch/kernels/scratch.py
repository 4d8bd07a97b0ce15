"""Copies of matrices that kernels cannot read fast, in memory where they can."""

from __future__ import annotations

import torch
from torch.nn.functional import pad

#: What Triton asks of a pointer, in bytes, and of a stride, in elements, to read 16 bytes at a time by itself.
ALIGNMENT = 16
#: To what the depth of a product is rounded: most configurations take steps of that, and need no masks then.
DEPTH = 64
#: Operands that cannot be read 16 bytes at a time are copied first where there are so many multiply-adds, in all and
#: for each element of the three matrices: a thin product reads an element few times. Microseconds without and with
#: copies: 777x1234x5678 119 and 71, 4095x4097x4099 900 and 380; 1000x1000x1000 25 and 22, where the host took longer
#: to make the copies (H200, 2026-11-22; with another number here ``flopwatch compare HEAD -k Matmul`` tells anew; rows
#: of 1000 elements are read fast without copies since, `flopwatch.kernels.eights`).
SCRATCH_FROM = 2**31
SCRATCH_INTENSITY = 256
#: Elements of 16 bits in a line of memory, 128 bytes that a GPU fetches at once, and in a sector, a quarter of it.
LINE, SECTOR = 64, 16
#: B is copied so that its rows begin with lines where A has so many rows, and there are so many multiply-adds. Such
#: products are 1.05 to 1.36 times as fast by that, the copy included, but for one of 2048 rows, which is level; with
#: 1504 rows and fewer they are level or take longer, and so do 2048 rows of a B that no L2 cache holds (H100,
#: 2026-11-25, ``python -m evidence.lines gains evidence/h100/lines-2026-11-25.json``). With fewer multiply-adds the GPU
#: takes less than 60 us, and a call by way of a copy may cost the host as much: four times what another one does (a
#: stand-in for a GPU, 2026-11-25; no command derives that).
LINES_ROWS, LINES_FROM = 2000, 15 * 10**9
#: Elements of B, 64 MiB, beyond which twice the rows are asked for.
LINES_LARGE = 2**25
#: Elements of 16 bits in one of complex128, which torch copies at once.
_WIDE = 8


def is_aligned(pointer: int, strides: tuple[int, ...]) -> bool:
    """Tell whether Triton reads a matrix 16 bytes at a time by itself, whatever its elements.

    >>> is_aligned(4096, (1008, 1)), is_aligned(4096, (1001, 1)), is_aligned(4098, (1008, 1))
    (True, False, False)
    """
    return pointer % ALIGNMENT == 0 and 1 in strides and max(strides) % ALIGNMENT == 0


def is_worth_scratch(M: int, N: int, K: int) -> bool:
    """Tell whether a product gains more by fast reads than copies of its operands and of its result cost.

    >>> is_worth_scratch(777, 1234, 5678), is_worth_scratch(1000, 1000, 1000), is_worth_scratch(64, 8191, 8191)
    (True, False, False)
    """
    work = M * N * K
    return work >= SCRATCH_FROM and work >= SCRATCH_INTENSITY * (M * K + K * N + M * N)


def in_scratch(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return copies of both operands of a product whose rows start at multiples of 16 elements.

    Zeros round the depth up to `DEPTH`, which adds nothing to the product, and its columns up to `ALIGNMENT`.

    Args:
        a: (M, K), any strides.
        b: (K, N), any strides.

    Returns:
        (M, K rounded up) and (K rounded up, N rounded up), contiguous.
    """
    depth, columns = -a.shape[1] % DEPTH, -b.shape[1] % ALIGNMENT
    # Where there is nothing to add, pad keeps the strides.
    return pad(a, (0, depth)).contiguous(), pad(b, (0, columns, 0, depth)).contiguous()


def is_worth_lines(b: torch.Tensor, M: int) -> bool:
    """Tell whether a product gains more by rows of B that begin with lines of memory than their copy costs.

    Args:
        b: (K, N) of 16-bit elements, by rows or by columns.
        M: rows of the product.

    >>> is_worth_lines(torch.empty(5000, 5000, dtype=torch.float16, device="meta"), 5000)
    True
    >>> is_worth_lines(torch.empty(5008, 5008, dtype=torch.float16, device="meta"), 5000)
    False
    """
    rows = _by_rows(b)
    return (
        (LINES_ROWS if b.numel() <= LINES_LARGE else 2 * LINES_ROWS) <= M
        and M * b.numel() >= LINES_FROM
        and rows.stride(0) % SECTOR != 0
        and rows.shape[1] % _WIDE == rows.stride(0) % _WIDE == 0
    )


def in_lines(b: torch.Tensor) -> torch.Tensor:
    """Return a copy whose rows, or columns where B lies by them, each begin with a line of memory.

    Args:
        b: (K, N) of 16-bit elements, by rows or by columns; 8 divides the length of these, and the stride from one to
            the next.
    """
    rows = _by_rows(b)
    pitch = -(-rows.shape[1] // LINE) * LINE
    copy = torch.empty((rows.shape[0], pitch), device=b.device, dtype=b.dtype)[:, : rows.shape[1]]
    if rows.storage_offset() % _WIDE == 0:
        copy.view(torch.complex128).copy_(rows.view(torch.complex128))
    else:  # torch has no view that begins there
        copy.copy_(rows)
    return copy if rows is b else copy.T


def _by_rows(matrix: torch.Tensor) -> torch.Tensor:
    return matrix if matrix.stride(1) == 1 else matrix.T

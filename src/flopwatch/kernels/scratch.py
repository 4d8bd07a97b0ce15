"""Copies of matrices that Triton cannot read 16 bytes at a time, in memory where it can."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch.nn.functional import pad

if TYPE_CHECKING:
    import torch

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

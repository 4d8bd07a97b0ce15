"""Operands of products that 8 has to divide for being read fast, where 16 does not and Triton has to be told.

Of a number that a kernel is given Triton knows whether 16 divides it, though 8 elements of 16 bits are 16 bytes. Of a
product it knows what divides a factor: so `in_eights` divides by 8 and multiplies again.
"""

from __future__ import annotations

import triton
import triton.language as tl

from flopwatch.kernels.scratch import ALIGNMENT

#: Elements of 16 bits in 16 bytes.
_EIGHT = 8


@triton.jit  # type: ignore[untyped-decorator] # Triton ships no types
def in_eights(  # type: ignore[no-untyped-def] # Triton types them # noqa: PLR0917 - a kernel's arguments
    M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, EIGHTS: tl.constexpr
):
    """Return sizes and strides as they are, those that 8 divides by what `eights` says as multiples of 8."""
    N, K, stride_cm = N // 8 * 8, K // 8 * 8, stride_cm // 8 * 8
    if EIGHTS[0] == "N":
        stride_am = stride_am // 8 * 8
    else:
        M, stride_ak = M // 8 * 8, stride_ak // 8 * 8
    if EIGHTS[1] == "N":
        stride_bk = stride_bk // 8 * 8
    else:
        stride_bn = stride_bn // 8 * 8
    return M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm


def eights(
    sizes: tuple[int, int, int], a_strides: tuple[int, ...], b_strides: tuple[int, ...], c_strides: tuple[int, ...]
) -> str:
    """Say how operands lie of which `in_eights` has something to tell.

    Args:
        sizes: M, N and K.
        a_strides: of A.
        b_strides: of B.
        c_strides: of C.

    Returns:
        "N" by rows or "T" by columns for A and for B, where 8 divides N, K, the strides between rows or columns, and M
        if A lies by columns; "" where it does not divide them all, or 16 does, or C does not lie by rows.

    >>> eights((777, 1008, 1000), (1000, 1), (1, 1000), (1008, 1))
    'NT'
    >>> eights((777, 1008, 1008), (1008, 1), (1008, 1), (1008, 1))
    ''
    """
    M, N, K = sizes
    if 1 not in a_strides or 1 not in b_strides or c_strides[1] != 1:
        return ""
    numbers = {N, K, *_line(M, K, a_strides), *_line(K, N, b_strides), c_strides[0]}
    if any(number % _EIGHT for number in numbers) or not any(number % ALIGNMENT for number in numbers):
        return ""
    return "".join("N" if strides[1] == 1 else "T" for strides in (a_strides, b_strides))


def are_readable(
    pointers: tuple[int, ...], sizes: tuple[int, int, int], a_strides: tuple[int, ...], b_strides: tuple[int, ...]
) -> bool:
    """Tell whether a kernel with `in_eights` reads both operands, of 16-bit elements, 16 bytes at a time.

    No mask may end within 16 bytes either, so that the length of a row (or column) counts as the stride does.

    >>> are_readable((4096, 8192), (777, 1008, 1000), (1000, 1), (1008, 1))
    True
    >>> are_readable((4096, 8192), (777, 1008, 1001), (1008, 1), (1008, 1))
    False
    """
    if any(pointer % ALIGNMENT for pointer in pointers) or 1 not in a_strides or 1 not in b_strides:
        return False
    M, N, K = sizes
    numbers = {*_line(M, K, a_strides), *_line(K, N, b_strides)}
    return not any(number % ALIGNMENT for number in numbers) or bool(eights(sizes, a_strides, b_strides, (N, 1)))


def _line(rows: int, columns: int, strides: tuple[int, ...]) -> tuple[int, ...]:
    """Return the length of what is contiguous in a matrix, a row or a column, and the stride between two of them."""
    return (columns, strides[0]) if strides[1] == 1 else (rows, strides[1])

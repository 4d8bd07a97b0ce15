"""Which products are computed of copies of their operands: those that gain more by reading these than they cost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flopwatch.kernels.copy_kernel import Copies
from flopwatch.kernels.eights import are_readable
from flopwatch.kernels.hopper_matmul import HopperConfig
from flopwatch.kernels.routes import ruled_product
from flopwatch.kernels.scratch import is_worth_lines, is_worth_scratch, lines_copy, scratch_copies

if TYPE_CHECKING:
    import torch


def copies_worth_making(a: torch.Tensor, b: torch.Tensor, *, routed: bool) -> Copies | None:
    """Return how operands of a product are copied for it to be faster; None where it is fastest as they are.

    The product is the first columns of that of the copies, of which no copies are worth making. Sizes, strides, dtypes
    and alignments decide, and what kernels there are for the GPU.

    Args:
        a: (M, K), not empty, of 16-bit elements.
        b: (K, N), likewise.
        routed: whether another kernel than the plain one may be taken.
    """
    (M, K), N = a.shape, b.shape[1]
    if is_worth_scratch(M, N, K) and not are_readable((a.data_ptr(), b.data_ptr()), (M, N, K), a.stride(), b.stride()):
        of_a, of_b = scratch_copies(a, b)
        return Copies(a=of_a, b=of_b)
    if routed and is_worth_lines(b, M) and isinstance(ruled_product(a, b), HopperConfig):
        return Copies(a=None, b=lines_copy(b))
    return None

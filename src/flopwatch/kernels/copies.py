"""Which products are computed of copies of their operands: those that gain more by reading these than they cost.

And which by the kernels for Hopper that can copy them, and that store C as it lies.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from flopwatch.kernels.copy_kernel import copies_in_scratch
from flopwatch.kernels.eights import are_readable
from flopwatch.kernels.hopper_copying import is_too_wide
from flopwatch.kernels.hopper_matmul import HopperConfig, can_multiply, has_mapped_rows
from flopwatch.kernels.hopper_short import ShortConfig
from flopwatch.kernels.routes import ruled_product
from flopwatch.kernels.scratch import is_worth_lines, is_worth_scratch

if TYPE_CHECKING:
    import torch

    from flopwatch.kernels.copy_kernel import Copies

#: Rows and columns from which products are taken whose columns 8 does not divide: of fewer none was timed
#: (``evidence/h100/matmul-held-out-odd-columns-2026-11-26.json``).
ODD_FROM = 256


@dataclass(frozen=True, kw_only=True, slots=True)
class Copying:
    """A product whose launch copies operands itself, if any are to be (`flopwatch.kernels.hopper_copying`).

    Attributes:
        config: of the launch.
        copies_b: whether B is copied though it can be read.
    """

    config: HopperConfig | ShortConfig
    copies_b: bool


def copies_worth_making(a: torch.Tensor, b: torch.Tensor, *, routed: bool) -> Copying | Copies | None:
    """Return how operands of a product are copied for it to be faster; None where calls do what they do of others.

    Sizes, strides, dtypes and alignments decide, and what kernels there are for the GPU. Of `Copies`, which are made
    first, no copies are worth making again, and the product is the first columns of theirs.

    Args:
        a: (M, K), not empty, of 16-bit elements.
        b: (K, N), likewise.
        routed: whether another kernel than the plain one may be taken.
    """
    (M, K), N = a.shape, b.shape[1]
    in_lines = is_worth_lines(b, M)
    is_readable = are_readable((a.data_ptr(), b.data_ptr()), (M, N, K), a.stride(), b.stride())
    is_described = has_mapped_rows(a) and (has_mapped_rows(b) or has_mapped_rows(b.T))
    reads_slowly = not is_readable and is_worth_scratch(M, N, K, within_launch=not is_described)
    is_odd = is_described and N % 8 != 0 and min(M, N) >= ODD_FROM
    is_worth = reads_slowly or is_odd or (in_lines and can_multiply(a, b))
    config = None
    if routed and is_worth and not is_too_wide(N):
        config = ruled_product(a, b, in_lines=not is_described)
    if isinstance(config, HopperConfig) or (isinstance(config, ShortConfig) and (reads_slowly or is_odd)):
        return Copying(config=config, copies_b=in_lines)
    return copies_in_scratch(a, b) if not is_readable and is_worth_scratch(M, N, K) else None

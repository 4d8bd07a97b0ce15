"""Which products are computed of copies of their operands: those that gain more by reading these than they cost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from flopwatch.kernels.copy_kernel import copies_in_scratch
from flopwatch.kernels.eights import are_readable
from flopwatch.kernels.hopper_copying import is_too_wide
from flopwatch.kernels.hopper_matmul import HopperConfig, can_multiply
from flopwatch.kernels.routes import persistent_product
from flopwatch.kernels.scratch import is_worth_lines, is_worth_scratch

if TYPE_CHECKING:
    import torch

    from flopwatch.kernels.copy_kernel import Copies

#: Operands are copied within the launch of their product where each of their elements takes part in so many
#: multiply-adds: copying takes longer there, and spares a launch, and the cut. In microseconds, so and copied first:
#: 4095x4097x4099 263 and 265, 2047x2049x4099 107 and 100, 1025x8193x8192 342 and 386, 520x8193x8192 293 and 269,
#: 260x8191x8191 438 and 196, 300x16385x16384 850 and 741 (H100, 2026-11-26; decision 13).
COPYING_INTENSITY = 2000


@dataclass(frozen=True, kw_only=True, slots=True)
class Copying:
    """A product whose launch copies operands itself (`flopwatch.kernels.hopper_copying`).

    Attributes:
        config: of the launch.
        copies_b: whether B is copied though it can be read.
    """

    config: HopperConfig
    copies_b: bool


def copies_worth_making(a: torch.Tensor, b: torch.Tensor, *, routed: bool) -> Copying | Copies | None:
    """Return how operands of a product are copied for it to be faster; None where it is fastest as they are.

    Sizes, strides, dtypes and alignments decide, and what kernels there are for the GPU. Of `Copies`, which are made
    first, no copies are worth making again, and the product is the first columns of theirs.

    Args:
        a: (M, K), not empty, of 16-bit elements.
        b: (K, N), likewise.
        routed: whether another kernel than the plain one may be taken.
    """
    (M, K), N = a.shape, b.shape[1]
    reads_slowly = is_worth_scratch(M, N, K) and not are_readable(
        (a.data_ptr(), b.data_ptr()), (M, N, K), a.stride(), b.stride()
    )
    begins_within_lines = is_worth_lines(b, M)
    if not reads_slowly and not (begins_within_lines and can_multiply(a, b)):
        return None
    if not reads_slowly or M * N >= COPYING_INTENSITY * (M + N):
        config = persistent_product(a, b) if routed and not is_too_wide(N) else None
        if config is not None:
            return Copying(config=config, copies_b=begins_within_lines)
    return copies_in_scratch(a, b) if reads_slowly else None

"""A kernel that does nothing for a while.

One warp multiplies and adds, each step waiting for the one before it: a few nanoseconds a turn. A clock would be
coarser: %globaltimer advances in steps of 32 ns or more, and a quarter of a percent of a small kernel is ten. What a
turn takes depends on the clock of the multiprocessors and with it on the kernel before; `evidence.record_power`
therefore calibrates it behind that kernel, against CUDA events.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import triton
import triton.language as tl

if TYPE_CHECKING:
    import torch

#: A linear congruential generator (W. H. Press et al., "Numerical Recipes", 1992, section 7.1). Its result after a
#: number of turns that the compiler does not know may have to be stored, so that the turns cannot be left out.
#: There is one turn more than asked for, so that no turns take the same path as many; and the loop is not unrolled, so
#: that each turn costs the same.
_TURNS = tl.constexpr("""
{
    .reg .pred more;
    .reg .u32 left, value;
    mov.u32 left, $1;
    mov.u32 value, $1;
    .pragma "nounroll";
again:
    mad.lo.u32 value, value, 1664525, 1013904223;
    setp.ne.u32 more, left, 0;
    sub.u32 left, left, 1;
    @more bra again;
    mov.u32 $0, value;
}
""")
#: What the generator gives after none of the first two million turns.
_RARE = tl.constexpr(1)


@triton.jit(do_not_specialize=["turns"])
def spin_kernel(sink_ptr, turns):  # type: ignore[no-untyped-def] # noqa: ANN001, ANN201 - Triton's own types
    """Wait for `turns` turns, and store what came out if it is `_RARE`.

    Were it always stored, the kernel would end when the store arrives, 50 ns sooner or later by where the sink lies:
    every pair of processes was as far off, 2 % of a kernel of 2.3 us (H200, 2026-11-23).
    """
    value = tl.inline_asm_elementwise(_TURNS, "=r,r", [turns], dtype=tl.int32, is_pure=False, pack=1)
    tl.store(sink_ptr, value, mask=value == _RARE)


def spin(turns: int, sink: torch.Tensor) -> None:
    """Enqueue a spin behind whatever the current stream has to do.

    Args:
        turns: 0 or more, below 2^31.
        sink: one int32 on the GPU, which may be overwritten.
    """
    spin_kernel[(1,)](sink, turns, num_warps=1)

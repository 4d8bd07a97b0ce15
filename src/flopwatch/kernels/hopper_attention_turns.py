"""Turns of the consumer warpgroups of `hopper_attention_kernel`, by named barriers, which Gluon has no name for.

A group issues its products while the others compute their softmax (Shah et al., FlashAttention-3, 2024, section 3.1).
"""

# Triton types what it compiles, and ships no types:
# mypy: disable-error-code="no-untyped-def, untyped-decorator"

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl


@gluon.jit
def take_turn(GROUP: gl.constexpr, PING_PONG: gl.constexpr):
    """Wait until the group before has issued its products."""
    if PING_PONG:
        meet("sync", GROUP)


@gluon.jit
def give_turn(GROUP: gl.constexpr, PING_PONG: gl.constexpr):
    """Let that group issue its products, without waiting."""
    if PING_PONG:
        meet("arrive", GROUP)


@gluon.jit
def meet(DO: gl.constexpr, GROUP: gl.constexpr):
    """Meet at a group's named barrier, where "sync" waits for 128 threads that "arrive", which does not.

    They are 8 to 10. Triton itself uses 0 to 4 for up to five partitions.
    """
    zero = gl.to_tensor(0)
    gl.inline_asm_elementwise(
        f"bar.{DO} {8 + GROUP}, 256; mov.b32 $0, $1;", "=r,r", [zero], dtype=gl.int32, is_pure=False, pack=1
    )

"""A kernel of all that a launch hands over: tensor maps, an address, numbers that are one or none, and a constant."""
# ruff: noqa: ANN001, ANN201 - a kernel's arguments are Triton's own types, checked by its compiler

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators
# Triton types what is compiled, and ships no types itself.

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def described_kernel(  # noqa: PLR0917 - a kernel's arguments
    x_desc,  # (M, N)
    flags_ptr,  # (1,)
    out_desc,  # (M, N)
    factor,
    step,
    large,
    nothing,
    BLOCK: tl.constexpr,
):
    """Store ``factor * x``, a tile a program, and what it was given."""
    row = tl.program_id(0) * BLOCK
    column = tl.program_id(1) * BLOCK
    tile = x_desc.load([row, column])
    out_desc.store([row, column], (tile * factor).to(x_desc.dtype))
    if nothing is None:
        tl.store(flags_ptr, (step + large).to(tl.int32))


@triton.jit
def describing_kernel(x_ptr, M, N, BLOCK: tl.constexpr):
    """Make a descriptor on the GPU, for which Triton gives each launch memory of its own."""
    x = tl.make_tensor_descriptor(x_ptr, [M, N], [N, 1], [BLOCK, BLOCK])
    x.store([0, 0], tl.zeros((BLOCK, BLOCK), tl.float16))

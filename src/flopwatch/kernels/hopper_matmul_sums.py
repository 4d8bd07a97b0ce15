"""What a consumer of `hopper_matmul_kernel` does with the steps of a tile: sums of their products, and their scales."""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators
# Triton types what is compiled, and ships no types itself.

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, warpgroup_mma, warpgroup_mma_wait


@gluon.jit
def _b_operand(b_ring, stage, B_BY_COLUMNS: gl.constexpr):
    if B_BY_COLUMNS:
        return b_ring.index(stage).permute((1, 0))
    else:  # noqa: RET505 - Triton compiles one branch, and none after a return
        return b_ring.index(stage)


@gluon.jit
def tensor_core_sum(  # noqa: PLR0917 - of a kernel's arguments
    a_ring,
    b_ring,
    full,
    empty,
    stage,
    phase,
    begin,
    end,
    CONSUMER: gl.constexpr,
    B_BY_COLUMNS: gl.constexpr,
    LAYOUT: gl.constexpr,
):
    """Sum the products of steps in the tensor cores; return where the ring is then, too."""
    STAGES: gl.constexpr = b_ring.shape[0]
    CONSUMERS: gl.constexpr = a_ring.shape[0] // STAGES
    ROWS: gl.constexpr = a_ring.shape[1]
    COLUMNS: gl.constexpr = b_ring.shape[1] if B_BY_COLUMNS else b_ring.shape[2]
    accumulator = gl.zeros([ROWS, COLUMNS], gl.float32, LAYOUT)
    mbarrier.wait(full.index(stage), phase)
    accumulator = warpgroup_mma(
        a_ring.index(stage * CONSUMERS + CONSUMER),
        _b_operand(b_ring, stage, B_BY_COLUMNS),
        accumulator,
        use_acc=False,
        is_async=True,
    )
    # Waits for nothing: what the loop carries must be a tensor.
    accumulator = warpgroup_mma_wait(1, deps=(accumulator,))
    before = stage
    stage += 1
    if stage == STAGES:
        stage = 0
        phase ^= 1
    for _ in range(begin + 1, end):
        mbarrier.wait(full.index(stage), phase)
        accumulator = warpgroup_mma(
            a_ring.index(stage * CONSUMERS + CONSUMER),
            _b_operand(b_ring, stage, B_BY_COLUMNS),
            accumulator,
            is_async=True,
        )
        accumulator = warpgroup_mma_wait(1, deps=(accumulator,))  # the step before has read its buffers
        mbarrier.arrive(empty.index(before), count=1)
        before = stage
        stage += 1
        if stage == STAGES:
            stage = 0
            phase ^= 1
    accumulator = warpgroup_mma_wait(0, deps=(accumulator,))
    mbarrier.arrive(empty.index(before), count=1)
    return accumulator, stage, phase


@gluon.jit
def promoted_sum(  # noqa: PLR0917 - of a kernel's arguments
    a_ring,
    b_ring,
    full,
    empty,
    stage,
    phase,
    begin,
    end,
    CONSUMER: gl.constexpr,
    B_BY_COLUMNS: gl.constexpr,
    LAYOUT: gl.constexpr,
):
    """As `tensor_core_sum`, but add each step's sum in registers."""
    STAGES: gl.constexpr = b_ring.shape[0]
    CONSUMERS: gl.constexpr = a_ring.shape[0] // STAGES
    ROWS: gl.constexpr = a_ring.shape[1]
    COLUMNS: gl.constexpr = b_ring.shape[1] if B_BY_COLUMNS else b_ring.shape[2]
    accumulator = gl.zeros([ROWS, COLUMNS], gl.float32, LAYOUT)
    for _ in range(begin, end):
        mbarrier.wait(full.index(stage), phase)
        part = warpgroup_mma(
            a_ring.index(stage * CONSUMERS + CONSUMER),
            _b_operand(b_ring, stage, B_BY_COLUMNS),
            gl.zeros([ROWS, COLUMNS], gl.float32, LAYOUT),
            use_acc=False,
            is_async=True,
        )
        part = warpgroup_mma_wait(0, deps=(part,))
        mbarrier.arrive(empty.index(stage), count=1)
        accumulator += part  # while the other consumers' products run
        stage += 1
        if stage == STAGES:
            stage = 0
            phase ^= 1
    return accumulator, stage, phase


@gluon.jit
def load_scales(  # noqa: PLR0917 - of a kernel's arguments
    scale_ptr, first, beyond, COUNT: gl.constexpr, LAYOUT: gl.constexpr, MANY: gl.constexpr
):
    """Load the scales of COUNT rows or columns from `first` on; the one of all of them if not MANY."""
    if MANY:
        place = first + gl.arange(0, COUNT, layout=LAYOUT)
        return gl.load(scale_ptr + place, mask=place < beyond, other=0.0)
    else:  # noqa: RET505 - Triton compiles one branch, and none after a return
        return gl.load(scale_ptr)


@gluon.jit
def scaled(accumulator, scale_a, scale_b, PER_ROW: gl.constexpr, PER_COLUMN: gl.constexpr):
    """Multiply by the scales of rows and of columns; a multiplication less where each is one for all."""
    if PER_ROW:
        scale_a = scale_a[:, None]
    if PER_COLUMN:
        scale_b = gl.convert_layout(scale_b, gl.SliceLayout(0, accumulator.type.layout))[None, :]
    if PER_ROW or PER_COLUMN:
        return accumulator * scale_a * scale_b
    else:  # noqa: RET505 - as above
        return accumulator * (scale_a * scale_b)

"""Matrix multiplication for Hopper, in Gluon, for products that are over before a persistent kernel has started.

One tile a program, and no roles: all warps multiply, and one thread of them refills the ring that the tensor memory
accelerator loads. `hopper_matmul_kernel` keeps the tensor cores busier over many tiles; what it prepares for that, a
product of a few microseconds pays for and does not use.

Triton's interpreter does not run Gluon: what is tested without a GPU is what the compiler makes of this.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators
# Triton types what is compiled, and ships no types itself.

from __future__ import annotations

import triton.language as tl  # noqa: F401 - Triton looks for it in the module of what it runs
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from flopwatch.kernels import dependent_launch, tma_copies

_come_after = gluon.jit(dependent_launch.come_after)


@gluon.jit
def _load(  # noqa: PLR0917 - a kernel's arguments
    a_desc, b_desc, a_ring, b_ring, full, remainder, row, column, depth, stage, B_BY_COLUMNS: gl.constexpr, pred
):
    """Load A and B from a depth on into a stage, if there is such a step."""
    ready = full.index(stage)
    mbarrier.expect(ready, a_desc.block_type.nbytes + b_desc.block_type.nbytes, pred=pred)
    if len(a_desc.block_type.shape) == 3:  # noqa: PLR2004 - dimensions
        tma_copies.load(a_desc, [remainder, row, depth], ready, a_ring.index(stage), pred=pred)
    else:
        tma_copies.load(a_desc, [row, depth], ready, a_ring.index(stage), pred=pred)
    if B_BY_COLUMNS:
        tma_copies.load(b_desc, [column, depth], ready, b_ring.index(stage), pred=pred)
    else:
        tma_copies.load(b_desc, [depth, column], ready, b_ring.index(stage), pred=pred)


@gluon.jit
def _matrix(box, ROWS: gl.constexpr, COLUMNS: gl.constexpr):
    """Return shared memory as a matrix, without the remainder's dimension."""
    if len(box.shape) == 3:  # noqa: PLR2004 - dimensions
        return box.reshape([ROWS, COLUMNS])
    else:  # noqa: RET505 - as below
        return box


@gluon.jit
def _b_operand(b_ring, stage, B_BY_COLUMNS: gl.constexpr):
    if B_BY_COLUMNS:
        return b_ring.index(stage).permute((1, 0))
    else:  # noqa: RET505 - Triton compiles one branch, and none after a return
        return b_ring.index(stage)


@gluon.jit(do_not_specialize=["M", "N", "K", "stride_cm"])
def hopper_short_kernel(  # noqa: PLR0915, PLR0917 - its steps in their order; a kernel's arguments
    a_desc,  # (M, K), in boxes of a step; (ROW_STEP, M // ROW_STEP, K) where that is more than one
    b_desc,  # (K, N); (N, K) with B_BY_COLUMNS
    c_desc,  # (M, N), in boxes of a tile; as a_desc
    c_ptr,  # (M, N)
    M,
    N,
    K,
    stride_cm,
    STAGES: gl.constexpr,
    ROW_STEP: gl.constexpr,
    B_BY_COLUMNS: gl.constexpr,
    THROUGH_SHARED: gl.constexpr,
    DEPENDENT: gl.constexpr,
):
    """Multiply two matrices on Hopper's tensor cores, a tile a program.

    Formula: ``C[m, n] = sum over k of A[m, k] * B[k, n]``.

    ======  ===============================  ==============================  ===================
    tensor  shape                            layout                          dtype
    ======  ===============================  ==============================  ===================
    A       (M, K)                           rows of a multiple of 16 bytes  float16 or bfloat16
    B       (K, N), (N, K) if B_BY_COLUMNS   likewise                        the same
    C       (M, N)                           likewise                        the same
    ======  ===============================  ==============================  ===================

    One program computes one tile: it orders STAGES steps at once, of which there are at least two, and then refills a
    stage as soon as the products that read it are done, while those of the next step run.

    The rows of a tile are ROW_STEP rows apart, of which M is a multiple. With 8, rows of any multiple of 16 bytes start
    at the same place of a line of memory, 128 bytes, and steps are laid so that they begin with a line, if rows follow
    each other without a gap: else the L2 cache is asked for two lines for each row of a box. Before the first element
    the loads make zeros.

    Numerics and limits: sums in float32, rounded once. Rows and columns beyond the matrices are zeros that the loads
    make, and are not stored. With THROUGH_SHARED a tile of C goes through shared memory, where the ring was, and leaves
    by the tensor memory accelerator; without it, each thread stores what it has. DEPENDENT waits for the launch before.
    """
    ROWS: gl.constexpr = a_desc.block_type.shape[-2]
    DEPTH: gl.constexpr = a_desc.block_type.shape[-1]
    COLUMNS: gl.constexpr = b_desc.block_type.shape[0] if B_BY_COLUMNS else b_desc.block_type.shape[1]
    # A warpgroup has 64 rows: what more of them there are stands below the first, or else beside it.
    WARPS_M: gl.constexpr = min(gl.num_warps(), ROWS // 16)
    WARPS_N: gl.constexpr = gl.num_warps() // WARPS_M
    layout: gl.constexpr = gl.NVMMADistributedLayout(
        version=[3, 0], warps_per_cta=[WARPS_M, WARPS_N], instr_shape=[16, COLUMNS // WARPS_N, 16]
    )
    a_ring = gl.allocate_shared_memory(a_desc.dtype, [STAGES] + a_desc.block_type.shape, a_desc.layout)  # noqa: RUF005 - Gluon has no unpacking
    b_ring = gl.allocate_shared_memory(b_desc.dtype, [STAGES] + b_desc.block_type.shape, b_desc.layout)  # noqa: RUF005 - as above
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    remainder = gl.program_id(0) % ROW_STEP
    row = gl.program_id(0) // ROW_STEP * ROWS
    column = gl.program_id(1) * COLUMNS
    LINE: gl.constexpr = 64  # elements
    first = -(remainder * K % LINE)
    steps = gl.cdiv(K - first, DEPTH)
    # Each barrier is made just before its loads, in a loop that stays one: all of them first, and unrolled, were 318
    # instructions before the first load, of which some 70 are left (sm_90, triton 3.7.1, 2026-11-22).
    if DEPENDENT:
        for i in range(min(steps, STAGES)):
            mbarrier.init(full.index(i), count=1)
        fence_async_shared()
        _come_after(DEPENDENT)
    for i in range(min(steps, STAGES)):
        if not DEPENDENT:
            mbarrier.init(full.index(i), count=1)
            fence_async_shared()
        depth = first + i * DEPTH
        _load(a_desc, b_desc, a_ring, b_ring, full, remainder, row, column, depth, i, B_BY_COLUMNS, pred=True)

    accumulator = gl.zeros([ROWS, COLUMNS], gl.float32, layout)
    mbarrier.wait(full.index(0), 0)
    a = _matrix(a_ring.index(0), ROWS, DEPTH)
    accumulator = warpgroup_mma(a, _b_operand(b_ring, 0, B_BY_COLUMNS), accumulator, use_acc=False, is_async=True)
    accumulator = warpgroup_mma_wait(1, deps=(accumulator,))  # for nothing: what the loop carries must be a tensor
    before = 0
    stage = 1
    phase = 0
    for step in range(1, steps):
        mbarrier.wait(full.index(stage), phase)
        a = _matrix(a_ring.index(stage), ROWS, DEPTH)
        accumulator = warpgroup_mma(a, _b_operand(b_ring, stage, B_BY_COLUMNS), accumulator, is_async=True)
        accumulator = warpgroup_mma_wait(1, deps=(accumulator,))  # the step before has read its stage
        # Each warp waits for its own products. That all have waited before one thread has the stage refilled is the
        # barrier that Triton puts before what touches the same shared memory, as a test looks up.
        later = step - 1 + STAGES
        depth = first + later * DEPTH
        _load(a_desc, b_desc, a_ring, b_ring, full, remainder, row, column, depth, before, B_BY_COLUMNS, later < steps)
        before = stage
        stage += 1
        if stage == STAGES:
            stage = 0
            phase ^= 1
    accumulator = warpgroup_mma_wait(0, deps=(accumulator,))

    c = accumulator.to(c_desc.dtype)
    if THROUGH_SHARED:
        buffer = gl.allocate_shared_memory(c_desc.dtype, c_desc.block_type.shape, c_desc.layout)
        _matrix(buffer, ROWS, COLUMNS).store(c)
        fence_async_shared()
        if len(c_desc.block_type.shape) == 3:  # noqa: PLR2004 - dimensions
            tma_copies.store(c_desc, [remainder, row, column], buffer)
        else:
            tma_copies.store(c_desc, [row, column], buffer)
        tma.store_wait(0)
    else:
        rows = (row + gl.arange(0, ROWS, layout=gl.SliceLayout(1, layout))) * ROW_STEP + remainder
        columns = column + gl.arange(0, COLUMNS, layout=gl.SliceLayout(0, layout))
        # That rows are multiples of 16 bytes is what the compiler has to know to store two elements at once.
        offsets = rows.to(gl.int64)[:, None] * (stride_cm // 8 * 8) + columns[None, :]
        gl.store(c_ptr + offsets, c, mask=(rows[:, None] < M) & (columns[None, :] < N // 8 * 8))

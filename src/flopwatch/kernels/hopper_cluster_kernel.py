"""Matrix multiplication for Hopper, in Gluon, for short products whose operands come too slowly.

As `hopper_short_kernel`, with two ways to load less. Programs of a cluster that multiply by the same rows of A or
columns of B have these loaded once for all of them. And the columns of a tile are the sum of two powers of two, so that
there are about as many tiles as multiprocessors, and each of them as square as can be.

Clusters need Triton 3.7, with which Gluon got them; a cluster of one program does not.
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

from flopwatch.kernels import dependent_launch, hopper_cluster_barriers, tma_copies

_come_after = gluon.jit(dependent_launch.come_after)


@gluon.constexpr_function
def _each(programs):
    """Return the layout of barriers of which each program of a cluster has its own."""
    return [[1 << bit] for bit in range(programs.bit_length() - 1)]


@gluon.jit
def _load(desc, row, column, ready, stage, TURNED: gl.constexpr, SHARED: gl.constexpr):  # noqa: PLR0917 - private
    """Load a box; if SHARED, once for all programs that have the same."""
    if SHARED and TURNED:
        tma_copies.load(desc, [column, row], ready, stage, multicast=True)
    elif SHARED:
        tma_copies.load(desc, [row, column], ready, stage, multicast=True)
    elif TURNED:
        tma_copies.load(desc, [column, row], ready, stage)
    else:
        tma_copies.load(desc, [row, column], ready, stage)


@gluon.jit
def _load_b(  # noqa: PLR0917 - private
    b_desc, b_more_desc, b_ring, b_more_ring, depth, column, ready, stage, TURNED: gl.constexpr, SHARED: gl.constexpr
):
    _load(b_desc, depth, column, ready, b_ring.index(stage), TURNED, SHARED)
    if b_more_desc is not None:
        beside = column + (b_desc.block_type.shape[0] if TURNED else b_desc.block_type.shape[1])
        _load(b_more_desc, depth, beside, ready, b_more_ring.index(stage), TURNED, SHARED)


@gluon.jit
def _multiply(a_ring, b_ring, stage, accumulator, TURNED: gl.constexpr, use_acc: gl.constexpr):  # noqa: PLR0917 - private
    b = b_ring.index(stage).permute((1, 0)) if TURNED else b_ring.index(stage)
    return warpgroup_mma(a_ring.index(stage), b, accumulator, use_acc=use_acc, is_async=True)


@gluon.jit(do_not_specialize=["K"])
def hopper_cluster_kernel(  # noqa: C901, PLR0912, PLR0915, PLR0917 - its steps in their order; a kernel's arguments
    a_desc,  # (M, K), in boxes of a cluster's step
    b_desc,  # (K, N), in boxes of the first columns of a cluster's tiles; (N, K) with B_BY_COLUMNS
    c_desc,  # (M, N), likewise
    b_more_desc,  # as b_desc, in boxes of the other columns; None without such
    c_more_desc,  # likewise
    K,
    STAGES: gl.constexpr,
    CLUSTER_M: gl.constexpr,
    CLUSTER_N: gl.constexpr,
    B_BY_COLUMNS: gl.constexpr,
    DEPENDENT: gl.constexpr,
):
    """Multiply two matrices on Hopper's tensor cores, a tile a program, with loads that programs share.

    Formula: ``C[m, n] = sum over k of A[m, k] * B[k, n]``.

    ======  ===============================  ==============================  ===================
    tensor  shape                            layout                          dtype
    ======  ===============================  ==============================  ===================
    A       (M, K)                           rows of a multiple of 16 bytes  float16 or bfloat16
    B       (K, N), (N, K) if B_BY_COLUMNS   likewise                        the same
    C       (M, N)                           likewise                        the same
    ======  ===============================  ==============================  ===================

    One cluster computes CLUSTER_M x CLUSTER_N tiles that touch, one a program. To Gluon it is one program, whose
    tensors its multiprocessors hold in parts. Of tiles beside each other the first one's program loads A for all, and
    of tiles below each other it loads B. A stage is refilled once all of a cluster have read it, which all say as soon
    as they have, and wait for a step later.

    Numerics and limits: sums in float32, rounded once. Rows and columns beyond the matrices are zeros that the loads
    make, and are not stored. A tile's columns are two powers of two, or one. At least three stages.
    DEPENDENT waits for the launch before.
    """
    CLUSTER: gl.constexpr = CLUSTER_M * CLUSTER_N
    SHARED_A: gl.constexpr = CLUSTER_N > 1
    SHARED_B: gl.constexpr = CLUSTER_M > 1
    ROWS: gl.constexpr = a_desc.block_type.shape[0]
    DEPTH: gl.constexpr = a_desc.block_type.shape[1]
    COLUMNS: gl.constexpr = c_desc.block_type.shape[1]
    MORE: gl.constexpr = 0 if c_more_desc is None else c_more_desc.block_type.shape[1]
    PARTS: gl.constexpr = 2 if MORE else 1
    #: Of one program's step.
    NBYTES: gl.constexpr = 2 * DEPTH * (ROWS // CLUSTER_M + (COLUMNS + MORE) // CLUSTER_N)
    #: Steps between the reading of a stage and its refilling, beside one.
    LATE: gl.constexpr = 1 if CLUSTER > 1 else 0
    # A warpgroup has 64 rows: what more of them there are stands below the first, or else beside it.
    WARPS_M: gl.constexpr = min(gl.num_warps(), ROWS // CLUSTER_M // 16)
    WARPS_N: gl.constexpr = gl.num_warps() // WARPS_M
    a_ring = gl.allocate_shared_memory(a_desc.dtype, [STAGES, ROWS, DEPTH], a_desc.layout)
    b_ring = gl.allocate_shared_memory(b_desc.dtype, [STAGES] + b_desc.block_type.shape, b_desc.layout)  # noqa: RUF005 - Gluon has no unpacking
    b_more_ring = b_ring
    if MORE:
        MORE_SHAPE: gl.constexpr = [STAGES] + b_more_desc.block_type.shape  # noqa: RUF005 - as above
        b_more_ring = gl.allocate_shared_memory(b_desc.dtype, MORE_SHAPE, b_more_desc.layout)
    full = gl.allocate_shared_memory(gl.int64, [STAGES, CLUSTER], mbarrier.MBarrierLayout(_each(CLUSTER)))
    row = gl.program_id(0) * ROWS
    column = gl.program_id(1) * (COLUMNS + MORE)
    steps = gl.cdiv(K, DEPTH)
    if DEPENDENT:
        for i in range(min(steps, STAGES)):
            mbarrier.init(full.index(i), count=1)
        fence_async_shared()
        if CLUSTER > 1:
            hopper_cluster_barriers.publish()
        _come_after(DEPENDENT)
    for i in range(min(steps, STAGES)):
        ready = full.index(i)
        if not DEPENDENT:
            mbarrier.init(ready, count=1)
            fence_async_shared()
        mbarrier.expect(ready, NBYTES)
        # What nobody else gets need not wait for others to have their barriers.
        if not SHARED_A:
            _load(a_desc, row, i * DEPTH, ready, a_ring.index(i), False, SHARED_A)  # noqa: FBT003 - A is not turned
        if not SHARED_B:
            _load_b(b_desc, b_more_desc, b_ring, b_more_ring, i * DEPTH, column, ready, i, B_BY_COLUMNS, SHARED_B)
    if CLUSTER > 1:
        if not DEPENDENT:
            hopper_cluster_barriers.publish()
        for i in range(min(steps, STAGES)):
            ready = full.index(i)
            if SHARED_A:
                _load(a_desc, row, i * DEPTH, ready, a_ring.index(i), False, SHARED_A)  # noqa: FBT003 - as above
            if SHARED_B:
                _load_b(b_desc, b_more_desc, b_ring, b_more_ring, i * DEPTH, column, ready, i, B_BY_COLUMNS, SHARED_B)

    layout: gl.constexpr = gl.NVMMADistributedLayout(
        version=[3, 0],
        warps_per_cta=[WARPS_M, WARPS_N],
        instr_shape=[16, COLUMNS // CLUSTER_N // WARPS_N, 16],
        cga_layout=c_desc.layout.cga_layout,
    )
    mbarrier.wait(full.index(0), 0)
    accumulator = _multiply(
        a_ring, b_ring, 0, gl.zeros([ROWS, COLUMNS], gl.float32, layout), B_BY_COLUMNS, use_acc=False
    )
    accumulator = warpgroup_mma_wait(PARTS, deps=(accumulator,))  # for nothing: what the loop carries must be a tensor
    if MORE:
        more_layout: gl.constexpr = gl.NVMMADistributedLayout(
            version=[3, 0],
            warps_per_cta=[WARPS_M, WARPS_N],
            instr_shape=[16, MORE // CLUSTER_N // WARPS_N, 16],
            cga_layout=c_desc.layout.cga_layout,
        )
        more = _multiply(
            a_ring, b_more_ring, 0, gl.zeros([ROWS, MORE], gl.float32, more_layout), B_BY_COLUMNS, use_acc=False
        )
        more = warpgroup_mma_wait(PARTS, deps=(more,))
    stage = 1
    phase = 0
    free = 0
    for step in range(1, steps):
        mbarrier.wait(full.index(stage), phase)
        # The larger instructions last: issuing waits until about two are left, and the refill has to be over in their
        # time. The other way round 1536 cubed takes 18.0 us and not 15.6 with 144 columns (H200, 2026-11-23).
        if MORE:
            more = _multiply(a_ring, b_more_ring, stage, more, B_BY_COLUMNS, use_acc=True)
        accumulator = _multiply(a_ring, b_ring, stage, accumulator, B_BY_COLUMNS, use_acc=True)
        # The step before has read its stage then.
        if MORE:
            accumulator, more = warpgroup_mma_wait(PARTS, deps=(accumulator, more))
        else:
            accumulator = warpgroup_mma_wait(PARTS, deps=(accumulator,))
        later = step - 1 - LATE + STAGES
        if (step > LATE) & (later < steps):
            if CLUSTER > 1:
                hopper_cluster_barriers.wait()
            # Each warp has waited for its own products. That all have before one thread has the stage refilled is the
            # barrier that Triton puts before what touches the same shared memory, as a test looks up.
            ready = full.index(free)
            mbarrier.expect(ready, NBYTES)
            _load(a_desc, row, later * DEPTH, ready, a_ring.index(free), False, SHARED_A)  # noqa: FBT003 - as above
            _load_b(
                b_desc, b_more_desc, b_ring, b_more_ring, later * DEPTH, column, ready, free, B_BY_COLUMNS, SHARED_B
            )
            free += 1
            if free == STAGES:
                free = 0
        # Only where the next step waits for it. What was read before this needs no fence: the products are done.
        if CLUSTER > 1:  # noqa: SIM102 - the outer one is the compiler's
            if step - 1 + STAGES < steps:
                hopper_cluster_barriers.arrive(relaxed=True)
        stage += 1
        if stage == STAGES:
            stage = 0
            phase ^= 1

    # Nobody stores here for others, or says anything to them, any more: a program may end before the rest.
    if MORE:
        accumulator, more = warpgroup_mma_wait(0, deps=(accumulator, more))
    else:
        accumulator = warpgroup_mma_wait(0, deps=(accumulator,))
    # Both buffers are there before either leaves: else the second might lie where the first is still read.
    buffer = gl.allocate_shared_memory(c_desc.dtype, [ROWS, COLUMNS], c_desc.layout)
    buffer.store(accumulator.to(c_desc.dtype))
    if MORE:
        more_buffer = gl.allocate_shared_memory(c_desc.dtype, [ROWS, MORE], c_more_desc.layout)
        more_buffer.store(more.to(c_desc.dtype))
    fence_async_shared()
    tma_copies.store(c_desc, [row, column], buffer)
    if MORE:
        tma_copies.store(c_more_desc, [row, column + COLUMNS], more_buffer)
    tma.store_wait(0)

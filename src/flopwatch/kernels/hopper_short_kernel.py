"""Matrix multiplication for Hopper, in Gluon, for products that are over before a persistent kernel has started.

One tile a program, and no roles: all warps multiply, and one thread of them refills the ring that the tensor memory
accelerator loads. `hopper_matmul_kernel` keeps the tensor cores busier over many tiles; what it prepares for that, a
product of a few microseconds pays for and does not use.

There are about as many tiles as multiprocessors, or some are idle. So one side of a tile may be the sum of two powers
of two, such as 144, and it may be either side: of matrices that lie by rows, 144 rows begin where lines of memory do,
and 144 columns do not.

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
from flopwatch.kernels.hopper_rows import store_rows

_come_after = gluon.jit(dependent_launch.come_after)


@gluon.jit
def _load(  # noqa: PLR0917 - a kernel's arguments
    a_desc, b_desc, more_desc, a_ring, b_ring, more_ring, full, remainder, row, column, depth, stage,
    B_BY_COLUMNS: gl.constexpr, TURNED: gl.constexpr, pred,
):  # fmt: skip
    """Load A and B from a depth on into a stage, if there is such a step."""
    ready = full.index(stage)
    MORE_BYTES: gl.constexpr = 0 if more_desc is None else more_desc.block_type.nbytes
    mbarrier.expect(ready, a_desc.block_type.nbytes + b_desc.block_type.nbytes + MORE_BYTES, pred=pred)
    if len(a_desc.block_type.shape) == 3:  # noqa: PLR2004 - dimensions
        tma_copies.load(a_desc, [remainder, row, depth], ready, a_ring.index(stage), pred=pred)
    else:
        tma_copies.load(a_desc, [row, depth], ready, a_ring.index(stage), pred=pred)
    _load_b(b_desc, b_ring, column, depth, ready, stage, B_BY_COLUMNS, pred)
    if more_desc is not None:
        if TURNED:
            below = row + a_desc.block_type.shape[0]
            tma_copies.load(more_desc, [below, depth], ready, more_ring.index(stage), pred=pred)
        else:
            beside = column + (b_desc.block_type.shape[0] if B_BY_COLUMNS else b_desc.block_type.shape[1])
            _load_b(more_desc, more_ring, beside, depth, ready, stage, B_BY_COLUMNS, pred)


@gluon.jit
def _load_b(desc, ring, column, depth, ready, stage, B_BY_COLUMNS: gl.constexpr, pred):  # noqa: PLR0917 - as above
    if B_BY_COLUMNS:
        tma_copies.load(desc, [column, depth], ready, ring.index(stage), pred=pred)
    else:
        tma_copies.load(desc, [depth, column], ready, ring.index(stage), pred=pred)


@gluon.jit
def _matrix(box):
    """Return shared memory as a matrix, without the remainder's dimension."""
    if len(box.shape) == 3:  # noqa: PLR2004 - dimensions
        return box.reshape([box.shape[1], box.shape[2]])
    else:  # noqa: RET505 - Triton compiles one branch, and none after a return
        return box


@gluon.jit
def _b_operand(ring, stage, B_BY_COLUMNS: gl.constexpr):
    if B_BY_COLUMNS:
        return ring.index(stage).permute((1, 0))
    else:  # noqa: RET505 - as above
        return ring.index(stage)


@gluon.jit
def _multiply(a, b, accumulator, TURNED: gl.constexpr, use_acc: gl.constexpr):
    """Multiply (rows, depth) by (depth, columns); if TURNED, (columns, depth) by (depth, rows)."""
    if TURNED:
        return warpgroup_mma(b.permute((1, 0)), a.permute((1, 0)), accumulator, use_acc=use_acc, is_async=True)
    else:  # noqa: RET505 - as above
        return warpgroup_mma(a, b, accumulator, use_acc=use_acc, is_async=True)


@gluon.jit
def _multiply_more(  # noqa: PLR0917 - as above
    a, b, more_ring, stage, accumulator, B_BY_COLUMNS: gl.constexpr, TURNED: gl.constexpr, use_acc: gl.constexpr
):
    """Multiply the other columns; if TURNED, the other rows."""
    if TURNED:
        return _multiply(more_ring.index(stage), b, accumulator, TURNED, use_acc)
    else:  # noqa: RET505 - as above
        return _multiply(a, _b_operand(more_ring, stage, B_BY_COLUMNS), accumulator, TURNED, use_acc)


@gluon.jit
def _put(accumulator, box, TURNED: gl.constexpr):
    """Write a tile of C into shared memory."""
    if TURNED:
        _matrix(box).permute((1, 0)).store(accumulator.to(box.dtype))
    else:
        _matrix(box).store(accumulator.to(box.dtype))


@gluon.jit(do_not_specialize=["K"])
def hopper_short_kernel(  # noqa: PLR0917 - a kernel's arguments
    a_desc,  # (M, K), in boxes of a step; (ROW_STEP, M // ROW_STEP, K) where that is more than one
    b_desc,  # (K, N); (N, K) with B_BY_COLUMNS
    c_desc,  # (M, N), in boxes of a tile; as a_desc
    more_desc,  # as b_desc, in boxes of the other columns; if TURNED, as a_desc, of the other rows; None without such
    c_more_desc,  # (M, N), likewise
    K,
    STAGES: gl.constexpr,
    ROW_STEP: gl.constexpr,
    B_BY_COLUMNS: gl.constexpr,
    TURNED: gl.constexpr,
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
    stage as soon as the products that read it are done, while those of the next step run. A tile of C then lies in
    shared memory where the ring was, and leaves by the tensor memory accelerator.

    An instruction has 64 rows and up to 256 columns, so that the side of a tile that is the sum of two powers of two is
    its columns. TURNED has B's columns for an instruction's rows, and A's rows for its columns: ``C.T = B.T @ A.T``.

    The rows of a tile are ROW_STEP rows apart, of which M is a multiple. With 8, rows of any multiple of 16 bytes start
    at the same place of a line of memory, 128 bytes, and steps are laid so that they begin with a line, if rows follow
    each other without a gap: else the L2 cache is asked for two lines for each row of a box. Before the first element
    the loads make zeros.

    Numerics and limits: sums in float32, rounded once. Rows and columns beyond the matrices are zeros that the loads
    make, and are not stored. A side of two powers of two only where rows are not apart. DEPENDENT waits for the launch
    before.
    """
    multiply_tile(
        a_desc, b_desc, c_desc, more_desc, c_more_desc, None, None, K, gl.program_id(0), gl.program_id(1),
        STAGES, ROW_STEP, B_BY_COLUMNS, TURNED, DEPENDENT, C_WIDTH=0,
    )  # fmt: skip


@gluon.jit
def multiply_tile(  # noqa: C901, PLR0912, PLR0915, PLR0917 - its steps in their order; a kernel's arguments
    a_desc, b_desc, c, more_desc, c_more_desc, M, N, K, tile_m, tile_n,
    STAGES: gl.constexpr, ROW_STEP: gl.constexpr, B_BY_COLUMNS: gl.constexpr, TURNED: gl.constexpr,
    DEPENDENT: gl.constexpr, C_WIDTH: gl.constexpr,
):  # fmt: skip
    """Compute one tile, as `hopper_short_kernel` tells.

    C_WIDTH is as of `flopwatch.kernels.hopper_matmul_kernel`, where M and N count, too: 0 where a tensor map describes
    C. Elsewhere `c` is where C begins, there is no `c_more_desc`, and rows are not apart.
    """
    ROWS: gl.constexpr = a_desc.block_type.shape[-2]
    DEPTH: gl.constexpr = a_desc.block_type.shape[-1]
    COLUMNS: gl.constexpr = b_desc.block_type.shape[0] if B_BY_COLUMNS else b_desc.block_type.shape[1]
    HIGH: gl.constexpr = COLUMNS if TURNED else ROWS
    WIDE: gl.constexpr = ROWS if TURNED else COLUMNS
    MORE: gl.constexpr = 0 if more_desc is None else more_desc.block_type.shape[0 if TURNED or B_BY_COLUMNS else 1]
    PARTS: gl.constexpr = 2 if MORE else 1
    # A warpgroup has 64 rows: what more of them there are stands below the first, or else beside it.
    WARPS_M: gl.constexpr = min(gl.num_warps(), HIGH // 16)
    WARPS_N: gl.constexpr = gl.num_warps() // WARPS_M
    layout: gl.constexpr = gl.NVMMADistributedLayout(
        version=[3, 0], warps_per_cta=[WARPS_M, WARPS_N], instr_shape=[16, WIDE // WARPS_N, 16]
    )
    a_ring = gl.allocate_shared_memory(a_desc.dtype, [STAGES] + a_desc.block_type.shape, a_desc.layout)  # noqa: RUF005 - Gluon has no unpacking
    b_ring = gl.allocate_shared_memory(b_desc.dtype, [STAGES] + b_desc.block_type.shape, b_desc.layout)  # noqa: RUF005 - as above
    more_ring = b_ring
    if MORE:
        more_ring = gl.allocate_shared_memory(a_desc.dtype, [STAGES] + more_desc.block_type.shape, more_desc.layout)  # noqa: RUF005 - as above
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    remainder = tile_m % ROW_STEP
    row = tile_m // ROW_STEP * (ROWS + (MORE if TURNED else 0))
    column = tile_n * (COLUMNS + (0 if TURNED else MORE))
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
        _load(
            a_desc, b_desc, more_desc, a_ring, b_ring, more_ring, full, remainder, row, column, first + i * DEPTH, i,
            B_BY_COLUMNS, TURNED, pred=True,
        )  # fmt: skip

    mbarrier.wait(full.index(0), 0)
    a = _matrix(a_ring.index(0))
    b = _b_operand(b_ring, 0, B_BY_COLUMNS)
    accumulator = _multiply(a, b, gl.zeros([HIGH, WIDE], gl.float32, layout), TURNED, use_acc=False)
    accumulator = warpgroup_mma_wait(PARTS, deps=(accumulator,))  # for nothing: what the loop carries must be a tensor
    if MORE:
        more_layout: gl.constexpr = gl.NVMMADistributedLayout(
            version=[3, 0], warps_per_cta=[WARPS_M, WARPS_N], instr_shape=[16, MORE // WARPS_N, 16]
        )
        more = gl.zeros([HIGH, MORE], gl.float32, more_layout)
        more = _multiply_more(a, b, more_ring, 0, more, B_BY_COLUMNS, TURNED, use_acc=False)
        more = warpgroup_mma_wait(PARTS, deps=(more,))
    before = 0
    stage = 1
    phase = 0
    for step in range(1, steps):
        mbarrier.wait(full.index(stage), phase)
        a = _matrix(a_ring.index(stage))
        b = _b_operand(b_ring, stage, B_BY_COLUMNS)
        # The larger instructions last: issuing waits until about two are left, and the refill has to be over in their
        # time. The other way round 1536 cubed takes 18.0 us and not 15.6 with 144 columns (H200, 2026-11-23).
        if MORE:
            more = _multiply_more(a, b, more_ring, stage, more, B_BY_COLUMNS, TURNED, use_acc=True)
        accumulator = _multiply(a, b, accumulator, TURNED, use_acc=True)
        # The step before has read its stage then.
        if MORE:
            accumulator, more = warpgroup_mma_wait(PARTS, deps=(accumulator, more))
        else:
            accumulator = warpgroup_mma_wait(PARTS, deps=(accumulator,))
        # Each warp waits for its own products. That all have waited before one thread has the stage refilled is the
        # barrier that Triton puts before what touches the same shared memory, as a test looks up.
        later = step - 1 + STAGES
        _load(
            a_desc, b_desc, more_desc, a_ring, b_ring, more_ring, full, remainder, row, column, first + later * DEPTH,
            before, B_BY_COLUMNS, TURNED, later < steps,
        )  # fmt: skip
        before = stage
        stage += 1
        if stage == STAGES:
            stage = 0
            phase ^= 1

    if MORE:
        accumulator, more = warpgroup_mma_wait(0, deps=(accumulator, more))
    else:
        accumulator = warpgroup_mma_wait(0, deps=(accumulator,))
    # Both buffers are there before either leaves: else the second might lie where the first is still read.
    C_DTYPE: gl.constexpr = c.dtype.element_ty if C_WIDTH else c.dtype
    C_BOX: gl.constexpr = [ROWS, COLUMNS] if ROW_STEP == 1 else [1, ROWS, COLUMNS]
    C_LAYOUT: gl.constexpr = gl.NVMMASharedLayout.get_default_for(C_BOX, C_DTYPE)
    buffer = gl.allocate_shared_memory(C_DTYPE, C_BOX, C_LAYOUT)
    _put(accumulator, buffer, TURNED)
    if MORE:
        MORE_BOX: gl.constexpr = [MORE, COLUMNS] if TURNED else [ROWS, MORE]
        MORE_LAYOUT: gl.constexpr = gl.NVMMASharedLayout.get_default_for(MORE_BOX, C_DTYPE)
        more_buffer = gl.allocate_shared_memory(C_DTYPE, MORE_BOX, MORE_LAYOUT)
        _put(more, more_buffer, TURNED)
    more_row = row + ROWS if TURNED else row
    more_column = column if TURNED else column + COLUMNS
    if C_WIDTH:
        store_rows(buffer, c, row, column, M, N, C_WIDTH, gl.num_warps())
        if MORE:
            store_rows(more_buffer, c, more_row, more_column, M, N, C_WIDTH, gl.num_warps())
    else:
        fence_async_shared()
        if len(c.block_type.shape) == 3:  # noqa: PLR2004 - dimensions
            tma_copies.store(c, [remainder, row, column], buffer)
        else:
            tma_copies.store(c, [row, column], buffer)
        if MORE:
            tma_copies.store(c_more_desc, [more_row, more_column], more_buffer)
        tma.store_wait(0)

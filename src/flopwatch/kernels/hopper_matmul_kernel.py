"""Matrix multiplication for Hopper, in Gluon: persistent, warp-specialised, in equal shares.

One warp loads tiles of A and B by the tensor memory accelerator into a ring of buffers; one to three warpgroups
multiply them and send C off in slices, while the loads of the next tile run. Tiles that leave a wave partly empty can
be shared by programs, as `flopwatch.kernels.stream_k` deals them out.

Triton's interpreter does not run Gluon: what is tested without a GPU is the arithmetic of shares, in a plain kernel
of the tests, and what the compiler makes of this one.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators
# Triton types what is compiled, and ships no types itself.

from __future__ import annotations

import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
)

from flopwatch.kernels import dependent_launch, tiles, tma_copies
from flopwatch.kernels.hopper_matmul_sums import load_scales, promoted_sum, scaled, tensor_core_sum
from flopwatch.kernels.hopper_rows import store_rows

_come_after = gluon.jit(dependent_launch.come_after)
_tile_position = gluon.jit(tiles.tile_position)
_visits = gluon.jit(tiles.visits)
_visit = gluon.jit(tiles.visit)
_first_contributor = gluon.jit(tiles.first_contributor)


@gluon.jit
def _produce(  # noqa: PLR0917 - a kernel's arguments
    a_desc,
    b_desc,
    a_ring,
    b_ring,
    full,
    empty,
    tiles_m,
    tiles_n,
    steps,
    shared,
    GROUP_M: gl.constexpr,
    B_BY_COLUMNS: gl.constexpr,
):
    """Load A and B of every step of every visit, as soon as the ring has room."""
    CONSUMERS: gl.constexpr = a_ring.shape[0] // b_ring.shape[0]
    ROWS: gl.constexpr = a_desc.block_type.shape[0]
    DEPTH: gl.constexpr = a_desc.block_type.shape[1]
    COLUMNS: gl.constexpr = b_desc.block_type.shape[0] if B_BY_COLUMNS else b_desc.block_type.shape[1]
    STAGES: gl.constexpr = b_ring.shape[0]
    program = gl.program_id(0)
    programs = gl.num_programs(0)
    stage = 0
    phase = 1  # a fresh barrier says that its phase before the first is over, so that the first lap does not wait
    for index in range(_visits(program, programs, tiles_m * tiles_n, shared, steps)):
        tile, begin, end = _visit(index, program, programs, shared, steps)
        tile_m, tile_n = _tile_position(tile, tiles_m, tiles_n, GROUP_M)
        for step in range(begin, end):
            mbarrier.wait(empty.index(stage), phase)
            ready = full.index(stage)
            mbarrier.expect(ready, CONSUMERS * a_desc.block_type.nbytes + b_desc.block_type.nbytes)
            for consumer in gl.static_range(CONSUMERS):
                tma_copies.load(
                    a_desc,
                    [(tile_m * CONSUMERS + consumer) * ROWS, step * DEPTH],
                    ready,
                    a_ring.index(stage * CONSUMERS + consumer),
                )
            if B_BY_COLUMNS:
                tma_copies.load(b_desc, [tile_n * COLUMNS, step * DEPTH], ready, b_ring.index(stage))
            else:
                tma_copies.load(b_desc, [step * DEPTH, tile_n * COLUMNS], ready, b_ring.index(stage))
            stage += 1
            if stage == STAGES:
                stage = 0
                phase ^= 1


@gluon.jit
def _halves(tile):
    """Return the left and the right columns of a tile: other registers, no instruction."""
    return tile.reshape([tile.shape[0], 2, tile.shape[1] // 2]).permute([0, 2, 1]).split()


@gluon.jit
def _slices(tile, SLICES: gl.constexpr):
    if SLICES == 1:
        return (tile,)
    elif SLICES == 2:  # noqa: PLR2004, RET505 - halves; as above
        left, right = _halves(tile)
        return left, right
    else:
        left, right = _halves(tile)
        first, second = _halves(left)
        third, fourth = _halves(right)
        return first, second, third, fourth


@gluon.constexpr_function
def _spread_layout(rows, columns):
    """Return the layout in which a thread's four elements of a row are neighbours."""
    registers = [[0, 1], [0, 2], [8, 0]]
    registers += [[0, 16 << bit] for bit in range((columns // 16).bit_length() - 1)]
    registers += [[64 << bit, 0] for bit in range((rows // 64).bit_length() - 1)]
    lanes = [[0, 4], [0, 8], [1, 0], [2, 0], [4, 0]]
    return gl.DistributedLinearLayout(registers, lanes, [[16, 0], [32, 0]], [], [rows, columns])


@gluon.jit
def _spread(part):
    """Rename columns, so that each thread holds four in a row and can read and write 16 bytes; no instruction.

    Of 16 columns a thread of a warpgroup's accumulator has 2q, 2q + 1, 2q + 8 and 2q + 9.
    """
    ROWS: gl.constexpr = part.shape[0]
    COLUMNS: gl.constexpr = part.shape[1]
    split = part.reshape([ROWS, COLUMNS // 16, 2, 4, 2]).permute([0, 1, 3, 2, 4])
    return gl.convert_layout(split.reshape([ROWS, COLUMNS]), _spread_layout(ROWS, COLUMNS))


@gluon.jit
def _gathered(part):
    """Undo `_spread`."""
    ROWS: gl.constexpr = part.shape[0]
    COLUMNS: gl.constexpr = part.shape[1]
    split = part.reshape([ROWS, COLUMNS // 16, 4, 2, 2]).permute([0, 1, 3, 2, 4])
    return split.reshape([ROWS, COLUMNS])


@gluon.jit
def _places(part):
    """Return where the elements of a spread slice lie in the workspace: a warp's 16-byte words side by side."""
    layout: gl.constexpr = part.type.layout
    row = gl.arange(0, part.shape[0], layout=gl.SliceLayout(1, layout))
    column = gl.arange(0, part.shape[1], layout=gl.SliceLayout(0, layout))
    rows = row // 8 * (8 * part.shape[1]) + row % 8 * 16
    columns = column // 16 * 128 + column % 16
    return rows[:, None] + columns[None, :]


@gluon.jit
def _leave(accumulator, part_ptr, flag_ptr, SLICES: gl.constexpr):
    """Write a part to the workspace, and then say that it is there."""
    SLICE: gl.constexpr = accumulator.shape[0] * accumulator.shape[1] // SLICES
    slices = _slices(accumulator, SLICES)
    for i in gl.static_range(SLICES):
        part = _spread(slices[i])
        gl.store(part_ptr + i * SLICE + _places(part), part, cache_modifier=".cg")
    tl.debug_barrier()  # every thread's words are there before one thread says so
    gl.atomic_xchg(flag_ptr, 1, sem="release", scope="gpu")


@gluon.jit
def _finish(  # noqa: PLR0917 - a kernel's arguments
    accumulator,
    c,
    c_ring,
    M,
    N,
    row,
    column,
    parts_ptr,
    flags_ptr,
    first,
    program,
    SHARES: gl.constexpr,
    CONSUMER: gl.constexpr,
    CONSUMERS: gl.constexpr,
    C_WIDTH: gl.constexpr,
):
    """Add the parts of the programs from `first` to before `program`, and store C in slices."""
    SLICES: gl.constexpr = accumulator.shape[1] // c_ring.shape[2]
    C_BUFFERS: gl.constexpr = c_ring.shape[0] // CONSUMERS
    PART: gl.constexpr = accumulator.shape[0] * accumulator.shape[1]
    if SHARES:
        for other in range(first, program):
            while gl.atomic_cas(flags_ptr + other * CONSUMERS + CONSUMER, 1, 0, sem="acquire", scope="gpu") == 0:
                pass
    slices = _slices(accumulator, SLICES)
    for i in gl.static_range(SLICES):
        part = slices[i]
        if SHARES:
            total = _spread(part)
            places = i * (PART // SLICES) + _places(total)
            for other in range(first, program):
                other_ptr = parts_ptr + (other * CONSUMERS + CONSUMER).to(gl.int64) * PART
                total += gl.load(other_ptr + places, cache_modifier=".cg")
            part = _gathered(total)
        buffer = c_ring.index(CONSUMER * C_BUFFERS + i % C_BUFFERS)
        first_column = column + i * part.shape[1]
        if C_WIDTH == 0:
            tma.store_wait(C_BUFFERS - 1)
            buffer.store(part.to(buffer.dtype))
            fence_async_shared()
            tma_copies.store(c, [row, first_column], buffer)
        else:
            buffer.store(part.to(buffer.dtype))
            store_rows(buffer, c, row, first_column, M, N, C_WIDTH)


@gluon.jit
def _consume(  # noqa: PLR0917 - a kernel's arguments
    c,
    M,
    N,
    parts_ptr,
    flags_ptr,
    scale_a_ptr,
    scale_b_ptr,
    a_ring,
    b_ring,
    c_ring,
    full,
    empty,
    tiles_m,
    tiles_n,
    steps,
    shared,
    SHARES: gl.constexpr,
    CONSUMER: gl.constexpr,
    GROUP_M: gl.constexpr,
    B_BY_COLUMNS: gl.constexpr,
    PER_ROW: gl.constexpr,
    PER_COLUMN: gl.constexpr,
    PROMOTE: gl.constexpr,
    C_WIDTH: gl.constexpr,
):
    """Multiply the rows of every visit's tile that are this warpgroup's."""
    STAGES: gl.constexpr = b_ring.shape[0]
    CONSUMERS: gl.constexpr = a_ring.shape[0] // STAGES
    ROWS: gl.constexpr = a_ring.shape[1]
    COLUMNS: gl.constexpr = b_ring.shape[1] if B_BY_COLUMNS else b_ring.shape[2]
    layout: gl.constexpr = gl.NVMMADistributedLayout(
        version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, COLUMNS, 256 // a_ring.dtype.primitive_bitwidth]
    )
    program = gl.program_id(0)
    programs = gl.num_programs(0)
    stage = 0
    phase = 0
    for index in range(_visits(program, programs, tiles_m * tiles_n, shared, steps)):
        tile, begin, end = _visit(index, program, programs, shared, steps)
        tile_m, tile_n = _tile_position(tile, tiles_m, tiles_n, GROUP_M)
        if scale_a_ptr is not None:  # before the steps, so that their end waits for nothing; few to a thread
            scale_a = load_scales(
                scale_a_ptr, (tile_m * CONSUMERS + CONSUMER) * ROWS, M,
                ROWS, gl.SliceLayout(1, layout), PER_ROW,
            )  # fmt: skip
            scale_b = load_scales(
                scale_b_ptr, tile_n * COLUMNS, N,
                COLUMNS, gl.BlockedLayout([1], [32], [4], [0]), PER_COLUMN,
            )  # fmt: skip
        if PROMOTE:
            accumulator, stage, phase = promoted_sum(
                a_ring, b_ring, full, empty, stage, phase, begin, end, CONSUMER, B_BY_COLUMNS, layout
            )
        else:
            accumulator, stage, phase = tensor_core_sum(
                a_ring, b_ring, full, empty, stage, phase, begin, end, CONSUMER, B_BY_COLUMNS, layout
            )
        if scale_a_ptr is not None:
            accumulator = scaled(accumulator, scale_a, scale_b, PER_ROW, PER_COLUMN)
        row = (tile_m * CONSUMERS + CONSUMER) * ROWS
        column = tile_n * COLUMNS
        first = program
        if SHARES:
            if end < steps:
                slot = program * CONSUMERS + CONSUMER
                part_ptr = parts_ptr + slot.to(gl.int64) * (ROWS * COLUMNS)
                _leave(accumulator, part_ptr, flags_ptr + slot, COLUMNS // c_ring.shape[2])
            else:
                if begin > 0:
                    first = _first_contributor(tile, programs, shared, steps)
                _finish(
                    accumulator, c, c_ring, M, N, row, column, parts_ptr, flags_ptr, first, program,
                    SHARES, CONSUMER, CONSUMERS, C_WIDTH,
                )  # fmt: skip
        else:
            _finish(
                accumulator, c, c_ring, M, N, row, column, parts_ptr, flags_ptr, first, program,
                SHARES, CONSUMER, CONSUMERS, C_WIDTH,
            )  # fmt: skip
    if C_WIDTH == 0:
        tma.store_wait(0)


@gluon.jit(do_not_specialize=["M", "N", "K", "shared"])
def hopper_matmul_kernel(  # noqa: PLR0917 - a kernel's arguments
    a_desc,  # (M, K), in boxes of one consumer's rows
    b_desc,  # (K, N); (N, K) with B_BY_COLUMNS
    c,  # (M, N): in boxes of one slice; with C_WIDTH where it begins
    parts_ptr,  # (programs, CONSUMERS, rows of a consumer, BLOCK_N)
    flags_ptr,  # (programs, CONSUMERS)
    scale_a_ptr,  # (M,) if PER_ROW, else one element; None without scales
    scale_b_ptr,  # (N,) if PER_COLUMN, else one element; likewise
    M,
    N,
    K,
    shared,
    STAGES: gl.constexpr,
    CONSUMERS: gl.constexpr,
    SLICES: gl.constexpr,
    C_BUFFERS: gl.constexpr,
    REGISTERS: gl.constexpr,
    GROUP_M: gl.constexpr,
    SHARES: gl.constexpr,
    B_BY_COLUMNS: gl.constexpr,
    PER_ROW: gl.constexpr,
    PER_COLUMN: gl.constexpr,
    PROMOTE: gl.constexpr,
    DEPENDENT: gl.constexpr,
    C_WIDTH: gl.constexpr = 0,
):
    """Multiply two matrices on Hopper's tensor cores.

    Formula: ``C[m, n] = (sum over k of A[m, k] * B[k, n]) * scale_a[m] * scale_b[n]``, the scales if there are any.

    =======  ===============================  ==============================  ================================
    tensor   shape                            layout                          dtype
    =======  ===============================  ==============================  ================================
    A        (M, K)                           rows of a multiple of 16 bytes  float16, bfloat16 or float8_e4m3
    B        (K, N), (N, K) if B_BY_COLUMNS   likewise                        the same; float8 only by columns
    C        (M, N)                           likewise                        float16 or bfloat16
    parts    (programs, CONSUMERS, a tile)    16-byte words of a warp         float32
    flags    (programs, CONSUMERS)            contiguous                      int32, zero
    scale_a  (M,)                             contiguous                      float32; one if not PER_ROW
    scale_b  (N,)                             contiguous                      float32; one if not PER_COLUMN
    =======  ===============================  ==============================  ================================

    One program takes its share of the steps of the first `shared` tiles, and then every so many-th of the others. Its
    consumers have the rows of a tile among them, and wait for each other's numbers nowhere.

    Numerics and limits: sums in float32; a shared tile is summed in as many pieces as it has programs, in a fixed
    order, and rounded once. Each piece is scaled, in float32, by the product of the scales where each is one for all.
    Hopper's tensor cores keep some 14 bits of a sum of float8; with PROMOTE they begin anew in every step, and its sum
    is added in float32, which takes a thread as many registers again. Rows and columns beyond the matrices are zeros
    that the loads make, and that the stores leave out. SHARES compiles the sharing in.
    DEPENDENT waits for the launch before. C_WIDTH is 0 where a tensor map describes C; elsewhere it divides the
    columns, which so many elements are stored of at a time, and are fewer than 2**27.
    """
    ROWS: gl.constexpr = a_desc.block_type.shape[0]
    DEPTH: gl.constexpr = a_desc.block_type.shape[1]
    COLUMNS: gl.constexpr = b_desc.block_type.shape[0] if B_BY_COLUMNS else b_desc.block_type.shape[1]
    a_ring = gl.allocate_shared_memory(a_desc.dtype, [STAGES * CONSUMERS, ROWS, DEPTH], a_desc.layout)
    b_ring = gl.allocate_shared_memory(b_desc.dtype, [STAGES] + b_desc.block_type.shape, b_desc.layout)  # noqa: RUF005 - Gluon has no unpacking
    C_DTYPE: gl.constexpr = c.dtype.element_ty if C_WIDTH else c.dtype
    C_LAYOUT: gl.constexpr = gl.NVMMASharedLayout.get_default_for([ROWS, COLUMNS // SLICES], C_DTYPE)
    c_ring = gl.allocate_shared_memory(C_DTYPE, [CONSUMERS * C_BUFFERS, ROWS, COLUMNS // SLICES], C_LAYOUT)
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(STAGES):
        mbarrier.init(full.index(i), count=1)
        mbarrier.init(empty.index(i), count=CONSUMERS)
    fence_async_shared()
    _come_after(DEPENDENT)
    tiles_m = gl.cdiv(M, ROWS * CONSUMERS)
    tiles_n = gl.cdiv(N, COLUMNS)
    steps = gl.cdiv(K, DEPTH)
    # Gluon takes functions and arguments written out: what goes through a tuple's name is no constant any more. The
    # producer's 40 registers are those of its integers: with 24 it spilled (triton 3.7.1, 2026-11-22).
    # fmt: off
    if CONSUMERS == 1:
        gl.warp_specialize([
            (_consume, (c, M, N, parts_ptr, flags_ptr, scale_a_ptr, scale_b_ptr, a_ring, b_ring, c_ring, full, empty,
                        tiles_m, tiles_n, steps, shared, SHARES, 0, GROUP_M, B_BY_COLUMNS,
                        PER_ROW, PER_COLUMN, PROMOTE, C_WIDTH)),
            (_produce, (a_desc, b_desc, a_ring, b_ring, full, empty, tiles_m, tiles_n, steps, shared,
                        GROUP_M, B_BY_COLUMNS)),
        ], [1], [40])
    elif CONSUMERS == 2:  # noqa: PLR2004 - as the lists show
        gl.warp_specialize([
            (_consume, (c, M, N, parts_ptr, flags_ptr, scale_a_ptr, scale_b_ptr, a_ring, b_ring, c_ring, full, empty,
                        tiles_m, tiles_n, steps, shared, SHARES, 0, GROUP_M, B_BY_COLUMNS,
                        PER_ROW, PER_COLUMN, PROMOTE, C_WIDTH)),
            (_consume, (c, M, N, parts_ptr, flags_ptr, scale_a_ptr, scale_b_ptr, a_ring, b_ring, c_ring, full, empty,
                        tiles_m, tiles_n, steps, shared, SHARES, 1, GROUP_M, B_BY_COLUMNS,
                        PER_ROW, PER_COLUMN, PROMOTE, C_WIDTH)),
            (_produce, (a_desc, b_desc, a_ring, b_ring, full, empty, tiles_m, tiles_n, steps, shared,
                        GROUP_M, B_BY_COLUMNS)),
        ], [4, 1], [REGISTERS, 40])
    else:
        gl.warp_specialize([
            (_consume, (c, M, N, parts_ptr, flags_ptr, scale_a_ptr, scale_b_ptr, a_ring, b_ring, c_ring, full, empty,
                        tiles_m, tiles_n, steps, shared, SHARES, 0, GROUP_M, B_BY_COLUMNS,
                        PER_ROW, PER_COLUMN, PROMOTE, C_WIDTH)),
            (_consume, (c, M, N, parts_ptr, flags_ptr, scale_a_ptr, scale_b_ptr, a_ring, b_ring, c_ring, full, empty,
                        tiles_m, tiles_n, steps, shared, SHARES, 1, GROUP_M, B_BY_COLUMNS,
                        PER_ROW, PER_COLUMN, PROMOTE, C_WIDTH)),
            (_consume, (c, M, N, parts_ptr, flags_ptr, scale_a_ptr, scale_b_ptr, a_ring, b_ring, c_ring, full, empty,
                        tiles_m, tiles_n, steps, shared, SHARES, 2, GROUP_M, B_BY_COLUMNS,
                        PER_ROW, PER_COLUMN, PROMOTE, C_WIDTH)),
            (_produce, (a_desc, b_desc, a_ring, b_ring, full, empty, tiles_m, tiles_n, steps, shared,
                        GROUP_M, B_BY_COLUMNS)),
        ], [4, 4, 1], [REGISTERS, REGISTERS, 40])
    # fmt: on

"""The device code of `flopwatch.kernels.hopper_attention`, in Gluon."""

# Triton types what it compiles, and ships no types:
# mypy: disable-error-code="no-untyped-def, untyped-decorator"
# ruff: noqa: FBT003, PLR0917 - Triton passes a kernel's many arguments by place

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, mbarrier, tma

from flopwatch.kernels.hopper_attention_lengths import (
    clear_values,
    end_count,
    find_entry,
    hand_out,
    take_tile,
    write_zeros,
)
from flopwatch.kernels.hopper_attention_mainloop import attend_tile, load_tile
from flopwatch.kernels.hopper_attention_tiles import count_turns, find_tile
from flopwatch.kernels.hopper_attention_turns import give_turn, take_turn


@gluon.jit
def _produce(
    descriptors, buffers, barriers, sizes, seq_lens, counter, telling, GROUPS: gl.constexpr, CAUSAL: gl.constexpr
):
    """Load Q of each warpgroup, then K and V block by block from the right, for all tiles of this program; one warp."""
    q_buf, _, _, _ = buffers
    queries, keys, heads, heads_per_key, row_tiles, all_heads, l2_heads = sizes
    BLOCK_M: gl.constexpr = q_buf.shape[3] * GROUPS
    program = gl.program_id(0)
    programs = gl.num_programs(0)
    ring = (0, 1, 0, 1)
    if seq_lens is None:
        for turn in range(count_turns(program, programs, row_tiles * all_heads)):
            row_tile, head = find_tile(turn, program, programs, row_tiles, all_heads, l2_heads, CAUSAL)
            place = (head // heads, head % heads, heads_per_key, row_tile * BLOCK_M)
            ring = load_tile(descriptors, buffers, barriers, place, queries, keys, ring, False, GROUPS, CAUSAL)
    else:
        number = program
        batch = 0
        first = 0
        told_phase = 1
        batch, first, length = find_entry(number, batch, first, seq_lens, sizes, BLOCK_M)
        while batch * heads < all_heads:
            of_entry = (length + BLOCK_M - 1) // BLOCK_M
            row_tile, head = find_tile(0, number - first, programs, of_entry, heads, min(l2_heads, heads), CAUSAL)
            row = row_tile * BLOCK_M
            told_phase = hand_out(telling, row, batch * heads + head, length, told_phase)
            place = (batch, head, heads_per_key, row)
            ring = load_tile(descriptors, buffers, barriers, place, length, length, ring, True, GROUPS, CAUSAL)
            number = programs + gl.atomic_add(counter, 1, sem="relaxed")
            batch, first, length = find_entry(number, batch, first, seq_lens, sizes, BLOCK_M)
        hand_out(telling, -1, 0, 0, told_phase)
        end_count(counter, programs)


@gluon.jit
def _consume(
    descriptors,
    buffers,
    barriers,
    sizes,
    seq_lens,
    telling,
    scale,
    GROUP: gl.constexpr,
    GROUPS: gl.constexpr,
    CAUSAL: gl.constexpr,
    WHOLE: gl.constexpr,
    ALIGNED: gl.constexpr,
    HALVED: gl.constexpr,
    PING_PONG: gl.constexpr,
    POLYNOMIAL: gl.constexpr,
    OWN_OUT: gl.constexpr,
    Q_HELD: gl.constexpr,
):
    """Compute 64 rows of each tile of this program; one warpgroup."""
    q_buf, _, v_buf, out_buf = buffers
    queries, keys, _, _, row_tiles, all_heads, l2_heads = sizes
    ROWS: gl.constexpr = q_buf.shape[3]
    BLOCK_M: gl.constexpr = ROWS * GROUPS
    program = gl.program_id(0)
    programs = gl.num_programs(0)
    slot = 0
    phase = 0
    q_slot = 0
    q_phase = 0
    if GROUP == GROUPS - 1:
        give_turn(0, PING_PONG)
    if seq_lens is not None:
        write_zeros(descriptors, out_buf, sizes, seq_lens, BLOCK_M, GROUP, v_buf.shape[4])
        cleared = 0
        told_phase = 0
        row, head, length, told_phase = take_tile(telling, told_phase)
        while row >= 0:
            if GROUP == GROUPS - 1:
                cleared = clear_values(v_buf, barriers, row, BLOCK_M, length, slot, cleared, CAUSAL)
            slot, phase, q_slot, q_phase, row, head, length, told_phase = attend_tile(
                descriptors,
                buffers,
                barriers,
                sizes,
                (row, head, length, length),
                (slot, phase, q_slot, q_phase),
                (0, program, programs, 0, 0),
                telling,
                told_phase,
                scale,
                GROUP,
                GROUPS,
                CAUSAL,
                WHOLE,
                ALIGNED,
                HALVED,
                PING_PONG,
                POLYNOMIAL,
                OWN_OUT,
                Q_HELD,
            )
    else:
        next_tile, next_head = find_tile(0, program, programs, row_tiles, all_heads, l2_heads, CAUSAL)
        for turn in range(count_turns(program, programs, row_tiles * all_heads)):
            if GROUPS == 2:  # noqa: PLR2004
                row_tile, head = next_tile, next_head
            else:  # its registers are all taken
                row_tile, head = find_tile(turn, program, programs, row_tiles, all_heads, l2_heads, CAUSAL)
            slot, phase, q_slot, q_phase, next_tile, next_head, _length, _phase = attend_tile(
                descriptors,
                buffers,
                barriers,
                sizes,
                (row_tile * BLOCK_M, head, queries, keys),
                (slot, phase, q_slot, q_phase),
                (turn, program, programs, next_tile, next_head),
                None,
                0,
                scale,
                GROUP,
                GROUPS,
                CAUSAL,
                WHOLE,
                ALIGNED,
                HALVED,
                PING_PONG,
                POLYNOMIAL,
                OWN_OUT,
                Q_HELD,
            )
    tma.store_wait(0)
    if GROUP == 0:
        take_turn(0, PING_PONG)  # the arrival that nobody waits for


@gluon.jit(
    do_not_specialize=["queries", "keys", "heads", "heads_per_key", "row_tiles", "all_heads", "l2_heads"],
    do_not_specialize_on_alignment=["seq_lens", "counter", "told"],
)
def hopper_attention_kernel(
    q_desc,
    k_desc,
    v_desc,
    out_desc,
    seq_lens,
    counter,
    told,
    queries,
    keys,
    heads,
    heads_per_key,
    row_tiles,
    all_heads,
    l2_heads,
    scale,
    STAGES: gl.constexpr,
    GROUPS: gl.constexpr,
    CAUSAL: gl.constexpr,
    WHOLE: gl.constexpr,
    ALIGNED: gl.constexpr,
    HALVED: gl.constexpr,
    PING_PONG: gl.constexpr,
    POLYNOMIAL: gl.constexpr,
    OWN_OUT: gl.constexpr,
    Q_STAGES: gl.constexpr,
    Q_HELD: gl.constexpr,
    REGISTERS: gl.constexpr,
    PRODUCER_REGISTERS: gl.constexpr,
):
    """Compute attention of all heads.

    Formula: ``O = softmax(sm_scale * Q K^T + mask) V`` for each head, with ``scale = sm_scale * log2(e)``.

    ===========  ================================  ============================  ===================
    tensor       shape                             block                         dtype
    ===========  ================================  ============================  ===================
    Q, O         (B, heads, queries, HEAD_DIM)     (1, 1, 64, HEAD_DIM)          float16 or bfloat16
    K, V         (B, key heads, keys, HEAD_DIM)    (1, 1, BLOCK_N, HEAD_DIM)     as Q
    seq_lens     (B,)                              contiguous                    int32
    counter      (2,)                              0, before and after           int32
    told         (programs, 4)                     contiguous                    int32
    ===========  ================================  ============================  ===================

    One program computes 64 * GROUPS rows of O of one head, tile after tile in the order of `find_tile`. One warp loads
    Q of each consumer warpgroup into a ring of Q_STAGES tiles, then K and V through two rings of STAGES blocks, from
    the last block that any row sees to the first. Each warpgroup computes 64 rows: it issues the scores of a block and,
    behind them, the product of the weights of the block before with its values, and computes the softmax of the one
    while the other runs. Blocks that its own rows do not see it gives back unread; only those are masked that the
    diagonal or the end touches. O leaves in two halves of its columns where its block has half of them.

    With `seq_lens`, else None as `counter` and `told` are, each batch entry has as many queries and keys as its length
    says. Programs write zeros for tiles without any, take the others by the counter, and the producer tells the
    warpgroups by `told` which one comes next. One warpgroup clears the values past the length in a tile's first block.

    Numerics and limits: scores, softmax and sums in float32, the sums of a row put together only at the end; the
    weights, of up to 1 or, in two warpgroups of head_dim 128 and 256, 2**8, are rounded to the dtype for the second
    product. Rows that see no key are 0. What lies past the end is neither read nor stored. Past a length, which is
    clamped to [0, keys], results are 0, whatever Q, K and V hold there; but values before it must be finite even where
    a query does not see them: 0 * inf is NaN. `scale` is positive. WHOLE says that `keys` is a multiple of BLOCK_N and
    there are no lengths, ALIGNED that no group has a second masked block, HALVED that the diagonal begins at the first
    key of a block for the first of two groups, in its middle for the second. Q_HELD columns of Q stay in registers.
    Sizes, and the number of tiles, are below 2**31.
    """
    HAS_LENGTHS: gl.constexpr = seq_lens is not None
    ROWS: gl.constexpr = q_desc.block_type.shape[2]
    BLOCK_N: gl.constexpr = k_desc.block_type.shape[2]
    HEAD_DIM: gl.constexpr = k_desc.block_type.shape[3]
    q_buf = gl.allocate_shared_memory(q_desc.dtype, [Q_STAGES * GROUPS, 1, 1, ROWS, HEAD_DIM], q_desc.layout)
    k_buf = gl.allocate_shared_memory(k_desc.dtype, [STAGES, 1, 1, BLOCK_N, HEAD_DIM], k_desc.layout)
    v_buf = gl.allocate_shared_memory(v_desc.dtype, [STAGES, 1, 1, BLOCK_N, HEAD_DIM], v_desc.layout)
    OUT_COLUMNS: gl.constexpr = out_desc.block_type.shape[3]
    gl.static_assert(OWN_OUT or (Q_STAGES == 1 and OUT_COLUMNS == HEAD_DIM and not HAS_LENGTHS))
    out_buf = q_buf
    if OWN_OUT:
        out_buf = gl.allocate_shared_memory(out_desc.dtype, [GROUPS, 1, 1, ROWS, OUT_COLUMNS], out_desc.layout)
    q_full = gl.allocate_shared_memory(gl.int64, [Q_STAGES * GROUPS, 1], mbarrier.MBarrierLayout())
    q_empty = gl.allocate_shared_memory(gl.int64, [Q_STAGES * GROUPS, 1], mbarrier.MBarrierLayout())
    k_full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    k_empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    V_PLACES: gl.constexpr = 2 * STAGES if HAS_LENGTHS else STAGES
    v_full = gl.allocate_shared_memory(gl.int64, [V_PLACES, 1], mbarrier.MBarrierLayout())
    v_empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for place in gl.static_range(Q_STAGES * GROUPS):
        mbarrier.init(q_full.index(place), count=1)
        mbarrier.init(q_empty.index(place), count=1)
    for stage in gl.static_range(STAGES):
        mbarrier.init(k_full.index(stage), count=1)
        mbarrier.init(k_empty.index(stage), count=GROUPS)
        mbarrier.init(v_full.index(stage), count=1)
        mbarrier.init(v_empty.index(stage), count=GROUPS)
    for stage in gl.static_range(STAGES, V_PLACES):
        mbarrier.init(v_full.index(stage), count=1)
    barriers = (q_full, q_empty, k_full, k_empty, v_full, v_empty)
    telling = (out_desc, q_full, q_empty)  # three of anything: without lengths nobody asks for them
    if HAS_LENGTHS:
        told_full = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
        told_empty = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
        mbarrier.init(told_full, count=1)
        mbarrier.init(told_empty, count=GROUPS)
        telling = (told, told_full, told_empty)
    fence_async_shared()
    descriptors = (q_desc, k_desc, v_desc, out_desc)
    buffers = (q_buf, k_buf, v_buf, out_buf)
    sizes = (queries, keys, heads, heads_per_key, row_tiles, all_heads, l2_heads)
    # The tuples of arguments are literals: in a variable, what is constexpr would become a tensor. The formatter would
    # have a line an argument, seventy of them.
    # fmt: off
    if GROUPS == 2:  # noqa: PLR2004 - else 3
        gl.warp_specialize(
            [
                (_consume, (descriptors, buffers, barriers, sizes, seq_lens, telling, scale, 0, GROUPS,
                            CAUSAL, WHOLE, ALIGNED, HALVED, PING_PONG, POLYNOMIAL, OWN_OUT, Q_HELD)),
                (_consume, (descriptors, buffers, barriers, sizes, seq_lens, telling, scale, 1, GROUPS,
                            CAUSAL, WHOLE, ALIGNED, HALVED, PING_PONG, POLYNOMIAL, OWN_OUT, Q_HELD)),
                (_produce, (descriptors, buffers, barriers, sizes, seq_lens, counter, telling, GROUPS, CAUSAL)),
            ],
            [4, 1],
            [REGISTERS, PRODUCER_REGISTERS],
        )
    else:
        gl.warp_specialize(
            [
                (_consume, (descriptors, buffers, barriers, sizes, seq_lens, telling, scale, 0, GROUPS,
                            CAUSAL, WHOLE, ALIGNED, HALVED, PING_PONG, POLYNOMIAL, OWN_OUT, Q_HELD)),
                (_consume, (descriptors, buffers, barriers, sizes, seq_lens, telling, scale, 1, GROUPS,
                            CAUSAL, WHOLE, ALIGNED, HALVED, PING_PONG, POLYNOMIAL, OWN_OUT, Q_HELD)),
                (_consume, (descriptors, buffers, barriers, sizes, seq_lens, telling, scale, 2, GROUPS,
                            CAUSAL, WHOLE, ALIGNED, HALVED, PING_PONG, POLYNOMIAL, OWN_OUT, Q_HELD)),
                (_produce, (descriptors, buffers, barriers, sizes, seq_lens, counter, telling, GROUPS, CAUSAL)),
            ],
            [4, 4, 1],
            [REGISTERS, REGISTERS, PRODUCER_REGISTERS],
        )
    # fmt: on

"""What the producer loads of one tile of attention, and a warpgroup computes: part of `hopper_attention_kernel`."""

# Triton types what it compiles, and ships no types:
# mypy: disable-error-code="no-untyped-def, untyped-decorator"
# ruff: noqa: FBT003, PLR0917 - Triton passes a function's many arguments by place

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from flopwatch.kernels import tma_copies
from flopwatch.kernels.hopper_attention_block import attend, matrix, next_slot, score
from flopwatch.kernels.hopper_attention_lengths import take_tile
from flopwatch.kernels.hopper_attention_softmax import halves, joined, masked, rounded, sum_in_threads, weigh
from flopwatch.kernels.hopper_attention_tiles import count_blocks, count_whole_blocks, find_tile
from flopwatch.kernels.hopper_attention_turns import give_turn, take_turn


@gluon.jit
def load_tile(
    descriptors,
    buffers,
    barriers,
    place,
    queries,
    keys,
    ring,
    HAS_LENGTHS: gl.constexpr,
    GROUPS: gl.constexpr,
    CAUSAL: gl.constexpr,
):
    """Load Q, K and V of one tile."""
    q_desc, k_desc, v_desc, _ = descriptors
    q_buf, k_buf, v_buf, _ = buffers
    q_full, q_empty, k_full, k_empty, v_full, v_empty = barriers
    batch, head, heads_per_key, row = place
    slot, phase, q_slot, q_phase = ring
    ROWS: gl.constexpr = q_desc.block_type.shape[2]
    BLOCK_N: gl.constexpr = k_desc.block_type.shape[2]
    STAGES: gl.constexpr = k_buf.shape[0]
    Q_STAGES: gl.constexpr = q_buf.shape[0] // GROUPS
    for group in gl.static_range(GROUPS):
        q_place = q_slot * GROUPS + group
        mbarrier.wait(q_empty.index(q_place), q_phase)
        mbarrier.expect(q_full.index(q_place), q_desc.block_type.nbytes)
        tma_copies.load(q_desc, [batch, head, row + group * ROWS, 0], q_full.index(q_place), q_buf.index(q_place))
    q_slot, q_phase = next_slot(q_slot, q_phase, Q_STAGES)
    key_head = head // heads_per_key
    blocks = count_blocks(row, row + ROWS * GROUPS, queries, keys, CAUSAL, BLOCK_N)
    for block in range(blocks):
        key = (blocks - 1 - block) * BLOCK_N
        mbarrier.wait(k_empty.index(slot), phase)
        mbarrier.expect(k_full.index(slot), k_desc.block_type.nbytes)
        tma_copies.load(k_desc, [batch, key_head, key, 0], k_full.index(slot), k_buf.index(slot))
        mbarrier.wait(v_empty.index(slot), phase)
        v_place = slot
        if HAS_LENGTHS:
            v_place = gl.where(key + BLOCK_N > keys, slot + STAGES, slot)  # it is to be cleared first
        mbarrier.expect(v_full.index(v_place), v_desc.block_type.nbytes)
        tma_copies.load(v_desc, [batch, key_head, key, 0], v_full.index(v_place), v_buf.index(slot))
        slot, phase = next_slot(slot, phase, STAGES)
    return slot, phase, q_slot, q_phase


@gluon.jit
def attend_tile(  # noqa: C901, PLR0912, PLR0915 - one tile, whose order is what matters
    descriptors,
    buffers,
    barriers,
    sizes,
    place,
    ring,
    walk,
    telling,
    told_phase,
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
    """Compute 64 rows of one tile; return where the rings are then, and the next tile: row, head, length, phase.

    `place` is the tile's first row, its head, and how many queries and keys there are. `walk` is the turn, the program,
    how many there are, and the next tile as far as it is known, its row in units of tiles. With lengths the next one
    is taken from `telling`, in the phase `told_phase`; else that is None.
    """
    _, _, _, out_desc = descriptors
    q_buf, k_buf, v_buf, out_buf = buffers
    q_full, q_empty, k_full, k_empty, v_full, v_empty = barriers
    _, _, heads, _, row_tiles, all_heads, l2_heads = sizes
    row, head, queries, keys = place
    slot, phase, q_slot, q_phase = ring
    turn, program, programs, next_tile, next_head = walk
    next_length = keys
    ROWS: gl.constexpr = q_buf.shape[3]
    STAGES: gl.constexpr = k_buf.shape[0]
    BLOCK_N: gl.constexpr = k_buf.shape[3]
    HEAD_DIM: gl.constexpr = k_buf.shape[4]
    BLOCK_M: gl.constexpr = ROWS * GROUPS
    S_L: gl.constexpr = gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, BLOCK_N, 16])
    O_L: gl.constexpr = gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, HEAD_DIM, 16])
    P_L: gl.constexpr = gl.DotOperandLayout(operand_index=0, parent=O_L, k_width=2)
    Q_L: gl.constexpr = gl.DotOperandLayout(operand_index=0, parent=S_L, k_width=2)
    # Of head_dim 64 with two warpgroups it was slower, and three leave no registers for it (decision 5).
    LAZY: gl.constexpr = GROUPS == 2 and HEAD_DIM >= 128  # noqa: PLR2004
    # Of the block that the diagonal touches, the first of two groups sees the first half alone, and the second one all
    # of that half.
    FIRST_KEYS: gl.constexpr = BLOCK_N // 2 if HALVED and GROUP == 0 else BLOCK_N
    F_L: gl.constexpr = gl.NVMMADistributedLayout(
        version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, FIRST_KEYS, 16]
    )
    offset = keys - queries
    Q_STAGES: gl.constexpr = q_buf.shape[0] // GROUPS
    first_row = row + GROUP * ROWS
    blocks = count_blocks(first_row, first_row + ROWS, queries, keys, CAUSAL, BLOCK_N)
    # Blocks that other groups need, and these rows do not: given back once they are here, since an arrival before
    # that would count for the block that was there before.
    for _skipped in range(count_blocks(row, row + BLOCK_M, queries, keys, CAUSAL, BLOCK_N) - blocks):
        take_turn(GROUP, PING_PONG)
        give_turn((GROUP + 1) % GROUPS, PING_PONG)
        mbarrier.wait(k_full.index(slot), phase)
        mbarrier.arrive(k_empty.index(slot), count=1)
        mbarrier.wait(v_full.index(slot), phase)
        mbarrier.arrive(v_empty.index(slot), count=1)
        slot, phase = next_slot(slot, phase, STAGES)

    place = q_slot * GROUPS + GROUP
    q_shared = matrix(q_buf, place)
    mbarrier.wait(q_full.index(place), q_phase)
    q_held = q_shared
    if Q_HELD:
        q_held = q_shared.slice(0, Q_HELD, 1).load(Q_L)
    mbarrier.wait(k_full.index(slot), phase)
    nothing = gl.zeros([ROWS, FIRST_KEYS], gl.float32, F_L)
    take_turn(GROUP, PING_PONG)
    first_k = matrix(k_buf, slot).slice(0, FIRST_KEYS)
    scores = score((q_held, q_shared), first_k, nothing, Q_HELD)
    give_turn((GROUP + 1) % GROUPS, PING_PONG)
    scores = warpgroup_mma_wait(0, deps=(scores,))
    mbarrier.arrive(k_empty.index(slot), count=1)
    first_key = (blocks - 1) * BLOCK_N
    if HALVED and GROUP == 1:
        seen, touched = halves(scores)
        TOUCHED_L: gl.constexpr = touched.type.layout
        touched = masked(touched, first_key + BLOCK_N // 2, first_row, offset, keys, CAUSAL, TOUCHED_L)
        scores = gl.convert_layout(joined(seen, touched), S_L, assert_trivial=True)
    elif CAUSAL or not WHOLE:
        scores = masked(scores, first_key, first_row, offset, keys, CAUSAL, F_L)
    row_max = gl.full([ROWS], float("-inf"), gl.float32, gl.SliceLayout(1, F_L))
    p, row_max, _rescale = weigh(scores, row_max, scale, CAUSAL or not WHOLE, POLYNOMIAL, False)
    if HALVED and GROUP == 0:
        row_max = gl.convert_layout(row_max, gl.SliceLayout(1, S_L), assert_trivial=True)
        p = gl.convert_layout(joined(p, gl.zeros_like(p)), S_L, assert_trivial=True)
    row_sum = sum_in_threads(p)
    weights = gl.convert_layout(rounded(p, k_buf.dtype), P_L, assert_trivial=True)
    accumulator = gl.zeros([ROWS, HEAD_DIM], gl.float32, O_L)
    v_slot = slot
    v_phase = phase
    slot, phase = next_slot(slot, phase, STAGES)
    mbarrier.wait(k_full.index(slot), phase, pred=blocks > 1)

    block = blocks - 2
    if CAUSAL and not ALIGNED:
        further = max(blocks - 1 - count_whole_blocks(first_row, queries, keys, CAUSAL, BLOCK_N), 0)
        for _further in range(further):
            accumulator, weights, row_max, row_sum, slot, phase, v_slot, v_phase = attend(
                (q_held, q_shared),
                k_buf,
                v_buf,
                barriers,
                (accumulator, weights, row_max, row_sum, slot, phase, v_slot, v_phase),
                (block * BLOCK_N, first_row, offset, keys),
                block > 0,
                scale,
                GROUP,
                GROUPS,
                True,
                CAUSAL,
                PING_PONG,
                POLYNOMIAL,
                Q_HELD,
                LAZY,
                S_L,
                P_L,
            )
            block -= 1
    for left in range(block + 1):
        accumulator, weights, row_max, row_sum, slot, phase, v_slot, v_phase = attend(
            (q_held, q_shared),
            k_buf,
            v_buf,
            barriers,
            (accumulator, weights, row_max, row_sum, slot, phase, v_slot, v_phase),
            (block * BLOCK_N, first_row, offset, keys),
            left < block,
            scale,
            GROUP,
            GROUPS,
            False,
            CAUSAL,
            PING_PONG,
            POLYNOMIAL,
            Q_HELD,
            LAZY,
            S_L,
            P_L,
        )

    if OWN_OUT:
        mbarrier.arrive(q_empty.index(place), count=1)  # all products with Q are done: the next one may land
    mbarrier.wait(v_full.index(v_slot), v_phase)
    accumulator = warpgroup_mma(weights, matrix(v_buf, v_slot), accumulator, is_async=True)
    batch = head // heads
    head = head % heads
    if telling is not None:
        next_tile, next_head, next_length, told_phase = take_tile(telling, told_phase)
    elif GROUPS == 2:  # noqa: PLR2004 - divisions, of which finding a tile is full, take as long as the product
        next_tile, next_head = find_tile(turn + 1, program, programs, row_tiles, all_heads, l2_heads, CAUSAL)
    total = gl.convert_layout(gl.sum(row_sum, axis=1), gl.SliceLayout(1, O_L))
    inverse = gl.where(total > 0.0, 1.0 / total, 0.0)
    accumulator, weights = warpgroup_mma_wait(0, deps=(accumulator, weights))
    mbarrier.arrive(v_empty.index(v_slot), count=1)
    tma.store_wait(0)  # the output of the tile before has left its buffer
    out = accumulator * gl.expand_dims(inverse, 1)
    if telling is not None:
        rows = first_row + gl.arange(0, ROWS, layout=gl.SliceLayout(1, O_L))
        out = gl.where(gl.expand_dims(rows < queries, 1), out, 0.0)
    out = out.to(k_buf.dtype)
    if out_buf.shape[4] < HEAD_DIM:
        out, rest = halves(out)
        rest = gl.convert_layout(rest, out.type.layout, assert_trivial=True)
    matrix(out_buf, GROUP).store(out)
    fence_async_shared()
    tma_copies.store(out_desc, [batch, head, first_row, 0], out_buf.index(GROUP))
    if out_buf.shape[4] < HEAD_DIM:
        tma.store_wait(0)
        matrix(out_buf, GROUP).store(rest)
        fence_async_shared()
        tma_copies.store(out_desc, [batch, head, first_row, HEAD_DIM // 2], out_buf.index(GROUP))
    if not OWN_OUT:
        tma.store_wait(0)
        mbarrier.arrive(q_empty.index(place), count=1)
    q_slot, q_phase = next_slot(q_slot, q_phase, Q_STAGES)
    return slot, phase, q_slot, q_phase, next_tile, next_head, next_length, told_phase

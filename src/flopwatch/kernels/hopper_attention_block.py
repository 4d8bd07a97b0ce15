"""One more block of keys and values, taken in by a warpgroup: part of `hopper_attention_kernel`."""

# Triton types what it compiles, and ships no types:
# mypy: disable-error-code="no-untyped-def, untyped-decorator"
# ruff: noqa: PLR0917 - Triton passes a function's arguments by place

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, warpgroup_mma, warpgroup_mma_wait

from flopwatch.kernels.hopper_attention_softmax import marked, masked, rescaled, rounded, sum_in_threads, weigh
from flopwatch.kernels.hopper_attention_turns import give_turn, take_turn


@gluon.jit
def next_slot(slot, phase, STAGES: gl.constexpr):
    """Step on in a ring."""
    slot += 1
    if slot == STAGES:
        slot = 0
        phase ^= 1
    return slot, phase


@gluon.jit
def matrix(buffers, index):
    """View one of [n, 1, 1, rows, columns] buffers as a matrix."""
    return buffers.index(index).reshape([buffers.shape[3], buffers.shape[4]])


@gluon.jit
def score(q, k, out, Q_HELD: gl.constexpr):
    """Issue the scores of a block: of the first columns of Q from registers, of the others from shared memory."""
    held, shared = q
    if Q_HELD == 0:
        return warpgroup_mma(shared, k.permute((1, 0)), out, use_acc=False, is_async=True)
    else:  # noqa: RET505 - a branch that Triton does not compile
        L: gl.constexpr = gl.DotOperandLayout(operand_index=0, parent=out.type.layout, k_width=2)
        held = gl.convert_layout(held, L, assert_trivial=True)
        scores = warpgroup_mma(held, k.slice(0, Q_HELD, 1).permute((1, 0)), out, use_acc=False, is_async=True)
        for part in gl.static_range(1, k.shape[1] // Q_HELD):
            columns = shared.slice(part * Q_HELD, Q_HELD, 1)
            k_columns = k.slice(part * Q_HELD, Q_HELD, 1).permute((1, 0))
            scores = warpgroup_mma(columns, k_columns, scores, is_async=True)
        return scores


@gluon.jit
def attend(
    q,
    k_buf,
    v_buf,
    barriers,
    state,
    place,
    has_next,
    scale,
    GROUP: gl.constexpr,
    GROUPS: gl.constexpr,
    MASKED: gl.constexpr,
    CAUSAL: gl.constexpr,
    PING_PONG: gl.constexpr,
    POLYNOMIAL: gl.constexpr,
    Q_HELD: gl.constexpr,
    LAZY: gl.constexpr,
    S_L: gl.constexpr,
    P_L: gl.constexpr,
):
    """Take in one more block: its scores while the weights of the block before meet their values."""
    accumulator, weights, row_max, row_sum, slot, phase, v_slot, v_phase = state
    first_key, first_row, offset, keys = place
    _, _, k_full, k_empty, v_full, v_empty = barriers
    STAGES: gl.constexpr = k_buf.shape[0]
    ROWS: gl.constexpr = accumulator.shape[0]
    BLOCK_N: gl.constexpr = k_buf.shape[3]
    take_turn(GROUP, PING_PONG)
    nothing = gl.zeros([ROWS, BLOCK_N], gl.float32, S_L)
    scores = score(q, matrix(k_buf, slot), nothing, Q_HELD)
    mbarrier.wait(v_full.index(v_slot), v_phase)
    accumulator = warpgroup_mma(weights, matrix(v_buf, v_slot), accumulator, is_async=True)
    give_turn((GROUP + 1) % GROUPS, PING_PONG)
    scores = warpgroup_mma_wait(1, deps=(scores,))
    mbarrier.arrive(k_empty.index(slot), count=1)
    if MASKED:
        scores = masked(scores, first_key, first_row, offset, keys, CAUSAL, S_L)
    p, row_max, rescale = weigh(scores, row_max, scale, MASKED, POLYNOMIAL, LAZY)
    factors = marked(rescale, LAZY)
    sums = sum_in_threads(p)
    row_sum = row_sum * gl.expand_dims(
        gl.convert_layout(rescale, gl.SliceLayout(1, sums.type.layout), assert_trivial=True), 1
    )
    row_sum = row_sum + sums
    used = v_slot
    v_slot = slot
    v_phase = phase
    slot, phase = next_slot(slot, phase, STAGES)
    # The wait for the next K stands here on purpose: its spin loop ends the basic block, so that ptxas cannot hoist the
    # wait for the second product above the exponentials. It does otherwise, and the overlap is lost.
    mbarrier.wait(k_full.index(slot), phase, pred=has_next)
    accumulator, weights = warpgroup_mma_wait(0, deps=(accumulator, weights))
    mbarrier.arrive(v_empty.index(used), count=1)
    accumulator = rescaled(accumulator, factors, LAZY)
    weights = gl.convert_layout(rounded(p, k_buf.dtype), P_L, assert_trivial=True)
    return accumulator, weights, row_max, row_sum, slot, phase, v_slot, v_phase

"""The kernel of `flopwatch.kernels.flash_attention`: one block of queries, walking over the keys."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _scores(q, k):  # type: ignore[no-untyped-def] # Triton types them
    """Return ``Q K^T`` of a block, summed over the parts of the head dimension."""
    scores = tl.dot(q[0], k[0])
    if len(q) == 2:  # noqa: PLR2004 - the parts of the head dimension
        scores = tl.dot(q[1], k[1], scores)
    return scores


@triton.jit
def _weigh(p, v, accumulator, rescale):  # type: ignore[no-untyped-def] # Triton types them
    """Return one part of the accumulator, rescaled, with the weighted values of a block."""
    return tl.dot(p.to(v.dtype), v, accumulator * rescale[:, None])


@triton.jit  # type: ignore[untyped-decorator] # Triton ships no types
def _attend(  # type: ignore[no-untyped-def] # Triton types them # noqa: PLR0917 - a kernel's arguments
    q,  # (BLOCK_M, part of HEAD_DIM) of each part
    k_block,  # pointers (part of HEAD_DIM, BLOCK_N) of each part
    v_block,  # pointers (BLOCK_N, part of HEAD_DIM) of each part
    accumulator,  # (BLOCK_M, part of HEAD_DIM) of each part
    row_sum,  # (BLOCK_M,)
    row_max,  # (BLOCK_M,)
    last_seen,  # (BLOCK_M,), read if CAUSAL
    keys,  # (BLOCK_N,)
    num_keys,
    scale,
    MASKED: tl.constexpr,
    CAUSAL: tl.constexpr,
):
    """Take one block of keys and values into the running softmax.

    Formula: with s the scaled scores in units of log2, ``m' = max(m, s)``, ``p = 2**(s - m')``,
    ``l' = l * 2**(m - m') + sum(p)``, ``acc' = acc * 2**(m - m') + p V`` (Dao, FlashAttention-2, 2023, section 3.1).

    Shapes and layouts: beside the arguments, K by columns so that the product needs no transposition. Tuples of one or
    two parts of the head dimension.

    One program calls this for each of its blocks of keys.

    Numerics and limits: MASKED loads nothing at or past `num_keys` and, if CAUSAL, gives keys after the last one that a
    query sees no weight; without it the block must lie entirely before both. `scale` is not negative. p is rounded to
    V's dtype.
    """
    if MASKED:
        k = [tl.load(block, mask=keys[None, :] < num_keys, other=0.0) for block in k_block]
        allowed = keys[None, :] < num_keys
        if CAUSAL:
            allowed = allowed & (last_seen[:, None] >= keys[None, :])
        scores = tl.where(allowed, _scores(q, k) * scale, float("-inf"))
        new_max = tl.maximum(row_max, tl.max(scores, 1))
        p = tl.exp2(scores - new_max[:, None])
        v = [tl.load(block, mask=keys[:, None] < num_keys, other=0.0) for block in v_block]
    else:
        scores = _scores(q, [tl.load(block) for block in k_block])
        new_max = tl.maximum(row_max, tl.max(scores, 1) * scale)
        p = tl.exp2(scores * scale - new_max[:, None])
        v = [tl.load(block) for block in v_block]
    rescale = tl.exp2(row_max - new_max)
    row_sum = row_sum * rescale + tl.sum(p, 1)
    first = _weigh(p, v[0], accumulator[0], rescale)
    accumulator = (first, _weigh(p, v[1], accumulator[1], rescale)) if len(v) == 2 else (first,)  # noqa: PLR2004 - parts
    return accumulator, row_sum, new_max


@triton.constexpr_function  # type: ignore[untyped-decorator] # Triton ships no types
def pointers_walk() -> bool:
    """Tell whether pointers to keys and values walk along with the loops over them, which takes fewer instructions.

    For AMD Triton 3.6 makes no code of those: on them dies its pass for buffer operations (gfx942, triton 3.6.0,
    ``python -m evidence.architectures --device mi300x``, 2026-11-26).
    """
    return not (tl.target_info.is_hip() and triton.__version__[:4] == "3.6.")


@triton.jit  # type: ignore[untyped-decorator] # Triton ships no types
def _block(pointer, start, stride, WALKS: tl.constexpr):  # type: ignore[no-untyped-def] # as above
    """Return where the block at `start` begins: where a pointer has walked to, or so far behind one that stays."""
    if WALKS:
        return pointer
    return pointer + tl.cast(start, tl.int64) * stride


@triton.jit  # type: ignore[untyped-decorator] # Triton ships no types
def attention_kernel(  # type: ignore[no-untyped-def] # Triton types them # noqa: C901, PLR0915, PLR0917 - a kernel
    q_ptr,  # (B, H, S, HEAD_DIM)
    k_ptr,  # (B, H // group, S_KV, HEAD_DIM)
    v_ptr,  # (B, H // group, S_KV, HEAD_DIM)
    out_ptr,  # (B, H, S, HEAD_DIM)
    seq_lens_ptr,  # (B,), read if HAS_SEQ_LENS
    H,
    group,
    S,
    S_KV,
    scale,
    stride_qb,
    stride_qh,
    stride_qs,
    stride_qd,
    stride_kb,
    stride_kh,
    stride_ks,
    stride_kd,
    stride_vb,
    stride_vh,
    stride_vs,
    stride_vd,
    stride_ob,
    stride_oh,
    stride_os,
    stride_od,
    HEAD_DIM: tl.constexpr,
    CAUSAL: tl.constexpr,
    HAS_SEQ_LENS: tl.constexpr,
    NEGATE: tl.constexpr,
    WIDE: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """Compute attention of one batch of heads.

    Formula: ``O = softmax(sm_scale * Q K^T + mask) V`` for each head, with ``scale = abs(sm_scale) * log2(e)`` and
    NEGATE for a negative sm_scale.

    =============  ================================  ==========================================  =================
    tensor         shape                             strides                                     dtype
    =============  ================================  ==========================================  =================
    Q              (B, H, S, HEAD_DIM)               stride_qb, stride_qh, stride_qs, stride_qd  float16, bfloat16
    K, V           (B, H // group, S_KV, HEAD_DIM)   stride_?b, stride_?h, stride_?s, stride_?d  Q's
    O              (B, H, S, HEAD_DIM)               stride_ob, stride_oh, stride_os, stride_od  any float
    seq_lens       (B,)                              contiguous                                  int32
    =============  ================================  ==========================================  =================

    One program computes BLOCK_M rows of O of one head, walking over the keys in steps of BLOCK_N: first the blocks that
    need no mask, then those at the diagonal and at the end. The programs of a head follow one another, and so do the
    heads that share keys and values, so that these stay in the L2 cache; causal heads start with their longest rows.
    What is no power of two is two of them: HEAD_DIM 96 is computed as 64 and 32, 192 as 128 and 64.

    Numerics and limits: scores, softmax and sums in float32; the weights are rounded to V's dtype for the second
    product. S_KV is None where there are as many keys as queries (and lengths only there); else CAUSAL lets the last
    query see all keys, and rows that see none are 0. Rows at or past a length are stored as 0, and no key or value at
    or past it is loaded. Lengths outside [0, S] are clamped. A block's origin is a 64-bit offset; inside a block
    offsets are 32-bit unless WIDE. S, S_KV and the number of programs are below 2**31, S_KV is not 0.
    """
    num_tiles = tl.cdiv(S, BLOCK_M)
    tile = tl.program_id(0) % num_tiles
    head = tl.program_id(0) // num_tiles
    if CAUSAL:
        tile = num_tiles - 1 - tile
    batch = (head // H).to(tl.int64)
    kv_head = (head % H // group).to(tl.int64)
    head = (head % H).to(tl.int64)
    length = S
    if HAS_SEQ_LENS:
        length = tl.minimum(tl.maximum(tl.load(seq_lens_ptr + batch), 0), S)

    first_row = tile * BLOCK_M
    q_ptr += batch * stride_qb + head * stride_qh + first_row.to(tl.int64) * stride_qs
    k_ptr += batch * stride_kb + kv_head * stride_kh
    v_ptr += batch * stride_vb + kv_head * stride_vh
    out_ptr += batch * stride_ob + head * stride_oh + first_row.to(tl.int64) * stride_os
    queries = tl.arange(0, BLOCK_M)
    keys = tl.arange(0, BLOCK_N)
    # 64 of 96; 128 of 192 and of 256; 0 of those that stay whole.
    FIRST: tl.constexpr = 128 if HEAD_DIM > 128 else HEAD_DIM & (HEAD_DIM - 1)  # noqa: PLR2004 - as the line before
    dims = [tl.arange(0, FIRST), tl.arange(FIRST, HEAD_DIM)] if FIRST else [tl.arange(0, HEAD_DIM)]
    rows = first_row + queries
    if WIDE:
        queries = queries.to(tl.int64)
        keys = keys.to(tl.int64)
        dims = [part.to(tl.int64) for part in dims]
    k_offsets = [part[:, None] * stride_kd + keys[None, :] * stride_ks for part in dims]
    v_offsets = [keys[:, None] * stride_vs + part[None, :] * stride_vd for part in dims]
    WALKS: tl.constexpr = pointers_walk()
    k_step = BLOCK_N * tl.cast(stride_ks, tl.int64)
    v_step = BLOCK_N * tl.cast(stride_vs, tl.int64)

    q = [
        tl.load(
            q_ptr + queries[:, None] * stride_qs + part[None, :] * stride_qd, mask=rows[:, None] < length, other=0.0
        )
        for part in dims
    ]
    if NEGATE:
        q = [-part for part in q]
    accumulator = [tl.zeros((BLOCK_M, part.shape[0]), dtype=tl.float32) for part in dims]
    row_sum = tl.zeros((BLOCK_M,), dtype=tl.float32)
    row_max = tl.full((BLOCK_M,), -3.4028234663852886e38, dtype=tl.float32)  # finite, for rows that see no key

    num_keys = length
    seen_by_all = first_row  # by all rows, and by any of them, are so many keys seen if CAUSAL
    seen_by_any = first_row + BLOCK_M
    last_seen = rows
    if S_KV is not None:
        num_keys = S_KV
        seen_by_all = tl.maximum(first_row + 1 + S_KV - S, 0)
        seen_by_any = first_row + BLOCK_M + S_KV - S
        last_seen = rows + (S_KV - S)
    # One step at least, of masked keys if need be. Of a loop that takes one or none, as where S or S_KV is 1, LLVM
    # makes a branch, on which ptxas dies (12.8.93 for sm_90a, exit status -11; triton 3.6.0 and 3.7.1).
    end = tl.maximum(tl.minimum(num_keys, seen_by_any) if CAUSAL else num_keys, 1)
    unmasked_end = (tl.minimum(num_keys, seen_by_all) if CAUSAL else num_keys) // BLOCK_N * BLOCK_N
    if HAS_SEQ_LENS and first_row >= tl.maximum(length, 1):
        end = 0
        unmasked_end = 0
    for start in range(0, unmasked_end, BLOCK_N):
        accumulator, row_sum, row_max = _attend(
            q,
            [_block(k_ptr, start, stride_ks, WALKS) + offsets for offsets in k_offsets],
            [_block(v_ptr, start, stride_vs, WALKS) + offsets for offsets in v_offsets],
            accumulator,
            row_sum,
            row_max,
            last_seen,
            start + keys,
            num_keys,
            scale,
            MASKED=False,
            CAUSAL=CAUSAL,
        )
        if WALKS:
            k_ptr += k_step
            v_ptr += v_step
    # Not pipelined: it runs once or twice, and with both loops pipelined ptxas serialises all wgmma (warning C7515).
    for start in tl.range(unmasked_end, end, BLOCK_N, num_stages=1):
        accumulator, row_sum, row_max = _attend(
            q,
            [_block(k_ptr, start, stride_ks, WALKS) + offsets for offsets in k_offsets],
            [_block(v_ptr, start, stride_vs, WALKS) + offsets for offsets in v_offsets],
            accumulator,
            row_sum,
            row_max,
            last_seen,
            start + keys,
            num_keys,
            scale,
            MASKED=True,
            CAUSAL=CAUSAL,
        )
        if WALKS:
            k_ptr += k_step
            v_ptr += v_step

    valid = rows < length
    if CAUSAL and S_KV is not None:
        valid = valid & (last_seen >= 0)
    for index in tl.static_range(len(dims)):
        out = tl.where(valid[:, None], accumulator[index] / tl.where(valid, row_sum, 1.0)[:, None], 0.0)
        tl.store(
            out_ptr + queries[:, None] * stride_os + dims[index][None, :] * stride_od,
            out.to(out_ptr.dtype.element_ty),
            mask=rows[:, None] < S,
        )

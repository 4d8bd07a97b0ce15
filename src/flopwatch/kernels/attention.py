"""FlashAttention, forward: softmax(Q K^T) V without storing the scores."""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl

from flopwatch.kernels.configs import ATTENTION_AUTOTUNE, HEAD_DIMS
from flopwatch.kernels.operands import check_dtypes, check_on_one_gpu

SUPPORTED_DTYPES = (torch.float16, torch.bfloat16, torch.float32)

_LOG2_E = math.log2(math.e)
_LARGEST_BLOCK = max(max(c.block_m, c.block_n) for configs in ATTENTION_AUTOTUNE.values() for c in configs)


@triton.jit  # type: ignore[untyped-decorator] # Triton ships no types
def _attend(  # type: ignore[no-untyped-def] # Triton types them # noqa: PLR0917 - a kernel's arguments
    q,  # (BLOCK_M, HEAD_DIM)
    k_block,  # pointers (HEAD_DIM, BLOCK_N)
    v_block,  # pointers (BLOCK_N, HEAD_DIM)
    accumulator,  # (BLOCK_M, HEAD_DIM)
    row_sum,  # (BLOCK_M,)
    row_max,  # (BLOCK_M,)
    rows,  # (BLOCK_M,)
    keys,  # (BLOCK_N,)
    length,
    scale,
    MASKED: tl.constexpr,
    CAUSAL: tl.constexpr,
):
    """Take one block of keys and values into the running softmax.

    Formula: with s the scaled scores in units of log2, ``m' = max(m, s)``, ``p = 2**(s - m')``,
    ``l' = l * 2**(m - m') + sum(p)``, ``acc' = acc * 2**(m - m') + p V`` (Dao, FlashAttention-2, 2023, section 3.1).

    Shapes and layouts: beside the arguments, K by columns so that the product needs no transposition.

    One program calls this for each of its blocks of keys.

    Numerics and limits: MASKED loads nothing at or past `length` and, if CAUSAL, gives keys after the query no weight;
    without it the block must lie entirely before both. `scale` is not negative. p is rounded to V's dtype.
    """
    if MASKED:
        k = tl.load(k_block, mask=keys[None, :] < length, other=0.0)
        allowed = keys[None, :] < length
        if CAUSAL:
            allowed = allowed & (rows[:, None] >= keys[None, :])
        scores = tl.where(allowed, tl.dot(q, k) * scale, float("-inf"))
        new_max = tl.maximum(row_max, tl.max(scores, 1))
        p = tl.exp2(scores - new_max[:, None])
        v = tl.load(v_block, mask=keys[:, None] < length, other=0.0)
    else:
        scores = tl.dot(q, tl.load(k_block))
        new_max = tl.maximum(row_max, tl.max(scores, 1) * scale)
        p = tl.exp2(scores * scale - new_max[:, None])
        v = tl.load(v_block)
    rescale = tl.exp2(row_max - new_max)
    row_sum = row_sum * rescale + tl.sum(p, 1)
    accumulator = tl.dot(p.to(v.dtype), v, accumulator * rescale[:, None])
    return accumulator, row_sum, new_max


@triton.jit  # type: ignore[untyped-decorator] # Triton ships no types
def attention_kernel(  # type: ignore[no-untyped-def] # Triton types them # noqa: PLR0917 - a kernel's arguments
    q_ptr,  # (B, H, S, HEAD_DIM)
    k_ptr,  # (B, H, S, HEAD_DIM)
    v_ptr,  # (B, H, S, HEAD_DIM)
    out_ptr,  # (B, H, S, HEAD_DIM)
    seq_lens_ptr,  # (B,), read if HAS_SEQ_LENS
    H,
    S,
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

    =============  ==================  ==========================================  =======
    tensor         shape               strides                                     dtype
    =============  ==================  ==========================================  =======
    Q, K, V, O     (B, H, S, HEAD_DIM) stride_?b, stride_?h, stride_?s, stride_?d  float16
    seq_lens       (B,)                contiguous                                  int32
    =============  ==================  ==========================================  =======

    One program computes BLOCK_M rows of O of one head, walking over the keys in steps of BLOCK_N: first the blocks that
    need no mask, then those at the diagonal and at the end. The programs of a head follow one another, so that its
    keys and values stay in the L2 cache; causal heads start with their longest rows.

    Numerics and limits: scores, softmax and sums in float32; the weights are rounded to float16 for the second product.
    Rows at or past a length are stored as 0, and no key or value at or past it is loaded. Lengths outside [0, S] are
    clamped. A block's origin is a 64-bit offset; inside a block offsets are 32-bit unless WIDE. S and the number of
    programs are below 2**31.
    """
    num_tiles = tl.cdiv(S, BLOCK_M)
    tile = tl.program_id(0) % num_tiles
    head = tl.program_id(0) // num_tiles
    if CAUSAL:
        tile = num_tiles - 1 - tile
    batch = (head // H).to(tl.int64)
    head = (head % H).to(tl.int64)
    length = S
    if HAS_SEQ_LENS:
        length = tl.minimum(tl.maximum(tl.load(seq_lens_ptr + batch), 0), S)

    first_row = tile * BLOCK_M
    q_ptr += batch * stride_qb + head * stride_qh + first_row.to(tl.int64) * stride_qs
    k_ptr += batch * stride_kb + head * stride_kh
    v_ptr += batch * stride_vb + head * stride_vh
    out_ptr += batch * stride_ob + head * stride_oh + first_row.to(tl.int64) * stride_os
    queries = tl.arange(0, BLOCK_M)
    keys = tl.arange(0, BLOCK_N)
    dims = tl.arange(0, HEAD_DIM)
    rows = first_row + queries
    if WIDE:
        queries = queries.to(tl.int64)
        keys = keys.to(tl.int64)
        dims = dims.to(tl.int64)
    k_offsets = dims[:, None] * stride_kd + keys[None, :] * stride_ks
    v_offsets = keys[:, None] * stride_vs + dims[None, :] * stride_vd
    k_step = BLOCK_N * tl.cast(stride_ks, tl.int64)
    v_step = BLOCK_N * tl.cast(stride_vs, tl.int64)

    q = tl.load(
        q_ptr + queries[:, None] * stride_qs + dims[None, :] * stride_qd, mask=rows[:, None] < length, other=0.0
    )
    if NEGATE:
        q = -q
    accumulator = tl.zeros((BLOCK_M, HEAD_DIM), dtype=tl.float32)
    row_sum = tl.zeros((BLOCK_M,), dtype=tl.float32)
    row_max = tl.full((BLOCK_M,), float("-inf"), dtype=tl.float32)

    end = tl.minimum(length, first_row + BLOCK_M) if CAUSAL else length
    unmasked_end = (tl.minimum(length, first_row) if CAUSAL else length) // BLOCK_N * BLOCK_N
    if first_row >= length:
        end = 0
        unmasked_end = 0
    for start in range(0, unmasked_end, BLOCK_N):
        accumulator, row_sum, row_max = _attend(
            q,
            k_ptr + k_offsets,
            v_ptr + v_offsets,
            accumulator,
            row_sum,
            row_max,
            rows,
            start + keys,
            length,
            scale,
            MASKED=False,
            CAUSAL=CAUSAL,
        )
        k_ptr += k_step
        v_ptr += v_step
    # Not pipelined: it runs once or twice, and with both loops pipelined ptxas serialises all wgmma (warning C7515).
    for start in tl.range(unmasked_end, end, BLOCK_N, num_stages=1):
        accumulator, row_sum, row_max = _attend(
            q,
            k_ptr + k_offsets,
            v_ptr + v_offsets,
            accumulator,
            row_sum,
            row_max,
            rows,
            start + keys,
            length,
            scale,
            MASKED=True,
            CAUSAL=CAUSAL,
        )
        k_ptr += k_step
        v_ptr += v_step

    valid = rows < length
    out = tl.where(valid[:, None], accumulator / tl.where(valid, row_sum, 1.0)[:, None], 0.0)
    tl.store(
        out_ptr + queries[:, None] * stride_os + dims[None, :] * stride_od,
        out.to(out_ptr.dtype.element_ty),
        mask=rows[:, None] < S,
    )


_autotuned = {
    head_dim: triton.autotune(
        [
            triton.Config(config.constants(), num_warps=config.num_warps, num_stages=config.num_stages)
            for config in configs
        ],
        key=["S", "HEAD_DIM", "CAUSAL"],
    )(attention_kernel)
    for head_dim, configs in ATTENTION_AUTOTUNE.items()
}


def flash_attention(  # noqa: PLR0917 - the published signature
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    causal: bool = False,  # noqa: FBT001, FBT002 - the published signature
    sm_scale: float | None = None,
    seq_lens: torch.Tensor | None = None,
) -> torch.Tensor:
    """Compute ``softmax(sm_scale * Q K^T + mask) V`` of each head; no gradient.

    The first call of each (S, D, causal) compiles and times a short list of configurations.

    Args:
        q: (B, H, S, D), or (B*H, S, D); float16, bfloat16 or float32, any strides, on a CUDA device. D is one of 16,
            32, 64, 128.
        k: the same shape, dtype and device.
        v: the same shape, dtype and device.
        causal: whether a query sees only the keys up to its own position.
        sm_scale: factor of the scores, ``1 / sqrt(D)`` by default.
        seq_lens: int32, on the same device: how many positions of each batch entry are valid, from 0 to S. Its shape is
            (B,); for three dimensions the first of them is the batch, so (B*H,). Positions at or past a length are
            never seen, whatever they hold, and give exactly 0. Checking the range waits for the GPU, as reading any
            value does; where that is impossible (a CUDA graph is being captured, or the tensor has no values) lengths
            outside the range are clamped instead.

    Returns:
        A contiguous float16 tensor of the shape of `q`, whatever the dtype of the inputs: bfloat16 and float32 are
        rounded to float16 first (values beyond 65504 become infinite).

    Raises:
        ValueError: an input is not 3D or 4D or not on CUDA, shapes or devices differ, the head dimension is not
            supported, or `seq_lens` has a wrong shape, a wrong device or a value out of range.
        TypeError: a dtype is not supported, the dtypes differ, or `seq_lens` is not int32.
    """
    _check_operands(q, k, v)
    if seq_lens is not None:
        _check_seq_lens(seq_lens, q)
        seq_lens = seq_lens.contiguous()
    out = torch.empty(q.shape, device=q.device, dtype=torch.float16)
    if out.numel() == 0:
        return out
    if q.ndim == 3:  # noqa: PLR2004 - (B*H, S, D): every entry is a batch of one head
        operands = [tensor.half().unsqueeze(1) for tensor in (q, k, v)] + [out.unsqueeze(1)]
    else:
        operands = [tensor.half() for tensor in (q, k, v)] + [out]
    B, H, S, D = operands[0].shape
    scale = 1 / math.sqrt(D) if sm_scale is None else float(sm_scale)
    with torch.cuda.device(q.device):
        _autotuned[D][lambda meta: (B * H * triton.cdiv(S, meta["BLOCK_M"]),)](
            *operands,
            operands[0] if seq_lens is None else seq_lens,
            H,
            S,
            abs(scale) * _LOG2_E,
            *(stride for tensor in operands for stride in tensor.stride()),
            HEAD_DIM=D,
            CAUSAL=bool(causal),
            HAS_SEQ_LENS=seq_lens is not None,
            NEGATE=scale < 0,
            WIDE=any(_LARGEST_BLOCK * t.stride(2) + D * t.stride(3) >= 2**31 for t in operands),
        )
    return out


def _check_operands(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> None:
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        if tensor.ndim not in (3, 4):
            raise ValueError(
                f"{name} must be 3D or 4D, got {tensor.ndim}D of shape {tuple(tensor.shape)}\n"
                "  why: attention is computed for each head of each batch entry\n"
                "  do:  pass (batch, heads, seq_len, head_dim) or (batch*heads, seq_len, head_dim)"
            )
    if not q.shape == k.shape == v.shape:
        raise ValueError(
            f"the shapes of q, k and v must match, got {tuple(q.shape)}, {tuple(k.shape)} and {tuple(v.shape)}\n"
            "  why: every query attends to as many keys and values as there are queries, in as many heads\n"
            "  do:  repeat the heads of k and v where they are shared: k.repeat_interleave(n, dim=1)"
        )
    check_on_one_gpu(q=q, k=k, v=v)
    check_dtypes(SUPPORTED_DTYPES, q=q, k=k, v=v)
    if q.shape[-1] not in HEAD_DIMS:
        raise ValueError(
            f"head_dim={q.shape[-1]} is not supported\n"
            f"  why: the kernel is compiled for {', '.join(map(str, HEAD_DIMS))}\n"
            "  do:  pad q, k and v with zeros to one of these, and pass the sm_scale of the original head_dim"
        )


def _check_seq_lens(seq_lens: torch.Tensor, q: torch.Tensor) -> None:
    batch, S = q.shape[0], q.shape[-2]
    if seq_lens.dtype != torch.int32:
        raise TypeError(
            f"seq_lens must be int32, got {seq_lens.dtype}\n"
            "  why: the kernel reads lengths of 32 bits\n"
            "  do:  convert it: seq_lens.to(torch.int32)"
        )
    if seq_lens.shape != (batch,):
        raise ValueError(
            f"seq_lens must have length {batch} (shape ({batch},)), got {tuple(seq_lens.shape)}\n"
            f"  why: each of the {batch} entries of the first dimension of q has one length\n"
            "  do:  pass one length an entry; with (batch*heads, seq_len, head_dim) repeat it for every head"
        )
    check_on_one_gpu(q=q, seq_lens=seq_lens)
    if _has_readable_values(seq_lens):
        wrong = [length for length in seq_lens.tolist() if not 0 <= length <= S]
        if wrong:
            raise ValueError(
                f"seq_lens must be between 0 and {S}, got {', '.join(map(str, wrong))}\n"
                "  why: a length counts valid positions of the sequence\n"
                f"  do:  clamp it: seq_lens.clamp(0, {S})"
            )


def _has_readable_values(tensor: torch.Tensor) -> bool:
    return tensor.untyped_storage().device.type != "meta" and not _is_capturing()


def _is_capturing() -> bool:
    try:
        return torch.cuda.is_current_stream_capturing()
    except RuntimeError:  # a GPU is pretended where there is no CUDA to ask
        return False

"""FlashAttention, forward: softmax(Q K^T) V without storing the scores."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
import triton

from flopwatch.kernels.attention_kernel import attention_kernel
from flopwatch.kernels.configs import ATTENTION_AUTOTUNE, HEAD_DIMS
from flopwatch.kernels.launch import SHAPE, Launched, Launches, key_of
from flopwatch.kernels.layout import heads_and_layouts
from flopwatch.kernels.operands import check_dtypes, check_on_one_gpu
from flopwatch.kernels.routes import routed_attention
from flopwatch.kernels.seq_lens import check_seq_lens, were_read
from flopwatch.kernels.tuner import Tuner, triton_configs

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping
    from typing import Any

SUPPORTED_DTYPES = (torch.float16, torch.bfloat16, torch.float32)
#: Where nothing is asked for.
OUT_DTYPE = torch.float16

_LOG2_E = math.log2(math.e)
_LARGEST_BLOCK = max(max(c.block_m, c.block_n) for configs in ATTENTION_AUTOTUNE.values() for c in configs)

_autotuned = {
    head_dim: Tuner(
        attention_kernel, triton_configs(configs), ["S", "HEAD_DIM", "CAUSAL", "S_KV"], kind=heads_and_layouts
    )
    for head_dim, configs in ATTENTION_AUTOTUNE.items()
}


def flash_attention(  # noqa: PLR0917 - the published signature
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    causal: bool = False,  # noqa: FBT001, FBT002 - the published signature
    sm_scale: float | None = None,
    seq_lens: torch.Tensor | None = None,
    *,
    out_dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """Compute ``softmax(sm_scale * Q K^T + mask) V`` of each head; no gradient.

    The first call of each (S, D, causal, S_KV), and of each power of two of B * H, compiles and times a short list of
    configurations.

    Args:
        q: (B, H, S, D), or (B*H, S, D); float16, bfloat16 or float32, any strides, on a CUDA device. D is one of 16,
            32, 64, 96, 128, 192, 256.
        k: (B, H_KV, S_KV, D), or (B*H, S_KV, D); the same dtype and device. Of H heads each H // H_KV that follow one
            another share a head of `k` and `v`, which are not copied: H_KV divides H.
        v: the shape, dtype and device of `k`.
        causal: whether a query sees only the keys up to its own position. Where S_KV is not S, the last query sees all
            keys and those before it one less each: query i sees key j if j <= i + S_KV - S, as in FlashAttention from
            2.1 on; queries that see no key give exactly 0. (torch's ``is_causal`` then starts from the first query
            instead, which sees the first key alone.)
        sm_scale: factor of the scores, ``1 / sqrt(D)`` by default.
        seq_lens: int32, on the same device: how many positions of each batch entry are valid, from 0 to S. Its shape is
            (B,); for three dimensions the first of them is the batch, so (B*H,). Positions at or past a length are
            never seen, whatever they hold, and give exactly 0. Checking the range waits for the GPU, as reading any
            value does, so a tensor is checked once, and again when torch has counted a write to it; one of inference
            mode, whose writes are not counted, and one of a subclass, in each call. Lengths outside the range are
            clamped where that is impossible (a CUDA graph is being captured, or the tensor has no values), and where
            torch counts no write: through ``.data``, another framework's view of the memory, a collective, or a
            replayed graph. S_KV is S then.
        out_dtype: what is returned: float16 (as None), bfloat16 or float32, to which the sums are rounded from float32.

    Returns:
        A contiguous tensor of the shape of `q`. bfloat16 inputs with a bfloat16 `out_dtype` are multiplied as they are,
        and the weights are rounded to bfloat16. All others are rounded to float16 first, whatever the `out_dtype`
        (values beyond 65504 become infinite), and so are the weights.

    Raises:
        ValueError: an input is not 3D or 4D or not on CUDA, shapes do not fit, devices differ, the head dimension is
            not supported, or `seq_lens` has a wrong shape, a wrong device or a value out of range, or comes with S_KV
            other than S.
        TypeError: a dtype is not supported, the dtypes differ, or `seq_lens` is not int32.
    """
    if torch.compiler.is_compiling():
        operator = torch.ops.flopwatch.flash_attention.default
        attended: torch.Tensor = operator(q, k, v, causal, sm_scale, seq_lens, out_dtype)
        return attended
    return _eager(q, k, v, causal, sm_scale, seq_lens, out_dtype)


def _eager(  # noqa: PLR0917 - as `flash_attention`
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    causal: bool,  # noqa: FBT001 - as `flash_attention`
    sm_scale: float | None,
    seq_lens: torch.Tensor | None,
    out_dtype: torch.dtype | None,
) -> torch.Tensor:
    others = (not causal, sm_scale, out_dtype)
    key, attended = _again(q, k, v, seq_lens, others)
    if attended is not None:
        return attended
    _check_operands(q, k, v, out_dtype)
    dtype = torch.bfloat16 if q.dtype == out_dtype == torch.bfloat16 else torch.float16
    if q.dtype != dtype:
        return _eager(q.to(dtype), k.to(dtype), v.to(dtype), causal, sm_scale, seq_lens, out_dtype)
    if seq_lens is not None:
        check_seq_lens(seq_lens, q, k)
        key, attended = _again(q, k, v, seq_lens, others)
        if attended is not None:  # a call with other lengths launched it
            return attended
        if not seq_lens.is_contiguous():
            key, seq_lens = None, seq_lens.contiguous()  # what is launched reads a copy
    out = torch.empty(q.shape, device=q.device, dtype=out_dtype or OUT_DTYPE)
    if out.numel() == 0 or k.numel() == 0:
        return out.zero_()
    operands = [q, k, v, out]
    if q.ndim == 3:  # noqa: PLR2004 - (B*H, S, D): every entry is a batch of one head
        operands = [tensor.unsqueeze(1) for tensor in operands]
    B, H, S, D = operands[0].shape
    _, H_KV, S_KV, _ = operands[1].shape
    scale = 1 / math.sqrt(D) if sm_scale is None else float(sm_scale)
    strides = [stride for tensor in operands for stride in tensor.stride()]
    numbers = (H, H // H_KV, S, None if S_KV == S else S_KV, abs(scale) * _LOG2_E, *strides)
    grid: tuple[int, ...] = ()

    def noted_grid(meta: Mapping[str, int]) -> tuple[int, ...]:
        nonlocal grid
        grid = (B * H * triton.cdiv(S, meta["BLOCK_M"]),)
        return grid

    with torch.cuda.device(q.device):
        route = routed_attention(*operands, causal=bool(causal), sm_scale=sm_scale, seq_lens=seq_lens)
        if route is not None:
            launched = route.launch()
        else:
            compiled = _autotuned[D][noted_grid](
                *operands,
                operands[0] if seq_lens is None else seq_lens,
                *numbers,
                HEAD_DIM=D,
                CAUSAL=bool(causal),
                HAS_SEQ_LENS=seq_lens is not None,
                NEGATE=scale < 0,
                WIDE=any(_LARGEST_BLOCK * t.stride(2) + D * t.stride(3) >= 2**31 for t in operands),
            )
            launched = Launched(
                compiled=compiled,
                grid=grid,
                pointers=5,
                numbers=numbers,
                tuner=_autotuned[D],
                arrange=_without_lengths if seq_lens is None else _with_lengths,
            )
        _launches.keep(key, launched, out)
    return out


def _again(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, seq_lens: torch.Tensor | None, others: tuple[Any, ...]
) -> tuple[tuple[Hashable, ...] | None, torch.Tensor | None]:
    """Return the key of a call, and what is computed by launching again what was launched for it, if anything was.

    There is no key with lengths whose values were not read, or were written since.
    """
    _mask, sm_scale, _dtype = others
    if sm_scale is not None and type(sm_scale) not in {int, float}:
        return None, None  # a scale of another type may equal one that gives other numbers
    if seq_lens is None:
        key, addresses = key_of(q, k, others, v)
    else:
        key, addresses = key_of(q, k, others, v, seq_lens)
        if key is None:
            return None, None
        shape: Any = key[SHAPE]  # as torch told it of `q`, which takes it a while
        if len(shape) < 3 or not were_read(seq_lens, shape[-2]):  # noqa: PLR2004 - (B*H, S, D), or more
            return None, None
    return key, _launches.again(key, addresses)


#: One node of a graph of `torch.compile`, which would trace through to what only an eager call may do.
_operator = torch.library.custom_op(
    "flopwatch::flash_attention",
    _eager,
    mutates_args=(),
    schema="(Tensor q, Tensor k, Tensor v, bool causal, float? sm_scale, Tensor? seq_lens, ScalarType? out_dtype)"
    " -> Tensor",
)
_launches = Launches()


@_operator.register_fake
def _attention_of_fakes(  # noqa: PLR0917 - as `flash_attention`
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    causal: bool,  # noqa: ARG001, FBT001 - as `flash_attention`
    sm_scale: float | None,  # noqa: ARG001 - likewise
    seq_lens: torch.Tensor | None,
    out_dtype: torch.dtype | None,
) -> torch.Tensor:
    _check_operands(q, k, v, out_dtype)
    if seq_lens is not None:
        check_seq_lens(seq_lens, q, k)
    return torch.empty(q.shape, device=q.device, dtype=out_dtype or OUT_DTYPE)


def _without_lengths(_stream: int, q: int, k: int, v: int, out: int) -> tuple[tuple[int, ...], None]:
    """Put the address of Q where the kernel wants lengths, which it never reads without HAS_SEQ_LENS."""
    return (q, k, v, out, q), None


def _with_lengths(_stream: int, q: int, k: int, v: int, seq_lens: int, out: int) -> tuple[tuple[int, ...], None]:
    """Put the address of the output where the kernel wants it: before that of the lengths."""
    return (q, k, v, out, seq_lens), None


def _check_operands(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, out_dtype: torch.dtype | None) -> None:
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        if tensor.ndim not in (3, 4):
            raise ValueError(
                f"{name} must be 3D or 4D, got {tensor.ndim}D of shape {tuple(tensor.shape)}\n"
                "  why: attention is computed for each head of each batch entry\n"
                "  do:  pass (batch, heads, seq_len, head_dim) or (batch*heads, seq_len, head_dim)"
            )
    shapes = f"{tuple(q.shape)}, {tuple(k.shape)} and {tuple(v.shape)}"
    if k.shape != v.shape or (q.ndim, q.shape[0], q.shape[-1]) != (k.ndim, k.shape[0], k.shape[-1]):
        raise ValueError(
            f"the shapes of q, k and v must match, got {shapes}\n"
            "  why: every key has a value, and every query attends to the keys of its own batch entry\n"
            "  do:  pass k and v of one shape, which is that of q but for the number of heads and of positions"
        )
    if q.ndim == 4 and (q.shape[1] % k.shape[1] if k.shape[1] else q.shape[1]):  # noqa: PLR2004 - (B, H, S, D)
        raise ValueError(
            f"the heads of k and v must divide those of q, got {k.shape[1]} and {q.shape[1]} (shapes {shapes})\n"
            "  why: each head of k and v is shared by as many heads of q\n"
            "  do:  pass as many heads of k and v as of q, or a divisor of it"
        )
    check_on_one_gpu(q=q, k=k, v=v)
    check_dtypes(SUPPORTED_DTYPES, q=q, k=k, v=v)
    if q.shape[-1] not in HEAD_DIMS:
        raise ValueError(
            f"head_dim={q.shape[-1]} is not supported\n"
            f"  why: the kernel is compiled for {', '.join(map(str, HEAD_DIMS))}\n"
            "  do:  pad q, k and v with zeros to one of these, and pass the sm_scale of the original head_dim"
        )
    if out_dtype is not None and out_dtype not in SUPPORTED_DTYPES:
        raise TypeError(
            f"out_dtype={out_dtype} is not supported\n"
            f"  why: the kernel sums in float32, and stores {', '.join(map(str, SUPPORTED_DTYPES))}\n"
            f"  do:  pass one of these, or none for {OUT_DTYPE}"
        )

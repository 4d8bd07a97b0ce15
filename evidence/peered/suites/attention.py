"""Attention beside cuDNN, FlashAttention-2, compiled flex_attention and FlashAttention-4's kernel for sm_90."""

from __future__ import annotations

import functools
import importlib
import os
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from evidence.peer_shapes import ATTENTION, MASKS, peers_at

from . import BUNDLED

if TYPE_CHECKING:
    from collections.abc import Callable

#: Shapes that torch.compile may compile one function for: all of ours, in one process.
RECOMPILATIONS = 256
_Attention = BUNDLED["Attention"]


def _torch_attention(backend: SDPBackend) -> Callable[..., torch.Tensor]:
    def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: str, _lengths: None) -> torch.Tensor:
        with sdpa_kernel([backend]):  # which raises where the backend cannot: there is no other to fall back to
            return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=mask == "causal")

    return attention


@functools.cache
def _compiled_flex() -> Callable[..., torch.Tensor]:
    """Compile it for each shape: `fullgraph` raises where torch would rather call it uncompiled."""
    from torch._inductor import config  # noqa: PLC0415 - seconds, for this peer alone
    from torch.nn.attention.flex_attention import flex_attention  # noqa: PLC0415 - likewise

    torch._dynamo.config.recompile_limit = RECOMPILATIONS  # noqa: SLF001 - its documented name
    config.compile_threads = 1  # one kernel at a time: a pool of compilers would take longer to start
    compiled: Callable[..., torch.Tensor] = torch.compile(flex_attention, dynamic=False, fullgraph=True)
    return compiled


def _is_seen(_batch: Any, _head: Any, query: Any, key: Any) -> Any:  # noqa: ANN401 - traced
    return query >= key


@functools.cache
def _causal_blocks(length: int) -> Any:  # noqa: ANN401 - torch's BlockMask
    from torch.nn.attention.flex_attention import create_block_mask  # noqa: PLC0415 - as above

    return create_block_mask(_is_seen, None, None, length, length, device="cuda")


def _flex_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: str, _lengths: None) -> torch.Tensor:
    return _compiled_flex()(q, k, v, block_mask=_causal_blocks(q.shape[-2]) if mask == "causal" else None)


@functools.cache
def _flash4() -> Callable[..., Any]:
    """Import FlashAttention-4, which keeps what it compiles on disk if it is told so; without it, its cases say so."""
    os.environ.setdefault("FLASH_ATTENTION_CUTE_DSL_CACHE_ENABLED", "1")
    found: Callable[..., Any] = importlib.import_module("flash_attn.cute").flash_attn_func
    return found


def _flash4_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: str, _lengths: None) -> torch.Tensor:
    """Pass views: its layout is (B, S, H, D), and it takes any strides of rows that are contiguous."""
    found = _flash4()(*(tensor.transpose(1, 2) for tensor in (q, k, v)), causal=mask == "causal")
    out: torch.Tensor = found[0] if isinstance(found, tuple) else found  # the second is the logarithm of the sums
    return out.transpose(1, 2)


class PeerAttention(_Attention):  # type: ignore[misc, valid-type] # discovered, not imported
    """O = softmax(Q K^T / sqrt(D) + mask) V in float16; `shape` is BxHxSxD."""

    params: ClassVar = (ATTENTION, MASKS)
    param_names: ClassVar = ("shape", "mask")
    providers: ClassVar = {
        "cudnn": _torch_attention(SDPBackend.CUDNN_ATTENTION),
        "flash2": _torch_attention(SDPBackend.FLASH_ATTENTION),
        "flash4": _flash4_attention,
        "flex": _flex_attention,
    }
    skip_params: ClassVar = tuple(
        (shape, mask, "flex") for shape in ATTENTION if "flex" not in peers_at("PeerAttention", shape) for mask in MASKS
    )
    recorded: ClassVar = False

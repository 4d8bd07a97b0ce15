"""Which calls take another kernel than the plain one: those for which a table has that it was measured to be faster.

A table's choice (`flopwatch.kernels.known`) that names one of these kernels counts for calls with its key, on the GPU
of its name, whose operands are laid out as those that were measured: contiguous. It names the configuration as
``python -m evidence.matmul_candidates choose`` and ``python -m evidence.attention_candidates choose`` write it; one
that the kernel's list no longer has is passed over. All other calls take the plain kernel, and so do all calls where
kernels are interpreted, and where ``FLOPWATCH_AUTOTUNE=all`` has everything of the plain kernel's list timed.

A rule for GPUs and shapes that no table has belongs into `_choice`, once one is measured.
"""

from __future__ import annotations

import functools
import os
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from triton import knobs

from flopwatch.kernels.hopper_attention import HOPPER_ATTENTION, can_attend, prepare
from flopwatch.kernels.hopper_matmul import CONFIGS, can_multiply, prepare_hopper
from flopwatch.kernels.known import TABLES, key_text, known_choices
from flopwatch.kernels.stream_k import STREAM_K, prepare_stream_k
from flopwatch.kernels.thin_matmul import MOST_ROWS, THIN, prepare_thin
from flopwatch.kernels.tuner import VARIABLE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from flopwatch.kernels.prepared import Prepared

#: Kernels for products and for attention, beside the plain ones.
PRODUCTS = ("hopper_matmul_kernel", "thin_matmul_kernel", "stream_k_kernel")
ATTENTION = ("hopper_attention_kernel",)
#: Where tables are; with another place, nothing that they have counts (`evidence.routes.take_plain_kernels`).
FOLDER = TABLES
#: What kernels in Gluon for Hopper are compiled for.
_HOPPER = (9, 0)


def routed_product(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> Prepared | None:
    """Prepare the launch that a table has for ``c = a @ b``; None where the plain kernel is to be launched.

    Args:
        a: (M, K), not empty.
        b: (K, N), of the same dtype.
        c: (M, N), contiguous, on the same GPU.
    """
    kernel, name = _choice(PRODUCTS, product_key(a, b, c), (a, b))
    match kernel:
        case "hopper_matmul_kernel":
            if name in CONFIGS and _is_hopper(a) and can_multiply(a, b):
                return prepare_hopper(a, b, c, CONFIGS[name])
        case "thin_matmul_kernel":
            if name in THIN and a.shape[0] <= MOST_ROWS:
                return prepare_thin(a, b, c, THIN[name])
        case "stream_k_kernel":
            if name in STREAM_K:
                return prepare_stream_k(a, b, c, STREAM_K[name])
    return None


def routed_attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    *,
    causal: bool,
    sm_scale: float | None,
) -> Prepared | None:
    """Prepare the launch that a table has for attention without lengths; None where the plain kernel is to be launched.

    Args:
        q: (B, H, S, D), not empty.
        k: (B, H_KV, S_KV, D), of the same dtype.
        v: as `k`.
        out: as `q`, contiguous, of any dtype.
        causal: whether a query sees only the keys up to its own position.
        sm_scale: factor of the scores, ``1 / sqrt(D)`` if None.
    """
    kernel, name = _choice(ATTENTION, attention_key(q, k, out, causal=causal), (q, k, v))
    if not kernel or not _is_hopper(q) or (sm_scale is not None and not sm_scale >= 0):
        return None
    configs = {config.name: config for config in HOPPER_ATTENTION.get(q.shape[3], ())}
    if name not in configs or not can_attend(q, k, v, out):
        return None
    prepared = prepare(q, k, v, out, configs[name], causal=causal, sm_scale=sm_scale)
    return replace(prepared, arrange=_without_lengths)


def _without_lengths(_stream: int, q: int, k: int, v: int, out: int, _lengths: int) -> tuple[tuple[int, ...], None]:
    return (q, k, v, out), None


def product_key(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> str:
    """Return the key of a product in tables: that of the plain kernel's tuner.

    >>> half = torch.empty(64, 32).half()
    >>> product_key(half, half.T, half)
    '64, 64, 32, float16, float16, float16'
    """
    (M, K), N = a.shape, b.shape[1]
    return key_text((M, N, K, a.dtype, b.dtype, c.dtype))


def attention_key(q: torch.Tensor, k: torch.Tensor, out: torch.Tensor, *, causal: bool) -> str:
    """Return the key of attention in tables: all sizes, since the number of heads decides what fills a GPU.

    >>> q = torch.empty(2, 4, 64, 32).half()
    >>> attention_key(q, q[:, :1], q, causal=True)
    '2, 4, 1, 64, 64, 32, True, float16, float16'
    """
    (B, H, S, D), (_, H_KV, S_KV, _) = q.shape, k.shape
    return key_text((B, H, H_KV, S, S_KV, D, causal, q.dtype, out.dtype))


def _choice(kernels: tuple[str, ...], key: str, operands: Sequence[torch.Tensor]) -> tuple[str, str]:
    """Return the kernel that a table has for a call, and its configuration; "" where it has none."""
    known = known_routes(kernels, FOLDER)
    if not known or knobs.runtime.interpret or os.environ.get(VARIABLE) == "all":
        return "", ""
    if not all(operand.is_contiguous() for operand in operands):
        return "", ""
    return known.get((torch.cuda.get_device_name(), key), ("", ""))


@functools.cache
def known_routes(kernels: tuple[str, ...], folder: Path) -> Mapping[tuple[str, str], tuple[str, str]]:
    """Return the kernel and the configuration of each choice that names one of these, by the GPU's name and the key."""
    return {place: (kernel, config) for kernel in kernels for place, config in known_choices(kernel, folder).items()}


def _is_hopper(tensor: torch.Tensor) -> bool:
    return torch.cuda.get_device_capability(tensor.device) == _HOPPER

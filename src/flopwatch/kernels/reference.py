"""What the kernels should compute, in float64, for tests, suites and validation alike.

All return float64 on the device of their inputs, and take the inputs as they are: an error that a kernel makes by
rounding its inputs counts as its error.
"""

from __future__ import annotations

import itertools
import math

import torch

#: Scores of float64 kept at once: 256 MiB of them.
_SCORES_AT_ONCE = 2**25


def matmul_reference(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Return the product of ``a`` (M, K) and ``b`` (K, N) as an (M, N) tensor.

    >>> matmul_reference(torch.ones(2, 3), torch.ones(3, 1))
    tensor([[3.],
            [3.]], dtype=torch.float64)
    """
    return a.double() @ b.double()


def vector_add_reference(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Return the sum of two tensors of one shape.

    >>> vector_add_reference(torch.ones(2), torch.ones(2))
    tensor([2., 2.], dtype=torch.float64)
    """
    return x.double() + y.double()


def attention_reference(  # noqa: PLR0917 - the kernel's signature
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    causal: bool = False,  # noqa: FBT001, FBT002 - the kernel's signature
    sm_scale: float | None = None,
    seq_lens: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return ``softmax(sm_scale * Q K^T + mask) V`` of each head.

    Computed a head and some rows at a time, so that the scores take at most 256 MiB.

    Args:
        q: (B, H, S, D) or (B*H, S, D).
        k: (B, H_KV, S_KV, D), where H_KV divides H, or (B*H, S_KV, D).
        v: the shape of `k`.
        causal: whether query i sees only the keys up to i + S_KV - S; where that is none, the result is 0.
        sm_scale: factor of the scores, ``1 / sqrt(D)`` by default.
        seq_lens: (B,), or (B*H,) for three dimensions: positions at or past it are not seen and give 0. S_KV is S.

    >>> x = torch.zeros(1, 2, 1)
    >>> attention_reference(x, x, torch.tensor([[[1.0], [3.0]]]), causal=True).flatten()
    tensor([1., 2.], dtype=torch.float64)
    """
    if q.ndim == 3:  # noqa: PLR2004 - (B*H, S, D): every entry is a batch of one head
        q, k, v = (tensor.unsqueeze(1) for tensor in (q, k, v))
        return attention_reference(q, k, v, causal, sm_scale, seq_lens).squeeze(1)
    scale = 1 / math.sqrt(q.shape[-1]) if sm_scale is None else sm_scale
    B, H, S, _ = q.shape
    shift = k.shape[-2] - S
    lengths = [S] * B if seq_lens is None else seq_lens.tolist()
    out = torch.zeros(q.shape, dtype=torch.float64, device=q.device)
    for batch, head in itertools.product(range(B), range(H)):
        length = lengths[batch]
        queries = q[batch, head, :length].double()
        keys, values = (tensor[batch, head * k.shape[1] // H, : length + shift].double() for tensor in (k, v))
        rows_at_once = max(1, _SCORES_AT_ONCE // max(1, len(keys)))
        for start in range(max(0, -shift) if causal else 0, length if len(keys) else 0, rows_at_once):
            stop = min(length, start + rows_at_once)
            scores = queries[start:stop] @ keys.T * scale
            if causal:
                last_seen = torch.arange(start, stop, device=q.device) + shift
                unseen = torch.arange(len(keys), device=q.device) > last_seen[:, None]
                scores = scores.masked_fill(unseen, -math.inf)
            out[batch, head, start:stop] = torch.softmax(scores, dim=-1) @ values
    return out

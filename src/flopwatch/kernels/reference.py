"""What the kernels should compute, in float64, for tests, suites and validation alike.

All return float64 on the device of their inputs, and take the inputs as they are: an error that a kernel makes by
rounding its inputs counts as its error.
"""

from __future__ import annotations

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
        k: the same shape.
        v: the same shape.
        causal: whether a query sees only the keys up to its own position.
        sm_scale: factor of the scores, ``1 / sqrt(D)`` by default.
        seq_lens: (B,), or (B*H,) for three dimensions: positions at or past it are not seen and give 0.

    >>> x = torch.zeros(1, 2, 1)
    >>> attention_reference(x, x, torch.tensor([[[1.0], [3.0]]]), causal=True).flatten()
    tensor([1., 2.], dtype=torch.float64)
    """
    scale = 1 / math.sqrt(q.shape[-1]) if sm_scale is None else sm_scale
    S = q.shape[-2]
    lengths = [S] * q.shape[0] if seq_lens is None else seq_lens.tolist()
    out = torch.zeros(q.shape, dtype=torch.float64, device=q.device)
    for batch, length in enumerate(lengths):
        heads = [(batch,)] if q.ndim == 3 else [(batch, head) for head in range(q.shape[1])]  # noqa: PLR2004 - (B*H, S, D)
        for head in heads:
            queries, keys, values = (tensor[head][:length].double() for tensor in (q, k, v))
            rows_at_once = max(1, _SCORES_AT_ONCE // max(1, length))
            for start in range(0, length, rows_at_once):
                stop = min(length, start + rows_at_once)
                scores = queries[start:stop] @ keys.T * scale
                if causal:
                    after = torch.arange(length, device=q.device) > torch.arange(start, stop, device=q.device)[:, None]
                    scores = scores.masked_fill(after, -math.inf)
                out[head][start:stop] = torch.softmax(scores, dim=-1) @ values
    return out

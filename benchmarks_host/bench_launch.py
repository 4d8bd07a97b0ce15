"""What a call of a public function costs the host after the first, up to and with the driver's launch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from benchmarks_host import stand_in
from flopwatch.kernels import flash_attention, triton_matmul, vector_add

if TYPE_CHECKING:
    from benchmarks_host.conftest import Ratio


def _tensor(*shape: int) -> torch.Tensor:
    if torch.cuda.is_available():
        return torch.zeros(shape, device="cuda", dtype=torch.float16)
    return stand_in.tensor(*shape)


def test_vector_add(ratio: Ratio, gpu: str) -> None:  # noqa: ARG001 - makes launches possible
    """Launch an addition."""
    x = _tensor(4096)
    ratio(lambda: vector_add(x, x))


def test_matmul(ratio: Ratio, gpu: str) -> None:  # noqa: ARG001 - likewise
    """Launch an autotuned product."""
    a = _tensor(256, 256)
    ratio(lambda: triton_matmul(a, a))


def test_attention(ratio: Ratio, gpu: str) -> None:  # noqa: ARG001 - likewise
    """Launch autotuned attention."""
    q = _tensor(2, 4, 256, 64)
    ratio(lambda: flash_attention(q, q, q, causal=True))

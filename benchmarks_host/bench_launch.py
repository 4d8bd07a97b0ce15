"""What a call of a public function costs the host after the first, up to and with the driver's launch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from benchmarks_host import stand_in
from flopwatch.kernels import flash_attention, routes, triton_matmul, vector_add
from flopwatch.kernels.hopper_matmul import CONFIGS
from flopwatch.kernels.stream_k import Balance

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
    a = _tensor(128, 128)  # so small that no rule has another kernel
    ratio(lambda: triton_matmul(a, a))


def test_attention(ratio: Ratio, gpu: str) -> None:  # noqa: ARG001 - likewise
    """Launch autotuned attention."""
    q = _tensor(2, 4, 256, 64)
    ratio(lambda: flash_attention(q, q, q, causal=True))


def test_matmul_of_tensor_maps(ratio: Ratio, gpu: str, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: ARG001 - likewise
    """Launch a product of which a table has that Hopper's kernel is the fastest, with tiles that programs share."""
    if torch.cuda.get_device_capability() != (9, 0):
        pytest.skip("Hopper's kernel is for Hopper")
    a, b, c = _tensor(256, 4096), _tensor(4096, 256), _tensor(256, 256)
    name = next(name for name, config in CONFIGS.items() if config.balance is Balance.SPLIT)
    place = (torch.cuda.get_device_name(), routes.product_key(a, b, c))
    monkeypatch.setattr(routes, "known_routes", lambda *_: {place: ("hopper_matmul_kernel", name)})
    ratio(lambda: triton_matmul(a, b))

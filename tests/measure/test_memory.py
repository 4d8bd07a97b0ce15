from __future__ import annotations

from typing import Any

import pytest
import torch

from flopwatch.measure.memory import measure_memory
from flopwatch.model import Case, Memory
from flopwatch.suite import Suite

pytestmark = pytest.mark.gpu

KEPT: list[torch.Tensor] = []


class Knot:
    """Holds a tensor and itself, so that only the garbage collector frees it."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor
        self.knot = self


class Allocating(Suite):
    """out = x, of 4096 bytes, with what `kind` says about memory."""

    params = (["plain", "temporary", "leaking", "caching", "knotted"],)
    param_names = ("kind",)

    def inputs(self, *values: str, seed: int) -> tuple[Any, ...]:
        del seed
        return torch.zeros(1024, device="cuda"), values[0]

    def run(self, *inputs: object) -> torch.Tensor:
        x, kind = inputs
        assert isinstance(x, torch.Tensor)
        match kind:
            case "temporary":
                torch.empty(1_000_001, dtype=torch.uint8, device="cuda")
            case "leaking":
                KEPT.append(torch.empty(1, dtype=torch.uint8, device="cuda"))
            case "caching" if not KEPT:
                KEPT.append(torch.empty(1 << 20, dtype=torch.uint8, device="cuda"))
            case "knotted":
                Knot(torch.empty(7, dtype=torch.uint8, device="cuda"))
        return x.clone()

    def flops(self, *values: str) -> float:
        del values
        return 0.0

    def bytes_moved(self, *values: str) -> float:
        del values
        return 8192.0


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("plain", Memory(peak_bytes=4096, growth_bytes=0.0)),
        ("temporary", Memory(peak_bytes=1_000_001, growth_bytes=0.0)),
        ("leaking", Memory(peak_bytes=4097, growth_bytes=1.0)),
        ("caching", Memory(peak_bytes=4096, growth_bytes=0.0)),
        ("knotted", Memory(peak_bytes=4103, growth_bytes=0.0)),
    ],
)
def test_a_call_takes_what_it_allocates_and_grows_by_what_it_keeps(kind: str, expected: Memory) -> None:
    KEPT.clear()
    try:
        found = measure_memory(Allocating(), Case(suite="Allocating", values=(kind, "flopwatch")))
    finally:
        KEPT.clear()

    assert found == expected

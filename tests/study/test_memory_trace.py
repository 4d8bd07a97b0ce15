from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest
import torch
from evidence import l2_swizzle
from evidence.memory_trace import Reading, Trace, read_gpu, trace

if TYPE_CHECKING:
    from collections.abc import Callable


class Memory:
    """GPU memory that is only counted."""

    def __init__(self) -> None:
        self.tensors = self.device = 0

    def read(self) -> Reading:
        return Reading(tensors=self.tensors, cached=0, device=1000 + self.device)


def traced(grow: Callable[[Memory], None]) -> Trace:
    memory = Memory()

    def prepare() -> Callable[[], object]:
        memory.tensors += 50
        return lambda: grow(memory)

    return trace("calls", prepare, 4, memory.read)


def test_what_grows_at_every_call_is_a_leak_and_what_the_first_call_takes_is_none() -> None:
    taken: list[int] = []

    def grow(memory: Memory) -> None:
        memory.tensors += 1
        memory.device += 0 if taken else 100
        taken.append(1)

    found = traced(grow)
    assert found.growth == Reading(tensors=1, cached=0, device=0)
    assert found.first - found.before == Reading(tensors=51, cached=0, device=100)


def test_nothing_grows_where_nothing_is_kept() -> None:
    assert traced(lambda _: None).growth == Reading(tensors=0, cached=0, device=0)


def test_what_a_compiler_keeps_is_seen_on_the_device_alone() -> None:
    def load(memory: Memory) -> None:
        memory.device += 7

    assert traced(load).growth == Reading(tensors=0, cached=0, device=7)


def test_a_trace_of_new_kernels_takes_another_one_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, str]] = []
    orders = sys.modules[l2_swizzle.study().__module__].ORDERS

    class Asked:
        def inputs(self, _size: str, order: str, *, seed: int) -> tuple[None, None, str]:
            del seed
            return None, None, order

        def call(self, provider: str) -> Callable[[None, None, str], None]:
            return lambda _a, _b, order: asked.append((provider, order))

    monkeypatch.setattr(l2_swizzle, "study", lambda: Asked)
    monkeypatch.setattr(l2_swizzle, "trace", lambda what, prepare, times: trace(what, prepare, times, Memory().read))
    assert [found.what for found in l2_swizzle.trace_all()] == [
        "a call of torch",
        "inputs and a call of torch",
        "a call of flopwatch 8",
        "inputs and a new kernel of flopwatch",
        "a call of tilelang none",
        "inputs and a new kernel of tilelang",
        "a call of tilelang 10",
    ]
    for provider in ("flopwatch", "tilelang"):
        new = [order for who, order in asked if who == provider and order not in orders]
        assert len(new) == len(set(new)) == 1 + l2_swizzle.CALLS // 4


@pytest.mark.gpu
def test_on_a_gpu_a_planted_leak_of_one_byte_is_told_from_torchs_cache() -> None:
    kept: list[torch.Tensor] = []

    def leaking() -> Callable[[], object]:
        return lambda: kept.append(torch.empty(1, dtype=torch.uint8, device="cuda"))

    def plain() -> Callable[[], object]:
        return lambda: torch.empty(1 << 20, dtype=torch.uint8, device="cuda")

    assert trace("a leak", leaking, 8, read_gpu).growth.tensors == 1
    assert trace("no leak", plain, 8, read_gpu).growth == Reading(tensors=0, cached=0, device=0)

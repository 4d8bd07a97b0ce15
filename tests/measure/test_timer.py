from __future__ import annotations

import os
import statistics
import time
from collections import deque
from typing import TYPE_CHECKING, Any

import pytest
import torch

from flopwatch.measure.protocol import Method, Plan
from flopwatch.measure.timer import SPACER_PAGES, SPREAD_INPUT_SETS, PreparedCase, event_resolution_s
from flopwatch.model import Case
from flopwatch.suite import Suite

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.gpu


class Copy(Suite):
    """out = x, with what a kernel must not do on request."""

    params = (["1048576", "268435456"], ["plain", "synchronising"])
    param_names = ("n", "kind")

    def inputs(self, *values: str, seed: int) -> tuple[Any, ...]:
        generator = torch.Generator(device="cuda").manual_seed(seed)
        return torch.randn(int(values[0]), device="cuda", generator=generator), values[1]

    def run(self, *inputs: object) -> torch.Tensor:
        x, kind = inputs
        assert isinstance(x, torch.Tensor)
        if kind == "synchronising":
            torch.cuda.synchronize()
        return torch.add(x, 1.0)

    def flops(self, *values: str) -> float:
        return float(values[0])

    def bytes_moved(self, *values: str) -> float:
        return 8.0 * int(values[0])


def case(n: str, kind: str = "plain") -> Case:
    return Case(suite="Copy", values=(n, kind, "flopwatch"))


def test_a_short_kernel_is_timed_as_a_graph_over_cold_inputs() -> None:
    prepared = PreparedCase(Copy(), case("1048576"))
    assert prepared.plan.method is Method.GRAPH
    l2_bytes = torch.cuda.get_device_properties().L2_cache_size
    assert prepared.plan.input_sets * 8 * 1048576 >= 2 * l2_bytes  # inputs and outputs
    assert prepared.plan.calls * statistics.median(prepared.sample(5)) >= 250e-6


def test_a_long_kernel_is_timed_alone_as_a_graph() -> None:
    prepared = PreparedCase(Copy(), case("268435456"))
    assert prepared.plan == Plan(method=Method.GRAPH, calls=1, input_sets=1)
    bandwidth = 8 * 268435456 / statistics.median(prepared.sample(5))
    assert 5e11 < bandwidth < 2e13


class Told(Copy):
    """Tells where its results lie."""

    def __init__(self) -> None:
        self.places: list[int] = []

    def run(self, *inputs: object) -> torch.Tensor:
        result = super().run(*inputs)
        self.places.append(result.data_ptr())
        return result


@pytest.mark.parametrize("n", ["1048576", "268435456"])
def test_results_are_moved_to_other_memory(n: str) -> None:
    suite = Told()
    prepared = PreparedCase(suite, case(n))
    calls, before = prepared.plan.calls, statistics.median(prepared.sample(9))
    reserved = torch.cuda.memory_reserved()
    for _ in range(3):
        places = set(suite.places[-calls:])
        prepared.place()
        assert not places & set(suite.places[-calls:])
    assert prepared.plan.calls == calls
    assert statistics.median(prepared.sample(9)) == pytest.approx(before, rel=0.3)
    assert torch.cuda.memory_reserved() < reserved + SPACER_PAGES * (2 << 20)  # nothing of the earlier places is kept


class Scratching(Told):
    """Tells where it scratches instead."""

    def run(self, *inputs: object) -> torch.Tensor:
        return torch.add(super().run(*inputs), 1.0)


def test_the_calls_of_a_sample_scratch_in_different_places() -> None:
    suite = Scratching()
    prepared = PreparedCase(suite, case("1048576"))
    sets = prepared.plan.input_sets
    assert len(set(suite.places[-prepared.plan.calls :])) >= min(sets, SPREAD_INPUT_SETS)
    prepared.sample(1)
    assert isinstance(prepared._results, deque)
    for result, (x, _) in zip(prepared._results, prepared._inputs, strict=True):
        assert torch.equal(result, x + 1.0 + 1.0)


class CapturedOnce(Told):
    """Cannot be captured a second time."""

    captures = 0

    def run(self, *inputs: object) -> torch.Tensor:
        if torch.cuda.is_current_stream_capturing():
            self.captures += 1
            if self.captures > 1:
                super().run(*inputs)  # it comes to pass in the middle
                raise RuntimeError("planted")
        return super().run(*inputs)


def test_what_cannot_be_captured_again_stays_where_it_is() -> None:
    prepared = PreparedCase(CapturedOnce(), case("268435456"))
    before = statistics.median(prepared.sample(9))
    for _ in range(3):
        prepared.place()
    assert prepared.plan.method is Method.GRAPH
    assert statistics.median(prepared.sample(9)) == pytest.approx(before, rel=0.3)


def test_where_results_are_allocated_at_every_call_nothing_is_moved() -> None:
    suite = Told()
    prepared = PreparedCase(suite, case("1048576", "synchronising"))
    calls = len(suite.places)
    prepared.place()
    assert len(suite.places) == calls


def test_a_function_that_synchronises_falls_back_to_events() -> None:
    prepared = PreparedCase(Copy(), case("1048576", "synchronising"))
    assert prepared.plan.method is Method.EVENTS
    assert all(seconds > 0 for seconds in prepared.sample(3))


def test_what_cannot_be_captured_follows_a_plan_for_graphs_with_events() -> None:
    plan = Plan(method=Method.GRAPH, calls=12, input_sets=4)
    prepared = PreparedCase(Copy(), case("1048576", "synchronising"), plan)
    assert prepared.plan == Plan(method=Method.EVENTS, calls=12, input_sets=4)


@pytest.mark.parametrize("kind", ["plain", "synchronising"])
def test_a_long_kernel_takes_as_long_with_events_as_in_a_graph(kind: str) -> None:
    prepared = PreparedCase(Copy(), case("268435456", kind))
    bandwidth = 8 * 268435456 / statistics.median(prepared.sample(5))
    assert 5e11 < bandwidth < 2e13


def test_a_host_that_is_slow_to_launch_does_not_lengthen_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    fast = statistics.median(PreparedCase(Copy(), case("1048576")).sample(5))
    plain: Callable[..., torch.Tensor] = Copy.run

    def hesitate(self: Copy, *inputs: object) -> torch.Tensor:
        time.sleep(1e-3)
        return plain(self, *inputs)

    monkeypatch.setattr(Copy, "run", hesitate)
    prepared = PreparedCase(Copy(), case("1048576"))
    assert 0.5 < statistics.median(prepared.sample(5)) / fast < 2
    assert all(1e-3 < seconds < 20e-3 for seconds in prepared.launch(5))


def test_a_launch_costs_the_host_microseconds_and_leaves_it_all_its_cores() -> None:
    prepared = PreparedCase(Copy(), case("1048576"))
    before = os.sched_getaffinity(0)
    launches = prepared.launch(12)
    assert len(launches) == 12
    assert 1e-6 < statistics.median(launches) < 1e-3
    assert os.sched_getaffinity(0) == before


def test_a_launch_that_raises_leaves_the_host_all_its_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    prepared = PreparedCase(Copy(), case("1048576"))
    before = os.sched_getaffinity(0)

    def fail(*_: object) -> None:
        raise ArithmeticError

    monkeypatch.setattr(prepared, "_call", fail)
    with pytest.raises(ArithmeticError):
        prepared.launch(1)
    assert os.sched_getaffinity(0) == before


def test_the_clock_of_events_has_fine_steps() -> None:
    assert 1e-9 < event_resolution_s() < 1e-5


def test_a_plan_that_is_given_is_followed() -> None:
    plan = Plan(method=Method.GRAPH, calls=12, input_sets=4)
    assert PreparedCase(Copy(), case("1048576"), plan).plan == plan


def test_a_planted_second_pass_takes_about_twice_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    once = PreparedCase(Copy(), case("268435456"))
    plain: Callable[..., torch.Tensor] = Copy.run

    def twice(self: Copy, *inputs: object) -> torch.Tensor:
        plain(self, *inputs)
        return plain(self, *inputs)

    monkeypatch.setattr(Copy, "run", twice)
    again = PreparedCase(Copy(), case("268435456"))
    ratios = [again.sample(1)[0] / once.sample(1)[0] for _ in range(20)]
    assert 1.8 < statistics.median(ratios) < 2.2

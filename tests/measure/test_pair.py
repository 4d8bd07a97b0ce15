from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

import pytest

from flopwatch.measure.pair import CYCLES, LAUNCHES, sample_pair
from flopwatch.measure.protocol import Method, Plan
from flopwatch.model import Case

if TYPE_CHECKING:
    from flopwatch.measure.client import Worker

CASE = Case(suite="Toy", values=("flopwatch",))
GRAPH = Plan(method=Method.GRAPH, calls=64, input_sets=8)
EVENTS = Plan(method=Method.EVENTS, calls=1, input_sets=1)


@dataclass(kw_only=True)
class Clock:
    """A GPU whose clock drifts: every launch is slower than the one before, whoever makes it."""

    drift: float = 0.0
    launches: int = 0
    order: list[str] = field(default_factory=list)


@dataclass(kw_only=True)
class Side:
    """Stands in for a worker, to test the arithmetic of turns on a known clock."""

    name: str
    seconds: float
    clock: Clock
    captures: bool = True
    plans: list[Plan | None] = field(default_factory=list)

    def prepare(self, case: Case, plan: Plan | None = None) -> Plan:
        assert case == CASE
        self.plans.append(plan)
        return (plan or GRAPH) if self.captures else EVENTS

    def visit(self, case: Case, launches: int) -> tuple[float, ...]:
        assert case == CASE
        self.clock.order.append(self.name)
        taken = []
        for _ in range(launches):
            self.clock.launches += 1
            taken.append(self.seconds * (1 + self.clock.drift * self.clock.launches))
        return tuple(taken)


def pair(ratio: float = 1.0, *, drift: float = 0.0, captures: bool = True) -> tuple[Side, Side, Clock]:
    clock = Clock(drift=drift)
    base = Side(name="base", seconds=1e-3, clock=clock)
    return base, Side(name="head", seconds=1e-3 * ratio, clock=clock, captures=captures), clock


def sample(base: Side, head: Side, *, head_first: bool) -> float:
    found = sample_pair(cast("Worker", base), cast("Worker", head), CASE, head_first=head_first)
    return found.log_ratio


@pytest.mark.parametrize("head_first", [True, False])
def test_a_slowdown_is_measured_whoever_goes_first(*, head_first: bool) -> None:
    base, head, _ = pair(1.02)
    assert sample(base, head, head_first=head_first) == pytest.approx(math.log(1.02))


@pytest.mark.parametrize("head_first", [True, False])
def test_a_drifting_clock_cancels(*, head_first: bool) -> None:
    base, head, _ = pair(1.0, drift=1e-5)  # 0.2 % from first launch to last of a cycle, 19 % over the pair
    assert abs(sample(base, head, head_first=head_first)) < 1e-8


def test_turns_are_abba() -> None:
    base, head, clock = pair()
    sample(base, head, head_first=False)
    assert clock.order == ["base", "head", "head", "base"] * CYCLES
    assert clock.launches == 4 * CYCLES * LAUNCHES


def test_the_coin_swaps_the_turns() -> None:
    base, head, clock = pair()
    sample(base, head, head_first=True)
    assert clock.order[:4] == ["head", "base", "base", "head"]


def test_both_sides_follow_one_plan() -> None:
    base, head, _ = pair()
    sample(base, head, head_first=False)
    assert (base.plans, head.plans) == ([None], [GRAPH])


def test_where_one_side_cannot_be_captured_both_use_events() -> None:
    base, head, _ = pair(captures=False)
    found = sample_pair(cast("Worker", base), cast("Worker", head), CASE, head_first=False)
    assert (base.plans, found.method) == ([None, EVENTS], "events")

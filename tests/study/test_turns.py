from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, cast

import pytest
from tests.study.conftest import PLAN, SWIZZLE, FakeWorker, Gpu

from flopwatch.measure.client import CaseFailed
from flopwatch.measure.pair import SAMPLES
from flopwatch.measure.protocol import Method, Plan
from flopwatch.model import Case, Choice
from flopwatch.study.turns import CYCLES, Turns, take_turns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flopwatch.measure.client import Worker

CASES = [entry.case for entry in SWIZZLE if entry.case.values[0] == "1"]
MANY = Plan(method=Method.GRAPH, calls=30, input_sets=4)


def taken(gpu: Gpu, *, plan: Plan | None = None) -> Turns:
    def shuffle(cases: Sequence[Case]) -> list[Case]:
        return gpu.random.sample(list(cases), len(cases))

    pins = {case: (Choice(kernel="k", config=case.values[1]),) for case in CASES}
    return take_turns(cast("Worker", FakeWorker(gpu)), pins, plan=plan, shuffle=shuffle)


def test_every_cycle_visits_each_case_there_and_back(gpu: Gpu) -> None:
    found = taken(gpu)
    after = gpu.visited[len(CASES) :]  # the first round of visits is thrown away
    cycles = [after[start : start + 2 * len(CASES)] for start in range(0, len(after), 2 * len(CASES))]
    assert len(cycles) == CYCLES[0]
    assert all(cycle == cycle[::-1] for cycle in cycles)
    assert all(sorted(case.id for case in cycle[: len(CASES)]) == sorted(case.id for case in CASES) for cycle in cycles)
    assert {len(seconds) for seconds in found.seconds.values()} == {CYCLES[0]}


def test_the_order_differs_from_cycle_to_cycle(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flopwatch.study.turns.TURNS_S", 60.0)
    taken(gpu)
    starts = {gpu.visited[start] for start in range(len(CASES), len(gpu.visited), 2 * len(CASES))}
    assert len(starts) > 1


def test_a_drift_cancels(gpu: Gpu) -> None:
    gpu.noise, gpu.drift = 0.0, 0.01
    found = taken(gpu)
    first, *others = [seconds[0] for seconds in found.seconds.values()]
    assert [math.log(other / first) for other in others] == pytest.approx([0.0] * len(others), abs=1e-3)


def test_a_slower_case_comes_out_slower(gpu: Gpu) -> None:
    gpu.seconds = {CASES[1].values: 1.1e-2}
    found = taken(gpu)
    assert math.log(found.seconds[CASES[1]][0] / found.seconds[CASES[0]][0]) == pytest.approx(0.0953, abs=0.003)


def test_all_follow_the_plan_of_the_shortest_which_is_sampled_many_times(gpu: Gpu) -> None:
    gpu.plans = {CASES[2].values: MANY}
    assert taken(gpu).plan == MANY


def test_where_one_cannot_be_captured_none_is(gpu: Gpu) -> None:
    gpu.forced = {CASES[3].values: replace(PLAN, method=Method.EVENTS)}
    assert taken(gpu, plan=PLAN).plan.method is Method.EVENTS


def test_a_turn_of_a_long_kernel_is_one_sample_and_of_short_ones_several(gpu: Gpu) -> None:
    asked: list[int] = []

    class Counting(FakeWorker):
        def visit(self, case: Case, samples: int) -> tuple[float, ...]:
            asked.append(samples)
            return super().visit(case, samples)

    for plan in (PLAN, MANY):
        take_turns(cast("Worker", Counting(gpu)), {CASES[0]: ()}, plan=plan)
    assert sorted(set(asked)) == [1, SAMPLES]


def test_what_cannot_be_prepared_is_left_out_with_its_cause(gpu: Gpu) -> None:
    gpu.failing_in_rounds = {CASES[0].values: "out of memory"}
    found = taken(gpu)
    assert found.failures == {CASES[0]: "OutOfMemoryError: out of memory"}
    assert list(found.seconds) == CASES[1:]


def test_where_nothing_can_be_prepared_nothing_is_measured(gpu: Gpu) -> None:
    gpu.failing_in_rounds = {case.values: "out of memory" for case in CASES}
    found = taken(gpu)
    assert (found.seconds, list(found.failures)) == ({}, CASES)


def test_a_worker_that_dies_loses_the_point(gpu: Gpu) -> None:
    gpu.dying_at = "1"
    with pytest.raises(CaseFailed, match="exit status -11"):
        taken(gpu)

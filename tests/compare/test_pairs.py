from __future__ import annotations

import math
import random
from typing import TYPE_CHECKING, cast

import pytest
from tests.compare.conftest import FakeSides, FakeWatch, Gpu

from flopwatch.compare.matches import match_providers
from flopwatch.compare.pairs import Pairs, overall_speed, speed_of
from flopwatch.compare.result import ComparedCase, Contender
from flopwatch.errors import MachineError
from flopwatch.gate.pairs import MAX_FAILURES, Observer
from flopwatch.gate.result import PairLog
from flopwatch.gate.sides import Arm

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flopwatch.measure.machine import Snapshot
    from flopwatch.measure.nvml import Watch


def measured(
    gpu: Gpu, *, together: bool, pairs: int = 8, watch: FakeWatch | None = None
) -> tuple[Pairs, list[ComparedCase]]:
    coin = random.Random(2)
    sides = FakeSides(gpu)
    cases: Sequence[ComparedCase] = match_providers(gpu.declared, ("flopwatch", "torch"), "", sides.config)
    if not together:
        own = [Contender(case=case.head.case) for case in cases]
        cases = [ComparedCase(base=side, head=side, flops=2e6, bytes_moved=1e6, ceiling_eps=8.0) for side in own]
    found = Pairs(
        sides=sides,
        watch=cast("Watch", watch or FakeWatch()),
        observer=Observer(),
        toss=lambda: coin.random() < 0.5,
        cases={case.head.case: case for case in cases},
        together=together,
    )
    found.measure_all(pairs)
    return found, [found.timed(case) for case in cases]


def log(**log_ratios: float) -> PairLog:
    return PairLog(stage="compare", head_slot=0, seconds=0.0, log_ratios=log_ratios, launch_log_ratios={}, faults={})


@pytest.mark.parametrize("together", [True, False])
def test_the_speed_is_bases_time_over_heads_whichever_slot_is_head(together: bool, gpu: Gpu) -> None:
    gpu.seconds = {("Add", "torch" if together else "base"): 1.05e-5}
    pairs, (add, matmul) = measured(gpu, together=together)

    assert {entry.head_slot for entry in pairs.logs} == {0, 1}
    assert add.speed is not None
    assert add.speed.lower is not None
    assert add.speed.upper is not None
    assert add.speed.lower < math.log(1.05) < add.speed.upper
    assert add.speed.upper - add.speed.lower < 0.01
    assert (add.speed.pairs, add.method) == (8, "graph")
    assert add.base.seconds == pytest.approx(1.05e-5, rel=0.01)
    assert add.base.launch_seconds == pytest.approx(2.1e-5)
    assert matmul.speed is not None
    assert matmul.speed.estimate == pytest.approx(0.0, abs=0.002)
    assert pairs.unfit() == ""


def test_two_providers_share_one_fresh_process_a_repetition(gpu: Gpu) -> None:
    measured(gpu, together=True, pairs=3)
    assert gpu.started == [Arm.HEAD] * 3


def test_two_sides_have_a_fresh_process_each_and_slot_0_starts_first(gpu: Gpu) -> None:
    pairs, _ = measured(gpu, together=False, pairs=3)
    assert gpu.started[::2] == [(Arm.HEAD, Arm.BASE)[entry.head_slot] for entry in pairs.logs]
    assert len(gpu.started) == 6


def test_a_lower_clock_belongs_to_the_side_that_has_it(gpu: Gpu) -> None:
    watch = FakeWatch()
    pairs, _ = measured(gpu, together=True, watch=watch)
    assert watch.clocks_read == 0
    assert all(not entry.faults for entry in pairs.logs)


def test_a_case_that_keeps_failing_is_given_up_and_no_other_is_lost(gpu: Gpu) -> None:
    gpu.failing_in_pairs = {"Add[1024,torch]": "exit status -11"}
    pairs, (add, matmul) = measured(gpu, together=True)
    assert add.speed is None
    assert add.reason == "fails while it is measured (WorkerDied: exit status -11)"
    assert [entry.faults["Add[1024,flopwatch]"] for entry in pairs.logs[MAX_FAILURES:]] == [
        "failed too often before"
    ] * (8 - MAX_FAILURES)
    assert matmul.speed is not None
    assert matmul.speed.pairs == 8
    assert pairs.notes() == ("Add[1024,flopwatch]: 8 of 8 pairs could not be used",)


def test_what_was_measured_before_an_interrupt_is_kept(gpu: Gpu) -> None:
    gpu.interrupt_after = 200
    pairs, cases = measured(gpu, together=False)
    assert pairs.interrupted
    assert 0 < len(pairs.logs) < 8
    assert {case.speed.pairs for case in cases if case.speed} == {len(pairs.logs)}


def test_another_process_on_the_gpu_makes_it_unfit(gpu: Gpu) -> None:
    pairs, _ = measured(gpu, together=True, watch=FakeWatch(processes=(7, 99)))
    assert "is used by another process (99)" in pairs.unfit()


def test_a_gpu_that_is_lost_makes_it_unfit(gpu: Gpu) -> None:
    class LostWatch(FakeWatch):
        def snapshot(self) -> Snapshot:
            raise MachineError("the GPU no longer answers")

    pairs, cases = measured(gpu, together=True, watch=LostWatch())
    assert pairs.unfit() == "the GPU no longer answers"
    assert pairs.logs == []
    assert [case.speed for case in cases] == [None, None]


def test_seven_pairs_are_too_few_for_an_interval_and_eight_are_enough() -> None:
    seven, eight = speed_of([0.05] * 7), speed_of([0.05] * 8)
    assert seven is not None
    assert (seven.lower, seven.upper) == (None, None)
    assert seven.estimate == pytest.approx(0.05)
    assert eight is not None
    assert [eight.lower, eight.upper] == pytest.approx([0.05, 0.05])


def test_intervals_cover_the_speed_99_times_in_100_whatever_the_processes_do() -> None:
    noise = random.Random(5)

    def covers() -> bool:
        # Heavy tails, and a process in five that is 5 % off; symmetric by the coin.
        found = speed_of(
            [
                0.1 + noise.choice((-1, 1)) * (0.05 * (noise.random() < 0.2) + 0.001 * noise.expovariate(1))
                for _ in range(8)
            ]
        )
        assert found is not None
        assert found.lower is not None
        assert found.upper is not None
        return found.lower <= 0.1 <= found.upper

    covered = sum(covers() for _ in range(1000))
    assert covered >= 980  # of 1000, 992 at the least are expected; 980 or fewer come once in 10^4


def test_the_geometric_mean_is_over_the_cases_pair_by_pair(gpu: Gpu) -> None:
    gpu.seconds = {("Add", "torch"): 2e-5, ("Matmul", "torch"): 0.5e-5}
    pairs, cases = measured(gpu, together=True)
    found = overall_speed(cases, pairs.logs)
    assert found is not None
    assert found.lower is not None
    assert found.upper is not None
    assert found.lower <= 0.0 <= found.upper
    assert found.upper - found.lower < 0.01


def test_without_a_pair_of_all_cases_the_mean_has_no_bounds(gpu: Gpu) -> None:
    _, cases = measured(gpu, together=True)
    names = [case.head.case.id for case in cases]
    found = overall_speed(cases, [log(**{names[0]: 0.0}), log(**{names[1]: 0.0})])
    assert found is not None
    assert (found.lower, found.upper, found.pairs) == (None, None, 0)


def test_without_a_case_there_is_no_mean() -> None:
    assert overall_speed([], [log()]) is None

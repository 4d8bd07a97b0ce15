from __future__ import annotations

import itertools
import math
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self, cast

import pytest
from tests.compare.conftest import FakeSides, FakeWatch, Gpu, declared

from flopwatch.gate.pairs import FAILURE_TRIALS, MAX_FAILURES, Observer, Pairs, Relay
from flopwatch.gate.result import CaseVerdict
from flopwatch.gate.sides import Arm

if TYPE_CHECKING:
    from flopwatch.measure.client import Mode, Worker
    from flopwatch.measure.nvml import Watch
    from flopwatch.model import Case

ADD, MATMUL = (declared(suite).case for suite in ("Add", "Matmul"))


class HotWatch(FakeWatch):
    """Reads an H200 that slows down for its heat."""

    def reason_bits(self) -> int:
        return 0x20


@dataclass(kw_only=True)
class ClockWatch(FakeWatch):
    """Reads an H200 on which one arm runs at a lower clock."""

    lower_mhz: int = 0
    arm: Arm = Arm.HEAD
    gpu_in_use: Gpu = field(default_factory=Gpu)

    def clock(self) -> int:
        return 1980 - self.lower_mhz * (self.gpu_in_use.visited is self.arm)


def pairs(gpu: Gpu, *, head_slot: int = 0, watch: FakeWatch | None = None) -> Pairs:
    if isinstance(watch, ClockWatch):
        watch.gpu_in_use = gpu
    return Pairs(
        sides=FakeSides(gpu),
        watch=cast("Watch", watch or FakeWatch()),
        observer=Observer(),
        toss=lambda: bool(head_slot),
        verdicts={case: CaseVerdict(case=case) for case in (ADD, MATMUL)},
    )


def failing(*arms: Arm) -> Gpu:
    return Gpu(noise=0.0, failing_in_pairs={ADD.id: "exit status -11\nduring visit"}, failing_arms=arms)


@pytest.mark.parametrize("head_slot", [0, 1])
def test_head_against_base_is_logged_whichever_slot_is_head(head_slot: int) -> None:
    found = pairs(Gpu(noise=0.0, seconds={("Add", "head"): 1.05e-5}), head_slot=head_slot)
    logs = found.measure([ADD, MATMUL], 2)
    assert logs == found.logs
    assert [(log.stage, log.head_slot) for log in logs] == [("screen", head_slot)] * 2
    for log in logs:
        assert log.log_ratios == {ADD.id: pytest.approx(math.log(1.05)), MATMUL.id: pytest.approx(0.0)}
        assert log.launch_log_ratios == {ADD.id: pytest.approx(math.log(1.05)), MATMUL.id: pytest.approx(0.0)}
    assert found.medians(ADD, Arm.HEAD) == pytest.approx((1.05e-5, 2.1e-5))
    assert found.medians(ADD, Arm.BASE) == pytest.approx((1e-5, 2e-5))


def test_what_was_not_measured_has_no_time() -> None:
    assert pairs(Gpu()).medians(ADD, Arm.HEAD) == (None, None)


@pytest.mark.parametrize("head_slot", [0, 1])
@pytest.mark.parametrize(
    ("arms", "blamed"), [((Arm.HEAD,), Arm.HEAD), ((Arm.BASE,), Arm.BASE), ((Arm.BASE, Arm.HEAD), None)]
)
def test_a_failure_is_laid_to_an_arm_if_the_other_runs_alone(
    arms: tuple[Arm, ...], blamed: Arm | None, head_slot: int
) -> None:
    found = pairs(failing(*arms), head_slot=head_slot)
    found.measure([ADD], 1)
    assert found.blamed[ADD] == [blamed]


def test_a_case_is_given_up_for_its_last_failure_and_no_other_is_lost() -> None:
    found = pairs(failing(Arm.HEAD))
    found.measure([ADD, MATMUL], MAX_FAILURES - 1)
    assert found.given_up(ADD) == ""
    found.measure([ADD, MATMUL], 2)
    assert found.given_up(ADD) == "WorkerDied: exit status -11"
    assert found.logs[-1].faults == {ADD.id: "failed too often before"}
    assert [list(log.log_ratios) for log in found.logs] == [[MATMUL.id]] * (MAX_FAILURES + 1)


@pytest.mark.parametrize(("later", "trials"), [((Arm.HEAD,), 2 * FAILURE_TRIALS), (tuple(Arm), 2), ((), 1)])
def test_head_always_fails_only_where_base_never_does(later: tuple[Arm, ...], trials: int) -> None:
    gpu = failing(Arm.HEAD)
    found = pairs(gpu)
    found.measure([ADD], MAX_FAILURES)
    gpu.started, gpu.failing_arms = [], later
    assert found.always_fails_on_head(ADD) is (later == (Arm.HEAD,))
    assert len(gpu.started) == trials


def test_what_failed_on_base_too_is_not_tried_again() -> None:
    gpu = failing(*Arm)
    found = pairs(gpu)
    found.measure([ADD], MAX_FAILURES)
    gpu.started, gpu.failing_arms = [], (Arm.HEAD,)
    assert found.always_fails_on_head(ADD) is False
    assert gpu.started == []


def test_a_sample_with_a_fault_is_counted_and_not_kept() -> None:
    found = pairs(Gpu(noise=0.0), watch=HotWatch())
    found.measure([ADD], 2)
    assert [log.log_ratios for log in found.logs] == [{}, {}]
    assert ["slowed down" in log.faults[ADD.id] for log in found.logs] == [True, True]
    assert found.medians(ADD, Arm.HEAD) == (None, None)
    assert "2 of 2 samples are invalid" in found.unfit()


def test_pairs_at_different_clocks_are_used_and_told_where_they_are_half_of_them() -> None:
    watch = ClockWatch()
    found = pairs(Gpu(noise=0.0, seconds={("Add", "head"): 1.05e-5}), watch=watch)
    found.measure([ADD], 4)
    watch.lower_mhz = 30
    found.measure([ADD], 3)
    assert found.clocks(ADD) == ""
    found.measure([ADD], 1)
    assert (found.unfit(), found.notes()) == ("", ())
    assert found.clocks(ADD) == "the sides run at different clocks: 1980 MHz (base) and 1950 MHz (head)"
    assert [len(log.log_ratios) for log in found.logs] == [1] * 8
    assert [list(log.clock_log_ratios.values()) for log in found.logs[4:]] == [
        [pytest.approx(math.log(1950 / 1980))]
    ] * 4


def test_clocks_that_differ_now_for_the_one_side_and_now_for_the_other_are_neithers() -> None:
    watch = ClockWatch(lower_mhz=30)
    found = pairs(Gpu(noise=0.0), watch=watch)
    found.measure([ADD], 2)
    watch.arm = Arm.BASE
    found.measure([ADD], 2)
    assert found.clocks(ADD) == "the clocks of the two slots differed in 4 of 4 pairs, neither side's the lower"


def test_a_neighbour_makes_the_pairs_unfit_and_the_own_workers_do_not() -> None:
    alone, beside = (pairs(Gpu(noise=0.0), watch=FakeWatch(processes=seen)) for seen in ((7,), (7, 99)))
    for found in (alone, beside):
        found.measure([ADD], 1)
    assert alone.unfit() == ""
    assert "is used by another process (99)" in beside.unfit()


class DyingSides(FakeSides):
    """Sides whose workers are replaced after each case, as those are that die."""

    def __init__(self, gpu: Gpu, watch: FakeWatch) -> None:
        super().__init__(gpu)
        self.watch, self.numbers = watch, itertools.count(100)

    def worker(self, mode: Mode, arm: Arm, *, anew: bool = False) -> Worker:
        worker = super().worker(mode, arm, anew=anew)
        sample, watch = worker.launch, self.watch

        def launch(case: Case, samples: int) -> tuple[float, ...]:
            worker.pid = next(self.numbers)  # type: ignore[misc] # a stand-in
            watch.processes = (worker.pid,)
            return sample(case, samples)

        worker.launch = launch  # type: ignore[method-assign] # a stand-in
        return worker


def test_a_worker_that_was_replaced_during_a_pair_is_no_neighbour() -> None:
    watch = FakeWatch()
    found = pairs(Gpu(noise=0.0), watch=watch)
    found.sides = DyingSides(Gpu(noise=0.0), watch)
    found.measure([ADD, MATMUL], 2)
    assert len({snapshot.processes for snapshot in found.snapshots}) == 4
    assert found.unfit() == ""


@dataclass(kw_only=True)
class Timekeeper:
    """Stands in for a worker that says when it starts and when it has ended, and is called for either."""

    name: str
    said: list[str]
    starts: Callable[[], object] = lambda: None
    ends: Callable[[], object] = lambda: None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.ends()
        self.said.append(f"{self.name} ended")

    def wake(self) -> None:
        self.said.append(f"{self.name} started")
        self.starts()


def fresh(*workers: Timekeeper) -> list[Worker]:
    return cast("list[Worker]", list(workers))


def test_a_pair_starts_while_the_one_before_ends_and_measures_when_that_is_gone() -> None:
    said: list[str] = []
    started = threading.Event()
    zero = Timekeeper(name="zero", said=said)
    one = Timekeeper(name="one", said=said, ends=lambda: started.wait(10))
    late = Timekeeper(name="late", said=said, starts=started.set)
    with Relay() as relay:
        with relay.workers(fresh(zero, one)):
            said.append("measured")
        with relay.workers(fresh(late)):
            said.append("measured again")
    assert said[2:] == ["measured", "late started", "one ended", "zero ended", "measured again", "late ended"]


def test_what_goes_wrong_in_a_pair_ends_its_workers_first() -> None:
    said: list[str] = []

    def go_wrong() -> None:
        with Relay() as relay, relay.workers(fresh(Timekeeper(name="zero", said=said))):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        go_wrong()
    assert said == ["zero started", "zero ended"]


def test_workers_that_do_not_end_are_told_of() -> None:
    def fail() -> None:
        raise OSError("no such process")

    def measure() -> None:
        with Relay() as relay, relay.workers(fresh(Timekeeper(name="zero", said=[], ends=fail))):
            pass

    with pytest.raises(OSError, match="no such process"):
        measure()

from __future__ import annotations

import math
import random
import re
from dataclasses import dataclass, field, replace
from datetime import date
from typing import TYPE_CHECKING, Self, cast

import numpy as np
import pytest

from flopwatch.config import Config
from flopwatch.errors import MachineError, UsageError
from flopwatch.gate.pairs import MAX_FAILURES, Observer
from flopwatch.gate.result import CaseVerdict
from flopwatch.gate.sides import Arm, Sides
from flopwatch.gate.times import SENTINELS, Times, design_for, measure_times
from flopwatch.measure.client import CaseFailed, Mode, Worker
from flopwatch.measure.machine import Snapshot
from flopwatch.measure.protocol import Method, Plan, Prepared
from flopwatch.model import Case, Choice, Failure, Mark
from flopwatch.stats import Stage, decide
from flopwatch.verdict import Side
from flopwatch.waivers import Waiver

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flopwatch.measure.nvml import Watch

PLAN = Plan(method=Method.GRAPH, calls=16, input_sets=16)
HARDWARE_THERMAL_BIT = 0x40


@dataclass(kw_only=True)
class Gpu:
    """What the stand-ins below share: how slow head is, by case, and what goes wrong."""

    slowdown: dict[str, float] = field(default_factory=dict)
    launch_slowdown: float = 0.0
    noise: float = 0.001
    plan: Plan = PLAN
    failing: dict[tuple[Arm, str], Failure] = field(default_factory=dict)
    recovers_after: int = 10**9
    interrupt_after: int = 10**9
    interrupt_launch_anew: bool = False
    lost_after: int = 10**9
    processes: tuple[int, ...] = ()
    #: Of an arm in a case, in all pairs or in some; and the pairs in which the GPU slows down.
    clocks_mhz: dict[tuple[Arm, str], int] = field(default_factory=dict)
    odd_pairs: frozenset[int] | None = None
    throttled_pairs: frozenset[int] = frozenset()
    ran: tuple[Arm, str] | None = None
    visits: int = 0
    started: list[Arm] = field(default_factory=list)
    anew: list[bool] = field(default_factory=list)
    random: random.Random = field(default_factory=lambda: random.Random(1))

    @property
    def pair(self) -> int:
        """The number of the pair that is measured, where nothing else starts workers."""
        return (len(self.started) - 1) // 2

    def clock(self) -> int:
        odd = self.odd_pairs is None or self.pair in self.odd_pairs
        return self.clocks_mhz.get(self.ran, 1980) if odd and self.ran else 1980


class FakeWorker:
    """Stands in for a worker, to test what is made of known times; the real one is tested in tests/measure."""

    def __init__(self, arm: Arm, gpu: Gpu) -> None:
        self.arm, self.gpu, self.pid = arm, gpu, 7
        self.offset = gpu.random.gauss(0, gpu.noise)  # of a process

    def __enter__(self) -> Self:
        self.gpu.started.append(self.arm)
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def wake(self) -> None:
        pass

    def prepare(self, case: Case, plan: Plan | None = None, pins: Sequence[Choice] = (), *, lent: str = "") -> Prepared:
        failure = self.gpu.failing.get((self.arm, case.suite))
        if failure and self.gpu.recovers_after > 0:
            self.gpu.recovers_after -= 1
            raise CaseFailed(failure, cast("Worker", self))
        return Prepared(plan=plan or self.gpu.plan, choices=tuple(pins), borrowed=bool(lent))

    def lend(self, case: Case, _to: Worker) -> str:
        return case.id

    def place(self, _case: Case) -> None:
        pass

    def release(self, _case: Case) -> None:
        pass

    def tune(self, _case: Case) -> tuple[Choice, ...]:
        return ()

    def visit(self, case: Case, samples: int) -> tuple[float, ...]:
        self.gpu.visits += 1
        self.gpu.ran = (self.arm, case.suite)
        if self.gpu.visits > self.gpu.interrupt_after:
            raise KeyboardInterrupt
        slowdown = self.gpu.slowdown.get(case.suite, 0.0) if self.arm is Arm.HEAD else 0.0
        return (1e-5 * math.exp(self.offset) * (1 + slowdown),) * samples

    def launch(self, _case: Case, samples: int) -> tuple[float, ...]:
        if self.gpu.interrupt_launch_anew and self.gpu.anew[-1]:
            raise KeyboardInterrupt
        slowdown = self.gpu.launch_slowdown if self.arm is Arm.HEAD else 0.0
        return (2e-5 * math.exp(5 * self.offset) * (1 + slowdown),) * samples


class FakeSides(Sides):
    def __init__(self, gpu: Gpu, config: Config) -> None:
        self.config, self.gpu = config, gpu

    def worker(self, mode: Mode, arm: Arm, *, anew: bool = False) -> Worker:
        assert mode is Mode.GPU
        self.gpu.anew.append(anew)
        return cast("Worker", FakeWorker(arm, self.gpu))


@dataclass(kw_only=True)
class FakeWatch:
    gpu: Gpu
    snapshots: int = 0

    def clock(self) -> int:
        return self.gpu.clock()

    def reason_bits(self) -> int:
        return HARDWARE_THERMAL_BIT if self.gpu.pair in self.gpu.throttled_pairs else 0

    def snapshot(self) -> Snapshot:
        self.snapshots += 1
        if self.snapshots > self.gpu.lost_after:
            raise MachineError("the GPU is lost")
        return Snapshot(
            time_s=0.0,
            sm_clock_mhz=1980,
            memory_clock_mhz=None,
            temperature_c=40,
            margin_c=40,
            power_w=None,
            free_memory_bytes=None,
            reasons=(),
            processes=self.gpu.processes,
        )


def verdict(suite: str, *, identical: bool = False, mark: Mark | None = None, reason: str = "") -> CaseVerdict:
    case = Case(suite=suite, values=("flopwatch",))
    if identical:
        return CaseVerdict(case=case, identical=True, mark=Mark.SAME)
    return CaseVerdict(case=case, base=Side(bits=("a",)), head=Side(bits=("a",)), mark=mark, reason=reason)


def measure(gpu: Gpu, verdicts: Sequence[CaseVerdict], *, config: Config | None = None, coins: int = 2) -> Times:
    sides = FakeSides(gpu, config or Config(packages=("toy",)))
    coin = random.Random(coins)
    design, _ = design_for(sides, [entry.case for entry in verdicts], None)
    return measure_times(
        sides,
        verdicts,
        watch=cast("Watch", FakeWatch(gpu=gpu)),
        observer=Observer(),
        toss=lambda: coin.random() < 0.5,
        design=design,
    )


CASES = ("Add", "Matmul", "Attention", "Norm", "Softmax")


def test_a_planted_slowdown_is_found_and_nothing_else_is_accused() -> None:
    found = measure(Gpu(slowdown={"Matmul": 0.02}), [verdict(name) for name in CASES])
    assert [entry.mark for entry in found.verdicts] == [Mark.SAME, Mark.SLOWER, Mark.SAME, Mark.SAME, Mark.SAME]
    slower = found.verdicts[1]
    assert slower.time is not None
    assert slower.time.estimate == pytest.approx(math.log(1.02), abs=0.002)
    assert slower.head.seconds == pytest.approx(1.02e-5, rel=0.01)
    assert slower.method == "graph"
    assert found.unfit == ""


def test_a_slowdown_inside_the_margin_is_no_regression_but_noted() -> None:
    config = Config(packages=("toy",), margins={"Matmul*": 3.0}, same_within_percent=4.0)
    found = measure(Gpu(slowdown={"Matmul": 0.02}), [verdict(name) for name in CASES], config=config)
    assert found.verdicts[1].mark is Mark.SAME
    assert found.verdicts[1].time is not None
    assert found.verdicts[1].time.inside_margin


def test_everything_slower_moves_the_median_case() -> None:
    found = measure(Gpu(slowdown=dict.fromkeys(CASES, 0.02)), [verdict(name) for name in CASES])
    assert found.suite is not None
    assert found.suite.mark is Mark.SLOWER


def test_a_launch_that_costs_more_is_a_regression_too() -> None:
    gpu = Gpu(launch_slowdown=0.2)
    found = measure(gpu, [verdict(name) for name in CASES])
    assert {entry.mark for entry in found.verdicts} == {Mark.SLOWER}
    assert {entry.reason for entry in found.verdicts} == {"a call costs the host more"}
    assert {entry.time.mark for entry in found.verdicts if entry.time} == {Mark.SAME}
    stages = [log.stage for log in found.pairs for _ in Arm]
    assert gpu.anew == [stage == "confirm launch" for stage in stages]


@pytest.mark.parametrize("broken", [False, True], ids=["slower", "broken"])
def test_the_launches_of_a_case_that_fails_the_run_anyway_are_not_confirmed(broken: bool) -> None:
    slowdown, mark = ({}, Mark.BROKEN) if broken else ({"Add": 0.05}, None)
    gpu = Gpu(slowdown=slowdown, launch_slowdown=0.5)
    found = measure(gpu, [verdict("Add", mark=mark)])
    assert "confirm launch" not in {log.stage for log in found.pairs}
    assert found.verdicts[0].launch is None
    assert found.verdicts[0].head.launch_seconds is not None  # told, not judged


def test_the_launches_of_a_slower_case_that_a_waiver_may_excuse_are_confirmed() -> None:
    waiver = Waiver(case="Add*", reason="known", owner="Ada", until=date(2100, 1, 1), limit_percent=10.0)
    gpu = Gpu(slowdown={"Add": 0.05}, launch_slowdown=0.5)
    found = measure(gpu, [verdict("Add")], config=Config(packages=("toy",), waivers=(waiver,)))
    launch = found.verdicts[0].launch
    assert launch is not None
    assert launch.mark is Mark.SLOWER


def test_which_slot_is_head_is_logged_and_turns_the_sign() -> None:
    found = measure(Gpu(slowdown={"Add": 0.05}), [verdict(name) for name in CASES])
    assert {log.head_slot for log in found.pairs} == {0, 1}
    assert all(log.log_ratios["Add[flopwatch]"] > 0.03 for log in found.pairs if "Add[flopwatch]" in log.log_ratios)


def test_slot_0_starts_first_whichever_arm_it_has() -> None:
    gpu = Gpu()
    found = measure(gpu, [verdict("Add")])
    expected = [(Arm.HEAD, Arm.BASE)[log.head_slot] for log in found.pairs]
    assert gpu.started[::2] == expected  # no sentinel, so nothing else is started


def test_a_case_that_cannot_be_captured_is_told_of() -> None:
    found = measure(Gpu(plan=Plan(method=Method.EVENTS, calls=1, input_sets=1)), [verdict("Add")])
    assert found.verdicts[0].method == "events"
    assert "not captured into a graph" in found.notes[0]


def test_identical_cases_are_not_measured_when_there_is_nothing_else() -> None:
    gpu = Gpu()
    found = measure(gpu, [verdict(name, identical=True) for name in CASES])
    assert (gpu.visits, found.pairs) == (0, ())
    assert {entry.mark for entry in found.verdicts} == {Mark.SAME}


def test_a_few_identical_cases_are_measured_as_sentinels() -> None:
    found = measure(Gpu(), [verdict("Add"), *(verdict(name, identical=True) for name in CASES[1:])])
    assert {len(log.log_ratios) for log in found.pairs} == {1 + SENTINELS}
    assert all(entry.time is None for entry in found.verdicts if entry.identical)
    assert "as a check on the machine" in found.notes[0]


def test_a_sentinel_that_fires_makes_the_run_unfit_and_takes_the_verdicts_back() -> None:
    gpu = Gpu(slowdown=dict.fromkeys(CASES, 0.05))  # a fault of the machine: it slows what is the same on both sides
    found = measure(gpu, [verdict("Add"), *(verdict(name, identical=True) for name in CASES[1:])])
    assert "the same code on both sides came out different" in found.unfit
    assert found.verdicts[0].mark is Mark.UNSURE


def test_a_case_that_keeps_failing_on_head_alone_is_broken_and_no_other_is_lost() -> None:
    crash = Failure(kind="WorkerDied", message="exit status -11 during visit")
    found = measure(Gpu(failing={(Arm.HEAD, "Norm"): crash}), [verdict(name) for name in CASES])
    assert [entry.mark for entry in found.verdicts] == [Mark.SAME, Mark.SAME, Mark.SAME, Mark.BROKEN, Mark.SAME]
    assert "exit status -11" in found.verdicts[3].reason
    attempts = sum("exit status" in log.faults.get("Norm[flopwatch]", "") for log in found.pairs)
    assert attempts == MAX_FAILURES


def test_a_case_that_fails_on_both_sides_is_unsure_not_broken() -> None:
    crash = Failure(kind="TimedOut", message="no answer to visit in 60 s")
    gpu = Gpu(failing={(arm, "Norm"): crash for arm in Arm})
    found = measure(gpu, [verdict(name) for name in CASES])
    assert found.verdicts[3].mark is Mark.UNSURE
    assert "TimedOut" in found.verdicts[3].reason
    assert {entry.mark for entry in found.verdicts if entry.case.suite != "Norm"} == {Mark.SAME}


def test_a_case_that_fails_now_and_then_is_unsure_though_head_had_the_bad_luck() -> None:
    crash = Failure(kind="WorkerDied", message="exit status -9 during visit")
    gpu = Gpu(failing={(Arm.HEAD, "Norm"): crash}, recovers_after=MAX_FAILURES + 2)
    found = measure(gpu, [verdict(name) for name in CASES])
    assert found.verdicts[3].mark is Mark.UNSURE


def test_a_gpu_that_is_lost_makes_the_run_unfit_and_loses_nothing_that_was_measured() -> None:
    found = measure(Gpu(slowdown={"Add": 0.05}, lost_after=3 * len(CASES) + 1), [verdict(name) for name in CASES])
    assert "the GPU is lost" in found.unfit
    assert {entry.mark for entry in found.verdicts} == {Mark.UNSURE}
    assert len(found.pairs) == 3


def test_a_neighbour_on_the_gpu_makes_the_run_unfit() -> None:
    own = FakeWorker(Arm.BASE, Gpu()).pid
    assert measure(Gpu(processes=(own,)), [verdict("Add")]).unfit == ""
    found = measure(Gpu(processes=(own, 999), slowdown={"Add": 0.05}), [verdict("Add")])
    assert "999" in found.unfit
    assert found.verdicts[0].mark is Mark.UNSURE


def test_a_side_that_always_runs_at_a_lower_clock_is_judged_by_its_time() -> None:
    gpu = Gpu(slowdown={"Matmul": 0.03}, clocks_mhz={(Arm.BASE, "Matmul"): 1755, (Arm.HEAD, "Matmul"): 1720})
    found = measure(gpu, [verdict(name) for name in CASES])

    assert [entry.mark for entry in found.verdicts] == [Mark.SAME, Mark.SLOWER, Mark.SAME, Mark.SAME, Mark.SAME]
    assert [entry.notes for entry in found.verdicts] == [
        (),
        ("the sides run at different clocks: 1755 MHz (base) and 1720 MHz (head)",),
        (),
        (),
        (),
    ]
    matmul = found.verdicts[1]
    assert matmul.time is not None
    assert matmul.time.pairs == 8
    assert matmul.head.seconds == pytest.approx(1.03e-5, rel=0.01)
    assert [log.clock_log_ratios for log in found.pairs] == [
        {"Matmul[flopwatch]": pytest.approx(math.log(1720 / 1755))}
    ] * len(found.pairs)
    assert found.unfit == ""


def test_a_side_that_is_faster_at_its_own_clock_is_called_faster() -> None:
    found = measure(Gpu(slowdown={"Add": -0.03}, clocks_mhz={(Arm.HEAD, "Add"): 1900}), [verdict("Add")])
    assert (found.verdicts[0].mark, found.unfit) == (Mark.FASTER, "")


def test_clocks_that_differ_in_a_few_pairs_are_no_news() -> None:
    clocks = {(arm, name): 1980 - 100 * number for name in CASES for number, arm in enumerate(Arm)}
    found = measure(Gpu(clocks_mhz=clocks, odd_pairs=frozenset({2})), [verdict(name) for name in CASES])

    assert [len(log.clock_log_ratios) for log in found.pairs[:4]] == [0, 0, len(CASES), 0]
    assert {entry.time.pairs for entry in found.verdicts if entry.time} == {len(found.pairs)}
    assert ({entry.notes for entry in found.verdicts}, found.notes) == ({()}, ())


def test_a_pair_during_which_the_gpu_slowed_down_is_dropped_whatever_the_clocks() -> None:
    gpu = Gpu(slowdown={"Add": 0.03}, clocks_mhz={(Arm.HEAD, "Add"): 1900}, throttled_pairs=frozenset({3}))
    found = measure(gpu, [verdict("Add")])

    assert "slowed down" in found.pairs[3].faults["Add[flopwatch]"]
    assert [len(log.log_ratios) for log in found.pairs] == [number != 3 for number in range(len(found.pairs))]
    assert (found.verdicts[0].mark, found.unfit) == (Mark.SLOWER, "")


def test_an_interrupted_run_too_is_worth_its_pairs_at_different_clocks() -> None:
    gpu = Gpu(slowdown={"Add": 0.05}, interrupt_after=600, clocks_mhz={(Arm.HEAD, "Add"): 1900})
    add = measure(gpu, [verdict(name) for name in CASES]).verdicts[0].time
    assert add is not None
    assert add.estimate == pytest.approx(math.log(1.05), abs=0.005)


def test_an_interrupt_while_launches_are_confirmed_keeps_what_was_proved_of_the_time() -> None:
    gpu = Gpu(slowdown={"Add": 0.05}, launch_slowdown=0.5, interrupt_launch_anew=True)
    found = measure(gpu, [verdict(name) for name in CASES])
    assert found.interrupted
    assert found.verdicts[0].mark is Mark.SLOWER
    assert {entry.mark for entry in found.verdicts[1:]} == {Mark.SAME}


def test_broken_numbers_stay_broken_whatever_the_time() -> None:
    broken = verdict("Add", mark=Mark.BROKEN, reason="NaN")
    found = measure(Gpu(slowdown={"Add": 0.1}), [broken, *(verdict(name) for name in CASES[1:])])
    assert (found.verdicts[0].mark, found.verdicts[0].reason) == (Mark.BROKEN, "NaN")


def test_an_interrupted_run_says_what_its_pairs_are_worth_and_judges_nothing() -> None:
    gpu = Gpu(slowdown={"Add": 0.05}, interrupt_after=600)
    found = measure(gpu, [verdict(name) for name in CASES])
    assert found.interrupted
    assert {entry.mark for entry in found.verdicts} == {Mark.UNSURE}
    add = found.verdicts[0].time
    assert add is not None
    assert add.estimate == pytest.approx(math.log(1.05), abs=0.005)
    assert add.pairs == len(found.pairs) > 0


def test_a_budget_says_what_it_buys() -> None:
    sides = FakeSides(Gpu(), Config(packages=("toy",)))
    cases = [Case(suite="Add", values=(str(index),)) for index in range(60)]
    design, promise = design_for(sides, cases, 200)
    assert design.pairs == 13
    assert re.sub(r"of 0\.6\d %", "of 0.6x %", promise) == (
        "13 pairs of 60 cases, 186 s of 200 s, find a slowdown of 0.6x % with 95 % probability, at the usual error of a"
        " pair, 0.09 %; flagged and open cases get further pairs"
    )


def test_a_budget_has_room_for_the_sentinels() -> None:
    sides = FakeSides(Gpu(), Config(packages=("toy",)))
    cases = [Case(suite="Add", values=(str(index),)) for index in range(10)]
    alone, _ = design_for(sides, cases, 60)
    beside, promise = design_for(sides, cases, 60, identical=100)
    assert (alone.pairs, beside.pairs) == (18, 15)
    assert promise.startswith("15 pairs of 10 cases, 59 s of 60 s")


def test_a_budget_promises_the_hardest_case_no_less_than_it_finds() -> None:
    sides = FakeSides(Gpu(), Config(packages=("toy",), margins={"Norm*": 3.0}))
    _, promise = design_for(sides, [Case(suite=name, values=("1",)) for name in CASES], 60)
    median, hardest = (float(percent) for percent in re.findall(r"of (\d\.\d\d) %", promise))
    assert 0.5 < median < 0.7
    assert 3.0 < hardest < 3.2


@pytest.mark.parametrize(("budget_s", "margin_percent", "pairs"), [(20.0, 0.5, 9), (50.0, 0.0, 22)])
def test_the_promised_slowdown_is_found(budget_s: float, margin_percent: float, pairs: int) -> None:
    sides = FakeSides(Gpu(), Config(packages=("toy",), margin_percent=margin_percent))
    cases = [Case(suite="Add", values=(str(index),)) for index in range(5)]
    design, promise = design_for(sides, cases, budget_s)
    (percent,) = re.findall(r"of (\d\.\d\d) %", promise)
    rng = np.random.default_rng(20261121)
    effects = np.array([[math.log1p(float(percent) / 100)], *[[0.0]] * 4])

    def sample(rows: Sequence[int], number: int, _stage: Stage) -> np.ndarray:
        return np.asarray(effects[list(rows)] + design.prior.deviation * rng.normal(size=(len(rows), number)))

    margins = [math.log1p(margin_percent / 100)] * 5
    once = replace(design, settle_pairs=0)  # settling accuses nobody
    found = [decide(once, margins, sample).series[0].mark is Mark.SLOWER for _ in range(200)]

    assert design.pairs == pairs
    assert np.mean(found) >= 0.93  # 95 %, less a standard error of 1.5 points


def test_a_budget_too_small_for_any_verdict_is_an_error() -> None:
    sides = FakeSides(Gpu(), Config(packages=("toy",)))
    with pytest.raises(UsageError, match="a budget of 5 s is too small"):
        design_for(sides, [Case(suite="Add", values=("1",))] * 60, 5)

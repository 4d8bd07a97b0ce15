from __future__ import annotations

import contextlib
import itertools
import math
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Self, cast

import pytest
from tests.measure.conftest import write_code

from flopwatch.errors import FlopwatchError
from flopwatch.measure import noise
from flopwatch.measure.client import CaseFailed, Mode, NurseryFailed, Worker
from flopwatch.measure.noise import GRACE_S, Noise, choose_cases, measure_noise, twins
from flopwatch.measure.nvml import Watch
from flopwatch.measure.pair import PairSample
from flopwatch.measure.protocol import DeclaredCase, Hello, Method, Plan
from flopwatch.model import Case, Choice, Failure

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from flopwatch.measure.client import Code
    from flopwatch.measure.pair import Meter, Slots

PLAN = Plan(method=Method.GRAPH, calls=16, input_sets=4)
SUITE = '''\
"""A suite of one kernel in several sizes, and a case that fails."""

import torch
from flopwatch import Suite


class Increment(Suite):
    """out = x + 1."""

    params = (["65536", "1048576", "16777216", "none"],)
    param_names = ("n",)

    def inputs(self, n, *, seed):
        return (torch.randn(int(n), device="cuda", generator=torch.Generator(device="cuda").manual_seed(seed)),)

    def run(self, x):
        return x + 1.0

    def reference(self, x):
        return x.double() + 1

    def flops(self, n):
        return 0

    def bytes_moved(self, n):
        return 0 if n == "none" else 8 * int(n)
'''


def declared(name: str, seconds: float, *, own: bool = True) -> DeclaredCase:
    case = Case(suite=name, values=("flopwatch" if own else "torch",))
    return DeclaredCase(case=case, small=case, own=own, max_diff_eps=None, flops=0.0, bytes_moved=4.8e12 * seconds)


def failed(kind: str, message: str = "no scale today\nnor tomorrow") -> CaseFailed:
    return CaseFailed(Failure(kind=kind, message=message))


EIGHT = tuple(declared(f"Case{index}", 2.0**index * 1e-6) for index in range(8))


@dataclass
class Bench:
    """Workers and pairs that take their time by a clock of their own.

    Attributes:
        entries: what the suites declare.
        tuning_s: seconds that tuning takes; a case may have its own.
        failing: cases that cannot be run: at "tune", or from that pair on.
        fault: of every pair of some cases.
        pair_s: seconds that a case takes in a pair.
        interrupt_at: the sample at which the user interrupts.
    """

    entries: tuple[DeclaredCase, ...] = EIGHT
    import_failures: dict[str, str] = field(default_factory=dict)
    tuning_s: float = 0.1
    tuning_s_of: dict[str, float] = field(default_factory=dict)
    failing: dict[str, str | int] = field(default_factory=dict)
    fault: dict[str, str] = field(default_factory=dict)
    pair_s: float = 0.2
    interrupt_at: int = -1
    now_s: float = 1000.0
    started: list[int] = field(default_factory=list)
    sampled: list[str] = field(default_factory=list)
    plans: list[Plan | None] = field(default_factory=list)
    pins: set[tuple[str, str]] = field(default_factory=set)

    def measure(self, limit_s: float = 20.0) -> Noise:
        return measure_noise(
            cast("Callable[[int], Worker]", self.worker), limit_s=limit_s, sample=self.sample, clock=lambda: self.now_s
        )

    def worker(self, slot: int) -> ToyWorker:
        self.started.append(slot)
        return ToyWorker(self)

    def sample(
        self,
        slots: Slots,
        case: Case,
        *,
        plan: Plan | None,
        pins: tuple[Sequence[Choice], Sequence[Choice]],
        meter: Meter | None,
    ) -> PairSample:
        assert slots[0] is not slots[1]
        assert meter is None
        if len(self.sampled) == self.interrupt_at:
            raise KeyboardInterrupt
        self.now_s += self.pair_s
        self.sampled.append(case.suite)
        self.plans.append(plan)
        self.pins |= {(case.suite, choice.config) for own in pins for choice in own}
        number = self.sampled.count(case.suite)
        if self.failing.get(case.suite) == number:
            raise failed("ArithmeticError")
        # By turns 0.1 % to either side.
        ratio = math.exp(0.001 * (-1) ** number)
        return PairSample(
            case=case,
            plan=PLAN,
            seconds=((((1e-5,),),), (((1e-5 * ratio,),),)),
            fault=self.fault.get(case.suite, ""),
        )


@dataclass(eq=False)
class ToyWorker(contextlib.AbstractContextManager["ToyWorker"]):
    """Says hello and tunes."""

    bench: Bench

    def __exit__(self, *_: object) -> None:
        pass

    @property
    def hello(self) -> Hello:
        return Hello(
            gpu="NVIDIA H200",
            gpu_uuid="GPU-1",
            compute_capability=(9, 0),
            versions={},
            declared=self.bench.entries,
            import_failures=self.bench.import_failures,
        )

    def tune(self, case: Case) -> tuple[Choice, ...]:
        self.bench.now_s += self.bench.tuning_s_of.get(case.suite, self.bench.tuning_s)
        if self.bench.failing.get(case.suite) == "tune":
            raise failed("CompilationError")
        return (Choice(kernel="kernel", config=case.suite),)

    def abandon(self) -> None:
        raise AssertionError("the time is not up")


class Stuck(ToyWorker):
    """Answers nothing until it is stopped."""

    def __init__(self, bench: Bench) -> None:
        super().__init__(bench)
        self.stopped = threading.Event()

    def tune(self, case: Case) -> tuple[Choice, ...]:
        if case.suite in self.bench.failing:
            assert self.stopped.wait(10)
            raise failed("WorkerDied")
        return super().tune(case)

    def abandon(self) -> None:
        self.stopped.set()


class Mute(Stuck):
    """Does not even say hello."""

    @property
    def hello(self) -> Hello:
        assert self.stopped.wait(10)
        raise FlopwatchError("the gpu worker does not start", why="exit status -9 during hello")


def whats(found: Noise) -> list[str]:
    return [fault.what for fault in found.faults]


def names(cases: Sequence[Case]) -> list[str]:
    return [case.suite for case in cases]


def test_cases_are_spread_from_the_shortest_to_the_longest() -> None:
    entries = [declared(f"{index:03}", index * 1e-6) for index in range(101)]

    assert sorted(names(choose_cases(reversed(entries)))) == ["000", "020", "040", "060", "080", "100"]


def test_the_first_cases_to_be_tuned_are_spread_as_well() -> None:
    entries = [declared(f"{index:03}", index * 1e-6) for index in range(101)]

    assert names(choose_cases(entries))[:3] == ["040", "100", "000"]


@pytest.mark.parametrize("number", range(7))
def test_up_to_six_cases_are_all_chosen_once(number: int) -> None:
    entries = [declared(str(index), index * 1e-6) for index in range(number)]

    assert sorted(names(choose_cases(entries))) == [str(index) for index in range(number)]


def test_peers_are_not_chosen() -> None:
    entries = [declared("Ours", 1e-6), declared("Theirs", 2e-6, own=False)]

    assert names(choose_cases(entries)) == ["Ours"]


def test_long_cases_are_chosen_only_where_there_is_no_other_and_then_one() -> None:
    slow, slower = declared("Slow", 0.5), declared("Slower", 0.7)

    assert names(choose_cases([slower, slow])) == ["Slow"]
    assert names(choose_cases([slower, declared("Fast", 1e-6), slow])) == ["Fast"]


def test_cases_of_one_duration_are_chosen_by_their_names() -> None:
    entries = [declared(name, 1e-6) for name in "gfedcba"]

    assert choose_cases(entries) == choose_cases(entries[::-1])


def test_pairs_are_measured_until_the_limit() -> None:
    bench = Bench()
    found = bench.measure()

    assert [len(found.log_ratios[entry.case.id]) for entry in EIGHT if entry.case.id in found.log_ratios] == [16] * 6
    assert bench.now_s == pytest.approx(1000 + 6 * 0.1 + 16 * 6 * 0.2)
    assert bench.now_s <= 1020
    assert found.declared == 8
    assert found.faults == ()


def test_each_pair_has_fresh_processes_and_one_more_tunes() -> None:
    bench = Bench()
    bench.measure(limit_s=5.0)

    assert bench.started == [0, *[0, 1] * 3]


def test_a_pair_takes_its_cases_in_a_random_order() -> None:
    bench = Bench()
    bench.measure()
    orders = {tuple(bench.sampled[start : start + 6]) for start in range(0, len(bench.sampled), 6)}

    assert len(orders) > 1
    assert len({frozenset(order) for order in orders}) == 1


def test_both_slots_run_what_was_tuned_under_the_first_pairs_plan() -> None:
    bench = Bench(entries=EIGHT[:1])
    bench.measure()

    assert bench.pins == {("Case0", "Case0")}
    assert bench.plans[:3] == [None, PLAN, PLAN]


def test_log_ratios_and_seconds_are_the_pairs_own() -> None:
    found = Bench(entries=EIGHT[:1]).measure(limit_s=0.0)

    assert found.log_ratios["Case0[flopwatch]"] == pytest.approx((-0.001, 0.001, -0.001))
    assert found.seconds == {"Case0[flopwatch]": pytest.approx(1e-5)}


def test_three_pairs_are_measured_though_they_end_late() -> None:
    found = Bench(entries=EIGHT[:1], pair_s=7.5).measure()

    assert {case: len(ratios) for case, ratios in found.log_ratios.items()} == {"Case0[flopwatch]": 3}


def test_no_pair_is_begun_that_would_end_after_the_limit() -> None:
    bench = Bench(entries=EIGHT[:1], pair_s=4.0)
    bench.measure()

    assert len(bench.sampled) == 4  # 0.1 s of tuning, and 16 s


def test_cases_that_are_not_tuned_in_a_third_of_the_limit_are_left_out() -> None:
    found = Bench(tuning_s=2.5).measure()

    assert sorted(found.seconds) == ["Case0[flopwatch]", "Case3[flopwatch]", "Case7[flopwatch]"]
    assert whats(found) == ["3 of 6 cases were not tuned"]
    assert found.faults[0].why == "tuning may take 7 s here"


def test_one_case_is_tuned_however_long_it_takes() -> None:
    found = Bench(tuning_s=12.0).measure()

    assert list(found.log_ratios) == ["Case3[flopwatch]"]
    assert whats(found) == ["5 of 6 cases were not tuned"]


def test_a_case_that_takes_too_long_to_tune_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(failing={"Case7": "hangs"})
    monkeypatch.setattr(noise, "TUNING_SHARE", 0.12 / 20)  # the second case is due 20 ms after the first was tuned
    monkeypatch.setattr(bench, "worker", lambda _: Stuck(bench))
    found = bench.measure()

    assert list(found.log_ratios) == ["Case3[flopwatch]"]
    assert whats(found) == ["5 of 6 cases were not tuned"]


@pytest.mark.parametrize(("kind", "doing"), [(Stuck, "tuning Case3[flopwatch]"), (Mute, "importing and tuning")])
def test_where_nothing_answers_the_end_comes_nevertheless(
    kind: type[Stuck], doing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(failing={entry.case.suite: "hangs" for entry in EIGHT})
    monkeypatch.setattr(bench, "worker", lambda _: kind(bench))
    found = bench.measure(limit_s=0.02 - GRACE_S)

    assert found.log_ratios == {}
    assert whats(found) == ["no time was left for the noise floor"]
    assert found.faults[0].why == f"after 0 s it was still {doing}"


def test_a_pair_that_hangs_is_stopped_and_the_pairs_before_it_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(entries=EIGHT[:1], tuning_s=0.0, pair_s=0.0)
    begun = iter(itertools.count())
    sample = bench.sample

    def hang(slots: tuple[Stuck, Stuck], case: Case, **options: object) -> PairSample:
        if next(begun) == 2:
            assert all(slot.stopped.wait(10) for slot in slots)
            raise failed("WorkerDied")
        return sample(cast("Slots", slots), case, **options)  # type: ignore[arg-type]  # passed through

    monkeypatch.setattr(bench, "worker", lambda _: Stuck(bench))
    monkeypatch.setattr(bench, "sample", hang)
    found = bench.measure(limit_s=0.05 - GRACE_S)

    assert len(found.log_ratios["Case0[flopwatch]"]) == 2
    assert found.faults == ()


def test_a_case_that_fails_takes_no_other_along() -> None:
    found = Bench(failing={"Case3": "tune", "Case7": 1}).measure()

    assert len(found.log_ratios) == 4
    assert whats(found) == ["2 of 6 cases of the noise floor fail"]
    assert found.faults[0].why == "Case3[flopwatch]: CompilationError: no scale today"


def test_a_case_that_fails_later_keeps_its_pairs_and_is_not_tried_again() -> None:
    bench = Bench(failing={"Case0": 3})
    found = bench.measure()

    assert len(found.log_ratios["Case0[flopwatch]"]) == 2
    assert bench.sampled.count("Case0") == 3


def test_where_all_cases_fail_nothing_is_measured() -> None:
    bench = Bench(failing={entry.case.suite: "tune" for entry in EIGHT})
    found = bench.measure()

    assert (found.log_ratios, bench.sampled) == ({}, [])
    assert whats(found) == ["6 of 6 cases of the noise floor fail"]


def test_samples_at_fault_do_not_count() -> None:
    found = Bench(entries=EIGHT[:2], fault={"Case1": "the clocks differ"}).measure(limit_s=2.0)

    assert list(found.log_ratios) == ["Case0[flopwatch]"]
    assert whats(found) == ["4 of 8 samples of the noise floor are invalid"]
    assert found.faults[0].why == "Case1[flopwatch]: the clocks differ"


def test_an_interrupt_keeps_what_was_measured() -> None:
    found = Bench(interrupt_at=9).measure()

    assert sum(map(len, found.log_ratios.values())) == 9
    assert whats(found) == ["the noise floor was interrupted"]


def test_an_interrupt_before_anything_was_measured_is_told() -> None:
    found = Bench(interrupt_at=0).measure()

    assert found.log_ratios == {}
    assert whats(found) == ["the noise floor was interrupted"]


def test_suites_without_a_case_are_told() -> None:
    found = Bench(entries=(declared("Theirs", 1e-6, own=False),)).measure()

    assert (found.declared, whats(found)) == (0, ["the suites declare no case"])


def test_suites_that_do_not_import_are_told_and_the_others_are_measured() -> None:
    causes = {"benchmarks.broken": "ModuleNotFoundError: No module named 'gone'"}
    some, none = (Bench(entries=entries, import_failures=causes).measure() for entries in (EIGHT, ()))

    assert (some.import_failures, len(some.log_ratios), some.faults) == (causes, 6, ())
    assert (none.import_failures, len(none.log_ratios), none.faults) == (causes, 0, ())


def test_a_worker_that_does_not_start_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()
    dead = Mute(bench)
    dead.stopped.set()
    monkeypatch.setattr(bench, "worker", lambda _: dead)

    with pytest.raises(FlopwatchError, match="does not start"):
        bench.measure()


class ToyNursery(contextlib.nullcontext[None]):
    """Takes the place of a nursery; of those that are started, some fail."""

    started: ClassVar[list[ToyNursery]] = []
    failing: ClassVar[set[int]] = set()

    def __init__(self, code: Code) -> None:
        super().__init__()
        self.code = code
        self.started.append(self)

    def __enter__(self) -> Self:  # type: ignore[override]  # a context of its own
        return self

    def ready(self) -> None:
        if self.started.index(self) in self.failing:
            raise NurseryFailed(Failure(kind="UsageError", message="CUDA was initialised"))


@pytest.mark.parametrize("failing", [set(), {1}])
def test_twins_are_forked_from_nurseries_of_their_own_or_both_started_anew(
    failing: set[int], weather: Code, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ToyNursery, "started", [])
    monkeypatch.setattr(ToyNursery, "failing", failing)
    monkeypatch.setattr(noise, "Nursery", ToyNursery)
    with twins(weather) as start:
        workers = [start(slot) for slot in (0, 1, 0)]

    zero, one = ToyNursery.started
    assert [worker._nursery for worker in workers] == ([None] * 3 if failing else [zero, one, zero])
    assert {worker.mode for worker in workers} == {Mode.GPU}
    assert [nursery.code for nursery in ToyNursery.started] == [weather, weather]


@pytest.mark.gpu
def test_on_a_gpu_pairs_of_the_same_code_come_out_alike(tmp_path: Path) -> None:
    code = write_code(tmp_path, kernels="", suite=SUITE)
    with twins(code) as worker:
        with worker(0) as asked:
            uuid = asked.hello.gpu_uuid
        assert uuid is not None
        with Watch(uuid) as watch:
            found = measure_noise(worker, meter=watch, limit_s=8.0)

    assert sorted(found.seconds) == [f"Increment[{n},flopwatch]" for n in ("1048576", "16777216", "65536")]
    assert found.seconds["Increment[65536,flopwatch]"] < found.seconds["Increment[16777216,flopwatch]"] < 1e-3
    assert min(map(len, found.log_ratios.values())) >= 2
    assert max(abs(ratio) for ratios in found.log_ratios.values() for ratio in ratios) < 0.05
    assert [fault.why.partition(":")[0] for fault in found.faults if "fail" in fault.what] == [
        "Increment[none,flopwatch]"
    ]

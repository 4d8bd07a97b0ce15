from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from flopwatch.gate.sides import Arm
from flopwatch.measure.client import CaseFailed, Code, Mode
from flopwatch.measure.protocol import CaseFacts, Gathered, Hello
from flopwatch.model import Case, Failure, KernelFacts
from flopwatch.static.devices import find_device
from flopwatch.static.recorder import Autotune
from flopwatch.survey.lanes import Lanes, Lot, choose_lot
from flopwatch.survey.store import Outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

CASES = [Case(suite="Toy", values=(str(number), "flopwatch")) for number in range(12)]
HELLO = Hello(gpu=None, gpu_uuid=None, compute_capability=None, versions={}, declared=(), import_failures={})
DIED = Failure(kind="WorkerDied", message="exit status -9 during keep")


class FakeWorker:
    """Stands in for a worker: keeps cases, fails those it is told to fail, once each."""

    def __init__(self, code: Code, failures: dict[Case, Failure], seconds: float) -> None:
        self.code, self.failures, self.seconds = code, failures, seconds
        self.hello = HELLO
        self.kept: list[Case] = []
        self.seen: list[Case] = []
        self.closed = False
        self.stopped = threading.Event()

    def start(self) -> None:
        pass

    def keep(self, case: Case, _autotune: Autotune) -> None:
        self.seen.append(case)
        if self.stopped.wait(self.seconds):
            raise CaseFailed(Failure(kind="Abandoned", message="the run was stopped"))
        failure = self.failures.pop(case, None)
        if failure is not None:
            if failure.kind == DIED.kind:
                self.kept = []
            raise CaseFailed(failure)
        self.kept.append(case)

    def gather(self) -> Gathered:
        facts = [
            KernelFacts(kernel=case.values[0], device=self.code.device, config="", variant="", chosen=True)
            for case in self.kept
        ]
        cases = (CaseFacts(case=case, facts=(fact,)) for case, fact in zip(self.kept, facts, strict=True))
        return Gathered(cases=tuple(cases), loaded=(f"/lib/{self.code.device}.py",))

    def abandon(self) -> None:
        self.stopped.set()

    def close(self) -> None:
        self.closed = True


class Workshop:
    """Makes fake workers, and remembers them."""

    def __init__(self, failures: dict[Case, Failure] | None = None, *, seconds: float = 0.002) -> None:
        self.failures = failures or {}
        self.seconds = seconds
        self.made: list[FakeWorker] = []
        self.told: list[tuple[int, int]] = []

    def lanes(self, lots: Sequence[Lot]) -> Lanes:
        return Lanes(lots, autotune=Autotune.ALL, tell=lambda done, planned: self.told.append((done, planned)))

    def worker(self, mode: Mode, code: Code) -> FakeWorker:
        assert mode is Mode.STATIC
        self.made.append(FakeWorker(code, self.failures, self.seconds))
        return self.made[-1]


def lot(device: str, arm: Arm = Arm.HEAD, *, waiting: int | None = None, workers: int = 0) -> Lot:
    made = Lot(arm, find_device(device), Code(benchmarks=Path("benchmarks"), device=device))
    made.workers = workers
    if waiting is not None:
        made.fill(CASES[:waiting])
    return made


@pytest.fixture
def hire(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Workshop]:
    """Have lanes take the workers of a workshop."""

    def hired(failures: dict[Case, Failure] | None = None, *, seconds: float = 0.002) -> Workshop:
        workshop = Workshop(failures, seconds=seconds)
        monkeypatch.setattr("flopwatch.survey.lanes.Worker", workshop.worker)
        return workshop

    return hired


@pytest.fixture(autouse=True)
def _two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1}, raising=False)


def test_every_case_of_every_lot_is_compiled_once(hire: Callable[..., Workshop]) -> None:
    workshop = hire()
    lots = [lot(name) for name in ("a100", "h100", "h200", "b200")]
    workshop.lanes(lots).compile(CASES, lambda _: [])
    assert [sorted(found.outcomes, key=CASES.index) for found in lots] == [CASES] * 4
    assert sorted(case.id for worker in workshop.made for case in worker.seen) == sorted(case.id for case in CASES * 4)
    assert {fact.device for outcome in lots[3].outcomes.values() for fact in outcome.facts} == {"b200"}
    assert [found.loaded for found in lots] == [{f"/lib/{found.device.key}.py"} for found in lots]
    assert workshop.told[0] == (0, 48)
    assert max(workshop.told) == (48, 48)
    assert all(worker.closed for worker in workshop.made)


def test_workers_of_one_lot_do_not_take_neighbours(hire: Callable[..., Workshop]) -> None:
    workshop = hire(seconds=0.02)
    workshop.lanes([lot("h200")]).compile(CASES, lambda _: [])
    first, second = sorted((worker.seen for worker in workshop.made), key=lambda seen: CASES.index(seen[0]))
    assert first[:3] == CASES[:3]
    assert second[:3] == CASES[6:9]


def test_what_is_known_is_not_compiled_again(hire: Callable[..., Workshop]) -> None:
    workshop = hire()
    known = lot("h200")
    known.outcomes = {case: Outcome(case=case) for case in CASES[1:]}
    workshop.lanes([known]).compile(CASES, lambda _: [])
    assert [worker.seen for worker in workshop.made] == [[CASES[0]]]


def test_who_does_not_know_the_cases_asks_the_first_worker(hire: Callable[..., Workshop]) -> None:
    workshop = hire()
    lots = [lot("h200"), lot("a100")]
    asked: list[Hello] = []

    def ask(hello: Hello) -> list[Case]:
        asked.append(hello)
        return CASES[:3]

    assert workshop.lanes(lots).compile(None, ask) == HELLO
    assert asked == [HELLO]
    assert [sorted(found.outcomes, key=CASES.index) for found in lots] == [CASES[:3]] * 2


def test_workers_that_nobody_needs_are_stopped(hire: Callable[..., Workshop]) -> None:
    workshop = hire(seconds=0.05)
    workshop.lanes([lot("h200")]).compile(None, lambda _: CASES[:1])
    assert [len(worker.seen) for worker in workshop.made] in ([1, 0], [0, 1])
    idle = next(worker for worker in workshop.made if not worker.seen)
    assert idle.stopped.is_set()
    assert idle.closed


def test_a_case_that_cannot_be_compiled_has_its_cause_and_the_others_their_facts(hire: Callable[..., Workshop]) -> None:
    failures = {CASES[3]: Failure(kind="UsageError", message="x.item() needs a value\n  do: something\nelse")}
    found = lot("h200")
    hire(failures).lanes([found]).compile(CASES, lambda _: [])
    failed = found.outcomes[CASES[3]]
    assert (failed.cause, failed.passing) == ("UsageError: x.item() needs a value else", False)
    assert sum(bool(outcome.facts) for outcome in found.outcomes.values()) == len(CASES) - 1
    assert found.loaded == {"/lib/h200.py"}


def test_what_a_worker_kept_that_died_is_compiled_again_and_not_remembered(hire: Callable[..., Workshop]) -> None:
    workshop = hire({CASES[7]: DIED})
    found = lot("h200")
    workshop.lanes([found]).compile(CASES, lambda _: [])
    died = found.outcomes[CASES[7]]
    assert (died.cause, died.passing) == ("WorkerDied: exit status -9 during keep", True)
    assert [case for case in CASES if not found.outcomes[case].facts] == [CASES[7]]
    assert found.loaded is None
    assert max(workshop.told) == (12, 12)


def test_what_a_worker_took_with_it_that_dies_as_it_tells_may_be_otherwise_next_time(
    monkeypatch: pytest.MonkeyPatch, hire: Callable[..., Workshop]
) -> None:
    monkeypatch.setattr(FakeWorker, "gather", lambda _: (_ for _ in ()).throw(CaseFailed(DIED)))
    lost = lot("h200")
    hire().lanes([lost]).compile(CASES[:2], lambda _: [])
    assert {case: (outcome.cause, outcome.passing) for case, outcome in lost.outcomes.items()} == dict.fromkeys(
        CASES[:2], ("WorkerDied: exit status -9 during keep", True)
    )
    assert lost.loaded is None


def test_an_error_that_is_no_result_ends_the_run(
    monkeypatch: pytest.MonkeyPatch, hire: Callable[..., Workshop]
) -> None:
    workshop = hire(seconds=0.01)
    monkeypatch.setattr(FakeWorker, "gather", lambda _: (_ for _ in ()).throw(OSError("no pipes left")))
    with pytest.raises(OSError, match="no pipes left"):
        workshop.lanes([lot("h200"), lot("a100")]).compile(CASES, lambda _: [])
    assert all(worker.closed for worker in workshop.made)


def test_a_worker_that_does_not_start_leaves_nobody_behind(hire: Callable[..., Workshop]) -> None:
    workshop = hire()

    def ask(_: Hello) -> list[Case]:
        raise OSError("no suites")

    with pytest.raises(OSError, match="no suites"):
        workshop.lanes([lot("h200"), lot("a100")]).compile(None, ask)
    assert len(workshop.made) == 2
    assert all(worker.stopped.is_set() and worker.closed for worker in workshop.made)


def test_an_interrupt_stops_every_worker(hire: Callable[..., Workshop]) -> None:
    workshop = hire(seconds=600)
    timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
    start = time.monotonic()
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        workshop.lanes([lot("h200"), lot("a100")]).compile(CASES, lambda _: [])
    assert time.monotonic() - start < 5
    assert all(worker.stopped.is_set() and worker.closed for worker in workshop.made)


def test_a_lane_begins_with_a_target_of_its_own() -> None:
    lots = [lot("h100", workers=1), lot("h200"), lot("b200")]
    assert choose_lot(lots) is lots[2]


def test_a_lane_helps_before_it_compiles_for_a_target_that_is_in_work() -> None:
    lots = [lot("h100", waiting=9, workers=1), lot("h200", waiting=12), lot("b200", waiting=10, workers=2)]
    assert choose_lot(lots) is lots[0]


def test_a_lane_takes_the_same_target_where_nobody_needs_help() -> None:
    lots = [lot("h100", waiting=1, workers=1), lot("h200", waiting=12)]
    assert choose_lot(lots) is lots[1]


def test_a_lane_ends_where_nothing_is_left() -> None:
    assert choose_lot([lot("h100", waiting=1, workers=1), lot("h200", waiting=0)]) is None

from __future__ import annotations

import contextlib
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, cast

import pytest
from tests.compare.conftest import PLAN, FakeWorker, Gpu
from tests.measure.conftest import write_code

from flopwatch.errors import UsageError
from flopwatch.gate.sides import Arm
from flopwatch.measure.client import CaseFailed, Mode, Nursery, Worker
from flopwatch.measure.protocol import Method, Op, Plan, Prepared, Request
from flopwatch.measure.rivals import sample_rivals
from flopwatch.measure.session import Session
from flopwatch.measure.tuning import TunerLog
from flopwatch.model import Case, Choice, Failure

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

OURS = Case(suite="Add", values=("1024", "flopwatch"))
PEER = Case(suite="Add", values=("1024", "torch"))
MANY = replace(PLAN, calls=64)
SUITE = '''\
"""A copy and its peers."""

import torch
from flopwatch import Suite


def twice(x):
    return (x + 1.0) + 0.0


class Increment(Suite):
    """out = x + 1."""

    params = (["1048576", "268435456"],)
    param_names = ("n",)
    providers = {"same": lambda x: torch.add(x, 1.0), "twice": twice}

    def inputs(self, n, *, seed):
        return (torch.randn(int(n), device="cuda", generator=torch.Generator(device="cuda").manual_seed(seed)),)

    def run(self, x):
        return torch.add(x, 1.0)

    def reference(self, x):
        return x.double() + 1

    def flops(self, n):
        return int(n)

    def bytes_moved(self, n):
        return 8 * int(n)
'''


class Watched(FakeWorker):
    """Remembers what it was asked to prepare."""

    def __init__(self, gpu: Gpu) -> None:
        super().__init__(Arm.HEAD, gpu)
        self.prepared: list[tuple[Case, Plan | None, tuple[str, ...]]] = []
        self.held = 0
        self.room = 2

    def prepare(
        self, case: Case, plan: Plan | None = None, pins: Sequence[Choice] = (), *, beside: bool = False, lent: str = ""
    ) -> Prepared:
        self.prepared.append((case, plan, tuple(pin.config for pin in pins)))
        try:
            if beside and len(self.ready - {case}) >= self.room:
                raise CaseFailed(Failure(kind="OutOfMemoryError", message="no room"), cast("Worker", self))
            return super().prepare(case, plan, pins, beside=beside, lent=lent)
        finally:
            self.held = max(self.held, len(self.ready))


def watched(**plans: Plan) -> Watched:
    return Watched(Gpu(seconds={("Add", "torch"): 2e-5}, plans={("Add", name): plan for name, plan in plans.items()}))


def test_slot_1_is_measured_against_slot_0() -> None:
    worker = cast("Worker", watched())
    assert sample_rivals(worker, (OURS, PEER)).log_ratio == pytest.approx(0.693, abs=0.01)
    assert sample_rivals(worker, (PEER, OURS)).log_ratio == pytest.approx(-0.693, abs=0.01)


@pytest.mark.parametrize(("ours", "peer"), [(PLAN, MANY), (MANY, PLAN)])
def test_both_follow_the_plan_of_the_one_that_needs_more_calls(ours: Plan, peer: Plan) -> None:
    worker = watched(head=ours, torch=peer)
    found = sample_rivals(cast("Worker", worker), (OURS, PEER))
    assert found.plan == MANY
    assert {plan for _, plan, _ in worker.prepared[2:]} == {MANY}


def test_a_plan_that_is_given_is_followed() -> None:
    worker = watched()
    given = Plan(method=Method.EVENTS, calls=3, input_sets=2)
    assert sample_rivals(cast("Worker", worker), (OURS, PEER), plan=given).plan == given


@pytest.mark.parametrize("plan", [None, PLAN])
def test_both_are_ready_at_once_and_what_was_ready_before_is_gone(plan: Plan | None) -> None:
    worker = watched()
    worker.prepare(Case(suite="Matmul", values=("1024", "flopwatch")))
    sample_rivals(cast("Worker", worker), (OURS, PEER), plan=plan)
    assert worker.ready == {OURS, PEER}
    assert worker.held == 2


def test_each_is_prepared_with_its_own_pins_last_because_the_last_one_wins() -> None:
    worker = watched()
    pins = ((Choice(kernel="k", config="ours"),), (Choice(kernel="k", config="peers"),))
    sample_rivals(cast("Worker", worker), (OURS, PEER), plan=PLAN, pins=pins)
    assert {(case, named) for case, _, named in worker.prepared} == {
        (OURS, ("peers", "ours")),
        (PEER, ("ours", "peers")),
    }


def test_where_memory_holds_one_of_them_they_take_turns_apart() -> None:
    worker = watched()
    worker.room = 1
    assert sample_rivals(cast("Worker", worker), (OURS, PEER)).log_ratio == pytest.approx(0.693, abs=0.01)
    assert worker.held == 1


def test_a_rival_that_fails_fails_the_pair() -> None:
    worker = watched()
    worker.gpu.failing_in_pairs = {PEER.id: "exit status -11"}
    with pytest.raises(CaseFailed, match="exit status -11"):
        sample_rivals(cast("Worker", worker), (OURS, PEER), plan=PLAN)


def test_a_session_keeps_what_is_prepared_beside_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Nothing:
        """Stands in for a prepared case, which needs a GPU."""

        plan = PLAN
        borrowed = False
        refusal = None

        def __init__(self, *_: object, lent: str, tuned: Callable[[], object]) -> None:
            assert not lent
            tuned()

        def sample(self, samples: int, *, warm_up: int) -> tuple[float, ...]:
            return (1.0,) * (samples + 0 * warm_up)

    monkeypatch.setattr("flopwatch.measure.timer.PreparedCase", Nothing)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "rival_suites").mkdir()
    (tmp_path / "rival_suites" / "increment.py").write_text(SUITE, encoding="utf-8")
    session = Session(Mode.INTERPRET, tmp_path / "rival_suites", "h200")
    monkeypatch.setattr(session, "_tuner", TunerLog(), raising=False)
    ours, peer, third = (increment(provider) for provider in ("flopwatch", "same", "twice"))

    def prepare(case: Case, *, beside: bool) -> None:
        session.answer(Request(op=Op.PREPARE.word, case=case, beside=beside))

    def ready() -> list[Case]:
        found = []
        for case in (ours, peer, third):
            with contextlib.suppress(UsageError):
                session.answer(Request(op=Op.VISIT.word, case=case, samples=1))
                found.append(case)
        return found

    prepare(ours, beside=False)
    prepare(peer, beside=True)
    prepare(peer, beside=True)
    assert ready() == [ours, peer]
    prepare(third, beside=False)
    assert ready() == [third]
    session.answer(Request(op=Op.RELEASE.word, case=ours))
    assert ready() == []


@pytest.fixture(scope="module")
def gpu_worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    """A process that has the GPU and a suite with peers."""
    code = write_code(tmp_path_factory.mktemp("rivals"), kernels='"""Nothing."""\n', suite=SUITE)
    with Nursery(code) as nursery, Worker(Mode.GPU, code, nursery=nursery) as worker:
        yield worker


def increment(provider: str, n: str = "1048576") -> Case:
    return Case(suite="Increment", values=(n, provider))


@pytest.mark.gpu
@pytest.mark.parametrize("n", ["1048576", "268435456"])
def test_the_same_function_twice_is_as_fast(gpu_worker: Worker, n: str) -> None:
    found = sample_rivals(gpu_worker, (increment("flopwatch", n), increment("same", n)))
    assert found.plan.method is Method.GRAPH
    assert abs(found.log_ratio) < 0.02


@pytest.mark.gpu
@pytest.mark.parametrize("slower", [0, 1])
def test_two_kernels_take_longer_than_one_in_either_slot(gpu_worker: Worker, slower: int) -> None:
    slots = [increment("flopwatch")] * 2
    slots[slower] = increment("twice")
    sign = 1 if slower else -1
    assert sign * sample_rivals(gpu_worker, (slots[0], slots[1])).log_ratio > 0.3


@pytest.mark.gpu
def test_a_case_is_prepared_beside_another_or_in_its_place(gpu_worker: Worker) -> None:
    ours, peer = increment("flopwatch"), increment("same")
    gpu_worker.prepare(ours)
    gpu_worker.prepare(peer, beside=True)
    assert len(gpu_worker.visit(ours, 3)) == len(gpu_worker.visit(peer, 3)) == 3
    gpu_worker.prepare(peer)
    with pytest.raises(CaseFailed, match="was not prepared"):
        gpu_worker.visit(ours, 3)

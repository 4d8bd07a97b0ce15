from __future__ import annotations

import os
import signal
import threading
import time
from typing import TYPE_CHECKING, BinaryIO, cast

import pytest

from flopwatch.config import load_config
from flopwatch.gate import static
from flopwatch.gate.result import Uncovered
from flopwatch.gate.sides import Arm, Sides
from flopwatch.gate.static import MOST_TEAMS, CompiledSide, StaticFindings, Team, _compile, find_static, teams_for
from flopwatch.measure.client import CaseFailed, Worker
from flopwatch.measure.protocol import Compiled
from flopwatch.model import Case, Failure, KernelFacts
from flopwatch.static.identity import CaseIdentity, is_same

if TYPE_CHECKING:
    import contextlib
    from collections.abc import Sequence

    from tests.conftest import ToyRepository

CASES = [Case(suite="Toy", values=(str(number), "flopwatch")) for number in range(12)]


class FakeWorker:
    """Stands in for a worker that takes its time, and whose host code remembers which cases it has seen."""

    def __init__(self, *, seconds: float = 0.0, errors: dict[Case, Exception] | None = None) -> None:
        self.seconds, self.errors = seconds, errors or {}
        self.seen: list[Case] = []
        self.closed = False
        self.stopped = threading.Event()

    def compile(self, case: Case, *, identify: bool = True) -> Compiled:  # noqa: ARG002 - the real one's
        self.seen.append(case)
        if self.stopped.wait(self.seconds):
            raise CaseFailed(Failure(kind="Abandoned", message="the run was stopped"))
        if case in self.errors:
            raise self.errors[case]
        return Compiled(facts=(), identity=CaseIdentity(fingerprint=" ".join(seen.id for seen in self.seen)))

    def abandon(self) -> None:
        self.stopped.set()

    def close(self) -> None:
        self.closed = True


def compile_with(teams: Sequence[dict[Arm, FakeWorker]]) -> dict[Arm, CompiledSide]:
    return _compile(cast("list[Team]", teams), CASES)


def one_a_side(**workers: FakeWorker) -> dict[Arm, FakeWorker]:
    return {arm: workers.get(arm.value) or FakeWorker() for arm in Arm}


@pytest.mark.parametrize(
    ("cores", "cases", "teams"),
    [(1, 66, 1), (2, 66, 2), (16, 66, MOST_TEAMS), (192, 1000, MOST_TEAMS), (16, 6, 3), (16, 1, 1)],
)
def test_teams_are_as_many_as_cores_and_cases_are_worth(
    cores: int, cases: int, teams: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)), raising=False)
    assert teams_for(cases) == teams


def test_one_team_compiles_in_the_order_of_the_suites() -> None:
    team = one_a_side()
    compile_with([team])
    assert [worker.seen for worker in team.values()] == [CASES, CASES]


def test_teams_share_the_cases_and_a_slow_one_takes_fewer() -> None:
    slow, *fast = [one_a_side(head=FakeWorker(seconds=seconds)) for seconds in (0.5, 0.01, 0.01)]
    compiled = compile_with([slow, *fast])
    shares = [team[Arm.BASE].seen for team in (slow, *fast)]
    assert sorted((case for share in shares for case in share), key=CASES.index) == CASES
    assert len(shares[0]) < len(CASES) / 3
    assert [list(side.identities) for side in compiled.values()] == [CASES, CASES]
    assert all(worker.closed for team in (slow, *fast) for worker in team.values())


def test_sides_whose_code_remembers_earlier_cases_are_still_seen_to_be_the_same() -> None:
    compiled = compile_with([one_a_side(head=FakeWorker(seconds=0.02)) for _ in range(3)])
    base, head = (compiled[arm].identities for arm in Arm)
    assert all(is_same(base[case], head[case]) for case in CASES)


def test_a_case_that_fails_on_one_side_is_uncovered_there_alone() -> None:
    failures: dict[Case, Exception] = {
        CASES[index]: CaseFailed(Failure(kind="WorkerDied", message="exit status -9 during facts"))
        for index in (7, 2, 11)
    }
    compiled = compile_with([one_a_side(base=FakeWorker(errors=failures)) for _ in range(3)])
    assert compiled[Arm.BASE].uncovered == tuple(
        Uncovered(side="base", case=CASES[index], cause="WorkerDied: exit status -9 during facts")
        for index in (2, 7, 11)
    )
    assert (compiled[Arm.HEAD].uncovered, list(compiled[Arm.HEAD].identities)) == ((), CASES)


def test_what_is_no_result_ends_the_run_and_nobody_waits_for_the_worker_it_happened_to() -> None:
    broken = FakeWorker(errors={case: OSError("no processes left") for case in CASES})
    with pytest.raises(OSError, match="no processes left"):
        compile_with([one_a_side(base=broken)])


def test_an_interrupt_stops_the_workers_of_every_team() -> None:
    teams = [one_a_side(base=FakeWorker(seconds=600), head=FakeWorker(seconds=600)) for _ in range(3)]
    timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
    start = time.monotonic()
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        compile_with(teams)
    assert time.monotonic() - start < 5
    assert all(worker.stopped.is_set() for team in teams for worker in team.values())


class CountedSides(Sides):
    """Keeps the workers that compile beside the first of a side."""

    def __init__(self, toy: ToyRepository) -> None:
        super().__init__(load_config(toy.root), device="h200", base_tree=toy.root, head_tree=toy.root)
        self.beside: list[Worker] = []

    def compilers(self, arm: Arm, count: int, stack: contextlib.ExitStack) -> list[Worker]:
        found = super().compilers(arm, count, stack)
        self.beside += found
        return found


def found_by(toy: ToyRepository, teams: int, monkeypatch: pytest.MonkeyPatch, *, same: bool) -> StaticFindings:
    """Compile the toy's cases by so many workers a side, of a tree that is its own base, which is seen or not."""
    monkeypatch.setattr(static, "teams_for", lambda _cases: teams)
    monkeypatch.setattr(static, "_tree", lambda _sides, arm: "" if same else arm.value)
    sides = CountedSides(toy)
    with sides:
        found = find_static(sides, "")
    assert len(sides.beside) == (teams - 1) * (1 if same else 2)
    return found


def test_who_compiled_what_does_not_show_in_what_was_found(toy: ToyRepository, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    text = toy.suite.read_text(encoding="utf-8")
    text = text.replace('["1000000"], ["float16", "float32"]', '["1000000", "1001"], ["float16", "float32", "int8"]')
    toy.suite.write_text(
        text.replace("        generator =", '        assert (n, dtype) != ("1001", "int8")\n        generator =')
    )
    by_one = found_by(toy, 1, monkeypatch, same=False)
    assert (len(by_one.head.facts), len(by_one.head.identities), len(by_one.identical)) == (5, 5, 5)
    assert [entry.case.id for entry in by_one.head.uncovered] == ["Scale[1001,int8,flopwatch]"]
    assert found_by(toy, 3, monkeypatch, same=False) == by_one

    alone = found_by(toy, 3, monkeypatch, same=True)
    assert (alone.head.facts, alone.head.uncovered) == (by_one.head.facts, by_one.head.uncovered)
    assert (alone.base.facts, alone.base.uncovered) == (by_one.base.facts, by_one.base.uncovered)
    assert len(alone.identical) == 6
    assert not alone.head.identities  # nobody asks for them


def test_workers_for_more_cases_than_there_are_are_not_started(
    toy: ToyRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setattr(static, "_tree", lambda _sides, arm: arm.value)
    monkeypatch.setattr(static, "teams_for", lambda cases: 4 if cases > len(CASES) else 1)
    started: list[Worker] = []
    start = Worker._start

    def noted(worker: Worker) -> BinaryIO:
        started.append(worker)
        return start(worker)

    monkeypatch.setattr(Worker, "_start", noted)
    sides = CountedSides(toy)
    with sides:
        found = find_static(sides, "")

    assert (len(sides.beside), len(started)) == (6, 2)
    assert not {*started} & {*sides.beside}
    assert found.head.facts


def test_kernels_of_one_name_in_two_cases_keep_their_facts_on_both_sides() -> None:
    class Worker(FakeWorker):
        def compile(self, case: Case, *, identify: bool = True) -> Compiled:  # noqa: ARG002 - the real one's
            registers = 32 + 8 * CASES.index(case) if case in CASES[:2] else 32
            fact = KernelFacts(kernel="k", device="h200", config="", variant="", chosen=True, registers=registers)
            return Compiled(facts=(fact,))

    for side in compile_with([one_a_side(base=Worker(), head=Worker())]).values():
        assert [(fact.kernel, fact.registers) for fact in side.facts] == [("k", 32), ("k (2)", 40)]
        assert [side.launched[case].facts[0].kernel for case in CASES[:3]] == ["k", "k (2)", "k"]

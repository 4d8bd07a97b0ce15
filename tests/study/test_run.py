from __future__ import annotations

import os
from typing import TYPE_CHECKING, cast

import pytest
from tests.study.conftest import SCALED, FakeWatch, FakeWorker, Gpu

from flopwatch.errors import ExitCode, MachineError, UsageError
from flopwatch.gate.conclusions import Verdict
from flopwatch.gate.sides import Arm, Sides
from flopwatch.measure.nvml import present_gpus
from flopwatch.measure.protocol import Method, Plan
from flopwatch.model import from_json, to_json
from flopwatch.study.result import StudyResult
from flopwatch.study.run import MOST_AHEAD, StudyOptions, run_study

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.conftest import ToyRepository

    from flopwatch.measure.client import Mode, Worker
    from flopwatch.measure.protocol import Prepared
    from flopwatch.model import Case, Choice

SWIZZLE = StudyOptions(study="Swizzle")
TOY_STUDY = (
    '''\
"""Does the length matter?"""

import torch
from flopwatch.study import Conclusion, Study
from toykernels import scale

KEPT = []


class Lengths(Study):
    """out = 2 * x."""

    params = (["1000000"], ["plain", "leaking"])
    param_names = ("n", "kind")
    line = "kind"
    conclusions = (Conclusion(says="a leak is not slow", line="flopwatch leaking", than=("*",), percent=100.0),)

    def run(self, x, kind):
        if kind == "leaking":
            KEPT.append(torch.empty(1, dtype=torch.uint8, device="cuda"))
        return scale(x, 2.0)
'''
    + SCALED
)


@pytest.fixture
def machine(gpu: Gpu, toy: ToyRepository, monkeypatch: pytest.MonkeyPatch) -> Gpu:
    """A machine whose workers are stand-ins, and a repository with a folder of studies."""

    def worker(sides: Sides, _mode: Mode, arm: Arm) -> Worker:
        assert arm is Arm.HEAD
        gpu.started_from = sides.code(arm).benchmarks  # type: ignore[attr-defined]
        return cast("Worker", FakeWorker(gpu))

    with_studies(toy)
    monkeypatch.setattr(Sides, "worker", worker)
    monkeypatch.setattr(Sides, "start_nurseries", lambda _sides: None)
    monkeypatch.setattr("flopwatch.measure.nvml.present_gpus", lambda: {"GPU-0": "NVIDIA H200"})
    monkeypatch.setattr("flopwatch.study.run.Watch", lambda _uuid: FakeWatch())
    return gpu


def with_studies(toy: ToyRepository) -> Path:
    path = toy.root / "benchmarks" / "studies" / "lengths.py"
    path.parent.mkdir()
    path.write_text(TOY_STUDY, encoding="utf-8")
    return path


def run(toy: ToyRepository, options: StudyOptions = SWIZZLE) -> StudyResult:
    return run_study(options, toy.root)


def test_a_study_is_measured_and_its_conclusion_holds(toy: ToyRepository, machine: Gpu) -> None:
    found = run(toy)
    assert (found.suite, found.parameter, found.across, found.base) == ("Swizzle", "order", "size", "flopwatch 8")
    assert [len(each.turns) for each in found.rounds] == [8] * 8
    assert machine.started == 2 + 8  # to ask what there is, to check the numbers, and one for each round
    assert [decision.verdict for decision in found.decisions] == [Verdict.HOLDS]
    assert found.command == "flopwatch compare --study Swizzle"
    assert found.exit_code == ExitCode.OK
    assert from_json(to_json(found), StudyResult) == found


def test_a_conclusion_that_no_longer_holds_is_exit_code_1(toy: ToyRepository, machine: Gpu) -> None:
    machine.seconds = {("2", "8", "flopwatch"): 1.05e-2}
    found = run(toy)
    assert [decision.verdict for decision in found.decisions] == [Verdict.FAILS]
    assert found.exit_code == ExitCode.REGRESSED


def test_speeds_are_in_units_of_the_base_line(toy: ToyRepository, machine: Gpu) -> None:
    machine.seconds = {("1", "none", "torch"): 2e-2}
    speeds = {(each.line, each.at): each.speed for each in run(toy).measured}
    torch_s, base = speeds["torch", "1"], speeds["flopwatch 8", "1"]
    assert torch_s is not None
    assert base is not None
    assert torch_s.estimate == pytest.approx(-0.693, abs=0.002)
    assert base.estimate == 0.0


def test_too_few_rounds_leave_a_conclusion_unsure_which_is_exit_code_3(toy: ToyRepository, machine: Gpu) -> None:
    found = run(toy, StudyOptions(study="Swizzle", rounds=2))
    assert machine.visited
    assert found.decisions[0].verdict is Verdict.UNSURE
    assert found.exit_code == ExitCode.UNDECIDED
    assert found.command == "flopwatch compare --study Swizzle --pairs 2"


def test_what_fails_or_is_wrong_is_not_timed_and_named(toy: ToyRepository, machine: Gpu) -> None:
    machine.failing = {("1", "none", "torch"): "No module named 'peer'"}
    machine.eps = {("1", "4", "flopwatch"): 9.0, ("2", "4", "flopwatch"): float("inf")}
    reasons = [each.reason for each in run(toy).measured if each.reason]
    assert reasons == [
        "is wrong: error 9 eps, ceiling 2",
        "fails (ModuleNotFoundError: No module named 'peer')",
        "returns NaN or infinity",
    ]
    assert {"Swizzle[1,none,torch]", "Swizzle[1,4,flopwatch]"} & {case.id for case in machine.visited} == set()


def test_a_planted_leak_is_told_and_each_line_is_looked_at_once(toy: ToyRepository, machine: Gpu) -> None:
    machine.growth_bytes = {("1", "4", "flopwatch"): 1.0}
    found = run(toy)
    assert found.notes == ("flopwatch 4 keeps 1 bytes of torch's memory at every call (Swizzle[1,4,flopwatch])",)
    assert [case.values[0] for case in machine.remembered] == ["1"] * 4


def test_a_point_that_is_lost_does_not_lose_the_others(toy: ToyRepository, machine: Gpu) -> None:
    machine.dying_at = "2"
    found = run(toy)
    assert {each.at for each in found.measured if each.seconds is not None} == {"1"}
    assert found.notes == ("2: lost in 8 of 8 rounds (WorkerDied: exit status -11)",)
    reasons = {each.reason for each in found.measured if each.seconds is None}
    assert reasons == {"fails while it is measured (WorkerDied: exit status -11)"}
    assert found.decisions[0].reason == "flopwatch 8 was not measured at 2"


def test_what_keeps_failing_in_the_rounds_is_given_up(toy: ToyRepository, machine: Gpu) -> None:
    machine.failing_in_rounds = {("2", "4", "flopwatch"): "out of memory"}
    (lost,) = [each for each in run(toy).measured if each.reason]
    assert (lost.line, lost.seconds) == ("flopwatch 4", None)
    assert lost.reason == "fails while it is measured (OutOfMemoryError: out of memory)"


def test_what_fails_in_one_round_is_measured_in_the_others_and_told(
    toy: ToyRepository, machine: Gpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare = FakeWorker.prepare

    def fail_at_first(
        worker: FakeWorker, case: Case, plan: Plan | None, pins: Sequence[Choice], *, beside: bool
    ) -> Prepared:
        lost = worker.number == 3 and case.values[:2] == ("2", "4")  # two workers come before the rounds
        machine.failing_in_rounds = {case.values: "out of memory"} if lost else {}
        return prepare(worker, case, plan, pins, beside=beside)

    monkeypatch.setattr(FakeWorker, "prepare", fail_at_first)
    found = run(toy)
    assert [each.reason for each in found.measured] == [""] * 8
    assert found.notes == ("Swizzle[2,4,flopwatch]: measured in 7 of 8 rounds (OutOfMemoryError: out of memory)",)


def test_a_round_in_which_nothing_could_be_prepared_chooses_no_plan(
    toy: ToyRepository, machine: Gpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Plan | None] = []
    prepare = FakeWorker.prepare

    def fail_at_first(
        worker: FakeWorker, case: Case, plan: Plan | None, pins: Sequence[Choice], *, beside: bool
    ) -> Prepared:
        asked.append(plan)
        machine.failing_in_rounds = {case.values: "out of memory"} if worker.number == 3 else {}
        return prepare(worker, case, plan, pins, beside=beside)

    many = Plan(method=Method.GRAPH, calls=30, input_sets=4)
    machine.plans = {entry.case.values: many for entry in machine.declared}
    monkeypatch.setattr(FakeWorker, "prepare", fail_at_first)
    assert all(each.seconds is not None for each in run(toy).measured)
    assert set(asked) == {None, many}


def test_what_cannot_be_captured_is_told(toy: ToyRepository, machine: Gpu) -> None:
    machine.forced = {("1", "none", "torch"): Plan(method=Method.EVENTS, calls=1, input_sets=1)}
    found = run(toy)
    assert found.notes == ("not captured into a graph, so timed as the host enqueues them: all lines at 1",)
    assert {each.method for each in found.measured if each.at == "1"} == {"events"}


@pytest.mark.parametrize(("cores", "ahead"), [(1, 1), (3, 3), (16, MOST_AHEAD)])
def test_workers_of_a_few_rounds_start_before_the_first_of_them_measures(
    cores: int, ahead: int, toy: ToyRepository, machine: Gpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)), raising=False)
    waiting: list[int] = []
    prepare = FakeWorker.prepare

    def look(worker: FakeWorker, case: Case, plan: Plan | None, pins: Sequence[Choice], *, beside: bool) -> Prepared:
        waiting.append(len(set(machine.waiting) - set(machine.ended)))
        return prepare(worker, case, plan, pins, beside=beside)

    monkeypatch.setattr(FakeWorker, "prepare", look)
    found = run(toy, StudyOptions(rounds=10))
    assert len(found.rounds) == 10
    assert (waiting[0], max(waiting), min(waiting)) == (ahead, ahead, 1)
    assert set(machine.waiting) <= set(machine.ended)


def test_an_interrupted_study_keeps_whole_rounds(toy: ToyRepository, machine: Gpu) -> None:
    machine.interrupt_after = 3 * 2 * 4 * 5 + 3
    found = run(toy)
    assert (found.interrupted, len(found.rounds)) == (True, 3)
    assert found.exit_code == ExitCode.UNDECIDED


def test_studies_come_from_their_own_folder_and_suites_from_theirs(toy: ToyRepository, machine: Gpu) -> None:
    run(toy)
    assert machine.started_from.parts[-2:] == ("benchmarks", "studies")  # type: ignore[attr-defined]
    run(toy, StudyOptions(parameter="order", rounds=1))
    assert machine.started_from.name == "benchmarks"  # type: ignore[attr-defined]


def test_a_parameter_of_a_suite_is_named_in_the_line_that_repeats_it(toy: ToyRepository, machine: Gpu) -> None:
    machine.studies = {}
    found = run(toy, StudyOptions(parameter="order", select="Swizzle", rounds=1))
    assert found.command == "flopwatch compare --parameter order -k Swizzle --pairs 1"
    assert (found.decisions, found.exit_code) == ((), ExitCode.OK)


def test_without_a_folder_of_studies_there_is_none(toy: ToyRepository) -> None:
    with pytest.raises(UsageError, match="there are no studies in benchmarks/studies"):
        run(toy)


@pytest.mark.usefixtures("machine")
def test_without_a_gpu_nothing_is_checked_out(toy: ToyRepository, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flopwatch.measure.nvml.present_gpus", dict)
    monkeypatch.setattr("flopwatch.study.run.checkout", lambda *_, **__: pytest.fail("it was checked out"))
    with pytest.raises(MachineError, match="needs a GPU"):
        run(toy)


@pytest.mark.usefixtures("machine")
def test_without_a_gpu_a_name_that_is_wrong_is_told_first(toy: ToyRepository, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flopwatch.measure.nvml.present_gpus", dict)
    with pytest.raises(UsageError, match="there is no study Nope") as caught:
        run(toy, StudyOptions(study="Nope"))
    assert caught.value.why == "there are Swizzle"
    with pytest.raises(UsageError, match="Swizzle has no parameter 'color'"):
        run(toy, StudyOptions(study="Swizzle", parameter="color"))


def test_a_torch_without_a_gpu_is_told(toy: ToyRepository, machine: Gpu) -> None:
    machine.uuid = None
    with pytest.raises(MachineError) as caught:
        run(toy)
    assert caught.value.why == "torch finds none"


@pytest.mark.gpu
def test_on_a_gpu_a_leak_of_one_byte_a_call_is_found(toy: ToyRepository) -> None:
    assert present_gpus()
    with_studies(toy)
    found = run(toy, StudyOptions(study="Lengths", rounds=2))
    assert found.notes[-1].startswith("flopwatch leaking keeps 1 bytes of torch's memory at every call")
    assert [each.reason for each in found.measured] == ["", ""]
    assert all(each.seconds is not None and 1e-6 < each.seconds < 1e-3 for each in found.measured)

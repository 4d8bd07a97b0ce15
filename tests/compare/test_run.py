from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest
from tests.compare.conftest import FakeWatch, FakeWorker, Gpu

from flopwatch.compare import CompareOptions, Comparison, Kind, run_compare
from flopwatch.errors import ExitCode, MachineError, SuiteError, UndecidedError, UsageError
from flopwatch.gate.sides import Arm, Sides
from flopwatch.measure.nvml import present_gpus
from flopwatch.model import from_json, to_json

if TYPE_CHECKING:
    from tests.conftest import ToyRepository

    from flopwatch.measure.client import Mode, Worker

PROVIDERS = CompareOptions(providers=("flopwatch", "torch"), pairs=3)


@pytest.fixture
def machine(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> Gpu:
    """A machine whose workers are stand-ins."""

    def worker(_sides: Sides, _mode: Mode, arm: Arm, *, anew: bool = False) -> Worker:
        assert not anew
        return cast("Worker", FakeWorker(arm, gpu))

    monkeypatch.setattr(Sides, "worker", worker)
    monkeypatch.setattr(Sides, "start_nurseries", lambda _sides: None)
    monkeypatch.setattr("flopwatch.measure.nvml.present_gpus", lambda: {"GPU-0": "NVIDIA H200"})
    monkeypatch.setattr("flopwatch.compare.run.Watch", lambda _uuid: FakeWatch(processes=()))
    return gpu


def test_without_a_gpu_nothing_is_checked_out(toy: ToyRepository, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_driver() -> None:
        raise MachineError("no NVIDIA driver answers")

    monkeypatch.setattr("flopwatch.measure.nvml.present_gpus", no_driver)
    monkeypatch.setattr("flopwatch.compare.run.checkout", lambda *_, **__: pytest.fail("it was checked out"))
    with pytest.raises(MachineError, match="flopwatch compare needs a GPU") as caught:
        run_compare(PROVIDERS, toy.root)
    assert caught.value.why == "no NVIDIA driver answers"
    assert caught.value.exit_code is ExitCode.UNFIT


def test_a_driver_without_a_gpu_is_no_gpu(toy: ToyRepository, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flopwatch.measure.nvml.present_gpus", dict)
    with pytest.raises(MachineError, match="needs a GPU"):
        run_compare(PROVIDERS, toy.root)


def test_a_side_whose_torch_finds_no_gpu_is_named(toy: ToyRepository, machine: Gpu) -> None:
    machine.uuid[Arm.HEAD] = None
    with pytest.raises(MachineError) as caught:
        run_compare(PROVIDERS, toy.root)
    assert caught.value.why == "torch on head finds none"


def test_two_providers_are_compared(toy: ToyRepository, machine: Gpu) -> None:
    machine.seconds = {("Add", "torch"): 2e-5}
    found = run_compare(PROVIDERS, toy.root)
    assert (found.kind, found.base, found.head) == (Kind.PROVIDERS, "torch", "flopwatch")
    assert found.cases[0].speed is not None
    assert found.cases[0].speed.estimate == pytest.approx(0.693, abs=0.01)
    assert found.command == "flopwatch compare --provider flopwatch --provider torch --pairs 3"
    assert found.exit_code == ExitCode.OK
    assert from_json(to_json(found), Comparison) == found


def test_two_commits_are_compared_and_the_line_names_them(toy: ToyRepository, machine: Gpu) -> None:
    base = toy.git("rev-parse", "HEAD").strip()
    head = toy.commit("another")
    machine.seconds = {("Matmul", "head"): 2e-5}
    found = run_compare(CompareOptions(base="HEAD~1", head="HEAD", select="mat mul".replace(" ", "")), toy.root)
    assert (found.kind, found.base, found.head) == (Kind.COMMITS, base, head)
    assert [case.head.case.id for case in found.cases] == ["Matmul[1024,flopwatch]"]
    assert found.speed is not None
    assert found.speed.upper is not None
    assert found.speed.upper < -0.6
    assert found.command == f"flopwatch compare {base[:12]} {head[:12]} -k matmul"


def test_two_environments_are_compared(toy: ToyRepository, machine: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Path] = []

    def believe(python: Path) -> Path:
        asked.append(python)
        return Path("/env") / python.name

    monkeypatch.setattr("flopwatch.compare.run.require_flopwatch", believe)
    found = run_compare(CompareOptions(head_python=Path("new/python3.14")), toy.root)
    assert machine.visits
    assert asked == [Path(sys.executable), Path("new/python3.14")]
    assert (found.kind, found.head) == (Kind.ENVIRONMENTS, "/env/python3.14")
    assert (found.base_versions, found.head_versions) == ({"triton": "3.6.0"}, {"triton": "3.9.0"})
    assert found.command.endswith("--head-python /env/python3.14")


def test_what_is_wrong_is_not_timed_and_nothing_left_is_undecided(toy: ToyRepository, machine: Gpu) -> None:
    machine.errors_eps = {("Add", "torch"): 100.0, ("Matmul", "head"): 100.0}
    found = run_compare(PROVIDERS, toy.root)
    assert machine.visits == 0
    assert [bool(case.reason) for case in found.cases] == [True, True]
    assert found.speed is None
    assert found.exit_code == ExitCode.UNDECIDED


def test_an_interrupted_comparison_is_undecided(toy: ToyRepository, machine: Gpu) -> None:
    machine.interrupt_after = 100
    found = run_compare(PROVIDERS, toy.root)
    assert found.interrupted
    assert found.exit_code == ExitCode.UNDECIDED


def test_a_suite_that_cannot_be_imported_is_told(toy: ToyRepository, machine: Gpu) -> None:
    machine.import_failures = {"benchmarks.bad": "LookupError: no licence"}
    with pytest.raises(SuiteError) as caught:
        run_compare(PROVIDERS, toy.root)
    assert caught.value.why == "benchmarks.bad: LookupError: no licence"


@pytest.mark.usefixtures("machine")
def test_providers_that_no_suite_has_are_undecided(toy: ToyRepository) -> None:
    with pytest.raises(UndecidedError, match="flopwatch and cudnn"):
        run_compare(CompareOptions(providers=("flopwatch", "cudnn")), toy.root)


@pytest.mark.parametrize(
    ("options", "what"),
    [
        (CompareOptions(providers=("torch",)), "two providers are compared, not torch"),
        (CompareOptions(providers=("torch", "torch")), "two providers are compared, not torch, torch"),
        (CompareOptions(providers=("a", "b", "a")), "two providers are compared, not a, b, a"),
        (CompareOptions(providers=("a", "b"), base="main"), "compare either commits, environments or providers"),
        (CompareOptions(base="main", base_python=Path("p")), "compare either commits, environments or providers"),
    ],
)
def test_what_is_not_clear_is_refused(options: CompareOptions, what: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        run_compare(options, tmp_path)
    assert caught.value.what == what


@pytest.mark.gpu
def test_on_a_gpu_the_toy_kernel_is_compared_with_torch(toy: ToyRepository) -> None:
    assert present_gpus()
    found = run_compare(CompareOptions(providers=("flopwatch", "torch"), select="float16", pairs=2), toy.root)
    assert [case.reason for case in found.cases] == [""]
    assert found.cases[0].speed is not None
    assert abs(found.cases[0].speed.estimate) < 1.0
    assert found.cases[0].head.seconds is not None
    assert 1e-6 < found.cases[0].head.seconds < 1e-3


@pytest.mark.gpu
def test_on_a_gpu_a_commit_is_as_fast_as_itself(toy: ToyRepository) -> None:
    found = run_compare(CompareOptions(base="HEAD", head="HEAD", select="float16", pairs=2), toy.root)
    assert found.cases[0].speed is not None
    assert abs(found.cases[0].speed.estimate) < 0.05

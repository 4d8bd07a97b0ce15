from __future__ import annotations

import contextlib
import functools
import math
import subprocess
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
from tests.scaffold.conftest import ADD, Stranger, stranger

from flopwatch.cli import main
from flopwatch.doctor import DoctorReport, Finding, Severity, TorchAnswer
from flopwatch.errors import ExitCode
from flopwatch.gate.run import GateOptions, run_gate
from flopwatch.measure.client import Mode, Worker
from flopwatch.measure.machine import Gpu, Snapshot, read_machine
from flopwatch.measure.noise import FEWEST_PAIRS, measure_noise
from flopwatch.measure.pair import PairSample
from flopwatch.measure.protocol import Method, Plan
from flopwatch.model import Mark
from flopwatch.scaffold.arguments import Guess, TensorGuess
from flopwatch.scaffold.suite_text import SuitePlan
from flopwatch.scaffold.trial import Outcome
from flopwatch.units import format_seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from flopwatch.gate import GateResult
    from flopwatch.measure.client import Code
    from flopwatch.model import Case

    Make = Callable[[Mapping[str, str]], Stranger]

__all__ = ["stranger"]

AUTOTUNED = ADD.replace(
    "@triton.jit",
    '@triton.autotune([triton.Config({"BLOCK": block}) for block in (256, 512)], key=["n_elements"])\n@triton.jit',
).replace("n_elements, BLOCK=256)", "n_elements)")


#: What a trial finds out about `ADD`, but for the reference.
ADD_PLAN = SuitePlan(
    module="mk",
    function="add",
    guess=Guess(
        arguments=("x", "y"),
        tensors=(TensorGuess(name="x", dimensions=("n",)), TensorGuess(name="y", dimensions=("n",))),
        sizes=("n",),
    ),
    full={"n": 1 << 24},
    small={"n": 1000},
    dtypes=("float16", "float32"),
)


@pytest.fixture(autouse=True)
def _no_gpu(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if not request.node.get_closest_marker("gpu"):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")


@pytest.fixture
def untried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out what takes seconds: the trials and the doctor."""
    monkeypatch.setattr("flopwatch.scaffold.plan.find_suite", lambda *_arguments, **_options: Outcome(reasons=("no",)))
    finding = Finding(severity=Severity.FAIL, what="a made-up fault")
    report = DoctorReport(machine=read_machine(None), snapshot=None, findings=(finding,))
    monkeypatch.setattr("flopwatch.doctor.examine", lambda *_arguments, **_options: report)


def gate(repository: Stranger) -> GateResult:
    return run_gate(GateOptions(), repository.root)


def test_a_strangers_gate_is_green_and_turns_red(capsys: pytest.CaptureFixture[str], stranger: Make) -> None:
    repository = stranger({"mk/__init__.py": "", "mk/ops/__init__.py": "", "mk/ops/add.py": AUTOTUNED})
    assert main(["init", "-C", str(repository.root)]) == ExitCode.OK
    printed = capsys.readouterr().out
    assert "Found 1 Triton kernel in mk, and 1 launch function." in printed
    assert "created benchmarks/add.py" in printed
    assert "Fit for the static gate" in printed
    assert "noise floor: not measured, because that takes a GPU" in printed
    assert printed.splitlines()[-1].startswith(
        "On a machine with a GPU, this ends with the noise floor of these suites"
    )
    repository.commit("watched")

    repository.edit("mk/ops/add.py", "@triton.jit", "@triton.jit  # a comment")
    clean = gate(repository)
    assert clean.exit_code == ExitCode.OK
    assert {verdict.case.suite for verdict in clean.verdicts} == {"Add"}
    assert {fact.kernel for fact in clean.facts} == {"add_kernel"}

    repository.edit("mk/ops/add.py", "offsets < n_elements", "offsets < n_elements - 1")
    wrong = gate(repository)
    assert {verdict.mark for verdict in wrong.verdicts} == {Mark.BROKEN}
    assert wrong.exit_code == ExitCode.REGRESSED


@pytest.mark.usefixtures("untried")
def test_a_second_run_changes_nothing_and_has_the_doctors_exit_code(
    capsys: pytest.CaptureFixture[str], stranger: Make
) -> None:
    repository = stranger({"mk.py": ADD, "pyproject.toml": "[project]\nname = 'mk'\nversion = '1'\n"})
    assert main(["init", "-C", str(repository.root)]) == ExitCode.UNFIT
    assert "a made-up fault" in capsys.readouterr().out
    repository.commit("watched")
    assert main(["init", "-C", str(repository.root / "benchmarks")]) == ExitCode.UNFIT
    printed = capsys.readouterr().out
    assert "created" not in printed
    assert "Nothing is left to do." in printed
    assert repository.git("status", "--porcelain") == ""


@pytest.mark.usefixtures("untried")
def test_a_dry_run_shows_everything_and_writes_nothing(capsys: pytest.CaptureFixture[str], stranger: Make) -> None:
    repository = stranger({"mk.py": ADD})
    assert main(["init", "--dry-run", "-C", str(repository.root)]) == ExitCode.OK
    printed = capsys.readouterr().out
    assert "would create pyproject.toml\n    | # What flopwatch" in printed
    assert "    |     install(session)\n" in printed
    assert "a made-up fault" not in printed
    assert repository.git("status", "--porcelain") == ""


@pytest.mark.usefixtures("untried")
def test_what_a_file_that_is_there_lacks_is_printed(capsys: pytest.CaptureFixture[str], stranger: Make) -> None:
    repository = stranger({"mk.py": ADD, ".gitignore": "*.o\n"})
    main(["init", "-C", str(repository.root)])
    assert "* Add this to .gitignore, which was there:\n    .asv/\n    .flopwatch/\n" in capsys.readouterr().out


def test_where_there_is_a_gpu_it_ends_with_the_noise_floor_of_the_suite_that_it_wrote(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, stranger: Make
) -> None:
    """All but the GPU and its times is real: the suite, the process that imports it, pairs and statistics."""
    repository = stranger({"mk.py": ADD})
    gpu = Gpu(name="NVIDIA H200", uuid="GPU-1", mig=False)
    rest = Snapshot(
        time_s=0.0,
        sm_clock_mhz=1980,
        temperature_c=33,
        margin_c=54,
        free_memory_bytes=1 << 40,
        reasons=(),
        processes=(),
    )
    watch = SimpleNamespace(gpu=lambda: gpu, snapshot=lambda: rest)
    plan = Plan(method=Method.GRAPH, calls=16, input_sets=4)
    sampled: list[str] = []

    class Untimed(Worker):
        def tune(self, *_arguments: object) -> tuple[()]:
            return ()

    @contextlib.contextmanager
    def twins(code: Code) -> Iterator[Callable[[int], Worker]]:
        assert (code.tree, code.benchmarks) == (repository.root, repository.root / "benchmarks")
        yield lambda _slot: Untimed(Mode.INTERPRET, code)

    def sample(slots: object, case: Case, **_options: object) -> PairSample:  # takes 3 s: three pairs fit into 20 s
        del slots
        sampled.append(case.id)
        seconds = 4e-5 * math.exp(0.001 * (-1) ** len(sampled))
        return PairSample(case=case, plan=plan, seconds=((((4e-5,),),), (((seconds,),),)), fault="")

    monkeypatch.setenv("COLUMNS", "140")
    monkeypatch.setattr("flopwatch.scaffold.plan.find_suite", lambda *_arguments, **_options: Outcome(plan=ADD_PLAN))
    monkeypatch.setattr("flopwatch.doctor.ask_torch", lambda: TorchAnswer(cuda="13.0", uuid="1"))
    monkeypatch.setattr("flopwatch.doctor.Watch", lambda _uuid: contextlib.nullcontext(watch))
    monkeypatch.setattr("flopwatch.doctor.twins", twins)
    monkeypatch.setattr(
        "flopwatch.doctor.measure_noise",
        functools.partial(measure_noise, sample=sample, clock=lambda: 3.0 * len(sampled)),
    )

    assert main(["init", "-C", str(repository.root)]) == ExitCode.OK
    cases = ["Add[16777216,float16,flopwatch]", "Add[16777216,float32,flopwatch]"]
    assert sorted(sampled) == sorted(cases * FEWEST_PAIRS)
    printed = capsys.readouterr().out
    assert "Fit to measure on NVIDIA H200" in printed
    assert "noise floor: a pair errs by 0.10 %; a gate here finds slowdowns from" in printed
    table = printed.partition("Noise floor: identical code in pairs")[2]
    assert [line for line in table.splitlines() if format_seconds(4e-5) in line and f" {FEWEST_PAIRS} " in line][
        1:
    ] != []
    assert all(case in table for case in cases)
    assert "On a machine with a GPU" not in printed


@pytest.mark.gpu
def test_on_this_gpu_it_ends_with_the_noise_floor(capsys: pytest.CaptureFixture[str], stranger: Make) -> None:
    repository = stranger({"mk.py": ADD})
    assert main(["init", "-C", str(repository.root)]) == ExitCode.OK
    table = capsys.readouterr().out.partition("Noise floor: identical code in pairs")[2]
    assert "Add[" in table


@pytest.mark.usefixtures("untried")
def test_workflows_of_a_gpu_are_written_for_a_label(capsys: pytest.CaptureFixture[str], stranger: Make) -> None:
    repository = stranger({"mk.py": ADD})
    main(["init", "-C", str(repository.root), "--gpu-runner", "h200"])
    printed = capsys.readouterr().out
    assert "created .github/workflows/flopwatch-gpu.yml\n" in printed
    assert "created .github/workflows/flopwatch-nightly.yml\n" in printed
    assert "with the label h200" in printed


@pytest.mark.parametrize("label", ["", "two words", "a]", "../x"])
def test_what_is_no_label_is_refused(label: str, capsys: pytest.CaptureFixture[str], stranger: Make) -> None:
    repository = stranger({"mk.py": ADD})
    with pytest.raises(SystemExit) as caught:
        main(["init", "-C", str(repository.root), "--gpu-runner", label])
    assert caught.value.code == ExitCode.USAGE
    assert "is no label" in capsys.readouterr().err
    assert repository.git("status", "--porcelain") == ""


def test_a_folder_in_no_repository_is_an_error(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    if subprocess.run(["git", "rev-parse"], cwd=tmp_path, capture_output=True, check=False).returncode == 0:
        pytest.skip("the folder of temporary files is in a repository")
    assert main(["init", "-C", str(tmp_path)]) == ExitCode.USAGE
    assert "is in no git repository" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_read_only_file_leaves_everything_as_it_was(
    capsys: pytest.CaptureFixture[str], untried: None, stranger: Make
) -> None:
    del untried
    repository = stranger({"mk.py": ADD, "pyproject.toml": "[project]\n"})
    (repository.root / "pyproject.toml").chmod(0o444)
    before = repository.contents()
    assert main(["init", "-C", str(repository.root)]) == ExitCode.USAGE
    assert "pyproject.toml is read-only" in capsys.readouterr().err
    assert repository.contents() == before

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest
from tests.scaffold.conftest import ADD, Stranger, stranger

from flopwatch.cli import main
from flopwatch.doctor import DoctorReport, Finding, Severity
from flopwatch.errors import ExitCode
from flopwatch.gate.run import GateOptions, run_gate
from flopwatch.measure.machine import read_machine
from flopwatch.model import Mark
from flopwatch.scaffold.trial import Outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from flopwatch.gate import GateResult

    Make = Callable[[Mapping[str, str]], Stranger]

__all__ = ["stranger"]

AUTOTUNED = ADD.replace(
    "@triton.jit",
    '@triton.autotune([triton.Config({"BLOCK": block}) for block in (256, 512)], key=["n_elements"])\n@triton.jit',
).replace("n_elements, BLOCK=256)", "n_elements)")


@pytest.fixture(autouse=True)
def _no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
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

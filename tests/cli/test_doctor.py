from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from flopwatch.cli import main
from flopwatch.doctor import DoctorReport, Finding, Severity, TorchAnswer
from flopwatch.errors import ExitCode
from flopwatch.measure.machine import read_machine
from flopwatch.measure.noise import LIMIT_S
from flopwatch.model import from_json
from flopwatch.stats.noise import NoiseFloor


def report(severity: Severity) -> DoctorReport:
    finding = Finding(severity=severity, what="the moon is [bold]full[/bold]", why="it is the 24th", todo="wait")
    return DoctorReport(machine=read_machine(None, {}), snapshot=None, findings=(finding,))


@pytest.mark.parametrize(
    ("severity", "code"),
    [(Severity.OK, ExitCode.OK), (Severity.WARN, ExitCode.OK), (Severity.FAIL, ExitCode.UNFIT)],
)
def test_the_exit_code_is_the_reports(
    severity: Severity, code: ExitCode, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flopwatch.doctor.examine", lambda _root, **_options: report(severity))
    assert main(["doctor"]) == code
    assert "the moon is [bold]full[/bold]" in capsys.readouterr().out


def test_the_report_with_its_noise_floor_goes_to_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def remember(root: Path, *, noise_limit_s: float) -> DoctorReport:
        asked.append((root, noise_limit_s))
        return measured

    measured = replace(
        report(Severity.OK),
        noise=(NoiseFloor(case="Add[1]", seconds=5e-6, pairs=4, deviation=0.001, detectable=0.0063),),
    )
    monkeypatch.setattr("flopwatch.doctor.examine", remember)
    path = tmp_path / "doctor.json"
    assert main(["doctor", "-C", str(tmp_path), "--json", str(path)]) == ExitCode.OK
    assert main(["doctor", "--no-noise"]) == ExitCode.OK
    assert from_json(path.read_bytes(), DoctorReport) == measured
    assert asked == [(tmp_path, LIMIT_S), (Path(), 0.0)]


def test_a_folder_that_is_no_repository_is_a_finding(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flopwatch.doctor.ask_torch", TorchAnswer)
    assert main(["doctor", "-C", str(tmp_path)]) == ExitCode.UNFIT
    assert "is in no git repository" in capsys.readouterr().out

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from runner import judge

if TYPE_CHECKING:
    from pathlib import Path

SHA = "a" * 40


def judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, text: str) -> tuple[int, str]:
    """Return the exit code and the output of the job, where the report exits with `code`."""
    commands: list[list[str]] = []

    def run(command: list[str], **_: object) -> Any:  # noqa: ANN401 - a finished process
        commands.append(command)
        return type("Done", (), {"returncode": code})

    monkeypatch.setattr("runner.judge.subprocess.run", run)
    monkeypatch.setenv("SHA", SHA)
    monkeypatch.setenv("GITHUB_OUTPUT", str(tmp_path / "output"))
    (tmp_path / "output").write_text("")
    (tmp_path / "result.json").write_text(text)
    ended = judge.main([str(tmp_path / "result.json"), str(tmp_path)])
    assert commands[0][-5:] == ["--recompute", "--policy", str(tmp_path), "--sha", SHA]
    return ended, (tmp_path / "output").read_text()


@pytest.mark.parametrize("code", [0, 1, 2, 4])
def test_the_verdict_of_a_gpu_is_the_reports(code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert judged(tmp_path, monkeypatch, code, json.dumps({"gpu": "NVIDIA H200"})) == (0, f"code={code}\n")


@pytest.mark.parametrize("gpu", [None, "", 0])
def test_without_a_gpu_nothing_is_green(gpu: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert judged(tmp_path, monkeypatch, 0, json.dumps({"gpu": gpu})) == (0, "code=4\n")


@pytest.mark.parametrize("text", ["", "[]", "{}", "[" * 100_000])
def test_what_cannot_be_read_is_refused(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert judged(tmp_path, monkeypatch, 0, text) == (0, "code=3\n")


def test_what_the_report_refuses_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert judged(tmp_path, monkeypatch, 3, json.dumps({"gpu": "NVIDIA H200"})) == (0, "code=3\n")


def test_a_report_that_crashed_judges_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert judged(tmp_path, monkeypatch, -11, json.dumps({"gpu": "NVIDIA H200"})) == (2, "")

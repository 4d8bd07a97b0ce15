from __future__ import annotations

from typing import TYPE_CHECKING

from flopwatch.cli.json_option import claim_json, show
from flopwatch.model import Case, from_json

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

CASE = Case(suite="Add", values=("16", "flopwatch"))


def say() -> None:
    print("for people")  # noqa: T201 - what a verb does


def test_without_the_option_people_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    claim_json(None)
    show(CASE, None, say)
    assert capsys.readouterr().out == "for people\n"


def test_a_file_gets_the_record_and_people_are_told(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    show(CASE, tmp_path / "case.json", say)
    assert capsys.readouterr().out == "for people\n"
    assert from_json((tmp_path / "case.json").read_bytes(), Case) == CASE


def test_stdout_gets_the_record_and_nothing_else(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = type(tmp_path)("-")
    claim_json(path)
    show(CASE, path, say)
    assert from_json(capsys.readouterr().out, Case) == CASE
    assert list(tmp_path.iterdir()) == []

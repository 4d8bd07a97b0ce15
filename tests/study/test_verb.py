from __future__ import annotations

import io
import json
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tests.study.test_report import STUDY, TABLE

from flopwatch.cli import main
from flopwatch.errors import ExitCode
from flopwatch.gate.conclusions import Verdict
from flopwatch.study.run import StudyOptions

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import ToyRepository


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[StudyOptions]:
    """What the verb asks for; it is told `STUDY`."""
    found: list[StudyOptions] = []

    def run(options: StudyOptions, _root: Path, *, observer: object) -> object:
        assert observer
        found.append(options)
        return STUDY

    monkeypatch.setattr("flopwatch.study.run.run_study", run)
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    return found


def test_a_study_is_written_as_a_table_a_plot_and_json(
    toy: ToyRepository, asked: list[StudyOptions], tmp_path: Path
) -> None:
    names = {kind: tmp_path / f"study.{kind}" for kind in ("csv", "svg", "json")}
    options = [part for kind, path in names.items() for part in (f"--{kind}", str(path))]

    code = main(["compare", "-C", str(toy.root), "--study", "Swizzle", "-k", "2048", "--pairs", "3", *options])

    assert code == ExitCode.OK
    assert asked == [StudyOptions(study="Swizzle", select="2048", rounds=3)]
    assert names["csv"].read_text(encoding="utf-8") == TABLE
    assert names["svg"].read_text(encoding="utf-8").startswith("<svg ")
    assert json.loads(names["json"].read_text(encoding="utf-8"))["suite"] == "Swizzle"


def test_a_refuted_conclusion_is_the_exit_code(toy: ToyRepository, monkeypatch: pytest.MonkeyPatch) -> None:
    refuted = replace(STUDY, decisions=(replace(STUDY.decisions[0], verdict=Verdict.FAILS),))
    monkeypatch.setattr("flopwatch.study.run.run_study", lambda *_, **__: refuted)
    assert main(["compare", "-C", str(toy.root), "--parameter", "order"]) == ExitCode.REGRESSED


def test_an_unfit_machine_writes_no_table(toy: ToyRepository, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("flopwatch.study.run.run_study", lambda *_, **__: replace(STUDY, unfit="it is busy"))
    table = tmp_path / "study.csv"
    code = main(["compare", "-C", str(toy.root), "--study", "Swizzle", "--csv", str(table)])
    assert code == ExitCode.UNFIT
    assert not table.exists() or table.read_text(encoding="utf-8") == ""


@pytest.mark.usefixtures("asked")
@pytest.mark.parametrize(
    "arguments",
    [
        ["main", "--study", "Swizzle"],
        ["--parameter", "order", "--provider", "torch"],
        ["--csv", "table.csv"],
        ["--study", "Swizzle", "--svg", "no/such/folder/plot.svg"],
    ],
)
def test_what_makes_no_sense_is_refused(toy: ToyRepository, arguments: list[str]) -> None:
    assert main(["compare", "-C", str(toy.root), *arguments]) == ExitCode.USAGE


@pytest.mark.usefixtures("asked")
def test_a_table_that_cannot_be_written_does_not_cost_the_rest(
    toy: ToyRepository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_study: object) -> str:
        raise OSError(28, "No space left on device")

    names = {kind: tmp_path / f"study.{kind}" for kind in ("csv", "svg", "json")}
    names["csv"].write_text("of yesterday", encoding="utf-8")
    monkeypatch.setattr("flopwatch.report.study.table", full)
    options = [part for kind, path in names.items() for part in (f"--{kind}", str(path))]
    assert main(["compare", "-C", str(toy.root), "--study", "Swizzle", *options]) == ExitCode.USAGE
    assert names["csv"].read_text(encoding="utf-8") == "of yesterday"
    assert names["svg"].read_text(encoding="utf-8").startswith("<svg ")
    assert json.loads(names["json"].read_text(encoding="utf-8"))["suite"] == "Swizzle"

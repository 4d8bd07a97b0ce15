from __future__ import annotations

import argparse
import re
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from flopwatch.cli.history import add_history
from flopwatch.errors import ExitCode
from flopwatch.history import Change, History, Point, Series
from flopwatch.model import from_json
from flopwatch.suite import METRICS

if TYPE_CHECKING:
    from tests.conftest import ToyRepository

PAGE = (Path(__file__).parents[2] / "docs" / "history.md").read_text(encoding="utf-8")
FOUND = History(
    metric="time",
    unit="seconds",
    series=(
        Series(
            case="Scale[1000,flopwatch]",
            labels={"machine": "h200"},
            points=(Point(commit="a" * 40, date="2026-11-21", value=1e-3),),
        ),
    ),
)


def parser() -> argparse.ArgumentParser:
    whole = argparse.ArgumentParser()
    add_history(whole.add_subparsers())
    return whole


def run(*arguments: str) -> int:
    parsed = parser().parse_args(["history", *arguments])
    code: int = parsed.run(parsed)
    return code


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, dict[str, Any]]]:
    """What a stand-in for `read_history` was asked."""
    questions: list[tuple[str, dict[str, Any]]] = []

    def stand_in(_root: Path, case: str, **options: Any) -> History:  # noqa: ANN401 - recorded
        questions.append((case, options))
        return FOUND

    monkeypatch.setattr("flopwatch.history.read_history", stand_in)
    return questions


def test_the_options_reach_the_reader(toy: ToyRepository, asked: list[tuple[str, dict[str, Any]]]) -> None:
    assert run("Scale", "-C", str(toy.root)) == ExitCode.OK
    assert run("Scale", "--metric", "spills", "--last", "5", "-C", str(toy.root)) == ExitCode.OK
    assert asked == [("Scale", {"metric": "time", "last": None}), ("Scale", {"metric": "spills", "last": 5})]


@pytest.mark.usefixtures("asked")
def test_the_history_is_printed_written_and_drawn(
    toy: ToyRepository, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = tmp_path / "history.json"
    for name, start in (("plot.svg", "<svg"), ("plot.html", "<!doctype html>")):
        drawn = tmp_path / name
        assert run("Scale", "-C", str(toy.root), "--json", str(kept), "--out", str(drawn)) == ExitCode.OK
        assert drawn.read_text(encoding="utf-8").startswith(start)
    assert from_json(kept.read_bytes(), History) == FOUND
    assert capsys.readouterr().out.startswith("Scale[1000,flopwatch]: time; h200\n")


@pytest.mark.parametrize("name", ["plot.png", "plot", "svg"])
def test_a_drawing_of_another_kind_is_refused(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parser().parse_args(["history", "Scale", "--out", name])
    assert f"{name!r} ends in neither .svg nor .html" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["0", "-1", "all"])
def test_a_number_of_commits_is_one(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parser().parse_args(["history", "Scale", f"--last={text}"])
    assert f"{text!r} is no number of commits" in capsys.readouterr().err


def test_the_page_has_every_metric() -> None:
    chapter = PAGE.partition("\n## Bisection\n")[0]
    assert all(f"`{metric}`" in chapter for metric in METRICS)


@pytest.mark.parametrize("record", [History, Series, Point, Change])
def test_the_page_has_every_key_of_the_json(record: type) -> None:
    table = PAGE.partition(f"#### {record.__name__}\n")[2].partition("\n#")[0]
    assert re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE) == [field.name for field in fields(record)]

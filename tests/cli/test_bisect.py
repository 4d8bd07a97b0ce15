from __future__ import annotations

import argparse
import re
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from flopwatch.bisect import Bisection, BisectOptions, Commit, Effect, Step
from flopwatch.bisect.facts import FACTS
from flopwatch.bisect.times import STEP_PAIRS
from flopwatch.cli.bisect import FEWEST_PAIRS, add_bisect
from flopwatch.errors import ExitCode
from flopwatch.model import Case, from_json
from flopwatch.stats import Design

if TYPE_CHECKING:
    from tests.conftest import ToyRepository

PAGE = (Path(__file__).parents[2] / "docs" / "history.md").read_text(encoding="utf-8")
COMMIT = Commit(hash="a" * 40, date="2026-11-21", subject="slow")
FOUND = Bisection(
    case=Case(suite="Scale", values=("1000000", "float16", "flopwatch")),
    fact="",
    good=COMMIT,
    bad=COMMIT,
    device="NVIDIA H200",
    differs=True,
    difference=Effect(estimate=0.02, lower=0.01, upper=0.03, pairs=18),
    candidates=(COMMIT,),
)


def parser() -> argparse.ArgumentParser:
    whole = argparse.ArgumentParser()
    add_bisect(whole.add_subparsers())
    return whole


def run(*arguments: str) -> int:
    parsed = parser().parse_args(["bisect", *arguments])
    code: int = parsed.run(parsed)
    return code


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[BisectOptions]:
    """What a stand-in for `run_bisect` was asked."""
    options: list[BisectOptions] = []

    def stand_in(asked: BisectOptions, _root: Path, **_: object) -> Bisection:
        options.append(asked)
        return FOUND

    monkeypatch.setattr("flopwatch.bisect.run_bisect", stand_in)
    return options


def test_the_options_reach_the_bisection(toy: ToyRepository, asked: list[BisectOptions]) -> None:
    here = ["-C", str(toy.root)]
    assert run("Scale", "v1", "main", *here) == ExitCode.OK
    assert run("Scale", "v1", "main", "--fact", "spills", "--device", "a100", "--pairs", "20", *here) == ExitCode.OK
    assert asked == [
        BisectOptions(case="Scale", good="v1", bad="main"),
        BisectOptions(case="Scale", good="v1", bad="main", fact="spills", device="a100", pairs=20),
    ]


@pytest.mark.usefixtures("asked")
def test_the_bisection_is_printed_and_written(
    toy: ToyRepository, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "bisect.json"
    assert run("Scale", "v1", "main", "-C", str(toy.root), "--json", str(path)) == ExitCode.OK
    assert from_json(path.read_bytes(), Bisection) == FOUND
    assert capsys.readouterr().out.startswith("aaaaaaaaaaaa made Scale[1000000,float16,flopwatch] 2.02 % slower")


@pytest.mark.parametrize("text", ["7", "-1", "many", "8.5"])
def test_too_few_pairs_are_refused(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parser().parse_args(["bisect", "Scale", "a", "b", f"--pairs={text}"])
    assert f"{text!r} is no number of pairs from 8 on" in capsys.readouterr().err


def test_the_help_has_the_numbers_and_names_of_the_code(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parser().parse_args(["bisect", "--help"])
    text = re.sub(r"\s+", " ", capsys.readouterr().out)
    assert f"differ ({Design().pairs}), and of a step at most ({STEP_PAIRS})" in text
    assert f"{{{','.join(FACTS)}}}" in text
    assert Design().first_look == FEWEST_PAIRS


@pytest.mark.parametrize("record", [Bisection, Step, Commit, Effect])
def test_the_page_has_every_key_of_the_json(record: type) -> None:
    table = PAGE.partition(f"#### {record.__name__}\n")[2].partition("\n#")[0]
    assert re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE) == [field.name for field in fields(record)]

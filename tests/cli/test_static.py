from __future__ import annotations

import json
import re
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from flopwatch.cli import build_parser, main
from flopwatch.errors import ExitCode
from flopwatch.model import KernelFacts, from_json
from flopwatch.static.recorder import Autotune
from flopwatch.survey import Drift, Gap, Held, Survey
from flopwatch.survey.run import SurveyOptions

if TYPE_CHECKING:
    from tests.conftest import ToyRepository

PAGE = (Path(__file__).parents[2] / "docs" / "static.md").read_text(encoding="utf-8")
FACT = KernelFacts(kernel="scale_kernel", device="h200", config="BLOCK=256", variant="*fp16", chosen=True, registers=18)
FOUND = Survey(
    base=None,
    head="working tree",
    devices=("h200",),
    autotune=Autotune.ALL,
    versions={"triton": "3.7.1"},
    cases=2,
    facts=(FACT,),
)
OTHER_TRITON = replace(FOUND, held=Held(path="facts.json", refusal="it is of triton 3.6.0"))
DRIFTED = replace(
    FOUND,
    held=Held(
        path="facts.json",
        drifts=(Drift(kernel="k", device="h200", variant="", config="", fact="registers", held="1", found="2"),),
    ),
)


class Surveyor:
    """Stands in for `run_survey`: keeps what it was asked and returns a made-up survey."""

    def __init__(self) -> None:
        self.asked: list[SurveyOptions] = []
        self.found = FOUND

    def __call__(self, options: SurveyOptions, _root: Path, **_: object) -> Survey:
        self.asked.append(options)
        return self.found


@pytest.fixture
def surveyor(monkeypatch: pytest.MonkeyPatch) -> Surveyor:
    stand_in = Surveyor()
    monkeypatch.setattr("flopwatch.survey.run.run_survey", stand_in)
    return stand_in


def test_the_options_reach_the_survey(toy: ToyRepository, surveyor: Surveyor) -> None:
    in_toy = ["static", "-C", str(toy.root)]
    held = toy.root / "facts.json"
    assert main(in_toy) == ExitCode.OK
    assert main([*in_toy, "main", "topic", "-k", "Scale", "--device", "h200, b200,", "--autotune", "first"]) == 0
    assert main([*in_toy, "--baseline", str(held), "--write"]) == ExitCode.OK
    assert surveyor.asked == [
        SurveyOptions(),
        SurveyOptions(base="main", head="topic", select="Scale", devices=("h200", "b200"), autotune=Autotune.FIRST),
        SurveyOptions(baseline=held, write=True),
    ]


@pytest.mark.parametrize(
    ("found", "code", "informing"),
    [
        (FOUND, ExitCode.OK, 0),
        (DRIFTED, ExitCode.REGRESSED, 0),
        (OTHER_TRITON, ExitCode.UNDECIDED, 0),
    ],
)
def test_the_exit_code_is_that_of_the_survey(
    found: Survey, code: ExitCode, informing: int, toy: ToyRepository, surveyor: Surveyor
) -> None:
    surveyor.found = found
    assert main(["static", "-C", str(toy.root)]) == code
    assert main(["static", "-C", str(toy.root), "--exit-zero"]) == informing


def test_the_survey_is_printed_and_written(
    toy: ToyRepository, surveyor: Surveyor, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    surveyor.found = DRIFTED
    path = tmp_path / "static.json"
    main(["static", "-C", str(toy.root), "--json", str(path)])
    assert capsys.readouterr().out.startswith("Drifted: 1 configuration is not as facts.json holds them.\n")
    assert from_json(path.read_bytes(), Survey) == DRIFTED
    main(["static", "-C", str(toy.root), "--markdown"])
    assert capsys.readouterr().out.startswith("### Drifted: ")
    main(["static", "-C", str(toy.root), "--json", "-", "--markdown"])
    assert json.loads(capsys.readouterr().out)["exit_code"] == 1


@pytest.mark.parametrize(
    "option", [["--json", "/nonexistent/static.json"], ["--baseline", "/nonexistent/facts.json", "--write"]]
)
def test_a_file_that_cannot_be_written_is_refused_before_anything_is_compiled(
    option: list[str], toy: ToyRepository, surveyor: Surveyor
) -> None:
    assert main(["static", "-C", str(toy.root), *option]) == ExitCode.USAGE
    assert surveyor.asked == []


@pytest.mark.parametrize("arguments", [["--device", ","], ["--device", ""], ["--autotune", "fastest"]])
def test_what_names_nothing_is_a_usage_error(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        build_parser().parse_args(["static", *arguments])
    assert caught.value.code == ExitCode.USAGE


@pytest.mark.parametrize("record", [Survey, Gap, Held, Drift])
def test_the_page_has_every_key_of_the_json(record: type) -> None:
    table = PAGE.partition(f"### {record.__name__}\n")[2].partition("\n#")[0]
    assert re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE) == [field.name for field in fields(record)]


def test_the_page_has_every_option() -> None:
    names = re.findall(r"^  +(-k|--\w[\w-]*)", build_parser_help(), re.MULTILINE)
    assert [name for name in names if f"`{name}" not in PAGE and name not in ("--verbose", "--help")] == []


def build_parser_help() -> str:
    parser = build_parser()
    (action,) = [action for action in parser._actions if action.dest == "verb"]
    assert isinstance(action.choices, dict)
    return str(action.choices["static"].format_help())

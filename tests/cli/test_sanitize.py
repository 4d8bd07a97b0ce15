from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from flopwatch.cli import main
from flopwatch.errors import ExitCode, MachineError
from flopwatch.model import Case
from flopwatch.sanitize import CaseReport, Sanitized, Tool
from flopwatch.sanitize.run import SanitizeOptions

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import ToyRepository

CASE = Case(suite="Scale", values=("1000", "float32", "flopwatch"))


class Run:
    """Stands in for `run_sanitize`."""

    def __init__(self) -> None:
        self.options: list[SanitizeOptions] = []
        self.error: Exception | None = None

    def __call__(self, options: SanitizeOptions, _root: Path, **_: object) -> Sanitized:
        self.options.append(options)
        if self.error is not None:
            raise self.error
        report = CaseReport(case=CASE, tool=Tool.INTERPRETER)
        return Sanitized(
            head="working tree", gpu=None, tools={"interpreter": "1"}, versions={}, selected=1, reports=(report,)
        )


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    stand_in = Run()
    monkeypatch.setattr("flopwatch.sanitize.run.run_sanitize", stand_in)
    return stand_in


def test_the_options_reach_the_run(toy: ToyRepository, run: Run) -> None:
    start = ["sanitize", "-C", str(toy.root)]

    assert main(start) == ExitCode.OK
    assert main([*start, "Scale", "Other", "--on", "cpu", "--tool", "Interpreter, triton-viz"]) == ExitCode.OK
    assert main([*start, "--full"]) == ExitCode.OK
    assert run.options == [
        SanitizeOptions(),
        SanitizeOptions(select=("Scale", "Other"), device="cpu", tools=(Tool.INTERPRETER, Tool.TRITON_VIZ)),
        SanitizeOptions(full=True),
    ]


def test_everything_found_can_be_had_as_json(toy: ToyRepository, run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sanitize", "-C", str(toy.root), "--json", "-"]) == ExitCode.OK
    assert json.loads(capsys.readouterr().out)["reports"][0]["case"]["suite"] == "Scale"
    assert len(run.options) == 1


@pytest.mark.usefixtures("run")
def test_markdown_is_printed_where_it_is_asked_for(toy: ToyRepository, capsys: pytest.CaptureFixture[str]) -> None:
    main(["sanitize", "-C", str(toy.root), "--markdown"])

    assert capsys.readouterr().out.startswith("### Clean: interpreter found no fault in 1 case.\n")


@pytest.mark.parametrize("names", ["valgrind", "memcheck,valgrind", ","])
def test_a_tool_that_is_none_is_refused(names: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["sanitize", "--tool", names])

    assert caught.value.code == ExitCode.USAGE
    assert "is none of memcheck, racecheck" in capsys.readouterr().err


def test_a_machine_without_what_is_needed_is_unfit(toy: ToyRepository, run: Run) -> None:
    run.error = MachineError("there is no compute-sanitizer")

    assert main(["sanitize", "-C", str(toy.root)]) == ExitCode.UNFIT

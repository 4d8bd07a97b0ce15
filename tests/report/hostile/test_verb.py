"""The verb itself, and that it needs nothing installed: it may run beside a token that can write."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import flopwatch
from flopwatch.cli.report import FORMATS, add_report
from flopwatch.errors import ExitCode, UsageError
from flopwatch.model import to_json

if TYPE_CHECKING:
    from flopwatch.gate import GateResult

SOURCE = Path(flopwatch.__file__).parent.parent
#: Runs the verb, and prints what was imported of what is installed.
ALONE = """
import sys
sys.path.insert(0, sys.argv.pop(1))
from flopwatch.cli.report import add_report
import argparse
parser = argparse.ArgumentParser()
add_report(parser.add_subparsers())
arguments = parser.parse_args(sys.argv[1:])
code = arguments.run(arguments)
heavy = {"msgspec", "numpy", "rich", "torch", "triton", "pynvml"}
print(sorted(heavy & {name.partition(".")[0] for name in sys.modules}), file=sys.stderr)
sys.exit(code)
"""


def report(*arguments: str) -> int:
    parser = argparse.ArgumentParser()
    add_report(parser.add_subparsers())
    parsed = parser.parse_args(["report", *arguments])
    code: int = parsed.run(parsed)
    return code


@pytest.fixture
def path(honest: GateResult, tmp_path: Path) -> Path:
    path = tmp_path / "gate.json"
    path.write_bytes(to_json(honest))
    return path


@pytest.mark.parametrize("form", [form for form in FORMATS if form != "terminal"])
def test_a_report_needs_the_standard_library_alone(form: str, path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", ALONE, str(SOURCE), "report", str(path), "--format", form, "--pr", "7"],
        capture_output=True,
        encoding="utf-8",
        check=False,
        env={"LC_ALL": "C"},
    )
    assert (done.returncode, done.stderr) == (ExitCode.REGRESSED, "[]\n")
    assert "Regressed: " in done.stdout


@pytest.mark.parametrize("form", FORMATS)
def test_each_format_goes_to_a_file(form: str, path: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    assert report(str(path), "--format", form, "--out", str(out)) == ExitCode.REGRESSED
    assert "Regressed: " in out.read_text(encoding="utf-8")
    assert capfd.readouterr().out == ""


def test_the_terminals_format_is_the_gates_report(path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert report(str(path)) == ExitCode.REGRESSED
    printed = capfd.readouterr().out
    assert printed.startswith(
        "Regressed: 1 case broken; 1 case slower (Matmul[1x64x64,float16,flopwatch], 1.98 % slower).\n"
    )
    assert "Time per call, base and head in turns" in printed


def test_no_line_of_a_terminals_report_is_a_command_of_the_runner(
    honest: GateResult, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    slower = replace(honest.verdicts[1], notes=("::error::owned", "##[error]owned"))
    path = tmp_path / "gate.json"
    path.write_bytes(to_json(replace(honest, verdicts=(honest.verdicts[0], slower, *honest.verdicts[2:]))))
    assert report(str(path)) == ExitCode.REGRESSED
    printed = capfd.readouterr().out
    assert "owned" in printed
    assert "##[" not in printed
    assert [line for line in printed.splitlines() if line.strip().startswith("::")] == []


def test_a_refused_result_is_shown_and_exits_3_whatever_the_option(
    path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path.write_text("[]", encoding="utf-8")
    for form in FORMATS:
        assert report(str(path), "--format", form, "--exit-zero") == ExitCode.UNDECIDED
        assert "Refused: the result cannot be believed" in capfd.readouterr().out


def test_exit_zero_is_for_verdicts(path: Path) -> None:
    assert report(str(path), "--exit-zero", "--format", "markdown") == ExitCode.OK


def test_the_worst_result_decides(honest: GateResult, path: Path, tmp_path: Path) -> None:
    fine = tmp_path / "fine.json"
    fine.write_bytes(to_json(replace(honest, verdicts=honest.verdicts[-1:], pairs=(), suite=None)))
    assert report(str(fine), "--format", "junit") == ExitCode.OK
    assert report(str(fine), str(path), "--format", "junit") == ExitCode.REGRESSED


def test_the_decision_is_made_again_on_demand(path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert report(str(path), "--recompute", "--format", "markdown") == ExitCode.REGRESSED
    table = json.loads(path.read_bytes())
    for verdict in table["verdicts"][:6]:
        verdict["time"]["lower"] = None
    path.write_text(json.dumps(table), encoding="utf-8")
    capfd.readouterr()
    assert report(str(path), "--recompute", "--format", "markdown") == ExitCode.UNDECIDED
    assert "its interval is not that of its pairs" in capfd.readouterr().out


@pytest.mark.parametrize(
    "arguments",
    [
        ("--pr", "0"),
        ("--pr", "7; id"),
        ("--pr", "#7"),
        ("--sha", "0123456"),
        ("--sha", "0" * 39 + "G"),
        ("--sha", "$(id)"),
        ("--format", "pdf"),
    ],
)
def test_what_a_workflow_hands_over_is_checked(arguments: tuple[str, ...], path: Path) -> None:
    with pytest.raises(SystemExit) as caught:
        report(str(path), *arguments)
    assert caught.value.code == ExitCode.USAGE


def test_more_results_than_a_comment_has_room_for_are_refused(path: Path) -> None:
    with pytest.raises(UsageError, match="17 results"):
        report(*[str(path)] * 17)


def test_suites_are_annotated_where_the_checkout_declares_them(
    path: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "benchmarks"
    folder.mkdir()
    (folder / "matmul.py").write_text("class Matmul(Suite):\n    pass\n", encoding="utf-8")
    report(str(path), "--format", "annotations", "--suites", str(folder))
    assert "::error file=benchmarks/matmul.py,line=1,title=flopwatch::Matmul[" in capfd.readouterr().out


def test_suites_that_are_not_there_are_an_error(path: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is not a folder"):
        report(str(path), "--format", "annotations", "--suites", str(tmp_path / "benchmark"))

from __future__ import annotations

import argparse
import io
import re
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from rich.console import Console

from flopwatch.asv.failures import KeptFailure
from flopwatch.cli.record import MOST_FAILURES, add_record, print_recording
from flopwatch.errors import ExitCode
from flopwatch.measure.session import HISTORY_SAMPLES
from flopwatch.model import Failure, from_json
from flopwatch.record import RecordedCommit, Recording, RecordOptions
from flopwatch.record.sidecar import CaseLog, Line

if TYPE_CHECKING:
    from tests.conftest import ToyRepository

PAGE = (Path(__file__).parents[2] / "docs" / "record.md").read_text(encoding="utf-8")
COMMIT = RecordedCommit(commit="c0ffee" * 6 + "c0ff", path="results/lab/c0ffeec0-shared.json", cases=5, before=1)
FOUND = Recording(machine="lab", environment="shared", gpu="NVIDIA H200", commits=(COMMIT,), seconds=61.0)


def main(*arguments: str) -> int:
    """Run the verb alone."""
    parser = argparse.ArgumentParser()
    add_record(parser.add_subparsers(dest="verb", required=True))
    parsed = parser.parse_args(["record", *arguments])
    code: int = parsed.run(parsed)
    return code


def failure(case: str, message: str) -> KeptFailure:
    return KeptFailure(case=case, metrics=("time",), failure=Failure(kind="OutOfResources", message=message))


def printed(recording: Recording) -> list[str]:
    console = Console(file=io.StringIO(), width=100)
    print_recording(recording, console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[RecordOptions]:
    """What a stand-in for `run_record` was asked."""
    options: list[RecordOptions] = []

    def stand_in(asked: RecordOptions, _root: Path, **_: object) -> Recording:
        options.append(asked)
        return FOUND

    monkeypatch.setattr("flopwatch.record.run_record", stand_in)
    return options


def test_the_options_reach_the_recorder(toy: ToyRepository, asked: list[RecordOptions]) -> None:
    in_toy = ("-C", str(toy.root))
    assert main(*in_toy) == ExitCode.OK
    assert main(*in_toy, "NEW", "--machine", "lab", "--anchor", "v1", "-k", "Scale", "--samples", "--again") == 0
    assert asked == [
        RecordOptions(),
        RecordOptions(revisions="NEW", machine="lab", anchor="v1", select="Scale", samples=True, again=True),
    ]


@pytest.mark.usefixtures("asked")
def test_the_recording_is_printed_and_written(
    toy: ToyRepository, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "record.json"
    assert main("-C", str(toy.root), "--json", str(path)) == ExitCode.OK
    assert from_json(path.read_bytes(), Recording) == FOUND
    assert capsys.readouterr().out.startswith("Recorded 5 cases of 1 commit on lab (NVIDIA H200) in 1:01\n")


def test_a_file_that_cannot_be_written_is_refused_before_anything_is_measured(
    toy: ToyRepository, asked: list[RecordOptions]
) -> None:
    with pytest.raises(Exception, match="cannot be written"):
        main("-C", str(toy.root), "--json", "/nonexistent/record.json")
    assert asked == []


def test_failures_are_told_once_for_each_cause() -> None:
    failures = (failure("A[1]", "no\x1b[2J room"), failure("A[2]", "no\x1b[2J room"), failure("B[1]", "[red]lost"))
    lines = printed(replace(FOUND, commits=(replace(COMMIT, failures=failures),)))
    assert lines[1:] == [
        "  c0ffeec0: 5 cases, 3 with failures, 1 recorded before",
        "            A[1] and 1 more: OutOfResources: no [2J room",
        "            B[1]: OutOfResources: [red]lost",
    ]


def test_of_many_causes_the_first_are_told() -> None:
    failures = tuple(failure(f"A[{number}]", f"cause {number}") for number in range(MOST_FAILURES + 2))
    lines = printed(replace(FOUND, commits=(replace(COMMIT, failures=failures),)))
    assert len(lines) == 2 + MOST_FAILURES + 1
    assert lines[-1].strip() == "and 2 more causes; all are in the .jsonl file beside the result"


def test_what_went_wrong_is_told() -> None:
    unfit = replace(COMMIT, unfit="a neighbour")
    lines = printed(replace(FOUND, commits=(unfit,), interrupted=True, unfit="the GPU is lost", notes=("slow",)))
    assert lines[0].endswith("(interrupted; what is recorded stays, and the same command goes on)")
    assert lines[1] == "Stopped: the GPU is lost"
    assert lines[3:] == ["            not to be trusted: a neighbour", "Note: slow"]


def test_where_nothing_was_left_that_is_told() -> None:
    nothing = replace(FOUND, gpu=None, commits=(replace(COMMIT, cases=0, before=6),))
    assert printed(nothing) == ["Nothing new to record on lab (no GPU) in 1:01"]


def test_an_interrupt_before_the_first_case_does_not_say_that_nothing_was_left() -> None:
    lines = printed(replace(FOUND, commits=(replace(COMMIT, cases=0),), interrupted=True))
    assert lines[0].startswith("Recorded nothing on ")


@pytest.mark.parametrize(
    ("found", "code"),
    [
        (FOUND, ExitCode.OK),
        (replace(FOUND, commits=()), ExitCode.OK),
        (replace(FOUND, commits=(replace(COMMIT, failures=(failure("A[1]", "planted"),)),)), ExitCode.OK),
        (replace(FOUND, commits=(replace(COMMIT, cases=1, failures=(failure("A", "planted"),)),)), ExitCode.UNDECIDED),
        (replace(FOUND, interrupted=True), ExitCode.UNDECIDED),
        (replace(FOUND, unfit="lost"), ExitCode.UNFIT),
        (replace(FOUND, commits=(replace(COMMIT, unfit="busy"),)), ExitCode.UNFIT),
    ],
)
def test_the_exit_code_says_whether_something_is_recorded(found: Recording, code: ExitCode) -> None:
    assert found.exit_code == code


@pytest.mark.parametrize("record", [Recording, RecordedCommit, CaseLog])
def test_the_page_has_every_key_of_the_json(record: type) -> None:
    table = PAGE.partition(f"### {record.__name__}\n")[2].partition("\n#")[0]
    assert re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE) == [field.name for field in fields(record)]


def test_the_page_has_every_kind_of_line_and_the_numbers_of_the_code() -> None:
    assert all(f"| `{field.name}` |" in PAGE for field in fields(Line))
    assert f"the median of {HISTORY_SAMPLES} samples" in PAGE

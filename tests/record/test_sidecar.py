from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

from flopwatch.measure.machine import Machine
from flopwatch.model import Choice, Failure, from_json
from flopwatch.record.sidecar import CaseLog, GivenUp, Line, Missing, SessionLog, append, read_cases

if TYPE_CHECKING:
    from pathlib import Path

NOW = dt.datetime(2026, 11, 21, 18, tzinfo=dt.UTC)
FIRST = CaseLog(
    case="Scale[small,flopwatch]",
    version="1",
    at=NOW,
    seconds=0.5,
    missing=(Missing(metrics=("time",), failure=Failure(kind="OutOfResources", message="planted")),),
    compiled=(Choice(kernel="k", key="*fp16:16", config="BLOCK=64,num_warps=4"),),
    choices=(Choice(kernel="k", key="1024", config="BLOCK: 64, num_warps: 8"),),
    anchor="c0ffee",
    anchor_seconds=1e-3,
    pair_seconds=2e-3,
    commit_slot=1,
)
SECOND = CaseLog(case="Scale[large,flopwatch]", version="1", at=NOW, seconds=0.5)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "lab" / "c0ffee.jsonl"
    machine = Machine(gpu=None, versions={}, cpu_model="", cpu_count=1)

    append(path, Line(session=SessionLog(at=NOW, machine=machine)))
    append(path, Line(case=FIRST))
    append(path, Line(case=SECOND))

    assert read_cases(path) == [FIRST, SECOND]


def test_that_a_commit_was_given_up_is_kept_and_is_no_case(tmp_path: Path) -> None:
    path = tmp_path / "c0ffee.jsonl"
    line = Line(given_up=GivenUp(at=NOW, reason="not complete after 2160 s"))

    append(path, Line(case=FIRST))
    append(path, line)

    assert read_cases(path) == [FIRST]
    assert from_json(path.read_bytes().splitlines()[1], Line) == line


def test_without_a_file_no_case_is_done(tmp_path: Path) -> None:
    assert read_cases(tmp_path / "none.jsonl") == []


def test_a_line_that_a_crash_cut_short_costs_one_case_and_not_the_next(tmp_path: Path) -> None:
    path = tmp_path / "c0ffee.jsonl"
    append(path, Line(case=FIRST))
    whole = path.read_bytes()
    path.write_bytes(whole + whole[: len(whole) // 2])

    append(path, Line(case=SECOND))

    assert read_cases(path) == [FIRST, SECOND]


def test_a_line_from_before_configurations_were_kept_is_read(tmp_path: Path) -> None:
    path = tmp_path / "c0ffee.jsonl"
    path.write_text(
        '{"session":null,"case":{"case":"Scale[small,flopwatch]","version":"1","at":"2026-11-20T18:00:00Z",'
        '"seconds":0.5,"missing":[],"anchor":"","anchor_seconds":null,"pair_seconds":null,"commit_slot":null,'
        '"snapshot":null}}\n',
        encoding="utf-8",
    )

    (log,) = read_cases(path)

    assert (log.case, log.compiled, log.choices) == ("Scale[small,flopwatch]", (), None)

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from flopwatch.errors import ExitCode
from flopwatch.model import Failure, from_json, to_json
from flopwatch.sanitize import CaseReport, Finding, Sanitized


def result(*reports: CaseReport) -> Sanitized:
    return Sanitized(head="working tree", gpu=None, tools={}, versions={}, selected=len(reports), reports=reports)


NOT_COVERED = Failure(kind="NotCovered", message="inline_asm")
BROKEN = Failure(kind="RuntimeError", message="no scale today")


def test_the_exit_code_follows_from_what_was_found(clean: CaseReport, fault: Finding) -> None:
    faulty = replace(clean, findings=(fault,))
    foreign = replace(clean, findings=(replace(fault, own=False),))
    uncovered, broken = replace(clean, failure=NOT_COVERED), replace(clean, failure=BROKEN)

    assert result(clean).exit_code == ExitCode.OK
    assert result(clean, foreign).exit_code == ExitCode.OK
    assert result(clean, uncovered).exit_code == ExitCode.OK
    assert result(clean, faulty, broken).exit_code == ExitCode.REGRESSED
    assert result(clean, replace(broken, findings=(fault,))).exit_code == ExitCode.REGRESSED
    assert result(clean, broken).exit_code == ExitCode.UNDECIDED
    assert result(uncovered).exit_code == ExitCode.UNDECIDED
    assert result().exit_code == ExitCode.UNDECIDED


def test_it_can_be_written_and_read_again(clean: CaseReport, fault: Finding) -> None:
    before = result(replace(clean, findings=(fault,), notes=("a note",)), replace(clean, failure=BROKEN))

    assert from_json(to_json(before), Sanitized) == before


def test_a_key_of_a_wrong_type_is_named(clean: CaseReport, fault: Finding) -> None:
    text = to_json(result(replace(clean, findings=(fault,)))).replace(b'"line":12', b'"line":"12"')

    with pytest.raises(msgspec.ValidationError, match=r"reports\[0\]\.findings\[0\]\.line"):
        from_json(text, Sanitized)

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.study.test_decisions import GRID, POINTS, WITHIN, rounds

from flopwatch.errors import ExitCode
from flopwatch.gate.conclusions import Verdict
from flopwatch.measure.machine import Machine
from flopwatch.study.decisions import speed_between
from flopwatch.study.result import Decision, StudyResult

FOUND = StudyResult(
    suite="S",
    parameter="order",
    across="size",
    lines=("flopwatch none", "flopwatch 4", "flopwatch 8"),
    points=POINTS,
    base="flopwatch none",
    gpu="NVIDIA H200",
    machine=Machine(gpu=None, versions={}, cpu_model="", cpu_count=1),
    versions={},
    measured=tuple(GRID),
    rounds=tuple(rounds(8, {("flopwatch 8", "2"): 0.03}, noise=0.0)),
)


def decision(verdict: Verdict) -> Decision:
    return Decision(conclusion=WITHIN, verdict=verdict, comparisons=1)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (FOUND, ExitCode.OK),
        (replace(FOUND, decisions=(decision(Verdict.HOLDS),)), ExitCode.OK),
        (replace(FOUND, decisions=(decision(Verdict.HOLDS), decision(Verdict.UNSURE))), ExitCode.UNDECIDED),
        (replace(FOUND, decisions=(decision(Verdict.UNSURE), decision(Verdict.FAILS))), ExitCode.REGRESSED),
        (replace(FOUND, interrupted=True), ExitCode.UNDECIDED),
        (replace(FOUND, measured=tuple(replace(each, seconds=None) for each in GRID)), ExitCode.UNDECIDED),
        (replace(FOUND, unfit="hot", decisions=(decision(Verdict.FAILS),)), ExitCode.UNFIT),
    ],
)
def test_the_exit_code_is_that_of_the_worst(found: StudyResult, expected: ExitCode) -> None:
    assert found.exit_code == expected


def test_a_speed_is_of_two_lines_at_a_point_and_none_of_what_was_not_measured() -> None:
    speed = speed_between(FOUND, "flopwatch 8", "flopwatch none", "2")
    assert speed is not None
    assert speed.estimate == pytest.approx(-0.03)
    assert speed_between(FOUND, "flopwatch 8", "torch", "2") is None
    assert speed_between(FOUND, "torch", "flopwatch 8", "2") is None
    assert speed_between(FOUND, "flopwatch 8", "flopwatch none", "9") is None

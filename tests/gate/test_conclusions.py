from __future__ import annotations

import math
from dataclasses import replace

import pytest

from flopwatch.config import MAX_CONCLUSIONS
from flopwatch.errors import ExitCode
from flopwatch.gate import GateResult
from flopwatch.gate.conclusions import (
    CONCLUSIONS_ALPHA,
    CONFIRM_ROUNDS,
    PATH,
    Beside,
    Look,
    Outcome,
    Verdict,
    WatchedConclusion,
    confirm_alpha,
)
from flopwatch.gate.times import LAUNCH_CONFIRM_ALPHA
from flopwatch.model import Case, Mark, from_json, to_json
from flopwatch.stats import Design
from flopwatch.study.decisions import REFUTED_ALPHA
from flopwatch.verdict import Side

BESIDE = (
    Beside(other="flopwatch 4", at="4096", log_ratios=(0.001, 0.002, 0.009)),
    Beside(other="flopwatch 16", at="4096", log_ratios=(0.019, 0.02, 0.021)),
)
FOUND = WatchedConclusion(study="Tiles", says="8 is within 1 % of the best", line="flopwatch 8", percent=1.0)
STAGES = [(stage, side) for stage, side, _ in PATH]


def watched(*verdicts: Verdict, reason: str = "") -> WatchedConclusion:
    looks = tuple(
        Look(stage=stage, side=side, verdict=verdict, beside=BESIDE)
        for (stage, side), verdict in zip(STAGES, verdicts, strict=False)
    )
    return replace(FOUND, looks=looks, reason=reason)


@pytest.mark.parametrize(
    ("verdicts", "outcome"),
    [
        ("H", Outcome.HOLDS),
        ("?", Outcome.UNSURE),
        ("FF", Outcome.NEITHER),
        ("F?", Outcome.UNSURE),
        ("FHHF", Outcome.LOST),
        ("FHHH", Outcome.UNSURE),
        ("FH?F", Outcome.UNSURE),
        ("FHFF", Outcome.UNSURE),
        ("FHH", Outcome.UNSURE),
        ("", Outcome.UNSURE),
    ],
)
def test_only_what_all_four_looks_agree_on_is_lost(verdicts: str, outcome: Outcome) -> None:
    of_letter = {"H": Verdict.HOLDS, "F": Verdict.FAILS, "?": Verdict.UNSURE}
    assert watched(*(of_letter[letter] for letter in verdicts)).outcome is outcome


def test_what_went_wrong_outranks_the_looks() -> None:
    assert watched(*(step[2] for step in PATH), reason="the machine is unfit").outcome is Outcome.UNSURE
    assert replace(FOUND, identical=True).outcome is Outcome.UNCHANGED


def test_the_worst_is_the_one_beside_which_the_line_is_slowest() -> None:
    (look,) = watched(Verdict.FAILS).looks
    assert (look.worst.other, look.worst.median) == ("flopwatch 16", 0.02)


def test_a_lost_conclusion_fails_the_run_and_no_other_does() -> None:
    same = Side(seconds=1e-3, bits=("a", "b", "c"))
    verdict = {"case": Case(suite="Add", values=("1", "flopwatch")), "mark": Mark.SAME, "base": same, "head": same}
    gate = from_json(
        to_json(
            {"base": "a" * 40, "head": "b" * 40, "gpu": "NVIDIA H200", "device": "h200", "versions": {}}
            | {"facts": [], "base_facts": [], "fact_changes": [], "verdicts": [verdict]}
        ),
        GateResult,
    )
    lost = watched(*(step[2] for step in PATH))
    assert replace(gate, conclusions=(lost,)).exit_code == ExitCode.REGRESSED
    others = (watched(Verdict.UNSURE), watched(Verdict.FAILS, Verdict.FAILS), replace(FOUND, reason="it is gone"))
    whole = replace(gate, conclusions=others)
    assert (whole.exit_code, whole.lost) == (ExitCode.OK, ())
    assert from_json(to_json(replace(whole, conclusions=(lost, *others))), GateResult).lost == (lost,)


def test_the_shares_of_the_false_alarms_add_up_to_one_run_in_a_thousand() -> None:
    assert math.isclose(Design().false_alarm_rate + LAUNCH_CONFIRM_ALPHA + CONCLUSIONS_ALPHA, 0.001)
    for number in (1, MAX_CONCLUSIONS):
        assert number * REFUTED_ALPHA * confirm_alpha(number) <= CONCLUSIONS_ALPHA * (1 + 1e-9)


def test_as_many_conclusions_as_may_be_watched_can_be_proved_lost() -> None:
    two_most_extreme = 2 / 2**CONFIRM_ROUNDS
    assert two_most_extreme <= confirm_alpha(MAX_CONCLUSIONS)

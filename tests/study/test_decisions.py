from __future__ import annotations

import math
import random

from flopwatch.gate.conclusions import Verdict
from flopwatch.model import Case
from flopwatch.study import Conclusion
from flopwatch.study.decisions import decide, log_ratios
from flopwatch.study.result import Decision, Measured, Round

LINES, POINTS = ("flopwatch none", "flopwatch 4", "flopwatch 8"), ("1", "2", "3")
WITHIN = Conclusion(says="8 is within 1 % of the best", line="flopwatch 8", than=("flopwatch *",), percent=1.0)


def measured(line: str, at: str, *, seconds: float | None = 1.0) -> Measured:
    return Measured(
        case=Case(suite="S", values=(at, line)),
        line=line,
        at=at,
        flops=1.0,
        bytes_moved=1.0,
        ceiling_eps=2.0,
        seconds=seconds,
    )


GRID = [measured(line, at) for line in LINES for at in POINTS]


def rounds(number: int, slower: dict[tuple[str, str], float], *, noise: float = 0.001, seed: int = 1) -> list[Round]:
    """Make rounds of two cycles in which some lines are slower, by log ratios, each round off by itself."""
    chance = random.Random(seed)

    def turns(each: Measured) -> tuple[float, ...]:
        off = slower.get((each.line, each.at), 0.0) + chance.gauss(0, noise)
        return tuple(math.exp(off + chance.gauss(0, noise / 3)) for _ in range(2))

    return [Round(seconds=1.0, turns={each.case.id: turns(each) for each in GRID}, faults={}) for _ in range(number)]


def decided(found: list[Round], conclusion: Conclusion = WITHIN) -> Decision:
    return decide(conclusion, GRID, found, POINTS)


def test_what_is_true_holds() -> None:
    found = decided(rounds(8, {}))
    assert (found.verdict, found.comparisons) == (Verdict.HOLDS, 6)


def test_a_planted_fault_at_one_point_does_not_hold_and_is_named() -> None:
    found = decided(rounds(8, {("flopwatch 8", "2"): 0.03}))
    assert found.verdict is Verdict.FAILS
    assert found.at == "2"
    assert found.speed is not None
    assert found.speed.lower is not None
    assert found.speed.lower < -0.0295 < 0.0 > found.speed.estimate


def test_a_line_that_got_faster_than_the_one_concluded_about_refutes_it() -> None:
    found = decided(rounds(8, {("flopwatch none", "3"): -0.05}))
    assert found.verdict is Verdict.FAILS
    assert (found.other, found.at) == ("flopwatch none", "3")


def test_what_is_close_to_the_margin_is_unsure() -> None:
    assert decided(rounds(8, {("flopwatch 8", "1"): math.log(1.01)})).verdict is Verdict.UNSURE


def test_seven_rounds_are_too_few() -> None:
    assert decided(rounds(7, {})).verdict is Verdict.UNSURE


def test_faster_is_at_most_nothing_longer() -> None:
    faster = Conclusion(says="", line="flopwatch 8", than=("flopwatch none",), percent=0.0)
    slow_none = {("flopwatch none", at): 0.02 for at in POINTS}
    assert decided(rounds(8, slow_none), faster).verdict is Verdict.HOLDS
    assert decided(rounds(8, {key: -value for key, value in slow_none.items()}), faster).verdict is Verdict.FAILS


def test_a_conclusion_may_be_about_some_points() -> None:
    conclusion = Conclusion(says="", line="flopwatch 8", than=("flopwatch *",), percent=1.0, at=("1", "3"))
    found = decided(rounds(8, {("flopwatch 8", "2"): 0.03}), conclusion)
    assert (found.verdict, found.comparisons) == (Verdict.HOLDS, 4)


def test_a_line_that_was_not_measured_somewhere_is_unsure() -> None:
    lost = [
        each if each.line != "flopwatch 8" or each.at != "2" else measured(each.line, "2", seconds=None)
        for each in GRID
    ]
    found = decide(WITHIN, lost, rounds(8, {}), POINTS)
    assert (found.verdict, found.reason) == (Verdict.UNSURE, "flopwatch 8 was not measured at 2")


def test_others_that_do_not_run_are_left_out() -> None:
    some = [each for each in GRID if each.line != "flopwatch none"]
    assert decide(WITHIN, some, rounds(8, {}), POINTS).comparisons == 3
    alone = [each for each in GRID if each.line == "flopwatch 8"]
    assert decide(WITHIN, alone, rounds(8, {}), POINTS).reason == "nothing was measured to hold it against"


def test_a_round_that_lost_a_point_is_left_out_there() -> None:
    found = rounds(9, {})
    del found[4].turns["S[2,flopwatch 8]"]
    assert len(log_ratios(found, "S[2,flopwatch 8]", "S[2,flopwatch 4]")) == 8
    assert decided(found).verdict is Verdict.HOLDS


def test_at_the_margin_a_decision_is_rare() -> None:
    # Every comparison is at the margin, where neither decision is true: 1 % of 300 may be refuted, and less may hold;
    # 10 or more of either come once in 1,000.
    everywhere = {("flopwatch 8", at): math.log(1.01) for at in POINTS}
    found = [decided(rounds(8, everywhere, seed=seed)).verdict for seed in range(300)]
    assert found.count(Verdict.HOLDS) < 10
    assert found.count(Verdict.FAILS) < 10

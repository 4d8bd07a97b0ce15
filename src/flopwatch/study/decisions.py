"""What the rounds of a study say: how fast a line is beside another, and whether conclusions are true."""

from __future__ import annotations

import math
import statistics
from typing import TYPE_CHECKING

import numpy as np

from flopwatch.compare.pairs import ALPHA, speed_of
from flopwatch.gate.conclusions import Verdict
from flopwatch.measure.pair import log_ratio
from flopwatch.pattern import matches
from flopwatch.stats import PRIOR, max_t, single_p, standardise
from flopwatch.study.lines import lines_of
from flopwatch.study.result import Decision

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from flopwatch.compare.result import Speed
    from flopwatch.study.declaration import Conclusion
    from flopwatch.study.result import Measured, Round, StudyResult

#: The chance that a conclusion which is true is called refuted. Of 2^8 outcomes two are the most extreme, 0.8 %: what
#: is far on the right side of the margin is far on the wrong one where all signs are turned.
REFUTED_ALPHA = 0.01


def log_ratios(rounds: Sequence[Round], line: str, other: str) -> list[float]:
    """Return log(time of one case / time of another), by their names, one for each round that measured both.

    >>> from flopwatch.study.result import Round
    >>> taken = Round(seconds=1.0, turns={"a": (1.0, 2.0), "b": (1.1, 2.2)}, faults={})
    >>> [round(value, 4) for value in log_ratios([taken, taken], "b", "a")]
    [0.0953, 0.0953]
    """
    both = ((found.turns.get(other, ()), found.turns.get(line, ())) for found in rounds)
    return [
        log_ratio(((tuple((value,) for value in zero),), (tuple((value,) for value in one),)))
        for zero, one in both
        if zero and one
    ]


def speed_between(study: StudyResult, line: str, other: str, at: str) -> Speed | None:
    """Return the speed of a line at a point in units of another's; None where no round measured both."""
    names = {(each.line, each.at): each.case.id for each in study.measured}
    if not {(line, at), (other, at)} <= names.keys():
        return None
    return speed_of([-ratio for ratio in log_ratios(study.rounds, names[line, at], names[other, at])])


def decide(
    conclusion: Conclusion, measured: Sequence[Measured], rounds: Sequence[Round], points: Sequence[str]
) -> Decision:
    """Find out whether a conclusion is true."""
    found = comparisons(conclusion, measured, rounds, points)
    if isinstance(found, str):
        return Decision(conclusion=conclusion, verdict=Verdict.UNSURE, comparisons=0, reason=found)
    other, at = max(found, key=lambda each: statistics.fmean(found[each]))
    return Decision(
        conclusion=conclusion,
        verdict=verdict_on(found.values(), conclusion.percent),
        comparisons=len(found),
        other=other,
        at=at,
        speed=speed_of([-ratio for ratio in found[other, at]]),
    )


def comparisons(
    conclusion: Conclusion, measured: Sequence[Measured], rounds: Sequence[Round], points: Sequence[str]
) -> dict[tuple[str, str], list[float]] | str:
    """Return log(time of the conclusion's line / another's), one a round, by the other and the point; or why not."""
    ran = {(each.line, each.at): each.case.id for each in measured if each.seconds is not None}
    lines = list(dict.fromkeys(each.line for each in measured))
    wanted = [at for at in points if any(matches(pattern, at) for pattern in conclusion.at)]
    missing = [at for at in wanted if (conclusion.line, at) not in ran]
    if missing:
        return f"{conclusion.line} was not measured at {', '.join(missing)}"
    found = {
        (other, at): ratios
        for at in wanted
        for other in lines_of(conclusion, lines)
        if (other, at) in ran and (ratios := log_ratios(rounds, ran[conclusion.line, at], ran[other, at]))
    }
    return found or "nothing was measured to hold it against"


def verdict_on(found: Collection[Sequence[float]], percent: float, *, alpha: float | None = None) -> Verdict:
    """Decide by log ratios, a list for each comparison.

    A conclusion holds where each of its comparisons does at 0.5 %, alone: all of them must (R. L. Berger,
    "Multiparameter hypothesis testing and acceptance sampling", Technometrics 24 (1982), 295). It does not where any is
    refuted at 1 %, all of them considered (max-T, `flopwatch.stats.signflip`). The one takes 8 rounds at least, the
    other 7. Both suppose that a round's log ratio errs as often, and as far, to one side as to the other, which is what
    shuffled turns are for.

    Args:
        found: what it is decided by.
        percent: the margin.
        alpha: the level of both; None for these.

    >>> verdict_on([[0.02] * 8], 1.0), verdict_on([[0.005] * 8, [-0.1] * 8], 1.0), verdict_on([[0.02] * 6], 1.0)
    (<Verdict.FAILS: 'does not hold'>, <Verdict.HOLDS: 'holds'>, <Verdict.UNSURE: 'unsure'>)
    """
    table = np.full((len(found), max(map(len, found))), np.nan)
    for row, values in zip(table, found, strict=True):
        row[: len(values)] = values
    above = table - math.log1p(percent / 100)
    if single_p(-above, PRIOR).max() <= (ALPHA if alpha is None else alpha):
        return Verdict.HOLDS
    fails = max_t(standardise(above, PRIOR)).min() <= (REFUTED_ALPHA if alpha is None else alpha)
    return Verdict.FAILS if fails else Verdict.UNSURE

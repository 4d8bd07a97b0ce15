"""Whether a result agrees with itself: what its marks say must follow from the pairs that it lists.

The gate's decision needs thousands of sign vectors, and numpy; `flopwatch.report.recompute` repeats it. What is checked
here is necessary for it, needs the standard library alone, and leaves no room to call a case the same whose pairs say
that it is slower: each estimate is computed again, and each mark must be one that the decision can give to it.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from flopwatch.gate.conclusions import PATH, Verdict
from flopwatch.measure.fitness import MAX_CLOCK_DIFFERENCE
from flopwatch.model import Mark
from flopwatch.verdict import margin_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from flopwatch.gate import CaseVerdict, GateResult, PairLog
    from flopwatch.gate.conclusions import Look
    from flopwatch.stats import SeriesResult

#: Where a score is cut, of time and of launches: `Prior.clip` of `stats.PRIOR` and of `gate.times.LAUNCH_PRIOR`, which
#: cannot be imported without numpy; a test holds them together.
CLIP = 0.0045
LAUNCH_CLIP = 0.25
#: Halvings of the range of the pairs until the estimate is found, as in `stats.interval`.
STEPS = 24
#: Two estimates are one within this share of the range of the pairs.
TOLERANCE = 1e-6


def contradictions(result: GateResult) -> Iterator[str]:
    """Yield what a result says that the rest of it does not bear out; nothing of one that the gate wrote."""
    cases = {verdict.case.id for verdict in result.verdicts}
    for log in result.pairs:
        if not cases.issuperset({*log.log_ratios, *log.launch_log_ratios, *log.faults}):
            yield "a pair measured a case that has no verdict"
            return
        if not log.log_ratios.keys() >= log.clock_log_ratios.keys():
            yield "a pair has the clocks of a case that it did not measure"
        if any(abs(ratio) <= MAX_CLOCK_DIFFERENCE for ratio in log.clock_log_ratios.values()):
            yield "a pair has clocks that do not differ"
    for verdict in result.verdicts:
        for problem in _of_case(result, verdict):
            yield f"{verdict.case.id}: {problem}"
    if result.suite is not None and not _ordered(result.suite):
        yield "the suite: its estimate is outside of its interval"
    yield from _of_conclusions(result)
    if result.unfit and any(_judged(verdict) for verdict in result.verdicts):
        yield "times were judged, though the machine is unfit"


def _of_conclusions(result: GateResult) -> Iterator[str]:
    """Hold each look against the rounds that it lists, and all of them against what the gate looks at."""
    if result.conclusions and (result.gpu is None or result.unfit or result.interrupted):
        yield "conclusions were watched, though no time was judged"
    for found in result.conclusions:
        if found.identical and (found.looks or found.reason):
            yield f"{found.id}: identical, and yet looked at"
        if not (found.identical or found.reason) and not _is_path(found.looks):
            yield f"{found.id}: its looks are not those of a gate"
        margin = math.log1p(found.percent / 100)
        for look in found.looks:
            sums = [sum(min(max(each - margin, -CLIP), CLIP) for each in row.log_ratios) for row in look.beside]
            holds, fails = max(sums) < 0, max(sums) > 0
            if (look.verdict is Verdict.HOLDS and not holds) or (look.verdict is Verdict.FAILS and not fails):
                yield f"{found.id}: {look.verdict.value} on {look.side}, but its rounds lean the other way"


def _is_path(looks: Sequence[Look]) -> bool:
    """Tell whether a gate looks like this: one side after the other, until one does not say what is asked of it."""
    if [(look.stage, look.side) for look in looks] != [step[:2] for step in PATH[: len(looks)]]:
        return False
    asked = [look.verdict is step[2] for look, step in zip(looks, PATH, strict=False)]
    return asked in ([False], [True, False]) or (len(asked) == len(PATH) and all(asked[:2]))


def locate(values: Sequence[float], clip: float) -> float:
    """Return where scores cut at `clip` balance, in the middle where they do so for a stretch: the gate's estimate.

    >>> round(locate([0.009, 0.010, 0.011, 0.010, 0.012], 0.005), 4)
    0.0104
    """
    return (_balance(values, clip) - _balance([-value for value in values], clip)) / 2


def _balance(values: Sequence[float], clip: float) -> float:
    low, high = min(values), max(values)
    for _ in range(STEPS):
        middle = (low + high) / 2
        if sum(min(max(value - middle, -clip), clip) for value in values) > 0:
            low = middle
        else:
            high = middle
    return high


def _of_case(result: GateResult, verdict: CaseVerdict) -> Iterator[str]:
    yield from _of_mark(verdict, judged=not (result.unfit or result.interrupted))
    same_within = margin_of(result.same_within_percent)
    if verdict.time is not None:
        found = _sets(result.pairs, lambda log: log.log_ratios.get(verdict.case.id), "confirm", verdict.time.pairs)
        yield from _of_series(verdict.time, found, CLIP, margin=verdict.margin, same_within=same_within)
    if verdict.launch is not None:
        found = _sets(
            result.pairs, lambda log: log.launch_log_ratios.get(verdict.case.id), "confirm launch", verdict.launch.pairs
        )
        yield from _of_series(verdict.launch, found, LAUNCH_CLIP, margin=0.0, same_within=math.inf)
    if result.gpu is not None and verdict.mark is None and verdict.compared and verdict.time is None:
        yield "compared on a GPU, and not timed"


def _of_mark(verdict: CaseVerdict, *, judged: bool) -> Iterator[str]:
    """Hold the mark against those of its time and of its launch."""
    time, launch = (series.mark if series else None for series in (verdict.time, verdict.launch))
    if verdict.identical and (verdict.mark is not Mark.SAME or time is not None):
        yield "identical, and yet judged"
    if verdict.mark in (Mark.BROKEN, None) or verdict.identical:
        if verdict.mark is None and time is not None:
            yield "measured, and no mark"
        return
    slow = Mark.SLOWER in (time, launch)
    if verdict.mark is Mark.SLOWER and not slow:
        yield "slower, but neither its time nor its launch is"
    if judged and slow and verdict.mark is not Mark.SLOWER and not verdict.reason:
        yield f"{verdict.mark.value}, but its time or its launch is slower"
    if verdict.mark in (Mark.FASTER, Mark.SAME) and (time is not verdict.mark or slow):
        yield f"{verdict.mark.value}, but its time is not"


def _of_series(
    series: SeriesResult, found: Sequence[Sequence[float]], clip: float, *, margin: float, same_within: float
) -> Iterator[str]:
    """Hold a series against the sets of pairs that it can be about."""
    if not _ordered(series):
        yield "its estimate is outside of its interval"
    if series.estimate is None:
        if series.mark is not Mark.UNSURE:
            yield f"{series.mark.value} without an estimate"
        return
    if not any(_near(series.estimate, values, clip) for values in found):
        yield f"its estimate is not that of its {series.pairs} pairs"
    if series.mark is Mark.SLOWER and series.estimate <= margin:
        yield "slower by no more than its margin"
    if series.mark is Mark.FASTER and series.estimate >= -margin:
        yield "faster by no more than its margin"
    if series.mark is Mark.SAME and series.estimate >= same_within:
        yield "called the same, though slower by as much as that excludes"


def _sets(
    pairs: Sequence[PairLog], read: Callable[[PairLog], float | None], confirming: str, count: int
) -> Sequence[Sequence[float]]:
    """Return the `count` values that an estimate can be of: fresh pairs alone, or those of the screen and after it.

    Pairs that confirm come before those that settle, and a case that is confirmed with the whole suite may have both.
    """
    screened = [value for log in pairs if log.stage == "screen" and (value := read(log)) is not None]
    further = [value for log in pairs if log.stage == confirming and (value := read(log)) is not None]
    found = []
    if 0 < count <= len(further):
        found.append(further[:count])
    if screened and len(screened) <= count <= len(screened) + len(further):
        found.append([*screened, *further][:count])
    return found


def _near(estimate: float, values: Sequence[float], clip: float) -> bool:
    return abs(estimate - locate(values, clip)) <= TOLERANCE * (max(values) - min(values)) + 1e-9


def _ordered(series: SeriesResult) -> bool:
    lower = -math.inf if series.lower is None else series.lower
    upper = math.inf if series.upper is None else series.upper
    return lower <= upper and (series.estimate is None or lower <= series.estimate <= upper)


def _judged(verdict: CaseVerdict) -> bool:
    return verdict.mark in (Mark.SLOWER, Mark.FASTER) or (verdict.mark is Mark.SAME and not verdict.identical)

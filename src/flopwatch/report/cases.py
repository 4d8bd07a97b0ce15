"""The cases of a run: which get a row of their own, and in sentences what the others say."""

from __future__ import annotations

import math
import statistics
from typing import TYPE_CHECKING

from flopwatch.model import Mark, eps_of
from flopwatch.report.headline import launch_change, time_change
from flopwatch.report.wording import count, effect_of, slowdown
from flopwatch.units import format_seconds
from flopwatch.verdict import margin_of
from flopwatch.waivers import waived_cases

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flopwatch.gate import CaseVerdict, GateResult
    from flopwatch.verdict import Side

#: Rows of one verdict beyond this many are counted; slower and broken cases are always shown.
MAX_ROWS = 10
#: Sentences of one kind, likewise.
MAX_LINES = 5
_ORDER = (Mark.BROKEN, Mark.SLOWER, Mark.UNSURE, Mark.FASTER, Mark.SAME, None)


def chosen(result: GateResult, *, everything: bool, untimed: bool = False) -> tuple[list[CaseVerdict], str]:
    """Return the rows in order, and what is not among them for want of room.

    Args:
        result: of a gate.
        everything: a row for each case.
        untimed: also for broken cases without a time, where no other table has them.
    """
    ranked = sorted(result.verdicts, key=lambda verdict: (_ORDER.index(verdict.mark), -_size(verdict)))
    if everything:
        return ranked, ""
    shown: list[CaseVerdict] = []
    hidden = []
    for mark in (Mark.BROKEN, Mark.SLOWER, Mark.UNSURE, Mark.FASTER):
        # What else could not be timed is told in words.
        told_nowhere = untimed and mark is Mark.BROKEN
        marked = [verdict for verdict in ranked if verdict.mark is mark and (told_nowhere or verdict.time is not None)]
        if mark is Mark.UNSURE and result.unfit:
            continue  # what an unfit machine measured is worth nothing, and --json has it
        room = MAX_ROWS if mark in (Mark.UNSURE, Mark.FASTER) else len(marked)
        shown += marked[:room]
        if marked[room:]:
            hidden.append(f"{len(marked[room:])} more {mark.value}")
    return shown, ", ".join(hidden)


def _size(verdict: CaseVerdict) -> float:
    """Return by what a case is ranked among those of its mark: its slowdown, or its speedup where it is faster."""
    if verdict.mark is Mark.FASTER:
        return -time_change(verdict)
    return max(time_change(verdict), launch_change(verdict) if verdict.mark is Mark.SLOWER else -math.inf)


def word(result: GateResult, verdict: CaseVerdict) -> str:
    """Return the word of the last column: the verdict, or what became of it."""
    if is_waived(result, verdict):
        return "waived"
    if verdict.identical:
        return "identical"
    if verdict.mark is None:
        return "not timed" if verdict.compared else "not compared"
    if verdict.mark is Mark.SLOWER and (verdict.time is None or verdict.time.mark is not Mark.SLOWER):
        return "slower to launch"
    return verdict.mark.value


def error_of(side: Side) -> str:
    """Return how far a side is from float64, in units of its dtype's epsilon, or what kind of failure it had."""
    if side.failure is not None:
        return side.failure.kind
    if side.numbers is None:
        return ""
    return f"{eps_of(side.numbers):.3g}" if math.isfinite(eps_of(side.numbers)) else "not finite"


def is_waived(result: GateResult, verdict: CaseVerdict) -> bool:
    """Tell whether a case is slower and that is accepted."""
    return verdict.mark is Mark.SLOWER and verdict.case.id in waived_cases(result.waivers)


def summary(result: GateResult) -> Iterator[str]:
    """Yield what the cases without a row of their own say, in sentences."""
    identical = sum(verdict.identical for verdict in result.verdicts)
    if 0 < identical < len(result.verdicts):  # if all are, the headline says so
        verb = "runs" if identical == 1 else "run"
        yield f"{count(identical, 'case')} {verb} the very same code as base: nothing to measure."
    if result.unfit:
        return
    if result.interrupted:
        yield from _worth(result)
        return
    same = sum(verdict.mark is Mark.SAME and not verdict.identical for verdict in result.verdicts)
    if same:
        yield f"{count(same, 'case')} {'is' if same == 1 else 'are'} proved the same."
    yield from _reach(result)
    if result.suite is not None and (result.suite.mark in (Mark.SLOWER, Mark.FASTER) or result.suite.inside_margin):
        yield f"The suite as a whole, by its median case: {effect_of(result.suite)}."
    yield from _inside_margin(result)
    yield from _launches(result)


def _reach(result: GateResult) -> Iterator[str]:
    """Say how fine this run was: the slowdowns that it finds, whether or not there are any."""
    found = [
        (verdict.time.detectable, verdict.case.id)
        for verdict in result.verdicts
        if verdict.time is not None and verdict.time.detectable is not None
    ]
    if not found:
        return
    hardest, case = max(found)
    median = statistics.median(detectable for detectable, _ in found)
    text = f"Such a run finds a slowdown of {slowdown(median)}"
    if slowdown(hardest) != slowdown(median):
        text += f" in the median case, of {slowdown(hardest)} in the hardest ({case}),"
    yield f"{text} 95 times in 100."


def _inside_margin(result: GateResult) -> Iterator[str]:
    inside = [verdict for verdict in result.verdicts if verdict.time is not None and verdict.time.inside_margin]
    inside.sort(key=time_change, reverse=True)
    for verdict in inside[:MAX_LINES]:
        yield (
            f"note: {verdict.case.id} is slower, within its margin of {slowdown(verdict.margin)}:"
            f" {effect_of(verdict.time)}"
        )
    if inside[MAX_LINES:]:
        yield f"and {len(inside) - MAX_LINES} more within their margins."


def _launches(result: GateResult) -> Iterator[str]:
    """Tell of the calls that cost the host more or less than before; of the others, that they do not."""
    timed = [verdict for verdict in result.verdicts if verdict.launch is not None]
    changed = [
        verdict for verdict in timed if verdict.launch is not None and verdict.launch.mark in (Mark.SLOWER, Mark.FASTER)
    ]
    changed.sort(key=lambda verdict: abs(launch_change(verdict)), reverse=True)
    for verdict in changed[:MAX_LINES]:
        base, head = verdict.base.launch_seconds, verdict.head.launch_seconds
        seconds = f" {format_seconds(base)} -> {format_seconds(head)}," if base and head else ""
        yield f"launch: {verdict.case.id}:{seconds} {effect_of(verdict.launch)}"
    if changed[MAX_LINES:]:
        yield f"and {len(changed) - MAX_LINES} more whose launch changed."
    costs = [verdict.head.launch_seconds for verdict in timed if verdict.head.launch_seconds]
    if costs and not changed:
        median = format_seconds(statistics.median(costs))
        yield f"A call costs the host {median} in the median case; no case costs it provably more."


def _worth(result: GateResult) -> Iterator[str]:
    """Say what the pairs of an interrupted run are worth."""
    known = [verdict.time for verdict in result.verdicts if verdict.time is not None and verdict.time.upper is not None]
    if not known:
        yield "Too few pairs for an interval: what was measured says nothing yet."
        return
    limit = margin_of(result.same_within_percent)
    ruled_out = sum(series.upper is not None and series.upper < limit for series in known)
    yield (
        f"What the pairs are worth: estimates with 99 % intervals of {count(len(known), 'case')}, which stand;"
        f" a slowdown of {slowdown(limit)} is ruled out in {ruled_out} of them. Nothing else is decided."
    )

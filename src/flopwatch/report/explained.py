"""The cases that keep a run from being fine, one by one: what, why, what would settle it, and how to repeat it."""

from __future__ import annotations

import math
import statistics
from typing import TYPE_CHECKING

from flopwatch.gate.times import CASE_S, START_S
from flopwatch.model import Mark
from flopwatch.report.causes import likely_causes
from flopwatch.report.headline import reproduce, slower_in_time, slower_to_launch, time_change
from flopwatch.report.wording import effect_of, grouped, several, slowdown
from flopwatch.stats import Design, pairs_to_settle
from flopwatch.units import format_seconds
from flopwatch.verdict import margin_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flopwatch.gate import CaseVerdict, GateResult


def explanations(result: GateResult) -> Iterator[tuple[str, list[str]]]:
    """Yield what there is to say of each case that is broken, slower or unsure, the worst first: a head and its lines.

    Broken cases of one reason are told of together, and so are those that are unsure for a reason other than time.
    """
    yield from _of_reasons(result, Mark.BROKEN)
    for verdict in slower_in_time(result):
        yield _head(verdict, effect_of(verdict.time)), _accusation(result, verdict)
    for verdict in slower_to_launch(result):
        text = f"a call costs the host more: {effect_of(verdict.launch)}"
        yield _head(verdict, text), _accusation(result, verdict)
    if result.unfit or result.interrupted:
        return  # then every case is unsure, for that one reason
    yield from _of_reasons(result, Mark.UNSURE)
    unsure = [verdict for verdict in result.verdicts if verdict.mark is Mark.UNSURE and not verdict.reason]
    for verdict in sorted(unsure, key=time_change, reverse=True):
        yield _head(verdict, f"unsure: {effect_of(verdict.time) or 'no pair could be used'}"), _doubt(result, verdict)


def alone_s(result: GateResult) -> float:
    """Return the seconds of a pair of one case alone, by what the pairs of all cases took."""
    each = [max(pair.seconds - START_S, 0.0) / len(pair.log_ratios) for pair in result.pairs if pair.log_ratios]
    return START_S + (statistics.median(each) if each else CASE_S)


def _of_reasons(result: GateResult, mark: Mark) -> Iterator[tuple[str, list[str]]]:
    marked = {verdict.case.id: verdict for verdict in result.verdicts if verdict.mark is mark and verdict.reason}
    for reason, names in grouped((verdict.reason, name) for name, verdict in marked.items()):
        yield f"{several(names)}: {reason}", [_repeat(result, marked[names[0]])]


def _head(verdict: CaseVerdict, text: str) -> str:
    return f"{verdict.case.id}: {text}"


def _repeat(result: GateResult, verdict: CaseVerdict, budget: str = "") -> str:
    return f"repeat: {reproduce(result, verdict)}{budget}"


def _accusation(result: GateResult, verdict: CaseVerdict) -> list[str]:
    causes = [f"likely cause: {cause}" for cause in likely_causes(result, verdict)]
    return [*causes, *verdict.notes, _repeat(result, verdict)]


def _doubt(result: GateResult, verdict: CaseVerdict) -> list[str]:
    """Say what this run could have found, and what would settle the case."""
    series = verdict.time
    if series is None:
        return [_repeat(result, verdict)]
    lines = []
    if series.detectable is not None:
        lines.append(f"this run finds slowdowns of it from {slowdown(series.detectable)}")
    if series.estimate is None or series.deviation is None:
        return [*lines, _repeat(result, verdict)]
    design = Design(same_within=margin_of(result.same_within_percent))
    pairs = pairs_to_settle(design, margin=verdict.margin, estimate=series.estimate, deviation=series.deviation)
    if pairs is None:
        return [*lines, "no affordable number of pairs would settle it, at its estimate", _repeat(result, verdict)]
    seconds = format_seconds(pairs * alone_s(result))
    lines.append(f"about {pairs} pairs of it alone would settle it, {seconds} of GPU time, if its estimate is right")
    # What a run of one case measures anyway: the first look, and then until it is settled.
    anyway = design.first_look + design.settle_pairs
    budget = f" --budget {math.ceil(pairs * (START_S + CASE_S))}" if pairs > anyway else ""
    return [*lines, _repeat(result, verdict, budget)]

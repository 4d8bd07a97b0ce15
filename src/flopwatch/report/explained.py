"""The cases that keep a run from being fine, one by one: what, why, what would settle it, and how to repeat it."""

from __future__ import annotations

import math
import statistics
from typing import TYPE_CHECKING

from flopwatch.gate.times import CASE_S, START_S
from flopwatch.report.accused import accusations, repeat
from flopwatch.report.wording import slowdown
from flopwatch.stats import Design, pairs_to_settle
from flopwatch.units import format_seconds
from flopwatch.verdict import margin_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flopwatch.gate import CaseVerdict, GateResult


def explanations(result: GateResult) -> Iterator[tuple[str, list[str]]]:
    """Yield what there is to say of each case that is broken, slower or unsure, the worst first: a head and its lines.

    Of those that are unsure for their time alone, that is what would settle them.
    """
    return accusations(result, _doubt)


def alone_s(result: GateResult) -> float:
    """Return the seconds of a pair of one case alone, by what the pairs of all cases took."""
    each = [max(pair.seconds - START_S, 0.0) / len(pair.log_ratios) for pair in result.pairs if pair.log_ratios]
    return START_S + (statistics.median(each) if each else CASE_S)


def _doubt(result: GateResult, verdict: CaseVerdict) -> list[str]:
    """Say what this run could have found, and what would settle the case."""
    series = verdict.time
    if series is None:
        return [repeat(result, verdict)]
    lines = []
    if series.detectable is not None:
        lines.append(f"this run finds slowdowns of it from {slowdown(series.detectable)}")
    if series.estimate is None or series.deviation is None:
        return [*lines, repeat(result, verdict)]
    design = Design(same_within=margin_of(result.same_within_percent))
    pairs = pairs_to_settle(design, margin=verdict.margin, estimate=series.estimate, deviation=series.deviation)
    if pairs is None:
        return [*lines, "no affordable number of pairs would settle it, at its estimate", repeat(result, verdict)]
    seconds = format_seconds(pairs * alone_s(result))
    lines.append(f"about {pairs} pairs of it alone would settle it, {seconds} of GPU time, if its estimate is right")
    # What a run of one case measures anyway: the first look, and then until it is settled.
    anyway = design.first_look + design.settle_pairs
    budget = f" --budget {math.ceil(pairs * (START_S + CASE_S))}" if pairs > anyway else ""
    return [*lines, repeat(result, verdict, budget)]

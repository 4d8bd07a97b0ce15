"""The gate's decisions once more, from the pairs and rounds that a result lists; needs numpy."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

from flopwatch.gate.conclusions import CONFIRM, SCREEN, confirm_alpha
from flopwatch.gate.times import fails_anyway, launch_design, launch_table, time_table
from flopwatch.stats import Decision, Design, Stage, decide
from flopwatch.study.decisions import verdict_on
from flopwatch.verdict import margin_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from flopwatch.config import Config
    from flopwatch.gate import GateResult, PairLog
    from flopwatch.stats import SeriesResult
    from flopwatch.stats.prior import FloatArray

#: Two bounds are one within this.
TOLERANCE = 1e-6


class _OtherPlanError(Exception):
    """The pairs are not those that this plan asks for."""


def differences(result: GateResult, config: Config) -> Iterator[str]:
    """Yield where the decision comes out otherwise than a result says; nothing where no time was judged.

    Args:
        result: what is said.
        config: whose margin of launches holds, which results do not carry.
    """
    if result.unfit or result.interrupted:
        return
    yield from _conclusions(result)
    if not result.pairs:
        return
    timed = [verdict for verdict in result.verdicts if verdict.time is not None]
    measured = {name for log in result.pairs for name in (*log.log_ratios, *log.faults)}
    sentinels = [verdict for verdict in result.verdicts if verdict.identical and verdict.case.id in measured]
    margins = [verdict.margin for verdict in timed]
    # A sentinel's margin is not in the file; it moves the others' p-values through its own statistic alone.
    margins += [statistics.mode(margins)] * len(sentinels) if margins else []
    names = [verdict.case.id for verdict in (*timed, *sentinels)]
    logs = [log for log in result.pairs if log.stage != "confirm launch"]
    try:
        found = _replayed(_design(result), names, margins, logs, time_table)
    except (_OtherPlanError, ValueError):
        yield "its pairs are not those of a gate"
        return
    for verdict, series in zip(timed, found.series, strict=False):
        yield from _compared(verdict.case.id, verdict.time, series)
    if result.suite is not None or found.suite is not None:
        yield from _compared("the suite", result.suite, found.suite)
    left_out = {
        verdict.case.id
        for verdict in timed
        if verdict.launch is None and verdict.time and fails_anyway(verdict.mark, verdict.time, verdict.case, config)
    }
    asked = [name for name in names if name not in left_out]
    yield from _launches(result, asked, margin_of(config.launch_margin_percent))


def _conclusions(result: GateResult) -> Iterator[str]:
    alpha = {SCREEN: None, CONFIRM: confirm_alpha(max(len(result.conclusions), 1))}
    for found in result.conclusions:
        for look in found.looks:
            again = verdict_on([row.log_ratios for row in look.beside], found.percent, alpha=alpha[look.stage])
            if look.verdict is not again:
                yield f"{found.id}: {look.verdict.value} on {look.side}, but its rounds decide {again.value}"


def _design(result: GateResult) -> Design:
    design = Design(same_within=margin_of(result.same_within_percent))
    return design if result.planned_pairs is None else design.of_pairs(result.planned_pairs)


def _replayed(
    design: Design,
    names: Sequence[str],
    margins: Sequence[float],
    logs: Sequence[PairLog],
    table: Callable[[Sequence[PairLog], Sequence[str]], FloatArray],
) -> Decision:
    """Decide by recorded pairs, in their order; all of them must be asked for, each in its stage, and no more.

    Args:
        design: that of the run.
        names: of the series.
        margins: of each.
        logs: the pairs.
        table: reads them.
    """
    left = list(logs)

    def sample(rows: Sequence[int], number: int, stage: Stage) -> FloatArray:
        taken = left[:number]
        del left[:number]
        if len(taken) < number or any((log.stage == "screen") is not (stage is Stage.SCREEN) for log in taken):
            raise _OtherPlanError
        return table(taken, [names[row] for row in rows])

    decision = decide(design, margins, sample)
    if left:
        raise _OtherPlanError
    return decision


def _launches(result: GateResult, names: Sequence[str], margin: float) -> Iterator[str]:
    logs = [log for log in result.pairs if log.stage in ("screen", "confirm launch")]
    screened = [log for log in logs if log.stage == "screen"]
    measured = [name for name in names if any(name in log.launch_log_ratios for log in screened)]
    if not measured:
        return
    try:
        design = launch_design(len(screened), margin)
        found = _replayed(design, measured, [margin] * len(measured), logs, launch_table)
    except (_OtherPlanError, ValueError):
        yield "its pairs of launches are not those of a gate"
        return
    said = {verdict.case.id: verdict.launch for verdict in result.verdicts if not verdict.identical}
    for name, again in zip(measured, found.series, strict=True):
        if name in said:
            yield from _compared(f"the launch of {name}", said[name], again)


def _compared(name: str, said: SeriesResult | None, again: SeriesResult | None) -> Iterator[str]:
    if again is None:
        yield f"{name}: judged, though there are too few cases"
    elif said is None:
        yield f"{name}: not judged, though measured"
    elif said.mark is not again.mark:
        yield f"{name}: {said.mark.value}, but its pairs decide {again.mark.value}"
    elif not (_alike(said.lower, again.lower) and _alike(said.upper, again.upper)):
        yield f"{name}: its interval is not that of its pairs"


def _alike(said: float | None, again: float | None) -> bool:
    if said is None or again is None:
        return said is again
    return abs(said - again) <= TOLERANCE

"""The gate's decision once more, from the pairs that a result lists; needs numpy.

How many pairs were planned is not in the file. It follows from how many there are: either the first look was the last,
or the number is that of the plan (`stats.plan`).
"""

from __future__ import annotations

import math
import statistics
from typing import TYPE_CHECKING

import numpy as np

from flopwatch.gate.times import LAUNCH_ALPHA, LAUNCH_CONFIRM_ALPHA, LAUNCH_PRIOR
from flopwatch.stats import Design, Stage, decide
from flopwatch.stats.design import CONFIRM_PAIRS, FIRST_LOOK, PAIRS
from flopwatch.verdict import margin_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from flopwatch.config import Config
    from flopwatch.gate import GateResult
    from flopwatch.stats import SeriesResult

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
    if result.unfit or result.interrupted or not result.pairs:
        return
    timed = [verdict for verdict in result.verdicts if verdict.time is not None]
    measured = {name for log in result.pairs for name in (*log.log_ratios, *log.faults)}
    sentinels = [verdict for verdict in result.verdicts if verdict.identical and verdict.case.id in measured]
    margins = [verdict.margin for verdict in timed]
    # A sentinel's margin is not in the file; it moves the others' p-values through its own statistic alone.
    margins += [statistics.mode(margins)] * len(sentinels) if margins else []
    names = [verdict.case.id for verdict in (*timed, *sentinels)]
    logs = [log.log_ratios for log in result.pairs if log.stage != "confirm launch"]
    found = _decided(result, names, margins, logs)
    if found is None:
        yield "its pairs are not those of a gate"
        return
    for verdict, series in zip(timed, found, strict=False):
        yield from _compared(verdict.case.id, verdict.time, series)
    yield from _launches(result, names, margin_of(config.launch_margin_percent))


def _decided(
    result: GateResult, names: Sequence[str], margins: Sequence[float], logs: Sequence[dict[str, float]]
) -> tuple[SeriesResult, ...] | None:
    screened = sum(log.stage == "screen" for log in result.pairs)
    same_within = margin_of(result.same_within_percent)
    for pairs, first_look in ((screened + 1, screened), (screened, max(FIRST_LOOK, screened * FIRST_LOOK // PAIRS))):
        try:
            design = Design(
                pairs=max(pairs, PAIRS) if screened == FIRST_LOOK and pairs > screened else pairs,
                first_look=first_look,
                confirm_pairs=max(CONFIRM_PAIRS, pairs),
                same_within=same_within,
            )
            return _replayed(design, names, margins, logs)
        except (_OtherPlanError, ValueError):
            continue
    return None


def _replayed(
    design: Design, names: Sequence[str], margins: Sequence[float], logs: Sequence[dict[str, float]]
) -> tuple[SeriesResult, ...]:
    """Decide by recorded pairs, in their order; all of them must be asked for, and no more."""
    left = list(logs)

    def sample(rows: Sequence[int], number: int, _stage: Stage) -> NDArray[np.float64]:
        taken = left[:number]
        del left[:number]
        if len(taken) < number:
            raise _OtherPlanError
        return np.array([[log.get(names[row], math.nan) for log in taken] for row in rows])

    series = decide(design, margins, sample).series
    if left:
        raise _OtherPlanError
    return series


def _launches(result: GateResult, names: Sequence[str], margin: float) -> Iterator[str]:
    screened = [log.launch_log_ratios for log in result.pairs if log.stage == "screen"]
    fresh = [log.launch_log_ratios for log in result.pairs if log.stage == "confirm launch"]
    measured = [name for name in names if any(name in log for log in screened)]
    if not measured:
        return
    try:
        design = Design(
            pairs=len(screened),
            first_look=len(screened),
            alpha=LAUNCH_ALPHA,
            first_alpha=0.0,
            confirm_alpha=LAUNCH_CONFIRM_ALPHA,
            settle_pairs=0,
            same_within=2 * margin,
            prior=LAUNCH_PRIOR,
        )
        series = _replayed(design, measured, [margin] * len(measured), [*screened, *fresh])
    except (_OtherPlanError, ValueError):
        yield "its pairs of launches are not those of a gate"
        return
    said = {verdict.case.id: verdict.launch for verdict in result.verdicts if not verdict.identical}
    for name, again in zip(measured, series, strict=True):
        if name in said:
            yield from _compared(f"the launch of {name}", said[name], again)


def _compared(name: str, said: SeriesResult | None, again: SeriesResult) -> Iterator[str]:
    if said is None:
        yield f"{name}: not judged, though measured"
    elif said.mark is not again.mark:
        yield f"{name}: {said.mark.value}, but its pairs decide {again.mark.value}"
    elif not (_alike(said.lower, again.lower) and _alike(said.upper, again.upper)):
        yield f"{name}: its interval is not that of its pairs"


def _alike(said: float | None, again: float | None) -> bool:
    if said is None or again is None:
        return said is again
    return abs(said - again) <= TOLERANCE

"""What a design can find, and which design a budget buys.

The power of both stages is simulated: Gaussian pairs, one series slower among others that are not, the very statistic
and the sign-flip null of `signflip`, with fewer sign vectors and a fixed seed. Within `DRAWS` draws a probability near
95 % is good to 1.5 points, and with it the detectable slowdown to some 5 %. Outliers are not in it: what it gives for a
case whose processes are now and then slow is what is found once they are not.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np

from flopwatch.stats.design import Design
from flopwatch.stats.prior import FloatArray, Prior
from flopwatch.stats.signflip import TIE, sign_sums, standardise

if TYPE_CHECKING:
    from collections.abc import Sequence

POWER = 0.95
#: Tables of other series, and pairs of the slowed one drawn beside each.
TABLES = 8
DRAWS = 24
#: Pairs whose signs are free: 1024 sign vectors resolve a p-value to 0.1 %.
FREE_PAIRS = 10
#: Deviations, in those of the prior, for which the detectable slowdown is simulated; interpolated in between.
GRID = (0.25, 1.0, 3.0, 10.0)
#: A slowdown is looked for up to so many deviations of a pair and of the prior beyond the margin.
FARTHEST = 12.0
STEPS = 9
#: No plan takes more pairs.
MOST_PAIRS = 64
#: Nor does a series on its own.
MOST_SETTLING_PAIRS = 640
SEED = 20261121


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """What a budget buys.

    Attributes:
        design: with as many pairs as fit.
        detectable: the slowdown, as a log ratio, found with 95 % probability in each series; inf where none is.
        seconds: of GPU time of a run that flags nothing, all pairs measured.
    """

    design: Design
    detectable: tuple[float, ...]
    seconds: float


def plan(
    budget_s: float,
    *,
    seconds_per_pair: float,
    start_s: float,
    deviations: Sequence[float],
    margins: Sequence[float],
    design: Design | None = None,
) -> Plan:
    """Plan as many pairs of all series as a budget has room for.

    Args:
        budget_s: for a run that flags nothing.
        seconds_per_pair: of all series.
        start_s: before the first pair.
        deviations: expected standard deviation of a pair's log ratio, of each series.
        margins: the accepted slowdown of each, as a log ratio.
        design: what else holds; the default design, if None.

    Raises:
        ValueError: the budget has no room for the pairs of the first look.

    >>> found = plan(120, seconds_per_pair=10, start_s=10, deviations=[0.001] * 5, margins=[0.005] * 5)
    >>> found.design.pairs, found.seconds, 0.005 < found.detectable[0] < 0.01
    (11, 120, True)
    """
    design = design or Design()
    pairs = min(int((budget_s - start_s) // seconds_per_pair), MOST_PAIRS)
    if pairs < design.first_look:
        needed_s = math.ceil(start_s + design.first_look * seconds_per_pair)
        raise ValueError(
            f"{budget_s:g} s are {max(pairs, 0)} pairs, and the first look needs {design.first_look}; take {needed_s} s"
        )
    design = replace(design, pairs=pairs)
    found = detectable(
        design, series=len(deviations), margins=np.asarray(margins), deviations=np.asarray(deviations, dtype=np.float64)
    )
    return Plan(design=design, detectable=tuple(found.tolist()), seconds=start_s + pairs * seconds_per_pair)


def detectable(
    design: Design, *, series: int, margins: FloatArray, deviations: FloatArray, power: float = POWER
) -> FloatArray:
    """Return the slowdown that both stages find with probability `power`, as a log ratio; inf where none is found.

    Args:
        design: the run.
        series: how many are tested together.
        margins: the accepted slowdown of each of the series asked about.
        deviations: standard deviation of a pair's log ratio of each; NaN gives NaN.
        power: the probability.
    """
    found = np.full(len(deviations), np.nan)
    for margin in np.unique(margins):
        asked = (margins == margin) & np.isfinite(deviations)
        if asked.any():
            grid = np.array(GRID) * design.prior.deviation
            excess = np.array(_excesses(design, series, float(margin), power))
            # A slowdown grows in proportion to the deviation, beyond the grid too.
            inside = np.clip(deviations[asked], grid[0], grid[-1])
            found[asked] = margin + np.interp(inside, grid, excess) * np.maximum(deviations[asked] / inside, 1.0)
    return found


def power_of(design: Design, *, series: int, margin: float, deviation: float, slowdown: float) -> float:
    """Return the probability that both stages find one slower series among others that are not.

    Args:
        design: the run.
        series: how many are tested together.
        margin: the accepted slowdown of all of them, as a log ratio.
        deviation: standard deviation of a pair's log ratio of the slower one; the others have the prior's.
        slowdown: of that one, as a log ratio.

    >>> power_of(Design(), series=60, margin=0.005, deviation=0.001, slowdown=0.01)
    1.0
    """
    excess = slowdown - margin
    first = _first(design.prior, design.pairs, series, margin)
    share = np.mean([(p <= design.alpha).mean() for p in _first_p(design.prior, first, excess, deviation)])
    second = _second_p(design.prior, design.confirm_pairs, excess, deviation)
    return float(share * (second <= design.confirm_alpha).mean())


def pairs_needed(
    design: Design, *, series: int, margin: float, deviation: float, slowdown: float, power: float = POWER
) -> int | None:
    """Return the pairs with which a slowdown is found; None if `MOST_PAIRS` do not. Stage 2 has no fewer than stage 1.

    >>> pairs_needed(Design(), series=60, margin=0.005, deviation=0.001, slowdown=0.01)
    8
    """
    for pairs in range(design.first_look, MOST_PAIRS + 1):
        longer = replace(design, pairs=pairs, confirm_pairs=max(design.confirm_pairs, pairs))
        if power_of(longer, series=series, margin=margin, deviation=deviation, slowdown=slowdown) >= power:
            return pairs
    return None


def pairs_to_settle(
    design: Design, *, margin: float, estimate: float, deviation: float, power: float = POWER
) -> int | None:
    """Return about how many pairs would settle an UNSURE series, if its estimate is right; None if too many.

    It is settled as SAME if it is below `same_within`, as SLOWER if it is above the margin; where it is both, by the
    easier. A normal approximation of the bound at the level of a later look.

    >>> pairs_to_settle(Design(), margin=0.005, estimate=0.004, deviation=0.003)
    12
    """
    distance = max(design.same_within - estimate, estimate - margin)
    level = design.later_same_alpha
    quantiles = NormalDist().inv_cdf(1 - level) + NormalDist().inv_cdf(power)
    pairs = math.ceil(max((quantiles * deviation / distance) ** 2, -math.log2(level))) if distance > 0 else math.inf
    return int(pairs) if pairs <= MOST_SETTLING_PAIRS else None


@functools.lru_cache(maxsize=64)
def _excesses(design: Design, series: int, margin: float, power: float) -> tuple[float, ...]:
    """Return, for each deviation of the grid, how far beyond the margin a slowdown must be; inf where none is found."""
    found = []
    for share in GRID:
        deviation = share * design.prior.deviation
        low, high = 0.0, FARTHEST * (deviation + design.prior.deviation)

        def reaches(excess: float, deviation: float = deviation) -> bool:
            slowdown = margin + excess
            return power_of(design, series=series, margin=margin, deviation=deviation, slowdown=slowdown) >= power

        if not reaches(high):
            found.append(math.inf)
            continue
        for _ in range(STEPS):
            middle = (low + high) / 2
            low, high = (low, middle) if reaches(middle) else (middle, high)
        found.append(high)
    return tuple(found)


@dataclass(frozen=True, kw_only=True, slots=True)
class _First:
    """Stage 1 of the other series: the largest statistic of theirs under each sign vector, and fresh normals."""

    largest: FloatArray
    normals: FloatArray


@functools.lru_cache(maxsize=64)
def _first(prior: Prior, pairs: int, series: int, margin: float) -> _First:
    """Draw `TABLES` tables of other series that are as fast as before, so that their x is about -margin."""
    rng = np.random.default_rng(SEED)
    largest = np.full((TABLES, 2 ** min(pairs, FREE_PAIRS)), -np.inf)
    for table in range(TABLES if series > 1 else 0):
        x = rng.normal(-margin, prior.deviation, size=(series - 1, pairs))
        largest[table] = _all_sums(standardise(x, prior)).max(axis=0)
    return _First(largest=largest, normals=rng.normal(size=(TABLES, DRAWS, pairs)))


def _first_p(prior: Prior, first: _First, excess: float, deviation: float) -> list[FloatArray]:
    """Return adjusted p-values of the slower series, an array a table."""
    found = []
    for largest, normals in zip(first.largest, first.normals, strict=True):
        found.append(_p(standardise(excess + deviation * normals, prior), largest))
    return found


def _second_p(prior: Prior, pairs: int, excess: float, deviation: float) -> FloatArray:
    """Return p-values of stage 2 for the slower series, flagged alone."""
    normals = np.random.default_rng(SEED).normal(size=(TABLES * DRAWS, pairs))
    return _p(standardise(excess + deviation * normals, prior))


def _p(rows: FloatArray, largest: FloatArray | float = -math.inf) -> FloatArray:
    """Return the p-value of each row, tested with others whose largest statistics are given."""
    sums = _all_sums(rows)
    return np.asarray((np.maximum(sums, largest) >= sums[:, :1] - TIE).mean(axis=1), dtype=np.float64)


def _all_sums(rows: FloatArray) -> FloatArray:
    sums = sign_sums(rows, free=FREE_PAIRS)
    return np.concatenate([sums, -sums], axis=1)

"""What a design can find, and which design a budget buys.

The power of both stages is simulated: Gaussian pairs, one series slower among others that are not, the very statistic
and the sign-flip null of `signflip`, with fewer sign vectors and a fixed seed. A first look that ends the run because
the slower series does not lean yet has missed it. In 1024 draws a probability near 95 % is good to 0.7 points, and with
it the detectable slowdown to some 2 %. Outliers are not in it: what it gives for a case whose processes are now and
then slow is what is found once they are not.
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
from flopwatch.stats.signflip import SUITE_FROM, TIE, sign_sums, standardise, suite_prior, suite_row

if TYPE_CHECKING:
    from collections.abc import Sequence

POWER = 0.95
#: Tables of other series, and draws of the slowed one beside each.
TABLES = 32
DRAWS = 32
#: Pairs whose signs are free: 1024 sign vectors resolve a p-value to 0.1 %.
FREE_PAIRS = 10
#: Deviations, in those of the prior, for which the detectable slowdown is simulated; interpolated in between.
GRID = (0.25, 1.0, 3.0, 10.0)
#: A slowdown is looked for up to so many deviations of a pair and of the prior beyond the margin.
FARTHEST = 16.0
STEPS = 6
#: More pairs of all series are not asked for.
MOST_PAIRS = 64
#: Nor does a plan, or a series on its own, take more.
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
    pairs = min(int((budget_s - start_s) // seconds_per_pair), MOST_SETTLING_PAIRS)
    if pairs < design.first_look:
        needed_s = math.ceil(start_s + design.first_look * seconds_per_pair)
        raise ValueError(
            f"{budget_s:g} s are {max(pairs, 0)} pairs, and the first look needs {design.first_look}; take {needed_s} s"
        )
    design = design.of_pairs(pairs)
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
    plain, late = _flagged(design, series, margin, excess, deviation)
    return sum(
        share * _confirmed(design, excess, deviation, is_plain=is_plain)
        for share, is_plain in ((plain, True), (late, False))
        if share
    )


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
        unit = deviation + design.prior.deviation
        low, high = 0.0, unit / 2

        def reaches(excess: float, deviation: float = deviation) -> bool:
            slowdown = margin + excess
            return power_of(design, series=series, margin=margin, deviation=deviation, slowdown=slowdown) >= power

        while not reaches(high) and high < FARTHEST * unit:
            low, high = high, 2 * high
        for _ in range(STEPS if high < FARTHEST * unit else 0):
            middle = (low + high) / 2
            low, high = (low, middle) if reaches(middle) else (middle, high)
        found.append(high if high < FARTHEST * unit else math.inf)
    return tuple(found)


@dataclass(frozen=True, kw_only=True, slots=True)
class _First:
    """Stage 1 of the other series, table by table: their largest statistics, and fresh normals for the slower one."""

    at_first_look: FloatArray
    at_last: FloatArray
    normals: FloatArray


@functools.lru_cache(maxsize=64)
def _first(prior: Prior, first_look: int, pairs: int, series: int, margin: float) -> _First:
    """Draw `TABLES` tables of other series that are as fast as before, so that their x is about -margin."""
    rng = np.random.default_rng(SEED)
    tables = rng.normal(-margin, prior.deviation, size=(TABLES, series - 1, pairs))
    return _First(
        at_first_look=np.array([_largest(x[:, :first_look], prior) for x in tables]),
        at_last=np.array([_largest(x, prior) for x in tables]),
        normals=rng.normal(size=(TABLES * DRAWS, pairs)),
    )


def _largest(x: FloatArray, prior: Prior) -> FloatArray:
    """Return a table's largest statistic, the suite's median's included, under each sign vector and its opposite."""
    rows = standardise(x, prior)
    if len(x) + 1 >= SUITE_FROM:
        rows = np.vstack([rows, standardise(suite_row(x), suite_prior(prior))])
    sums = rows @ _signs(rows.shape[1])
    return np.array([sums.max(axis=0, initial=-np.inf), (-sums).max(axis=0, initial=-np.inf)])


def _flagged(design: Design, series: int, margin: float, excess: float, deviation: float) -> tuple[float, float]:
    """Return how often the first look flags the slower series, and how often only the last one does.

    Others that lean would let stage 1 go on too; none is taken to.
    """
    first = _first(design.prior, design.first_look, design.pairs, series, margin)
    x = excess + deviation * first.normals
    p = _p(x[:, : design.first_look], design.prior, first.at_first_look)
    plain = p <= design.first_alpha
    late = ~plain & (_p(x, design.prior, first.at_last) <= design.last_alpha)
    if design.first_look < design.pairs:
        late &= p <= design.leaning
    return float(plain.mean()), float(late.mean())


def _confirmed(design: Design, excess: float, deviation: float, *, is_plain: bool) -> float:
    """Return how often stage 2 rejects the slower series, flagged alone."""
    x = excess + deviation * _second(design.confirm_pairs)
    rejected = _p(x, design.prior) <= design.confirm_alpha
    if is_plain:
        rejected |= _p(x[:, : design.confirm_first], design.prior) <= design.confirm_first_alpha
    return float(rejected.mean())


@functools.lru_cache(maxsize=8)
def _second(pairs: int) -> FloatArray:
    return np.random.default_rng(SEED).normal(size=(TABLES * DRAWS, pairs))


def _p(x: FloatArray, prior: Prior, largest: FloatArray | None = None) -> FloatArray:
    """Return the p-value of each row, `DRAWS` of them tested beside each table whose largest statistics are given."""
    signs = _signs(x.shape[1])
    found = []
    # Table by table, so that what is compared stays in the cache.
    for table, rows in enumerate(np.split(standardise(x, prior), TABLES)):
        sums = rows @ signs
        observed = sums[:, :1] - TIE
        reached, opposite = sums >= observed, sums <= -observed
        if largest is not None:
            reached |= largest[table, 0] >= observed
            opposite |= largest[table, 1] >= observed
        counts = np.count_nonzero(reached, axis=1) + np.count_nonzero(opposite, axis=1)
        found.append(counts / (2 * signs.shape[1]))
    return np.concatenate(found)


@functools.lru_cache(maxsize=64)
def _signs(pairs: int) -> FloatArray:
    """Return the sign vectors of `sign_sums` as columns: a product with them is 20 times faster than adding pairs."""
    return sign_sums(np.eye(pairs), free=FREE_PAIRS)

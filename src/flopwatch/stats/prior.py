"""What a pair's error is believed to be before it is measured, and how that belief is fitted.

A dozen pairs say little about their own scatter. Its variance is therefore shrunk towards a prior, an inverse
chi-square with `degrees` and `deviation`, as limma does for genes (G. K. Smyth, "Linear models and empirical Bayes
methods", Stat. Appl. Genet. Mol. Biol. 3 (2004), 3). The prior is frozen before a run: one fitted on the run's own
pairs would let a slowed case move the statistic of the others.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

FloatArray: TypeAlias = NDArray[np.float64]

#: Scores are cut at so many prior deviations. Simulated with 60 series, of which some have slow processes: where one
#: process in five was 5 % slow, 10 pairs flagged a slowdown of 1 % in 48 % of runs with cuts at 3 or 5 prior
#: deviations, in 16 to 42 % with cuts that follow the series' own median, in 2 % without. Where none was, the cut at 5
#: cost a point of power at most.
CLIP = 5.0
#: A prior that all series agree on has no end of degrees; beyond this many it no longer matters.
MAX_DEGREES = 1000.0
#: Below this a pair's error is no longer measured but rounded.
SMALLEST_DEVIATION = 1e-9


@dataclass(frozen=True, kw_only=True, slots=True)
class Prior:
    """A frozen belief about the error of one pair.

    Attributes:
        degrees: how many pairs the belief is worth.
        deviation: standard deviation of one pair's log ratio.
    """

    degrees: float
    deviation: float

    def __post_init__(self) -> None:
        if not (0 <= self.degrees < math.inf and 0 < self.deviation < math.inf):
            raise ValueError(f"a prior needs degrees >= 0 and a deviation > 0, both finite, got {self}")

    @property
    def clip(self) -> float:
        """The log ratio at which a score is cut."""
        return CLIP * self.deviation


#: Fitted to pairs of 66 cases on an H200; re-derived by `nox -s ledger`.
PRIOR = Prior(degrees=4.0, deviation=0.0009)


def fit_prior(table: FloatArray, *, rounds: int = 10) -> Prior:
    """Fit a prior to pairs in which head is base, by the moments of the log variances (Smyth 2004, section 6.2).

    Squares are taken about zero, which the mean of such pairs is known to be, of values cut as the test cuts them; the
    cut follows the fit for a few rounds.

    Args:
        table: log ratios, (series, pairs); NaN where invalid.
        rounds: how often the cut is adapted.

    Raises:
        ValueError: fewer than two series have two valid pairs.

    >>> rng = np.random.default_rng(1)
    >>> prior = fit_prior(rng.normal(scale=0.002, size=(200, 12)))
    >>> round(prior.deviation, 4), prior.degrees > 50
    (0.002, True)
    """
    counts = np.isfinite(table).sum(axis=1)
    table, counts = table[counts > 1], counts[counts > 1]
    if len(table) < 2:  # noqa: PLR2004 - a spread needs two
        raise ValueError(f"a prior is fitted to two series or more with two valid pairs each, got {len(table)}")
    table = np.where(np.isfinite(table), table, np.nan)
    prior = Prior(degrees=0.0, deviation=max(float(np.nanmedian(abs(table))), SMALLEST_DEVIATION))
    for _ in range(rounds):
        squares = np.nanmean(np.clip(table, -prior.clip, prior.clip) ** 2, axis=1)
        prior = _fit(np.maximum(squares, SMALLEST_DEVIATION**2), counts / 2)
    return prior


def _fit(squares: FloatArray, halves: FloatArray) -> Prior:
    """Fit to mean squares, each of twice `halves` degrees."""
    logs = np.log(squares) - np.array([_digamma(half) - math.log(half) for half in halves])
    excess = float(np.var(logs, ddof=1)) - float(np.mean([_trigamma(half) for half in halves]))
    half = MAX_DEGREES / 2
    if excess > _trigamma(half):
        half = _inverse_trigamma(excess)
    log_variance = float(np.mean(logs)) + _digamma(half) - math.log(half)
    return Prior(degrees=2 * half, deviation=math.exp(log_variance / 2))


#: From here on the asymptotic series below are good to 1e-10.
_ASYMPTOTIC_FROM = 10.0


def _digamma(x: float) -> float:
    """Return the derivative of log gamma (Abramowitz and Stegun 6.3.5, 6.3.18)."""
    shift = 0.0
    while x < _ASYMPTOTIC_FROM:
        shift -= 1 / x
        x += 1
    y = 1 / (x * x)
    return shift + math.log(x) - 1 / (2 * x) - y * (1 / 12 - y * (1 / 120 - y * (1 / 252 - y / 240)))


def _trigamma(x: float) -> float:
    """Return the second derivative of log gamma (Abramowitz and Stegun 6.4.6, 6.4.12)."""
    shift = 0.0
    while x < _ASYMPTOTIC_FROM:
        shift += 1 / (x * x)
        x += 1
    y = 1 / (x * x)
    return shift + 1 / x + y / 2 + y / x * (1 / 6 - y * (1 / 30 - y * (1 / 42 - y / 30)))


def _inverse_trigamma(value: float) -> float:
    """Solve trigamma(x) = value by bisection of log x: trigamma falls."""
    low, high = 1e-4, MAX_DEGREES
    for _ in range(60):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if _trigamma(middle) > value else (low, middle)
    return low

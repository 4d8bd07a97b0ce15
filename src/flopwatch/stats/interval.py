"""How much slower? The margins that a sign-flip test of one series would not reject.

The test is that of `signflip` for a single row. There the scale cancels, and since scores are cut at a constant the
p-value rises with the margin, so that its inversion is a bisection, and exact: the interval covers the effect with the
stated chance whatever the noise (without the cut these are the typical values of J. A. Hartigan, J. Amer. Statist.
Assoc. 64 (1969), 1303). The same monotony proves the test for every effect below the margin, not only at it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from flopwatch.stats.prior import FloatArray, Prior
from flopwatch.stats.signflip import FREE_PAIRS, TIE, scores, sign_sums

#: An interval's end is found to this share of the range of its pairs.
STEPS = 24
#: A test of so few series may have more free pairs, for levels as small as 0.03 %.
FEW_SERIES = 10
FEW_FREE_PAIRS = 16


@dataclass(frozen=True, kw_only=True, slots=True)
class Interval:
    """Estimates and confidence bounds, one of each a series, as log(head / base); positive is slower.

    Attributes:
        estimate: where the scores balance (Huber's location with a fixed cut); NaN without pairs.
        lower: head is slower than this; -inf where there are too few pairs to say.
        upper: head is not slower than this; inf likewise.
    """

    estimate: FloatArray
    lower: FloatArray
    upper: FloatArray


def single_p(x: FloatArray, prior: Prior) -> FloatArray:
    """Return the p-value of each row on its own: that its mean is above zero.

    Args:
        x: log ratios less the margin, (series, pairs); NaN where invalid.
        prior: whose clip cuts the scores.

    >>> single_p(np.array([[0.01] * 8, [0.01] * 7 + [-0.03]]), Prior(degrees=8, deviation=0.001)) * 256
    array([1., 9.])
    """
    return _p(scores(x, prior), free=FEW_FREE_PAIRS if len(x) <= FEW_SERIES else FREE_PAIRS)


def interval(table: FloatArray, prior: Prior, *, alpha: float) -> Interval:
    """Estimate each series, with a lower and an upper bound at level `alpha` each.

    Args:
        table: log ratios, (series, pairs); NaN where invalid.
        prior: whose clip cuts the scores.
        alpha: the chance that the effect is beyond the one bound; the interval has 1 - 2 * alpha.

    Raises:
        ValueError: alpha is not between 0 and 0.5.

    >>> found = interval(np.array([[0.009, 0.010, 0.011, 0.010, 0.012]]), Prior(degrees=8, deviation=0.001), alpha=0.05)
    >>> found.estimate.round(4), found.lower.round(4), found.upper.round(4)
    (array([0.0104]), array([0.009]), array([0.012]))
    """
    if not 0 < alpha < 0.5:  # noqa: PLR2004 - beyond it the bounds would cross
        raise ValueError(f"alpha must be between 0 and 0.5, got {alpha}")
    return Interval(
        estimate=locate(table, prior),
        lower=_lower(table, prior, alpha),
        upper=-_lower(-table, prior, alpha),
    )


def locate(table: FloatArray, prior: Prior) -> FloatArray:
    """Return where the scores of each series balance; in the middle where they do so for a stretch."""
    found, mirrored = np.split(_balance(np.vstack([table, -table]), prior), 2)
    return (found - mirrored) / 2


def deviation_of(table: FloatArray, centre: FloatArray) -> FloatArray:
    """Estimate the standard deviation of a pair about `centre`, outliers cut at three robust deviations.

    Deviations below five pairs would be guesses: they are NaN.

    >>> deviation_of(np.array([[0.001, -0.001, 0.001, -0.001, 0.5, -0.001]]), np.zeros(1)).round(4)
    array([0.0022])
    """
    valid = np.isfinite(table)
    rest = np.where(valid, table - centre[:, None], np.nan)
    counts = valid.sum(axis=1)
    found = np.full(len(table), np.nan)
    for row in np.flatnonzero(counts >= 5):  # noqa: PLR2004 - as documented
        cut = 3 * 1.4826 * np.nanmedian(abs(rest[row]))
        found[row] = np.sqrt(np.nansum(np.clip(rest[row], -cut, cut) ** 2) / (counts[row] - 1))
    return found


def _p(cut: FloatArray, *, free: int = FREE_PAIRS) -> FloatArray:
    """Count the sign vectors whose sum of scores is no less than the one observed."""
    sums = sign_sums(cut, free=free)
    observed = sums[:, :1] - TIE * abs(cut).sum(axis=1, keepdims=True)
    counts = np.count_nonzero(sums >= observed, axis=1) + np.count_nonzero(sums <= -observed, axis=1)
    return np.asarray(counts / (2 * sums.shape[1]), dtype=np.float64)


def _lower(table: FloatArray, prior: Prior, alpha: float) -> FloatArray:
    """Return the largest margin known to be rejected."""
    low, high = _range(table)
    low = low - 2 * TIE - TIE * abs(low)  # below every pair, where the p-value is the least there is
    bounded = _p(scores(table - low[:, None], prior)) <= alpha
    for _ in range(STEPS):
        middle = (low + high) / 2
        rejected = _p(scores(table - middle[:, None], prior)) <= alpha
        low, high = np.where(rejected, middle, low), np.where(rejected, high, middle)
    return np.where(bounded, low, -np.inf)


def _balance(table: FloatArray, prior: Prior) -> FloatArray:
    """Return the lowest centre about which the sum of scores is not positive."""
    low, high = _range(table)
    for _ in range(STEPS):
        middle = (low + high) / 2
        positive = scores(table - middle[:, None], prior).sum(axis=1) > 0
        low, high = np.where(positive, middle, low), np.where(positive, high, middle)
    return np.where(np.isfinite(table).any(axis=1), high, np.nan)


def _range(table: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the smallest and the largest valid log ratio of each series; zeros where it has none."""
    valid = np.isfinite(table)
    some = valid.any(axis=1)
    low = np.where(valid, table, np.inf).min(axis=1, initial=np.inf)
    high = np.where(valid, table, -np.inf).max(axis=1, initial=-np.inf)
    return np.where(some, low, 0.0), np.where(some, high, 0.0)

"""Is any series slower? A randomisation test over the coins that decided which slot was head.

A *series* is one metric of one case, a row of a table; a column is a pair of processes. Before each pair a fair coin
decides which slot is head, so if head is base (or exactly `margin` slower), turning the coin over would have turned the
sign of every series' x = log(head / base) - margin in that pair, and nothing else. The signs that were observed are
then one uniform draw from all 2^pairs, whatever the noise: drift, heavy tails, modes, a bias of the slot, one throttled
pair (R. A. Fisher, "The Design of Experiments", 1935, section 21).

The test compares the largest statistic over all series with its distribution under sign vectors *common to all
series* (max-T: P. H. Westfall and S. S. Young, "Resampling-Based Multiple Testing", 1993, section 2.3), so that the
chance of accusing any of the innocent is at most alpha, however the series depend on each other. It remains so when
others are guilty, because a row's statistic depends on that row and on a prior frozen before the run.

Exactness asks one thing of a statistic: that turning a coin changes the signs of its scores and nothing else. Cutting
the scores at a constant and dividing by a second moment (about the margin, not about the mean) both depend on the
absolute values alone, so their constants decide the power and never the false-alarm rate.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import numpy as np

from flopwatch.stats.prior import FloatArray, Prior

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Pairs whose signs are free: of up to so many every sign vector is tried, 8192 of 13.
FREE_PAIRS = 13
#: Seed of the rule that gives further pairs their signs. It may be known: it is independent of the coins.
SEED = 20261121
#: Two sums count as equal within this share of the largest that they can be: they are added in different orders.
TIE = 1e-9
#: Below so many series their median says nothing that they do not say themselves.
SUITE_FROM = 5
#: Error of a suite's median, in deviations of one series: less, but the series of a pair share its two processes.
SUITE_SHARE = 0.25


def sign_sums(values: FloatArray, *, free: int = FREE_PAIRS) -> FloatArray:
    """Sum each row under many sign vectors: (rows, vectors), the observed sum first; opposites are left out.

    All sign vectors if there are at most `free` pairs. Beyond that a subgroup of 2^free of them: the signs of the first
    `free` pairs are free, that of a further pair is the product of those of an odd number of these, drawn once. Under
    the null any subgroup is as good as the whole, exactly (E. L. Lehmann and J. P. Romano, "Testing Statistical
    Hypotheses", 3rd ed. 2005, section 15.2); an odd number, so that a vector's opposite is in it too.

    Args:
        values: (rows, pairs).
        free: pairs whose signs are free.

    >>> sign_sums(np.array([[4.0, 2.0, 1.0]]))
    array([[7., 3., 5., 1.]])
    """
    free = min(free, values.shape[1])
    sums = values[:, :1]
    for pair in range(1, free):
        column = values[:, pair : pair + 1]
        sums = np.concatenate([sums + column, sums - column], axis=1)
    for column, signs in zip(values.T[free:], _further_signs(values.shape[1] - free, free), strict=True):
        sums = sums + np.multiply.outer(column, signs)
    return sums


@functools.lru_cache(maxsize=32)
def _further_signs(further: int, free: int) -> FloatArray:
    """Return the signs of further pairs, in the order of `sign_sums`: (further, vectors)."""
    members = np.random.default_rng(SEED).integers(2, size=(further, free)).astype(np.bool_)
    signs = np.ones((further, 1))
    # The first pair keeps its sign where opposites are left out; it is a member where that makes the number odd.
    for member in members.T[1:]:
        signs = np.concatenate([signs, np.where(member[:, None], -signs, signs)], axis=1)
    signs.setflags(write=False)
    return signs


def scores(x: FloatArray, prior: Prior) -> FloatArray:
    """Cut `x` at the prior's clip, and count what is invalid as nothing: a cut is odd, so a flip only turns its sign.

    >>> scores(np.array([0.001, -0.3, np.nan]), Prior(degrees=8, deviation=0.001))
    array([ 0.001, -0.005,  0.   ])
    """
    cut: FloatArray = np.where(np.isfinite(x), np.clip(x, -prior.clip, prior.clip), 0.0)
    return cut


def standardise(x: FloatArray, prior: Prior) -> FloatArray:
    """Divide the scores of each series so that their sum is its statistic, T = sum(scores) / (sqrt(n) * scale).

    scale^2 = (degrees * deviation^2 + sum(scores^2)) / (degrees + n), over the n valid pairs.

    Args:
        x: log ratios less the margin, (series, pairs); NaN where invalid.
        prior: what is believed of a pair's error.
    """
    cut = scores(x, prior)
    counts = np.isfinite(x).sum(axis=1, keepdims=True)
    squares = (cut**2).sum(axis=1, keepdims=True)
    variance = (prior.degrees * prior.deviation**2 + squares) / np.maximum(prior.degrees + counts, 1)
    divisor = np.sqrt(counts * variance)
    return np.asarray(np.divide(cut, divisor, out=np.zeros_like(cut), where=divisor > 0), dtype=np.float64)


def suite_row(x: FloatArray) -> FloatArray:
    """Return the median series, pair by pair: (1, pairs); a flip turns its sign as it turns theirs.

    A compiler that makes everything 1 % slower moves it; a case that is 30 % slower, or a few noisy ones, do not.

    >>> suite_row(np.array([[0.1, np.nan], [0.2, 0.4], [9.0, 0.2]]))
    array([[0.2, 0.3]])
    """
    valid = np.isfinite(x)
    filled = np.where(valid, x, np.nan)
    filled[:, ~valid.any(axis=0)] = 0.0  # no median of nothing; taken back below
    median: FloatArray = np.where(valid.any(axis=0), np.nanmedian(filled, axis=0), np.nan)[None]
    return median


def suite_prior(prior: Prior) -> Prior:
    """Return what is believed of the error of a suite's median."""
    return Prior(degrees=prior.degrees, deviation=SUITE_SHARE * prior.deviation)


def max_t(standardised: FloatArray) -> FloatArray:
    """Return the adjusted p-value of each row: that its mean is above zero.

    Args:
        standardised: from `standardise`, rows of all that is tested together: (rows, pairs).

    >>> p = max_t(standardise(np.array([[0.01] * 8, [0.001, -0.001] * 4]), Prior(degrees=8, deviation=0.001)))
    >>> p.round(3)
    array([0.004, 0.852])
    """
    sums = sign_sums(standardised)
    largest = np.sort(np.concatenate([sums.max(axis=0), -sums.min(axis=0)]))
    slack = TIE * abs(standardised).sum(axis=1)
    p: FloatArray = 1.0 - np.searchsorted(largest, sums[:, 0] - slack) / len(largest)
    return p


def p_slower(x: FloatArray, prior: Prior, tested: NDArray[np.bool_] | None = None) -> FloatArray:
    """Return the adjusted p-value of each series, and last of the suite's median where there are `SUITE_FROM` series.

    Args:
        x: log ratios less the margins, (series, pairs); the mirrored test is that of -log ratio less the margin.
        prior: what is believed of a pair's error.
        tested: which of these belong to the test, the others having been rejected before; NaN stands for their p-value.
    """
    rows = standardise(x, prior)
    if len(x) >= SUITE_FROM:
        rows = np.vstack([rows, standardise(suite_row(x), suite_prior(prior))])
    if tested is None:
        return max_t(rows)
    p = np.full(len(rows), np.nan)
    if tested.any():
        p[tested] = max_t(rows[tested])
    return p

"""Which of two samples is larger? The rank-sum test with its permutation distribution, and the shift that it allows.

The statistic is U = sum of sign(y - x) over all pairs of an x before and a y after, from -mn to mn (H. B. Mann and
D. R. Whitney, Ann. Math. Statist. 18 (1947), 50). If the values are exchangeable, U depends on their order alone, so
that one table serves every series whatever its noise: no permutation is drawn. Its tail is a saddlepoint approximation
of the exact cumulants, with continuity correction (H. E. Daniels, Int. Statist. Rev. 55 (1987), 37), within 5 % of
enumeration; at the very end of the range, where the approximation is 20 % too small, the exact 1 / (m + n choose m).
Ties count as nothing, which only takes from the test: U is then its own mean over every way to break them.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from flopwatch.stats.prior import FloatArray

#: Tilts at which tails are computed: from below one deviation of 128 against 128 values to the last value of 2 against
#: 2. Between neighbours log p is linear within 0.02.
_TILTS = np.geomspace(5e-4, 2.0, 200)
#: Terms of the continued fraction of Mills' ratio: it is good to 1e-3 from one deviation up.
_FRACTION = 24


@dataclass(frozen=True, kw_only=True, slots=True)
class Shift:
    """By how much the values after exceed those before.

    Attributes:
        estimate: the median of all differences (J. L. Hodges and E. L. Lehmann, Ann. Math. Statist. 34 (1963), 598).
        lower: the smallest shift that the test does not reject; -inf where there are too few values to say.
        upper: the largest; inf likewise.
    """

    estimate: float
    lower: float
    upper: float


def signs_after(values: FloatArray) -> FloatArray:
    """Return U of every split of `values`, after its first value, its second, and so on; the last is zero.

    The signs of pairs on the same side cancel, so that U is a sum over whole rows of the matrix of signs.

    >>> signs_after(np.array([1.0, 2.0, 5.0, 5.0]))
    array([3., 4., 2., 0.])
    """
    signs: FloatArray = np.sign(values[None, :] - values[:, None])
    return np.asarray(np.cumsum(signs.sum(axis=1)), dtype=np.float64)


def p_value(u: float, before: int, after: int) -> float:
    """Return the two-sided p-value of U.

    >>> round(p_value(96.0, 12, 12), 5), round(p_value(6.0, 2, 3), 9), p_value(0.0, 12, 12)
    (0.0045, 0.2, 1.0)
    """
    total = before + after
    edge, log_p = _tail(total, np.array([min(before, after)]))
    ends = -_log_choose(total)[min(before, after)]
    return min(1.0, 2 * math.exp(max(float(np.interp(abs(u) - 1, edge[:, 0], log_p[:, 0])), ends)))


@functools.lru_cache(maxsize=8)
def critical(level: float, limit: int) -> FloatArray:
    """Return the least |U| with a two-sided p-value of `level`, by [values in all, values before]; inf if none.

    Args:
        level: of one split.
        limit: the most values in all.
    """
    table = np.full((limit + 1, limit + 1), np.inf)
    for total in range(2, limit + 1):
        smaller = np.arange(1, total // 2 + 1)
        found = _critical(math.log(level / 2), total, smaller)
        table[total, smaller] = table[total, total - smaller] = found
    table.setflags(write=False)
    return table


def shift(before: FloatArray, after: FloatArray, *, alpha: float) -> Shift:
    """Estimate a shift, with the bounds that the two-sided test at `alpha` does not reject.

    >>> shift(np.array([1.0, 1.1, 1.2, 1.3]), np.array([2.0, 2.1, 2.2, 2.4]), alpha=0.05)
    Shift(estimate=1.0, lower=0.7, upper=1.4)
    """
    differences = np.sort(np.subtract.outer(after, before), axis=None)
    smaller = np.array([min(len(before), len(after))])
    least = float(_critical(math.log(alpha / 2), len(before) + len(after), smaller)[0])
    lower, upper = -math.inf, math.inf
    if least <= len(differences):
        kept = int((len(differences) - least) // 2)
        lower, upper = float(differences[kept]), float(differences[-1 - kept])
    return Shift(estimate=float(np.median(differences)), lower=lower, upper=upper)


def _critical(log_level: float, total: int, smaller: NDArray[np.intp]) -> FloatArray:
    """Interpolate the least |U| whose one-sided log p-value is `log_level`, for each size of the smaller side."""
    edge, log_p = _tail(total, smaller)
    upper = np.maximum((log_p <= log_level).argmax(axis=0), 1)
    columns = np.arange(len(smaller))
    above, below = log_p[upper - 1, columns], log_p[upper, columns]
    weight = (above - log_level) / np.where(above > below, above - below, 1.0)
    found = 1 + edge[upper - 1, columns] + weight * (edge[upper, columns] - edge[upper - 1, columns])
    attained = -_log_choose(total)[smaller] <= log_level
    return np.asarray(np.where(attained, np.minimum(found, smaller * (total - smaller)), np.inf), dtype=np.float64)


def _tail(total: int, smaller: NDArray[np.intp]) -> tuple[FloatArray, FloatArray]:
    """Return places u and log P(U > u), (tilts, sizes of the smaller side); 0 within a deviation of nothing."""
    logs, means, variances = (_split(sums, total, smaller) for sums in _cumulants(max(256, total)))
    tilts = _TILTS[:, None]
    deviations = np.sqrt(np.maximum(2 * (tilts * means - logs), 1e-12))
    scale = np.sinh(tilts) * np.sqrt(np.maximum(variances, 1e-300))
    ratio = _mills(deviations) + 1 / scale - 1 / deviations
    log_p = np.log(np.maximum(ratio, 1e-300)) - deviations**2 / 2 - math.log(2 * math.pi) / 2
    return means, np.where(deviations < 1, 0.0, log_p)


def _split(sums: FloatArray, total: int, smaller: NDArray[np.intp]) -> FloatArray:
    return np.asarray(sums[:, [total]] - sums[:, smaller] - sums[:, total - smaller], dtype=np.float64)


@functools.lru_cache(maxsize=2)
def _cumulants(limit: int) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return sums over j = 1 .. r of log(2 sinh(jt) / j) and of its derivatives in the tilt t: (tilts, r from 0).

    The cumulants of U are differences of these sums at m + n, m and n, because its distribution is a quotient of three
    such products (the Gaussian binomial coefficient in exp(2t)).
    """
    j = np.arange(1, limit + 1)
    x = np.multiply.outer(_TILTS, j)
    decay, rest = np.exp(-2 * x), -np.expm1(-2 * x)
    terms = (x + np.log(rest) - np.log(j), j * (1 + 2 * decay / rest), -4 * j**2 * decay / rest**2)
    logs, means, variances = (np.pad(np.cumsum(term, axis=1), ((0, 0), (1, 0))) for term in terms)
    return logs, means, variances


@functools.lru_cache(maxsize=1024)
def _log_choose(total: int) -> FloatArray:
    """Return the logarithms of all binomial coefficients of `total`."""
    factorials = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, total + 1)))])
    return np.asarray(factorials[-1] - factorials - factorials[::-1], dtype=np.float64)


def _mills(x: FloatArray) -> FloatArray:
    """Return P(Z > x) / density(x) of the normal distribution by Laplace's continued fraction."""
    rest = np.zeros_like(x)
    for term in range(_FRACTION, 0, -1):
        rest = term / (x + rest)
    return np.asarray(1 / (x + rest), dtype=np.float64)

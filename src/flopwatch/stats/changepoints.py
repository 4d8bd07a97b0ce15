"""Where did the level change? Change points of a series of one value a commit, found in the order of the commits.

After every value the window that ends there is split in all ways, and the split is judged by the rank-sum test
(`ranksum`): a change-point model as of D. M. Hawkins and Q. Deng, "A nonparametric change-point control chart",
J. Qual. Technol. 42 (2010), 165. It is to E-divisive (D. S. Matteson and N. A. James, J. Amer. Statist. Assoc. 109
(2014), 334) as ranks are to distances: divisive, with the permutation distribution of its statistic, which for ranks is
one table and no random numbers. What follows a change is a segment of its own, in which the search goes on.

Nothing is ever taken from the future, so that what is found after n values does not depend on whether they came one at
a time. A series is a fold: `change_points` takes up where it left off, at the cost of one window.

If the values of a segment are exchangeable, whatever their distribution, a series is accused of a change in about one
commit of 100,000. It says nothing of a noise that is not: values that follow their predecessors, or drift, have change
points, if not in the code.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from flopwatch.stats.ranksum import critical, p_value, shift, signs_after

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from flopwatch.stats.prior import FloatArray

#: A window holds so many values at most, and half as many at least once a segment is that long. A step of one
#: deviation of the noise, after 200 values, is found by 29 more in the middle of 60 series.
WINDOW = 256
HALF = WINDOW // 2
#: Level of one split. With it a stationary series has about one change point in 100,000 commits, because a window has
#: many splits and the next window nearly the same; derived again by `python -m evidence.changepoints` (2026-11-21).
LEVEL = 1e-6
#: Level in a segment that began with a change and has fewer than `YOUNG` values. A change that is taken back after five
#: commits is then found 24 commits later and not 45. Where nothing has been found it accuses nobody; of 1000 series
#: with one step of five deviations, 3 had false points after it.
YOUNG_LEVEL = 2e-5
YOUNG = 50
#: A segment has so many values at least: one or two outliers cannot be one.
SHORTEST = 4
#: The chance that an interval misses the effect, the place of the change given.
ALPHA = 0.05
#: Changes when the same values may give other change points: states of another recipe are not taken up.
RECIPE = b"ranksum-1"


@dataclass(frozen=True, kw_only=True, slots=True)
class ChangePoint:
    """One change of level. Indices are those of the values as given.

    Attributes:
        index: of the first value after the change.
        seen_index: of the value with which it was found.
        effect: by how much the values after exceed those before, of up to 128 values on either side and no further than
            the next change; a log ratio if the values are logarithms.
        lower: the smallest effect that agrees with them (95 %, the place given); None where there are too few values.
        upper: the largest, likewise.
        p: of the split of these values at this place. It was chosen among up to 255, so that it is no error rate.
        settled: the place does not move any more.
    """

    index: int
    seen_index: int
    effect: float
    lower: float | None
    upper: float | None
    p: float
    settled: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Changes:
    """What was found in the first `count` values, and all that is needed to go on from there.

    Attributes:
        count: values that were looked at, missing ones included.
        digest: of these values.
        points: in order. All but the last are settled.
    """

    count: int
    digest: str
    points: tuple[ChangePoint, ...]


def change_points(values: FloatArray, earlier: Changes | None = None) -> Changes:
    """Find the change points of a series, or go on from those of its beginning: the result is the same.

    Args:
        values: one a commit, oldest first, logarithms if effects are to be ratios; what is not finite is missing.
        earlier: what was found before values were appended. If any value that it speaks of has changed since, such as
            one that was missing then, it is of no use and the whole series is looked at again.

    >>> found = change_points(np.log([1.0, 1.1] * 20 + [2.0, 2.2] * 5))
    >>> [(point.index, point.seen_index, round(math.exp(point.effect), 3)) for point in found.points]
    [(40, 45, 2.0)]
    """
    values = np.where(np.isfinite(values), values, np.nan)
    places = np.flatnonzero(np.isfinite(values))
    search = _Search(values[places], places)
    if earlier and earlier.count <= len(values) and earlier.digest == _digest(values[: earlier.count]):
        search.take_up(earlier)
    search.run()
    return Changes(count=len(values), digest=_digest(values), points=search.points())


def _digest(values: FloatArray) -> str:
    return hashlib.blake2b(np.ascontiguousarray(values).tobytes(), digest_size=12, person=RECIPE).hexdigest()


class _Search:
    """The fold. Positions count the values that are there; `places` are their indices as given."""

    def __init__(self, values: FloatArray, places: NDArray[np.intp]) -> None:
        self.values = values
        self.places = places
        self.seen = 0  # values looked at
        self.young = False  # the last change is not settled
        self.starts = [0]  # of the segments; each but the first is a change
        self.found_at: list[int] = []
        self.final: tuple[ChangePoint, ...] = ()

    def take_up(self, earlier: Changes) -> None:
        """Go back to where an earlier search ended."""
        self.seen = int(np.searchsorted(self.places, earlier.count))
        self.starts += [int(np.searchsorted(self.places, point.index)) for point in earlier.points]
        self.found_at = [int(np.searchsorted(self.places, point.seen_index)) for point in earlier.points]
        self.young = bool(earlier.points) and not earlier.points[-1].settled
        settled = len(earlier.points) - self.young
        # What follows the last settled point may still grow, and with it the effect.
        self.final = earlier.points[: max(settled - 1, 0)]

    def run(self) -> None:
        """Look at every value."""
        while self.seen < len(self.values):
            begin, stop = self._window()
            found = _first_alarm(self.values[begin:stop], self.seen - begin, YOUNG_LEVEL if self.young else LEVEL)
            self.seen = stop if found is None else begin + found
            if found is not None:
                self._split(begin)
            if self.young and self.seen - self.starts[-1] >= YOUNG:
                self._settle(self.seen)
                self.young = False

    def points(self) -> tuple[ChangePoint, ...]:
        """Describe the changes."""
        described = list(self.final)
        ends = [*self.starts[2:], len(self.values)]
        for number in range(len(described), len(self.found_at)):
            settled = not self.young or number < len(self.found_at) - 1
            described.append(self._describe(number, ends[number], settled=settled))
        return tuple(described)

    def _window(self) -> tuple[int, int]:
        """Return the beginning of the next window, and the end of the last window with the same beginning and level."""
        start = self.starts[-1]
        begin = start + HALF * max(0, (self.seen - start) // HALF - 1)
        stop = min(begin + WINDOW, len(self.values))
        return begin, min(stop, start + YOUNG) if self.young else stop

    def _split(self, begin: int) -> None:
        """Begin a segment where the window splits best; nobody will move the one before it any more."""
        place = begin + _best_split(self.values[begin : self.seen])
        if self.young:
            self._settle(place)
        self.starts.append(place)
        self.found_at.append(self.seen - 1)
        self.young = True

    def _settle(self, stop: int) -> None:
        """Move the last change to where it fits best, now that more is known of what follows."""
        before, start = self.starts[-2:]
        begin = max(before, start - HALF)
        self.starts[-1] = begin + _best_split(self.values[begin : min(stop, start + HALF)])

    def _describe(self, number: int, stop: int, *, settled: bool) -> ChangePoint:
        begin, place = self.starts[number : number + 2]
        before = self.values[max(begin, place - HALF) : place]
        after = self.values[place : min(stop, place + HALF)]
        effect = shift(before, after, alpha=ALPHA)
        u = float(signs_after(np.concatenate([before, after]))[len(before) - 1])
        return ChangePoint(
            index=int(self.places[place]),
            seen_index=int(self.places[self.found_at[number]]),
            effect=effect.estimate,
            lower=effect.lower if math.isfinite(effect.lower) else None,
            upper=effect.upper if math.isfinite(effect.upper) else None,
            p=p_value(u, len(before), len(after)),
            settled=settled,
        )


def _first_alarm(window: FloatArray, seen: int, level: float) -> int | None:
    """Return the least number of values, above `seen`, whose best split is beyond its critical value."""
    signs = np.sign(window[None, :] - window[:, None])
    u = signs[:, seen:]
    u[:, 0] += signs[:, :seen].sum(axis=1)
    np.cumsum(u, axis=1, out=u)
    np.cumsum(u, axis=0, out=u)
    least = critical(level, WINDOW)[seen + 1 : len(window) + 1, 1 : len(window) + 1].T
    alarms = (abs(u) >= least).any(axis=0)
    return seen + 1 + int(alarms.argmax()) if alarms.any() else None


def _best_split(window: FloatArray) -> int:
    """Return how many values are before the split that leaves the least absolute residuals about two medians."""
    before, after = _residuals(window), _residuals(window[::-1])
    splits = np.arange(SHORTEST, len(window) - SHORTEST + 1)
    return int(splits[np.argmin(before[splits - 1] + after[len(window) - splits - 1])])


def _residuals(window: FloatArray) -> FloatArray:
    """Return the sum of absolute residuals about the median of the first value, of the first two, and so on.

    >>> _residuals(np.array([1.0, 2.0, 4.0]))
    array([0., 1., 3.])
    """
    beginnings = np.where(np.tri(len(window), dtype=np.bool_), window[None, :] - window[0], np.inf)
    beginnings.sort(axis=1)
    beginnings[np.isinf(beginnings)] = 0.0
    sums = np.pad(np.cumsum(beginnings, axis=1), ((0, 0), (1, 0)))
    rows = np.arange(len(window))
    lengths = rows + 1
    halves = lengths // 2
    return np.asarray(sums[rows, lengths] - sums[rows, lengths - halves] - sums[rows, halves], dtype=np.float64)

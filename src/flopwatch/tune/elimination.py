"""Successive elimination: every round times what is left against the current choice, and drops what is proved slower.

E. Even-Dar, S. Mannor and Y. Mansour, "Action elimination and stopping conditions for the multi-armed bandit and
reinforcement learning problems", J. Mach. Learn. Res. 7 (2006). Here an arm's reward is the log ratio of one round,
whose variance is shrunk towards what pairs are known to err by (`flopwatch.stats.prior`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np

from flopwatch.stats import PRIOR
from flopwatch.stats.interval import locate
from flopwatch.stats.prior import Prior

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from flopwatch.stats.prior import FloatArray

#: Proof that is asked before anything is known of the noise: so much slower than the leader in the only round. Modes of
#: a process make a kernel up to 5 % slower (H200, 2026-11-20); this is twice that.
HOPELESS = 0.10
#: A candidate without a time in so many rounds is dropped.
MAX_MISSING = 2


@dataclass(frozen=True, kw_only=True, slots=True)
class Rule:
    """When candidates are dropped, and when the search ends.

    Attributes:
        resolution: what differs by less, as a log ratio, is a tie.
        error: the chance that a candidate is dropped in the whole search that belongs to the ties of the fastest, where
            all scatter alike; one that is slow in some processes goes sooner.
        rounds: how many there are at most.
        prior: what one round is believed to err by.
    """

    resolution: float = 0.005
    error: float = 0.01
    rounds: int = 6
    prior: Prior = PRIOR


class Elimination:
    """The candidates of one case, in their declared order; the first pass.

    Args:
        candidates: how many.
        current: the place of the current choice, whose log ratio is 0 by definition; it is never dropped.
        rule: when others are.
    """

    def __init__(self, candidates: int, current: int, rule: Rule) -> None:
        self._rule = rule
        self._current = current
        self._table: FloatArray = np.full((candidates, rule.rounds), np.nan)
        self._table[current] = 0.0
        self._left: NDArray[np.bool_] = np.ones(candidates, dtype=bool)
        self.rounds = 0

    @property
    def left(self) -> tuple[int, ...]:
        """Who is still in the running, the current choice left out."""
        return tuple(int(place) for place in np.flatnonzero(self._left) if place != self._current)

    @property
    def is_over(self) -> bool:
        """Whether another round would change nothing, or there is none left."""
        return self.rounds == self._rule.rounds or not self.left or self._all_tie()

    @property
    def typical(self) -> FloatArray:
        """Typical log(seconds / seconds of the current choice) of each candidate; NaN without a time.

        As fresh samples are summed up (`flopwatch.stats.interval`), so that both can be compared. Where either side of
        a pair is 5 % slow in one process of 20, the choice was worse than the best by 1 % in 8 of 1000 simulated
        searches of 40 candidates; with the mean, in 66.
        """
        return locate(self._table, self._rule.prior)

    def times(self, place: int) -> int:
        """Return how often a candidate was timed."""
        return 0 if place == self._current else int(np.isfinite(self._table[place]).sum())

    def tell(self, log_ratios: Mapping[int, float]) -> tuple[int, ...]:
        """Take the log ratios of a round; return who is dropped after it."""
        for place, log_ratio in log_ratios.items():
            self._table[place, self.rounds] = log_ratio
        self.rounds += 1
        before = self._left.copy()
        missing = self.rounds - np.isfinite(self._table[:, : self.rounds]).sum(axis=1)
        self._left &= missing < MAX_MISSING
        self._left &= self._behind() - self._margins() <= self._rule.resolution
        self._left[self._current] = True
        return tuple(int(place) for place in np.flatnonzero(before & ~self._left))

    def choose(self) -> int:
        """Return the choice: the first in declared order that ties with the fastest."""
        behind = self._behind()
        ties = self._left & (behind <= self._rule.resolution) & np.isfinite(self._table).any(axis=1)
        return int(np.flatnonzero(ties)[0])

    def _behind(self) -> FloatArray:
        """Return how far each is behind the fastest that is left; those without a time are not."""
        typical = self.typical
        fastest = np.nanmin(np.where(self._left, typical, np.nan))
        behind: FloatArray = np.nan_to_num(typical - fastest, nan=0.0)
        return behind

    def _margins(self) -> FloatArray:
        """Return by how much each distance to the fastest may be wrong, at the rule's chance."""
        counts = np.maximum(np.isfinite(self._table).sum(axis=1), 1).astype(np.float64)
        if self.rounds == 1:
            return np.full(len(counts), HOPELESS)
        degrees, deviation = self._noise()
        chance = self._rule.error / (len(counts) * self._rule.rounds)
        margins: FloatArray = student(1 - chance, degrees) * deviation * np.sqrt(2 / counts)
        return margins

    def _noise(self) -> tuple[float, float]:
        """Return the degrees and the deviation of a round's log ratio: the prior's, and what the rounds scatter."""
        measured = np.delete(self._table, self._current, axis=0)
        counts = np.isfinite(measured).sum(axis=1)
        squares = np.nansum((measured - np.delete(self.typical, self._current)[:, None]) ** 2)
        prior = self._rule.prior
        degrees = prior.degrees + float(np.maximum(counts - 1, 0).sum())
        return degrees, math.sqrt((prior.degrees * prior.deviation**2 + float(squares)) / degrees)

    def _all_tie(self) -> bool:
        """Tell whether all that are left are proved to tie with the fastest."""
        reach = (self._behind() + self._margins())[self._left]
        return self.rounds > 1 and bool((reach <= self._rule.resolution).all())


def student(chance: float, degrees: float) -> float:
    """Return the quantile of Student's t, by its expansion about the normal one (Abramowitz and Stegun, 26.7.5).

    >>> round(student(0.975, 1e9), 3), round(student(0.995, 10), 2)
    (1.96, 3.17)
    """
    z = NormalDist().inv_cdf(chance)
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + first / degrees + second / degrees**2 + third / degrees**3

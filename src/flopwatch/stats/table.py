"""What pairs measured of some series, and which of them a look uses.

Under a power cap the clock follows what runs: a head that keeps the tensor cores busier runs at a lower clock than base
in every pair, which is part of what it costs. A clock that differs in a few pairs is the machine's. So a series is
tested without the pairs whose slots ran at different clocks while these are the fewer ones, and with all of them else.

Each look asks this anew of the pairs so far, so that a pair may enter between two looks, or leave. That accuses no more
often. Which pairs are used follows from whether the clocks of two slots differ, whichever was the higher one: turning
the coins over changes it no more than it changes the absolute values. So each look is exact on the pairs that it uses,
and what holds the looks together is that their levels add up, which asks nothing of how their pairs overlap.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from flopwatch.measure.fitness import is_minority
from flopwatch.stats.prior import FloatArray

Flags: TypeAlias = NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True, slots=True)
class Table:
    """Pairs of some series.

    Attributes:
        ratios: log(head / base), (series, pairs); NaN where invalid.
        apart: where the two slots of a pair ran at different clocks, likewise.

    >>> once = np.array([[True, False, False, False]])
    >>> Table(ratios=np.array([[0.5, 0.1, 0.2, 0.1]]), apart=once).used
    array([[nan, 0.1, 0.2, 0.1]])
    >>> Table(ratios=np.array([[0.5, 0.1, np.nan, np.nan]]), apart=once).used
    array([[0.5, 0.1, nan, nan]])
    """

    ratios: FloatArray
    apart: Flags

    @classmethod
    def of(cls, ratios: FloatArray) -> Table:
        """Return the table of pairs of which nothing is known but their log ratios."""
        return cls(ratios=ratios, apart=np.zeros(ratios.shape, dtype=np.bool_))

    @property
    def pairs(self) -> int:
        """How many were measured, valid or not."""
        return int(self.ratios.shape[1])

    @property
    def used(self) -> FloatArray:
        """The log ratios of the pairs that a look at this table uses; NaN in place of the others."""
        valid = np.isfinite(self.ratios)
        apart = self.apart & valid
        counts = zip(apart.sum(axis=1).tolist(), valid.sum(axis=1).tolist(), strict=True)
        few = np.array([is_minority(*count) for count in counts], dtype=np.bool_)
        return np.where(valid & ~(apart & few[:, None]), self.ratios, np.nan)

    def only(self, rows: NDArray[np.intp] | Flags) -> Table:
        """Keep some of the series."""
        return Table(ratios=self.ratios[rows], apart=self.apart[rows])

    def spread(self, rows: NDArray[np.intp], series: int) -> Table:
        """Return a table of more series, of which these rows are the ones that were measured."""
        ratios, apart = np.full((series, self.pairs), np.nan), np.zeros((series, self.pairs), dtype=np.bool_)
        ratios[rows], apart[rows] = self.ratios, self.apart
        return Table(ratios=ratios, apart=apart)

    def beside(self, further: Table) -> Table:
        """Add further pairs of the same series."""
        return Table(ratios=np.hstack([self.ratios, further.ratios]), apart=np.hstack([self.apart, further.apart]))

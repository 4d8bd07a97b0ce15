"""Decide again what was recorded: samplers for `flopwatch.stats.decide` that draw recorded pairs.

A run draws whole pairs, all cases together, so that what the cases of a pair have in common (its two processes, the
heat of those seconds) stays in common. Each time a pair is drawn a fresh fair coin says which of its slots is head, as
in a live run. Every draw of a run is fresh: the pairs of stage 2 and of settling are not those of stage 1.

What that can show: that the procedure keeps its levels on errors as they are, with all their tails, modes and
correlations, and what it finds in them. What it cannot: errors that the recording does not hold. Of N recorded pairs
anything that befalls fewer than 1 - 0.05^(1/N) of pairs may be missing (`unseen_share`), and a recording is one GPU on
one day. The bound on false alarms does not rest on it: it follows from the coins.

A pair that is drawn twice comes with two coins, so that a test of the signs is as exact as with distinct pairs: given
the absolute values, all sign vectors remain equally likely. Nothing is smoothed: noise that is added to tell the copies
apart would be noise that no GPU made.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from flopwatch.stats.prior import FloatArray
from flopwatch.stats.procedure import Stage, _checked, _confirm, _Screen, _screen
from flopwatch.stats.signflip import SUITE_FROM, TIE, sign_sums, standardise, suite_prior, suite_row

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from flopwatch.stats import Design, Prior, Sampler


class Scheme(enum.Enum):
    """How a run draws its pairs.

    SHUFFLED: without replacement, in random order, until the recording is used up; then it is shuffled again.
    REPLACED: with replacement, each draw for itself.
    IN_ORDER: as they were recorded, from a random one on, round and round: neighbours remain neighbours, drift drift.
    """

    SHUFFLED = "shuffled"
    REPLACED = "replaced"
    IN_ORDER = "in order"


def unseen_share(pairs: int, confidence: float = 0.95) -> float:
    """Return the share of pairs that something may befall without having befallen any of those recorded.

    >>> round(unseen_share(30), 3)
    0.095
    """
    return 1 - float((1 - confidence) ** (1 / pairs))


class Draw:
    """The sampler of one run.

    Args:
        table: log(slot 1 / slot 0) as recorded, (series, pairs).
        rng: draws the pairs and tosses the coins.
        scheme: how pairs are drawn.
    """

    def __init__(self, table: FloatArray, rng: np.random.Generator, scheme: Scheme = Scheme.SHUFFLED) -> None:
        self._table = table
        self._rng = rng
        self._scheme = scheme
        self._ahead: NDArray[np.intp] = np.empty(0, dtype=np.intp)
        if scheme is Scheme.IN_ORDER:
            self._ahead = np.roll(np.arange(table.shape[1]), int(rng.integers(table.shape[1])))

    def __call__(self, rows: Sequence[int], pairs: int, _stage: Stage = Stage.SCREEN) -> FloatArray:
        """Return log(head / base) of `pairs` pairs."""
        coins = self._rng.choice([-1.0, 1.0], size=pairs)
        drawn: FloatArray = self._table[list(rows)][:, self._columns(pairs)] * coins
        return drawn

    def _columns(self, pairs: int) -> NDArray[np.intp]:
        recorded = self._table.shape[1]
        if self._scheme is Scheme.REPLACED:
            return self._rng.integers(recorded, size=pairs)
        while len(self._ahead) < pairs:
            again = np.arange(recorded)
            if self._scheme is Scheme.SHUFFLED:
                again = self._rng.permutation(recorded)
            elif len(self._ahead):
                again = np.roll(again, -int(self._ahead[-1]) - 1)
            self._ahead = np.concatenate([self._ahead, again])
        drawn, self._ahead = self._ahead[:pairs], self._ahead[pairs:]
        return drawn


@dataclass(frozen=True, kw_only=True, slots=True)
class Planted:
    """One series made slower.

    Attributes:
        row: which.
        log_ratio: how much, as log(head / base), added to its recorded errors.
        recorded: instead: log(head / base) of pairs that were recorded with head slowed on the GPU.
    """

    row: int
    log_ratio: float = 0.0
    recorded: FloatArray | None = None

    def on(self, draw: Draw, rng: np.random.Generator) -> PlantedDraw:
        """Return the sampler of a run in which that series is slower."""
        return PlantedDraw(draw, self, rng)


class PlantedDraw:
    """A sampler that makes one series slower."""

    def __init__(self, draw: Draw, planted: Planted, rng: np.random.Generator) -> None:
        self._draw = draw
        self.planted = planted
        self._rng = rng
        self._ahead: FloatArray = np.empty(0)

    def __call__(self, rows: Sequence[int], pairs: int, _stage: Stage = Stage.SCREEN) -> FloatArray:
        """Return log(head / base) of `pairs` pairs."""
        table = self._draw(rows, pairs)
        for index in np.flatnonzero(np.asarray(rows) == self.planted.row):
            table[index] = self.slow(table[index])
        return table

    def slow(self, errors: FloatArray) -> FloatArray:
        """Return the slowed series' log ratios where `errors` were drawn of it, or recorded ones in their place."""
        recorded = self.planted.recorded
        if recorded is None:
            return errors + self.planted.log_ratio
        while len(self._ahead) < len(errors):
            self._ahead = np.concatenate([self._ahead, self._rng.permutation(recorded)])
        slowed, self._ahead = self._ahead[: len(errors)], self._ahead[len(errors) :]
        return slowed


class Screening:
    """Stage 1 of a clean run, ready to be asked what it would have flagged had one of its series been slower.

    `decide` gives the same answer a hundred times more slowly: sums of signs are linear, so that those of the other
    series need not be formed again for each series that is slowed in its turn.

    Args:
        design: the run.
        margins: of each series, as log ratios.
        table: log(head / base) of a clean run, (series, pairs of stage 1).
    """

    def __init__(self, design: Design, margins: FloatArray, table: FloatArray) -> None:
        self.design = design
        self.margins = margins
        self.table = table
        self._looks = [
            [_Direction(sign, table[:, :pairs], margins, design.prior) for sign in (1.0, -1.0)]
            for pairs in sorted({design.first_look, design.pairs})
        ]

    def found(self, sampler: PlantedDraw) -> bool:
        """Tell whether both stages call the planted series slower; `sampler` has drawn the clean table already."""
        design, row = self.design, sampler.planted.row
        table = self.table.copy()
        table[row] = sampler.slow(table[row])
        least = min(direction.p_values(row, table[row]).min() for direction in self._looks[0])
        if least > max(design.leaning, design.first_alpha):
            return False
        screen = (
            _screen(design, self.margins, _recorded(table)) if least <= design.first_alpha else self._late(row, table)
        )
        if not screen.slower[row]:
            return False
        return bool(_confirm(design, self.margins, screen, _checked(sampler)).slower[row])

    def _late(self, row: int, table: FloatArray) -> _Screen:
        """Return stage 1 where the first look flags nobody."""
        design = self.design
        slower, faster = (direction.p_values(row, table[row]) for direction in self._looks[-1])
        flags = slower <= design.last_alpha
        nobody = np.zeros(len(flags), dtype=np.bool_)
        return _Screen(
            table=table,
            p_slower=slower,
            p_faster=faster,
            slower=flags,
            faster=(faster <= design.last_alpha) & ~flags,
            plain=nobody,
            same=nobody,
        )


def _recorded(table: FloatArray) -> Sampler:
    """Return the sampler that gives the pairs of a table in their order."""
    taken = 0

    def sample(_rows: Sequence[int], pairs: int, _stage: Stage) -> FloatArray:
        nonlocal taken
        taken += pairs
        return table[:, taken - pairs : taken]

    return sample


class _Direction:
    """The test of one direction on a clean table: of all series, the largest sum under each sign vector."""

    def __init__(self, sign: float, table: FloatArray, margins: FloatArray, prior: Prior) -> None:
        self._prior = prior
        self._sign = sign
        self._margins = margins
        self._x = sign * table - margins[:, None]
        rows = standardise(self._x, prior)
        sums = sign_sums(rows)
        self._observed = sums[:, 0] - TIE * abs(rows).sum(axis=1)
        both = np.concatenate([sums, -sums], axis=1)
        columns = np.arange(both.shape[1])
        self._at = both.argmax(axis=0)
        self._largest = both[self._at, columns]
        both[self._at, columns] = -np.inf
        self._second = both.max(axis=0)

    def p_values(self, row: int, values: FloatArray) -> FloatArray:
        """Return the adjusted p-values, the suite's median last, with `values` as the series `row`."""
        values = values[: self._x.shape[1]]
        own = self._sign * values - self._margins[row]
        fresh = standardise(own[None], self._prior)
        if len(self._x) >= SUITE_FROM:
            x = self._x.copy()
            x[row] = own
            fresh = np.vstack([fresh, standardise(suite_row(x), suite_prior(self._prior))])
        sums = sign_sums(fresh)
        others = np.where(self._at == row, self._second, self._largest)
        largest = np.sort(np.maximum(others, np.concatenate([sums.max(axis=0), -sums.min(axis=0)])))
        seen = sums[:, 0] - TIE * abs(fresh).sum(axis=1)
        observed = np.concatenate([self._observed, seen[1:]])
        observed[row] = seen[0]
        p: FloatArray = 1.0 - np.searchsorted(largest, observed) / len(largest)
        return p

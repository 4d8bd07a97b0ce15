"""How many pairs, in which order, and at which levels: the plan of one run, fixed before it starts."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from flopwatch.stats.prior import PRIOR, Prior

#: Pairs before the first decision: the fewest that can prove SAME (2^-8 is 0.39 %). With a margin of 0.5 % every clean
#: run of 300 simulated ones could stop accusing here. Re-derived by `nox -s ledger`.
FIRST_LOOK = 8
#: Pairs of all series in all, if any leans that is not flagged yet: 13 and 12 find 1 % with a margin of 0.5 % and a
#: deviation of 0.3 % in 99.8 % of runs, 8 in 92 % (`power_of`, 60 series); of odd numbers fewer sign vectors tie.
PAIRS = 13
#: Fresh pairs of the flagged series: after eight, the fewest that bound an effect at 99.5 %, what the first look
#: flagged may be confirmed; the rest gets 19, which forgive four wrong signs at 1.5 %, where 18 forgive three.
CONFIRM_FIRST = 8
CONFIRM_PAIRS = 19
#: The chance that both stages together call any innocent series slower, and likewise faster. A gate accuses an innocent
#: case in 0.1 % of runs; the rest is for what is judged beside the time.
FALSE_ALARM_RATE = 0.0008
#: The chance that stage 1 flags one, and how much of it the first look takes: twice the smallest p-value of eight
#: pairs. With a margin, clean series are faster by it when all signs are turned, as much as a slowed one is slower; so
#: these two sign vectors tie.
ALPHA = 0.05
FIRST_ALPHA = 2.0**-7
#: The chance that stage 2 confirms one: after eight pairs, and after all.
CONFIRM_FIRST_ALPHA = 2.0**-7
CONFIRM_ALPHA = (FALSE_ALARM_RATE - FIRST_ALPHA * CONFIRM_FIRST_ALPHA) / ALPHA
#: A first look with no adjusted p-value as small accuses nobody. `power_of` finds 1 % with a margin of 0.5 % and a
#: deviation of 0.4 % in 92.0 % of runs at 0.2, in 95.1 % at 0.3, 95.4 % at 0.5 and 95.5 % at 1 (60 series, 2026-11-22);
#: without a margin three of four clean runs go on (`nox -s ledger`: they take 11.7 pairs of 8 to 13).
LEANING = 0.5
#: The chance, a series, that SAME is said of a slowdown as large as `SAME_WITHIN`, over all looks together.
MISS_RATE = 0.005
SAME_WITHIN = math.log1p(0.01)
#: Share of it that the first look takes, the least that lets eight pairs decide; the others share the rest.
FIRST_SHARE = 0.8
#: They are: after all pairs, after each round of settling, and stage 2 of a series that was flagged.
LATER_LOOKS = 4
#: Further pairs of series that are neither flagged nor proved the same, in two rounds, and for so many series at most:
#: a pair takes 1.1 s, and 0.22 s a case (H200, 2026-11-22; `flopwatch.gate.times`).
SETTLE_PAIRS = 24
SETTLE_ROUNDS = 2
SETTLE_SERIES = 10


@dataclass(frozen=True, kw_only=True, slots=True)
class Design:
    """The plan of one run.

    Attributes:
        pairs: of all series in stage 1, at most.
        first_look: after how many of them stage 1 may end, if no further series is near being flagged.
        confirm_first: fresh ones in stage 2 that may confirm a series which the first look flagged.
        confirm_pairs: of series that are not confirmed by then.
        alpha: family-wise level of stage 1, in each direction.
        first_alpha: the share of it that the first look may spend; at 0 it flags nobody.
        confirm_first_alpha: likewise of stage 2, after `confirm_first` pairs.
        confirm_alpha: after `confirm_pairs`.
        leaning: the adjusted p-value from which on a first look leaves nobody near being flagged.
        same_within: the slowdown, as a log ratio, that SAME excludes.
        miss_rate: at this chance, over all looks.
        settle_pairs: further ones of series that are still open, for SAME alone; 0 for none.
        settle_series: open series up to which that is worth its time.
        prior: what is believed of a pair's error.

    Raises:
        ValueError: too few pairs for the levels: 2^-pairs is the smallest p-value there is.

    >>> Design(pairs=4, first_look=4, first_alpha=0)
    Traceback (most recent call last):
    ...
    ValueError: 4 pairs cannot reject at 5 %: 2^-4 is 6.25 %; take 5 or more
    """

    pairs: int = PAIRS
    first_look: int = FIRST_LOOK
    confirm_first: int = CONFIRM_FIRST
    confirm_pairs: int = CONFIRM_PAIRS
    alpha: float = ALPHA
    first_alpha: float = FIRST_ALPHA
    confirm_first_alpha: float = CONFIRM_FIRST_ALPHA
    confirm_alpha: float = CONFIRM_ALPHA
    leaning: float = LEANING
    same_within: float = SAME_WITHIN
    miss_rate: float = MISS_RATE
    settle_pairs: int = SETTLE_PAIRS
    settle_series: int = SETTLE_SERIES
    prior: Prior = PRIOR

    def __post_init__(self) -> None:
        if not 1 <= self.first_look <= self.pairs:
            raise ValueError(f"the first look is after 1 to {self.pairs} pairs, got {self.first_look}")
        if not 1 <= self.confirm_first < self.confirm_pairs:
            raise ValueError(f"confirm_first is 1 to {self.confirm_pairs - 1} pairs, got {self.confirm_first}")
        if self.first_alpha > self.alpha:
            raise ValueError(f"first_alpha is a share of alpha, {self.alpha}, got {self.first_alpha}")
        looks = [(self.pairs, self.last_alpha), (self.confirm_pairs, self.confirm_alpha)]
        if self.first_alpha:
            looks += [(self.first_look, self.first_alpha), (self.confirm_first, self.confirm_first_alpha)]
        for pairs, alpha in looks:
            if not 0 < alpha < 1:
                raise ValueError(f"a level is between 0 and 1, got {alpha}")
            if 2.0**-pairs > alpha:
                raise ValueError(
                    f"{pairs} pairs cannot reject at {100 * alpha:.3g} %"
                    f": 2^-{pairs} is {100 * 2.0**-pairs:.3g} %; take {math.ceil(-math.log2(alpha))} or more"
                )
        if self.settle_pairs < 0 or self.settle_pairs % SETTLE_ROUNDS:
            raise ValueError(f"settle_pairs come in {SETTLE_ROUNDS} equal rounds, got {self.settle_pairs}")

    def of_pairs(self, pairs: int) -> Design:
        """Return this design for another number of pairs.

        The first look takes its share of them, and stage 2 no fewer: with 60 pairs, a first look after 8 and 19 to
        confirm, stage 1 would find slowdowns that the one or the other loses.

        >>> longer = Design().of_pairs(52)
        >>> longer.first_look, longer.confirm_pairs
        (32, 52)
        """
        first_look = max(self.first_look, pairs * self.first_look // self.pairs)
        return replace(self, pairs=pairs, first_look=first_look, confirm_pairs=max(self.confirm_pairs, pairs))

    @property
    def false_alarm_rate(self) -> float:
        """The chance, at most, that a run calls any innocent series slower.

        Whatever stage 1 flags may be confirmed after `confirm_pairs`; what its first look flags, after fewer as well.
        """
        return self.alpha * self.confirm_alpha + self.first_alpha * self.confirm_first_alpha

    @property
    def last_alpha(self) -> float:
        """The level at which stage 1 flags after all its pairs; all of it where these are the first look's."""
        return self.alpha - self.first_alpha if self.first_look < self.pairs else self.alpha

    @property
    def first_same_alpha(self) -> float:
        """The level at which the first look says SAME."""
        return FIRST_SHARE * self.miss_rate

    @property
    def later_same_alpha(self) -> float:
        """The level at which each later look says it: after `pairs`, and after each round of settling or stage 2."""
        return (1 - FIRST_SHARE) * self.miss_rate / LATER_LOOKS

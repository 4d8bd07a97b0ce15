"""What became of the conclusions of studies that a gate watches; `flopwatch.study.watched` measures them.

A conclusion is about one side: a line of a study takes at most so much longer than others. The gate asks whether it
held on base and no longer does on head. Head is looked at first, and what is proved not to hold there is looked at on
base; where it is proved to hold there, both sides are measured afresh, in turns. Only what all four looks agree on is
called lost.
"""

from __future__ import annotations

import enum
import statistics
from dataclasses import dataclass, field

#: Of the chance of a false alarm, 0.1 % a run, that of all conclusions together. Where nothing changed, a conclusion is
#: true on both sides, and to refute it takes both stages on head; or it is true on neither, and to prove it takes both
#: on base. So it is the level of the first stage, 1 % to refute and 0.5 % to prove (`flopwatch.study.decisions`), times
#: that of the second at the most.
CONCLUSIONS_ALPHA = 0.00005
CONFIRM_ALPHA = 0.005
#: Rounds of a look: in the first stage the fewest that decide at its levels; in the second as many as the sign-flip
#: test turns freely, of whose 2^13 outcomes the two most extreme are 0.024 %. `config.MAX_CONCLUSIONS` leaves 0.031 %.
SCREEN_ROUNDS = 8
CONFIRM_ROUNDS = 13
#: The stages, by their names in the result.
SCREEN, CONFIRM = "screen", "confirm"


def confirm_alpha(watched: int) -> float:
    """Return the level of each conclusion's second stage, where so many are watched.

    >>> confirm_alpha(2)
    0.0025
    """
    return CONFIRM_ALPHA / watched


class Verdict(enum.Enum):
    """Whether a conclusion is true, on one side."""

    HOLDS = "holds"
    FAILS = "does not hold"
    UNSURE = "unsure"


class Outcome(enum.Enum):
    """What became of it.

    HOLDS: it is true on head.
    LOST: it was true on base, and is not on head; it alone fails the run.
    NEITHER: it is true on neither side.
    UNSURE: none of these is proved.
    UNCHANGED: both sides run the same code, so that nothing was measured.
    """

    HOLDS = "holds"
    LOST = "no longer holds"
    NEITHER = "holds on neither side"
    UNSURE = "unsure"
    UNCHANGED = "unchanged"


@dataclass(frozen=True, kw_only=True, slots=True)
class Beside:
    """The conclusion's line beside another one at a point.

    Attributes:
        other: the other line.
        at: the point.
        log_ratios: log(seconds of the line / of the other), one for each round that measured both.
    """

    other: str
    at: str
    log_ratios: tuple[float, ...]

    @property
    def median(self) -> float:
        """The log ratio of the median round."""
        return statistics.median(self.log_ratios)


@dataclass(frozen=True, kw_only=True, slots=True)
class Look:
    """What the rounds of one stage say of one side.

    Attributes:
        stage: "screen" or "confirm".
        side: "base" or "head".
        verdict: whether the conclusion is true there.
        beside: all that the line is held against, one at least.
    """

    stage: str
    side: str
    verdict: Verdict
    beside: tuple[Beside, ...]

    @property
    def worst(self) -> Beside:
        """That beside which the line is slowest."""
        return max(self.beside, key=lambda each: each.median)


#: The looks at a conclusion, in their order, and what each must say for the next to be taken; all of it is LOST.
PATH = (
    (SCREEN, "head", Verdict.FAILS),
    (SCREEN, "base", Verdict.HOLDS),
    (CONFIRM, "base", Verdict.HOLDS),
    (CONFIRM, "head", Verdict.FAILS),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class WatchedConclusion:
    """One conclusion of a study.

    Attributes:
        study: its study.
        says: what is to be true, in words.
        line: whose time.
        percent: how much longer it may take than others.
        identical: both sides run the same code.
        looks: what was measured, in order.
        reason: why it could not be decided; "" where the looks say.
        seconds: how long it took to find out.
        outcome: what became of it; follows from the rest, and is not read back.
    """

    study: str
    says: str
    line: str = ""
    percent: float = 0.0
    identical: bool = False
    looks: tuple[Look, ...] = ()
    reason: str = ""
    seconds: float = 0.0
    outcome: Outcome = field(init=False, default=Outcome.UNSURE)

    def __post_init__(self) -> None:
        object.__setattr__(self, "outcome", self._derive_outcome())

    def _derive_outcome(self) -> Outcome:
        if self.reason:
            return Outcome.UNSURE
        if self.identical:
            return Outcome.UNCHANGED
        looks = tuple((look.stage, look.side, look.verdict) for look in self.looks)
        of_screen = {
            ((SCREEN, "head", Verdict.HOLDS),): Outcome.HOLDS,
            (PATH[0], (SCREEN, "base", Verdict.FAILS)): Outcome.NEITHER,
        }
        return Outcome.LOST if looks == PATH else of_screen.get(looks, Outcome.UNSURE)

    @property
    def id(self) -> str:
        """A short name, in the form of a case's."""
        return f"{self.study}[{self.line}]"

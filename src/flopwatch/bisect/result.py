"""What a bisection found out, as records that can be kept and read again."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from flopwatch.errors import ExitCode
from flopwatch.gate.result import PairLog
from flopwatch.model import SCHEMA_VERSION, Case


class Outcome(enum.Enum):
    """On which side of the change a commit is."""

    GOOD = "good"
    BAD = "bad"
    SKIPPED = "skipped"


@dataclass(frozen=True, kw_only=True, slots=True)
class Commit:
    """A commit, with the date on which it was written and its subject line."""

    hash: str
    date: str
    subject: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Effect:
    """How much slower one commit is than another, as log(its seconds / the other's), with 99 % bounds.

    The bounds are None where there are too few pairs for them.
    """

    estimate: float
    lower: float | None
    upper: float | None
    pairs: int

    @property
    def differs(self) -> bool:
        """Whether the interval leaves out that both are as fast."""
        return (self.lower is not None and self.lower > 0) or (self.upper is not None and self.upper < 0)


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """What is known of one commit between good and bad.

    Attributes:
        commit: the one that was looked at.
        outcome: its side.
        effect: it against good; None where it was not measured.
        value: of the compiled fact; None where the bisection is about time, or it could not be compiled.
        reason: why it was skipped, or why nothing had to be measured.
    """

    commit: Commit
    outcome: Outcome
    effect: Effect | None = None
    value: int | None = None
    reason: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Bisection:
    """All that a bisection found out.

    Attributes:
        case: that got slower, or faster.
        fact: what of it is compared, "registers" or such; "" for its time.
        good: the one end.
        bad: the other.
        device: the GPU that measured, or for which it was compiled.
        difference: bad against good; None where that was not measured.
        good_value: of the compiled fact at good.
        bad_value: likewise at bad.
        differs: good and bad are proved to differ.
        steps: what was looked at, in order.
        candidates: the commits of which one made the change, the newest first; one alone is the culprit.
        parent: of the culprit: what it was held against.
        change: the culprit against that parent, by fresh pairs where they are not good and bad; None where it was not
            measured.
        parent_value: of the compiled fact at that parent.
        culprit_value: likewise at the culprit.
        pairs: every pair that was measured.
        settling_pairs: how many would show whether good and bad differ, if the estimate is right; None if not known.
        command: the line that repeats or continues it.
        reason: why there is no culprit, or how far it is to be believed.
        unfit: why the machine's measurements are worth nothing; "" where they are.
        interrupted: it was stopped.
        seconds: how long it took.
        notes: what else is worth knowing.
    """

    case: Case
    fact: str
    good: Commit
    bad: Commit
    device: str
    difference: Effect | None = None
    good_value: int | None = None
    bad_value: int | None = None
    differs: bool = False
    steps: tuple[Step, ...] = ()
    candidates: tuple[Commit, ...] = ()
    parent: Commit | None = None
    change: Effect | None = None
    parent_value: int | None = None
    culprit_value: int | None = None
    pairs: tuple[PairLog, ...] = ()
    settling_pairs: int | None = None
    command: str = ""
    reason: str = ""
    unfit: str = ""
    interrupted: bool = False
    seconds: float = 0.0
    notes: tuple[str, ...] = ()
    schema_version: int = SCHEMA_VERSION

    @property
    def culprit(self) -> Commit | None:
        """The commit that made the change, where it is known which."""
        return self.candidates[0] if self.differs and len(self.candidates) == 1 else None

    @property
    def exit_code(self) -> int:
        """What the process should tell its caller: whether there is a culprit, not what it did."""
        if self.unfit:
            return int(ExitCode.UNFIT)
        found = self.culprit is not None and not self.reason and not self.interrupted
        return int(ExitCode.OK if found else ExitCode.UNDECIDED)

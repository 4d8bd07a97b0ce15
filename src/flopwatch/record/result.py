"""What a recording was asked for, and what became of it."""

from __future__ import annotations

from dataclasses import dataclass

from flopwatch.asv.failures import KeptFailure
from flopwatch.errors import ExitCode
from flopwatch.model import SCHEMA_VERSION


@dataclass(frozen=True, kw_only=True, slots=True)
class RecordOptions:
    """What the user asked for.

    Attributes:
        revisions: a commit; a range as `git rev-list` takes it; NEW: what the branches have beyond the last commit that
            is recorded; ALL: all that the branches have.
        machine: the name under which results are kept; None is this machine's.
        anchor: the commit whose time is the unit of the ratios; None takes that of the settings,
            where there is a GPU; "" records no ratios.
        select: only cases whose name has this in it.
        samples: keep every sample, not only asv's statistics of them.
        again: measure what is recorded already, too.
    """

    revisions: str = "HEAD^!"
    machine: str | None = None
    anchor: str | None = None
    select: str = ""
    samples: bool = False
    again: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class RecordedCommit:
    """What became of one commit.

    Attributes:
        commit: its hash.
        path: asv's file; what asv has no place for is beside it, in a file that ends in ``.jsonl``.
        cases: measured now.
        before: recorded before, and left as they are.
        failures: the cases, or parts of them, that could not be measured, and why.
        unfit: why the times are not to be trusted; "" where they are.
        seconds: how long it took.
    """

    commit: str
    path: str
    cases: int = 0
    before: int = 0
    failures: tuple[KeptFailure, ...] = ()
    unfit: str = ""
    seconds: float = 0.0

    @property
    def failed(self) -> int:
        """How many cases have a failure."""
        return len({failure.case for failure in self.failures})


@dataclass(frozen=True, kw_only=True, slots=True)
class Recording:
    """All that a recording did.

    Attributes:
        machine: the name under which the results are kept.
        environment: asv's name for the interpreter and what it has.
        gpu: the GPU that measured; None without one.
        anchor: the hash of the commit whose time is the unit of the ratios; "" without one.
        commits: those of the range, the oldest first, as far as it came.
        interrupted: the recording was stopped.
        unfit: why the machine could not go on; "" where it could.
        seconds: how long it took.
        notes: what else is worth knowing.
    """

    machine: str
    environment: str
    gpu: str | None
    anchor: str = ""
    commits: tuple[RecordedCommit, ...] = ()
    interrupted: bool = False
    unfit: str = ""
    seconds: float = 0.0
    notes: tuple[str, ...] = ()
    schema_version: int = SCHEMA_VERSION

    @property
    def exit_code(self) -> int:
        """What the process should tell its caller: whether something is recorded, not how fast it is.

        A failure is a result, and recorded; where nothing but failures was measured, nothing was.
        """
        if self.unfit or any(commit.unfit for commit in self.commits):
            return int(ExitCode.UNFIT)
        measured = sum(commit.cases for commit in self.commits)
        failed = sum(commit.failed for commit in self.commits)
        undecided = self.interrupted or (measured and failed == measured)
        return int(ExitCode.UNDECIDED if undecided else ExitCode.OK)

"""The commits between two others, in the order in which git would try them: half of those that are left, merges too."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from flopwatch.bisect.result import Commit
from flopwatch.errors import GitError, UsageError
from flopwatch.git import git


def read_commit(name: str, *, cwd: Path) -> Commit:
    """Return a commit's hash, date and subject."""
    text = git("show", "--no-patch", "--no-show-signature", "--format=%H%x00%as%x00%s", name, "--", cwd=cwd)
    full, date, subject = text.split("\0", 2)
    return Commit(hash=full, date=date, subject=subject)


def merge_bases(good: str, bad: str, *, cwd: Path) -> tuple[str, ...]:
    """Return where the histories of good and bad part; none where good is an ancestor of bad.

    Raises:
        UsageError: no commit is in bad's history and not in good's, or they have no common history.
    """
    if not git("rev-list", "--max-count=1", bad, f"^{good}", "--", cwd=cwd):
        raise UsageError(
            f"no commit leads from {good[:12]} to {bad[:12]}",
            why="they are the same" if good == bad else "BAD is part of GOOD's history",
            todo="name the older commit, which was still good, first: flopwatch bisect CASE GOOD BAD",
        )
    try:
        bases = git("merge-base", "--all", good, bad, cwd=cwd).split()
    except GitError as error:
        raise UsageError(
            f"{good[:12]} and {bad[:12]} have no common history",
            why=error.why or "no commit is an ancestor of both",
            todo="name two commits of one line of history; in a shallow clone, git fetch --unshallow first",
        ) from None
    return () if good in bases else tuple(bases)


def first_parent(commit: str, *, cwd: Path) -> str | None:
    """Return the first parent of a commit; None where it has none."""
    return next(iter(git("rev-list", "--max-count=1", "--parents", commit, "--", cwd=cwd).split()[1:]), None)


@dataclass(kw_only=True)
class Range:
    """The commits that may have made the change: those in bad's history that are in no good one's.

    Attributes:
        cwd: inside the repository.
        bad: the oldest commit that is known to be bad.
        good: all that are known to be good.
        skipped: those of which it cannot be said.
    """

    cwd: Path
    bad: str
    good: list[str]
    skipped: set[str] = field(default_factory=set)

    def left(self) -> list[str]:
        """Return the commits that may have made the change, the newest first."""
        return git("rev-list", "--topo-order", *self._arguments(), cwd=self.cwd).split()

    def middle(self) -> str | None:
        """Return the commit that divides what is left best; None where nothing more can be learnt."""
        listed = git("rev-list", "--bisect-all", *self._arguments(), cwd=self.cwd)
        for line in listed.splitlines():
            commit = line.split()[0]
            if commit != self.bad and commit not in self.skipped:
                return commit
        return None

    def _arguments(self) -> tuple[str, ...]:
        return (self.bad, *(f"^{commit}" for commit in self.good), "--")

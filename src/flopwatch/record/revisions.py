"""Which commits a range means."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from flopwatch.errors import GitError, UsageError
from flopwatch.git import git, resolve

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

NEW, ALL = "NEW", "ALL"


def commits_of(
    revisions: str, *, branches: Sequence[str], is_recorded: Callable[[str], bool], root: Path
) -> tuple[str, ...]:
    """Return the commits of a range, the oldest first: then an interrupt leaves no gap before what is recorded.

    Of merges the first parent is followed, as asv does. A name alone is that commit and not, as with asv, all that led
    to it.

    Args:
        revisions: see `flopwatch.record.RecordOptions`.
        branches: of asv.conf.json, for NEW and ALL.
        is_recorded: whether a commit has a complete result; NEW ends there.
        root: the repository.

    Raises:
        GitError: git does not know the range.
        UsageError: there is no commit in it.
    """
    if revisions in (NEW, ALL):
        found: dict[str, None] = {}
        for branch in branches:
            line = git("rev-list", "--first-parent", "--end-of-options", branch, "--", cwd=root).split()
            end = next((place for place, commit in enumerate(line) if revisions == NEW and is_recorded(commit)), None)
            found |= dict.fromkeys(reversed(line[:end]))
        return tuple(found)
    try:
        return (resolve(revisions, cwd=root),)
    except GitError:
        commits = _range(revisions, root)
    if not commits:
        raise UsageError(
            f"no commit in {revisions}",
            why="git rev-list finds none",
            todo="name a commit, or a range such as v1..main",
        )
    return commits


def _range(revisions: str, root: Path) -> tuple[str, ...]:
    try:
        words = shlex.split(revisions)
        found = git("rev-list", "--first-parent", "--reverse", *words, "--", cwd=root)
    except (GitError, ValueError) as error:
        raise GitError(
            f"no range {revisions!r} in {root}",
            why=getattr(error, "why", "") or str(error),
            todo="name a commit, a range such as v1..main or HEAD^!, or NEW",
        ) from None
    return tuple(found.split())

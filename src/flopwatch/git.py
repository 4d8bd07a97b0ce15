"""What flopwatch asks of git: names of commits, and worktrees of them."""

from __future__ import annotations

import contextlib
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from flopwatch.errors import GitError

if TYPE_CHECKING:
    from collections.abc import Iterator


def git(*arguments: str, cwd: Path) -> str:
    """Run git and return what it prints, without the last newline.

    Raises:
        GitError: git is missing, or says no.
    """
    if not cwd.is_dir():
        raise GitError(f"{cwd} is not a folder", todo="name the repository, or a folder inside it")
    try:
        done = subprocess.run(  # noqa: S603 - no shell; names are passed after --end-of-options
            ["git", *arguments],  # noqa: S607 - the user's own git
            cwd=cwd,
            capture_output=True,
            text=True,
            check=False,
        )
    except FileNotFoundError:
        raise GitError("git is not installed", todo="install git; flopwatch compares commits") from None
    if done.returncode:
        raise GitError(f"git {' '.join(arguments)} failed", why=done.stderr.strip())
    return done.stdout.removesuffix("\n")


def repository_root(path: Path) -> Path:
    """Return the top folder of the repository that holds `path`.

    Raises:
        GitError: there is none, or git does not want to tell.
    """
    try:
        return Path(git("rev-parse", "--show-toplevel", cwd=path))
    except GitError as error:
        if "not a git repository" not in error.why:
            raise
        raise GitError(
            f"{path.resolve()} is in no git repository",
            why="flopwatch compares commits",
            todo="go to the repository of your kernels, or name it with -C",
        ) from None


def resolve(name: str, *, cwd: Path) -> str:
    """Return the full hash of a commit.

    Raises:
        GitError: there is no such commit here.
    """
    try:
        return git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}", cwd=cwd)
    except GitError:
        shallow = git("rev-parse", "--is-shallow-repository", cwd=cwd) == "true"
        raise GitError(
            f"no commit {name!r} in {cwd}",
            why="the clone is shallow: older commits were not fetched" if shallow else "git does not know that name",
            todo="git fetch --unshallow" if shallow else "name a commit, branch or tag; git log lists them",
        ) from None


def is_dirty(*, cwd: Path) -> bool:
    """Tell whether tracked files differ from HEAD."""
    return bool(git("status", "--porcelain", "--untracked-files=no", cwd=cwd))


def default_base(main: str, head: str | None, *, cwd: Path) -> str:
    """Choose what a change is compared with.

    The merge base of `head` (None: the working tree) and the main branch, or of the main branch's remote where the
    local one is missing. Where that is the head commit itself: the commit itself for a working tree with changes,
    else the previous commit.

    Raises:
        GitError: there is no previous commit.
    """
    head_commit = resolve(head or "HEAD", cwd=cwd)
    base = _merge_base(main, head_commit, cwd=cwd)
    if base is not None and base != head_commit:
        return base
    if head is None and is_dirty(cwd=cwd):
        return head_commit
    try:
        return resolve(f"{head_commit}~1", cwd=cwd)
    except GitError as error:
        shallow = "shallow" in error.why
        raise GitError(
            f"nothing to compare {head_commit[:8]} with",
            why=error.why if shallow else "it is the first commit",
            todo=error.todo if shallow else "make a change, or compare it with itself: flopwatch gate HEAD HEAD",
        ) from None


def _merge_base(main: str, head: str, *, cwd: Path) -> str | None:
    for name in (main, f"origin/{main}"):
        with contextlib.suppress(GitError):
            return git("merge-base", resolve(name, cwd=cwd), head, cwd=cwd)
    return None


@contextlib.contextmanager
def worktree(commit: str, tree: Path, *, cwd: Path) -> Iterator[None]:
    """Check `commit` out into the new folder `tree`, removed at the end."""
    git("worktree", "add", "--detach", "--quiet", str(tree), commit, cwd=cwd)
    try:
        yield
    finally:
        git("worktree", "remove", "--force", str(tree), cwd=cwd)

"""The two sides of a comparison as folders whose names do not tell which side is which."""

from __future__ import annotations

import contextlib
import secrets
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from flopwatch import git

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flopwatch.config import Config


@contextlib.contextmanager
def checkout(commit: str | None, config: Config, *, root: Path) -> Iterator[Path]:
    """Put a commit, or the working tree as it is now (None), into a temporary folder with a random name.

    Of the working tree only the packages under test and the suites are copied, with what git ignores inside them, such
    as compiled extensions: what is edited while a gate runs does not enter it.
    """
    with tempfile.TemporaryDirectory(prefix="flopwatch-") as folder:
        tree = Path(folder) / secrets.token_hex(6)
        if commit is None:
            for path in _needed(config):
                _copy(root / path, tree / path)
            yield tree
        else:
            with git.worktree(commit, tree, cwd=root):
                yield tree


def _needed(config: Config) -> set[Path]:
    """Return what is copied of a working tree: the top-level package or module of each name, and the suites."""
    tops = {Path(config.source) / name.partition(".")[0] for name in config.packages}
    return {*tops, *(top.with_suffix(".py") for top in tops), Path(config.benchmarks)}


def _copy(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)
    elif source.is_file():
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, target)

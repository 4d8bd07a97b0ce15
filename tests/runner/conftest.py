from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parents[2]
# These scripts are no part of the distribution; `python -m pytest` has the checkout on its path, `pytest` has not.
sys.path.insert(0, str(ROOT))


def git(*arguments: str, cwd: Path) -> str:
    identity = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")
    done = subprocess.run(["git", *identity, *arguments], cwd=cwd, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def commit(tmp_path: Path) -> Callable[[dict[str, str | None]], str]:
    """Return a function that commits files (None deletes one) to `tmp_path / "repository"`."""
    repository = tmp_path / "repository"
    repository.mkdir()
    git("init", "--quiet", "--initial-branch=main", cwd=repository)

    def commit_files(files: dict[str, str | None]) -> str:
        for name, text in files.items():
            path = repository / name
            if text is None:
                path.unlink()
            else:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8")
        git("add", "--all", cwd=repository)
        git("commit", "--quiet", "--message", "change", cwd=repository)
        return git("rev-parse", "HEAD", cwd=repository)

    return commit_files

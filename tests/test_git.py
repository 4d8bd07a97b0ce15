from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

from flopwatch import git
from flopwatch.errors import GitError

if TYPE_CHECKING:
    from pathlib import Path


def run(repository: Path, *arguments: str) -> None:
    identity = ("-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false")
    subprocess.run(["git", *identity, *arguments], cwd=repository, check=True, capture_output=True)


def commit(repository: Path, text: str) -> str:
    (repository / "kernel.py").write_text(text, encoding="utf-8")
    run(repository, "add", "kernel.py")
    run(repository, "commit", "-m", text)
    return git.resolve("HEAD", cwd=repository)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    run(tmp_path, "init", "-b", "main")
    return tmp_path


def test_on_a_branch_the_base_is_where_it_left_main(repository: Path) -> None:
    fork = commit(repository, "one")
    run(repository, "checkout", "-b", "topic")
    commit(repository, "two")
    commit(repository, "three")
    assert git.default_base("main", None, cwd=repository) == fork


def test_on_main_the_base_is_the_previous_commit(repository: Path) -> None:
    first = commit(repository, "one")
    commit(repository, "two")
    assert git.default_base("main", None, cwd=repository) == first


def test_on_main_with_changes_the_base_is_head_itself(repository: Path) -> None:
    commit(repository, "one")
    second = commit(repository, "two")
    (repository / "kernel.py").write_text("three", encoding="utf-8")
    assert git.default_base("main", None, cwd=repository) == second


def test_without_a_main_branch_the_base_is_the_previous_commit(repository: Path) -> None:
    first = commit(repository, "one")
    commit(repository, "two")
    assert git.default_base("trunk", None, cwd=repository) == first


def test_the_first_commit_has_nothing_to_be_compared_with(repository: Path) -> None:
    commit(repository, "one")
    with pytest.raises(GitError, match="nothing to compare"):
        git.default_base("main", None, cwd=repository)


def test_a_shallow_clone_is_told_to_fetch_more(repository: Path, tmp_path: Path) -> None:
    commit(repository, "one")
    commit(repository, "two")
    clone = tmp_path / "clone"
    run(repository, "clone", "--depth=1", f"file://{repository}", str(clone))
    with pytest.raises(GitError, match="unshallow"):
        git.default_base("main", None, cwd=clone)


def test_a_name_cannot_be_an_option(repository: Path) -> None:
    commit(repository, "one")
    with pytest.raises(GitError, match="no commit '--all'"):
        git.resolve("--all", cwd=repository)


def test_a_worktree_holds_the_commit_and_is_gone_afterwards(repository: Path, tmp_path: Path) -> None:
    first = commit(repository, "one")
    commit(repository, "two")
    tree = tmp_path / "there"
    with git.worktree(first, tree, cwd=repository):
        assert (tree / "kernel.py").read_text(encoding="utf-8") == "one"
    assert not tree.exists()
    assert git.git("worktree", "list", cwd=repository).count("\n") == 0


def test_outside_a_repository_that_is_said(tmp_path: Path) -> None:
    with pytest.raises(GitError, match="in no git repository"):
        git.repository_root(tmp_path)

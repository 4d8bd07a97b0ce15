from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from flopwatch.errors import GitError, UsageError
from flopwatch.record.revisions import commits_of

if TYPE_CHECKING:
    from tests.conftest import ToyRepository


@pytest.fixture
def line(toy: ToyRepository) -> list[str]:
    """Four commits of main, the oldest first, of which the third merges a branch."""
    commits = [toy.git("rev-parse", "HEAD").strip(), toy.commit("second")]
    toy.git("checkout", "-q", "-b", "topic", commits[0])
    toy.commit("on the branch")
    toy.git("checkout", "-q", "main")
    toy.git("merge", "-q", "--no-ff", "-m", "merge", "topic")
    commits.append(toy.git("rev-parse", "HEAD").strip())
    return [*commits, toy.commit("fourth")]


def found(toy: ToyRepository, revisions: str, *, recorded: tuple[str, ...] = ()) -> list[str]:
    return list(commits_of(revisions, branches=["main"], is_recorded=lambda commit: commit in recorded, root=toy.root))


def test_a_range_is_followed_by_first_parents_the_oldest_first(toy: ToyRepository, line: list[str]) -> None:
    assert found(toy, f"{line[0]}..main") == line[1:]
    assert found(toy, "HEAD^!") == line[3:]
    assert found(toy, "main -n 2") == line[2:]
    assert found(toy, "ALL") == line


@pytest.mark.parametrize("name", ["main~1", "main^{commit}~1"])
def test_a_name_alone_is_one_commit(toy: ToyRepository, line: list[str], name: str) -> None:
    assert found(toy, name) == [line[2]]


def test_new_ends_at_the_first_commit_that_is_recorded(toy: ToyRepository, line: list[str]) -> None:
    assert found(toy, "NEW", recorded=(line[1], line[0])) == line[2:]
    assert found(toy, "NEW", recorded=(line[3],)) == []
    assert found(toy, "NEW") == line


def test_an_interrupted_new_leaves_nothing_out(toy: ToyRepository, line: list[str]) -> None:
    first = found(toy, "NEW", recorded=(line[0],))

    assert found(toy, "NEW", recorded=(line[0], first[0])) == first[1:]


@pytest.mark.usefixtures("line")
def test_what_is_no_range_is_an_error(toy: ToyRepository) -> None:
    with pytest.raises(UsageError, match=r"no commit in HEAD\.\.main"):
        found(toy, "HEAD..main")
    for text in ("nowhere", "a..b", "'", "main --no-such-option"):
        with pytest.raises(GitError, match="no range"):
            found(toy, text)

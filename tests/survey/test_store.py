from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

from flopwatch.measure.protocol import Hello
from flopwatch.model import Case, KernelFacts
from flopwatch.static.recorder import Autotune
from flopwatch.survey import store as module
from flopwatch.survey.store import Entry, Outcome, Store, entry_key, stamps_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

CASE = Case(suite="Scale", values=("1000000", "float16", "flopwatch"))
HELLO = Hello(
    gpu=None, gpu_uuid=None, compute_capability=None, versions={"triton": "3.7.1"}, declared=(), import_failures={}
)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A checkout of a package and its suites."""
    for name in ("src/kernels/__init__.py", "benchmarks/__init__.py", "benchmarks/scale.py", "other.py"):
        (tmp_path / "tree" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "tree" / name).write_text("FACTOR = 2\n", encoding="utf-8")
    return tmp_path / "tree"


def key(tree: Path, **changes: Any) -> str:  # noqa: ANN401 - those of entry_key
    asked: dict[str, Any] = {
        "source": tree / "src",
        "packages": ("kernels",),
        "suites": tree / "benchmarks",
        "device": "h200",
        "autotune": Autotune.ALL,
        "environment": {"TRITON_DEBUG": "0"},
    }
    return entry_key(**asked | changes)


@pytest.mark.parametrize(
    "edit",
    [
        lambda tree: (tree / "src/kernels/__init__.py").write_text("FACTOR = 3\n"),
        lambda tree: (tree / "src/kernels/more.json").write_text("{}"),
        lambda tree: (tree / "benchmarks/scale.py").write_text("FACTOR = 3\n"),
        lambda tree: (tree / "benchmarks/shapes.json").write_text("[]"),
    ],
)
def test_another_tree_or_suite_is_another_entry(edit: Callable[[Path], object], tree: Path) -> None:
    before = key(tree)
    edit(tree)
    assert key(tree) != before


def test_a_comment_and_another_folder_are_not(tree: Path, tmp_path: Path) -> None:
    before = key(tree)
    (tree / "benchmarks/scale.py").write_text("# twice\n\nFACTOR = 2\n")
    tree.rename(tmp_path / "moved")
    assert key(tmp_path / "moved") == before


@pytest.mark.parametrize(
    "changes",
    [
        {"device": "a100"},
        {"autotune": Autotune.FIRST},
        {"packages": ("kernels", "others")},
        {"environment": {"TRITON_DEBUG": "1"}},
        {"environment": {}},
        {"environment": {"TRITON_DEBUG": "0", "MY_BLOCK": "64"}},
    ],
)
def test_whatever_decides_about_the_facts_is_in_the_key(changes: dict[str, Any], tree: Path) -> None:
    assert key(tree, **changes) != key(tree)


def test_what_tells_sessions_apart_is_not(tree: Path) -> None:
    session = {"TERM": "xterm", "COLUMNS": "80", "GITHUB_RUN_ID": "7", "SSH_TTY": "/dev/pts/1", "PWD": "/"}
    assert key(tree, environment={"TRITON_DEBUG": "0", **session}) == key(tree)


def kept(folder: Path, *paths: Path) -> tuple[Store, Entry, KernelFacts]:
    """Keep an entry that holds while these files do."""
    fact = KernelFacts(kernel="k", device="h200", config="", variant="", chosen=True, registers=7)
    stamps = stamps_of(map(str, paths), trees=(), inside=())
    assert stamps is not None
    entry = Entry(key="k", stamps=stamps, hello=HELLO, outcomes=(Outcome(case=CASE, facts=(fact,)),))
    store = Store(folder / "kept")
    store.save(entry)
    return store, entry, fact


def test_an_entry_is_found_by_its_key_alone(tree: Path, tmp_path: Path) -> None:
    store, entry, fact = kept(tmp_path, tree / "other.py", tree)
    assert store.load("k") == entry
    assert entry.outcomes[0].facts == (fact,)
    assert store.load("another") is None


@pytest.mark.parametrize(
    "edit",
    [
        lambda tree: (tree / "other.py").write_text("FACTOR = 3\n"),
        lambda tree: (tree / "other.py").write_text("FACTOR = 22\n"),
        lambda tree: (tree / "other.py").unlink(),
        lambda tree: (tree / "installed.py").write_text(""),
    ],
)
def test_an_entry_ends_with_what_its_workers_had_loaded(
    edit: Callable[[Path], object], tree: Path, tmp_path: Path
) -> None:
    os.utime(tree / "other.py", (0, 0))
    os.utime(tree, (0, 0))
    store, _, _ = kept(tmp_path, tree / "other.py", tree)
    assert store.load("k") is not None
    edit(tree)
    assert store.load("k") is None


@pytest.mark.parametrize("text", ["", "{", "[]", '{"key": "k"}'])
def test_an_entry_that_cannot_be_read_is_none(text: str, tree: Path, tmp_path: Path) -> None:
    store, _, _ = kept(tmp_path, tree / "other.py")
    (path,) = store.folder.iterdir()
    path.write_text(text)
    assert store.load("k") is None


def test_another_entry_in_the_place_of_one_is_none(tree: Path, tmp_path: Path) -> None:
    store, _, _ = kept(tmp_path, tree / "other.py")
    (path,) = store.folder.iterdir()
    path.rename(store._path("another"))
    assert store.load("another") is None


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("")
    store, _, _ = kept(tmp_path)
    assert store.load("k") is None


def test_the_oldest_entries_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_ENTRIES", 2)
    store = Store(tmp_path)
    for number, name in enumerate("abc"):
        store.save(Entry(key=name, stamps={}, hello=HELLO, outcomes=()))
        if store._path(name).exists():
            os.utime(store._path(name), (number, number))
    store.save(Entry(key="d", stamps={}, hello=HELLO, outcomes=()))
    assert [name for name in "abcd" if store.load(name)] == ["c", "d"]


def test_a_file_of_the_checkout_that_the_key_does_not_know_is_not_kept(tree: Path) -> None:
    inside = (tree / "src/kernels", tree / "benchmarks")
    known = [str(tree / "src/kernels/__init__.py"), str(tree / "benchmarks/scale.py"), str(tree)]
    assert stamps_of(known, trees=[tree], inside=inside) == {}
    assert stamps_of([*known, str(tree / "other.py")], trees=[tree], inside=inside) is None


def test_a_package_of_one_file_is_known(tree: Path) -> None:
    assert stamps_of([str(tree / "other.py")], trees=[tree], inside=[tree / "other"]) == {}
    assert stamps_of([str(tree / "other.py")], trees=[tree], inside=[tree / "oth"]) is None

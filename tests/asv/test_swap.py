from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING

import pytest

from flopwatch.asv import swap
from flopwatch.asv.swap import replaced

if TYPE_CHECKING:
    from pathlib import Path

#: Writes half of a page, says so, and waits. Behind a shell's `&`, which has it ignored, SIGINT interrupts it, too.
HALF = """
import pathlib, signal, sys, time
from flopwatch.asv.swap import replaced
signal.signal(signal.SIGINT, signal.default_int_handler)
with replaced(pathlib.Path(sys.argv[1])) as new:
    new.mkdir()
    (new / "page").write_text("half of the n")
    print("half", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder that has the old page."""
    folder = tmp_path / "html"
    publish(folder, "old")
    return folder


def publish(folder: Path, text: str) -> None:
    with replaced(folder) as new:
        new.mkdir()
        (new / "page").write_text(text)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_the_new_pages_take_the_place_of_the_old_ones(folder: Path) -> None:
    (folder / "gone").write_text("not in the new pages")

    publish(folder, "new")

    assert (folder / "page").read_text() == "new"
    assert names(folder) == ["page"]
    assert names(folder.parent) == ["html"]


def test_the_first_pages_need_no_old_ones(tmp_path: Path) -> None:
    publish(tmp_path / "site" / "html", "new")

    assert (tmp_path / "site" / "html" / "page").read_text() == "new"


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, SystemExit])
def test_a_failed_publish_leaves_the_old_pages_and_nothing_else(folder: Path, error: type[BaseException]) -> None:
    def fail() -> None:
        with replaced(folder) as new:
            new.mkdir()
            (new / "page").write_text("half of the n")
            raise error

    with pytest.raises(error):
        fail()

    assert (folder / "page").read_text() == "old"
    assert names(folder.parent) == ["html"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_interrupted_publish_leaves_the_old_pages_and_nothing_else(folder: Path, number: int) -> None:
    with started(folder) as process:
        process.send_signal(number)
        process.wait(30)

    assert (folder / "page").read_text() == "old"
    assert names(folder.parent) == ["html"]


def test_what_a_killed_publish_leaves_is_removed_by_the_next_one(folder: Path) -> None:
    with started(folder) as process:
        process.kill()
        process.wait(30)
    assert len(names(folder.parent)) == 2

    publish(folder, "new")

    assert (folder / "page").read_text() == "new"
    assert names(folder.parent) == ["html"]


def test_a_publish_at_work_is_not_disturbed_by_another(folder: Path) -> None:
    with started(folder) as process:
        publish(folder, "new")

        assert len(names(folder.parent)) == 2
        process.kill()


def test_a_reader_always_finds_whole_pages(folder: Path) -> None:
    if not exchanges(folder.parent):
        pytest.skip("this file system cannot exchange folders in one step")
    seen: set[str] = set()
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            seen.add("a folder" if folder.is_dir() else "none")
            # Somebody who entered the old folder may be in it when it is removed.
            with contextlib.suppress(FileNotFoundError):
                seen.add((folder / "page").read_text())

    reader = threading.Thread(target=read)
    reader.start()
    for _ in range(50):
        publish(folder, "new" * 1000)
        publish(folder, "old")
        time.sleep(0.001)
    done.set()
    reader.join()

    assert seen == {"a folder", "old", "new" * 1000}


def test_where_folders_cannot_be_exchanged_they_are_renamed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(swap, "_exchange", lambda *_: False)

    publish(folder, "new")

    assert (folder / "page").read_text() == "new"
    assert names(folder.parent) == ["html"]


def test_a_rename_that_fails_halfway_is_undone(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(swap, "_exchange", lambda *_: False)

    with pytest.raises(FileNotFoundError), replaced(folder):
        pass  # nothing was built

    assert (folder / "page").read_text() == "old"


def test_a_link_to_the_pages_stays_a_link(folder: Path) -> None:
    link = folder.parent / "link"
    link.symlink_to(folder)

    publish(link, "new")

    assert link.is_symlink()
    assert (folder / "page").read_text() == "new"


def exchanges(folder: Path) -> bool:
    one, other = folder / "one", folder / "other"
    one.mkdir()
    other.mkdir()
    try:
        return swap._exchange(one, other)
    finally:
        one.rmdir()
        other.rmdir()


def started(folder: Path) -> subprocess.Popen[str]:
    """Start a publish that stops halfway."""
    process = subprocess.Popen(
        [sys.executable, "-c", HALF, str(folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=dict(os.environ),
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "half\n"
    return process

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import pytest

from flopwatch.record.lock import NAME, locked

if TYPE_CHECKING:
    from pathlib import Path


def test_one_at_a_time_holds_a_folder(tmp_path: Path) -> None:
    inside: list[int] = []
    most: list[int] = []

    def enter(number: int) -> None:
        for _ in range(50):
            with locked(tmp_path):
                inside.append(number)
                time.sleep(1e-3)  # enough for another thread to come in
                most.append(len(inside))
                inside.remove(number)

    threads = [threading.Thread(target=enter, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)

    assert (len(most), max(most)) == (200, 1)


def test_nothing_is_left_in_the_folder(tmp_path: Path) -> None:
    with locked(tmp_path / "results"):
        held = [path.name for path in (tmp_path / "results").iterdir()]

    assert (held, list((tmp_path / "results").iterdir())) == ([NAME], [])


def test_a_failure_lets_go(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="planted"), locked(tmp_path):
        raise OSError("planted")

    with locked(tmp_path):
        pass
    assert list(tmp_path.iterdir()) == []


def test_what_a_crash_has_left_locks_nobody_out(tmp_path: Path) -> None:
    (tmp_path / NAME).touch()

    with locked(tmp_path):
        pass
    assert list(tmp_path.iterdir()) == []

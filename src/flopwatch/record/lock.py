"""One recorder at a time: what several of them read, change and write again."""

from __future__ import annotations

import contextlib
import fcntl
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NAME = ".flopwatch-lock"


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Wait until nobody else holds the folder, and hold it; milliseconds at a time, for that long others wait.

    A file of its own is locked: those that are guarded are replaced, with whatever lock they carry, and NFS locks no
    folders. It is removed before it is let go, so that git never shows it; one that a crash leaves behind is unlocked,
    and the next holder removes it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / NAME
    held = False
    while not held:
        with path.open("ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            held = _is_at(path, file.fileno())
            if held:
                try:
                    yield
                finally:
                    path.unlink(missing_ok=True)


def _is_at(path: Path, descriptor: int) -> bool:
    """Tell whether the file is still the one that others will find: its last holder has removed it."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False

"""Of processes that come to the same kernel at the same time, one compiles it, and the others wait for it.

The two sides of a gate launch the same kernels but for those that were changed, and go through their cases together.
Triton's cache serves what was compiled before, not what is being compiled: each side compiled everything.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
import time

from triton.runtime.cache import FileCacheManager

#: After so long a kernel is compiled here as well: whoever began may hang, or have been stopped. Of the bundled kernels
#: none takes more than 4.3 s (triton 3.7.1, sm_90, four workers on 2 cores, 2026-11-24).
MOST_WAIT_S = 60.0
_POLL_S = 0.01
_thread = threading.local()


class CompileOnce(FileCacheManager):  # type: ignore[misc] # triton has no types
    """Triton's cache, which locks the folder of a kernel that it does not have until this thread has put it there.

    A thread holds one lock at most, and none while it waits for another: it compiles one kernel at a time, and what it
    began before and did not put there has failed. The locks of processes that end are released by their kernel. Where a
    file system has none, everybody compiles.
    """

    def get_group(self, filename: str) -> dict[str, str] | None:
        """Return the files of a kernel by their names; None where it has to be compiled here."""
        found: dict[str, str] | None = super().get_group(filename)
        if found is not None:
            return found
        self._hold()
        found = super().get_group(filename)
        if found is not None:
            let_go()
        return found

    def put_group(self, filename: str, group: dict[str, str]) -> str:
        """Note which files a compiled kernel has, and let others take it."""
        path: str = super().put_group(filename, group)
        let_go()
        return path

    def _hold(self) -> None:
        let_go()
        until = time.monotonic() + MOST_WAIT_S
        with contextlib.suppress(OSError):
            _thread.lock = os.open(self.lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            while not _locks(_thread.lock) and time.monotonic() < until:
                time.sleep(_POLL_S)


def _locks(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def let_go() -> None:
    """Let others compile what this thread began to, whether or not it came to an end."""
    file, _thread.lock = held(), -1
    if file >= 0:
        with contextlib.suppress(OSError):
            os.close(file)


def held() -> int:
    """Return the descriptor of the lock that this thread holds; -1 where it holds none."""
    return getattr(_thread, "lock", -1)

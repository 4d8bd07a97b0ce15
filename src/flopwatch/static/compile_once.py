"""Of processes that come to the same kernel at the same time, one compiles it, and the others wait for it.

The two sides of a gate launch the same kernels but for those that were changed, and go through their cases together.
Triton's cache serves what was compiled before, not what is being compiled: each side compiled everything.
"""

from __future__ import annotations

import contextlib
import fcntl
import os

from triton.runtime.cache import FileCacheManager


class CompileOnce(FileCacheManager):  # type: ignore[misc] # triton has no types
    """Triton's cache, which locks the folder of a kernel that it does not have until this process has put it there.

    A process holds one lock at most, and none while it waits for another: it never compiles two kernels at once, and
    what it began before and did not put there has failed. The kernel of the operating system opens the locks of
    processes that end. Where a file system has none, everybody compiles.
    """

    _held = -1

    def get_group(self, filename: str) -> dict[str, str] | None:
        """Return the files of a kernel by their names; None where it is this process that has to compile it."""
        found: dict[str, str] | None = super().get_group(filename)
        if found is not None:
            return found
        self._hold()
        found = super().get_group(filename)
        if found is not None:
            self.let_go()
        return found

    def put_group(self, filename: str, group: dict[str, str]) -> str:
        """Note which files a compiled kernel has, and let others take it."""
        path: str = super().put_group(filename, group)
        self.let_go()
        return path

    def _hold(self) -> None:
        self.let_go()
        with contextlib.suppress(OSError):
            CompileOnce._held = os.open(self.lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            fcntl.flock(CompileOnce._held, fcntl.LOCK_EX)

    @staticmethod
    def let_go() -> None:
        """Let others compile what this process began to."""
        if CompileOnce._held >= 0:
            os.close(CompileOnce._held)
        CompileOnce._held = -1

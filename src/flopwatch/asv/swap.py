"""A folder of pages that is replaced whole: whoever reads it sees the old one or the new one, never half of either."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import shutil
import signal
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

#: Of Linux, <fcntl.h> and <linux/fs.h>.
_AT_FDCWD = -100
_RENAME_EXCHANGE = 2
_UNSUPPORTED = (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP)


@contextlib.contextmanager
def replaced(folder: Path) -> Iterator[Path]:
    """Give the path of a new folder, which does not exist yet; it takes the place of `folder` if nothing is raised.

    It is made beside `folder`, for only within one file system can folders change places. A publish that was killed
    leaves its own there; the next one removes it.

    Raises:
        OSError: the folders cannot change places.
    """
    folder = folder.resolve()
    folder.parent.mkdir(parents=True, exist_ok=True)
    prefix = f".{folder.name}.new-"
    _remove_abandoned(folder.parent, prefix)
    space = Path(tempfile.mkdtemp(prefix=prefix, dir=folder.parent))
    lock = os.open(space, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with _termination_raises():
            yield space / folder.name
            _put(space / folder.name, folder, space)
    finally:
        os.close(lock)
        shutil.rmtree(space, ignore_errors=True)


def _put(new: Path, folder: Path, space: Path) -> None:
    """Put `new` in the place of `folder`; the old one stays in `space`."""
    if not folder.exists():
        new.rename(folder)
    elif not _exchange(new, folder):
        # Two renames, between which there is no folder for some microseconds: on file systems without exchange.
        old = space / "old"
        folder.rename(old)
        try:
            new.rename(folder)
        except BaseException:
            old.rename(folder)
            raise


def _exchange(one: Path, other: Path) -> bool:
    """Let two folders change places in one step; False where the system cannot."""
    try:
        rename = ctypes.CDLL(None, use_errno=True).renameat2
    except AttributeError:  # not Linux, or a C library older than 2018
        return False
    if rename(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE) == 0:
        return True
    number = ctypes.get_errno()
    if number in _UNSUPPORTED:
        return False
    raise OSError(number, os.strerror(number), str(one), None, str(other))


def _remove_abandoned(parent: Path, prefix: str) -> None:
    """Remove the folders of publishes that were killed: those that nobody has locked."""
    for space in parent.glob(f"{prefix}*"):
        with contextlib.suppress(OSError):  # BlockingIOError: another publish is at work in it
            lock = os.open(space, os.O_RDONLY | os.O_DIRECTORY)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(space, ignore_errors=True)
            finally:
                os.close(lock)


@contextlib.contextmanager
def _termination_raises() -> Iterator[None]:
    """Let SIGTERM, which CI sends to a job that is cancelled, end the block as Ctrl+C does."""

    def stop(number: int, _frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    try:
        before = signal.signal(signal.SIGTERM, stop)
    except ValueError:  # not the main thread, which is nobody's to interrupt
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)

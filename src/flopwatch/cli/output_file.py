"""A file that a verb writes beside what it prints: complete, or as it was before.

The text goes into a file beside it, which then takes its place. What is no regular file, such as /dev/stderr or a named
pipe, cannot be replaced and is written as it is.
"""

from __future__ import annotations

import contextlib
import errno
import os
import tempfile
from typing import TYPE_CHECKING

from flopwatch.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


def claim(path: Path) -> None:
    """Find out whether a file can be written: now, not after minutes of measuring.

    Raises:
        UsageError: it cannot.
    """
    with _said_of(path, "name a file in a folder that exists and can be written"):
        if path.exists() and not path.is_fifo():  # whoever reads a pipe would take this for its end
            path.open("a").close()
        if _replaceable(path):
            with tempfile.TemporaryFile(dir=path.resolve().parent):
                pass


def print_and_write(print_report: Callable[[], None], path: Path | None, text: Callable[[], str]) -> None:
    """Print a report for people, and write a text to the file, if there is one.

    Raises:
        UsageError: one of them cannot be written; a file is then as it was before.
    """
    try:
        with _said_of("the report", "make room, and run it again"):
            print_report()
    finally:  # a report that nobody reads to its end does not cost the file
        if path is not None:
            with _said_of(path, "what was found out is printed above; make room, and run it again"):
                if _replaceable(path):
                    _replace(path.resolve(), text())
                else:
                    path.write_text(text(), encoding="utf-8")


def _replaceable(path: Path) -> bool:
    return path.is_file() or not path.exists()


def _replace(path: Path, text: str) -> None:
    """Put a complete file in the place of one that may be there; its permissions stay."""
    beside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        beside.write_text(text, encoding="utf-8")
        if path.exists():
            beside.chmod(path.stat().st_mode)
        try:
            beside.replace(path)
        except OSError as error:
            if error.errno != errno.EBUSY:
                raise
            path.write_text(text, encoding="utf-8")  # a container's mount of this one file: it cannot be replaced
            beside.unlink()
    except BaseException:
        with contextlib.suppress(OSError):
            beside.unlink()
        raise


@contextlib.contextmanager
def _said_of(what: Path | str, todo: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UsageError(f"{what} cannot be written", why=str(error.strerror or error), todo=todo) from error

"""``--json FILE``: everything that a verb found out, as JSON; ``-`` is stdout, in place of what people read.

The file is complete or is as it was before: the text goes into a file beside it, which then takes its place. What is no
regular file, such as /dev/stderr or a named pipe, cannot be replaced and is written as it is.
"""

from __future__ import annotations

import contextlib
import errno
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from flopwatch.errors import UsageError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator

_STDOUT = Path("-")


def add_json(verb: argparse.ArgumentParser) -> None:
    """Add the option to a verb."""
    verb.add_argument("--json", type=Path, metavar="FILE", help="write everything found out as JSON; - is stdout")


def claim_json(path: Path | None) -> None:
    """Find out whether the file can be written: now, not after minutes of measuring.

    Raises:
        UsageError: it cannot.
    """
    if path in (None, _STDOUT):
        return
    with _said_of(path, "name a file in a folder that exists and can be written"):
        if path.exists() and not path.is_fifo():  # whoever reads a pipe would take this for its end
            path.open("a").close()
        if _replaceable(path):
            with tempfile.TemporaryFile(dir=path.resolve().parent):
                pass


def show(record: object, path: Path | None, print_record: Callable[[], None]) -> None:
    """Print a record for people, and write it to the file; or, where that is stdout, write it there instead.

    Raises:
        UsageError: one of them cannot be written; a file is then as it was before.
    """
    from flopwatch.model import to_json  # noqa: PLC0415 - so that --help answers at once

    try:
        with _said_of("the report", "make room, and run it again"):
            if path == _STDOUT:
                print(to_json(record, indent=2).decode())  # noqa: T201 - what was asked for
            else:
                print_record()
    finally:  # a report that nobody reads to its end does not cost the file
        if path not in (None, _STDOUT):
            with _said_of(path, "what was found out is printed above; make room, and run it again"):
                text = to_json(record, indent=2).decode() + "\n"
                if _replaceable(path):
                    _replace(path.resolve(), text)
                else:
                    path.write_text(text, encoding="utf-8")


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

"""``--json FILE``: everything that a verb found out, as JSON; ``-`` is stdout, in place of what people read."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

_STDOUT = Path("-")


def add_json(verb: argparse.ArgumentParser) -> None:
    """Add the option to a verb."""
    verb.add_argument("--json", type=Path, metavar="FILE", help="write everything found out as JSON; - is stdout")


def claim_json(path: Path | None) -> None:
    """Find out whether the file can be written: now, not after minutes of measuring.

    Raises:
        OSError: it cannot.
    """
    if path not in (None, _STDOUT):
        path.open("a").close()


def show(record: object, path: Path | None, print_record: Callable[[], None]) -> None:
    """Print a record for people, and write it to the file; or, where that is stdout, write it there instead."""
    from flopwatch.model import to_json  # noqa: PLC0415 - so that --help answers at once

    if path != _STDOUT:
        print_record()
    if path is None:
        return
    data = to_json(record, indent=2).decode()
    if path == _STDOUT:
        print(data)  # noqa: T201 - what was asked for
    else:
        path.write_text(data + "\n", encoding="utf-8")

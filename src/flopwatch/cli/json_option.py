"""``--json FILE``: everything that a verb found out, as JSON; ``-`` is stdout, in place of what people read."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from flopwatch.cli.output_file import claim, print_and_write

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

_STDOUT = Path("-")


def add_json(verb: argparse.ArgumentParser) -> None:
    """Add the option to a verb."""
    verb.add_argument("--json", type=Path, metavar="FILE", help="write everything found out as JSON; - is stdout")


def claim_json(path: Path | None) -> None:
    """Find out whether the file can be written, where there is one; see `flopwatch.cli.output_file`.

    Raises:
        UsageError: it cannot.
    """
    if path not in (None, _STDOUT):
        claim(path)


def show(record: object, path: Path | None, print_record: Callable[[], None]) -> None:
    """Print a record for people, and write it to the file; or, where that is stdout, write it there instead.

    Raises:
        UsageError: one of them cannot be written; a file is then as it was before.
    """
    from flopwatch.model import to_json  # noqa: PLC0415 - so that --help answers at once

    def text() -> str:
        return to_json(record, indent=2).decode()

    if path == _STDOUT:
        print_and_write(lambda: print(text()), None, text)  # noqa: T201 - what was asked for
    else:
        print_and_write(print_record, path, lambda: text() + "\n")

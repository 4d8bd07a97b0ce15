"""``-k TEXT``: only some cases."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse


def add_select(verb: argparse.ArgumentParser) -> None:
    """Add the option to a verb; `flopwatch.selection` says what it means."""
    verb.add_argument(
        "-k",
        dest="select",
        default="",
        metavar="TEXT",
        help="only cases whose name has TEXT in it; 'A or B' takes those that have either",
    )

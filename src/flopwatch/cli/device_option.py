"""``--device NAME``: the GPU to compile for, of those that flopwatch knows."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse

#: Those of `flopwatch.static.devices`, which takes 0.11 s of a core to import, half as long as all of --help
#: (2026-11-22; ``python -X importtime -c "import flopwatch.static.devices"``). A test compares both.
KEYS = ("a100", "h100", "h200", "b200", "l40s", "rtx5090", "mi300x", "mi350x")


def add_device(verb: argparse.ArgumentParser, purpose: str) -> None:
    """Add the option to a verb.

    Args:
        verb: its parser.
        purpose: what the GPU is for, as the help begins.
    """
    verb.add_argument("--device", metavar="NAME", help=f"{purpose}: {', '.join(KEYS[:-1])} or {KEYS[-1]}")

"""The range of Triton versions whose inner parts flopwatch knows."""

from __future__ import annotations

import importlib.metadata
import re

from flopwatch.errors import UnsupportedTritonError

OLDEST = (3, 6)
NEWEST = (3, 9)


def check_triton_version() -> tuple[int, int]:
    """Return the installed Triton's (major, minor).

    Raises:
        UnsupportedTritonError: Triton is not installed, or outside the supported range.
    """
    try:
        installed = importlib.metadata.version("triton")
    except importlib.metadata.PackageNotFoundError:
        raise UnsupportedTritonError("Triton is not installed", todo=_todo()) from None
    return supported(installed)


def supported(version: str) -> tuple[int, int]:
    """Return the (major, minor) of a Triton version that flopwatch supports.

    Raises:
        UnsupportedTritonError: it does not.

    >>> supported("3.7.1+gitabc")
    (3, 7)
    """
    match = re.match(r"(\d+)\.(\d+)", version)
    number = (int(match[1]), int(match[2])) if match else (0, 0)
    if not OLDEST <= number <= NEWEST:
        raise UnsupportedTritonError(
            f"Triton {version} is installed",
            why="pretending a GPU reaches into parts of Triton that change between minor versions",
            todo=_todo(),
        )
    return number


def _todo() -> str:
    return f"install triton >= {OLDEST[0]}.{OLDEST[1]}, < {NEWEST[0]}.{NEWEST[1] + 1}"

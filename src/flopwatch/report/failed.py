"""What fails a run without having been timed, in words that the gate and `flopwatch static` share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flopwatch.report.wording import count
from flopwatch.static.comparison import LOADS, Severity
from flopwatch.static.traffic import OUT_OF_BOUNDS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from flopwatch.static.comparison import FactChange


def failed(changes: Iterable[FactChange]) -> list[str]:
    """Say what of the changes fails, by how many configurations of kernels.

    >>> failed([])
    []
    """
    failing = [change for change in changes if change.severity is Severity.FAIL]
    lost = _places(change for change in failing if change.fact == LOADS)
    astray = _places(change for change in failing if change.fact == OUT_OF_BOUNDS)
    worse = [change for change in failing if change.fact not in (LOADS, OUT_OF_BOUNDS)]
    parts = []
    if lost:
        parts.append(f"{_configurations(lost)} no longer {'compiles or fits' if lost == 1 else 'compile or fit'}")
    if astray:
        parts.append(f"{_configurations(astray)} {'leaves its' if astray == 1 else 'leave their'} tensors")
    if worse:
        number = _places(worse)
        facts = ", ".join(dict.fromkeys(change.fact for change in worse))
        parts.append(f"{_configurations(number)} {'has' if number == 1 else 'have'} worse {facts}")
    return parts


def _places(changes: Iterable[FactChange]) -> int:
    return len({(change.kernel, change.device, change.variant, change.config) for change in changes})


def _configurations(number: int) -> str:
    return count(number, "kernel configuration")

"""What became of the conclusions of studies that a gate watches, in lines of plain text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flopwatch.gate.conclusions import Outcome
from flopwatch.report.wording import count, several
from flopwatch.units import format_change, format_seconds

if TYPE_CHECKING:
    from flopwatch.gate import GateResult
    from flopwatch.gate.conclusions import Look, WatchedConclusion

#: What needs a look comes first.
_ORDER = (Outcome.LOST, Outcome.UNSURE, Outcome.NEITHER, Outcome.HOLDS, Outcome.UNCHANGED)


def told(found: WatchedConclusion) -> str:
    """Say what became of a conclusion, and where its line is slowest.

    >>> from flopwatch.gate.conclusions import WatchedConclusion
    >>> told(WatchedConclusion(study="Tiles", says="128 is the best", reason="its study cannot be imported"))
    'unsure: 128 is the best (Tiles): its study cannot be imported'
    >>> told(WatchedConclusion(study="Tiles", says="128 is the best", identical=True, seconds=2.5))
    'unchanged: 128 is the best (Tiles): took 2.500 s'
    """
    last = {look.side: look for look in found.looks}  # where a side has fresh rounds, what these say
    took = f"took {format_seconds(found.seconds)}" if found.seconds else ""
    parts = [*map(_at_worst, last.values()), *filter(None, [found.reason, took])]
    return ": ".join([f"{found.outcome.value}: {found.says} ({found.study})", *(["; ".join(parts)] if parts else [])])


def _at_worst(look: Look) -> str:
    worst = look.worst
    where = f" at {worst.at}" if worst.at else ""
    rounds = count(len(worst.log_ratios), "round")
    return f"on {look.side} at worst {format_change(worst.median)} than {worst.other}{where}, by the median of {rounds}"


def in_order(result: GateResult) -> list[WatchedConclusion]:
    """Return the conclusions, those that no longer hold first."""
    return sorted(result.conclusions, key=lambda found: _ORDER.index(found.outcome))


def lost(result: GateResult) -> str:
    """Say which conclusions no longer hold, by their short names; "" where there are none."""
    names = [found.id for found in result.lost]
    if not names:
        return ""
    return f"{count(len(names), 'conclusion')} no longer {'holds' if len(names) == 1 else 'hold'} ({several(names)})"


def needs_a_look(found: WatchedConclusion) -> bool:
    """Tell whether nobody can say that a conclusion is as true as it was, which fails nothing unless it is lost."""
    return found.outcome in (Outcome.UNSURE, Outcome.NEITHER)

"""Cases that base's suites declare and head's do not: both sides run head's, so that nobody would miss them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from flopwatch.errors import FlopwatchError
from flopwatch.gate.sides import Arm, Sides
from flopwatch.measure.client import Mode, Worker
from flopwatch.selection import is_selected

if TYPE_CHECKING:
    from pathlib import Path

    from flopwatch.measure.protocol import Hello

#: Names in one note.
MAX_LISTED = 5


def suites_of_base(sides: Sides) -> Worker | None:
    """Return a worker that imports base's own suites; None where it has none, or head has the same."""
    base, head = (sides.trees[arm] / sides.config.benchmarks for arm in Arm)
    texts = _texts(base)
    if not texts or texts == _texts(head):
        return None
    return Worker(Mode.STATIC, replace(sides.code(Arm.BASE), benchmarks=base))


def dropped_cases(before: Worker | None, now: Hello, select: str) -> tuple[str, ...]:
    """Say which selected cases are gone.

    Args:
        before: as of `suites_of_base`.
        now: what head's suites declare.
        select: only cases whose name has this in it.
    """
    if before is None:
        return ()
    try:
        hello = before.hello
    except FlopwatchError as error:
        return (f"whether head's suites lack a case of base's is not known: {error.what} ({error.why})",)
    notes = [
        f"whether head's suites lack a case of base's {module} is not known: it does not import there ({cause})"
        for module, cause in hello.import_failures.items()
    ]
    known = {entry.case for entry in now.declared}
    gone = [
        entry.case.id
        for entry in hello.declared
        if entry.own and entry.case not in known and is_selected(select, entry.case.id, entry.small.id)
    ]
    if gone:
        rest = len(gone) - MAX_LISTED
        names = ", ".join(gone[:MAX_LISTED]) + (f" and {rest} more" if rest > 0 else "")
        notes.append(f"no longer declared by the suites, so not compared: {names}")
    return tuple(notes)


def _texts(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*.py"))}

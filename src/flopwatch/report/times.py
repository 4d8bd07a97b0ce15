"""How long calls take, in a terminal: a row for each case that needs a look, and in sentences what the others say."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table

from flopwatch.model import Mark
from flopwatch.report.cases import MAX_LINES, chosen, is_waived, summary, word
from flopwatch.report.foreign import safe
from flopwatch.report.wording import effect_of
from flopwatch.units import format_seconds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from flopwatch.gate import CaseVerdict, GateResult

__all__ = ["MAX_LINES", "print_times", "summary"]

_STYLES = {Mark.SLOWER: "red", Mark.BROKEN: "red", Mark.FASTER: "green", Mark.UNSURE: "yellow"}


def print_times(result: GateResult, console: Console, *, everything: bool) -> None:
    """Print a table of the cases that are not the same, worst first; of all cases if `everything`."""
    rows, hidden = chosen(result, everything=everything)
    lines = list(summary(result))
    if rows or lines:
        console.print()
    if rows:
        console.print(_table(result, rows))
    if hidden:
        console.print(f"and {hidden}; --all shows every case.", soft_wrap=True)
    for line in lines:
        console.print(safe(line), soft_wrap=True)


def _table(result: GateResult, rows: Sequence[CaseVerdict]) -> Table:
    table = Table(title="Time per call, base and head in turns", title_justify="left")
    table.add_column("case", overflow="fold")
    for column in ("base", "head"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("change (99 % interval)", justify="right")
    table.add_column("verdict", justify="right")
    for verdict in rows:
        style = "yellow" if is_waived(result, verdict) else _STYLES.get(verdict.mark, "") if verdict.mark else "dim"
        base, head = (format_seconds(side.seconds) if side.seconds else "" for side in (verdict.base, verdict.head))
        table.add_row(safe(verdict.case.id), base, head, effect_of(verdict.time), word(result, verdict), style=style)
    return table

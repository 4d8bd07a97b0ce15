"""An explanation in a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table

from flopwatch.report.explain_parts import about, headline, parts
from flopwatch.report.foreign import safe

if TYPE_CHECKING:
    from rich.console import Console

    from flopwatch.explain.result import Explanation
    from flopwatch.report.explain_part import Part

_STYLES = {"-": "red", "+": "green"}


def print_explanation(explanation: Explanation, console: Console) -> None:
    """Print the likeliest cause in the first line, and below it what it is drawn from."""
    console.print(safe(headline(explanation), "bold"), soft_wrap=True)
    console.print(safe(about(explanation), "dim"), soft_wrap=True)
    for part in parts(explanation):
        console.print()
        console.print(safe(part.title, "bold"), soft_wrap=True)
        if part.rows:
            console.print(_table(part))
        for line in part.lines:
            console.print(safe(line, _style(part, line), indent=2), soft_wrap=True)


def _style(part: Part, line: str) -> str:
    if part.is_code:
        return _STYLES.get(line[:1], "")
    return "yellow" if line.startswith("warn: ") else "red" if line.startswith("fail: ") else ""


def _table(part: Part) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2))
    for number, name in enumerate(part.header):
        # A kernel of torch's has a name that is longer than a line; the numbers behind it are what is read.
        table.add_column(name, justify="right" if number else "left", no_wrap=number > 0, overflow="fold")
    for row in part.rows:
        table.add_row(*map(safe, row))
    return table

"""The waivers of a repository in a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from flopwatch.waivers import printable

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import date

    from rich.console import Console

    from flopwatch.waivers import Waiver


def print_waivers(waivers: Sequence[Waiver], console: Console, *, today: date) -> None:
    """Print every waiver and whether it still holds, those that end first at the top."""
    if not waivers:
        console.print("No waivers: every case is held to its margin.")
        return
    table = Table(title="Waivers", title_justify="left")
    for column in ("case", "up to", "until", "state", "owner", "reason"):
        table.add_column(column, justify="right" if column == "up to" else "left", overflow="fold")
    for waiver in sorted(waivers, key=lambda waiver: waiver.until):
        table.add_row(
            Text(waiver.case),
            f"{waiver.limit_percent:g} %",
            waiver.until.isoformat(),
            standing(waiver, today=today),
            Text(printable(waiver.owner)),
            Text(printable(waiver.reason)),
            style="red" if today > waiver.until else "",
        )
    console.print(table)


def standing(waiver: Waiver, *, today: date) -> str:
    """Say how long a waiver still holds.

    >>> import datetime
    >>> from flopwatch.waivers import Waiver
    >>> until = datetime.date(2026, 12, 31)
    >>> waiver = Waiver(case="Add*", reason="int64", owner="Ada", until=until, limit_percent=5)
    >>> standing(waiver, today=datetime.date(2026, 12, 1)), standing(waiver, today=datetime.date(2027, 1, 1))
    ('30 days left', 'expired 1 day ago')
    """
    days = (waiver.until - today).days
    if days == 0:
        return "last day"
    count = f"{abs(days)} day" + ("" if abs(days) == 1 else "s")
    return f"{count} left" if days > 0 else f"expired {count} ago"

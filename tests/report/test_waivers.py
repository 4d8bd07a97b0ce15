from __future__ import annotations

import io
from datetime import date
from pathlib import Path

from rich.console import Console

from flopwatch.report.waivers import print_waivers
from flopwatch.waivers import Waiver

GOLDEN = Path(__file__).parent / "golden"
TODAY = date(2026, 12, 1)
WAIVERS = (
    Waiver(
        case="Matmul[*,float16,*]",
        reason="int64 offsets,\nneeded past 2^31 elements",
        owner="Ada <ada@example.org>",
        until=date(2026, 12, 31),
        limit_percent=5.0,
    ),
    Waiver(
        case="Attention*",
        reason="[red]:warning:\x1b[2J",
        owner="[bold]Bo",
        until=date(2026, 11, 30),
        limit_percent=0.75,
    ),
    Waiver(case="Add*", reason="today", owner="Cy", until=TODAY, limit_percent=12.0),
)


def rendered(waivers: tuple[Waiver, ...]) -> str:
    output = io.StringIO()
    print_waivers(waivers, Console(file=output, width=120, color_system=None, force_terminal=False), today=TODAY)
    return "\n".join(line.rstrip() for line in output.getvalue().splitlines()) + "\n"


def test_the_output_is_the_golden_file() -> None:
    # To accept a change: write rendered(WAIVERS) into the file, and read the diff as a user would.
    assert rendered(WAIVERS) == (GOLDEN / "waivers.txt").read_text(encoding="utf-8")


def test_foreign_text_is_shown_not_obeyed() -> None:
    printed = rendered(WAIVERS)

    assert "[red]:warning: [2J" in printed
    assert "[bold]Bo" in printed
    assert "\x1b" not in printed

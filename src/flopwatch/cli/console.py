"""Where a verb's report goes."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

#: Columns of a report that goes to no terminal, such as a log: a row of the table of times needs about 130.
LOG_COLUMNS = 140


def report_console() -> Console:
    """Return the console of stdout; a log is given room for its tables, if COLUMNS says nothing else."""
    from rich.console import Console  # noqa: PLC0415 - so that --help answers at once

    console = Console()
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console = Console(width=LOG_COLUMNS)
    return console

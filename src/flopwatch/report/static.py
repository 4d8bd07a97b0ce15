"""A survey in a terminal: the verdict, what differs or what there is, and what could not be compiled."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from flopwatch.errors import ExitCode
from flopwatch.report.foreign import safe
from flopwatch.report.static_lines import (
    COLUMNS,
    FIRST_NUMBER,
    LAUNCH_COLUMNS,
    change_lines,
    compile_line,
    drift_lines,
    hidden,
    launch_rows,
    missing_lines,
    provenance,
    rows,
    sentence,
)
from flopwatch.report.wording import count
from flopwatch.static.comparison import Severity

if TYPE_CHECKING:
    from rich.console import Console

    from flopwatch.report.static_lines import Row
    from flopwatch.survey import Survey

#: Notes beyond this many are counted, not listed; failures, warnings and drifts are always listed.
MAX_NOTES = 12
_STYLES = {Severity.FAIL: "red", Severity.WARN: "yellow", Severity.NOTE: ""}
_VERDICTS = {ExitCode.OK: "bold green", ExitCode.REGRESSED: "bold red"}


def print_survey(survey: Survey, console: Console, *, everything: bool = False, launches: bool = False) -> None:
    """Print a survey.

    Args:
        survey: what was found out.
        console: where to.
        everything: a row for each configuration where there is a comparison too.
        launches: a table of what each launch computes and moves.
    """
    style = _VERDICTS.get(ExitCode(survey.exit_code), "bold yellow")
    console.print(safe(sentence(survey), style), soft_wrap=True)
    console.print(safe(provenance(survey), "dim"), soft_wrap=True)
    if survey.held is not None and survey.held.refusal:
        console.print(
            safe(f"do: flopwatch static --baseline {survey.held.path} --write holds what is true now", indent=2),
            soft_wrap=True,
        )
    _print_changes(survey, console, everything=everything)
    for line in drift_lines(survey.drifts):
        console.print(safe(f"drift: {line}", "red"), soft_wrap=True)
    for line in missing_lines(survey):
        console.print(safe(line, "yellow"), soft_wrap=True)
    left_out = list(hidden(survey))
    if survey.facts and (everything or not left_out):
        console.print(_table(survey))
    else:
        for line in left_out:
            console.print(safe(line, "dim"), soft_wrap=True)
    if compiling := compile_line(survey):
        console.print(safe(compiling, "dim"), soft_wrap=True)
    if launches:
        console.print(_launches(survey))


def _print_changes(survey: Survey, console: Console, *, everything: bool) -> None:
    lines = change_lines(survey.fact_changes)
    notes = [text for severity, text in lines if severity is Severity.NOTE]
    room = len(notes) if everything else MAX_NOTES
    for severity, text in lines[: len(lines) - len(notes) + room]:
        console.print(safe(f"{severity.value}: {text}", _STYLES[severity]), soft_wrap=True)
    if notes[room:]:
        console.print(f"and {count(len(notes[room:]), 'more note')}; --all shows them.")


def _table(survey: Survey) -> Table:
    several = len(survey.devices) > 1
    table = Table(title=safe("What the compiler made of it", "table.title"), title_justify="left")
    table.add_column("kernel, dtype and configuration")
    if several:
        table.add_column("device")
    for column in COLUMNS:
        table.add_column(column, justify="right")
    before = None
    for row in rows(survey.facts):
        name = Text("\n").join([safe(row.kernel), safe(row.config, "dim")])
        device = [safe(", ".join(row.devices))] if several else []
        table.add_row("" if before == (row.kernel, row.variant, row.config) else name, *device, *_cells(row))
        before = (row.kernel, row.variant, row.config)
    return table


def _launches(survey: Survey) -> Table:
    table = Table(title=safe("What the launches compute and move", "table.title"), title_justify="left")
    for place, column in enumerate(LAUNCH_COLUMNS):
        table.add_column(column, justify="right" if place >= FIRST_NUMBER else "left")
    for cells in launch_rows(survey):
        table.add_row(*(safe(cell) for cell in cells))
    return table


def _cells(row: Row) -> list[Text]:
    if row.failed:
        return [safe(cell, "red" if row.launched else "dim") for cell in row.cells]
    return [
        safe(cell, "yellow" if row.spills and column == "spills" else "")
        for column, cell in zip(COLUMNS, row.cells, strict=True)
    ]

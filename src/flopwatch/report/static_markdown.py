"""A survey as Markdown, for the summary of a job: somebody else's words stand in code spans and fenced blocks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flopwatch.report.escape import markdown_block, markdown_code, markdown_sentence
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

if TYPE_CHECKING:
    from flopwatch.survey import Survey


def survey_markdown(survey: Survey, *, everything: bool = False, launches: bool = False) -> str:
    """Return a survey as Markdown; the table too where there is no comparison, or `everything` is asked for.

    With `launches` also what each of them computes and moves.
    """
    parts = [f"### {markdown_sentence(sentence(survey))}", "", markdown_sentence(provenance(survey)) + ".", ""]
    lines = [f"{severity.value}: {text}" for severity, text in change_lines(survey.fact_changes)]
    lines += [f"drift: {line}" for line in drift_lines(survey.drifts)]
    lines += missing_lines(survey)
    if lines:
        parts += [markdown_block(lines), ""]
    left_out = list(hidden(survey))
    if survey.facts and (everything or not left_out):
        parts += [*_table(survey), ""]
    else:
        parts += [*(markdown_sentence(line) for line in left_out), ""]
    if compiling := compile_line(survey):
        parts += [f"{markdown_sentence(compiling)}.", ""]
    if launches:
        parts += [*_launches(survey), ""]
    return "\n".join(parts)


def _launches(survey: Survey) -> list[str]:
    numbers = len(LAUNCH_COLUMNS) - FIRST_NUMBER
    lines = [f"| {' | '.join(LAUNCH_COLUMNS)} |", "|" + ":--|" * FIRST_NUMBER + "--:|" * numbers]
    for cells in launch_rows(survey):
        names = [markdown_code(cell) for cell in cells[:FIRST_NUMBER]]
        lines.append(f"| {' | '.join([*names, *cells[FIRST_NUMBER:]])} |")
    return lines


def _table(survey: Survey) -> list[str]:
    heads = ["kernel and dtype", "configuration", "device", *COLUMNS]
    lines = [f"| {' | '.join(heads)} |", "|:--|:--|:--|" + "--:|" * len(COLUMNS)]
    for row in rows(survey.facts):
        names = [markdown_code(text) for text in (row.kernel, row.config, ", ".join(row.devices))]
        cells = [markdown_code(cell) if row.failed and cell else cell for cell in row.cells]
        lines.append(f"| {' | '.join([*names, *cells])} |")
    return lines

"""An explanation in Markdown, for a pull request or an issue; whatever is somebody else's stands in code."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flopwatch.report.escape import markdown_block, markdown_code
from flopwatch.report.explain_parts import about, headline, parts

if TYPE_CHECKING:
    from flopwatch.explain.result import Explanation
    from flopwatch.report.explain_part import Part


def explanation_markdown(explanation: Explanation) -> str:
    """Return the document: the likeliest cause in its first line."""
    lines = [f"### {markdown_code(headline(explanation))}", "", markdown_code(about(explanation)), ""]
    for part in parts(explanation):
        lines += [f"#### {markdown_code(part.title)}", "", *_table(part)]
        if part.lines:
            lines += [markdown_block(list(part.lines)), ""]
    return "\n".join(lines)


def _table(part: Part) -> list[str]:
    if not part.rows:
        return []
    rows = [f"| {' | '.join(markdown_code(cell) for cell in row)} |" for row in part.rows]
    rule = "|:--|" + "--:|" * (len(part.header) - 1)
    return [f"| {' | '.join(part.header)} |", rule, *rows, ""]

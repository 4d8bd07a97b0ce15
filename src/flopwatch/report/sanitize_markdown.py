"""What sanitizers found, as Markdown for the summary of a job."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flopwatch.report.escape import markdown_block, markdown_sentence
from flopwatch.report.sanitized import fault_lines, missing_lines, note_lines, provenance, sentence

if TYPE_CHECKING:
    from flopwatch.sanitize import Sanitized


def sanitized_markdown(result: Sanitized) -> str:
    """Return the verdict, and what there is to say in a fenced block."""
    lines = [f"fault: {line}" for line in fault_lines(result.faults)]
    lines += [f"in another's code: {line}" for line in fault_lines(result.foreign)]
    lines += [*missing_lines(result), *note_lines(result)]
    parts = [f"### {markdown_sentence(sentence(result))}", "", markdown_sentence(provenance(result)) + ".", ""]
    return "\n".join([*parts, *((markdown_block(lines), "") if lines else ())])

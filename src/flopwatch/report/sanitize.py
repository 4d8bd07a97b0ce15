"""What sanitizers found, in a terminal: the verdict, each fault with its line, and what could not be looked at."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flopwatch.errors import ExitCode
from flopwatch.report.foreign import safe
from flopwatch.report.sanitized import fault_lines, missing_lines, note_lines, provenance, sentence

if TYPE_CHECKING:
    from rich.console import Console

    from flopwatch.sanitize import Sanitized

_VERDICTS = {ExitCode.OK: "bold green", ExitCode.REGRESSED: "bold red"}


def print_sanitized(result: Sanitized, console: Console) -> None:
    """Print what was found."""
    style = _VERDICTS.get(ExitCode(result.exit_code), "bold yellow")
    console.print(safe(sentence(result), style), soft_wrap=True)
    console.print(safe(provenance(result), "dim"), soft_wrap=True)
    for line in fault_lines(result.faults):
        console.print(safe(f"fault: {line}", "red"), soft_wrap=True)
    for line in fault_lines(result.foreign):
        console.print(safe(f"in another's code: {line}", "yellow"), soft_wrap=True)
    for line in missing_lines(result):
        console.print(safe(line, "yellow"), soft_wrap=True)
    for line in note_lines(result):
        console.print(safe(line, "dim"), soft_wrap=True)

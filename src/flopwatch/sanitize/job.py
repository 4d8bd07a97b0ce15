"""What a process in which cases run to be looked at is asked to do."""

from __future__ import annotations

from dataclasses import dataclass

from flopwatch.model import Case
from flopwatch.sanitize.tools import Tool


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """A request; the answer is one `CaseReport` for each case, in order.

    Attributes:
        tool: who looks.
        benchmarks: the folder of the suites.
        device: the GPU to pretend where there is none.
        cases: to run, at these very sizes.
    """

    tool: Tool
    benchmarks: str
    device: str
    cases: tuple[Case, ...]

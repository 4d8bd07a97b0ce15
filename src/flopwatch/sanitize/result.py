"""What a run of sanitizers found out, as records that can be kept and read again."""

from __future__ import annotations

from dataclasses import dataclass, field

from flopwatch.errors import ExitCode
from flopwatch.model import SCHEMA_VERSION, Case, Failure
from flopwatch.sanitize.findings import Finding
from flopwatch.sanitize.tools import Tool

#: The kind of the failure of a case that uses what the interpreter does not have.
NOT_COVERED = "NotCovered"


@dataclass(frozen=True, kw_only=True, slots=True)
class CaseReport:
    """What one tool found in one case.

    Attributes:
        case: at its small size, unless full ones were asked for.
        tool: who looked.
        findings: each fault once.
        kernels: of Triton's, that the case launched.
        notes: what was not looked at.
        failure: why the case, or the tool, did not come to its end; None where it did.
    """

    case: Case
    tool: Tool
    findings: tuple[Finding, ...] = ()
    kernels: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    failure: Failure | None = None

    @property
    def is_not_covered(self) -> bool:
        """Whether it failed for what the interpreter does not have, of which it may be clean."""
        return self.failure is not None and self.failure.kind == NOT_COVERED


@dataclass(frozen=True, kw_only=True, slots=True)
class Sanitized:
    """All that was found out.

    Attributes:
        head: hash of the commit, or "working tree".
        gpu: the GPU's name; None where the interpreter ran the kernels.
        tools: who looked, with the version of each.
        versions: of Python, torch, Triton, torch's CUDA and Triton's ptxas.
        selected: how many cases were chosen; those of the same small size are run once.
        reports: one for each tool and case.
        full: whether they ran at the sizes that the suites declare.
        exit_code: what the process tells its caller; follows from the rest, and is not read back.
        seconds: how long it took.
    """

    head: str
    gpu: str | None
    tools: dict[str, str]
    versions: dict[str, str]
    selected: int
    reports: tuple[CaseReport, ...]
    full: bool = False
    exit_code: int = field(init=False, default=0)
    seconds: float = 0.0
    schema_version: int = SCHEMA_VERSION

    def __post_init__(self) -> None:
        object.__setattr__(self, "exit_code", int(self._derive_exit_code()))

    def _derive_exit_code(self) -> ExitCode:
        if self.faults:
            return ExitCode.REGRESSED
        return ExitCode.UNDECIDED if self.failed or not self.ran else ExitCode.OK

    @property
    def faults(self) -> tuple[tuple[CaseReport, Finding], ...]:
        """The findings in the suites' own kernels, which fail the run."""
        return tuple((report, finding) for report in self.reports for finding in report.findings if finding.own)

    @property
    def foreign(self) -> tuple[tuple[CaseReport, Finding], ...]:
        """The findings in other code, such as torch's kernels, which are told and fail nothing."""
        return tuple((report, finding) for report in self.reports for finding in report.findings if not finding.own)

    @property
    def ran(self) -> tuple[CaseReport, ...]:
        """What came to its end."""
        return tuple(report for report in self.reports if report.failure is None)

    @property
    def failed(self) -> tuple[CaseReport, ...]:
        """What did not, but for what the interpreter does not have."""
        return tuple(report for report in self.reports if report.failure is not None and not report.is_not_covered)

    @property
    def not_covered(self) -> tuple[CaseReport, ...]:
        """What the interpreter could not run."""
        return tuple(report for report in self.reports if report.is_not_covered)

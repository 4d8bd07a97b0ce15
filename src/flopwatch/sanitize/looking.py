"""One tool, and the processes that it looks at."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from flopwatch.measure.client import Code, Mode
from flopwatch.model import Failure, from_json, to_json
from flopwatch.sanitize import llvm
from flopwatch.sanitize.compute_sanitizer import PRINT_LIMIT, command, read_log
from flopwatch.sanitize.job import Job
from flopwatch.sanitize.result import CaseReport
from flopwatch.sanitize.tools import LLVM, NVIDIA, Tool, find_compute_sanitizer

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from flopwatch.gate.pairs import Observer
    from flopwatch.model import Case
    from flopwatch.sanitize.findings import Finding

#: A process has so long for all that it is given: racecheck takes a kernel's time a hundredfold.
LONGEST_SECONDS = 900.0
_TIMED_OUT = "TimedOut"
#: Of what a process prints, its end is kept.
OUTPUT_CHARACTERS = 100_000


@dataclass(frozen=True, kw_only=True, slots=True)
class Ran:
    """What came of a process: what it told of its cases, what it printed, and why it ended early, if it did."""

    reports: list[CaseReport]
    output: str = ""
    failure: Failure | None = None
    started: bool = True

    def of(self, case: Case, tool: Tool) -> CaseReport:
        """Return the report of a case; one that is missing is that of the case that ended the process, or later."""
        failure = self.failure or Failure(kind="WorkerDied", message="the process ended early")
        told = (report for report in self.reports if report.case == case)
        return next(told, CaseReport(case=case, tool=tool, failure=failure))


class Looking:
    """One tool, and the processes that it looks at.

    Args:
        tool: who looks.
        code: what the processes import.
        folder: an empty one, that others of the run may share.
    """

    def __init__(self, tool: Tool, code: Code, folder: Path) -> None:
        self.tool = tool
        self._code = code
        self._folder = folder

    def at(self, cases: Sequence[Case], observer: Observer) -> list[CaseReport]:
        """Look at cases, at these very sizes."""
        if self.tool in NVIDIA:
            return self._logged(cases, observer)
        if self.tool in LLVM:
            return [self._printed(case) for case in self._counted(cases, observer)]
        return self._told(cases, observer)

    @staticmethod
    def _counted(cases: Sequence[Case], observer: Observer) -> Iterator[Case]:
        for done, case in enumerate(cases):
            observer.cases(done, len(cases))
            yield case
        observer.cases(len(cases), len(cases))

    def _told(self, cases: Sequence[Case], observer: Observer) -> list[CaseReport]:
        """Have one process say what it finds; go on in another behind the case that ended it."""
        reports: list[CaseReport] = []
        while len(reports) < len(cases):
            observer.cases(len(reports), len(cases))
            rest = cases[len(reports) :]
            ran = self._run(rest, [])
            if not ran.started:
                return reports + [ran.of(case, self.tool) for case in rest]
            # What the others took is not the fault of the case that ran when time was up.
            blamed = not (ran.reports and ran.failure is not None and ran.failure.kind == _TIMED_OUT)
            reports += [ran.of(case, self.tool) for case in rest[: len(ran.reports) + blamed]]
        observer.cases(len(reports), len(cases))
        return reports

    def _logged(self, cases: Sequence[Case], observer: Observer) -> list[CaseReport]:
        """Have a tool write a log of one process for all cases; where that has a fault of ours, of one for each."""
        together = self._with_log(cases)
        if len(cases) == 1 or not any(map(_may_be_at_fault, together)):
            observer.cases(len(cases), len(cases))
            return together
        return [report for case in self._counted(cases, observer) for report in self._with_log([case])]

    def _with_log(self, cases: Sequence[Case]) -> list[CaseReport]:
        """Run cases in one process; what its log says is told of the first that launches the kernel."""
        path = self._folder / f"{self.tool.value}.log"
        path.unlink(missing_ok=True)
        ran = self._run(cases, command(find_compute_sanitizer(), self.tool, path))
        launched = {kernel for report in ran.reports for kernel in report.kernels}
        log = read_log(path.read_text(encoding="utf-8", errors="replace") if path.exists() else "", launched)
        reports = [ran.of(case, self.tool) for case in cases]
        if not log.finished or log.problem:
            message = f"{self.tool.value} did not finish: {log.problem or _last_line(ran.output)}"
            broken = Failure(kind="ToolFailed", message=message, traceback=ran.output)
            reports = [replace(report, failure=report.failure or broken) for report in reports]
        notes = (f"more faults than the {PRINT_LIMIT:,} that are printed",) if log.is_cut else ()
        found: list[tuple[Finding, ...]] = [() for _ in cases]
        for finding in log.findings:
            launching = (place for place, report in enumerate(reports) if finding.launched in report.kernels)
            found[next(launching, 0)] += (finding,)
        reports = [replace(report, findings=findings) for report, findings in zip(reports, found, strict=True)]
        return [replace(reports[0], notes=notes), *reports[1:]]

    def _printed(self, case: Case) -> CaseReport:
        """Run a case in a process that prints what is wrong, and ends there."""
        ran = self._run([case], llvm.prefix(self.tool))
        findings = llvm.read_output(ran.output)
        report = replace(ran.of(case, self.tool), findings=findings)
        return replace(report, failure=None) if findings else report

    def _run(self, cases: Sequence[Case], prefix: Sequence[str]) -> Ran:
        job_path, out_path = self._folder / "job.json", self._folder / "out.jsonl"
        out_path.unlink(missing_ok=True)
        job = Job(tool=self.tool, benchmarks=str(self._code.benchmarks), device=self._code.device, cases=tuple(cases))
        job_path.write_bytes(to_json(job))
        module = ["-P", "-m", "flopwatch.sanitize.worker", str(job_path), str(out_path)]
        returned, output = _output_of([*prefix, self._code.interpreter, *module], self._environment())
        failure = None
        if returned is None:
            failure = Failure(kind=_TIMED_OUT, message=f"took more than {LONGEST_SECONDS:g} s", traceback=output)
        elif returned:
            message = _last_line(output) or f"exit status {returned}"
            failure = Failure(kind="WorkerDied", message=message, traceback=output)
        started = out_path.exists()
        *lines, _ = out_path.read_bytes().split(b"\n") if started else [b""]  # the last one may have broken off
        reports = [from_json(line, CaseReport) for line in lines]
        return Ran(reports=reports, output=output, failure=failure, started=started)

    def _environment(self) -> dict[str, str]:
        mode = Mode.INTERPRET if self.tool is Tool.INTERPRETER else Mode.GPU
        environment = self._code.environment(mode)
        if self.tool in LLVM:
            environment |= llvm.environment(self.tool, environment)
        if self.tool.needs_gpu:
            environment |= {
                # A tensor is an allocation of its own, whose end the tool knows.
                "PYTORCH_NO_CUDA_MEMORY_CACHING": "1",
                "TRITON_DISABLE_LINE_INFO": "0",
                # What was compiled elsewhere names the files of other checkouts.
                "TRITON_CACHE_DIR": str(self._folder / "triton"),
            }
        return environment


def _may_be_at_fault(report: CaseReport) -> bool:
    """Tell whether a case has to be run by itself: it may be the one that fails, or has a fault of its own."""
    return report.failure is not None or bool(report.notes) or any(finding.own for finding in report.findings)


def _output_of(arguments: Sequence[str], environment: dict[str, str]) -> tuple[int | None, str]:
    """Run a program; return its exit status, None where it was stopped for being late, and the end of what it printed.

    Whatever happens, neither it nor what it has started, as a tool starts its target, is left behind.
    """
    process = subprocess.Popen(  # noqa: S603 - our own module, in an interpreter that the user chose, under the tool
        arguments,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    with process:
        try:
            output, _ = process.communicate(timeout=LONGEST_SECONDS)
            returned: int | None = process.returncode
        except subprocess.TimeoutExpired:
            output, returned = "", None
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    return returned, output[-OUTPUT_CHARACTERS:]


def _last_line(text: str) -> str:
    return next(reversed(text.strip().splitlines()), "")

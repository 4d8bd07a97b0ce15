"""What sanitizers found, in sentences and lines of plain text, as every report has them."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from flopwatch.errors import ExitCode
from flopwatch.report.wording import count, grouped, several
from flopwatch.units import format_seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from flopwatch.sanitize import CaseReport, Finding, Sanitized


def sentence(result: Sanitized) -> str:
    """Say what came out."""
    return _sentence(result, several)


def nameless(result: Sanitized) -> str:
    """Say the same where a name could be somebody's link: kernels are counted."""
    return _sentence(result, lambda kernels: count(len(kernels), "kernel"))


def _sentence(result: Sanitized, told: Callable[[Sequence[str]], str]) -> str:
    match ExitCode(result.exit_code):
        case ExitCode.REGRESSED:
            places = {finding.place for _, finding in result.faults}
            kernels = list(dict.fromkeys(finding.kernel or "a kernel" for _, finding in result.faults))
            tools = dict.fromkeys(report.tool.value for report, _ in result.faults)
            return f"Faulty: {count(len(places), 'fault')} in {told(kernels)}, found by {' and '.join(tools)}."
        case ExitCode.OK:
            more = f", {_cases(result.not_covered)} not covered" if result.not_covered else ""
            return f"Clean: {' and '.join(result.tools)} found no fault in {count(_cases(result.ran), 'case')}{more}."
        case _:
            missing = _cases(result.failed or result.reports)
            return f"Undecided: {count(missing, 'case')} could not be looked at."


def _cases(reports: Iterable[CaseReport]) -> int:
    """Count cases, of which each tool has a report."""
    return len({report.case for report in reports})


def provenance(result: Sanitized) -> str:
    """Say what was looked at, where and by whom."""
    tools = ", ".join(f"{name} {version}".strip() for name, version in result.tools.items())
    versions = ", ".join(f"{name} {version}" for name, version in result.versions.items())
    cases, ran = count(result.selected, "case"), _cases(result.reports)
    cases += " at full size" if result.full else f", which {'is' if ran == 1 else 'are'} {ran} at their small sizes"
    return "; ".join([result.head, result.gpu or "no GPU", tools, versions, cases, format_seconds(result.seconds)])


def fault_lines(faults: Sequence[tuple[CaseReport, Finding]]) -> Iterator[str]:
    """Yield a line for each fault, which several cases may show."""
    first: dict[tuple[object, ...], Finding] = {}
    pairs = []
    for report, finding in faults:
        key = (report.tool, *finding.place)
        first.setdefault(key, finding)
        pairs.append((key, report.case.id))
    for key, cases in grouped(pairs):
        finding = first[key]
        place = ", ".join(part for part in (finding.kernel, finding.source) if part)
        times = "" if finding.count == 1 else f" ({finding.count:,} times)"
        yield f"{finding.kind.value}: {place or 'place not known'}: {finding.what}{times} [{several(cases)}]"


def missing_lines(result: Sanitized) -> Iterator[str]:
    """Yield a line for each cause for which cases could not be looked at."""
    for word, reports in (("not run", result.failed), ("not covered", result.not_covered)):
        causes = [
            (f"{report.tool.value}: {report.failure.kind}: {report.failure.message}", report.case.id)
            for report in reports
            if report.failure is not None
        ]
        for cause, cases in grouped(causes):
            yield f"{word}: {several(cases)}: {cause}"


def note_lines(result: Sanitized) -> Iterator[str]:
    """Yield what was not looked at in cases that ran."""
    notes = [(note, report.case.id) for report in result.reports for note in report.notes]
    for note, cases in grouped(notes):
        yield f"{several(cases)}: {note}"


def folds(result: Sanitized) -> Iterator[tuple[str, list[str]]]:
    """Yield a title and plain lines of all that there is to say."""
    lists = {
        "Faults": fault_lines(result.faults),
        "In kernels of others": fault_lines(result.foreign),
        "Not looked at": missing_lines(result),
        "Notes": note_lines(result),
    }
    yield from ((title, told) for title, lines in lists.items() if (told := list(lines)))
    yield "What was looked at, and by whom", [provenance(result)]


def next_command(result: Sanitized) -> str:
    """Return what to type next: the line that repeats the first fault, the first that failed, or the whole run."""
    for report in (*(report for report, _ in result.faults), *result.failed):
        return f"flopwatch sanitize {shlex.quote(report.case.id)} --tool {report.tool.value}"
    return "flopwatch sanitize"

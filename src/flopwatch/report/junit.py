"""JUnit's XML, which most systems of continuous integration read: a test case for each case, and one for the verdict.

A file without a failure or an error is one of exit code 0: doubt, a refused result or an unfit machine are errors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flopwatch.errors import ExitCode
from flopwatch.gate.conclusions import Outcome
from flopwatch.model import Mark
from flopwatch.report.cases import word
from flopwatch.report.conclusions import needs_a_look, told
from flopwatch.report.escape import xml
from flopwatch.report.reported import accused
from flopwatch.report.sanitized import fault_lines
from flopwatch.report.wording import effect_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from flopwatch.gate import CaseVerdict, GateResult
    from flopwatch.gate.conclusions import WatchedConclusion
    from flopwatch.report.reported import Reported
    from flopwatch.sanitize import CaseReport


def junit(reports: Sequence[Reported]) -> str:
    """Return the file's text: a test suite for each result."""
    lines = ['<?xml version="1.0" encoding="utf-8"?>', "<testsuites>"]
    for report in reports:
        cases = list(_test_cases(report))
        counts = {kind: sum(f"<{kind} " in case for case in cases) for kind in ("failure", "error", "skipped")}
        numbers = (
            f'tests="{len(cases)}" failures="{counts["failure"]}" errors="{counts["error"]}"'
            f' skipped="{counts["skipped"]}"'
        )
        lines += [f'  <testsuite name="flopwatch" {numbers} time="{report.seconds:.3f}">', *cases, "  </testsuite>"]
    return "\n".join([*lines, "</testsuites>", ""])


def _test_cases(report: Reported) -> Iterator[str]:
    outcome = ""
    if report.exit_code is ExitCode.REGRESSED:
        outcome = _outcome("failure", report.sentence)
    elif report.exit_code is not ExitCode.OK:
        outcome = _outcome("error", f"{report.sentence} {report.refusal}".strip())
    yield _test_case("flopwatch", "verdict", 0.0, outcome)
    for looked in report.sanitized.reports if report.sanitized is not None else ():
        yield _test_case(f"flopwatch.{looked.tool.value}", looked.case.id, 0.0, _of_sanitizer(looked))
    if report.result is None:
        return
    for found in report.result.conclusions:
        yield _test_case(f"flopwatch.studies.{found.study}", found.says, 0.0, _of_conclusion(found))
    failing = {verdict.case for verdict in accused(report.result)}
    for verdict in report.result.verdicts:
        name = f"[{','.join(verdict.case.values)}]"
        outcome = _of_case(report.result, verdict, fails=verdict.case in failing)
        yield _test_case(f"flopwatch.{verdict.case.suite}", name, verdict.head.seconds or 0.0, outcome)


def _of_case(result: GateResult, verdict: CaseVerdict, *, fails: bool) -> str:
    kind = word(result, verdict)
    known = "" if verdict.reason.startswith(kind) else kind
    told = ": ".join(part for part in (known, verdict.reason, effect_of(verdict.time)) if part)
    if fails:
        return _outcome("failure", told)
    if verdict.mark is Mark.UNSURE:
        return _outcome("error", told)
    return _outcome("skipped", told) if verdict.mark is None and not verdict.compared else ""


def _of_conclusion(found: WatchedConclusion) -> str:
    if found.outcome is Outcome.LOST:
        return _outcome("failure", told(found))
    return _outcome("skipped", told(found)) if needs_a_look(found) else ""


def _of_sanitizer(report: CaseReport) -> str:
    own = [(report, finding) for finding in report.findings if finding.own]
    if own:
        return _outcome("failure", "; ".join(fault_lines(own)))
    if report.failure is None:
        return ""
    told = f"{report.failure.kind}: {report.failure.message}"
    return _outcome("skipped" if report.is_not_covered else "error", told)


def _test_case(suite: str, name: str, seconds: float, outcome: str) -> str:
    head = f'    <testcase classname="{xml(suite)}" name="{xml(name)}" time="{seconds:.9f}"'
    return f"{head}>{outcome}</testcase>" if outcome else f"{head}/>"


def _outcome(kind: str, message: str) -> str:
    return f'<{kind} message="{xml(message)}"/>'

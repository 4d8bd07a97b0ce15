"""Annotations: commands that GitHub's runner reads in a job's log, and shows at the files of a pull request."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from flopwatch.errors import ExitCode
from flopwatch.model import Mark
from flopwatch.report.cases import is_waived, word
from flopwatch.report.conclusions import needs_a_look, told
from flopwatch.report.escape import command_data, command_property
from flopwatch.report.reported import accused
from flopwatch.report.sanitized import fault_lines, missing_lines
from flopwatch.report.wording import count, effect_of, grouped

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from flopwatch.gate import CaseVerdict, GateResult
    from flopwatch.gate.conclusions import WatchedConclusion
    from flopwatch.report.reported import Reported
    from flopwatch.sanitize import Sanitized

#: GitHub drops what is beyond this, of each kind in each step.
MAX_OF_A_KIND = 10
_SUITE = re.compile(r"^class ([A-Za-z_]\w*)\b", re.MULTILINE)
#: A file of the repository, as a finding names it: nothing above it, and nothing that a runner reads.
_FILE = re.compile(r"(?!\.\.?/)[\w+.-]+(?:/(?!\.\.?/)[\w+.-]+)*", re.ASCII)
_TITLE = "flopwatch"

#: Of a suite: its file, as the repository calls it, and the line of its declaration.
Place = tuple[str, int]


def annotate(reports: Sequence[Reported], places: Mapping[str, Place]) -> str:
    """Return the commands, a line each: the verdict, an error a regression, a warning an open question.

    Args:
        reports: the worst first.
        places: of the suites, by their names, from a checkout that is trusted.
    """
    errors: list[str] = []
    warnings: list[str] = []
    for report in reports:
        if report.exit_code is not ExitCode.OK:
            errors.append(_command("error", f"{report.sentence} {report.refusal}".strip()))
        if report.result is not None:
            errors += [_of_case("error", report.result, case, places) for case in accused(report.result)]
            warnings += [_of_case("warning", report.result, case, places) for case in _open(report.result)]
            errors += [_of_conclusion("error", found, places) for found in report.result.lost]
            doubted = filter(needs_a_look, report.result.conclusions)
            warnings += [_of_conclusion("warning", found, places) for found in doubted]
        if report.sanitized is not None:
            errors += _of_faults(report.sanitized)
            warnings += [_command("warning", line) for line in missing_lines(report.sanitized)]
    notices = [_command("notice", report.sentence) for report in reports if report.exit_code is ExitCode.OK]
    lines = [line for kind in (errors, warnings, notices) for line in _cut(kind)]
    return "\n".join([*lines, ""]) if lines else ""


def find_suites(folder: Path) -> dict[str, Place]:
    """Return where the suites under a folder are declared, by paths that begin with it; an absolute one by its name."""
    found: dict[str, Place] = {}
    above = folder.parent if folder.is_absolute() else Path()
    for path in sorted(folder.rglob("*.py")):
        text = path.read_text(encoding="utf-8", errors="replace")
        for match in _SUITE.finditer(text):
            name = path.relative_to(above).as_posix()
            found.setdefault(match[1], (name, text.count("\n", 0, match.start()) + 1))
    return found


def _open(result: GateResult) -> Iterator[CaseVerdict]:
    if result.unfit or result.interrupted:
        return
    for verdict in result.verdicts:
        if verdict.mark is Mark.UNSURE or is_waived(result, verdict):
            yield verdict


def _of_faults(result: Sanitized) -> Iterator[str]:
    """Yield an error for each line at fault, at that line where it lies in the repository."""
    groups = grouped([((report.tool, finding.place), (report, finding)) for report, finding in result.faults])
    for _, faults in groups:
        (told,) = fault_lines(faults)
        finding = faults[0][1]
        is_here = finding.line > 0 and _FILE.fullmatch(finding.file) is not None
        yield _command("error", told, (finding.file, finding.line) if is_here else None)


def _of_case(kind: str, result: GateResult, verdict: CaseVerdict, places: Mapping[str, Place]) -> str:
    series = verdict.time
    if verdict.mark is Mark.SLOWER and (series is None or series.mark is not Mark.SLOWER):
        series = verdict.launch
    told = "; ".join(part for part in (verdict.reason, effect_of(series)) if part)
    text = f"{verdict.case.id}: {word(result, verdict)}: {told}"
    return _command(kind, text, places.get(verdict.case.suite))


def _of_conclusion(kind: str, found: WatchedConclusion, places: Mapping[str, Place]) -> str:
    return _command(kind, told(found), places.get(found.study))


def _command(kind: str, text: str, place: Place | None = None) -> str:
    where = f"file={command_property(place[0])},line={place[1]}," if place else ""
    return f"::{kind} {where}title={_TITLE}::{command_data(text)}"


def _cut(lines: Sequence[str]) -> list[str]:
    if len(lines) <= MAX_OF_A_KIND:
        return list(lines)
    kept = lines[: MAX_OF_A_KIND - 1]
    kind = lines[0].split(" ", 1)[0].removeprefix("::")
    return [*kept, _command(kind, f"and {count(len(lines) - len(kept), 'more annotation')} of this kind")]

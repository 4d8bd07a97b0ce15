"""The verdict of a gate in one sentence, and the command lines that repeat what went wrong."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from flopwatch.errors import ExitCode
from flopwatch.model import WORKING_TREE, Mark
from flopwatch.report.conclusions import lost
from flopwatch.report.failed import failed
from flopwatch.report.wording import count
from flopwatch.static.comparison import Severity
from flopwatch.units import format_change, short_commit
from flopwatch.waivers import WaiverState, waived_cases

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flopwatch.gate import CaseVerdict, GateResult

#: How the reason of a case begins that is past its ceiling on both sides.
_WRONG = "wrong on both sides"


def headline(result: GateResult) -> str:
    """Say the verdict in one sentence, as the exit code says it."""
    match ExitCode(result.exit_code):
        case ExitCode.OK:
            return f"{_fine(result)}{_rest(result)}."
        case ExitCode.REGRESSED:
            return f"Regressed: {'; '.join(_regressions(result))}{_rest(result)}."
        case ExitCode.USAGE:
            return f"Expired: {_expired(result)} to be removed or renewed; {_otherwise(result)}{_rest(result)}."
        case ExitCode.UNDECIDED:
            return f"{_undecided(result)}{_rest(result)}."
        case ExitCode.UNFIT:
            return f"Unfit: the machine cannot be trusted, and no time was judged{_rest(result)}."


def commits(result: GateResult) -> str:
    """Return the commits of a result as the command line takes them: the working tree is what is not named."""
    named = [commit for commit in (result.base, result.head) if commit != WORKING_TREE]
    return " ".join(map(short_commit, named))


def reproduce(result: GateResult, verdict: CaseVerdict) -> str:
    """Return the command line that repeats a case.

    A small case, as where there is no GPU, selects the cases of full size that it stands for.
    """
    return f"flopwatch gate {commits(result)} -k {shlex.quote(verdict.case.id)}"


def explain(result: GateResult, verdict: CaseVerdict) -> str:
    """Return the command line that says what the compiler does differently for a case."""
    return f"flopwatch explain {shlex.quote(verdict.case.id)} {commits(result)}"


def slower_in_time(result: GateResult) -> list[CaseVerdict]:
    """Return the cases whose calls take longer on the GPU and are not waived, the worst first."""
    waived = waived_cases(result.waivers)
    found = [
        verdict
        for verdict in result.verdicts
        if verdict.mark is Mark.SLOWER
        and verdict.case.id not in waived
        and verdict.time is not None
        and verdict.time.mark is Mark.SLOWER
    ]
    return sorted(found, key=time_change, reverse=True)


def slower_to_launch(result: GateResult) -> list[CaseVerdict]:
    """Return the cases whose calls only cost the host more and are not waived, the worst first."""
    waived = waived_cases(result.waivers)
    found = [
        verdict
        for verdict in result.verdicts
        if verdict.mark is Mark.SLOWER
        and verdict.case.id not in waived
        and (verdict.time is None or verdict.time.mark is not Mark.SLOWER)
    ]
    return sorted(found, key=launch_change, reverse=True)


def time_change(verdict: CaseVerdict) -> float:
    """Return the log ratio of a case's time, 0 where it is not known."""
    return (verdict.time.estimate or 0.0) if verdict.time else 0.0


def launch_change(verdict: CaseVerdict) -> float:
    """Return the log ratio of what its call costs the host, likewise."""
    return (verdict.launch.estimate or 0.0) if verdict.launch else 0.0


def _regressions(result: GateResult) -> list[str]:
    broken = sum(verdict.mark is Mark.BROKEN for verdict in result.verdicts)
    parts = []
    if broken:
        parts.append(f"{count(broken, 'case')} broken")
    parts += failed(result.fact_changes)
    if slower := slower_in_time(result):
        parts.append(_worst(slower, "slower", time_change(slower[0])))
    if launching := slower_to_launch(result):
        parts.append(_worst(launching, "slower to launch", launch_change(launching[0])))
    if result.suite is not None and result.suite.mark is Mark.SLOWER:
        parts.append(f"the suite as a whole is {format_change(result.suite.estimate or 0.0)}")
    if result.lost:
        parts.append(lost(result))
    return parts


def _worst(found: Sequence[CaseVerdict], what: str, change: float) -> str:
    worst = "" if len(found) == 1 else "worst: "
    return f"{count(len(found), 'case')} {what} ({worst}{found[0].case.id}, {format_change(change)})"


def _fine(result: GateResult) -> str:
    cases = len(result.verdicts)
    identical = sum(verdict.identical for verdict in result.verdicts)
    if identical == cases:
        return f"Nothing changed: {'the one case runs' if cases == 1 else f'all {cases} cases run'} the code of base"
    if result.gpu is None:
        return f"Nothing broke; {_static_warnings(result)}"
    tally = _tally(result)
    return f"Nothing {'else ' if waived_cases(result.waivers) else ''}got slower" + (f": {tally}" if tally else "")


def _undecided(result: GateResult) -> str:
    """Say what could not be decided; empty where all was."""
    if result.interrupted:
        when = f"after {count(len(result.pairs), 'pair')}" if result.pairs else "before the first pair"
        return f"Interrupted {when}: no time was judged"
    if not any(verdict.compared for verdict in result.verdicts):
        return "Undecided: no case could be compared"
    parts = []
    if result.newly_uncovered:
        parts.append(f"{count(len(result.newly_uncovered), 'case')} could be compiled on base and not on head")
    if any(verdict.mark is Mark.UNSURE for verdict in result.verdicts):
        parts.append(f"{_tally(result)}, none proved slower")
    return f"Undecided: {'; '.join(parts)}" if parts else ""


def _otherwise(result: GateResult) -> str:
    """Say what an expired waiver outranks."""
    text = _undecided(result) or _fine(result)
    return text[0].lower() + text[1:]


def _tally(result: GateResult) -> str:
    """Count what was measured.

    Waived cases are left to `_rest`, which always tells them.
    """
    marks = [verdict.mark for verdict in result.verdicts if not verdict.identical]
    identical = len(result.verdicts) - len(marks)
    parts = [f"{marks.count(mark)} {words}" for mark, words in _WORDS.items() if mark in marks]
    return ", ".join([*parts, f"{identical} identical"] if identical else parts)


_WORDS = {Mark.UNSURE: "unsure", Mark.SAME: "the same", Mark.FASTER: "faster"}


def _static_warnings(result: GateResult) -> str:
    warnings = sum(change.severity is Severity.WARN for change in result.fact_changes)
    return count(warnings, "static warning") if warnings else "no static warning"


def _expired(result: GateResult) -> str:
    expired = sum(use.state is WaiverState.EXPIRED for use in result.waivers)
    return f"{count(expired, 'waiver')} {'is' if expired == 1 else 'are'}"


def _rest(result: GateResult) -> str:
    """Add what is never left out, whatever the verdict."""
    skipped = sum(not verdict.compared and verdict.mark is None for verdict in result.verdicts)
    wrong = sum(verdict.reason.startswith(_WRONG) for verdict in result.verdicts)
    waived = len(waived_cases(result.waivers))
    parts = []
    if waived:
        parts.append(f"{waived} slower and waived")
    if skipped and skipped < len(result.verdicts):
        parts.append(f"{count(skipped, 'case')} not compared")
    if wrong:
        parts.append(f"{count(wrong, 'case')} {_WRONG}")
    if result.exit_code == ExitCode.REGRESSED and result.unfit:
        parts.append("the machine is unfit, and no time was judged")
    if result.exit_code == ExitCode.REGRESSED and result.interrupted:
        parts.append("the run was interrupted, and no time was judged")
    return "".join(f"; {part}" for part in parts)

"""A result as a report has it: believed or refused, and about the commit that whoever asks for the report names."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from flopwatch.errors import ExitCode, UndecidedError
from flopwatch.gate import GateResult
from flopwatch.model import WORKING_TREE, Mark
from flopwatch.report.agreement import contradictions
from flopwatch.report.headline import commits, headline, reproduce, slower_in_time, slower_to_launch
from flopwatch.report.policy import violations
from flopwatch.report.sanitized import nameless, next_command
from flopwatch.report.untrusted import load_result
from flopwatch.sanitize import Sanitized
from flopwatch.units import short_commit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from flopwatch.config import Config
    from flopwatch.gate import CaseVerdict

#: What is wrong with a result is named so often; a forged one has no end of it.
MAX_PROBLEMS = 5
#: The worst first: a regression is certain, and what was refused may hide one.
_ORDER = (ExitCode.REGRESSED, ExitCode.UNDECIDED, ExitCode.UNFIT, ExitCode.USAGE, ExitCode.OK)


@dataclass(frozen=True, kw_only=True, slots=True)
class Origin:
    """What a result is about, known from elsewhere than the result.

    Attributes:
        pull_request: its number; None where there is none.
        sha: the commit that was to be measured; "" where nobody says.
    """

    pull_request: int | None = None
    sha: str = ""

    @property
    def text(self) -> str:
        """A line for a person; "" where nothing is known.

        >>> Origin(pull_request=7, sha="0123456789abcdef").text
        'pull request 7 at 0123456789ab'
        """
        who = f"pull request {self.pull_request}" if self.pull_request is not None else ""
        return f"{who or 'commit'} at {short_commit(self.sha)}" if self.sha else who


@dataclass(frozen=True, kw_only=True, slots=True)
class Reported:
    """One file.

    Attributes:
        result: what it says; None where it is refused, or of sanitizers.
        refusal: why; "" where it is believed.
        origin: what it is about.
        sanitized: what sanitizers found; None where it is refused, or of a gate.
    """

    result: GateResult | None
    refusal: str = ""
    origin: Origin = Origin()
    sanitized: Sanitized | None = None

    @property
    def is_refused(self) -> bool:
        """Whether nothing of it is believed."""
        return self.result is None and self.sanitized is None

    @property
    def exit_code(self) -> ExitCode:
        """That of the run; what is refused decides nothing."""
        found = self.result or self.sanitized
        return ExitCode.UNDECIDED if found is None else ExitCode(found.exit_code)

    @property
    def seconds(self) -> float:
        """How long the run took."""
        found = self.result or self.sanitized
        return 0.0 if found is None else found.seconds

    @property
    def sentence(self) -> str:
        """The verdict."""
        if self.sanitized is not None:
            return nameless(self.sanitized)
        return (
            "Refused: the result cannot be believed, and nothing is decided."
            if self.result is None
            else headline(self.result)
        )

    @property
    def next_command(self) -> str:
        """What to type next: the line that repeats the worst case, or the whole run."""
        if self.sanitized is not None:
            return next_command(self.sanitized)
        if self.result is None:
            return "flopwatch gate --json gate.json"
        if self.exit_code is ExitCode.UNFIT:
            return "flopwatch doctor"
        if self.exit_code is ExitCode.USAGE:
            return "flopwatch waive"
        if self.result.lost and not accused(self.result):
            return f"flopwatch compare --study {shlex.quote(self.result.lost[0].study)}"
        worst = next(_needy(self.result), None)
        if worst is not None:
            return reproduce(self.result, worst)
        return f"flopwatch gate {commits(self.result)}"


def report_on(
    path: Path,
    *,
    origin: Origin,
    policy: Config | None = None,
    recompute: Callable[[GateResult], Iterable[str]] | None = None,
) -> Reported:
    """Read a file and find out whether it is to be believed.

    Args:
        path: of the file.
        origin: what it must be about.
        policy: whose margins and waivers must be its; None believes its own.
        recompute: yields where the decision comes out otherwise; None believes it, where nothing contradicts it.
    """
    try:
        result = load_result(path)
    except UndecidedError as error:
        return Reported(result=None, refusal=error.why, origin=origin)
    problems = ["it is about another commit"] if origin.sha and result.head not in (origin.sha, WORKING_TREE) else []
    if isinstance(result, GateResult):
        problems += contradictions(result)
        if policy is not None:
            problems += violations(result, policy)
        if recompute is not None and not problems:
            problems += recompute(result)
    if problems:
        more = f"; and {len(problems) - MAX_PROBLEMS} more" if len(problems) > MAX_PROBLEMS else ""
        return Reported(result=None, refusal=f"{'; '.join(problems[:MAX_PROBLEMS])}{more}", origin=origin)
    if origin.sha:
        result = replace(result, head=origin.sha)
    if isinstance(result, GateResult):
        return Reported(result=result, origin=origin)
    return Reported(result=None, sanitized=result, origin=origin)


def worst_first(reports: Iterable[Reported]) -> list[Reported]:
    """Order reports by what they mean for the change; refused ones before others that decide nothing."""
    return sorted(reports, key=lambda report: (_ORDER.index(report.exit_code), not report.is_refused))


def accused(result: GateResult) -> list[CaseVerdict]:
    """Return the cases that fail the run, the worst first."""
    broken = [verdict for verdict in result.verdicts if verdict.mark is Mark.BROKEN]
    return [*broken, *slower_in_time(result), *slower_to_launch(result)]


def _needy(result: GateResult) -> Iterator[CaseVerdict]:
    yield from accused(result)
    if not result.interrupted:
        yield from (verdict for verdict in result.verdicts if verdict.mark is Mark.UNSURE)

"""Waivers: slowdowns that somebody accepted, with a reason, an owner, a last day and a limit.

A waiver raises the margin of its cases to its limit, for a time, in the open: the slowdown is still shown. It excuses
time alone. Wrong numbers, a failure, or a kernel that no longer compiles cannot be waived.
"""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass, fields
from datetime import date
from typing import TYPE_CHECKING, Any, get_type_hints

from flopwatch.errors import ExitCode
from flopwatch.model import Mark
from flopwatch.pattern import matches, pattern_problem, specificity
from flopwatch.units import format_change

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

#: Marks by which a case shows that it needs no waiver. UNSURE does not, nor does BROKEN.
_NOT_SLOWER = frozenset({Mark.SAME, Mark.FASTER})


@dataclass(frozen=True, kw_only=True, slots=True)
class Waiver:
    """A slowdown that is accepted for a time.

    Attributes:
        case: pattern of the cases' names (`flopwatch.pattern`).
        reason: why it is accepted.
        owner: who answers for it.
        until: the last day on which it holds.
        limit_percent: a slowdown proved larger than this is not accepted.
    """

    case: str
    reason: str
    owner: str
    until: date
    limit_percent: float

    @property
    def summary(self) -> str:
        """The waiver in one line that is safe to print: no line breaks, no control characters."""
        return printable(
            f"{self.case}, up to {self.limit_percent:g} % until {self.until} ({self.reason}; {self.owner})"
        )


class WaiverState(enum.Enum):
    """What became of a waiver in a run.

    WAIVED: a case is slower, but not proved slower than the limit: shown, does not fail.
    EXCEEDED: a case is proved slower than the limit: fails as it would without the waiver.
    EXPIRED: its last day has passed; it waives nothing, and fails the run until it is removed or renewed.
    UNUSED: no case needs it any more, or no case has such a name: a note.
    """

    WAIVED = "waived"
    EXCEEDED = "exceeded"
    EXPIRED = "expired"
    UNUSED = "unused"


@dataclass(frozen=True, kw_only=True, slots=True)
class Timed:
    """What waivers need to know of a case whose time was judged; a case with several times has one record for each.

    Attributes:
        case_id: its name.
        mark: the verdict.
        log_ratio: log(head seconds / base seconds), the estimate.
        lower: head is proved slower than this log ratio.
    """

    case_id: str
    mark: Mark
    log_ratio: float = 0.0
    lower: float = -math.inf


@dataclass(frozen=True, kw_only=True, slots=True)
class WaiverUse:
    """What a waiver did: one record for each case that it waived or failed to, one for a waiver that did nothing.

    Attributes:
        waiver: the waiver.
        state: what became of it.
        text: that in words, one line, safe to print.
        case_id: the slower case, where it is about one.
        log_ratio: its estimated slowdown.
    """

    waiver: Waiver
    state: WaiverState
    text: str
    case_id: str = ""
    log_ratio: float | None = None


def printable(text: str) -> str:
    r"""Make one line of a text that somebody else wrote; what a terminal would obey becomes a blank.

    >>> printable("slower\n\x1b[31mfor now")
    'slower [31mfor now'
    """
    return " ".join("".join(character if character.isprintable() else " " for character in text).split())


def waiver_problems(table: dict[str, Any]) -> dict[str, str]:
    """Say everything that keeps a TOML table from being a waiver, key by key.

    >>> waiver_problems({"case": "Add*", "reason": " ", "until": "soon", "limit_percent": 5, "owner": "Ada"})
    {'reason': 'is blank', 'until': "'soon' is no date such as 2026-12-31"}
    """
    kinds = get_type_hints(Waiver)
    known = [field.name for field in fields(Waiver)]
    problems = {key: f"no such key (known: {', '.join(known)})" for key in table if key not in known}
    for key in known:
        problem = _value_problem(key, table[key], kinds[key]) if key in table else "missing, every waiver has one"
        if problem:
            problems[key] = problem
    return problems


def _value_problem(key: str, value: object, kind: type[Any]) -> str:
    import msgspec  # noqa: PLC0415 - reports of untrusted results are made without it

    try:
        known: object = msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        return f"{value!r} is no date such as 2026-12-31" if kind is date else str(error)
    if key == "case":
        return pattern_problem(str(known))
    if isinstance(known, str) and not known.strip():
        return "is blank"
    if isinstance(known, float) and not 0 < known < math.inf:
        return f"{known:g} is not a finite number > 0"
    return ""


def apply_waivers(
    waivers: Sequence[Waiver],
    timed: Iterable[Timed],
    *,
    declared: Collection[str],
    selected: Collection[str],
    today: date,
) -> tuple[WaiverUse, ...]:
    """Hold the verdicts of a run against the waivers.

    A slower case is waived by the most specific of the waivers that match it and have not expired; of two that are as
    specific, by the one with the smaller limit. It exceeds the limit when it is *proved* slower than it, as a case is
    slower when it is proved slower than its margin: a slowdown at the limit does not fail one run in two.

    A waiver is called unused when none of the cases that it matches is slower and all of them were judged, or when the
    suites declare no such case. A run of a selection, or without a GPU, calls none unused that it did not look at. One
    that has expired is told of in every run of one of its cases, whether or not its time is judged: a change that
    leaves the case alone, or a machine without a GPU, must not hide it.

    Args:
        waivers: of the repository.
        timed: the cases whose time was judged.
        declared: the names of all cases that the suites declare.
        selected: of these, the names of the cases that the run is of.
        today: the day of the run.

    >>> waiver = Waiver(case="Add*", reason="int64", owner="Ada", until=date(2026, 12, 31), limit_percent=5)
    >>> slower = Timed(case_id="Add[1]", mark=Mark.SLOWER, log_ratio=0.02, lower=0.015)
    >>> cases = ["Add[1]"]
    >>> apply_waivers([waiver], [slower], declared=cases, selected=cases, today=date(2026, 12, 1))[0].state
    <WaiverState.WAIVED: 'waived'>
    """
    timed = tuple(timed)
    active = [waiver for waiver in waivers if today <= waiver.until]
    uses = [use for case in timed if case.mark is Mark.SLOWER for use in _of_slower(case, active)]
    used = {use.waiver for use in uses}
    for waiver in waivers:
        if waiver not in used:
            uses += _of_idle(waiver, timed, declared=declared, selected=selected, today=today)
    return tuple(uses)


def waived_cases(uses: Collection[WaiverUse]) -> frozenset[str]:
    """Return the names of the slower cases that do not fail the run: no time of theirs exceeds the limit."""
    found = {state: {use.case_id for use in uses if use.state is state} for state in WaiverState}
    return frozenset(found[WaiverState.WAIVED] - found[WaiverState.EXCEEDED])


def waivers_exit_code(uses: Iterable[WaiverUse], otherwise: ExitCode) -> ExitCode:
    """Choose the exit code of a run, given its code by the verdicts that are not waived.

    An expired waiver is a wrong configuration (2), not a regression: the case may be as fast as ever. It outranks all
    but a regression.
    """
    expired = any(use.state is WaiverState.EXPIRED for use in uses)
    return ExitCode.USAGE if expired and otherwise in (ExitCode.OK, ExitCode.UNDECIDED) else otherwise


def _of_slower(case: Timed, active: Sequence[Waiver]) -> list[WaiverUse]:
    """Return what the waiver that decides over a slower case does for it; nothing where none matches."""
    matching = [waiver for waiver in active if matches(waiver.case, case.case_id)]
    if not matching:
        return []
    waiver = min(matching, key=lambda waiver: (-specificity(waiver.case), waiver.limit_percent))
    change = format_change(case.log_ratio)
    limit = math.log1p(waiver.limit_percent / 100)
    if case.lower > limit:
        excess = math.expm1(case.log_ratio) * 100 - waiver.limit_percent
        state = WaiverState.EXCEEDED
        text = f"{case.case_id}: {change}, {excess:.2f} points more than is waived: {waiver.summary}"
    else:
        state = WaiverState.WAIVED
        doubt = ", as more than the limit is not proved" if case.log_ratio > limit else ""
        text = f"{case.case_id}: {change}, waived{doubt}: {waiver.summary}"
    return [WaiverUse(waiver=waiver, state=state, text=text, case_id=case.case_id, log_ratio=case.log_ratio)]


def _of_idle(
    waiver: Waiver, timed: Sequence[Timed], *, declared: Collection[str], selected: Collection[str], today: date
) -> list[WaiverUse]:
    """Return what is to be said of a waiver that decided over no slower case."""
    judged = [case for case in timed if matches(waiver.case, case.case_id)]
    expected = {case_id for case_id in declared if matches(waiver.case, case_id)}
    if today > waiver.until and any(matches(waiver.case, case_id) for case_id in selected):
        ago = (today - waiver.until).days
        return [
            WaiverUse(
                waiver=waiver,
                state=WaiverState.EXPIRED,
                text=f"expired {ago} day{'s' if ago > 1 else ''} ago: {waiver.summary}; "
                "remove it from pyproject.toml, or renew its date",
            )
        ]
    if not expected and not judged:
        why = "no case has such a name"
    elif expected <= {case.case_id for case in judged} and {case.mark for case in judged} <= _NOT_SLOWER:
        why = "none of its cases is slower"
    else:
        return []
    return [
        WaiverUse(
            waiver=waiver,
            state=WaiverState.UNUSED,
            text=f"unused, {why}: {waiver.summary}; consider removing it from pyproject.toml",
        )
    ]

"""The cases that keep a run from being fine, one by one: what, why, and how to repeat it; by the standard library."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flopwatch.model import Mark
from flopwatch.report.causes import likely_causes
from flopwatch.report.headline import explain, reproduce, slower_in_time, slower_to_launch, time_change
from flopwatch.report.wording import effect_of, grouped, several, slowdown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from flopwatch.gate import CaseVerdict, GateResult


def accusations(
    result: GateResult, doubt: Callable[[GateResult, CaseVerdict], list[str]]
) -> Iterator[tuple[str, list[str]]]:
    """Yield what there is to say of each case that is broken, slower or unsure, the worst first: a head and its lines.

    Broken cases of one reason are told of together, and so are those that are unsure for a reason other than time.

    Args:
        result: of a gate.
        doubt: says what there is to say of a case that is unsure for its time alone.
    """
    yield from _of_reasons(result, Mark.BROKEN)
    for verdict in slower_in_time(result):
        yield _head(verdict, effect_of(verdict.time)), _accusation(result, verdict)
    for verdict in slower_to_launch(result):
        text = f"a call costs the host more: {effect_of(verdict.launch)}"
        yield _head(verdict, text), _accusation(result, verdict)
    if result.unfit or result.interrupted:
        return  # then every case is unsure, for that one reason
    yield from _of_reasons(result, Mark.UNSURE)
    unsure = [verdict for verdict in result.verdicts if verdict.mark is Mark.UNSURE and not verdict.reason]
    for verdict in sorted(unsure, key=time_change, reverse=True):
        yield _head(verdict, f"unsure: {effect_of(verdict.time) or 'no pair could be used'}"), doubt(result, verdict)


def reach(result: GateResult, verdict: CaseVerdict) -> list[str]:
    """Say of an unsure case what this run could have found."""
    lines = []
    if verdict.time is not None and verdict.time.detectable is not None:
        lines.append(f"this run finds slowdowns of it from {slowdown(verdict.time.detectable)}")
    return [*lines, repeat(result, verdict)]


def repeat(result: GateResult, verdict: CaseVerdict, budget: str = "") -> str:
    """Return the line that says how to repeat a case."""
    return f"repeat: {reproduce(result, verdict)}{budget}"


def _of_reasons(result: GateResult, mark: Mark) -> Iterator[tuple[str, list[str]]]:
    marked = {verdict.case.id: verdict for verdict in result.verdicts if verdict.mark is mark and verdict.reason}
    for reason, names in grouped((verdict.reason, name) for name, verdict in marked.items()):
        yield f"{several(names)}: {reason}", [repeat(result, marked[names[0]])]


def _head(verdict: CaseVerdict, text: str) -> str:
    return f"{verdict.case.id}: {text}"


def _accusation(result: GateResult, verdict: CaseVerdict) -> list[str]:
    causes = [f"likely cause: {cause}" for cause in likely_causes(result, verdict)]
    return [*causes, *verdict.notes, f"explain: {explain(result, verdict)}", repeat(result, verdict)]

"""A bisection in a terminal: the culprit and what it did, the steps that led there, and how to go on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table

from flopwatch.bisect.result import Outcome
from flopwatch.report.foreign import safe
from flopwatch.report.wording import count, effect
from flopwatch.units import format_bytes, format_seconds, short_commit

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console

    from flopwatch.bisect.result import Bisection, Commit, Effect, Step

#: Candidates beyond this many are counted.
MAX_CANDIDATES = 20
_STYLES = {Outcome.GOOD: "green", Outcome.BAD: "red", Outcome.SKIPPED: "yellow"}


def print_bisect(found: Bisection, console: Console) -> None:
    """Print a bisection."""
    console.print(safe(headline(found), "bold"), soft_wrap=True)
    for line in details(found):
        console.print(safe(line, indent=2), soft_wrap=True)
    for line in provenance(found):
        console.print(safe(line, "dim"), soft_wrap=True)
    if found.steps:
        console.print()
        console.print(_table(found))
    for note in found.notes:
        console.print(safe(f"note: {note}"), soft_wrap=True)
    verb = "Go on" if found.interrupted or found.unfit else "Repeat"
    console.print(safe(f"{verb}: {found.command}"), soft_wrap=True)


def headline(found: Bisection) -> str:
    """Say in one sentence which commit it was, or what keeps that from being known."""
    stopped = "Interrupted: " if found.interrupted else "The machine became unfit: " if found.unfit else ""
    case = found.case.id
    if not found.differs:
        if found.interrupted or found.unfit:
            return f"{stopped}it is not yet proved that good and bad differ in {case}"
        return f"Nothing to bisect: it is not proved that good and bad differ in {case}"
    if not found.candidates:
        return f"Not between good and bad: what changed {case}"
    if found.culprit is None:
        one = "one" if stopped else "One"
        return f"{stopped}{one} of {len(found.candidates)} commits made {case} {_whole_change(found)}"
    change = _own_change(found) or _whole_change(found)
    if found.reason or stopped:
        return f"{stopped}{_short(found.culprit)} is the only commit left that can have made {case} {change}"
    return f"{_short(found.culprit)} made {case} {change}"


def details(found: Bisection) -> Iterator[str]:
    """Yield what belongs to the headline: subject lines, why there is no more, and what to do."""
    if found.unfit:
        yield f"why: {found.unfit}"
        yield "do:  flopwatch doctor tells when the machine is fit again"
    elif found.reason:
        yield f"why: {found.reason}"
    if found.culprit is not None:
        yield f"{found.culprit.date} {found.culprit.subject}"
        if found.reason and found.change is not None:
            yield f"against its parent: {_effect(found.change)}"
        yield f"git show {found.culprit.hash}"
        return
    for commit in found.candidates[:MAX_CANDIDATES]:
        yield f"{_short(commit)} {commit.date} {commit.subject}"
    if found.candidates[MAX_CANDIDATES:]:
        yield f"and {len(found.candidates) - MAX_CANDIDATES} more"
    if not found.differs:
        yield from _doubt(found)


def provenance(found: Bisection) -> Iterator[str]:
    """Yield what was compared, where, and for how long."""
    parts = [f"good {_short(found.good)}, bad {_short(found.bad)}"]
    if found.differs:
        parts[0] += f": {_whole_change(found).removeprefix('go from ')}"
    parts.append(found.device)
    looked = sum(step.effect is not None or step.value is not None for step in found.steps)
    parts.append(f"{count(looked, 'commit')} {'compiled' if found.fact else 'measured'} between them")
    if found.pairs:
        parts.append(count(len(found.pairs), "pair") + " of processes")
    yield "; ".join([*parts, format_seconds(found.seconds)])


def _doubt(found: Bisection) -> Iterator[str]:
    """Say what is known where good and bad are not proved to differ."""
    if found.fact and found.good_value is not None and found.good_value == found.bad_value:
        yield f"both: {_value(found, found.good_value)}"
    if found.difference is None:
        return
    yield f"bad against good: {_effect(found.difference)}, {count(found.difference.pairs, 'pair')}"
    if found.interrupted or found.unfit:
        return
    if found.settling_pairs is None:
        yield "If there is a difference, it is too small for pairs to prove more than the case's margin"
    else:
        yield f"about {found.settling_pairs} pairs would settle it: --pairs {found.settling_pairs}"


def _table(found: Bisection) -> Table:
    table = Table(title="Steps", title_justify="left")
    table.add_column("commit", no_wrap=True)
    table.add_column("the case" if found.fact else "against good (99 % interval)", justify="right")
    table.add_column("is", no_wrap=True)
    table.add_column("subject", overflow="fold")
    for step in found.steps:
        table.add_row(
            _short(step.commit),
            _shown(found, step),
            step.outcome.value,
            safe(step.commit.subject + (f" ({step.reason})" if step.reason else "")),
            style=_STYLES[step.outcome],
        )
    return table


def _shown(found: Bisection, step: Step) -> str:
    if step.value is not None:
        return _value(found, step.value)
    return "" if step.effect is None else f"{_effect(step.effect)}, {count(step.effect.pairs, 'pair')}"


def _whole_change(found: Bisection) -> str:
    """Say what happened between good and bad."""
    if found.good_value is not None and found.bad_value is not None:
        return f"go from {_value(found, found.good_value)} to {_value(found, found.bad_value)}"
    return "differ" if found.difference is None else _effect(found.difference)


def _own_change(found: Bisection) -> str:
    """Say what happened between the culprit and its parent; "" where that is not known."""
    if found.parent_value is not None and found.culprit_value is not None:
        return f"go from {_value(found, found.parent_value)} to {_value(found, found.culprit_value)}"
    return "" if found.change is None or found.reason else _effect(found.change)


def _effect(found: Effect) -> str:
    return effect(found.estimate, found.lower, found.upper)


def _value(found: Bisection, value: int) -> str:
    """Write a compiled fact with its unit."""
    if found.fact == "registers":
        return count(value, "register")
    return f"{format_bytes(value)} of {'spills' if found.fact == 'spills' else 'shared memory'}"


def _short(commit: Commit) -> str:
    return short_commit(commit.hash)

"""A search in a terminal: what was pruned and why, what was chosen, what that is worth, what rules lose."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

from rich.table import Table

from flopwatch.report.compare import speed
from flopwatch.report.foreign import safe
from flopwatch.report.wording import count, grouped, several
from flopwatch.tune.facts import ranked
from flopwatch.tune.result import By
from flopwatch.tune.space import short
from flopwatch.tune.table import is_kept
from flopwatch.units import format_bytes, format_change, format_seconds

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console

    from flopwatch.tune.result import Candidate, Regret, TunedCase, TuneResult

#: Configurations of a case that are shown, where not all are asked for.
SHOWN = 8


def print_tune(result: TuneResult, console: Console, *, everything: bool = False) -> None:
    """Print a search."""
    console.print(safe(headline(result), "bold"), soft_wrap=True)
    if result.unfit:
        console.print(safe(f"why: {result.unfit}", indent=2), soft_wrap=True)
        console.print("  do:  flopwatch doctor tells when the machine is fit again; then repeat this", soft_wrap=True)
    console.print(safe(provenance(result), "dim"), soft_wrap=True)
    for case in result.cases:
        console.print()
        console.print(safe(case.case.id, "bold"), soft_wrap=True)
        if case.reason:
            console.print(safe(f"not tuned: {case.reason}", indent=2), soft_wrap=True)
        for line in () if result.unfit else told(case):
            console.print(safe(line, indent=2), soft_wrap=True)
        timed = case.chosen is not None and not result.unfit
        console.print(_candidates(case, timed=timed, everything=everything))
        for line in left_out(case, everything=everything):
            console.print(safe(line, "dim", indent=2), soft_wrap=True)
    if not result.unfit and any(case.regrets for case in result.cases):
        console.print()
        console.print(_regrets(result))
    for note in result.notes:
        console.print(safe(f"note: {note}"), soft_wrap=True)
    console.print(safe(f"Repeat: {result.command}"), soft_wrap=True)


def headline(result: TuneResult) -> str:
    """Say in one sentence what came out."""
    if result.unfit:
        return "The machine is unfit: what it measured is worth nothing."
    chosen = [case for case in result.cases if case.chosen is not None]
    stopped = "Interrupted. " if result.interrupted else ""
    if not chosen:
        ready = sum(not one.pruned for case in result.cases for one in case.candidates)
        every = sum(len(case.candidates) for case in result.cases)
        return f"{stopped}Nothing was timed: {ready} of {every} configurations are worth timing on a GPU."
    better = [case for case in chosen if case.chosen != case.current and is_kept(case)]
    return (
        f"{stopped}{count(len(chosen), 'case')} searched: in {len(better)} a configuration other than the autotuner's"
        " is chosen."
    )


def provenance(result: TuneResult) -> str:
    """Say where and when this was found."""
    versions = ", ".join(f"{name} {version}" for name, version in result.versions.items())
    return f"{result.gpu or f'compiled for {result.device}'}; {result.date}; {versions}"


def told(case: TunedCase) -> Iterator[str]:
    """Yield what was chosen, and what two passes say of it."""
    if case.chosen is None:
        return
    yield f"choice: {short(case.chosen)}"
    if case.chosen == case.current:
        yield "which is what the autotuner chooses"
        return
    yield f"autotuner: {short(case.current or '')}"
    gain, optimism = case.gain, case.optimism
    if gain is None or optimism is None:
        yield "its gain was not measured on fresh samples"
        return
    yield f"gain: {speed(gain)} on {count(gain.pairs, 'fresh sample')}, each of a process of its own"
    yield f"the samples that chose it said {math.exp(gain.estimate + optimism):.3f}x: {_flattery(optimism)}"
    if not is_kept(case):
        yield "so the fresh samples refuse it: the autotuner's choice stays"


def left_out(case: TunedCase, *, everything: bool) -> Iterator[str]:
    """Yield why configurations were not timed, and how many are not shown."""
    pruned = [one for one in case.candidates if one.pruned]
    if everything:
        yield from (f"pruned: {one.name}: {one.pruned}" for one in pruned)
    else:
        reasons = {one.name: one.pruned for one in pruned}
        for _, names in grouped([(_kind(one.pruned), one.name) for one in pruned]):
            more = ", and the like" if len({reasons[name] for name in names}) > 1 else ""
            yield f"pruned: {several(names)}: {reasons[names[0]]}{more}"
    for note in case.notes:
        yield f"note: {note}"
    hidden = sum(not one.pruned for one in case.candidates) - SHOWN
    if hidden > 0 and not everything:
        yield f"{count(hidden, 'further configuration')} not shown: --all"


def _kind(reason: str) -> str:
    """Return a reason without what is of one configuration alone: its numbers.

    >>> _kind("spills 3136 bytes a thread") == _kind("spills 8 bytes a thread")
    True
    """
    return re.sub(r"[0-9]+", "", reason.partition(" as ")[0])


def _flattery(optimism: float) -> str:
    percent = math.expm1(optimism) * 100
    return f"they flatter it by {percent:.2f} %" if percent > 0 else f"they underrate it by {-percent:.2f} %"


def _candidates(case: TunedCase, *, timed: bool, everything: bool) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), title_justify="left")
    table.add_column("")
    table.add_column("configuration")
    for name in ("registers", "shared", "occupancy", "estimate", *(("against current", "rounds") if timed else ())):
        table.add_column(name, justify="right")
    rows = sorted(ranked(case.candidates), key=lambda one: math.inf if one.log_ratio is None else one.log_ratio)
    for one in rows if everything else rows[:SHOWN]:
        table.add_row(*map(safe, _row(one, case, timed=timed)))
    return table


def _row(one: Candidate, case: TunedCase, *, timed: bool) -> list[str]:
    cells = [
        "*" if one.config == case.chosen else "",
        one.name,
        "" if one.registers is None else str(one.registers),
        "" if one.shared_bytes is None else format_bytes(one.shared_bytes),
        "" if one.occupancy is None else f"{one.occupancy:.1%}",
        "" if one.estimate_seconds is None else format_seconds(one.estimate_seconds),
    ]
    if not timed:
        return cells
    if one.config == case.current:
        return [*cells, "current", ""]
    rounds = f"{one.rounds}" + (", dropped" if one.dropped is not None else "")
    return [*cells, "" if one.log_ratio is None else format_change(one.log_ratio), rounds]


def _regrets(result: TuneResult) -> Table:
    table = Table(title="What is lost without a search, on fresh samples", title_justify="left")
    for name in ("case", "rule", "chooses"):
        table.add_column(name)
    table.add_column("time", justify="right")
    table.add_column("speed of the search's choice", justify="right")
    for case in result.cases:
        for regret in case.regrets:
            table.add_row(*map(safe, (case.case.id, rule(regret), *_loss(regret, case))))
    return table


def rule(regret: Regret) -> str:
    """Return what a rule is called.

    >>> from flopwatch.tune.result import By, Regret
    >>> rule(Regret(by=By.AUTOTUNER)), rule(Regret(by=By.PROVIDER, name="heuristics"))
    ("the autotuner's first run", 'heuristics')
    """
    names = {By.AUTOTUNER: "the autotuner's first run", By.FIRST: "the first of its list", By.PROVIDER: regret.name}
    return names[regret.by]


def _loss(regret: Regret, case: TunedCase) -> tuple[str, str, str]:
    time = "" if regret.seconds is None else format_seconds(regret.seconds)
    if regret.speed is None:
        return short(regret.config), time, "the same choice" if regret.config == case.chosen else "not measured"
    return short(regret.config), time, speed(regret.speed)

"""A comparison in a terminal: head's speed in units of base's, case by case, and how to repeat it."""

from __future__ import annotations

import math
import statistics
from typing import TYPE_CHECKING

from rich.table import Table

from flopwatch.compare.result import Kind
from flopwatch.model import WORKING_TREE, eps_of
from flopwatch.report.foreign import safe
from flopwatch.report.wording import count, grouped, several
from flopwatch.units import format_rate, format_seconds, short_commit

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console

    from flopwatch.compare.result import ComparedCase, Comparison, Contender, Speed

#: Operations a byte from which a case is told in TFLOPS, below it in GB/s. From A100 to B200 the arithmetic of 16-bit
#: matrices and the memory keep step at 150 to 300 (by their data sheets), so that less than 100 is bound by memory.
TFLOPS_FROM = 100.0


def print_compare(comparison: Comparison, console: Console) -> None:
    """Print a comparison."""
    console.print(safe(headline(comparison), "bold"), soft_wrap=True)
    if comparison.unfit:
        console.print(safe(f"why: {comparison.unfit}", indent=2), soft_wrap=True)
        console.print("  do:  flopwatch doctor tells when the machine is fit again; then repeat this", soft_wrap=True)
    for line in provenance(comparison):
        console.print(safe(line, "dim"), soft_wrap=True)
    timed = [case for case in comparison.cases if case.speed is not None]
    if timed and not comparison.unfit:  # --json has what was measured nevertheless
        console.print()
        console.print(_table(comparison, timed))
    for line in summary(comparison):
        console.print(safe(line), soft_wrap=True)
    console.print(safe(f"Repeat: {comparison.command}"), soft_wrap=True)


def headline(comparison: Comparison) -> str:
    """Say in one sentence how fast head is."""
    base, head = names(comparison)
    if comparison.unfit:
        return "The machine is unfit: what it measured is worth nothing."
    stopped = "Interrupted: what was measured until then says that " if comparison.interrupted else ""
    if comparison.speed is None:
        return "Interrupted before anything was measured." if stopped else "Nothing could be compared."
    timed = sum(case.speed is not None for case in comparison.cases)
    where = f"by the geometric mean of {timed} cases" if timed > 1 else "in 1 case"
    return f"{stopped}{head} has {speed(comparison.speed)} the speed of {base}, {where}."


def speed(found: Speed) -> str:
    """Write a speed and its interval as factors.

    >>> from flopwatch.compare.result import Speed
    >>> speed(Speed(estimate=0.05, lower=0.04, upper=0.06, pairs=8))
    '1.051x (1.041x to 1.062x)'
    >>> speed(Speed(estimate=-0.5, lower=None, upper=None, pairs=2))
    '0.607x (too few pairs for an interval)'
    """
    if found.lower is None or found.upper is None:
        return f"{_factor(found.estimate)} (too few pairs for an interval)"
    return f"{_factor(found.estimate)} ({_factor(found.lower)} to {_factor(found.upper)})"


def names(comparison: Comparison) -> tuple[str, str]:
    """Return what base and head are called in sentences."""
    return (comparison.base, comparison.head) if comparison.kind is Kind.PROVIDERS else ("base", "head")


def provenance(comparison: Comparison) -> Iterator[str]:
    """Yield what the sides are, on which machine, and for how long they were measured."""
    gpu = comparison.gpu
    if comparison.machine.gpu is not None and comparison.machine.gpu.driver:
        gpu += f", driver {comparison.machine.gpu.driver}"
    if comparison.kind is Kind.ENVIRONMENTS:
        yield gpu
        yield f"base: {comparison.base}: {_versions(comparison.base_versions)}"
        yield f"head: {comparison.head}: {_versions(comparison.head_versions)}"
    elif comparison.kind is Kind.COMMITS:
        sides = [short_commit(side) for side in (comparison.base, comparison.head)]
        yield f"{sides[0]} -> {sides[1]}; {gpu}; {_versions(comparison.machine.versions)}"
    else:
        yield f"{WORKING_TREE}; {gpu}; {_versions(comparison.machine.versions)}"
    if comparison.pairs:
        measured = format_seconds(sum(pair.seconds for pair in comparison.pairs))
        processes = "process" if comparison.kind is Kind.PROVIDERS else "pair of processes"
        yield (
            f"{count(len(comparison.pairs), 'repetition')}, each in a fresh {processes} in which both take turns;"
            f" {measured} of measuring, {format_seconds(comparison.seconds)} in all"
        )


def summary(comparison: Comparison) -> Iterator[str]:
    """Yield what the table does not say."""
    base, head = names(comparison)
    launches = [
        (case.base.launch_seconds, case.head.launch_seconds)
        for case in comparison.cases
        if case.base.launch_seconds is not None and case.head.launch_seconds is not None and not comparison.unfit
    ]
    if launches:
        costs = [format_seconds(statistics.median(side)) for side in zip(*launches, strict=True)]
        yield f"A call costs the host {costs[0]} with {base} and {costs[1]} with {head}, in the median case."
    about = [(case.reason, point(case)) for case in comparison.cases if case.reason]
    for reason, cases in grouped(about):
        yield f"not compared: {several(cases)}: {reason}"
    notes = [(note, point(case)) for case in comparison.cases for note in case.notes]
    for note, cases in grouped(notes):
        yield f"note: {several(cases)}: {note}"
    for note in comparison.notes:
        yield f"note: {note}"


def point(case: ComparedCase) -> str:
    """Return the name of a case but for its provider, which the columns name, or is the kernel under test."""
    return f"{case.head.case.suite}[{','.join(case.head.case.values[:-1])}]"


def _table(comparison: Comparison, cases: list[ComparedCase]) -> Table:
    base, head = names(comparison)
    table = Table(title="Time per call, in turns", title_justify="left")
    table.add_column("case", overflow="fold")
    for name in (base, head):
        table.add_column(safe(name), justify="right", no_wrap=True)
    table.add_column(safe(f"speed of {head} (99 % interval)"), justify="right")
    table.add_column("errors, in eps", justify="right")
    for case in cases:
        assert case.speed is not None  # noqa: S101 - chosen by the caller
        table.add_row(
            safe(point(case)),
            _time(case, case.base),
            _time(case, case.head),
            speed(case.speed) if case.speed.lower is not None else _factor(case.speed.estimate),
            f"{_error(case.base)}, {_error(case.head)}",
        )
    return table


def _time(case: ComparedCase, contender: Contender) -> str:
    if not contender.seconds:
        return ""
    return f"{format_seconds(contender.seconds)}, {rate(case, contender.seconds)}"


def rate(case: ComparedCase, seconds: float) -> str:
    """Return what a call does in a second, of what bounds it."""
    if case.flops >= TFLOPS_FROM * case.bytes_moved:
        return format_rate(case.flops / seconds, "TFLOPS")
    return format_rate(case.bytes_moved / seconds, "GB/s")


def _error(contender: Contender) -> str:
    return "" if contender.numbers is None else f"{eps_of(contender.numbers):.2f}"


def _factor(log_ratio: float) -> str:
    return f"{math.exp(log_ratio):.3f}x"


def _versions(versions: dict[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in versions.items())

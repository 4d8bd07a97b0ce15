"""A study in a terminal and as a table of numbers: what each line reaches at each point, and what is true of that."""

from __future__ import annotations

import csv
import io
import math
from typing import TYPE_CHECKING

from rich.table import Table

from flopwatch.gate.conclusions import Verdict
from flopwatch.model import eps_of
from flopwatch.report.compare import TFLOPS_FROM
from flopwatch.report.foreign import safe
from flopwatch.report.wording import count, effect, grouped, several
from flopwatch.units import format_rate, format_seconds

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console

    from flopwatch.study.result import Decision, Measured, StudyResult

_STYLES = {Verdict.HOLDS: "green", Verdict.FAILS: "red", Verdict.UNSURE: "yellow"}
_SCALES = {"TFLOPS": 1e12, "GB/s": 1e9}


def print_study(study: StudyResult, console: Console) -> None:
    """Print a study."""
    console.print(safe(headline(study), "bold"), soft_wrap=True)
    if study.unfit:
        console.print(safe(f"why: {study.unfit}", indent=2), soft_wrap=True)
        console.print("  do:  flopwatch doctor tells when the machine is fit again; then repeat this", soft_wrap=True)
    for line in provenance(study):
        console.print(safe(line, "dim"), soft_wrap=True)
    if timed(study) and not study.unfit:  # --json has what was measured nevertheless
        console.print()
        console.print(_table(study))
        for decision in study.decisions:
            console.print(safe(told(decision), _STYLES[decision.verdict]), soft_wrap=True)
        for line in error(study):
            console.print(safe(line), soft_wrap=True)
    for line in summary(study):
        console.print(safe(line), soft_wrap=True)
    console.print(safe(f"Repeat: {study.command}"), soft_wrap=True)


def headline(study: StudyResult) -> str:
    """Say in one sentence what came out."""
    if study.unfit:
        return "The machine is unfit: what it measured is worth nothing."
    measured = timed(study)
    if not measured:
        return "Interrupted before anything was measured." if study.interrupted else "Nothing could be measured."
    stopped = "Interrupted: what was measured until then says that " if study.interrupted else ""
    best = {at: min((each for each in measured if each.at == at), key=_seconds) for at in _points(study)}
    lines = [line for line, _ in grouped([(each.line, at) for at, each in best.items()])]
    where = count(len(best), "point") if len(best) > 1 else "the one point"
    if len(lines) == 1:
        return f"{stopped}{lines[0]} is the fastest of {len(study.lines)} lines at {where}, by the medians."
    several_lines = f"{len(lines)} of {len(study.lines)} lines are the fastest somewhere, by the medians"
    return f"{stopped}{several_lines}: {', '.join(lines)}."


def provenance(study: StudyResult) -> Iterator[str]:
    """Yield what was measured, on which machine, and for how long."""
    gpu = study.gpu
    if study.machine.gpu is not None and study.machine.gpu.driver:
        gpu += f", driver {study.machine.gpu.driver}"
    versions = ", ".join(f"{name} {version}" for name, version in study.versions.items())
    yield f"{study.suite} over {study.parameter}; working tree; {gpu}; {versions}"
    if study.rounds:
        measured = format_seconds(sum(found.seconds for found in study.rounds))
        yield (
            f"{count(len(study.rounds), 'round')}, each in a fresh process in which all lines take turns;"
            f" {measured} of measuring, {format_seconds(study.seconds)} in all"
        )


def told(decision: Decision) -> str:
    """Say whether a conclusion is true, and where it is closest to not being so."""
    why, speed = decision.reason, decision.speed
    if speed is not None:
        slower = (None if bound is None else -bound for bound in (speed.upper, speed.lower))
        why = f"at worst {effect(-speed.estimate, *slower)} than {decision.other}"
        why += f" at {decision.at}" if decision.at else ""
    return f"{decision.verdict.value}: {decision.conclusion.says}: {why}"


def error(study: StudyResult) -> Iterator[str]:
    """Yield how far the speeds in the table may be off."""
    speeds = [each.speed for each in timed(study) if each.speed is not None and each.line != study.base]
    widths = [(each.upper - each.lower) / 2 for each in speeds if each.upper is not None and each.lower is not None]
    if widths:
        widest = 100 * math.expm1(max(widths))
        yield f"Speeds are told to {widest:.2f} % or better, each with 99 %; --json has the bounds."
    if len(widths) < len(speeds):
        yield f"{count(len(speeds) - len(widths), 'speed')} of {len(speeds)}: too few rounds for an interval."


def summary(study: StudyResult) -> Iterator[str]:
    """Yield what the table does not say."""
    errors = [eps_of(each.numbers) for each in study.measured if each.numbers is not None and each.numbers.finite]
    if errors:
        yield f"Errors are {max(errors):.2f} eps at most."
    for reason, names in grouped([(each.reason, each.case.id) for each in study.measured if each.reason]):
        yield f"not measured: {several(names)}: {reason}"
    for note in study.notes:
        yield f"note: {note}"


def timed(study: StudyResult) -> list[Measured]:
    """Return what was measured."""
    return [each for each in study.measured if each.seconds is not None]


def unit(study: StudyResult) -> str:
    """Return what the numbers of a study are: TFLOPS, or GB/s where a case is bound by memory."""
    bound = any(each.flops < TFLOPS_FROM * each.bytes_moved for each in timed(study))
    return "GB/s" if bound else "TFLOPS"


def values(study: StudyResult) -> dict[str, dict[str, float]]:
    """Return what each line reaches at each point, in `unit`."""
    found: dict[str, dict[str, float]] = {}
    for each in timed(study):
        found.setdefault(each.line, {})[each.at] = _per_second(each, unit(study)) / _SCALES[unit(study)]
    return found


def table(study: StudyResult) -> str:
    """Write a comma-separated table, as triton's perf_report does: a row for each point, a column for each line."""
    reached, text = values(study), io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([study.across or "point", *(f"{line} ({unit(study)})" for line in reached)])
    for at in _points(study):
        numbers = (reached[line].get(at) for line in reached)
        writer.writerow([at, *("" if number is None else f"{number:.6g}" for number in numbers)])
    return text.getvalue()


def _table(study: StudyResult) -> Table:
    title = f"{unit(study)}, and the speed in units of {study.base}"
    found = Table(title=safe(title), title_justify="left")
    found.add_column(safe(study.parameter), overflow="fold")
    points = _points(study)
    for at in points:
        found.add_column(safe(at or "all"), justify="right", no_wrap=len(points) <= 6)  # noqa: PLR2004 - a usual width
    cells = {(each.line, each.at): _cell(each, study) for each in timed(study)}
    for line in dict.fromkeys(line for line, _ in cells):
        found.add_row(safe(line), *(cells.get((line, at), "") for at in points))
    return found


def _cell(each: Measured, study: StudyResult) -> str:
    reached = format_rate(_per_second(each, unit(study)), unit(study)).removesuffix(f" {unit(study)}")
    if each.speed is None or each.line == study.base:
        return reached
    return f"{reached} {math.exp(each.speed.estimate):.3f}x"


def _per_second(each: Measured, what: str) -> float:
    return (each.flops if what == "TFLOPS" else each.bytes_moved) / _seconds(each)


def _seconds(each: Measured) -> float:
    assert each.seconds is not None  # noqa: S101 - chosen by the caller
    return each.seconds


def _points(study: StudyResult) -> list[str]:
    there = {each.at for each in timed(study)}
    return [at for at in study.points if at in there]

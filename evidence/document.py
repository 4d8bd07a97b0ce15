"""Findings as tables: the generated parts of docs/evidence.md.

A part whose findings there are none is left empty.
"""

from __future__ import annotations

import math
import re
import shlex
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

from evidence.figures import plots
from evidence.goals import CLAIMS, CLASSES, DEVIATIONS, WALL_GOALS, Claim
from evidence.ledger import MARGINS, Ledger
from evidence.page import filled, table
from evidence.power import Detection, Power
from evidence.proportion import interval, lower_bound, percent, upper_bound
from evidence.replay import unseen_share
from evidence.rivals import Rivals
from evidence.samples import FOLDER
from evidence.wall_time import PLANS
from evidence.wall_time_records import STEPS, Run, WallTime, kept
from flopwatch.model import from_json
from flopwatch.units import format_seconds, short_commit

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from flopwatch.stats import Prior

T = TypeVar("T")
PAGE = FOLDER.parent / "docs" / "evidence.md"


@dataclass(frozen=True, kw_only=True, slots=True)
class Findings:
    """What was found in one recording, None where nobody looked yet, and what whole gates take, the newest first."""

    ledger: Ledger | None
    power: Power | None
    rivals: Rivals | None
    walls: tuple[WallTime, ...] = ()

    @classmethod
    def read(cls, folder: Path, stem: str) -> Findings:
        """Read the findings that are kept beside a recording."""
        return cls(
            ledger=_read(folder / f"{stem}.ledger.json", Ledger),
            power=_read(folder / f"{stem}.power.json", Power),
            rivals=_read(folder / f"{stem}.rivals.json", Rivals),
            walls=tuple(from_json(path.read_bytes(), WallTime) for path in kept(folder)),
        )


def _read(path: Path, record: type[T]) -> T | None:
    return from_json(path.read_bytes(), record) if path.exists() else None


def write(findings: Findings, page: Path = PAGE) -> None:
    """Write the generated parts of the page, and its plots beside it."""
    page.write_text(filled(page.read_text(encoding="utf-8"), blocks(findings)), encoding="utf-8")
    images = page.parent / "images"
    images.mkdir(exist_ok=True)
    for name, text in plots(findings.ledger, findings.power).items():
        (images / name).write_text(text, encoding="utf-8")


def blocks(findings: Findings) -> dict[str, str]:
    """Return the generated parts by name."""
    ledger, power, rivals = findings.ledger, findings.power, findings.rivals
    return {
        "origin": _origin(ledger) if ledger else "",
        "ledger": _ledger(ledger) if ledger else "",
        "levels": _levels(ledger) if ledger else "",
        "noise": _noise(ledger) if ledger else "",
        "power": _power(power) if power else "",
        "spins": _spins(power) if power else "",
        "cases": _cases(ledger, power) if ledger and power else "",
        "rivals": _rivals(findings) if ledger and power and rivals else "",
        "wall": _walls(findings.walls),
    }


def _origin(ledger: Ledger) -> str:
    origin = ledger.origin
    versions = ", ".join(f"{name} {version}" for name, version in origin.versions.items())
    text = (
        f"One {origin.gpu}, {origin.date}, driver {origin.driver}, {versions}: {origin.pairs} pairs of processes that\n"
        f"ran every case of commit {short_commit(origin.commit)} in turns, `evidence/h200/{origin.file}`, recorded by\n"
        f"\n```console\n$ {origin.command}\n```"
    )
    further = (
        f"What a pair errs by is told of {more.pairs} further pairs too, `evidence/h200/{more.file}`, of the cases that"
        f" were\nsampled there as they are now ({more.gpu}, {more.date}, commit {short_commit(more.commit)},"
        f" `{more.command}`). Runs draw none of"
        " them."
        for more in ledger.further
    )
    return "\n\n".join([text, *further])


def _ledger(ledger: Ledger) -> str:
    rows = []
    for clean in ledger.clean:
        series = sum(clean.marks.values())
        rows.append(
            (
                percent(clean.margin),
                f"{clean.runs}",
                f"**{clean.slower}**",
                percent(upper_bound(clean.slower, clean.runs)),
                f"{clean.faster}",
                percent(clean.marks.get("same", 0) / series),
                percent(clean.marks.get("unsure", 0) / series),
                f"{clean.pairs / clean.runs:.1f}",
                f"{clean.settle_pairs / clean.runs:.1f}",
                percent(clean.confirmed / clean.runs),
            )
        )
    heads = (
        "margin",
        "clean runs",
        "false reds",
        "at most, 95 %",
        "false fasters",
        "cases the same",
        "unsure",
        "pairs of all cases",
        "settling pairs",
        "runs with a stage 2",
    )
    prior, halves, used = ledger.prior, ledger.halves, ledger.design.prior
    return (
        f"{table(heads, rows, left=0)}\n\n"
        f"Each run decides {len(ledger.cases)} cases. It draws from {ledger.origin.pairs} recorded pairs, which is also"
        " how much independent\nevidence there is: errors that befall fewer than"
        f" {percent(unseen_share(ledger.origin.pairs))} of pairs may be missing from it. The bound of 0.1 %\n"
        "does not rest on the recording; it follows from the coins. Both sides of these pairs ran the same"
        " configurations: what\nbecomes of autotuned kernels whose sides chose differently is [settled"
        " before](decisions/0003-choices-take-turns.md).\n\n"
        f"A prior fitted to all pairs has {_prior(prior)}; to every second one and to the others,"
        f" {_prior(halves[0])} and\n{_prior(halves[1])}. The gate uses {_prior(used)} (`stats.PRIOR`)."
    )


def _levels(ledger: Ledger) -> str:
    rows = []
    for first in ledger.first:
        low, high = interval(first.flagged, first.runs)
        share = percent(first.flagged / first.runs)
        rows.append((first.scheme, f"{first.runs}", share, f"{percent(low)} to {percent(high)}"))
    heads = ("pairs drawn", "runs", "flagged by stage 1", "95 % interval")
    return f"{table(heads, rows, left=1)}\n\n![Smallest p-value of stage 1 in clean runs](images/evidence-levels.svg)"


def _noise(ledger: Ledger) -> str:
    lines = []
    for limit, from_us in DEVIATIONS:
        cases = [case for case in ledger.cases if case.time_us >= from_us]
        over = sorted((case for case in cases if case.deviation > limit), key=lambda case: -case.deviation)
        where = f"of the {len(cases)} cases from {from_us:g} µs up" if from_us else f"of all {len(cases)} cases"
        met = f"* {len(cases) - len(over)} {where} have a deviation of {percent(limit)} or less"
        names = ", ".join(f"{_name(case.case)} {percent(case.deviation)}" for case in over)
        lines.append(f"{met}; the others: {names}." if over else f"{met}.")
    launches = [case.launch_deviation for case in ledger.cases if case.launch_deviation is not None]
    if launches:
        middle = sorted(launches)[len(launches) // 2]
        lines.append(
            f"* What a call costs the host was measured of {len(launches)} cases; its deviation is {percent(middle)}"
            " in the middle."
        )
    lines += _alone(ledger)
    return "\n".join([*lines, "", "![Deviation of a pair by the time of a call](images/evidence-noise.svg)"])


def _alone(ledger: Ledger) -> list[str]:
    """Name the cases that a recording by itself has above a limit, though all of them together do not."""
    lines = []
    for limit, from_us in DEVIATIONS:
        over = sorted(
            (case for case in ledger.cases if case.time_us >= from_us and case.deviation <= limit < case.alone[0]),
            key=lambda case: -case.alone[0],
        )
        if over:
            names = ", ".join(f"{_name(case.case)} {percent(case.alone[0])}" for case in over)
            where = f", from {from_us:g} µs up" if from_us else ""
            lines.append(f"* One recording alone has more than {percent(limit)}{where}: {names}.")
    return lines


def _power(power: Power) -> str:
    rows = []
    for name, (low_us, high_us) in CLASSES.items():
        members = [index for index, time_us in enumerate(power.time_us) if low_us <= time_us < high_us]
        row = [f"{name} ({len(members)})"]
        for detection in power.detections:
            found = [detection.found[index] for index in members]
            mean = sum(found) / (len(found) * detection.runs) if found else math.nan
            row.append(f"{percent(mean)} ({percent(min(found) / detection.runs)})" if found else "")
        rows.append(tuple(row))
    heads = ["time of a call (cases)"]
    heads += [f"{percent(each.slowdown)}, margin {percent(each.margin)}" for each in power.detections]
    claims = "\n".join(_claim(power, claim) for claim in CLAIMS)
    return (
        f"Share of runs in which the planted slowdown was called slower, mean of the class (its worst case);\n"
        f"{power.detections[0].runs} runs of each case and slowdown, {power.audited} of them decided by `decide`"
        " itself as well, with the same answer.\n\n"
        f"{table(heads, rows, left=1)}\n\n{claims}\n\n![Detection](images/evidence-power.svg)"
    )


def _claim(power: Power, claim: Claim) -> str:
    detection = _detection(power, claim.margin, claim.slowdown)
    members = [index for index, time_us in enumerate(power.time_us) if time_us >= claim.from_us]
    missed = sorted((detection.found[index], index) for index in members)
    short = [(found, index) for found, index in missed if found < claim.share * detection.runs]
    proved = sum(lower_bound(found, detection.runs) >= claim.share for found, _ in missed)
    where = f"from {claim.from_us:g} µs up" if claim.from_us else "of any length"
    text = (
        f"* {percent(claim.slowdown)} with a margin of {percent(claim.margin)}, found in {percent(claim.share)} of"
        f" runs or more: {len(members) - len(short)} of {len(members)} cases {where}"
        f" ({proved} with 95 % confidence)"
    )
    if not short:
        return f"{text}."
    names = ", ".join(f"{_name(power.cases[index])} {percent(found / detection.runs)}" for found, index in short)
    return f"{text}. Not {names}."


def _spins(power: Power) -> str:
    if not power.spin_origins:
        return "No kernels that spin on a GPU have been recorded yet."
    rows = []
    shortest_us: dict[str, float] = {}
    for spin in power.spins:
        shortest_us[spin.case] = min(spin.time_us, shortest_us.get(spin.case, math.inf))
    for spin in sorted(power.spins, key=lambda spin: (shortest_us[spin.case], spin.asked)):
        low, high = interval(spin.found, spin.runs)
        rows.append(
            (
                _name(spin.case),
                format_seconds(spin.time_us * 1e-6),
                percent(spin.asked),
                percent(spin.calibrated),
                percent(spin.measured),
                percent(spin.margin),
                percent(spin.found / spin.runs),
                f"{percent(low)} to {percent(high)}",
            )
        )
    heads = ("case", "base", "asked", "calibrated", "measured", "margin", "found", "95 % interval")
    recorded = [
        f"One {origin.gpu}, {origin.date}, commit {short_commit(origin.commit)}: {origin.pairs} pairs of each slowdown,"
        f" `evidence/h200/{origin.file}`, recorded by\n\n```console\n$ {_typed(origin.command)}\n```"
        for origin in power.spin_origins
    ]
    fewest = min(origin.pairs for origin in power.spin_origins)
    drawn = (
        f"{len(shortest_us)} cases. A run draws the slowed case from the {fewest} pairs or more that were recorded of"
        f" it, again and again. The\nintervals tell of the draws; what befalls fewer than"
        f" {percent(unseen_share(fewest))} of pairs may be missing from all of them."
    )
    return "\n\n".join([*recorded, drawn, table(heads, rows, left=1)])


def _typed(command: str) -> str:
    """Put what follows -k into quotes where the recording kept the words without them, as until 2026-11-23.

    >>> _typed("record FILE -k Add[16 or Norm --pairs 3")
    "record FILE -k 'Add[16 or Norm' --pairs 3"
    >>> _typed("record FILE -k 'Add[16 or Norm' --pairs 3")
    "record FILE -k 'Add[16 or Norm' --pairs 3"
    """
    return re.sub(r"(?<= -k )([^'\"]+?)(?= --|$)", lambda words: shlex.quote(words[0]), command)


def _cases(ledger: Ledger, power: Power) -> str:
    rows = []
    unsure = next(clean for clean in ledger.clean if clean.margin == MARGINS[0])
    for index in sorted(range(len(ledger.cases)), key=lambda index: ledger.cases[index].time_us):
        case = ledger.cases[index]
        found = [f"{100 * each.found[index] / each.runs:.0f}" for each in power.detections]
        rows.append(
            (
                _name(case.case),
                format_seconds(case.time_us * 1e-6),
                f"{case.pairs}",
                percent(case.deviation),
                percent(case.largest),
                percent(math.expm1(case.detectable)) if math.isfinite(case.detectable) else "none",
                percent(unsure.unsure[index] / unsure.runs),
                *found,
            )
        )
    heads = ["case", "a call", "pairs", "deviation of a pair", "largest", "MDE", "unsure"]
    heads += [f"{percent(each.slowdown)} at {percent(each.margin)}" for each in power.detections]
    return table(heads, rows, left=1)


def _rivals(findings: Findings) -> str:
    ledger, power, rivals = findings.ledger, findings.power, findings.rivals
    if not (ledger and power and rivals):
        return ""
    rows = []
    for result in sorted(rivals.results, key=lambda result: not result.in_turns):
        low, high = interval(result.false_runs, result.runs)
        rows.append(
            (
                result.rule,
                "in turns" if result.in_turns else "apart",
                f"{percent(result.false_runs / result.runs)} ({percent(low)} to {percent(high)})",
                f"{result.false_cases / result.runs:.2g}",
                *(percent(found) for found in result.found),
            )
        )
    for clean in ledger.clean:
        found = []
        for slowdown in rivals.slowdowns:
            detection = next(
                (each for each in power.detections if (each.margin, each.slowdown) == (clean.margin, slowdown)), None
            )
            found.append(percent(sum(detection.found) / (detection.runs * len(detection.found))) if detection else "")
        low, high = interval(clean.slower, clean.runs)
        rows.append(
            (
                f"**flopwatch**, margin {percent(clean.margin)}",
                "in turns",
                f"{percent(clean.slower / clean.runs)} ({percent(low)} to {percent(high)})",
                f"{clean.marks.get('slower', 0) / clean.runs:.2g}",
                *found,
            )
        )
    heads = ["rule", "base and head", "runs with a false red", "false reds a run"]
    heads += [f"{percent(slowdown)} found" for slowdown in rivals.slowdowns]
    return (
        f"{table(heads, rows, left=2)}\n\n{rivals.results[0].runs} runs of each rule, with the samples of"
        f" {rivals.pairs} pairs a run; found: the share of all cases, each slowed in its turn."
    )


def _walls(walls: Sequence[WallTime]) -> str:
    """Tell the newest run of each name, each where and when it was timed, and how long those before it took."""
    if not walls:
        return "No gates have been timed from outside yet."
    parts: list[str] = []
    timed: dict[str, list[float]] = {}
    for run in (run for wall in walls for run in wall.runs):
        timed.setdefault(run.name, []).append(run.seconds)
    newest: set[str] = set()
    for wall in walls:
        runs = tuple(run for run in wall.runs if run.name not in newest)
        newest |= {run.name for run in runs}
        parts += [_wall(replace(wall, runs=runs), {run.name: timed[run.name][1:] for run in runs})] if runs else []
    missing = [name for name in PLANS if name not in timed]
    parts += [f"Not timed: {', '.join(missing)}."] if missing else []
    return "\n\n".join(parts)


def _wall(wall: WallTime, earlier: dict[str, list[float]]) -> str:
    rows = []
    for run in wall.runs:
        goal = WALL_GOALS.get(run.name)
        stages = ", ".join(f"{stage.pairs} of {_cases_in_words(stage.cases)}" for stage in run.stages)
        rows.append(
            (
                f"{run.what}, {'warm' if run.warm else 'cold'} caches",
                f"**{run.seconds:.1f} s**",
                ", ".join(f"{seconds:.1f} s" for seconds in earlier[run.name]),
                f"{goal.seconds:g} s, {'met' if _met(run) else 'missed'}" if goal else "",
                f"{sum(stage.seconds for stage in run.stages):.1f} s",
                stages or "none",
                f"{run.measured}",
                f"{run.identical}",
                ", ".join(f"{count} {mark}" for mark, count in run.marks.items()),
                f"{run.exit_code}",
            )
        )
    heads = (
        "gate",
        "wall",
        "earlier",
        "goal",
        "in pairs",
        "pairs",
        "cases measured",
        "identical",
        "marks",
        "exit code",
    )
    gpu = wall.machine.gpu
    versions = ", ".join(f"{name} {version}" for name, version in wall.machine.versions.items())
    commands = "\n".join(f"$ {command}" for command in wall.commands)
    origin = (
        f"One {gpu.name if gpu else 'machine without a GPU'}, {wall.date}, driver {gpu.driver if gpu else 'none'},"
        f" {versions}, {wall.machine.cpu_count} cores of\n{wall.machine.cpu_model}; commit {wall.commit[:12]}:\n\n"
        f"```console\n{commands}\n```"
    )
    parts = [
        origin,
        table(heads, rows, left=1),
        _steps([run for run in wall.runs if run.steps]),
        *(_beside_asv(run) for run in wall.runs),
    ]
    return "\n\n".join(filter(None, parts))


def _steps(runs: list[Run]) -> str:
    """Show what the wall time went into; the last step ends with the gate."""
    if not runs:
        return ""
    rows = []
    for run in runs:
        spent = {step.what: step.seconds for step in run.steps}
        times = [f"{spent[what]:.1f} s" if what in spent else "" for what in STEPS]
        rows.append((f"{run.what}, {'warm' if run.warm else 'cold'} caches", *times))
    return table(("gate", *STEPS), rows, left=1)


def _beside_asv(run: Run) -> str:
    if run.asv is None:
        return ""
    changed = run.marks.get("slower", 0) + run.marks.get("faster", 0)
    heads = ("on the same cases and commits", "wall", "cases compared", "called changed")
    rows = [
        ("`flopwatch gate`", f"{run.seconds:.1f} s", f"{run.measured}", f"{changed}"),
        ("`asv continuous`", f"{run.asv.seconds:.1f} s", f"{run.asv.compared}", f"{len(run.asv.changed)}"),
    ]
    lines = [
        f"* asv: `{change.benchmark}` from {change.before} to {change.after}, {change.ratio}"
        for change in run.asv.changed
    ]
    return "\n\n".join(filter(None, [table(heads, rows, left=1), "\n".join(lines)]))


def _met(run: Run) -> bool:
    """Tell whether a run took no longer than it may, and is what the goal speaks of."""
    goal = WALL_GOALS[run.name]
    meant = run.exit_code == goal.exit_code and goal.least <= run.measured <= goal.most
    return meant and run.seconds <= goal.seconds


def _cases_in_words(count: int) -> str:
    return f"{count} case{'s' * (count != 1)}"


def _detection(power: Power, margin: float, slowdown: float) -> Detection:
    return next(each for each in power.detections if (each.margin, each.slowdown) == (margin, slowdown))


def _prior(prior: Prior) -> str:
    return f"{prior.degrees:.1f} degrees and a deviation of {100 * prior.deviation:.3f} %"


def _name(case: str) -> str:
    """Shorten an identity: the provider is the same everywhere.

    >>> _name("Matmul[512x512x512,float16,flopwatch]")
    'Matmul 512x512x512 float16'
    """
    suite, _, values = case.rstrip("]").partition("[")
    return " ".join([suite, *values.split(",")[:-1]])

"""What is kept of whole gates that were timed, and of asv beside one."""

from __future__ import annotations

import collections
from dataclasses import dataclass
from typing import TYPE_CHECKING

from flopwatch.measure.machine import Machine

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from flopwatch.gate import GateResult


@dataclass(frozen=True, kw_only=True, slots=True)
class Stage:
    """Pairs of one stage that had as many cases, and the seconds that they took together."""

    name: str
    cases: int
    pairs: int
    seconds: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """The seconds from when a gate said that it does this until it said the next thing, or ended."""

    what: str
    seconds: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """A row of asv's table that it calls changed: "+" or "-", both times as asv prints them, and head's over base's."""

    mark: str
    before: str
    after: str
    ratio: str
    benchmark: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Asv:
    """What `asv continuous` took and said.

    Attributes:
        seconds: of wall time.
        exit_code: 1 where something is called slower.
        compared: benchmarks, one a case, that have a time of either commit.
        changed: those that it calls slower or faster.
    """

    seconds: float
    exit_code: int
    compared: int
    changed: tuple[Change, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """One gate.

    Attributes:
        name: its key in `PLANS`.
        what: it was run on.
        warm: whether a clean run of all cases had filled the caches before.
        seconds: of wall time, from the start of the interpreter to its end.
        exit_code: of the gate.
        measured: cases that were timed.
        identical: cases that were proved to run the same code.
        marks: cases by verdict.
        stages: pairs, in the order in which they were measured.
        asv: on the same commits and cases, right after; None where it was not asked.
        steps: what the wall time went into, in order; none in files that are older than this.
    """

    name: str
    what: str
    warm: bool
    seconds: float
    exit_code: int
    measured: int
    identical: int
    marks: dict[str, int]
    stages: tuple[Stage, ...]
    asv: Asv | None = None
    steps: tuple[Step, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class WallTime:
    """All runs on one commit and machine.

    Attributes:
        commit: that was cloned; its gate was run, and its kernels edited.
        date: of the last run.
        machine: GPU, driver, versions and processor.
        commands: that made the runs.
        runs: in the order of `PLANS`.
    """

    commit: str
    date: str
    machine: Machine
    commands: tuple[str, ...]
    runs: tuple[Run, ...]


def summed_up(result: GateResult, *, name: str, what: str, warm: bool, seconds: float, exit_code: int) -> Run:
    """Say what a gate did in the time that it took."""
    counts: collections.Counter[tuple[str, int]] = collections.Counter()
    taken: dict[tuple[str, int], float] = collections.defaultdict(float)
    for pair in result.pairs:
        key = (pair.stage, len({*pair.log_ratios, *pair.faults}))
        counts[key] += 1
        taken[key] += pair.seconds
    marks = collections.Counter(verdict.mark.value if verdict.mark else "not compared" for verdict in result.verdicts)
    return Run(
        name=name,
        what=what,
        warm=warm,
        seconds=seconds,
        exit_code=exit_code,
        measured=sum(verdict.time is not None for verdict in result.verdicts),
        identical=sum(verdict.identical for verdict in result.verdicts),
        marks=dict(sorted(marks.items())),
        stages=tuple(
            Stage(name=stage, cases=cases, pairs=pairs, seconds=taken[stage, cases])
            for (stage, cases), pairs in counts.items()
        ),
    )


#: What a gate says when it begins something (`flopwatch.gate.run`), by the first words of the line.
STEPS = ("starting", "checking out", "compiling", "checking numbers", "measuring")


def steps_of(told: Sequence[tuple[float, str]], seconds: float) -> tuple[Step, ...]:
    r"""Find the steps in the lines of a gate, each with the second in which it came; the gate took so long.

    The first step is to start; what is told of a step, such as how far it is, begins none.

    >>> steps_of([(0.5, "checking out 1a2b\n"), (1.0, "compiling for h200\n"), (4.0, "3 of 4\n")], 5.0)
    (Step(what='starting', seconds=0.5), Step(what='checking out', seconds=0.5), Step(what='compiling', seconds=4.0))
    """
    begun = [(0.0, STEPS[0])]
    for second, line in told:
        begun += [(second, words) for words in STEPS[1:] if line.startswith(words)]
    ends = [second for second, _ in begun[1:]] + [seconds]
    found: dict[str, float] = {}
    for (second, what), end in zip(begun, ends, strict=True):
        found[what] = found.get(what, 0.0) + end - second
    return tuple(Step(what=what, seconds=spent) for what, spent in found.items())


def read_table(text: str) -> tuple[int, tuple[Change, ...]]:
    r"""Read the table at the end of what `asv continuous` prints: how many rows have two times, and what changed.

    >>> read_table(
    ...     "| Change | Before [a] <main> | After [b] <clean> | Ratio | Benchmark (Parameter) |\n"
    ...     "|--------|-------------------|------------------|-------|-----------------------|\n"
    ...     "|        | 4.10±0.02μs       | 4.45±0.02μs      | 1.09  | matmul.track_time(1)  |\n"
    ...     "|        | n/a               | n/a              | n/a   | matmul.track_time(2)  |\n"
    ... )
    (1, ())
    """
    rows = [
        Change(mark=mark, before=before, after=after, ratio=ratio, benchmark=benchmark)
        for line in text.splitlines()
        if line.startswith("| ")
        for mark, before, after, ratio, benchmark in [[cell.strip() for cell in line.split("|")[1:6]]]
        if mark != "Change" and ratio != "n/a"
    ]
    return len(rows), tuple(row for row in rows if row.mark)


def kept(folder: Path) -> list[Path]:
    """Return the kept files of wall times, the newest first; their names end with the date, or date and time."""
    return sorted(folder.glob("wall-*.json"), key=lambda path: path.stem, reverse=True)

"""The steps of a study: which lines there are, what they return and keep, how long they take, and what follows."""

from __future__ import annotations

import contextlib
import secrets
import shlex
import statistics
import time
from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeVar

from flopwatch.checkout import checkout
from flopwatch.compare.pairs import speed_of
from flopwatch.compare.run import PAIRS
from flopwatch.config import load_config
from flopwatch.errors import MachineError, UsageError
from flopwatch.gate.pairs import MAX_FAILURES, Observer
from flopwatch.gate.sides import Arm, Sides
from flopwatch.measure import fitness
from flopwatch.measure.client import CaseFailed, Mode, side_by_side
from flopwatch.measure.machine import Snapshot, read_machine, usable_cores
from flopwatch.measure.nvml import Watch, require_gpu
from flopwatch.measure.protocol import Method, Plan
from flopwatch.model import Case, eps_of
from flopwatch.report.wording import count
from flopwatch.static.devices import find_device
from flopwatch.study.decisions import decide, log_ratios
from flopwatch.study.declaration import FOLDER
from flopwatch.study.lines import Layout, Spot, lay_out
from flopwatch.study.result import Measured, Round, StudyResult
from flopwatch.study.turns import take_turns

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from flopwatch.config import Config
    from flopwatch.measure.client import Worker
    from flopwatch.measure.protocol import Hello

T = TypeVar("T")
#: Workers that wait for their round, at most: each holds half a GiB of the GPU's memory.
MOST_AHEAD = 8


@dataclass(frozen=True, kw_only=True, slots=True)
class StudyOptions:
    """What the user asked for.

    Attributes:
        study: a study's name; "" takes a suite instead.
        parameter: whose values take turns; "" is as the study declares.
        select: only cases whose name has this in it.
        rounds: fresh processes.
    """

    study: str = ""
    parameter: str = ""
    select: str = ""
    rounds: int = PAIRS


def run_study(options: StudyOptions, root: Path, *, observer: Observer | None = None) -> StudyResult:
    """Let the values of a parameter take turns on a GPU.

    Args:
        options: which.
        root: the repository.
        observer: is told how far the run is.

    Raises:
        FlopwatchError: nothing could be measured.
    """
    start = time.monotonic()
    observer = observer or Observer()
    config = load_config(root)
    if options.study:
        config = replace(config, benchmarks=f"{config.benchmarks}/{FOLDER}")
        if not (root / config.benchmarks).is_dir():
            raise UsageError(f"there are no studies in {config.benchmarks}", todo="see docs/studies/index.md")
    try:
        require_gpu(_no_gpu)
    except MachineError:
        _require_layout(options, config, root)
        raise
    with checkout(None, config, root=root) as tree:
        sides = Sides(config, device=find_device(config.device).key, base_tree=tree, head_tree=tree)
        with sides:
            sides.start_nurseries()
            with sides.worker(Mode.GPU, Arm.HEAD) as worker:
                hello = worker.hello
            layout = _layout(options, hello)
            if hello.gpu_uuid is None:
                raise _no_gpu("torch finds none")
            with Watch(hello.gpu_uuid) as watch:
                machine = read_machine(watch.gpu(), hello.versions)
                fitness.require(fitness.before(watch.gpu(), watch.snapshot()))
                observer.step(f"checking numbers of {count(len(layout.spots), 'case')}")
                measured = checked(sides, layout.spots, config.max_diff_eps)
                rounds = Rounds(sides=sides, watch=watch, observer=observer, measured=measured)
                rounds.measure(options.rounds)
            measured = rounds.timed(layout.base)
            return StudyResult(
                suite=layout.suite,
                parameter=layout.declaration.line,
                across=layout.across,
                lines=layout.lines,
                points=layout.points,
                base=layout.base,
                gpu=hello.gpu or "",
                machine=machine,
                versions=hello.versions,
                measured=measured,
                rounds=tuple(rounds.taken),
                decisions=tuple(
                    decide(conclusion, measured, rounds.taken, layout.points)
                    for conclusion in layout.declaration.conclusions
                ),
                command=_command(options, layout),
                unfit=rounds.unfit(),
                interrupted=rounds.interrupted,
                seconds=time.monotonic() - start,
                notes=(*sides.notes, *rounds.notes(), *leaks(measured)),
            )


def leaks(measured: Iterable[Measured]) -> tuple[str, ...]:
    """Name the lines that keep memory at every call."""
    return tuple(
        f"{each.line} keeps {each.memory.growth_bytes:g} bytes of torch's memory at every call ({each.case.id})"
        for each in measured
        if each.memory is not None and each.memory.growth_bytes > 0
    )


def _layout(options: StudyOptions, hello: Hello) -> Layout:
    return lay_out(hello, suite=options.study, parameter=options.parameter, select=options.select)


def _require_layout(options: StudyOptions, config: Config, root: Path) -> None:
    """Look without a GPU whether there is such a study: a name that is wrong here is wrong where there is one, too."""
    sides = Sides(config, device=find_device(config.device).key, base_tree=root, head_tree=root)
    with sides, sides.worker(Mode.STATIC, Arm.HEAD) as worker:
        _layout(options, worker.hello)


def _no_gpu(why: str) -> MachineError:
    return MachineError(
        "flopwatch compare needs a GPU",
        why=why,
        todo="flopwatch doctor tells what is missing; flopwatch static tells what launches move without one",
    )


def checked(sides: Sides, spots: Sequence[Spot], ceiling_eps: float, *, arm: Arm = Arm.HEAD) -> tuple[Measured, ...]:
    """Tune every case, hold it against its reference on one seed, and each line's first for what it keeps."""
    seen: set[str] = set()
    found = []
    with sides.worker(Mode.GPU, arm) as worker:
        for spot in spots:
            declared = spot.declared
            each = Measured(
                case=declared.case,
                line=spot.line,
                at=spot.at,
                flops=declared.flops,
                bytes_moved=declared.bytes_moved,
                ceiling_eps=ceiling_eps if declared.max_diff_eps is None else declared.max_diff_eps,
            )
            found.append(_with_numbers(worker, each, first=spot.line not in seen))
            seen.add(spot.line)
    return tuple(found)


def _with_numbers(worker: Worker, each: Measured, *, first: bool) -> Measured:
    try:
        choices = worker.tune(each.case)
        numbers = worker.numbers(each.case, seed=1, pins=choices)
        memory = worker.memory(each.case, choices) if first else None
    except CaseFailed as error:
        failure = error.failure
        return replace(each, reason=f"fails ({failure.kind}: {failure.message.splitlines()[0]})")
    each = replace(each, choices=choices, numbers=numbers, memory=memory)
    if not numbers.finite:
        return replace(each, reason="returns NaN or infinity")
    if eps_of(numbers) > each.ceiling_eps:
        return replace(each, reason=f"is wrong: error {eps_of(numbers):.3g} eps, ceiling {each.ceiling_eps:g}")
    return each


@dataclass(kw_only=True)
class Rounds:
    """The rounds of a study: in each a fresh process, in which the lines of every point take turns.

    Attributes:
        sides: start the workers.
        watch: reads the GPU.
        observer: is told how far this is.
        measured: what is measured, but for what was found out before that it cannot be.
        arm: whose code runs.
        processes: all workers; of rounds that alternate with others, those of these as well.
        taken: the rounds.
        interrupted: the measuring was stopped.
        lost: why the GPU no longer answers; "" while it does.
    """

    sides: Sides
    watch: Watch
    observer: Observer
    measured: tuple[Measured, ...]
    arm: Arm = Arm.HEAD
    processes: set[int] = field(default_factory=set)
    taken: list[Round] = field(default_factory=list)
    interrupted: bool = False
    lost: str = ""
    _plans: dict[str, Plan] = field(default_factory=dict)
    _failures: dict[Case, list[str]] = field(default_factory=lambda: defaultdict(list))
    _snapshots: list[Snapshot] = field(default_factory=list)

    def measure(self, rounds: int) -> None:
        """Measure what can be, as far as one gets."""
        able = sum(not each.reason for each in self.measured)
        if not able:
            return
        self.observer.step(f"measuring {able} cases in {rounds} rounds")
        try:
            take_rounds([self], rounds, self.observer)
        except KeyboardInterrupt:
            self.interrupted = True
        except MachineError as error:
            self.lost = str(error.what)

    def worker(self) -> Worker:
        """Return what a round needs."""
        return self.sides.worker(Mode.GPU, self.arm)

    def take(self, worker: Worker) -> None:
        """Measure one more round in a worker of its own, which ends with it."""
        try:
            self.taken.append(self._round(worker))
        finally:
            worker.close()

    def timed(self, base: str) -> tuple[Measured, ...]:
        """Add what the rounds say, in units of the base line."""
        bases = {each.at: each.case.id for each in self.measured if each.line == base}
        return tuple(self._timed(each, bases.get(each.at, "")) for each in self.measured)

    def unfit(self) -> str:
        """Return why none of this can be trusted; "" where it can."""
        number = sum(len(found.turns) for found in self.taken)
        faults = fitness.over_run(self._snapshots, ours=self.processes, invalid=0, measured=number)
        return self.lost or fitness.describe(faults)

    def notes(self) -> tuple[str, ...]:
        """Say what was lost in some rounds, and what could not be captured."""
        lost = defaultdict(list)
        for found in self.taken:
            for at, cause in found.faults.items():
                lost[at].append(cause)
        notes = [
            f"{at or 'everything'}: lost in {len(causes)} of {len(self.taken)} rounds ({causes[-1]})"
            for at, causes in lost.items()
        ]
        for each in self.measured:
            times = sum(each.case.id in found.turns for found in self.taken)
            if times and (causes := self._failures[each.case]):
                notes.append(f"{each.case.id}: measured in {times} of {len(self.taken)} rounds ({causes[-1]})")
        uncaptured = [at or "everything" for at, plan in self._plans.items() if plan.method is Method.EVENTS]
        if uncaptured:
            where = ", ".join(uncaptured)
            notes.append(f"not captured into a graph, so timed as the host enqueues them: all lines at {where}")
        return tuple(notes)

    def _round(self, worker: Worker) -> Round:
        start = time.monotonic()
        points = list(dict.fromkeys(each.at for each in self.measured))
        turns: dict[str, tuple[float, ...]] = {}
        faults: dict[str, str] = {}
        for at in _shuffled(points):
            pins = {each.case: each.choices for each in self.measured if each.at == at and self._is_able(each)}
            if not pins:
                continue
            try:
                found = take_turns(worker, pins, plan=self._plans.get(at))
            except CaseFailed as error:
                faults[at] = str(error).splitlines()[0]
            else:
                if found.seconds:  # else nothing chose the plan
                    self._plans[at] = found.plan
                turns |= {case.id: tuple(seconds) for case, seconds in found.seconds.items()}
                for case, cause in found.failures.items():
                    self._failures[case].append(cause)
            if worker.pid is not None:
                self.processes.add(worker.pid)
            self._snapshots.append(self.watch.snapshot())
        return Round(seconds=time.monotonic() - start, turns=turns, faults=faults)

    def _is_able(self, each: Measured) -> bool:
        return not each.reason and len(self._failures[each.case]) < MAX_FAILURES

    def _timed(self, each: Measured, base: str) -> Measured:
        own: Sequence[float] = [
            statistics.median(found.turns[each.case.id]) for found in self.taken if found.turns.get(each.case.id)
        ]
        if not own:
            causes = self._failures[each.case] or [
                found.faults[each.at] for found in self.taken if each.at in found.faults
            ]
            reason = each.reason or (f"fails while it is measured ({causes[-1]})" if causes else "")
            return replace(each, reason=reason)
        return replace(
            each,
            seconds=statistics.median(own),
            speed=speed_of([-ratio for ratio in log_ratios(self.taken, each.case.id, base)]),
            method=self._plans[each.at].method.value,
        )


def take_rounds(which: Sequence[Rounds], number: int, observer: Observer) -> None:
    """Take so many rounds of each, in turns whose order is drawn anew.

    Workers of a few rounds start side by side, which takes each a second or, as a new interpreter, four; then one after
    the other measures, while the others wait.
    """
    ahead = max(min(usable_cores(), MOST_AHEAD) // len(which), 1)
    for done in range(0, number, ahead):
        turns = [one for _ in range(done, min(done + ahead, number)) for one in _shuffled(which)]
        with contextlib.ExitStack() as stack:
            workers = [stack.enter_context(one.worker()) for one in turns]
            side_by_side(lambda worker: worker.wake(), workers)
            for turn, (one, worker) in enumerate(zip(turns, workers, strict=True)):
                one.processes.update(other.pid for other in workers if other.pid is not None)
                observer.pairs(done + turn // len(which), number)
                one.take(worker)
    observer.pairs(number, number)


def _shuffled(values: Sequence[T]) -> list[T]:
    return secrets.SystemRandom().sample(list(values), len(values))


def _command(options: StudyOptions, layout: Layout) -> str:
    words = ["flopwatch", "compare"]
    words += ["--study", options.study] if options.study else []
    words += ["--parameter", layout.declaration.line] if options.parameter or not options.study else []
    words += ["-k", options.select] if options.select else []
    words += ["--pairs", str(options.rounds)] if options.rounds != PAIRS else []
    return shlex.join(words)

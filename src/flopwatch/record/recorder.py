"""One commit after the other: its workers, its cases, and each of them saved as it ends."""

from __future__ import annotations

import contextlib
import datetime as dt
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from flopwatch.asv.anchored import RATIO
from flopwatch.asv.failures import KeptFailure
from flopwatch.checkout import checkout
from flopwatch.config import Config
from flopwatch.errors import FlopwatchError, MachineError, UsageError
from flopwatch.gate.pairs import Observer
from flopwatch.gate.sides import Arm, Sides
from flopwatch.measure import fitness
from flopwatch.measure.client import CaseFailed, Mode
from flopwatch.measure.machine import Machine, Snapshot
from flopwatch.measure.nvml import Watch
from flopwatch.measure.protocol import Method, Plan
from flopwatch.model import Case, Choice, Failure
from flopwatch.record.ahead import can_compile_ahead, compile_ahead
from flopwatch.record.checkouts import Checkouts
from flopwatch.record.measuring import Measured, OnGpu, WithoutGpu
from flopwatch.record.result import RecordedCommit, RecordOptions
from flopwatch.record.sidecar import CaseLog, Line, SessionLog, append
from flopwatch.record.store import CommitFile, Series, Store
from flopwatch.suite import METRICS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flopwatch.measure.client import Worker
    from flopwatch.measure.protocol import Hello

#: The least that a worker can be asked to prepare.
UNCAPTURED = Plan(method=Method.EVENTS, calls=1, input_sets=1)


@dataclass(frozen=True, kw_only=True, slots=True)
class Site:
    """What every commit is measured with.

    Attributes:
        root: the repository.
        config: its settings.
        store: where results go.
        options: what the user asked for.
        device: the GPU to compile for.
        suites: a copy of the working tree's benchmarks folder.
        anchor: the hash of the anchor; "" without one.
        anchor_tree: its checkout.
        observer: is told how far this is.
        toss: a fair coin.
    """

    root: Path
    config: Config
    store: Store
    options: RecordOptions
    device: str
    suites: Path
    anchor: str
    anchor_tree: Path | None
    observer: Observer
    toss: Callable[[], bool]

    def checkouts(self, tree: Path) -> Checkouts:
        """Return a commit's checkout beside the anchor's."""
        return Checkouts(
            self.config,
            device=self.device,
            suites=self.suites,
            tree=tree,
            anchor_tree=self.anchor_tree,
            python=self.store.python,
        )


@dataclass(kw_only=True)
class Tally:
    """What is done of one commit; it grows while the commit is measured, so that an interrupt loses none of it.

    Attributes:
        file: where it is saved.
        commit: its hash.
        before: cases that were recorded before.
        processes: that the whole recording has had on the GPU; the driver may list one for a while after its end.
        cases: measured now.
        failures: of them.
        snapshots: of the GPU, one a case.
        started_s: on the monotonic clock.
        ended_s: likewise; None while it is measured.
    """

    file: CommitFile
    commit: str
    before: int
    processes: set[int]
    cases: int = 0
    failures: list[KeptFailure] = field(default_factory=list)
    snapshots: list[Snapshot] = field(default_factory=list)
    started_s: float = field(default_factory=time.monotonic)
    ended_s: float | None = None

    def record(self) -> RecordedCommit:
        """Sum it up."""
        faults = fitness.over_run(self.snapshots, ours=self.processes, invalid=0, measured=self.cases)
        ended_s = time.monotonic() if self.ended_s is None else self.ended_s
        return RecordedCommit(
            commit=self.commit,
            path=str(self.file.path),
            cases=self.cases,
            before=self.before,
            failures=tuple(self.failures),
            unfit=fitness.describe(faults),
            seconds=ended_s - self.started_s,
        )


@dataclass(kw_only=True)
class Recorder:
    """Measures commits.

    Attributes:
        site: what they are measured with.
        series: the suites, by name.
        wanted: the cases that are to be recorded.
        watch: reads the GPU; None without one.
        machine: what measures.
        tallies: of the commits so far.
        notes: what else is worth knowing.
        processes: that were on the GPU.
    """

    site: Site
    series: dict[str, Series]
    wanted: tuple[Case, ...]
    watch: Watch | None
    machine: Machine
    tallies: list[Tally]
    notes: list[str]
    processes: set[int] = field(default_factory=set)

    def left(self, file: CommitFile) -> list[Case]:
        """Return the cases that are not recorded yet."""
        return [case for case in self.wanted if not file.has(self.series[case.suite], case, self.site.anchor)]

    def is_recorded(self, commit: str) -> bool:
        """Tell whether a commit has a complete result."""
        store = self.site.store
        # Most commits of a long history have no file, and git takes milliseconds to tell the date of one.
        return store.path(commit).is_file() and not self.left(store.commit(commit))

    def record(self, commits: Sequence[str]) -> None:
        """Record what is left of each commit.

        Raises:
            MachineError: the GPU is unfit, or was lost; what was saved before is sound.
            UsageError: the anchor cannot be measured.
        """
        fit = self.watch is None
        for number, commit in enumerate(commits, 1):
            file = self.site.store.commit(commit)
            left = list(self.wanted) if self.site.options.again else self.left(file)
            before = len(self.wanted) - len(left)
            tally = Tally(file=file, commit=commit, before=before, processes=self.processes)
            if left and not fit and self.watch is not None:
                fitness.require(fitness.before(self.watch.gpu(), self.watch.snapshot()))
                fit = True
            self.tallies.append(tally)
            if left:
                self.site.observer.step(
                    f"{commit[:8]}, {number} of {len(commits)}: {len(left)} of {len(self.wanted)} cases"
                )
                append(file.sidecar, Line(session=SessionLog(at=_now(), machine=self.machine)))
                self._record(tally, left)
            tally.ended_s = time.monotonic()

    def _record(self, tally: Tally, left: Sequence[Case]) -> None:
        with contextlib.ExitStack() as stack:
            tree = stack.enter_context(checkout(tally.commit, self.site.config, root=self.site.root))
            sides = stack.enter_context(self.site.checkouts(tree))
            if self.site.anchor:
                sides.start_nurseries()
            static = stack.enter_context(sides.worker(Mode.STATIC, Arm.HEAD))
            runner = stack.enter_context(sides.worker(Mode.INTERPRET if self.watch is None else Mode.GPU, Arm.HEAD))
            try:
                hello = (static if self.watch is None else runner).hello
            except FlopwatchError as error:
                failure = Failure(kind="SuiteFailed", message=error.why or error.what, traceback=error.todo)
                for case in left:
                    self._save(tally, case, self._all_missing(case, failure))
                return
            declared = {entry.case: entry for entry in hello.declared}
            own = [case for case in left if case in declared and declared[case].own]
            if self.watch is not None and can_compile_ahead(hello, self.site.device, own):
                arms = tuple(Arm) if self.site.anchor else (Arm.HEAD,)
                compile_ahead(sides, arms, own, self.site.observer)
            bench, workers = self._bench(sides, static, runner, hello, stack)
            for case in left:
                start = time.monotonic()
                entry = declared.get(case)
                measured = bench.measure(entry) if entry else self._all_missing(case, self._import_failure(case, hello))
                is_own = entry is not None and entry.own
                is_compiled = is_own and not isinstance(measured.values.get("registers"), Failure)
                compiled = compiled_configs(static, case) if is_compiled else ()
                has_run = is_own and isinstance(measured.values.get("time"), dict)
                choices = tuner_choices(runner, case) if has_run else None
                self.processes |= {worker.pid for worker in workers if worker.pid is not None}
                seconds = time.monotonic() - start
                self._save(tally, case, measured, compiled=compiled, choices=choices, seconds=seconds)
            self.notes += sides.notes

    def _bench(
        self, sides: Sides, static: Worker, runner: Worker, hello: Hello, stack: contextlib.ExitStack
    ) -> tuple[OnGpu | WithoutGpu, list[Worker]]:
        """Return what measures a case, and the workers that it has on the GPU."""
        if self.watch is None:
            return WithoutGpu(static, runner, max_diff_eps=self.site.config.max_diff_eps), []
        if hello.gpu_uuid is None:
            raise gpu_gone(self.site.store.gpu)
        anchor = None
        if self.site.anchor:
            anchor = stack.enter_context(sides.worker(Mode.GPU, Arm.BASE))
            self._check_anchor(anchor)
        bench = OnGpu(runner, static, anchor=anchor, watch=self.watch, toss=self.site.toss)
        return bench, [runner, *([anchor] if anchor else [])]

    def _check_anchor(self, anchor: Worker) -> None:
        try:
            causes = anchor.hello.import_failures
        except FlopwatchError as error:
            causes = {"it": error.why or error.what}
        if causes:
            raise UsageError(
                f"the anchor {self.site.anchor[:8]} cannot be measured",
                why="; ".join(f"{name}: {cause}" for name, cause in causes.items()),
                todo="choose an anchor that has every kernel of the suites, or record without one",
            )

    def _all_missing(self, case: Case, failure: Failure) -> Measured:
        """Return that nothing of a case is known."""
        values: dict[str, object] = dict.fromkeys(METRICS, failure)
        if self._is_paired(case):
            values[RATIO] = failure
        return Measured(values=values)

    def _import_failure(self, case: Case, hello: Hello) -> Failure:
        """Say why a commit does not know a case of the suites."""
        module = f"{self.site.suites.name}.{self.series[case.suite].module}"
        causes = hello.import_failures
        message = causes.get(module) or "; ".join(f"{name}: {cause}" for name, cause in causes.items())
        return Failure(kind="SuiteFailed", message=message or "its suite does not declare it at this commit")

    def _is_paired(self, case: Case) -> bool:
        """Tell whether the case is measured against the anchor: peers are the same code in both checkouts."""
        return bool(self.site.anchor) and case.provider == self.series[case.suite].own_provider

    def _save(
        self,
        tally: Tally,
        case: Case,
        measured: Measured,
        *,
        compiled: tuple[Choice, ...] = (),
        choices: tuple[Choice, ...] | None = None,
        seconds: float = 0.0,
    ) -> None:
        """Save a case, with its causes and the state of the GPU.

        Raises:
            MachineError: the GPU no longer answers: what failed is not the commit's fault, and is not saved.
        """
        snapshot = self.watch.snapshot() if self.watch is not None else None
        series = self.series[case.suite]
        log = CaseLog(
            case=case.id,
            version=series.version,
            at=_now(),
            seconds=seconds,
            missing=measured.missing,
            compiled=compiled,
            choices=choices,
            anchor=self.site.anchor if self._is_paired(case) else "",
            anchor_seconds=measured.anchor_seconds,
            pair_seconds=measured.pair_seconds,
            commit_slot=measured.commit_slot,
            snapshot=snapshot,
        )
        tally.file.save(series, case, measured.values, log, samples=self.site.options.samples)
        tally.cases += 1
        tally.failures += [
            KeptFailure(case=case.id, metrics=missing.metrics, failure=missing.failure) for missing in measured.missing
        ]
        if snapshot is not None:
            tally.snapshots.append(snapshot)


def compiled_configs(static: Worker, case: Case) -> tuple[Choice, ...]:
    """Return in which configurations a case's kernels were compiled; empty where they were not.

    The static facts are their sums. Asking again compiles nothing, because what was compiled is kept.
    """
    try:
        facts = static.facts(case)
    except CaseFailed:
        return ()
    return tuple(
        Choice(kernel=fact.kernel, config=fact.config, key=fact.variant)
        for fact in facts
        if fact.chosen and fact.failure is None
    )


def tuner_choices(runner: Worker, case: Case) -> tuple[Choice, ...] | None:
    """Return what the tuners of a case chose when it was measured; None where it cannot be prepared once more.

    The process remembers its choices, so that nothing is tuned anew: a single call, not even captured, tells them.
    """
    try:
        choices = runner.prepare(case, UNCAPTURED).choices
        runner.release(case)
    except CaseFailed:
        return None
    return tuple(replace(choice, timings_us={}) for choice in choices)


def gpu_gone(name: str | None) -> MachineError:
    """Say that the GPU by which asv labels the results is not there any more."""
    return MachineError(
        f"the {name} is gone",
        why="it was there when the recording started, and torch finds none now",
        todo="flopwatch doctor tells what is missing",
    )


def _now() -> dt.datetime:
    return dt.datetime.now(tz=dt.UTC)

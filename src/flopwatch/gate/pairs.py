"""Pairs of processes of the two arms: which slot is head is a coin's to say, and everything measured is kept."""

from __future__ import annotations

import abc
import concurrent.futures
import contextlib
import math
import secrets
import statistics
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeAlias

from flopwatch.gate.result import CaseVerdict, PairLog
from flopwatch.gate.sides import Arm, Sides
from flopwatch.measure import fitness
from flopwatch.measure.client import CaseFailed, Mode, Worker, side_by_side
from flopwatch.measure.machine import Snapshot
from flopwatch.measure.nvml import Watch
from flopwatch.measure.pair import PairSample, sample_pair
from flopwatch.measure.protocol import Method, Plan
from flopwatch.model import Case, Choice

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

#: A case that failed in so many pairs is not measured further, and is tried so often on either side by itself.
MAX_FAILURES = 2
FAILURE_TRIALS = 5

#: Who is slot 0, and who slot 1.
Arms: TypeAlias = tuple[Arm, Arm]


class Observer:
    """Is told how far the run is; does nothing with it."""

    def step(self, line: str) -> None:
        """Hear what is done next."""

    def pairs(self, done: int, planned: int) -> None:
        """Hear how many pairs are done of those that this stage needs."""

    def cases(self, done: int, planned: int) -> None:
        """Hear how many cases are compiled of those that there are."""


class Relay(contextlib.AbstractContextManager["Relay"]):
    """Lets the workers of a pair end while those of the next one start: CUDA takes its time for both.

    Nothing is measured before the last process of the pair before is gone.
    """

    def __init__(self) -> None:
        self._pool = concurrent.futures.ThreadPoolExecutor(1)
        self._ending: concurrent.futures.Future[None] | None = None

    @contextlib.contextmanager
    def workers(self, fresh: Sequence[Worker]) -> Iterator[Sequence[Worker]]:
        """Start the workers of a pair; what goes wrong while they are in use ends them at once."""
        with contextlib.ExitStack() as stack:
            for worker in fresh:
                stack.enter_context(worker)
            side_by_side(lambda worker: worker.wake(), fresh)
            self._wait()
            yield fresh
            self._ending = self._pool.submit(stack.pop_all().close)  # slot 1 first, which has borrowed from slot 0

    def _wait(self) -> None:
        ending, self._ending = self._ending, None
        if ending is not None:
            ending.result()

    def __exit__(self, *_: object) -> None:
        try:
            self._wait()
        finally:
            self._pool.shutdown()


@dataclass(kw_only=True)
class Experiment(abc.ABC):
    """Measures pairs, and keeps what was measured; a case is known by head's.

    Attributes:
        sides: start the workers.
        watch: reads the GPU.
        observer: is told how far this is.
        toss: a fair coin: whether head is slot 1.
        stage: what the pairs are for.
        anew: workers are new interpreters, not forks.
        plans: how each case was sampled last.
        logs: every pair that was measured.
        seconds: the median of each pair.
        launch_seconds: likewise of the cost to the host.
        causes: of a case's failures, a line each.
        snapshots: of the GPU, one a case of each pair.
        processes: all workers.
        apart: of each of them, whether the slots ran at different clocks.
        clocks_mhz: the clocks of those that did.
        invalid: how many samples had another fault.
    """

    sides: Sides
    watch: Watch
    observer: Observer
    toss: Callable[[], bool]
    stage: str
    anew: bool = False
    plans: dict[Case, Plan] = field(default_factory=dict)
    logs: list[PairLog] = field(default_factory=list)
    seconds: dict[tuple[Case, Arm], list[float]] = field(default_factory=lambda: defaultdict(list))
    launch_seconds: dict[tuple[Case, Arm], list[float]] = field(default_factory=lambda: defaultdict(list))
    apart: dict[Case, list[bool]] = field(default_factory=lambda: defaultdict(list))
    clocks_mhz: dict[tuple[Case, Arm], list[float]] = field(default_factory=lambda: defaultdict(list))
    causes: dict[Case, list[str]] = field(default_factory=lambda: defaultdict(list))
    snapshots: list[Snapshot] = field(default_factory=list)
    processes: set[int] = field(default_factory=set)
    invalid: int = 0

    def measure(self, cases: Sequence[Case], pairs: int) -> list[PairLog]:
        """Measure fresh pairs of these cases."""
        found = []
        with Relay() as relay:
            for number in range(pairs):
                self.observer.pairs(number, pairs)
                found.append(self._pair(cases, relay))
                self.logs.append(found[-1])
        self.observer.pairs(pairs, pairs)
        return found

    def medians(self, case: Case, arm: Arm) -> tuple[float | None, float | None]:
        """Return the seconds of a call, and what it costs the host, over all pairs; None where not measured."""
        seconds, launches = self.seconds[case, arm], self.launch_seconds[case, arm]
        return statistics.median(seconds) if seconds else None, statistics.median(launches) if launches else None

    def given_up(self, case: Case) -> str:
        """Return why a case fails so often that it is not measured any more; "" while it is."""
        causes = self.causes[case]
        return causes[-1] if len(causes) >= MAX_FAILURES else ""

    def clocks(self, case: Case) -> str:
        """Say at which clocks the slots ran where they differ in half of the pairs or more; else "".

        These pairs are used all the same. Under a power cap the clock follows what runs: a head that keeps the tensor
        cores busier runs at a lower clock than base in every pair, which is part of what it costs. To leave some of
        them out would be no safer: whether two readings differ may depend on which slot was head.
        """
        apart = self.apart[case]
        if not apart or 2 * sum(apart) < len(apart):
            return ""
        base, head = (statistics.median(self.clocks_mhz[case, arm]) for arm in (Arm.BASE, Arm.HEAD))
        if abs(math.log(head / base)) > fitness.MAX_CLOCK_DIFFERENCE:
            return f"the sides run at different clocks: {base:.0f} MHz (base) and {head:.0f} MHz (head)"
        return f"the clocks of the two slots differed in {sum(apart)} of {len(apart)} pairs, neither side's the lower"

    def unfit(self) -> str:
        """Return why none of this can be trusted; "" where it can."""
        measured = self.invalid + sum(len(log.log_ratios) for log in self.logs)
        faults = fitness.over_run(self.snapshots, ours=self.processes, invalid=self.invalid, measured=measured)
        return fitness.describe(faults)

    def notes(self) -> tuple[str, ...]:
        """Say which pairs could not be used, and what could not be captured."""
        unused = Counter(name for log in self.logs for name in log.faults)
        notes = [f"{name}: {number} of {len(self.logs)} pairs could not be used" for name, number in unused.items()]
        uncaptured = [case.id for case, plan in self.plans.items() if plan.method is Method.EVENTS]
        if uncaptured:
            notes.append(f"not captured into a graph, so timed as the host enqueues them: {', '.join(uncaptured)}")
        return tuple(notes)

    def _pair(self, cases: Sequence[Case], relay: Relay) -> PairLog:
        start = time.monotonic()
        head_slot = int(self.toss())
        arms = (Arm.BASE, Arm.HEAD) if head_slot else (Arm.HEAD, Arm.BASE)
        log = PairLog(
            stage=self.stage, head_slot=head_slot, seconds=0.0, log_ratios={}, launch_log_ratios={}, faults={}
        )
        fresh = [self.sides.worker(Mode.GPU, arm, anew=self.anew) for arm in self._started(arms)]
        with relay.workers(fresh) as workers:
            for case in secrets.SystemRandom().sample(list(cases), len(cases)):
                if self.given_up(case):
                    log.faults[case.id] = "failed too often before"
                    continue
                try:
                    self._keep(case, self._sample(workers, case, arms), arms, log)
                except CaseFailed as error:
                    log.faults[case.id] = str(error)
                    self.causes[case].append(str(error).splitlines()[0])
                # While the workers are there, which may have died and been replaced: a process that is unknown beside
                # them is somebody else's.
                self.processes |= {worker.pid for worker in workers if worker.pid is not None}
                self.snapshots.append(self.watch.snapshot())
        return replace(log, seconds=time.monotonic() - start)

    def _keep(self, case: Case, sample: PairSample, arms: Arms, log: PairLog) -> None:
        self.plans[case] = sample.plan
        clocks_mhz = sample.clocks_mhz if sample.fault else None
        if sample.fault and clocks_mhz is None:
            self.invalid += 1
            log.faults[case.id] = sample.fault
            return
        sign = 1 if arms[1] is Arm.HEAD else -1
        self.apart[case].append(clocks_mhz is not None)
        if clocks_mhz is not None:
            log.clock_log_ratios[case.id] = sign * math.log(clocks_mhz[1] / clocks_mhz[0])
            for arm, clock_mhz in zip(arms, clocks_mhz, strict=True):
                self.clocks_mhz[case, arm].append(clock_mhz)
        log.log_ratios[case.id] = sign * sample.log_ratio
        if sample.launch_log_ratio is not None:
            log.launch_log_ratios[case.id] = sign * sample.launch_log_ratio
        for slot, arm in enumerate(arms):
            self.seconds[case, arm].append(sample.median_seconds(slot))
            if (launch_seconds := sample.median_launch_seconds(slot)) is not None:
                self.launch_seconds[case, arm].append(launch_seconds)

    def _started(self, arms: Arms) -> tuple[Arm, ...]:
        """Return whose workers a pair needs, in the order in which they start."""
        return arms

    @abc.abstractmethod
    def _sample(self, workers: Sequence[Worker], case: Case, arms: Arms) -> PairSample:
        """Let both arms take turns on a case.

        Raises:
            CaseFailed: either cannot run it.
        """


@dataclass(kw_only=True)
class Pairs(Experiment):
    """The pairs of a gate, whose failures may be head's.

    Attributes:
        verdicts: what is known of each case, with the choices that its sides run in.
        blamed: for each failure of a case, the arm that failed, where the other ran what it failed at.
    """

    verdicts: dict[Case, CaseVerdict]
    stage: str = "screen"
    blamed: dict[Case, list[Arm | None]] = field(default_factory=lambda: defaultdict(list))

    def always_fails_on_head(self, case: Case) -> bool:
        """Tell whether head alone failed, and fails each time in fresh processes of both arms by turns, base never.

        If both arms failed alike, by accident, that would come out in at most one of 4^`FAILURE_TRIALS` cases.
        """
        if set(self.blamed[case]) != {Arm.HEAD}:
            return False
        for _ in range(FAILURE_TRIALS):
            for arm in (Arm.HEAD, Arm.BASE):
                with self.sides.worker(Mode.GPU, arm) as worker:
                    if self._runs_alone(worker, case, arm) is (arm is Arm.HEAD):
                        return False
        return True

    def _sample(self, workers: Sequence[Worker], case: Case, arms: Arms) -> PairSample:
        pins = (self._choices(case, arms[0]), self._choices(case, arms[1]))
        try:
            return sample_pair((workers[0], workers[1]), case, plan=self.plans.get(case), pins=pins, meter=self.watch)
        except CaseFailed as error:
            failed = workers.index(error.worker) if error.worker in workers else 0
            if workers[failed].pid is not None:  # what it has borrowed would keep memory from the other one
                with contextlib.suppress(CaseFailed):
                    workers[failed].release(case)
            alone = self._runs_alone(workers[1 - failed], case, arms[1 - failed])
            self.blamed[case].append(arms[failed] if alone else None)
            raise

    def _runs_alone(self, worker: Worker, case: Case, arm: Arm) -> bool:
        try:
            worker.prepare(case, self.plans.get(case), self._choices(case, arm))
            worker.visit(case, 1)
        except CaseFailed:
            return False
        return True

    def _choices(self, case: Case, arm: Arm) -> tuple[Choice, ...]:
        verdict = self.verdicts[case]
        return (verdict.head if arm is Arm.HEAD else verdict.base).choices

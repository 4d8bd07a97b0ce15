"""Pairs of processes of the two arms: which slot is head is a coin's to say, and everything measured is kept."""

from __future__ import annotations

import contextlib
import secrets
import statistics
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from flopwatch.gate.result import CaseVerdict, PairLog
from flopwatch.gate.sides import Arm, Sides
from flopwatch.measure.client import CaseFailed, Mode, Worker
from flopwatch.measure.machine import Snapshot
from flopwatch.measure.nvml import Watch
from flopwatch.measure.pair import PairSample, sample_pair
from flopwatch.measure.protocol import Method, Plan
from flopwatch.model import Case, Choice, Failure

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

#: A case that failed in so many pairs is not measured further, and is tried so often on either side by itself.
MAX_FAILURES = 2
FAILURE_TRIALS = 5


class Observer:
    """Is told how far the run is; does nothing with it."""

    def step(self, line: str) -> None:
        """Hear what is done next."""

    def pairs(self, done: int, planned: int) -> None:
        """Hear how many pairs are done of those that this stage needs."""


@dataclass(kw_only=True)
class Pairs:
    """Measures pairs, and keeps what was measured."""

    sides: Sides
    verdicts: dict[Case, CaseVerdict]
    watch: Watch
    observer: Observer
    toss: Callable[[], bool]
    stage: str = "screen"
    anew: bool = False
    plans: dict[Case, Plan] = field(default_factory=dict)
    logs: list[PairLog] = field(default_factory=list)
    seconds: dict[tuple[Case, Arm], list[float]] = field(default_factory=lambda: defaultdict(list))
    launch_seconds: dict[tuple[Case, Arm], list[float]] = field(default_factory=lambda: defaultdict(list))
    failures: dict[Case, list[tuple[Arm | None, Failure]]] = field(default_factory=lambda: defaultdict(list))
    snapshots: list[Snapshot] = field(default_factory=list)
    processes: set[int] = field(default_factory=set)
    invalid: int = 0

    def measure(self, cases: Sequence[Case], pairs: int) -> list[PairLog]:
        """Measure fresh pairs of these cases."""
        found = []
        for number in range(pairs):
            self.observer.pairs(number, pairs)
            found.append(self._pair(cases))
            self.logs.append(found[-1])
        self.observer.pairs(pairs, pairs)
        return found

    def _pair(self, cases: Sequence[Case]) -> PairLog:
        start = time.monotonic()
        head_slot = int(self.toss())
        arms = (Arm.BASE, Arm.HEAD) if head_slot else (Arm.HEAD, Arm.BASE)
        log = PairLog(
            stage=self.stage, head_slot=head_slot, seconds=0.0, log_ratios={}, launch_log_ratios={}, faults={}
        )
        with contextlib.ExitStack() as stack:
            slots = tuple(stack.enter_context(self.sides.worker(Mode.GPU, arm, anew=self.anew)) for arm in arms)
            for case in secrets.SystemRandom().sample(list(cases), len(cases)):
                if len(self.failures[case]) >= MAX_FAILURES:
                    log.faults[case.id] = "failed too often before"
                    continue
                choices = {Arm.BASE: self.verdicts[case].base.choices, Arm.HEAD: self.verdicts[case].head.choices}
                try:
                    sample = sample_pair(
                        (slots[0], slots[1]),
                        case,
                        plan=self.plans.get(case),
                        pins=(choices[arms[0]], choices[arms[1]]),
                        meter=self.watch,
                    )
                except CaseFailed as error:
                    log.faults[case.id] = str(error)
                    failed = slots.index(error.worker) if error.worker in slots else 0
                    alone = self._runs_alone(slots[1 - failed], case, choices[arms[1 - failed]])
                    self.failures[case].append((arms[failed] if alone else None, error.failure))
                    continue
                self._keep(sample, arms, log)
            # While both are there: a process that is unknown beside them is somebody else's.
            self.processes |= {worker.pid for worker in slots if worker.pid is not None}
            self.snapshots.append(self.watch.snapshot())
        return replace(log, seconds=time.monotonic() - start)

    def always_fails_on_head(self, case: Case) -> bool:
        """Try a case in fresh processes of both arms by turns; tell whether head fails each time and base never.

        If both arms failed alike, by accident, that would come out in at most one of 4^`FAILURE_TRIALS` cases.
        """
        for _ in range(FAILURE_TRIALS):
            for arm, side in ((Arm.HEAD, self.verdicts[case].head), (Arm.BASE, self.verdicts[case].base)):
                with self.sides.worker(Mode.GPU, arm) as worker:
                    if self._runs_alone(worker, case, side.choices) is (arm is Arm.HEAD):
                        return False
        return True

    def _runs_alone(self, worker: Worker, case: Case, pins: Sequence[Choice]) -> bool:
        """Tell whether a slot runs what the other one failed at."""
        try:
            worker.prepare(case, self.plans.get(case), pins)
            worker.visit(case, 1)
        except CaseFailed:
            return False
        return True

    def _keep(self, sample: PairSample, arms: tuple[Arm, Arm], log: PairLog) -> None:
        self.plans[sample.case] = sample.plan
        if sample.fault:
            self.invalid += 1
            log.faults[sample.case.id] = sample.fault
            return
        sign = 1 if arms[1] is Arm.HEAD else -1
        log.log_ratios[sample.case.id] = sign * sample.log_ratio
        for slot, arm in enumerate(arms):
            self.seconds[sample.case, arm].append(_median(sample.seconds[slot]))
        if sample.launch_log_ratio is not None:
            log.launch_log_ratios[sample.case.id] = sign * sample.launch_log_ratio
            for slot, arm in enumerate(arms):
                self.launch_seconds[sample.case, arm].append(_median(sample.launch_seconds[slot]))


def notes_on(logs: Sequence[PairLog], plans: Mapping[str, Plan]) -> list[str]:
    """Say which pairs could not be used, and what could not be captured; `plans` by the case's name."""
    faults = Counter(name for log in logs for name in log.faults)
    notes = [f"{name}: {number} of {len(logs)} pairs could not be used" for name, number in faults.items()]
    uncaptured = [name for name, plan in plans.items() if plan.method is Method.EVENTS]
    if uncaptured:
        notes.append(f"not captured into a graph, so timed as the host enqueues them: {', '.join(uncaptured)}")
    return notes


def _median(turns: Sequence[Sequence[float]]) -> float:
    return statistics.median(seconds for cycle in turns for seconds in cycle)

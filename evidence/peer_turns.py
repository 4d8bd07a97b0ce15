"""Let our kernel and all its peers at a point take turns in one process, in a few fresh processes.

A gate's verdict needs pairs of two; a table of ratios needs every contender once a round. Each process checks everybody
on inputs of its own, prepares all of them beside each other, and visits them in a random order, then in the reverse
one, so that what drifts evenly cancels as it does in a gate's ABBA.
"""

from __future__ import annotations

import contextlib
import math
import secrets
import statistics
import time
from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from evidence.peer_records import Beside, log_speed, slim, unusable
from flopwatch.compare.result import ComparedCase, Contender
from flopwatch.errors import MachineError
from flopwatch.gate.sides import Arm
from flopwatch.measure import fitness
from flopwatch.measure.client import CaseFailed, Mode
from flopwatch.measure.pair import LAUNCHES, PLACEMENTS, SAMPLES, SETTLE_S, TURN_S, log_ratio
from flopwatch.measure.protocol import Method, Plan
from flopwatch.model import Case, worst_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from flopwatch.gate.sides import Sides
    from flopwatch.measure.client import Worker
    from flopwatch.measure.machine import Snapshot
    from flopwatch.measure.nvml import Watch
    from flopwatch.measure.pair import Cycles

#: Fresh processes a point: they differ by where buffers lie, so that their spread is the error that is told.
PROCESSES = 3
#: Rounds at each place of the results, of two turns of everybody.
ROUNDS = 6
#: After its share of so long a process takes no more rounds at a place.
POINT_S = 2.0


class _Dropped(Exception):  # noqa: N818 - as `CaseFailed`
    """Somebody cannot go on; the others start over."""


@dataclass(kw_only=True)
class Contest:
    """Our kernel and its peers at a point.

    Attributes:
        cases: ours beside each peer; head is ours in all of them.
        contenders: everybody.
        plan: how all are sampled; None until it is known.
        seconds: of a call, one value a process.
        launch_seconds: likewise, what a call costs the host.
        log_ratios: log(peer's seconds / ours), by peer, one value a process.
        faults: why processes could not be used.
        took_s: how long all of it took.
    """

    cases: tuple[ComparedCase, ...]
    contenders: dict[Case, Contender] = field(init=False)
    plan: Plan | None = None
    seconds: dict[Case, list[float]] = field(default_factory=lambda: defaultdict(list))
    launch_seconds: dict[Case, list[float]] = field(default_factory=lambda: defaultdict(list))
    log_ratios: dict[Case, list[float]] = field(default_factory=lambda: defaultdict(list))
    faults: list[str] = field(default_factory=list)
    took_s: float = 0.0

    def __post_init__(self) -> None:
        self.contenders = {one.case: one for case in self.cases for one in (case.head, case.base)}

    @property
    def own(self) -> Case:
        """Our kernel's case."""
        return self.cases[0].head.case

    def reason(self, case: Case) -> str:
        """Say why a contender's time is worth nothing; "" where it is worth something."""
        return unusable(self.contenders[case], self.cases[0].ceiling_eps)

    def running(self) -> list[Case]:
        """Return who takes turns, ours first: nobody where ours or all peers cannot."""
        right = [case for case in self.contenders if not self.reason(case)]
        return right if self.own in right and len(right) > 1 else []

    def check(self, worker: Worker, number: int) -> None:
        """Hold everybody against the reference; in the first process they are compiled and tuned."""
        for case in self.running() if number else list(self.contenders):
            one = self.contenders[case]
            try:
                choices = one.choices if number else worker.tune(case)
                numbers = worker.numbers(case, seed=number, pins=choices)
            except CaseFailed as error:
                self.contenders[case] = replace(one, failure=error.failure)
            else:
                known = [one.numbers] if one.numbers is not None else []
                self.contenders[case] = replace(one, choices=choices, numbers=worst_of([*known, numbers]))

    def sample(self, worker: Worker, watch: Watch) -> None:
        """Take turns; who cannot drops out, and the others start over."""
        while cases := self.running():
            try:
                plan = self.plan = self._prepare(worker, cases)
                taken, reason_bits = self._take_turns(worker, cases, plan, watch)
                launches = self._launches(worker, cases) if plan.method is Method.GRAPH else {}
            except _Dropped:
                continue
            read, nothing = fitness.SlotReading.of((), reason_bits), fitness.SlotReading.of((), ())
            if fault := fitness.pair_fault(read, nothing):
                self.faults.append(fault)
                return
            for case in cases:
                every = [seconds for rounds in taken[case] for each in rounds for seconds in each]
                self.seconds[case].append(statistics.median(every))
                if case in launches:
                    self.launch_seconds[case].append(statistics.median(launches[case]))
                if case != self.own:
                    self.log_ratios[case].append(log_ratio((taken[self.own], taken[case])))
            return

    def beside(self) -> Iterator[Beside]:
        """Yield what came out beside each peer; nothing of one that can be timed and was not."""
        for case in self.cases:
            own, peer = case.head.case, case.base.case
            reasons = [f"{one.provider} {reason}" for one in (peer, own) if (reason := self.reason(one))]
            ratios = () if reasons else tuple(self.log_ratios[peer])
            if reasons or ratios:
                yield Beside(
                    case=slim(
                        replace(
                            case,
                            base=self._timed(peer, reasons),
                            head=self._timed(own, reasons),
                            speed=log_speed(ratios),
                            method=self.plan.method.value if self.plan and ratios else "",
                            reason="; ".join(reasons),
                        )
                    ),
                    log_ratios=ratios,
                    sitting=0,
                    seconds=self.took_s / len(self.cases),
                )

    def _timed(self, case: Case, reasons: Sequence[str]) -> Contender:
        seconds, launches = ([] if reasons else kept[case] for kept in (self.seconds, self.launch_seconds))
        return replace(
            self.contenders[case],
            seconds=statistics.median(seconds) if seconds else None,
            launch_seconds=statistics.median(launches) if launches else None,
        )

    @contextlib.contextmanager
    def _blaming(self, case: Case) -> Iterator[None]:
        try:
            yield
        except CaseFailed as error:
            self.contenders[case] = replace(self.contenders[case], failure=error.failure)
            raise _Dropped from error

    def _prepare(self, worker: Worker, cases: Sequence[Case]) -> Plan:
        """Make all ready under one plan: that of the shortest, as in `flopwatch.measure.rivals`."""
        # A call outside of a graph asks the tuner again, whichever case was prepared last: all have the pins of all.
        pins = tuple(choice for case in cases for choice in self.contenders[case].choices)
        plan = self.plan
        for case in cases if plan is None else ():
            with self._blaming(case):
                own = worker.prepare(case, None, pins).plan
            plan = own if plan is None or own.calls > plan.calls else plan
        followed: Plan | None = None
        while followed is None or followed != plan:  # what cannot be captured into a graph changes it for all
            followed = plan
            for case in cases:  # the first one takes the place of all that was prepared before
                with self._blaming(case):
                    plan = worker.prepare(case, plan, pins, beside=case != cases[0]).plan
        return followed

    def _take_turns(
        self, worker: Worker, cases: Sequence[Case], plan: Plan, watch: Watch
    ) -> tuple[dict[Case, tuple[Cycles, ...]], list[int]]:
        """Return seconds a call of everybody, by placement and round, and what was read of the GPU after the rounds."""
        reason_bits: list[int] = []
        taken: dict[Case, list[Cycles]] = {case: [] for case in cases}
        start = time.monotonic()
        for placement in range(1, PLACEMENTS[0] + 1):
            for case in cases if placement > 1 else ():
                with self._blaming(case):
                    worker.place(case)
            seconds = self._settle(worker, cases, SETTLE_S if placement == 1 else 0.0)
            samples = min(max(round(TURN_S / (plan.calls * seconds)), 1), SAMPLES)
            rounds: dict[Case, list[tuple[float, ...]]] = {case: [] for case in cases}
            for number in range(ROUNDS):
                if number and time.monotonic() - start >= POINT_S * placement / PLACEMENTS[0]:
                    break
                order = secrets.SystemRandom().sample(list(cases), len(cases))
                found: dict[Case, tuple[float, ...]] = dict.fromkeys(cases, ())
                for case in (*order, *reversed(order)):
                    with self._blaming(case):
                        found[case] += worker.visit(case, samples)
                for case, values in found.items():
                    rounds[case].append(values)
                reason_bits.append(watch.reason_bits())
            for case in cases:
                taken[case].append(tuple(rounds[case]))
        return {case: tuple(placements) for case, placements in taken.items()}, reason_bits

    def _settle(self, worker: Worker, cases: Sequence[Case], seconds: float) -> float:
        """Throw samples away for so long, one of everybody at least; return what a call of the fastest takes."""
        until = time.monotonic() + seconds
        fastest = math.inf
        while True:
            for case in cases:
                with self._blaming(case):
                    fastest = min(fastest, statistics.median(worker.visit(case, 1)))
            if time.monotonic() >= until:
                return fastest

    def _launches(self, worker: Worker, cases: Sequence[Case]) -> dict[Case, tuple[float, ...]]:
        found = {}
        for case in cases:
            with self._blaming(case):
                found[case] = worker.launch(case, 2 * LAUNCHES)
        return found


def measure_contests(sides: Sides, watch: Watch, contests: Sequence[Contest]) -> None:
    """Measure some points in the same fresh processes.

    Raises:
        MachineError: the GPU was lost or unfit, so that nothing of this can be kept.
    """
    snapshots: list[Snapshot] = []
    processes: set[int] = set()
    for number in range(PROCESSES):
        with sides.worker(Mode.GPU, Arm.HEAD) as worker:
            for contest in secrets.SystemRandom().sample(list(contests), len(contests)):
                start = time.monotonic()
                contest.check(worker, number)
                contest.sample(worker, watch)
                contest.took_s += time.monotonic() - start
                # While the worker is there, which may have died and been replaced.
                processes |= {worker.pid} if worker.pid is not None else set()
                snapshots.append(watch.snapshot())
    invalid = sum(len(contest.faults) for contest in contests)
    faults = fitness.over_run(snapshots, ours=processes, invalid=invalid, measured=PROCESSES * len(contests))
    if faults:
        raise MachineError(
            "the GPU is unfit: what this batch measured is not kept",
            why=fitness.describe(faults),
            todo="measure it again",
        )

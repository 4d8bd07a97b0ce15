"""Time, in fresh processes that a coin tells apart; and what their pairs say."""

from __future__ import annotations

import contextlib
import math
import secrets
import statistics
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from flopwatch.compare.result import ComparedCase, Contender, Speed
from flopwatch.errors import MachineError
from flopwatch.gate.pairs import MAX_FAILURES, Observer, notes_on
from flopwatch.gate.result import PairLog
from flopwatch.gate.sides import Arm, Sides
from flopwatch.measure import fitness
from flopwatch.measure.client import CaseFailed, Mode, Worker
from flopwatch.measure.machine import Snapshot
from flopwatch.measure.nvml import Watch
from flopwatch.measure.pair import PairSample, sample_pair
from flopwatch.measure.protocol import Plan
from flopwatch.measure.rivals import sample_rivals
from flopwatch.stats import PRIOR, interval

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Of each bound: 0.5 % on either side, as in the gate's reports.
ALPHA = 0.005

Sampler: TypeAlias = Callable[[ComparedCase, Plan | None], PairSample]


class ReasonsAlone:
    """A meter that does not tell the clock: a peer that draws more power runs at a lower one, which belongs to it."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch

    def clock(self) -> int:
        """Return what stands for a clock that is not known."""
        return -1

    def reason_bits(self) -> int:
        """Return why the clock is not higher."""
        return self._watch.reason_bits()


@dataclass(kw_only=True)
class Pairs:
    """Measures pairs, and keeps what was measured.

    Attributes:
        sides: start the workers.
        together: both cases of a pair run in one process; else each side has its own.
        watch: reads the GPU.
        observer: is told how far this is.
        toss: a fair coin: whether head is slot 1.
        logs: every pair that was measured.
        lost: why the GPU no longer answers; "" while it does.
        interrupted: the measuring was stopped.
    """

    sides: Sides
    together: bool
    watch: Watch
    observer: Observer
    toss: Callable[[], bool]
    logs: list[PairLog] = field(default_factory=list)
    lost: str = ""
    interrupted: bool = False
    _plans: dict[str, Plan] = field(default_factory=dict)
    _seconds: dict[tuple[str, Arm], list[float]] = field(default_factory=lambda: defaultdict(list))
    _launch_seconds: dict[tuple[str, Arm], list[float]] = field(default_factory=lambda: defaultdict(list))
    _failures: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    _snapshots: list[Snapshot] = field(default_factory=list)
    _processes: set[int] = field(default_factory=set)
    _invalid: int = 0

    def measure(self, cases: Sequence[ComparedCase], pairs: int) -> None:
        """Measure fresh pairs of these cases, as far as one gets."""
        if not cases:
            return
        self.observer.step(f"measuring {len(cases)} cases in {pairs} pairs")
        try:
            for number in range(pairs):
                self.observer.pairs(number, pairs)
                self.logs.append(self._pair(cases))
            self.observer.pairs(pairs, pairs)
        except KeyboardInterrupt:
            self.interrupted = True
        except MachineError as error:
            self.lost = str(error.what)

    def timed(self, case: ComparedCase) -> ComparedCase:
        """Add to a case what the pairs say of it."""
        name = case.head.case.id
        failures = self._failures[name]
        plan = self._plans.get(name)
        return replace(
            case,
            base=self._with_seconds(case.base, name, Arm.BASE),
            head=self._with_seconds(case.head, name, Arm.HEAD),
            speed=speed_of([-log.log_ratios[name] for log in self.logs if name in log.log_ratios]),
            method=plan.method.value if plan else "",
            reason=f"fails while it is measured ({failures[-1]})" if len(failures) >= MAX_FAILURES else case.reason,
        )

    def unfit(self) -> str:
        """Return why none of this can be trusted; "" where it can."""
        if self.lost:
            return self.lost
        measured = self._invalid + sum(len(log.log_ratios) for log in self.logs)
        faults = fitness.over_run(self._snapshots, ours=self._processes, invalid=self._invalid, measured=measured)
        return fitness.describe(faults)

    def notes(self) -> tuple[str, ...]:
        """Return what else is worth knowing."""
        return tuple(notes_on(self.logs, self._plans))

    def _pair(self, cases: Sequence[ComparedCase]) -> PairLog:
        start = time.monotonic()
        head_slot = int(self.toss())
        arms = (Arm.BASE, Arm.HEAD) if head_slot else (Arm.HEAD, Arm.BASE)
        log = PairLog(stage="compare", head_slot=head_slot, seconds=0.0, log_ratios={}, launch_log_ratios={}, faults={})
        with contextlib.ExitStack() as stack:
            workers, sample = self._started(stack, arms)
            for case in secrets.SystemRandom().sample(list(cases), len(cases)):
                name = case.head.case.id
                if len(self._failures[name]) >= MAX_FAILURES:
                    log.faults[name] = "failed too often before"
                    continue
                try:
                    found = sample(case, self._plans.get(name))
                except CaseFailed as error:
                    log.faults[name] = str(error)
                    self._failures[name].append(str(error).splitlines()[0])
                    continue
                self._keep(found, name, arms, log)
            # While they are there: a process that is unknown beside them is somebody else's.
            self._processes |= {worker.pid for worker in workers if worker.pid is not None}
            self._snapshots.append(self.watch.snapshot())
        return replace(log, seconds=time.monotonic() - start)

    def _started(self, stack: contextlib.ExitStack, arms: tuple[Arm, Arm]) -> tuple[tuple[Worker, ...], Sampler]:
        meter = ReasonsAlone(self.watch)
        if self.together:
            worker = stack.enter_context(self.sides.worker(Mode.GPU, Arm.HEAD))

            def sample_together(case: ComparedCase, plan: Plan | None) -> PairSample:
                zero, one = _in_order(case, arms)
                pins = (zero.choices, one.choices)
                return sample_rivals(worker, (zero.case, one.case), plan=plan, pins=pins, meter=meter)

            return (worker,), sample_together
        first, second = (stack.enter_context(self.sides.worker(Mode.GPU, arm)) for arm in arms)

        def sample(case: ComparedCase, plan: Plan | None) -> PairSample:
            zero, one = _in_order(case, arms)
            pins = (zero.choices, one.choices)
            return sample_pair((first, second), case.head.case, plan=plan, pins=pins, meter=meter)

        return (first, second), sample

    def _keep(self, sample: PairSample, name: str, arms: tuple[Arm, Arm], log: PairLog) -> None:
        self._plans[name] = sample.plan
        if sample.fault:
            self._invalid += 1
            log.faults[name] = sample.fault
            return
        sign = 1 if arms[1] is Arm.HEAD else -1
        log.log_ratios[name] = sign * sample.log_ratio
        for slot, arm in enumerate(arms):
            self._seconds[name, arm].append(_median(sample.seconds[slot]))
        if sample.launch_log_ratio is not None:
            log.launch_log_ratios[name] = sign * sample.launch_log_ratio
            for slot, arm in enumerate(arms):
                self._launch_seconds[name, arm].append(_median(sample.launch_seconds[slot]))

    def _with_seconds(self, contender: Contender, name: str, arm: Arm) -> Contender:
        seconds, launches = self._seconds[name, arm], self._launch_seconds[name, arm]
        return replace(
            contender,
            seconds=statistics.median(seconds) if seconds else None,
            launch_seconds=statistics.median(launches) if launches else None,
        )


def speed_of(log_ratios: Sequence[float]) -> Speed | None:
    """Estimate a speed from one log(base seconds / head seconds) a pair; None where there are none.

    >>> found = speed_of([0.049, 0.050, 0.051, 0.050, 0.050, 0.050, 0.049, 0.051])
    >>> round(found.estimate, 3), round(found.lower, 3), round(found.upper, 3)
    (0.05, 0.049, 0.051)
    >>> speed_of([0.05, 0.05]).lower is None
    True
    """
    if not log_ratios:
        return None
    bounds = interval(np.array([log_ratios]), PRIOR, alpha=ALPHA)
    lower, upper = float(bounds.lower[0]), float(bounds.upper[0])
    return Speed(
        estimate=float(bounds.estimate[0]),
        lower=lower if math.isfinite(lower) else None,
        upper=upper if math.isfinite(upper) else None,
        pairs=len(log_ratios),
    )


def overall_speed(cases: Sequence[ComparedCase], logs: Sequence[PairLog]) -> Speed | None:
    """Return the geometric mean of the measured cases' speeds; its bounds need pairs that measured all of them."""
    speeds = {case.head.case.id: case.speed for case in cases if case.speed is not None}
    if not speeds:
        return None
    whole = [log.log_ratios for log in logs if speeds.keys() <= log.log_ratios.keys()]
    found = speed_of([-statistics.fmean(ratios[name] for name in speeds) for ratios in whole])
    if found is not None:
        return found
    mean = statistics.fmean(speed.estimate for speed in speeds.values())
    return Speed(estimate=mean, lower=None, upper=None, pairs=0)


def _in_order(case: ComparedCase, arms: tuple[Arm, Arm]) -> tuple[Contender, Contender]:
    contenders = {Arm.BASE: case.base, Arm.HEAD: case.head}
    return contenders[arms[0]], contenders[arms[1]]


def _median(turns: Sequence[Sequence[float]]) -> float:
    return statistics.median(seconds for cycle in turns for seconds in cycle)

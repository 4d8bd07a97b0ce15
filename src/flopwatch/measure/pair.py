"""Two workers on one GPU, taking turns: the samples from which an effect is estimated.

The enemy inside a pair is the power controller, which moves within milliseconds: many short turns beat few long ones.
On an H200 (2026-11-20) 16 ABBA cycles of 3 samples gave an A/A error of 0.05 % where 4 cycles of 12 gave 0.7 to 2.4 %
at the same cost. What is left is the placement of buffers, which differs from process to process and from allocation to
allocation; each preparation draws it anew.

Nothing here knows which slot is head: slot 0 is asked first and takes the first turn of each cycle, and a coin that is
tossed elsewhere says who it is.
"""

from __future__ import annotations

import math
import statistics
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

from flopwatch.measure.client import CaseFailed, side_by_side
from flopwatch.measure.fitness import SlotReading, pair_fault
from flopwatch.measure.protocol import Method, Plan, Prepared
from flopwatch.model import Case, Choice

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from flopwatch.measure.client import Worker

PREPARATIONS = 3
#: ABBA cycles after each preparation: as many as bring the error of the cycles' median to `CYCLE_ERROR`, within these
#: bounds. At the scatter of most kernels, 0.2 to 0.3 % a cycle, that is four; where the placement errs by 0.1 to 0.2 %
#: a preparation, more would be wasted. SAMPLES a turn.
CYCLES = (2, 8)
CYCLE_ERROR = 0.001
SAMPLES = 3
#: Turns of a long kernel are thrown away for so long: the power controller needs it after the case before. The first
#: six cycles of 2048x4096x14336, 30 ms, differed by 2 to 5 %, later ones by 0.2 % (H200, 2026-11-21).
SETTLE_FROM_SECONDS = 100e-6
SETTLE_S = 0.05
#: For the cost of a launch to the host, which the time of a graph leaves out.
LAUNCH_CYCLES = 3
LAUNCHES = 8
_ABBA = (0, 1, 1, 0)
#: Of the median over the mean, for a normal distribution: sqrt(pi / 2).
_MEDIAN_ERROR = 1.2533

Slots: TypeAlias = "tuple[Worker, Worker]"
#: Slot -> cycle -> seconds per call, in the order in which they were taken.
Turns: TypeAlias = tuple[tuple[tuple[float, ...], ...], tuple[tuple[float, ...], ...]]
NO_PINS: tuple[tuple[Choice, ...], tuple[Choice, ...]] = ((), ())


class Meter(Protocol):
    """Reads the GPU after every turn; `flopwatch.measure.nvml.Watch` is one."""

    def clock(self) -> int:
        """Return the clock of the multiprocessors in MHz."""

    def reason_bits(self) -> int:
        """Return why the clock is not higher."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PairSample:
    """What one pair of processes says about one case.

    Attributes:
        case: the case.
        plan: how samples were taken.
        seconds: of each slot, cycle by cycle: seconds per call.
        launch_seconds: likewise, what a call costs the host; no cycles where that was not measured.
        choices: what each slot's autotuned kernels ran in.
        fault: why the pair cannot be used, in words that do not depend on which slot is head; "" if it can.
    """

    case: Case
    plan: Plan
    seconds: Turns
    launch_seconds: Turns = ((), ())
    choices: tuple[tuple[Choice, ...], tuple[Choice, ...]] = NO_PINS
    fault: str = ""

    @property
    def log_ratio(self) -> float:
        """Slot 1 against slot 0: the median over the cycles of log(median of its turns / median of the other's)."""
        return log_ratio(self.seconds)

    @property
    def launch_log_ratio(self) -> float | None:
        """The same of the cost to the host; None where that was not measured."""
        return log_ratio(self.launch_seconds) if self.launch_seconds[0] else None


def log_ratio(turns: Turns) -> float:
    """Return the median over the cycles of log(slot 1's median / slot 0's median).

    >>> round(log_ratio((((1.0, 1.0), (2.0, 2.0)), ((1.1, 1.1), (2.2, 2.2)))), 4)
    0.0953
    """
    return statistics.median(cycle_log_ratios(turns))


def cycle_log_ratios(turns: Turns) -> list[float]:
    """Return log(slot 1's median / slot 0's median) of each cycle."""
    return [math.log(statistics.median(one) / statistics.median(zero)) for zero, one in zip(*turns, strict=True)]


def sample_pair(
    slots: Slots,
    case: Case,
    *,
    plan: Plan | None = None,
    pins: tuple[Sequence[Choice], Sequence[Choice]] = NO_PINS,
    meter: Meter | None = None,
) -> PairSample:
    """Let both slots take turns on one case.

    Args:
        slots: the two workers.
        case: what they run.
        plan: how to sample it; None lets slot 0 choose.
        pins: what each slot's autotuned kernels must run in.
        meter: reads the GPU after every turn; a pair whose slots ran at different clocks is at fault.

    Raises:
        CaseFailed: either slot cannot run it.
    """
    turns = _Turns()
    readings: list[tuple[list[int], list[int]]] = [([], []), ([], [])]

    def visit(slot: int) -> tuple[float, ...]:
        seconds = slots[slot].visit(case, SAMPLES)
        if meter:
            readings[slot][0].append(meter.clock())
            readings[slot][1].append(meter.reason_bits())
        return seconds

    for preparation in range(1, PREPARATIONS + 1):
        try:
            prepared = _prepare(slots, case, plan, pins)
        except CaseFailed as error:
            if error.failure.kind != "OutOfMemoryError":
                raise
            return _sample_apart(slots, case, plan, pins)
        plan = prepared[0].plan
        if preparation == 1:
            _settle(slots, case)
        for cycle in range(1, CYCLES[1] + 1):
            turns.cycle(visit)
            if cycle >= CYCLES[0] and turns.error() <= CYCLE_ERROR * math.sqrt(PREPARATIONS / preparation):
                break
    return PairSample(
        case=case,
        plan=prepared[0].plan,
        seconds=turns.taken(),
        launch_seconds=_sample_launches(slots, case) if prepared[0].plan.method is Method.GRAPH else ((), ()),
        choices=(prepared[0].choices, prepared[1].choices),
        fault=pair_fault(*(SlotReading.of(*reading) for reading in readings)) if meter else "",
    )


def _sample_launches(slots: Slots, case: Case) -> Turns:
    launches = _Turns()
    for _ in range(LAUNCH_CYCLES):
        launches.cycle(lambda slot: slots[slot].launch(case, LAUNCHES))
    return launches.taken()


def _settle(slots: Slots, case: Case) -> None:
    """Let a long kernel run until the power controller has found its clock."""
    until = time.monotonic() + SETTLE_S
    while True:
        seconds = [value for slot in slots for value in slot.visit(case, SAMPLES)]
        if statistics.median(seconds) < SETTLE_FROM_SECONDS or time.monotonic() >= until:
            return


class _Turns:
    """What was taken in ABBA cycles, by slot."""

    def __init__(self) -> None:
        self._taken: tuple[list[tuple[float, ...]], list[tuple[float, ...]]] = ([], [])

    def cycle(self, visit: Callable[[int], tuple[float, ...]]) -> None:
        """Let the slots take turns once."""
        values: tuple[list[float], list[float]] = ([], [])
        for slot in _ABBA:
            values[slot].extend(visit(slot))
        for slot in (0, 1):
            self._taken[slot].append(tuple(values[slot]))

    def error(self) -> float:
        """Return the standard error of the median of the cycles' log ratios, which is the same whoever is head."""
        ratios = cycle_log_ratios(self.taken())
        return _MEDIAN_ERROR * statistics.stdev(ratios) / math.sqrt(len(ratios))

    def taken(self) -> Turns:
        """Return all of it."""
        return tuple(self._taken[0]), tuple(self._taken[1])


def _prepare(
    slots: Slots, case: Case, plan: Plan | None, pins: tuple[Sequence[Choice], Sequence[Choice]]
) -> tuple[Prepared, Prepared]:
    """Make the case ready in both slots, under one plan."""
    if plan is None:
        plan = slots[0].prepare(case, None, pins[0]).plan
    zero, one = side_by_side(lambda worker: worker.prepare(case, plan, pins[slots.index(worker)]), slots)
    for slot, own, other in ((0, zero, one), (1, one, zero)):
        if own.plan == plan != other.plan:  # the other could not be captured into a graph: sample both alike
            own = slots[slot].prepare(case, other.plan, pins[slot])  # noqa: PLW2901 - the new one counts
            return (own, other) if slot == 0 else (other, own)
    return zero, one


def _sample_apart(
    slots: Slots, case: Case, plan: Plan | None, pins: tuple[Sequence[Choice], Sequence[Choice]]
) -> PairSample:
    """Take turns that are far apart, because the GPU's memory holds the case only once."""
    taken: tuple[list[float], list[float]] = ([], [])
    choices: list[tuple[Choice, ...]] = [(), ()]
    for slot in _ABBA:
        slots[1 - slot].release(case)
        prepared = slots[slot].prepare(case, plan, pins[slot])
        if plan not in (None, prepared.plan):  # it could not be captured into a graph: sample both alike
            return _sample_apart(slots, case, prepared.plan, pins)
        plan, choices[slot] = prepared.plan, prepared.choices
        taken[slot].extend(slots[slot].visit(case, PREPARATIONS * CYCLES[1] * SAMPLES))
    return PairSample(
        case=case,
        plan=prepared.plan,
        seconds=((tuple(taken[0]),), (tuple(taken[1]),)),
        choices=(choices[0], choices[1]),
    )

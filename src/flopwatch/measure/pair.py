"""Two workers on one GPU, taking turns: the samples from which an effect is estimated.

The enemy inside a pair is the power controller, which moves within milliseconds: many short turns beat few long ones.
On an H200 (2026-11-20) 16 ABBA cycles of 3 samples gave an A/A error of 0.05 % where 4 cycles of 12 gave 0.7 to 2.4 %
at the same cost. The next one is the placement of buffers, which differs from process to process: slot 1 borrows the
inputs of slot 0 (`flopwatch.measure.lending`), and each preparation draws the rest anew.

Nothing here knows which slot is head: slot 0 is asked first and takes the first turn of each cycle, and a coin that is
tossed elsewhere says who it is.
"""

from __future__ import annotations

import math
import statistics
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

from flopwatch.measure.client import CaseFailed
from flopwatch.measure.fitness import SlotReading, pair_fault
from flopwatch.measure.protocol import Method, Plan, Prepared, Refusal
from flopwatch.model import Case, Choice

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from flopwatch.measure.client import Worker

PREPARATIONS = 3
#: ABBA cycles after each preparation: as many as bring the error of their median to `CYCLE_ERROR` of a pair, within
#: these bounds. At the scatter of most kernels, 0.13 % a cycle, that is two; where the placement of results errs by
#: 0.1 to 0.2 % a preparation, more would be wasted.
CYCLES = (2, 10)
CYCLE_ERROR = 0.001
#: A turn. Two turns that follow each other in one slot, as the inner ones of ABBA do, are taken in one visit: a visit
#: costs 1.3 ms beside its samples (0.8 ms to wake the other process, and an untimed sample; H200, 2026-11-21).
SAMPLES = 3
#: At first cycles are thrown away, for so long at most, while slot 0 changes by `DRIFT` from one turn to its next: the
#: power controller and the clocks need it after the case before. Attention of 19 us was 11 % slow at first and took
#: 80 ms to settle; 2048x4096x14336 differed by 2 to 5 % for 30 ms (H200, 2026-11-21).
SETTLE_S = 0.08
DRIFT = 0.01
#: For the cost of a launch to the host, which the time of a graph leaves out.
LAUNCH_CYCLES = 3
LAUNCHES = 4
_LAUNCH_TURNS = ((0, LAUNCHES), (1, 2 * LAUNCHES), (0, LAUNCHES))
_ABBA = (0, 1, 1, 0)
#: Of the median over the mean, for a normal distribution: sqrt(pi / 2).
_MEDIAN_ERROR = 1.2533

Slots: TypeAlias = "tuple[Worker, Worker]"
#: Seconds per call, of each cycle after one preparation of one slot.
Cycles: TypeAlias = tuple[tuple[float, ...], ...]
#: Slot -> preparation -> cycles.
Turns: TypeAlias = tuple[tuple[Cycles, ...], tuple[Cycles, ...]]
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
        seconds: of each slot, by preparation and cycle: seconds per call.
        launch_seconds: likewise, what a call costs the host; no preparation where that was not measured.
        choices: what each slot's autotuned kernels ran in.
        borrowed: both slots had the same inputs in the same memory.
        fault: why the pair cannot be used, in words that do not depend on which slot is head; "" if it can.
    """

    case: Case
    plan: Plan
    seconds: Turns
    launch_seconds: Turns = ((), ())
    choices: tuple[tuple[Choice, ...], tuple[Choice, ...]] = NO_PINS
    borrowed: bool = False
    fault: str = ""

    @property
    def log_ratio(self) -> float:
        """Slot 1 against slot 0."""
        return log_ratio(self.seconds)

    @property
    def launch_log_ratio(self) -> float | None:
        """The same of the cost to the host; None where that was not measured."""
        return log_ratio(self.launch_seconds) if self.launch_seconds[0] else None

    def median_seconds(self, slot: int) -> float:
        """Return the median of all samples of a slot."""
        return _median(self.seconds[slot])

    def median_launch_seconds(self, slot: int) -> float | None:
        """Return the same of the cost to the host; None where that was not measured."""
        return _median(self.launch_seconds[slot]) if self.launch_seconds[slot] else None


def _median(preparations: tuple[Cycles, ...]) -> float:
    return statistics.median(seconds for cycles in preparations for cycle in cycles for seconds in cycle)


def log_ratio(turns: Turns) -> float:
    """Return the mean over the preparations of the median over their cycles of log(slot 1's median / slot 0's median).

    Cycles have outliers, which a median bears; preparations differ by their placement, which a mean of three averages
    best. The median over the cycles of all three erred by 0.133 %, this by 0.123 % (11 pairs of 66 cases, H200,
    2026-11-21).

    >>> round(log_ratio(((((1.0, 1.0), (2.0, 2.0)),), (((1.1, 1.1), (2.2, 2.2)),))), 4)
    0.0953
    """
    return statistics.fmean(statistics.median(cycle_log_ratios(zero, one)) for zero, one in zip(*turns, strict=True))


def cycle_log_ratios(zero: Cycles, one: Cycles) -> list[float]:
    """Return log(slot 1's median / slot 0's median) of each cycle of one preparation."""
    return [math.log(statistics.median(b) / statistics.median(a)) for a, b in zip(zero, one, strict=True)]


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
    turns: tuple[list[Cycles], list[Cycles]] = ([], [])
    readings: list[tuple[list[int], list[int]]] = [([], []), ([], [])]

    def visit(slot: int, samples: int = 2 * SAMPLES) -> tuple[float, ...]:
        seconds = slots[slot].visit(case, samples)
        if meter:
            readings[slot][0].append(meter.clock())
            readings[slot][1].append(meter.reason_bits())
        return seconds

    for preparation in range(PREPARATIONS):
        try:
            prepared = _prepare(slots, case, plan, pins)
        except CaseFailed as error:
            if error.failure.kind != "OutOfMemoryError":
                raise
            return _sample_apart(slots, case, plan, pins)
        plan = prepared[0].plan
        for taken, cycles in zip(turns, _take_turns(visit, settle_s=0.0 if preparation else SETTLE_S), strict=True):
            taken.append(cycles)
    return PairSample(
        case=case,
        plan=prepared[0].plan,
        seconds=(tuple(turns[0]), tuple(turns[1])),
        launch_seconds=_sample_launches(slots, case) if prepared[0].plan.method is Method.GRAPH else ((), ()),
        choices=(prepared[0].choices, prepared[1].choices),
        borrowed=prepared[1].borrowed,
        fault=pair_fault(*(SlotReading.of(*reading) for reading in readings)) if meter else "",
    )


def _take_turns(visit: Callable[..., tuple[float, ...]], *, settle_s: float) -> tuple[Cycles, Cycles]:
    """Take turns in ABBA order until the cycles agree; a visit is two turns long.

    The first visit to either slot after it was prepared is thrown away, but for the turn before the first cycle: the
    first samples of a copy of 1 GB were 5 % slow.
    """
    zero: list[tuple[float, ...]] = []
    one: list[tuple[float, ...]] = []
    visit(1, SAMPLES)
    before = visit(0)[SAMPLES:]
    until = time.monotonic() + settle_s
    while len(zero) < CYCLES[1]:
        between, around = visit(1), visit(0)
        after, then = around[:SAMPLES], around[SAMPLES:]
        drift = abs(math.log(statistics.median(after) / statistics.median(before)))
        if zero or drift < DRIFT or time.monotonic() >= until:
            zero.append(before + after)
            one.append(between)
            if len(zero) >= CYCLES[0] and _error(zero, one) <= CYCLE_ERROR * math.sqrt(PREPARATIONS):
                break
        before = then
    return tuple(zero), tuple(one)


def _error(zero: Sequence[tuple[float, ...]], one: Sequence[tuple[float, ...]]) -> float:
    """Return the standard error of the median of the cycles' log ratios, which is the same whoever is head."""
    ratios = cycle_log_ratios(tuple(zero), tuple(one))
    return _MEDIAN_ERROR * statistics.stdev(ratios) / math.sqrt(len(ratios))


def _sample_launches(slots: Slots, case: Case) -> Turns:
    zero, one = [], []
    for _ in range(LAUNCH_CYCLES):
        first, between, last = (slots[slot].launch(case, calls) for slot, calls in _LAUNCH_TURNS)
        zero.append(first + last)
        one.append(between)
    return (tuple(zero),), (tuple(one),)


def _prepare(
    slots: Slots,
    case: Case,
    plan: Plan | None,
    pins: tuple[Sequence[Choice], Sequence[Choice]],
    *,
    lending: bool = True,
) -> tuple[Prepared, Prepared]:
    """Make the case ready in both slots, under one plan, and on the same inputs where these can be lent."""
    first, second = slots
    second.release(case)  # what it has borrowed, before its owner gives it back
    zero = first.prepare(case, plan, pins[0])
    one = second.prepare(case, zero.plan, pins[1], lent=first.lend(case, second) if lending else "")
    if one.refusal is Refusal.UNOPENED:  # what nobody opens is not given back: lend no more of it
        first.lends = False
    if one.refusal is Refusal.WRITTEN:
        return _prepare(slots, case, one.plan, pins, lending=False)
    if one.plan != zero.plan:  # it could not be captured into a graph: sample both alike
        return _prepare(slots, case, one.plan, pins, lending=lending)
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
        seconds=(((tuple(taken[0]),),), ((tuple(taken[1]),),)),
        choices=(choices[0], choices[1]),
    )

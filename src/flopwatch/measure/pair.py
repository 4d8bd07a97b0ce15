"""Two workers on one GPU, taking turns: the samples from which an effect is estimated.

The enemy inside a pair is the power controller, which moves within milliseconds: many short turns beat few long ones.
On an H200 (2026-11-20) 16 ABBA cycles of 3 samples gave an A/A error of 0.05 % where 4 cycles of 12 gave 0.7 to 2.4 %
at the same cost. The next one is the placement of buffers, which differs from process to process: slot 1 borrows the
inputs of slot 0 (`flopwatch.measure.lending`), and the results of both are moved between turns.

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
from flopwatch.measure.fitness import SlotReading, clocks_apart, pair_fault
from flopwatch.measure.protocol import Method, Plan, Prepared, Refusal
from flopwatch.model import Case, Choice

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from flopwatch.measure.client import Worker

#: So often a pair moves the results to other memory; more than the least only while the places differ. Those of a tiny
#: kernel differ by 0.35 %, of most from 100 us up by less than 0.02 % (VectorAddSizes 65536; the middle of 20 cases;
#: H200, 2026-11-21). Three places of a long kernel that agree to its aim often do so by chance (docs/decisions/0002).
PLACEMENTS = (3, 16)
LEAST_LONG_PLACEMENTS = 5
#: ABBA cycles at each place. What the places differ by is averaged over places alone, so that there are many of them
#: before there are many cycles at each.
CYCLES = (2, 12)
#: What the error of a pair is brought to within these bounds. Kernels from `LONG_SECONDS` up bear more: each of their
#: cycles costs 5 ms, as that of short ones, but their places differ by less.
AIM = 0.0012
LONG_SECONDS = 100e-6
LONG_AIM = 0.0007
#: After so long a case has the fewest cycles and placements that are left: 192 cycles of a kernel of 200 ms would take
#: three minutes. Of the bundled suites none takes 2 s (H200, 2026-11-21).
PAIR_S = 10.0
#: Samples in a turn. Two turns that follow each other in one slot, as the inner ones of ABBA do, are taken in one
#: visit. It costs 1.3 ms beside its samples (0.8 ms to wake the other process, and an untimed one; H200, 2026-11-21).
SAMPLES = 2
#: A kernel that is sampled alone has as many as fill a turn of this length, within the bounds: while the power
#: controller moves, as for 8192x8192x8192 (1.7 ms), turns of three differ by 1.6 %, three times what their samples say;
#: samples of attention of 200 us scatter by 1 %, each for itself (H200, 2026-11-21).
TURN_S = 1.8e-3
SAMPLES_ALONE = (1, 6)
#: At first cycles are thrown away, for so long at most, while slot 0 changes by `DRIFT` from one turn to its next: the
#: power controller and the clocks need it after the case before. Attention of 19 us was 11 % slow at first and took
#: 80 ms to settle; 2048x4096x14336 differed by 2 to 5 % for 30 ms (H200, 2026-11-21). At each later place it is one
#: cycle at most, for what is slow in new memory: 8192x8192x128, which writes 1.5 GB a sample, was 8 and 2 % slow in
#: the first two samples of slot 0 that count (H200, 2026-11-23).
SETTLE_S = 0.08
DRIFT = 0.01
#: For the cost of a launch to the host, which the time of a graph leaves out.
LAUNCH_CYCLES = 3
LAUNCHES = 4
#: Where memory holds a case only once.
SAMPLES_APART = 90
_ABBA = (0, 1, 1, 0)
_TRIM = 4

Slots: TypeAlias = "tuple[Worker, Worker]"
#: Seconds per call, of each cycle at one place of one slot's results.
Cycles: TypeAlias = tuple[tuple[float, ...], ...]
#: Slot -> placement -> cycles.
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
        seconds: of each slot, by placement and cycle: seconds per call.
        launch_seconds: likewise, what a call costs the host; no placement where that was not measured.
        choices: what each slot's autotuned kernels ran in.
        borrowed: both slots had the same inputs in the same memory.
        fault: why the pair cannot be used by itself, in words that do not depend on which slot is head; "" if it can.
        clocks_mhz: mean clock of either slot, where that these differ is the fault: many pairs can tell whose it is.
    """

    case: Case
    plan: Plan
    seconds: Turns
    launch_seconds: Turns = ((), ())
    choices: tuple[tuple[Choice, ...], tuple[Choice, ...]] = NO_PINS
    borrowed: bool = False
    fault: str = ""
    clocks_mhz: tuple[float, float] | None = None

    @property
    def log_ratio(self) -> float:
        """Slot 1 against slot 0."""
        return log_ratio(self.seconds)

    @property
    def launch_log_ratio(self) -> float | None:
        """The same of the cost to the host; None where that was not measured."""
        return launch_log_ratio(self.launch_seconds) if self.launch_seconds[0] else None

    def median_seconds(self, slot: int) -> float:
        """Return the median of all samples of a slot."""
        return _median(self.seconds[slot])

    def median_launch_seconds(self, slot: int) -> float | None:
        """Return the same of the cost to the host; None where that was not measured."""
        return _median(self.launch_seconds[slot]) if self.launch_seconds[slot] else None


def _median(placements: tuple[Cycles, ...]) -> float:
    return statistics.median(seconds for cycles in placements for cycle in cycles for seconds in cycle)


def log_ratio(turns: Turns) -> float:
    """Return the interquartile mean, over the cycles of all placements, of log(slot 1's mean / slot 0's mean).

    Cycles have outliers, which the quarters cut away bear; what is left is averaged, because samples scatter like
    normal noise and a median would waste a third of them. Medians of medians erred by 0.111 %, this by 0.103 % on the
    same samples; with 10 cycles a placement, by 0.115 % and 0.095 % (23 pairs of 66 cases; the five noisiest of
    them; H200, 2026-11-21).

    >>> round(log_ratio(((((1.0, 1.0), (2.0, 2.0)),), (((1.1, 1.1), (2.2, 2.2)),))), 4)
    0.0953
    """
    return _interquartile_mean(_cycle_log_ratios(turns))


def launch_log_ratio(turns: Turns) -> float:
    """Return the median over the cycles of log(slot 1's median / slot 0's median): a host has more outliers than a GPU.

    >>> round(launch_log_ratio(((((1.0, 1.0, 9.0), (2.0,), (1.0,)),), (((1.1, 1.1, 1.1), (2.2,), (1.1,)),))), 4)
    0.0953
    """
    return statistics.median(
        math.log(statistics.median(one) / statistics.median(zero))
        for placements in zip(*turns, strict=True)
        for zero, one in zip(*placements, strict=True)
    )


def _cycle_log_ratios(turns: Turns) -> list[float]:
    return [
        math.log(statistics.fmean(one) / statistics.fmean(zero))
        for placements in zip(*turns, strict=True)
        for zero, one in zip(*placements, strict=True)
    ]


def _interquartile_mean(values: Sequence[float]) -> float:
    cut = len(values) // _TRIM
    return statistics.fmean(sorted(values)[cut : len(values) - cut])


def _error(values: Sequence[float]) -> float:
    """Return the standard error of the interquartile mean: the same for values of opposite signs, whoever is head.

    J. W. Tukey and D. H. McLaughlin, "Less vulnerable confidence and significance procedures for location based on a
    single sample", Sankhya A 25 (1963): the deviation after the cut values were replaced by those next to them, over
    the share that is left and the root of the number.

    >>> round(_error([-0.1, 0.1, -0.2, 0.2, -9.0, 9.0, -0.2, 0.2]), 4)
    0.1363
    """
    cut = len(values) // _TRIM
    inner = sorted(values)[cut : len(values) - cut]
    winsorized = [inner[0]] * cut + inner + [inner[-1]] * cut
    return statistics.stdev(winsorized) / (len(inner) / len(values)) / math.sqrt(len(values))


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
    taken = _Taken()
    readings: list[tuple[list[int], list[int]]] = [([], []), ([], [])]

    def visit(slot: int, samples: int) -> tuple[float, ...]:
        seconds = slots[slot].visit(case, samples)
        if meter:
            readings[slot][0].append(meter.clock())
            readings[slot][1].append(meter.reason_bits())
        return seconds

    try:
        prepared = _prepare(slots, case, plan, pins)
        plan = prepared[0].plan
        while taken.wants_placement():
            if taken.placements:
                side_by_side(lambda worker: worker.place(case), slots)
            _take_turns(visit, taken, plan)
        turns = taken.turns
        launches = _sample_launches(slots, case) if plan.method is Method.GRAPH else ((), ())
    except CaseFailed as error:
        if error.failure.kind != "OutOfMemoryError":
            raise
        prepared, turns = _sample_apart(slots, case, plan, pins, visit)
        launches = ((), ())
    zero, one = (SlotReading.of(*reading) for reading in readings)
    return PairSample(
        case=case,
        plan=prepared[0].plan,
        seconds=turns,
        launch_seconds=launches,
        choices=(prepared[0].choices, prepared[1].choices),
        borrowed=prepared[1].borrowed,
        fault=pair_fault(zero, one),
        clocks_mhz=clocks_apart(zero, one),
    )


class _Taken:
    """The cycles that were taken, and whether they are enough."""

    def __init__(self) -> None:
        self._placements: list[list[tuple[tuple[float, ...], tuple[float, ...]]]] = []
        self._aim = AIM
        self._least, _ = PLACEMENTS
        self._until = time.monotonic() + PAIR_S

    @property
    def turns(self) -> Turns:
        """All samples."""
        zero, one = (tuple(tuple(cycle[slot] for cycle in cycles) for cycles in self._placements) for slot in range(2))
        return zero, one

    @property
    def placements(self) -> int:
        return len(self._placements)

    def wants_placement(self) -> bool:
        """Tell whether the results are to be moved once more."""
        if self.placements < PLACEMENTS[0]:
            return True
        if self.placements >= PLACEMENTS[1] or time.monotonic() >= self._until:
            return False
        if self.placements < self._least:
            return True
        means = [
            _interquartile_mean(_cycle_log_ratios(((zero,), (one,)))) for zero, one in zip(*self.turns, strict=True)
        ]
        return statistics.stdev(means) / math.sqrt(len(means)) > self._aim

    def begin(self, seconds: float) -> None:
        """Begin the cycles at a new place; a call takes so long."""
        self._placements.append([])
        if seconds >= LONG_SECONDS:
            self._aim, self._least = LONG_AIM, LEAST_LONG_PLACEMENTS

    def add(self, zero: tuple[float, ...], one: tuple[float, ...]) -> None:
        """Keep a cycle."""
        self._placements[-1].append((zero, one))

    def wants_cycle(self) -> bool:
        """Tell whether there is to be one more at this place; the least number of placements shares the work."""
        cycles = len(self._placements[-1])
        if cycles < CYCLES[0]:
            return True
        if cycles >= CYCLES[1] or time.monotonic() >= self._until:
            return False
        share = min(self.placements / self._least, 1.0)
        return _error(_cycle_log_ratios(self.turns)) > self._aim / math.sqrt(share)


def _take_turns(visit: Callable[[int, int], tuple[float, ...]], taken: _Taken, plan: Plan) -> None:
    """Take turns in ABBA order until the cycles agree; a visit is two turns long.

    The first visit to either slot at a new place is thrown away, but for the turn before the first cycle: the first
    samples of a copy of 1 GB were 5 % slow.
    """
    moved = bool(taken.placements)
    until = time.monotonic() + SETTLE_S
    seconds = statistics.median(visit(1, SAMPLES))
    length = _turn_samples(plan, seconds)
    before = visit(0, 2 * length)[length:]
    taken.begin(seconds)
    settled = False
    while taken.wants_cycle():
        between, around = visit(1, 2 * length), visit(0, 2 * length)
        after, then = around[:length], around[length:]
        drift = abs(math.log(statistics.median(after) / statistics.median(before)))
        settled = settled or drift < DRIFT or time.monotonic() >= until
        if settled:
            taken.add(before + after, between)
        settled = settled or moved
        before = then


def _turn_samples(plan: Plan, seconds: float) -> int:
    """Choose the samples of a turn by the time of a call.

    >>> alone = Plan(method=Method.GRAPH, calls=1, input_sets=1)
    >>> [_turn_samples(alone, seconds) for seconds in (200e-6, 600e-6, 1.7e-3, 20e-3)]
    [6, 3, 1, 1]
    """
    if plan.calls > 1:
        return SAMPLES
    least, most = SAMPLES_ALONE
    return min(max(round(TURN_S / seconds), least), most)


def _sample_launches(slots: Slots, case: Case) -> Turns:
    zero, one = [], []
    before = slots[0].launch(case, LAUNCHES)
    for _ in range(LAUNCH_CYCLES):
        between, around = (slots[slot].launch(case, 2 * LAUNCHES) for slot in (1, 0))
        zero.append(before + around[:LAUNCHES])
        one.append(between)
        before = around[LAUNCHES:]
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
    slots: Slots,
    case: Case,
    plan: Plan | None,
    pins: tuple[Sequence[Choice], Sequence[Choice]],
    visit: Callable[[int, int], tuple[float, ...]],
) -> tuple[tuple[Prepared, Prepared], Turns]:
    """Take turns that are far apart, because the GPU's memory holds the case only once.

    A cycle has the samples of both turns of a slot that come at the same time of a turn: so it has its own outliers.
    """
    taken: tuple[list[tuple[float, ...]], list[tuple[float, ...]]] = ([], [])
    prepared: dict[int, Prepared] = {}
    for slot in _ABBA:
        slots[1 - slot].release(case)
        prepared[slot] = slots[slot].prepare(case, plan, pins[slot])
        if plan not in (None, prepared[slot].plan):  # it could not be captured into a graph: sample both alike
            return _sample_apart(slots, case, prepared[slot].plan, pins, visit)
        plan = prepared[slot].plan
        taken[slot].append(visit(slot, SAMPLES_APART))
    zero, one = (
        tuple(
            first[start : start + SAMPLES] + then[start : start + SAMPLES] for start in range(0, SAMPLES_APART, SAMPLES)
        )
        for first, then in taken
    )
    return (prepared[0], prepared[1]), ((zero,), (one,))

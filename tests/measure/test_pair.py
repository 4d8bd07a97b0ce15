from __future__ import annotations

import math
import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

import pytest

import flopwatch.measure.pair
from flopwatch.measure.client import CaseFailed
from flopwatch.measure.pair import (
    CYCLES,
    LAUNCH_CYCLES,
    LAUNCHES,
    LEAST_LONG_PLACEMENTS,
    PLACEMENTS,
    SAMPLES,
    SAMPLES_APART,
    launch_log_ratio,
    log_ratio,
    sample_pair,
)
from flopwatch.measure.protocol import Method, Plan, Prepared, Refusal
from flopwatch.model import Case, Choice, Failure

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flopwatch.measure.pair import PairSample, Slots

CASE = Case(suite="Toy", values=("flopwatch",))
GRAPH = Plan(method=Method.GRAPH, calls=64, input_sets=8)
ALONE = Plan(method=Method.GRAPH, calls=1, input_sets=1)
EVENTS = Plan(method=Method.EVENTS, calls=64, input_sets=8)
HARDWARE_THERMAL_BIT = 0x40
FEWEST, MOST = LEAST_LONG_PLACEMENTS, PLACEMENTS[1]


@dataclass(kw_only=True)
class Gpu:
    """A GPU with a clock that drifts and scatters: every sample differs from the one before, whoever takes it."""

    drift: float = 0.0
    scatter: float = 0.0
    #: How many sides' cases its memory holds.
    room: int = 2
    samples: int = 0
    seed: int = 0
    order: list[str] = field(default_factory=list)
    holders: set[str] = field(default_factory=set)
    clock_mhz: int = 0
    bits: int = 0
    #: Whether memory can be lent, whose inputs were offered, and whose the other slot has borrowed.
    lends: bool = True
    lender: object = None
    lent: object = None
    refusal: Refusal | None = None

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)

    def take(self, seconds: float) -> float:
        self.samples += 1
        return seconds * (1 + self.drift * self.samples) * math.exp(self.scatter * self._random.gauss())

    def clock(self) -> int:
        return self.clock_mhz

    def reason_bits(self) -> int:
        return self.bits


@dataclass(kw_only=True)
class Side:
    """Stands in for a worker, to test the arithmetic of turns on a known clock."""

    name: str
    seconds: float
    gpu: Gpu
    own_plan: Plan = GRAPH
    captures: bool = True
    clock_mhz: int = 1980
    bits: int = 0
    fails: str = ""
    placed: int = 0
    lends: bool = True
    plans: list[Plan | None] = field(default_factory=list)
    followed: Plan | None = None
    pins: list[tuple[Choice, ...]] = field(default_factory=list)

    def prepare(self, case: Case, plan: Plan | None = None, pins: Sequence[Choice] = (), *, lent: str = "") -> Prepared:
        assert case == CASE
        assert self.gpu.lent is not self, "gives back what the other slot still has"
        if lent:
            self.gpu.lent = self.gpu.lender
        if self.fails:
            raise CaseFailed(Failure(kind=self.fails, message="planted"))
        if len(self.gpu.holders - {self.name}) >= self.gpu.room:
            raise CaseFailed(Failure(kind="OutOfMemoryError", message="no room"))
        self.gpu.holders.add(self.name)
        self.plans.append(plan)
        self.pins.append(tuple(pins))
        chosen = plan or self.own_plan
        if not self.captures:
            chosen = Plan(method=Method.EVENTS, calls=chosen.calls, input_sets=chosen.input_sets)
        self.followed = chosen
        return Prepared(
            plan=chosen,
            choices=(Choice(kernel="k", config=self.name),),
            borrowed=bool(lent),
            refusal=self.gpu.refusal if lent else None,
        )

    def lend(self, case: Case, to: object) -> str:
        assert case == CASE
        assert to is not self
        self.gpu.lender = self
        return "memory" if self.gpu.lends and self.lends else ""

    def release(self, case: Case) -> None:
        assert case == CASE
        assert self.gpu.lent is not self, "gives back what the other slot still has"
        self.gpu.lent = None
        self.gpu.holders.discard(self.name)

    def visit(self, case: Case, samples: int) -> tuple[float, ...]:
        assert case == CASE
        self.gpu.order.append(self.name)
        self.gpu.clock_mhz, self.gpu.bits = self.clock_mhz, self.bits
        return tuple(self.gpu.take(self.seconds) for _ in range(samples))

    def place(self, case: Case) -> None:
        assert case == CASE
        self.placed += 1

    def launch(self, case: Case, samples: int) -> tuple[float, ...]:
        assert case == CASE
        return tuple(self.gpu.take(self.seconds / 100) for _ in range(samples))


def sides(zero: float = 1.0, one: float = 1.0, *, gpu: Gpu | None = None) -> tuple[Side, Side]:
    gpu = gpu or Gpu()
    return Side(name="zero", seconds=zero * 1e-3, gpu=gpu), Side(name="one", seconds=one * 1e-3, gpu=gpu)


def sample(
    slots: tuple[Side, Side], *, plan: Plan | None = None, pins: tuple[Sequence[Choice], Sequence[Choice]] = ((), ())
) -> PairSample:
    return sample_pair(cast("Slots", slots), CASE, plan=plan, pins=pins, meter=slots[0].gpu)


def cycles(zero: float, one: float, *, scatter: float, seed: int = 0) -> int:
    return counted(sample(sides(zero, one, gpu=Gpu(scatter=scatter, seed=seed))))


def counted(found: PairSample) -> int:
    """Count the cycles of all preparations, of which both slots have as many."""
    numbers = [[len(taken) for taken in slot] for slot in found.seconds]
    assert numbers[0] == numbers[1]
    return sum(numbers[0])


def placements(found: PairSample) -> int:
    return len(found.seconds[0])


@pytest.mark.parametrize(("zero", "one"), [(1.0, 1.02), (1.02, 1.0)])
def test_a_slowdown_is_measured_in_either_slot(zero: float, one: float) -> None:
    found = sample(sides(zero, one))

    assert found.log_ratio == pytest.approx(math.log(one / zero))
    assert found.launch_log_ratio == pytest.approx(math.log(one / zero))


def test_a_drifting_clock_cancels() -> None:
    found = sample(sides(gpu=Gpu(drift=1e-5)))  # 1.2e-4 from the first sample of a cycle to the last

    assert abs(found.log_ratio) < 1e-8


def test_turns_are_abba_of_visits_that_are_two_turns_long() -> None:
    slots = sides()
    found = sample(slots)
    unmeasured, measured = ["one"], ["zero", *["one", "zero"] * CYCLES[0]]

    assert slots[0].gpu.order == [*unmeasured, *measured] * FEWEST
    assert [len(taken) for slot in found.seconds for taken in slot] == [CYCLES[0]] * 2 * FEWEST


class CountingGpu(Gpu):
    """A GPU on which a sample is worth its number, so that each tells when it was taken."""

    def take(self, seconds: float) -> float:
        del seconds
        self.samples += 1
        return 1e6 + self.samples


def test_a_cycle_has_slot_0_before_and_after_slot_1() -> None:
    found = sample(sides(gpu=CountingGpu()))
    ends = [SAMPLES + 2 * SAMPLES * visit for visit in range(4)]
    visits = [range(1, SAMPLES + 1), *(range(end + 1, end + 2 * SAMPLES + 1) for end in ends)]

    assert [seconds - 1e6 for seconds in found.seconds[0][0][0]] == [*visits[1][SAMPLES:], *visits[3][:SAMPLES]]
    assert [seconds - 1e6 for seconds in found.seconds[1][0][0]] == [*visits[2]]


def test_while_the_clock_moves_cycles_are_thrown_away_after_the_first_preparation_alone() -> None:
    gpu = Gpu(drift=3.9e-3 / SAMPLES)  # 1.2 % from one turn of slot 0 to its next, less and less as samples grow
    slots = sides(gpu=gpu)
    found = sample(slots)
    unmeasured = len(gpu.order) - placements(found) * 2 - 2 * counted(found)

    assert unmeasured > 0
    assert abs(found.log_ratio) < 1e-4


def test_a_clock_that_never_settles_is_measured_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flopwatch.measure.pair, "SETTLE_S", 0.0)
    gpu = Gpu(scatter=0.3)
    found = sample(sides(gpu=gpu))

    assert len(gpu.order) == placements(found) * 2 + 2 * counted(found)


def test_a_quiet_clock_takes_few_cycles_and_a_noisy_one_takes_all() -> None:
    assert cycles(1.0, 1.0, scatter=1e-5) == FEWEST * CYCLES[0]
    assert cycles(1.0, 1.0, scatter=0.3) == MOST * CYCLES[1]


def test_in_between_the_noise_decides() -> None:
    found = [cycles(1.0, 1.0, scatter=0.004, seed=seed) for seed in range(20)]

    assert FEWEST * CYCLES[0] < sum(found) / len(found) < MOST * CYCLES[1]


def test_a_long_kernel_is_measured_better() -> None:
    """The aims, 0.12 and 0.07 %, differ by 1.7: cycles by its square."""

    def taken(milliseconds: float, seed: int) -> int:
        slots = sides(milliseconds, milliseconds, gpu=Gpu(scatter=0.004, seed=seed))
        return counted(sample(slots))

    short = sum(taken(0.05, seed) for seed in range(20))
    assert 2 * short < sum(taken(0.15, seed) for seed in range(20)) < 4 * short


def test_places_of_a_long_kernel_that_agree_by_chance_are_not_enough() -> None:
    def places(milliseconds: float) -> int:
        return placements(sample(sides(milliseconds, milliseconds, gpu=Gpu(scatter=1e-5))))

    assert places(0.05) == PLACEMENTS[0]
    assert places(0.15) == LEAST_LONG_PLACEMENTS > PLACEMENTS[0]


class CrowdedSide(Side):
    """A side without memory for its results beside those it had."""

    def place(self, case: Case) -> None:
        raise CaseFailed(Failure(kind="OutOfMemoryError", message=f"no room for {case.id} twice"))


class MovedSide(Side):
    """A side that is 1 % slower at every second place."""

    def visit(self, case: Case, samples: int) -> tuple[float, ...]:
        slowdown = 1 + 0.01 * (self.placed % 2)
        return tuple(slowdown * seconds for seconds in super().visit(case, samples))


def test_where_places_differ_the_results_are_moved_again() -> None:
    zero, one = sides()
    moved = MovedSide(name=one.name, seconds=one.seconds, gpu=one.gpu)

    assert placements(sample((zero, one))) == FEWEST
    assert placements(sample((zero, moved))) == MOST


class StartledSide(Side):
    """A side that is slow in its first visit after a move."""

    startled = False

    def place(self, case: Case) -> None:
        super().place(case)
        self.startled = True

    def visit(self, case: Case, samples: int) -> tuple[float, ...]:
        slowdown, self.startled = 1 + 0.05 * self.startled, False
        return tuple(slowdown * seconds for seconds in super().visit(case, samples))


def test_what_is_slow_in_new_memory_does_not_count() -> None:
    zero, one = sides()
    startled = StartledSide(name=zero.name, seconds=zero.seconds, gpu=zero.gpu)
    found = sample((startled, one))

    assert placements(found) == FEWEST
    assert abs(found.log_ratio) < 1e-4


class VisitedSide(Side):
    """A side that knows how often it was visited at each place."""

    visits: tuple[int, ...] = (0,)

    def place(self, case: Case) -> None:
        super().place(case)
        self.visits += (0,)

    def visit(self, case: Case, samples: int) -> tuple[float, ...]:
        self.visits = (*self.visits[:-1], self.visits[-1] + 1)
        return super().visit(case, samples)


def test_after_a_move_one_cycle_is_thrown_away_at_most() -> None:
    zero, one = sides(gpu=Gpu(scatter=0.02))
    visited = VisitedSide(name=zero.name, seconds=zero.seconds, gpu=zero.gpu)
    found = sample((visited, one))

    kept = [1 + len(cycles) for cycles in found.seconds[0]]
    assert {visits - each for visits, each in zip(visited.visits[1:], kept[1:], strict=True)} == {0, 1}


@pytest.mark.parametrize(("milliseconds", "length"), [(0.2, 6), (0.6, 3), (1.7, 1), (20.0, 1)])
def test_a_kernel_that_is_sampled_alone_has_turns_of_like_length(milliseconds: float, length: int) -> None:
    found = sample(sides(milliseconds, milliseconds), plan=ALONE)

    assert {len(cycle) for slot in found.seconds for taken in slot for cycle in taken} == {2 * length}


def test_what_a_launch_costs_is_a_median() -> None:
    turns = ((((1.0, 1.0, 9.0), (2.0,), (1.0,)),), (((1.1, 1.1, 1.1), (2.2,), (4.0,)),))

    assert launch_log_ratio(turns) == pytest.approx(math.log(1.1))


def test_a_few_wild_cycles_do_not_move_the_ratio() -> None:
    quiet, wild = (1.0,), (5.0,)
    turns = (((quiet,) * 8,), ((quiet, wild, quiet, quiet, wild, quiet, quiet, quiet),))

    assert log_ratio(turns) == 0


@pytest.mark.parametrize("seed", range(10))
def test_the_number_of_cycles_does_not_depend_on_which_slot_is_slower(seed: int) -> None:
    slower_one = cycles(1.0, 1.05, scatter=0.004, seed=seed)

    assert slower_one == cycles(1.05, 1.0, scatter=0.004, seed=seed) == cycles(1.0, 1.0, scatter=0.004, seed=seed)


def test_both_slots_follow_the_plan_of_slot_0_and_their_results_are_moved() -> None:
    slots = sides()
    found = sample(slots)

    assert found.plan == GRAPH
    assert slots[0].plans == [None]
    assert slots[1].plans == [GRAPH]
    assert [slot.placed for slot in slots] == [FEWEST - 1] * 2


@pytest.mark.parametrize("lends", [True, False])
def test_slot_1_runs_on_the_inputs_of_slot_0_and_gives_them_back_first(lends: bool) -> None:
    slots = sides(gpu=Gpu(lends=lends))

    assert sample(slots).borrowed is lends
    assert slots[0].gpu.lent is (slots[0] if lends else None)


def test_inputs_that_a_kernel_writes_to_are_not_shared() -> None:
    slots = sides(gpu=Gpu(refusal=Refusal.WRITTEN))

    assert not sample(slots).borrowed
    assert [len(slot.plans) for slot in slots] == [2, 2]
    assert slots[0].lends


def test_memory_that_cannot_be_opened_is_lent_once() -> None:
    slots = sides(gpu=Gpu(refusal=Refusal.UNOPENED))
    sample(slots)

    assert not slots[0].lends
    assert [len(slot.plans) for slot in slots] == [1, 1]


def test_a_plan_that_is_given_is_followed() -> None:
    slots = sides()
    found = sample(slots, plan=ALONE)

    assert found.plan == ALONE
    assert [slot.plans for slot in slots] == [[ALONE]] * 2


@pytest.mark.parametrize("slot", [0, 1])
@pytest.mark.parametrize("plan", [None, GRAPH])
def test_where_one_slot_cannot_be_captured_both_use_events(slot: int, plan: Plan | None) -> None:
    slots = sides()
    slots[slot].captures = False
    found = sample(slots, plan=plan)

    assert found.plan == EVENTS
    assert [side.followed for side in slots] == [EVENTS, EVENTS]
    assert found.log_ratio == 0


def test_each_slot_has_its_own_pins_and_choices() -> None:
    pins = ((Choice(kernel="k", config="a"),), (Choice(kernel="k", config="b"),))
    slots = sides()
    found = sample(slots, pins=pins)

    assert [slot.pins for slot in slots] == [[pins[0]], [pins[1]]]
    assert [[choice.config for choice in choices] for choices in found.choices] == [["zero"], ["one"]]


def test_the_launch_is_measured_of_kernels_that_are_sampled_many_at_a_time() -> None:
    found = sample(sides())

    assert [[[len(cycle) for cycle in taken] for taken in slot] for slot in found.launch_seconds] == [
        [[2 * LAUNCHES] * LAUNCH_CYCLES]
    ] * 2


def test_the_launch_is_not_measured_where_it_is_part_of_the_time() -> None:
    found = sample(sides(), plan=EVENTS)

    assert found.launch_seconds == ((), ())
    assert found.launch_log_ratio is None


@pytest.mark.parametrize("clocks", [(1980, 1950), (1950, 1980)])
def test_a_pair_at_different_clocks_is_at_fault_whichever_slot_was_slow(clocks: tuple[int, int]) -> None:
    slots = sides()
    for slot, clock in zip(slots, clocks, strict=True):
        slot.clock_mhz = clock

    found = sample(slots)

    assert found.fault == "the clocks of the two slots differ by 1.53 % (1950 and 1980 MHz)"
    assert found.clocks_mhz == clocks


@pytest.mark.parametrize("slot", [0, 1])
def test_a_pair_during_which_the_gpu_slowed_down_is_at_fault(slot: int) -> None:
    slots = sides()
    slots[slot].bits, slots[slot].clock_mhz = HARDWARE_THERMAL_BIT, 1200
    found = sample(slots)

    assert found.fault.startswith("the GPU slowed down during the pair:")
    assert found.clocks_mhz is None


def test_a_pair_at_one_clock_is_not_at_fault_nor_is_one_that_nobody_watched() -> None:
    assert (sample(sides()).fault, sample(sides()).clocks_mhz) == ("", None)
    slots = sides()
    slots[0].clock_mhz = 1000
    assert sample_pair(cast("Slots", slots), CASE).fault == ""


@pytest.mark.parametrize("slot", [0, 1])
def test_a_slot_that_fails_fails_the_pair(slot: int) -> None:
    slots = sides()
    slots[slot].fails = "ArithmeticError"
    with pytest.raises(CaseFailed, match="ArithmeticError: planted"):
        sample(slots)


@pytest.mark.parametrize("plan", [None, GRAPH])
def test_where_memory_holds_the_case_once_the_slots_take_turns_apart(plan: Plan | None) -> None:
    slots = sides(1.0, 1.02, gpu=Gpu(room=1))
    found = sample(slots, plan=plan)

    assert found.log_ratio == pytest.approx(math.log(1.02))
    assert found.plan == GRAPH
    assert slots[0].gpu.order == ["zero", "one", "one", "zero"]
    assert [[choice.config for choice in choices] for choices in found.choices] == [["zero"], ["one"]]
    assert {len(cycle) for slot in found.seconds for taken in slot for cycle in taken} == {2 * SAMPLES}
    assert sum(len(cycle) for cycle in found.seconds[0][0]) == 2 * SAMPLES_APART


class WildGpu(Gpu):
    """A GPU on which one sample in a hundred takes ten times as long."""

    def take(self, seconds: float) -> float:
        return super().take(seconds) * (10 if self.samples % 100 == 50 else 1)


def test_turns_that_are_far_apart_bear_wild_samples() -> None:
    assert sample(sides(1.0, 1.02, gpu=WildGpu(room=1))).log_ratio == pytest.approx(math.log(1.02))


def test_a_gpu_that_slows_down_while_turns_are_far_apart_is_a_fault() -> None:
    slots = sides(gpu=Gpu(room=1))
    slots[1].bits = HARDWARE_THERMAL_BIT

    assert sample(slots).fault.startswith("the GPU slowed down during the pair:")


def test_a_case_that_takes_too_long_has_the_least_of_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flopwatch.measure.pair, "PAIR_S", 0.0)

    assert cycles(1.0, 1.0, scatter=0.3) == PLACEMENTS[0] * CYCLES[0]


def test_where_memory_does_not_hold_the_results_twice_the_slots_take_turns_apart() -> None:
    zero, one = sides(1.0, 1.02)
    crowded = CrowdedSide(name=one.name, seconds=one.seconds, gpu=one.gpu)
    found = sample((zero, crowded))

    assert found.log_ratio == pytest.approx(math.log(1.02))
    assert {len(cycle) for slot in found.seconds for taken in slot for cycle in taken} == {2 * SAMPLES}
    assert sum(len(cycle) for cycle in found.seconds[0][0]) == 2 * SAMPLES_APART


def test_where_memory_does_not_hold_the_case_at_all_the_pair_fails() -> None:
    with pytest.raises(CaseFailed, match="OutOfMemoryError: no room"):
        sample(sides(gpu=Gpu(room=0)))

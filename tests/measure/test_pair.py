from __future__ import annotations

import math
import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

import pytest

import flopwatch.measure.pair
from flopwatch.measure.client import CaseFailed
from flopwatch.measure.pair import CYCLES, LAUNCH_CYCLES, LAUNCHES, PREPARATIONS, SAMPLES, sample_pair
from flopwatch.measure.protocol import Method, Plan, Prepared
from flopwatch.model import Case, Choice, Failure

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flopwatch.measure.pair import PairSample, Slots

CASE = Case(suite="Toy", values=("flopwatch",))
GRAPH = Plan(method=Method.GRAPH, calls=64, input_sets=8)
ALONE = Plan(method=Method.GRAPH, calls=1, input_sets=1)
EVENTS = Plan(method=Method.EVENTS, calls=64, input_sets=8)
HARDWARE_THERMAL_BIT = 0x40


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
    plans: list[Plan | None] = field(default_factory=list)
    pins: list[tuple[Choice, ...]] = field(default_factory=list)

    def prepare(self, case: Case, plan: Plan | None = None, pins: Sequence[Choice] = ()) -> Prepared:
        assert case == CASE
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
        return Prepared(plan=chosen, choices=(Choice(kernel="k", config=self.name),))

    def release(self, case: Case) -> None:
        assert case == CASE
        self.gpu.holders.discard(self.name)

    def visit(self, case: Case, samples: int) -> tuple[float, ...]:
        assert case == CASE
        self.gpu.order.append(self.name)
        self.gpu.clock_mhz, self.gpu.bits = self.clock_mhz, self.bits
        return tuple(self.gpu.take(self.seconds) for _ in range(samples))

    def launch(self, case: Case, samples: int) -> tuple[float, ...]:
        assert case == CASE
        return tuple(self.gpu.take(self.seconds / 100) for _ in range(samples))


@pytest.fixture(autouse=True)
def _settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let long kernels settle at once, but where settling is tested."""
    monkeypatch.setattr(flopwatch.measure.pair, "SETTLE_FROM_SECONDS", math.inf)


def test_a_long_kernel_runs_unmeasured_until_the_power_controller_has_settled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flopwatch.measure.pair, "SETTLE_FROM_SECONDS", 100e-6)
    monkeypatch.setattr(flopwatch.measure.pair, "SETTLE_S", 0.01)
    slots = sides()
    found = sample(slots)

    measured = 4 * len(found.seconds[0])
    unmeasured = len(slots[0].gpu.order) - measured
    assert unmeasured > 4
    assert slots[0].gpu.order[:unmeasured].count("zero") == slots[0].gpu.order[:unmeasured].count("one")


def sides(zero: float = 1.0, one: float = 1.0, *, gpu: Gpu | None = None) -> tuple[Side, Side]:
    gpu = gpu or Gpu()
    return Side(name="zero", seconds=zero * 1e-3, gpu=gpu), Side(name="one", seconds=one * 1e-3, gpu=gpu)


def sample(
    slots: tuple[Side, Side], *, plan: Plan | None = None, pins: tuple[Sequence[Choice], Sequence[Choice]] = ((), ())
) -> PairSample:
    return sample_pair(cast("Slots", slots), CASE, plan=plan, pins=pins, meter=slots[0].gpu)


def cycles(zero: float, one: float, *, scatter: float, seed: int = 0) -> int:
    return len(sample(sides(zero, one, gpu=Gpu(scatter=scatter, seed=seed))).seconds[0])


@pytest.mark.parametrize(("zero", "one"), [(1.0, 1.02), (1.02, 1.0)])
def test_a_slowdown_is_measured_in_either_slot(zero: float, one: float) -> None:
    found = sample(sides(zero, one))

    assert found.log_ratio == pytest.approx(math.log(one / zero))
    assert found.launch_log_ratio == pytest.approx(math.log(one / zero))


def test_a_drifting_clock_cancels() -> None:
    found = sample(sides(gpu=Gpu(drift=1e-5)))  # 1.2e-4 from the first sample of a cycle to the last

    assert abs(found.log_ratio) < 1e-8


def test_turns_are_abba_and_slot_0_is_first() -> None:
    slots = sides()
    sample(slots)

    assert slots[0].gpu.order[2:] == ["zero", "one", "one", "zero"] * (PREPARATIONS * CYCLES[0])


def test_each_cycle_keeps_the_samples_of_both_turns_of_each_slot() -> None:
    found = sample(sides(1.0, 2.0))

    assert [len(slot) for slot in found.seconds] == [PREPARATIONS * CYCLES[0]] * 2
    assert [{len(cycle) for cycle in slot} for slot in found.seconds] == [{2 * SAMPLES}] * 2
    assert [{seconds for cycle in slot for seconds in cycle} for slot in found.seconds] == [{1e-3}, {2e-3}]


def test_a_quiet_clock_takes_few_cycles_and_a_noisy_one_takes_all() -> None:
    assert cycles(1.0, 1.0, scatter=1e-5) == PREPARATIONS * CYCLES[0]
    assert cycles(1.0, 1.0, scatter=0.05) == PREPARATIONS * CYCLES[1]


def test_in_between_the_noise_decides() -> None:
    found = [cycles(1.0, 1.0, scatter=0.004, seed=seed) for seed in range(20)]

    assert PREPARATIONS * CYCLES[0] < sum(found) / len(found) < PREPARATIONS * CYCLES[1]


@pytest.mark.parametrize("seed", range(10))
def test_the_number_of_cycles_does_not_depend_on_which_slot_is_slower(seed: int) -> None:
    slower_one = cycles(1.0, 1.05, scatter=0.004, seed=seed)

    assert slower_one == cycles(1.05, 1.0, scatter=0.004, seed=seed) == cycles(1.0, 1.0, scatter=0.004, seed=seed)


def test_both_slots_follow_the_plan_of_slot_0_and_are_prepared_anew_each_time() -> None:
    slots = sides()
    found = sample(slots)

    assert found.plan == GRAPH
    assert slots[0].plans == [None, *[GRAPH] * PREPARATIONS]
    assert slots[1].plans == [GRAPH] * PREPARATIONS


def test_a_plan_that_is_given_is_followed() -> None:
    slots = sides()
    found = sample(slots, plan=ALONE)

    assert found.plan == ALONE
    assert [slot.plans for slot in slots] == [[ALONE] * PREPARATIONS] * 2


@pytest.mark.parametrize("slot", [0, 1])
@pytest.mark.parametrize("plan", [None, GRAPH])
def test_where_one_slot_cannot_be_captured_both_use_events(slot: int, plan: Plan | None) -> None:
    slots = sides()
    slots[slot].captures = False
    found = sample(slots, plan=plan)

    assert found.plan == EVENTS
    assert [side.plans[-1] for side in slots] == [EVENTS, EVENTS]
    assert found.log_ratio == 0


def test_each_slot_has_its_own_pins_and_choices() -> None:
    pins = ((Choice(kernel="k", config="a"),), (Choice(kernel="k", config="b"),))
    slots = sides()
    found = sample(slots, pins=pins)

    assert [slot.pins for slot in slots] == [[pins[0]] * (PREPARATIONS + 1), [pins[1]] * PREPARATIONS]
    assert [[choice.config for choice in choices] for choices in found.choices] == [["zero"], ["one"]]


def test_the_launch_is_measured_of_kernels_that_are_sampled_many_at_a_time() -> None:
    found = sample(sides())

    assert [[len(cycle) for cycle in slot] for slot in found.launch_seconds] == [[2 * LAUNCHES] * LAUNCH_CYCLES] * 2


def test_the_launch_is_not_measured_where_it_is_part_of_the_time() -> None:
    found = sample(sides(), plan=EVENTS)

    assert found.launch_seconds == ((), ())
    assert found.launch_log_ratio is None


@pytest.mark.parametrize("clocks", [(1980, 1950), (1950, 1980)])
def test_a_pair_at_different_clocks_is_at_fault_whichever_slot_was_slow(clocks: tuple[int, int]) -> None:
    slots = sides()
    for slot, clock in zip(slots, clocks, strict=True):
        slot.clock_mhz = clock

    assert sample(slots).fault == "the clocks of the two slots differ by 1.53 % (1950 and 1980 MHz)"


@pytest.mark.parametrize("slot", [0, 1])
def test_a_pair_during_which_the_gpu_slowed_down_is_at_fault(slot: int) -> None:
    slots = sides()
    slots[slot].bits = HARDWARE_THERMAL_BIT

    assert sample(slots).fault.startswith("the GPU slowed down during the pair:")


def test_a_pair_at_one_clock_is_not_at_fault_nor_is_one_that_nobody_watched() -> None:
    assert sample(sides()).fault == ""
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
    assert [len(cycle) for slot in found.seconds for cycle in slot] == [2 * PREPARATIONS * CYCLES[1] * SAMPLES] * 2


def test_where_memory_does_not_hold_the_case_at_all_the_pair_fails() -> None:
    with pytest.raises(CaseFailed, match="OutOfMemoryError: no room"):
        sample(sides(gpu=Gpu(room=0)))

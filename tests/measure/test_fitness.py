from __future__ import annotations

import math
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flopwatch.errors import ExitCode, MachineError
from flopwatch.measure import fitness
from flopwatch.measure.fitness import Fault, SlotReading
from flopwatch.measure.machine import Gpu, Snapshot, ThrottleReason

H200 = Gpu(name="NVIDIA H200", uuid="GPU-1", mig=False, ecc=True)
REST = Snapshot(
    time_s=0.0,
    sm_clock_mhz=1980,
    temperature_c=33,
    margin_c=54,
    power_w=76.5,
    free_memory_bytes=140 << 30,
    reasons=(ThrottleReason.IDLE,),
    processes=(),
)
DISQUALIFYING = [
    ThrottleReason.HW_SLOWDOWN,
    ThrottleReason.SW_THERMAL,
    ThrottleReason.HW_THERMAL,
    ThrottleReason.HW_POWER_BRAKE,
]
HARMLESS = [reason for reason in ThrottleReason if reason not in DISQUALIFYING]

slot_readings = st.builds(
    SlotReading,
    sm_clock_mhz=st.none() | st.floats(300, 2200),
    reasons=st.lists(st.sampled_from(ThrottleReason), unique=True).map(tuple),
)


def slot(clock_mhz: float | None, *reasons: ThrottleReason) -> SlotReading:
    return SlotReading(sm_clock_mhz=clock_mhz, reasons=reasons)


def heating(degrees_per_minute: float, *, span_s: float = 150.0, start_c: float = 60.0) -> list[Snapshot]:
    """Return a snapshot a second, whole degrees as NVML tells them."""
    return [
        replace(REST, time_s=1000.0 + second, temperature_c=round(start_c + degrees_per_minute * second / 60))
        for second in range(int(span_s) + 1)
    ]


def whats(faults: tuple[Fault, ...]) -> list[str]:
    return [fault.what for fault in faults]


def test_a_gpu_at_rest_has_no_fault() -> None:
    assert fitness.before(H200, REST) == ()


def test_a_gpu_that_tells_nothing_has_no_fault() -> None:
    assert fitness.before(Gpu(name="Old", uuid="GPU-2"), Snapshot(time_s=0.0)) == ()


def test_a_process_that_was_there_first_is_foreign() -> None:
    (fault,) = fitness.before(H200, replace(REST, processes=(99, 412)))

    assert fault.what == "NVIDIA H200 is used by another process (99, 412)"
    assert "CUDA_VISIBLE_DEVICES" in fault.todo


def test_mig_is_a_fault() -> None:
    assert whats(fitness.before(replace(H200, mig=True), REST)) == ["NVIDIA H200 is cut into MIG instances"]


@pytest.mark.parametrize("reason", DISQUALIFYING)
def test_a_gpu_that_protects_itself_while_idle_is_a_fault(reason: ThrottleReason) -> None:
    (fault,) = fitness.before(H200, replace(REST, reasons=(ThrottleReason.IDLE, reason)))

    assert reason.value in fault.what


@pytest.mark.parametrize("reason", HARMLESS)
def test_a_power_cap_and_other_ordinary_reasons_are_no_fault(reason: ThrottleReason) -> None:
    assert fitness.before(H200, replace(REST, reasons=(reason,))) == ()
    assert fitness.pair_fault(slot(1980, reason), slot(1980)) == ""


@pytest.mark.parametrize(("margin_c", "faults"), [(10, 0), (9, 1), (-2, 1)])
def test_a_gpu_that_is_hot_before_any_load_is_a_fault(margin_c: int, faults: int) -> None:
    assert len(fitness.before(H200, replace(REST, margin_c=margin_c))) == faults


@pytest.mark.parametrize(("free_bytes", "faults"), [(4 << 30, 0), ((4 << 30) - 1, 1)])
def test_too_little_memory_is_a_fault(free_bytes: int, faults: int) -> None:
    assert len(fitness.before(H200, replace(REST, free_memory_bytes=free_bytes))) == faults


def test_a_case_that_needs_more_memory_raises_the_bar() -> None:
    (fault,) = fitness.before(H200, replace(REST, free_memory_bytes=8 << 30), needed_bytes=16 << 30)

    assert (fault.what, fault.why) == ("NVIDIA H200 has 8 GiB of free memory", "both sides together need 16 GiB")


def test_all_faults_are_told_at_once() -> None:
    worst = replace(REST, processes=(1,), reasons=(ThrottleReason.HW_THERMAL,), margin_c=0, free_memory_bytes=0)

    assert len(fitness.before(replace(H200, mig=True), worst)) == 5


@pytest.mark.parametrize("reason", DISQUALIFYING)
def test_a_slowdown_in_either_slot_makes_the_pair_invalid(reason: ThrottleReason) -> None:
    expected = f"the GPU slowed down during the pair: {reason.value}"

    assert fitness.pair_fault(slot(1980, reason), slot(1980)) == expected
    assert fitness.pair_fault(slot(1980), slot(1980, reason)) == expected


@pytest.mark.parametrize(("other_mhz", "valid"), [(1980.0, True), (1971.0, True), (1969.0, False), (1991.0, False)])
def test_clocks_that_differ_by_more_than_half_a_percent_make_the_pair_invalid(other_mhz: float, *, valid: bool) -> None:
    assert (fitness.pair_fault(slot(1980.0), slot(other_mhz)) == "") is valid


def test_a_clock_that_could_not_be_read_is_no_difference() -> None:
    assert fitness.pair_fault(slot(None), slot(1980.0)) == ""
    assert fitness.clocks_apart(slot(None), slot(1980.0)) is None


def test_clocks_that_differ_are_those_of_the_slots_in_their_order() -> None:
    assert fitness.clocks_apart(slot(1980.0), slot(1950.0)) == (1980.0, 1950.0)
    assert fitness.clocks_apart(slot(1950.0), slot(1980.0)) == (1950.0, 1980.0)


@pytest.mark.parametrize("reason", DISQUALIFYING)
def test_of_a_gpu_that_slowed_down_the_clocks_are_not_what_is_wrong(reason: ThrottleReason) -> None:
    assert fitness.clocks_apart(slot(1980.0), slot(1200.0, reason)) is None


@given(slot_readings, slot_readings)
def test_a_pair_is_at_fault_for_its_clocks_where_these_are_apart(first: SlotReading, second: SlotReading) -> None:
    fault = fitness.pair_fault(first, second)
    assert fault.startswith("the clocks") is (fitness.clocks_apart(first, second) is not None)


@given(slot_readings, slot_readings)
def test_the_order_of_the_slots_makes_no_difference(first: SlotReading, second: SlotReading) -> None:
    assert fitness.pair_fault(first, second) == fitness.pair_fault(second, first)


@given(st.floats(300, 2200), st.floats(0.98, 1.02))
def test_the_bound_on_clocks_is_relative_to_their_mean(clock_mhz: float, ratio: float) -> None:
    difference = 2 * abs(ratio - 1) / (ratio + 1)
    near = math.isclose(difference, fitness.MAX_CLOCK_DIFFERENCE, rel_tol=1e-9)

    fault = fitness.pair_fault(slot(clock_mhz), slot(clock_mhz * ratio))
    assert near or (fault != "") is (difference > fitness.MAX_CLOCK_DIFFERENCE)


def test_a_slot_is_the_mean_of_its_clocks_and_all_of_its_reasons() -> None:
    reading = SlotReading.of([1980, 1950, -1], [4, -1, 64, 4])

    assert reading == replace(
        slot(1965.0, ThrottleReason.SW_POWER_CAP, ThrottleReason.HW_THERMAL), sm_clock_error_mhz=15.0
    )


def test_a_clock_that_moves_by_itself_is_no_fault_of_a_pair() -> None:
    wandering = [1650, 1680, 1620, 1700, 1600, 1650, 1690, 1610]
    first, second = SlotReading.of(wandering, [4]), SlotReading.of([clock + 10 for clock in wandering], [4])
    assert fitness.pair_fault(first, second) == ""
    steady = SlotReading.of([1650] * 8, [4]), SlotReading.of([1660] * 8, [4])
    assert "differ by 0.60 %" in fitness.pair_fault(*steady)


def test_a_slot_whose_clock_was_never_read_has_none() -> None:
    assert SlotReading.of([-1, -1], [-1]) == slot(None)


def test_a_quiet_run_has_no_fault() -> None:
    snapshots = [replace(snapshot, processes=(7, 8)) for snapshot in heating(1.0)]

    assert fitness.over_run(snapshots, ours={7, 8}, invalid=3, measured=1200) == ()


def test_a_process_that_joins_during_the_run_is_foreign() -> None:
    snapshots = [replace(REST, processes=(7, 8)), replace(REST, processes=(7, 8, 99))]

    assert whats(fitness.over_run(snapshots, ours={7, 8}, invalid=0, measured=10)) == [
        "the GPU is used by another process (99)"
    ]


def test_our_own_processes_under_numbers_of_another_namespace_are_not_foreign() -> None:
    snapshots = [replace(REST, processes=(2307, 2308)), replace(REST, processes=(2401, 2402))]

    assert fitness.over_run(snapshots, ours={7, 8, 9, 10}, invalid=0, measured=10) == ()


@pytest.mark.parametrize(("slope", "faults"), [(0.0, 0), (8.0, 0), (-8.0, 0), (12.0, 1), (-12.0, 0)])
def test_a_temperature_that_does_not_settle_is_a_fault(slope: float, faults: int) -> None:
    assert len(fitness.over_run(heating(slope), ours=(), invalid=0, measured=10)) == faults


def test_a_chip_that_warms_up_and_then_settles_is_fit() -> None:
    # From 33 to 63 degrees C with a time constant of 15 s: 120 a minute at first, 1 a minute in the second half.
    warming = [
        replace(REST, time_s=float(second), temperature_c=round(63 - 30 * math.exp(-second / 15)))
        for second in range(151)
    ]

    assert fitness.over_run(warming, ours=(), invalid=0, measured=10) == ()


@pytest.mark.parametrize("cases", [1, 66])
@pytest.mark.parametrize("seed", range(20))
def test_cases_that_warm_the_chip_in_random_order_are_no_slope(cases: int, seed: int) -> None:
    # What an H200 said after the last case of each of 18 pairs; 16 s a pair.
    seen = [45, 50, 47, 46, 44, 48, 46, 45, 47, 46, 46, 45, 46, 47, 50, 56, 50, 52]
    random = Random(seed)
    snapshots = [
        replace(REST, time_s=16.0 * number / cases, temperature_c=random.choice(seen)) for number in range(8 * cases)
    ]

    assert fitness.over_run(snapshots, ours=(), invalid=0, measured=10) == ()


def test_a_chip_that_warms_up_among_such_cases_is_seen() -> None:
    random = Random(0)
    snapshots = [
        replace(snapshot, temperature_c=(snapshot.temperature_c or 0) + random.choice([-3, 0, 3, 9]))
        for snapshot in heating(20.0)
    ]

    assert len(fitness.over_run(snapshots, ours=(), invalid=0, measured=10)) == 1


def test_a_short_run_has_no_slope() -> None:
    assert fitness.temperature_slope(heating(100.0, span_s=59)) == fitness.UNKNOWN_SLOPE


def test_a_gpu_without_a_temperature_has_no_slope() -> None:
    blind = [replace(snapshot, temperature_c=None) for snapshot in heating(1.0)]

    assert fitness.temperature_slope(blind) == fitness.UNKNOWN_SLOPE


def test_snapshots_that_end_in_one_point_have_no_slope() -> None:
    assert fitness.temperature_slope([REST, replace(REST, time_s=300.0, temperature_c=80)]) == fitness.UNKNOWN_SLOPE


def test_the_slope_is_in_degrees_a_minute() -> None:
    slope, error = fitness.temperature_slope(heating(6.0))

    assert slope == pytest.approx(6.0, abs=0.2)
    assert error < 0.1


@pytest.mark.parametrize(("invalid", "faults"), [(0, 0), (300, 0), (301, 1), (1200, 1)])
def test_a_run_that_is_invalid_by_more_than_a_quarter_is_a_fault(invalid: int, faults: int) -> None:
    assert len(fitness.over_run([], ours=(), invalid=invalid, measured=1200)) == faults


def test_a_run_of_nothing_has_no_share() -> None:
    assert fitness.over_run([], ours=(), invalid=0, measured=0) == ()


def test_faults_stop_the_run_with_exit_code_4_and_every_reason() -> None:
    faults = fitness.before(replace(H200, mig=True), replace(REST, processes=(99,)))

    with pytest.raises(MachineError) as caught:
        fitness.require(faults)
    assert caught.value.exit_code is ExitCode.UNFIT
    assert "another process (99); NVIDIA H200 is cut into MIG instances" in caught.value.what
    assert "nvidia-smi" in caught.value.todo


def test_without_a_fault_the_run_goes_on() -> None:
    fitness.require(())

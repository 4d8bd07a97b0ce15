from __future__ import annotations

from dataclasses import replace

import pytest

from flopwatch.static.devices import find_device
from flopwatch.static.traffic import Traffic
from flopwatch.tune.facts import Limits, estimate_seconds, prune, ranked, with_current
from flopwatch.tune.result import Candidate

H200 = find_device("h200")
GOOD = Candidate(config="B: 64", own=True, spill_bytes=0, occupancy=0.125, code="c0ffee", grid=(8, 1, 1))
LAUNCH = Traffic(
    kernel="k",
    device="h200",
    config="",
    variant="",
    grid=(132,),
    programs=132,
    dot_flops={"f16": 989_400_000_000},
    compulsory_bytes=4800,
)


def reasons(*candidates: Candidate, limits: Limits = Limits()) -> list[str]:  # noqa: B008 - it is frozen
    return [one.pruned for one in prune(candidates, H200, limits)]


def test_what_is_within_the_limits_stays() -> None:
    assert reasons(GOOD) == [""]


def test_what_spills_goes_where_something_else_does_not() -> None:
    spilling = replace(GOOD, config="B: 256", spill_bytes=96, code="bad")
    assert reasons(spilling, GOOD) == ["spills 96 bytes a thread", ""]
    assert reasons(spilling, GOOD, limits=Limits(spill_bytes=96)) == ["", ""]


def test_where_all_spill_all_are_timed_but_for_those_that_cannot_run() -> None:
    spilling = replace(GOOD, spill_bytes=96)
    assert reasons(spilling, replace(GOOD, pruned="OutOfResources: shared memory")) == [
        "",
        "OutOfResources: shared memory",
    ]


def test_fewer_warps_than_schedulers_are_too_few() -> None:
    assert reasons(GOOD, replace(GOOD, code="x", occupancy=2 / 64)) == ["", "2 resident warps for 4 schedulers"]
    assert reasons(GOOD, replace(GOOD, code="x", occupancy=1 / 64))[1] == "1 resident warp for 4 schedulers"
    assert reasons(GOOD, replace(GOOD, code="x", occupancy=4 / 64))[1] == ""


def test_a_limit_of_occupancy_may_be_asked_for() -> None:
    assert reasons(replace(GOOD, code="x", occupancy=0.5), GOOD, limits=Limits(occupancy=0.25)) == [
        "",
        "occupancy 12.5%, less than 25.0%",
    ]


def test_of_the_same_code_on_the_same_grid_the_first_is_timed() -> None:
    twin, other = replace(GOOD, config="B: 64, num_stages: 2"), replace(GOOD, grid=(4, 1, 1))
    assert reasons(GOOD, twin, other) == ["", "the same machine code and grid as B=64", ""]


def test_the_current_choice_is_timed_in_the_place_of_one_with_its_code() -> None:
    twin, other = replace(GOOD, config="B: 64, num_stages: 2"), replace(GOOD, config="B: 32", grid=(4, 1, 1))
    found = with_current(prune((GOOD, twin, other), H200, Limits()), twin.config)
    assert [one.pruned for one in found] == ["the same machine code and grid as B=64 num_stages=2", "", ""]
    unknown = (replace(GOOD, code=""), replace(twin, code="", pruned="spills 8 bytes a thread"))
    assert [one.pruned for one in with_current(unknown, twin.config)] == ["", ""]


def test_what_was_pruned_before_keeps_its_reason_and_stands_for_nothing() -> None:
    twin, other = replace(GOOD, config="B: 64, num_stages: 2"), replace(GOOD, config="B: 32", grid=(4, 1, 1))
    assert reasons(replace(GOOD, pruned="left out by its rule"), twin, other) == ["left out by its rule", "", ""]
    assert reasons(GOOD, replace(twin, pruned="left out by its rule")) == ["", "left out by its rule"]
    pruned = (GOOD, replace(twin, pruned="spills 8 bytes a thread"))
    assert [one.pruned for one in with_current(pruned, GOOD.config)] == ["", "spills 8 bytes a thread"]


def test_without_code_or_grid_nothing_is_known_to_be_the_same() -> None:
    for unknown in (replace(GOOD, code=""), replace(GOOD, grid=())):
        both = (unknown, replace(unknown, config="B: 32"))
        assert reasons(*both) == ["", ""]
        assert [one.pruned for one in with_current(both, GOOD.config)] == ["", ""]


def test_what_the_compiler_does_not_tell_is_beyond_no_limit() -> None:
    assert reasons(GOOD, replace(GOOD, code="x", spill_bytes=None, occupancy=None)) == ["", ""]
    both = (GOOD, replace(GOOD, code="x", occupancy=0.5))
    assert reasons(*both, limits=Limits(occupancy=0.125)) == ["", ""]


def test_the_largest_share_of_a_multiprocessor_decides_what_dots_take() -> None:
    assert estimate_seconds(LAUNCH, H200) == 1e-3
    assert estimate_seconds(replace(LAUNCH, programs=133), H200) == 1e-3 * 2 * 132 / 133
    assert estimate_seconds(replace(LAUNCH, programs=66), H200) == 2e-3


def test_what_each_wave_reads_anew_decides_where_it_takes_longer() -> None:
    read = replace(LAUNCH, wave_programs=66, wave_sectors=300_000_000, unique_store_bytes=0)
    assert estimate_seconds(read, H200) == 2 * 300_000_000 * 32 / 4.8e12
    assert estimate_seconds(replace(read, unique_store_bytes=None), H200) == estimate_seconds(read, H200)
    assert estimate_seconds(replace(read, unique_store_bytes=4_800_000_000), H200) == pytest.approx(5e-3)
    assert estimate_seconds(replace(read, wave_programs=0), H200) == 1e-3
    assert estimate_seconds(replace(LAUNCH, wave_programs=66), H200) == 1e-3


def test_what_memory_moves_at_least_decides_where_no_wave_is_known() -> None:
    assert estimate_seconds(replace(LAUNCH, compulsory_bytes=9_600_000_000), H200) == pytest.approx(2e-3)


def test_nothing_is_estimated_where_the_traffic_is_not_known() -> None:
    assert estimate_seconds(replace(LAUNCH, dot_flops=None), H200) is None


def test_those_that_are_not_pruned_are_ranked_by_estimate_and_then_by_occupancy() -> None:
    fast, even = replace(GOOD, estimate_seconds=1.0), replace(GOOD, estimate_seconds=1.0, occupancy=0.5)
    assert ranked([GOOD, fast, replace(fast, pruned="spills"), even]) == [even, fast, GOOD]
    untold = replace(fast, occupancy=None)
    assert ranked([untold, even]) == [even, untold]

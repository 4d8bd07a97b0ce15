from __future__ import annotations

from dataclasses import replace

import pytest

from flopwatch.static.devices import find_device
from flopwatch.static.traffic import TRAFFIC_WORSE, OutOfBounds, Traffic, bound_of, traffic_findings
from flopwatch.static.traffic.findings import LAUNCHES

BASE = Traffic(
    kernel="kernel",
    device="h200",
    config="BLOCK=64",
    variant="",
    grid=(264,),
    programs=264,
    evaluated=264,
    dot_flops={"f16": 1_000_000},
    load_bytes=64_000,
    store_bytes=32_000,
    atomic_bytes=0,
    unique_load_bytes=6_400,
    unique_store_bytes=32_000,
    compulsory_bytes=38_400,
    wave_programs=132,
    wave_load_bytes=32_000,
    wave_sectors=100,
    imbalance=1.2,
    coverage=1.0,
)
STRAY = OutOfBounds(
    operation="tt.load",
    where="kernel.py:7",
    argument="x_ptr",
    programs=2,
    first_program=(5, 0, 0),
    before_bytes=4,
    past_bytes=48,
    allocation_bytes=2048,
)


def found(head: Traffic, base: Traffic = BASE) -> list[str]:
    return [f"{finding.name}: {finding.base} -> {finding.head}" for finding in traffic_findings(base, head)]


def test_the_same_traffic_is_nothing() -> None:
    assert [] == found(BASE)


def test_what_leaves_its_memory_is_told_where_and_by_how_much() -> None:
    text = "load at kernel.py:7 begins 4 B before and ends 48 B past x_ptr (2 KiB), in 2 programs, first (5, 0, 0)"
    assert [f"out of bounds: none -> {text}"] == found(replace(BASE, out_of_bounds=(STRAY,)))


def test_what_left_its_memory_before_is_not_told_again_whatever_its_line() -> None:
    base = replace(BASE, out_of_bounds=(STRAY,))
    assert [] == found(replace(BASE, out_of_bounds=(replace(STRAY, where="kernel.py:70"),)), base)
    other = replace(STRAY, argument="y_ptr")
    assert 1 == len(found(replace(BASE, out_of_bounds=(STRAY, other)), base))


def test_more_flops_are_told_for_the_same_tiles_and_of_others_only_where_padding_does_not_explain_them() -> None:
    more = replace(BASE, dot_flops={"f16": 1_100_000})
    assert ["dot flops: 1e+06 FLOPs -> 1.1e+06 FLOPs, 1.10x"] == found(more)
    assert [] == found(replace(more, config="BLOCK=128"))
    assert ["dot flops: 1e+06 FLOPs -> 2e+06 FLOPs, 2.00x"] == found(
        replace(BASE, dot_flops={"f16": 2_000_000}, config="BLOCK=128")
    )


def test_memory_that_is_moved_in_addition_is_told_whatever_the_tiles() -> None:
    assert ["memory traffic: 37.5 KiB -> 68.75 KiB, 1.83x"] == found(
        replace(BASE, compulsory_bytes=70_400, config="BLOCK=128")
    )


def test_what_is_asked_for_is_compared_of_the_same_tiles_only() -> None:
    twice = replace(BASE, load_bytes=128_000)
    assert ["requested bytes: 93.75 KiB -> 156.2 KiB, 1.67x"] == found(twice)
    assert [] == found(replace(twice, config="BLOCK=128"))


def test_a_wave_that_shares_less_is_told_by_what_all_waves_read() -> None:
    assert ["wave reuse: 10.0x, 6.25 KiB in all waves -> 2.5x, 25 KiB"] == found(replace(BASE, wave_sectors=400))
    many = replace(BASE, wave_sectors=400)
    assert [] == found(replace(many, wave_sectors=480), many)
    assert [] == found(replace(many, wave_sectors=800, wave_programs=264, wave_load_bytes=64_000), many)


def test_a_wave_that_shares_less_is_not_told_where_the_memory_has_time_for_it() -> None:
    assert [] == found(replace(BASE, wave_sectors=290))  # half of what the launch has to move
    assert [] != found(replace(BASE, wave_sectors=310))

    much = replace(BASE, dot_flops={"f16": 20_000_000})
    assert [] == found(replace(much, wave_sectors=400), much)
    unknown = replace(BASE, dot_flops={"e2m1": 10})
    assert [] == found(replace(unknown, wave_sectors=400), unknown)


def test_one_program_with_far_more_work_than_the_others_is_told() -> None:
    assert ["imbalance: 1.20 of the mean in one program -> 2.00"] == found(replace(BASE, imbalance=2.0))
    assert [] == found(replace(BASE, imbalance=1.4))
    assert [] == found(replace(BASE, imbalance=1.24), replace(BASE, imbalance=0.9))


def test_less_of_anything_is_nothing() -> None:
    less = replace(
        BASE,
        dot_flops={"f16": 500_000},
        load_bytes=32_000,
        compulsory_bytes=20_000,
        wave_sectors=50,
        imbalance=1.0,
    )
    assert [] == found(less)


@pytest.mark.parametrize("side", ["base", "head"])
def test_what_is_not_known_of_a_side_is_not_compared(side: str) -> None:
    unknown = Traffic(kernel="kernel", device="h200", config="BLOCK=64", variant="", grid=(264,), programs=264)
    assert [] == (found(unknown) if side == "head" else found(BASE, unknown))


def test_every_finding_has_a_name_for_the_worse() -> None:
    worst = replace(
        BASE,
        dot_flops={"f16": 9_000_000},
        load_bytes=900_000,
        compulsory_bytes=900_000,
        wave_sectors=90_000,
        imbalance=9.0,
        out_of_bounds=(STRAY,),
    )
    assert [*TRAFFIC_WORSE] == [LAUNCHES, *(finding.name for finding in traffic_findings(BASE, worst))]


def test_an_address_out_of_bounds_of_a_tensor_that_was_renamed_is_no_news() -> None:
    astray = replace(BASE, out_of_bounds=(STRAY,))
    renamed = replace(STRAY, argument="X")
    assert list(traffic_findings(astray, replace(BASE, out_of_bounds=(renamed,)))) == []
    both = replace(BASE, out_of_bounds=(STRAY, renamed))
    assert [finding.name for finding in traffic_findings(astray, both)] == ["out of bounds"]


def test_the_bound_takes_each_type_at_its_own_peak() -> None:
    device = find_device("h200")
    mixed = replace(BASE, dot_flops={"f16": 10**12, "e4m3": 10**12, "tf32x3": 10**12})
    bound = bound_of(mixed, device)
    assert bound is not None
    assert 1 / 989.4 + 1 / 1978.9 + 3 / 494.7 == pytest.approx(bound.compute_seconds, rel=1e-9)
    assert 38_400 / 4.8e12 == bound.memory_seconds


def test_a_type_without_a_known_peak_has_no_bound() -> None:
    assert bound_of(replace(BASE, dot_flops={"e2m1": 10}), find_device("h200")) is None

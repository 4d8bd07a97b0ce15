from __future__ import annotations

import math

import numpy as np
import pytest

from flopwatch.model import from_json, to_json
from flopwatch.stats.noise import NoiseFloor, noise_floors

SHORT = NoiseFloor(case="Add[1]", seconds=99e-6, pairs=3, deviation=0.002, detectable=0.0079)


def test_the_deviation_is_the_root_mean_square_about_zero() -> None:
    (floor,) = noise_floors(
        {"Add[1]": [0.003, 0.003, 0.0]}, seconds={"Add[1]": 5e-6}, margins={"Add[1]": 0.0}, series=1
    )

    assert floor.deviation == pytest.approx(math.sqrt(6e-6))
    assert floor.pairs == 3


def test_the_shortest_case_comes_first() -> None:
    seconds = {"Long": 1e-3, "Short": 1e-6, "Middle": 1e-4}
    margins = dict.fromkeys(seconds, 0.0)
    floors = noise_floors({case: [0.001] for case in seconds}, seconds=seconds, margins=margins, series=3)

    assert [floor.case for floor in floors] == ["Short", "Middle", "Long"]


def test_what_a_gate_finds_grows_with_the_error_and_with_the_margin() -> None:
    seconds = {"Calm": 1e-6, "Noisy": 2e-6, "Tolerant": 3e-6}
    calm, noisy, tolerant = noise_floors(
        {"Calm": [0.0005], "Noisy": [0.003], "Tolerant": [0.0005]},
        seconds=seconds,
        margins={"Calm": 0.005, "Noisy": 0.005, "Tolerant": 0.02},
        series=66,
    )

    assert 0.005 < calm.detectable < noisy.detectable < tolerant.detectable


def test_nothing_measured_has_no_floor() -> None:
    assert noise_floors({}, seconds={}, margins={}, series=0) == ()


@pytest.mark.parametrize(("seconds", "aim"), [(99e-6, 0.002), (100e-6, 0.001)])
def test_long_kernels_are_held_to_the_smaller_aim(seconds: float, aim: float) -> None:
    floor = NoiseFloor(case="Add[1]", seconds=seconds, pairs=3, deviation=0.0, detectable=0.0)

    assert floor.aim == aim


@pytest.mark.parametrize("pairs", [1, 3, 10])
def test_a_case_at_its_aim_is_excessive_once_in_a_thousand_times(pairs: int) -> None:
    rng = np.random.default_rng(20261121)
    deviations = np.sqrt(np.mean(rng.normal(scale=0.002, size=(40_000, pairs)) ** 2, axis=1))
    excessive = [
        NoiseFloor(case="", seconds=1e-6, pairs=pairs, deviation=deviation, detectable=0.0).excessive
        for deviation in deviations.tolist()
    ]

    assert 0.0004 < np.mean(excessive) < 0.002


def test_twice_the_aim_is_excessive_once_there_are_ten_pairs() -> None:
    found = [
        NoiseFloor(case="", seconds=1e-6, pairs=pairs, deviation=0.004, detectable=0.0).excessive for pairs in (3, 10)
    ]

    assert found == [False, True]


def test_a_floor_survives_json() -> None:
    assert from_json(to_json(SHORT), NoiseFloor) == SHORT

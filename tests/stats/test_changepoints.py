"""Change points: places, effects, taking up where an earlier search ended, and how often nothing is accused."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flopwatch.model import from_json, to_json
from flopwatch.stats import changepoints
from flopwatch.stats.changepoints import SHORTEST, Changes, change_points


def stepped(*steps: tuple[int, float], seed: int = 1, commits: int = 300, deviation: float = 0.003) -> np.ndarray:
    """Draw logarithms of times with heavy tails; a step at an index raises all that follow."""
    values = deviation * np.random.default_rng(seed).standard_t(4, size=commits)
    for index, height in steps:
        values[index:] += height
    return np.asarray(values)


def indices(found: Changes) -> list[int]:
    return [point.index for point in found.points]


def test_steps_are_found_at_their_commits_with_their_effects() -> None:
    found = change_points(stepped((80, 0.05), (180, -0.02), (240, 0.03)))

    assert indices(found) == pytest.approx([80, 180, 240], abs=1)
    assert [point.effect for point in found.points] == pytest.approx([0.05, -0.02, 0.03], abs=0.003)
    assert all(point.p < 1e-9 for point in found.points)


@pytest.fixture(scope="module")
def after_one_step() -> list[Changes]:
    return [change_points(stepped((75, 0.02), seed=seed, commits=150)) for seed in range(200)]


def test_intervals_cover_the_effect(after_one_step: list[Changes]) -> None:
    first = [found.points[0] for found in after_one_step]
    bounds = [(point.lower, point.upper) for point in first if point.lower is not None and point.upper is not None]

    assert len(bounds) == 200
    # The standard error of 95 % in 200 is 1.5 points.
    assert np.mean([lower <= 0.02 <= upper for lower, upper in bounds]) > 0.95 - 3 * 0.015


def test_a_change_that_was_found_seldom_brings_a_false_one(after_one_step: list[Changes]) -> None:
    # 1000 series like these had 4 false points after the step.
    assert sum(len(found.points) - 1 for found in after_one_step) <= 4


def test_a_clear_step_is_found_with_the_fifth_commit_after_it() -> None:
    values = stepped((100, 0.05), commits=120)

    assert [len(change_points(values[: 100 + after]).points) for after in (1, 2, 3, 5)] == [0, 0, 0, 1]


def test_two_outliers_are_no_change() -> None:
    values = stepped(commits=200)
    values[[60, 61, 120, 199]] += 0.5

    assert indices(change_points(values)) == []


def test_a_change_that_is_taken_back_is_two_changes() -> None:
    found = change_points(stepped((100, 0.05), (106, -0.05), commits=160))

    assert indices(found) == [100, 106]
    assert found.points[1].seen_index <= 106 + 25


def test_one_level_after_another_is_not_blamed_on_what_was_before_the_last_change() -> None:
    found = change_points(stepped((60, 0.05), (120, 0.05), (180, -0.1)))

    assert [point.effect for point in found.points] == pytest.approx([0.05, 0.05, -0.1], abs=0.003)


def test_a_constant_series_and_one_of_two_values_have_no_changes() -> None:
    assert change_points(np.zeros(400)).points == ()
    assert change_points(np.random.default_rng(2).integers(2, size=400).astype(float)).points == ()


def test_a_step_between_constants_has_an_exact_effect() -> None:
    (point,) = change_points(np.repeat([3.0, 5.0], 60)).points

    assert (point.index, point.effect, point.lower, point.upper) == (60, 2.0, 2.0, 2.0)


def test_missing_values_shift_nothing() -> None:
    values = stepped((150, 0.05))
    missing = np.random.default_rng(3).random(300) < 0.3
    missing[[149, 150]] = True, False
    values[missing] = np.nan
    values[0] = np.inf
    found = change_points(values)

    assert indices(found) == [150]
    assert np.isfinite(values[found.points[0].seen_index])


@pytest.mark.parametrize("values", [[], [1.0], [math.nan] * 50, [1.0, math.nan, 2.0]])
def test_a_series_with_next_to_nothing_in_it_has_no_changes(values: list[float]) -> None:
    found = change_points(np.array(values))

    assert (found.count, found.points) == (len(values), ())


def test_changes_are_found_by_the_order_of_times_so_that_seconds_tell_the_same_as_logarithms() -> None:
    logs = stepped((100, 0.05), (170, 0.04))

    assert [point.seen_index for point in change_points(logs).points] == [
        point.seen_index for point in change_points(np.exp(logs)).points
    ]


@given(
    seed=st.integers(0, 2**32 - 1),
    steps=st.lists(st.tuples(st.integers(0, 699), st.sampled_from([-0.1, -0.01, 0.005, 0.02])), max_size=6),
    missing=st.sampled_from([0.0, 0.2]),
    cuts=st.lists(st.integers(0, 700), max_size=8),
)
@settings(deadline=None, max_examples=40)
def test_going_on_finds_what_looking_at_everything_finds(
    seed: int, steps: list[tuple[int, float]], missing: float, cuts: list[int]
) -> None:
    values = stepped(*steps, seed=seed, commits=700)
    values[np.random.default_rng(seed).random(700) < missing] = np.nan
    found = None
    for cut in [*sorted(cuts), 700]:
        found = change_points(values[:cut], found)
        found = from_json(to_json(found), Changes)

    assert found == change_points(values)


def test_one_commit_at_a_time_finds_the_same() -> None:
    values = stepped((40, 0.02), (46, -0.02), (110, 0.004), (113, 0.01), commits=160)
    found = None
    for count in range(161):
        found = change_points(values[:count], found)
        assert found == change_points(values[:count])

    assert found is not None
    assert found.points


def test_settled_points_stay_where_they_are() -> None:
    values = stepped((80, 0.006), (160, -0.006), (200, 0.02), commits=330)
    settled: dict[int, int] = {}
    found = None
    for count in range(331):
        found = change_points(values[:count], found)
        assert [point.settled for point in found.points[:-1]] == [True] * (len(found.points) - 1)
        for number, point in enumerate(found.points):
            if number in settled:
                assert (point.index, point.settled) == (settled[number], True)
            if point.settled:
                settled[number] = point.index

    assert len(settled) == 3


def test_segments_are_never_shorter_than_the_shortest() -> None:
    for seed in range(20):
        steps = np.sort(np.random.default_rng(seed).integers(300, size=12)).tolist()
        found = indices(change_points(stepped(*((index, (-0.3) ** i) for i, index in enumerate(steps)), seed=seed)))

        assert min(np.diff([0, *found, 300]), default=SHORTEST) >= SHORTEST


def test_one_more_commit_takes_one_window(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.concatenate([stepped((500, 0.05), (1500, -0.05), commits=2000), [0.0]])
    earlier = change_points(values[:-1])
    sizes: list[int] = []
    asked = changepoints._first_alarm

    def counted(window: np.ndarray, seen: int, level: float) -> int | None:
        sizes.append(len(window))
        return asked(window, seen, level)

    monkeypatch.setattr(changepoints, "_first_alarm", counted)
    change_points(values, earlier)

    assert len(sizes) == 1
    assert sizes[0] <= changepoints.WINDOW


def test_a_value_that_was_measured_later_starts_the_search_again() -> None:
    values = stepped((100, 0.05), commits=200)
    gap = values.copy()
    gap[90:140] = np.nan
    earlier = change_points(gap)

    assert indices(earlier) == [140]
    assert change_points(values, earlier) == change_points(values)
    assert change_points(values[:150], change_points(values)) == change_points(values[:150])


def test_stationary_series_have_few_points_whatever_their_distribution() -> None:
    rng = np.random.default_rng(20261124)
    commits = found = 0
    for draw in (rng.normal, rng.standard_cauchy, rng.exponential, rng.random):
        for _ in range(8):
            found += len(change_points(draw(size=5000)).points)
            commits += 5000

    # 160,000 commits at 1 in 100,000 have 1.6 points on average, and more than 6 once in 500 times.
    assert commits == 160_000
    assert found <= 6


def test_a_step_of_one_deviation_is_found_within_60_commits() -> None:
    rng = np.random.default_rng(7)
    found = 0
    for _ in range(60):
        values = rng.normal(size=260) + np.where(np.arange(260) >= 200, 1.0, 0.0)
        found += any(abs(index - 200) <= 15 for index in indices(change_points(values)))

    assert found / 60 > 0.6

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pytest

from flopwatch.asv.steps import (
    Change,
    KnownChanges,
    exact_changes,
    fit_steps,
    is_exact,
    meeting_change,
    noisy_changes,
    relate,
)

if TYPE_CHECKING:
    from pathlib import Path


def stepped(*, before: float = 1.0, after: float = 1.1, scatter: float = 0.01, seed: int = 0) -> np.ndarray:
    """Return forty values at one level and twenty at another."""
    rng = np.random.default_rng(seed)
    return np.asarray(np.repeat([before, after], [40, 20]) + scatter * rng.standard_normal(60))


def changes(values: np.ndarray) -> tuple[Change, ...]:
    return relate(values, noisy_changes(values))


@pytest.mark.parametrize(("after", "effect"), [(1.1, 0.1), (0.9, -0.1)])
def test_a_planted_step_is_found_where_it_is_and_as_large_as_it_is(after: float, effect: float) -> None:
    (change,) = changes(stepped(after=after))

    assert change.index == 40
    assert change.lower is not None
    assert change.upper is not None
    assert change.lower < effect < change.upper
    assert change.upper - change.lower < 0.02


def test_effects_of_seconds_and_of_values_with_a_zero_are_both_relative_to_the_old_level() -> None:
    values = stepped(before=2.0, after=3.0)

    (of_logs,) = changes(values)
    (of_differences,) = changes(np.concatenate([[0.0], values[1:]]))

    assert of_logs.effect == pytest.approx(0.5, abs=0.01)
    assert of_differences.effect == pytest.approx(0.5, abs=0.01)


def test_a_rise_from_zero_has_no_relative_effect() -> None:
    (change,) = changes(np.repeat([0.0, 48.0], [40, 20]))

    assert (change.index, change.effect, change.lower, change.upper) == (40, None, None, None)


def test_noise_alone_is_no_change() -> None:
    assert [changes(stepped(after=1.0, seed=seed)) for seed in range(20)] == [()] * 20


def test_the_second_change_is_related_to_the_level_between() -> None:
    values = np.repeat([1.0, 2.0, 1.0], 60) * np.random.default_rng(0).lognormal(0, 0.001, 180)

    first, second = changes(values)

    assert first.effect == pytest.approx(1.0, abs=0.01)
    assert second.effect == pytest.approx(-0.5, abs=0.01)


def test_a_compiled_fact_changes_at_every_difference() -> None:
    values = np.array([128.0, 128.0, 168.0, 168.0, 128.0])

    first, second = exact_changes(values)

    assert (first.index, second.index) == (2, 4)
    assert first.effect == pytest.approx(0.3125)
    assert second.effect == pytest.approx(-40 / 168)


def test_only_compiled_facts_that_stand_still_are_exact() -> None:
    still, flapping = np.repeat([1.0, 2.0], 50), np.tile([1.0, 2.0], 50)

    assert is_exact("a.A.track_shared_memory", still)
    assert not is_exact("a.A.track_shared_memory", flapping)
    assert not is_exact("a.A.track_peak_memory", still)


def test_series_that_meet_at_the_same_level_have_no_change_there() -> None:
    rng = np.random.default_rng(0)
    found = [meeting_change(rng.lognormal(size=50), rng.lognormal(size=30)) for _ in range(100)]

    assert found == [None] * 100


def test_series_that_meet_at_different_levels_have_a_change_with_its_interval() -> None:
    values = stepped()

    change = meeting_change(values[:40], values[40:])

    assert change is not None
    assert change.lower is not None
    assert change.upper is not None
    assert change.index == 40
    assert change.lower < 0.1 < change.upper


@pytest.mark.parametrize("size", [1, 2, 3])
def test_a_handful_of_values_proves_nothing(size: int) -> None:
    assert meeting_change(np.ones(size), np.full(size, 2.0)) is None


def test_the_stretches_between_changes_are_described_as_asv_does() -> None:
    before, after = fit_steps([10, 11, 14, 20], np.array([1.0, 1.2, 1.1, 5.0]), [Change(index=3, effect=3.5)])

    assert before[:4] == (10, 15, 1.1, 1.0)
    assert math.isclose(before[4], 0.2 / 3)
    assert after == (20, 21, 5.0, 5.0, 0.0)


def test_without_changes_there_is_one_stretch_and_without_values_none() -> None:
    assert fit_steps([3, 4], np.array([1.0, 1.0]), []) == [(3, 5, 1.0, 1.0, 0.0)]
    assert fit_steps([], np.array([]), []) == []


def test_what_was_found_is_known_next_time(tmp_path: Path) -> None:
    found = noisy_changes(stepped())

    KnownChanges(tmp_path / "new" / "changes.json").replace({"a": found})

    known = KnownChanges(tmp_path / "new" / "changes.json")
    assert (known.get("a"), known.get("b")) == (found, None)
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["changes.json"]


def test_what_is_not_found_any_more_is_dropped(tmp_path: Path) -> None:
    known = KnownChanges(tmp_path / "changes.json")
    known.replace({"a": noisy_changes(stepped())})

    known.replace({"b": noisy_changes(stepped())})

    assert KnownChanges(tmp_path / "changes.json").get("a") is None


@pytest.mark.parametrize("content", [b"", b"{", b'{"a": {"count": "one"}}', b"[]", b"\xff"])
def test_a_file_that_is_not_ours_is_as_good_as_none(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "changes.json").write_bytes(content)

    assert KnownChanges(tmp_path / "changes.json").get("a") is None

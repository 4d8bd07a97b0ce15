from __future__ import annotations

import math
import re
from pathlib import Path

import numpy as np
import pytest

from flopwatch.bisect import Outcome
from flopwatch.bisect.times import STEP_PAIRS, _looks, effect_of, side_of
from flopwatch.stats import Design
from flopwatch.stats.design import LATER_LOOKS

PAGE = (Path(__file__).parents[2] / "docs" / "history.md").read_text(encoding="utf-8")
RUNS = 200


def outcome(rng: np.random.Generator, *, effect: float, bad: float, deviation: float) -> Outcome:
    """Decide one step as `Times.step` does; one pair in twenty is an outlier."""
    found, table = Outcome.SKIPPED, np.empty((1, 0))
    for number, level in _looks(Design(), None):
        noise = rng.normal(0, deviation, number) * np.where(rng.random(number) < 0.05, 20, 1)
        table = np.hstack([table, (effect + noise)[None]])
        found = side_of(table, bad, level, Design())
        if found is not Outcome.SKIPPED:
            break
    return found


@pytest.mark.parametrize("bad", [0.01, -0.01])
def test_commits_like_good_or_bad_are_told_and_none_is_mistaken(bad: float) -> None:
    rng = np.random.default_rng(20261121)
    found = [[outcome(rng, effect=effect, bad=bad, deviation=0.002) for _ in range(RUNS)] for effect in (0.0, bad)]
    assert Outcome.BAD not in found[0]
    assert Outcome.GOOD not in found[1]
    assert min(found[0].count(Outcome.GOOD), found[1].count(Outcome.BAD)) > 0.99 * RUNS


def test_a_commit_at_the_threshold_is_called_bad_in_one_of_200_steps_at_most() -> None:
    rng = np.random.default_rng(20261121)
    found = [outcome(rng, effect=0.005, bad=0.01, deviation=0.002) for _ in range(RUNS)]
    expected = RUNS / 200
    assert max(found.count(Outcome.BAD), found.count(Outcome.GOOD)) <= expected + 3 * math.sqrt(expected)


def test_the_looks_spend_what_the_design_allows() -> None:
    looks = list(_looks(Design(), None))
    assert [number for number, _ in looks] == [8, 9, 9, 9, 9]
    assert sum(number for number, _ in looks) == STEP_PAIRS
    assert sum(level for _, level in looks) == pytest.approx(Design().miss_rate)
    assert len(looks) == 1 + LATER_LOOKS
    assert [number for number, _ in _looks(Design(), 80)] == [8, 18, 18, 18, 18]
    assert [number for number, _ in _looks(Design(), 8)] == [8]


def test_no_valid_pair_has_no_effect() -> None:
    assert effect_of(np.array([[math.nan, math.nan]])) is None


def test_the_page_has_the_numbers_of_the_code() -> None:
    text = re.sub(r"\s+", " ", PAGE)
    assert f"{STEP_PAIRS} pairs at most" in text
    assert f"after {Design().first_look} pairs" in text
    assert f"{Design().confirm_pairs} fresh pairs" in text

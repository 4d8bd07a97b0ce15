"""Clean runs under bad weather: how often anybody is accused, by stage 1 and by both stages."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pytest

from flopwatch.model import Mark
from flopwatch.stats.design import Design
from flopwatch.stats.prior import PRIOR
from flopwatch.stats.procedure import Stage, decide
from flopwatch.stats.signflip import p_slower

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from flopwatch.stats.procedure import Sampler

Slots: TypeAlias = "Callable[[np.random.Generator, int, int], np.ndarray]"
SERIES = 6
DEVIATIONS = np.geomspace(0.0003, 0.004, SERIES)[:, None]


def gaussian(rng: np.random.Generator, rows: int, pairs: int) -> np.ndarray:
    return np.asarray(DEVIATIONS[:rows] * rng.normal(size=(rows, pairs)))


def heavy_tails(rng: np.random.Generator, rows: int, pairs: int) -> np.ndarray:
    return np.asarray(DEVIATIONS[:rows] * rng.standard_t(3, size=(rows, pairs)))


def modes(rng: np.random.Generator, rows: int, pairs: int) -> np.ndarray:
    """One process in five is 5 % slower, each series for itself."""
    slow = rng.random((2, rows, pairs)) < 0.2
    return np.asarray(gaussian(rng, rows, pairs) + 0.05 * (slow[0].astype(float) - slow[1]))


def spikes(rng: np.random.Generator, rows: int, pairs: int) -> np.ndarray:
    """One process in twenty is 30 % slower, in all series."""
    slow = rng.random((2, 1, pairs)) < 0.05
    return np.asarray(gaussian(rng, rows, pairs) + 0.3 * (slow[0].astype(float) - slow[1]))


def one_throttled_pair(rng: np.random.Generator, rows: int, pairs: int) -> np.ndarray:
    table = gaussian(rng, rows, pairs)
    table[:, rng.integers(pairs)] += 0.2
    return table


def slot_bias(rng: np.random.Generator, rows: int, pairs: int) -> np.ndarray:
    return gaussian(rng, rows, pairs) + 0.005


def drift(rng: np.random.Generator, rows: int, pairs: int) -> np.ndarray:
    """What the slots differ by wanders, for all series alike."""
    return np.asarray(gaussian(rng, rows, pairs) + rng.normal(0, 0.003, size=(1, pairs)).cumsum(axis=1))


WEATHER: tuple[Slots, ...] = (gaussian, heavy_tails, modes, spikes, one_throttled_pair, slot_bias, drift)


def sampler(rng: np.random.Generator, slots: Slots, effects: np.ndarray) -> Sampler:
    """Toss a coin a pair: the difference between the slots counts as head against base, or as base against head."""

    def sample(rows: Sequence[int], pairs: int, _stage: Stage) -> np.ndarray:
        coins = rng.choice([-1.0, 1.0], size=pairs)
        table = coins * slots(rng, len(effects), pairs) + effects[:, None]
        table[rng.random(table.shape) < 0.02] = np.nan
        return np.asarray(table[list(rows)])

    return sample


@pytest.mark.parametrize("guilty", [0, 2])
@pytest.mark.parametrize("slots", WEATHER)
def test_stage_1_accuses_the_innocent_in_five_percent_of_runs_at_most(slots: Slots, guilty: int) -> None:
    rng = np.random.default_rng(20261121)
    runs, alarms = 700, 0
    effects = np.zeros(SERIES)
    effects[:guilty] = 0.03
    sample = sampler(rng, slots, effects)
    for _ in range(runs):
        p = p_slower(sample(range(SERIES), 9, Stage.SCREEN), PRIOR)
        # The suite's median is no innocent where others are guilty.
        alarms += bool((p[guilty : SERIES if guilty else None] <= 0.05).any())

    # The standard error of 5 % in 700 runs is 0.82 points.
    assert alarms / runs < 0.05 + 3 * 0.0082


def test_without_a_guilty_series_stage_1_spends_its_five_percent() -> None:
    rng = np.random.default_rng(5)
    sample = sampler(rng, gaussian, np.zeros(SERIES))
    alarms = sum(p_slower(sample(range(SERIES), 9, Stage.SCREEN), PRIOR).min() <= 0.05 for _ in range(1000))

    assert alarms / 1000 > 0.03


@pytest.mark.parametrize("guilty", [0, 1])
def test_both_stages_accuse_the_innocent_in_a_thousandth_of_runs(guilty: int) -> None:
    rng = np.random.default_rng(20261122)
    design = Design(pairs=9, first_look=8, confirm_pairs=9, settle_pairs=0)
    runs, alarms = 420, 0
    effects = np.zeros(SERIES)
    effects[:guilty] = 0.02
    for run in range(runs):
        sample = sampler(rng, WEATHER[run % len(WEATHER)], effects)
        found = decide(design, [0.0] * SERIES, sample)
        alarms += any(series.mark is Mark.SLOWER for series in found.series[guilty:])

    # 420 runs at 0.1 % accuse 0.4 times on average, and more than 3 times less than once in a thousand.
    assert alarms <= 3


def test_a_slowdown_at_the_margin_is_not_accused_more_often() -> None:
    rng = np.random.default_rng(20261123)
    design = Design(pairs=9, first_look=8, confirm_pairs=9, settle_pairs=0)
    sample = sampler(rng, gaussian, np.full(SERIES, 0.005))
    alarms = sum(
        any(series.mark is Mark.SLOWER for series in decide(design, [0.005] * SERIES, sample).series)
        for _ in range(300)
    )

    assert alarms <= 3

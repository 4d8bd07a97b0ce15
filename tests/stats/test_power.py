from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pytest

from flopwatch.model import Mark
from flopwatch.stats.design import Design
from flopwatch.stats.power import detectable, pairs_needed, pairs_to_settle, plan, power_of
from flopwatch.stats.prior import PRIOR
from flopwatch.stats.procedure import decide
from flopwatch.stats.signflip import p_slower

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flopwatch.stats.procedure import Stage

SERIES = 60


def found_by_stage_1(slowdown: float, *, deviation: float, margin: float, pairs: int, runs: int = 200) -> float:
    """Return the share of runs that flag one slower series among others of all deviations that an H200 has."""
    rng = np.random.default_rng(20261121)
    found = 0
    for _ in range(runs):
        deviations = np.clip(0.0008 * np.exp(rng.normal(0, 0.6, size=(SERIES, 1))), 0.0003, 0.004)
        deviations[0] = deviation
        table = deviations * rng.normal(size=(SERIES, pairs))
        table[0] += slowdown
        # Two cases with slow processes, one in five by 5 % and one in twenty by 30 %.
        slow = rng.random((2, 2, pairs)) < np.array([[0.2], [0.05]])
        table[-2:] += np.array([[0.05], [0.3]]) * (slow[0].astype(float) - slow[1])
        found += p_slower(table - margin, PRIOR)[0] <= 0.05
    return found / runs


@pytest.mark.parametrize(
    ("slowdown", "deviation", "margin", "promised"),
    [(0.01, 0.002, 0.005, 0.99), (0.005, 0.002, 0.0, 0.95), (0.0025, 0.001, 0.0, 0.90), (0.015, 0.004, 0.005, 0.99)],
)
def test_stage_1_finds_what_it_promises_beside_real_neighbours(
    slowdown: float, deviation: float, margin: float, promised: float
) -> None:
    assert found_by_stage_1(slowdown, deviation=deviation, margin=margin, pairs=Design().pairs) >= promised


def test_slow_processes_cost_power_and_do_not_take_it() -> None:
    # One process in twenty is 30 % slow, fifteen times the slowdown.
    rng = np.random.default_rng(3)
    found = 0
    for _ in range(200):
        table = rng.normal(0, 0.001, size=(20, 13))
        slow = rng.random((2, 13)) < 0.05
        table[0] += 0.02 + 0.3 * (slow[0].astype(float) - slow[1])
        found += p_slower(table - 0.005, PRIOR)[0] <= 0.05

    assert found / 200 > 0.9


@pytest.mark.parametrize(("deviation", "margin"), [(0.0015, 0.005), (0.003, 0.0)])
def test_the_detectable_slowdown_is_found_as_often_as_it_says(deviation: float, margin: float) -> None:
    rng = np.random.default_rng(4)
    design = Design(pairs=10, settle_pairs=0)
    slowdown = detectable(design, series=12, margins=np.array([margin]), deviations=np.array([deviation]))[0]
    deviations = np.full((12, 1), PRIOR.deviation)
    deviations[0] = deviation
    effects = np.zeros((12, 1))
    effects[0] = slowdown

    def sample(rows: Sequence[int], pairs: int, _stage: Stage) -> np.ndarray:
        return np.asarray(effects[list(rows)] + deviations[list(rows)] * rng.normal(size=(len(rows), pairs)))

    found = np.mean([decide(design, [margin] * 12, sample).series[0].mark is Mark.SLOWER for _ in range(150)])

    # 95 %; in 150 runs its standard error is 1.8 points.
    assert 0.88 < found < 0.995


def test_more_pairs_find_less() -> None:
    found = [
        detectable(Design(pairs=pairs), series=SERIES, margins=np.array([0.005]), deviations=np.array([0.002]))[0]
        for pairs in (8, 13, 24)
    ]

    assert found[0] > found[1] > found[2] > 0.005


def test_the_detectable_slowdown_grows_with_the_deviation_and_beyond_the_grid() -> None:
    deviations = np.array([0.0001, 0.001, 0.004, 0.02, 0.04, math.nan])
    found = detectable(Design(), series=SERIES, margins=np.full(6, 0.0), deviations=deviations)

    assert (np.diff(found[:5]) > 0).all()
    assert found[4] == pytest.approx(2 * found[3])
    assert math.isnan(found[5])


def test_a_design_that_cannot_reach_the_power_says_so() -> None:
    # With a margin the clean neighbours mirror a slowed series, so that of 5 pairs the least p-value is 2 / 32.
    design = Design(pairs=5, first_look=5, alpha=0.04, first_alpha=0, confirm_pairs=9)

    assert detectable(design, series=SERIES, margins=np.array([0.005]), deviations=np.array([0.001]))[0] == math.inf


def test_power_rises_with_the_slowdown() -> None:
    powers = [
        power_of(Design(), series=SERIES, margin=0.0, deviation=0.002, slowdown=slowdown)
        for slowdown in (0.0, 0.001, 0.002, 0.005)
    ]

    assert powers == sorted(powers)
    assert powers[0] < 0.01
    assert powers[-1] > 0.95


def test_a_smaller_slowdown_needs_more_pairs() -> None:
    needed = [
        pairs_needed(Design(), series=SERIES, margin=0.005, deviation=0.003, slowdown=slowdown)
        for slowdown in (0.02, 0.01, 0.008)
    ]

    assert needed[0] == 8
    assert needed[0] < (needed[1] or 0) < (needed[2] or 0)


def test_a_slowdown_at_the_margin_is_not_found_by_any_number_of_pairs() -> None:
    assert pairs_needed(Design(), series=2, margin=0.005, deviation=0.001, slowdown=0.005) is None


def test_an_unsure_series_knows_what_would_settle_it() -> None:
    design = Design()
    near = pairs_to_settle(design, margin=0.009, estimate=0.0095, deviation=0.002)
    far = pairs_to_settle(design, margin=0.009, estimate=0.02, deviation=0.002)

    assert near is not None
    assert far is not None
    assert near > 100 > far >= 12
    assert pairs_to_settle(design, margin=0.02, estimate=0.015, deviation=0.002) is None


def test_a_plan_takes_the_pairs_that_fit() -> None:
    found = plan(150, seconds_per_pair=8, start_s=20, deviations=[0.001, 0.004], margins=[0.005, 0.005])

    assert (found.design.pairs, found.seconds) == (16, 148)
    assert (found.design.first_look, found.design.confirm_pairs) == (9, 19)
    assert 0.005 < found.detectable[0] < found.detectable[1] < 0.015


def test_a_larger_budget_finds_less_in_either_stage() -> None:
    found = [
        plan(pairs, seconds_per_pair=1, start_s=0, deviations=[0.001] * 5, margins=[0.0] * 5) for pairs in (13, 26, 52)
    ]

    assert [(each.design.first_look, each.design.confirm_pairs) for each in found] == [(8, 19), (16, 26), (32, 52)]
    # As the square root of the pairs, or nearly.
    assert found[1].detectable[0] < 0.8 * found[0].detectable[0]
    assert found[2].detectable[0] < 0.8 * found[1].detectable[0]


def test_a_first_look_that_loses_slowdowns_costs_power() -> None:
    designs = [Design(pairs=52, first_look=first_look, confirm_pairs=52) for first_look in (8, 52)]
    hasty, patient = (
        power_of(design, series=SERIES, margin=0.0, deviation=0.001, slowdown=0.0009) for design in designs
    )

    assert hasty < 0.9
    assert patient > 0.95


def test_what_a_hasty_design_can_detect_is_not_what_its_pairs_could() -> None:
    hasty, patient = (
        detectable(
            Design(pairs=52, first_look=first_look, confirm_pairs=52),
            series=SERIES,
            margins=np.zeros(1),
            deviations=np.array([0.001]),
        )[0]
        for first_look in (8, 52)
    )

    assert hasty > 1.3 * patient


def test_a_budget_without_room_for_the_first_look_is_refused_with_what_it_takes() -> None:
    with pytest.raises(ValueError, match="50 s are 3 pairs, and the first look needs 8; take 84 s"):
        plan(50, seconds_per_pair=8, start_s=20, deviations=[0.001], margins=[0.0])


@pytest.mark.parametrize(("pairs", "found"), [(8, 0.911), (12, 0.998), (13, 0.998)])
def test_the_number_of_pairs_was_chosen_by_what_they_find(pairs: int, found: float) -> None:
    power = power_of(
        Design(pairs=pairs), series=SERIES, margin=math.log1p(0.005), deviation=0.003, slowdown=math.log1p(0.01)
    )

    assert power == pytest.approx(found, abs=0.0005)

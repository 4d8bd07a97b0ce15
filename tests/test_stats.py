from __future__ import annotations

import math
import random

import pytest

from flopwatch.model import Mark
from flopwatch.stats import FALSE_ALARM_RATE, PAIRS, SCALE_FLOOR, estimate, student_quantile_4
from flopwatch.verdict import judge_time, margin_of


def cdf_4(t: float) -> float:
    """Student's t with four degrees of freedom, integrated: independent of the quantile's formula."""
    return 0.5 + t * (t * t + 6) / (2 * math.pow(t * t + 4, 1.5))


@pytest.mark.parametrize("probability", [1e-6, 0.01, 0.4, 0.6, 0.975, 0.9999, 1 - 1e-6])
def test_the_quantile_inverts_the_distribution(probability: float) -> None:
    assert cdf_4(student_quantile_4(probability)) == pytest.approx(probability, rel=1e-9)


def test_the_median_is_zero() -> None:
    assert student_quantile_4(0.5) == 0


def test_agreement_by_luck_does_not_shrink_the_interval_below_the_floor() -> None:
    effect = estimate([0.01] * PAIRS, cases=1)
    assert effect.standard_error == pytest.approx(SCALE_FLOOR / math.sqrt(PAIRS))


def test_more_cases_widen_the_interval() -> None:
    ratios = [0.001, 0.002, 0.0, 0.001, 0.003]
    assert estimate(ratios, cases=60).lower < estimate(ratios, cases=1).lower


@pytest.mark.parametrize("ratios", [[0.0] * (PAIRS - 1), [0.0] * (PAIRS - 1) + [math.nan], []])
def test_anything_but_a_full_set_of_pairs_is_refused(ratios: list[float]) -> None:
    with pytest.raises(ValueError, match="finite log ratios"):
        estimate(ratios, cases=1)


def simulate(slowdown: float, *, sigma: float, runs: int, cases: int) -> float:
    """Return the share of runs in which any of the cases is marked slower."""
    source = random.Random(20261120)
    flagged = 0
    for _ in range(runs):
        for _ in range(cases):
            ratios = [slowdown + source.gauss(0, sigma) for _ in range(PAIRS)]
            if judge_time(estimate(ratios, cases=cases), margin=margin_of(0.5)) is Mark.SLOWER:
                flagged += 1
                break
    return flagged / runs


@pytest.mark.parametrize("sigma", [0.0005, 0.002, 0.01])
def test_clean_runs_are_not_accused(sigma: float) -> None:
    # 3000 runs at the designed rate flag 3 on average; 10 or more would happen once in a thousand such tests. The
    # margin of 0.5 % makes the true rate smaller still.
    assert simulate(0.0, sigma=sigma, runs=3000, cases=14) < 10 / 3000


def test_a_slowdown_at_the_margin_is_flagged_no_more_often_than_promised() -> None:
    share = simulate(margin_of(0.5), sigma=0.002, runs=3000, cases=14)
    assert share < FALSE_ALARM_RATE + 0.0025


def test_a_planted_slowdown_of_three_percent_is_found() -> None:
    assert simulate(0.03, sigma=0.001, runs=300, cases=1) == 1.0
    ratios = [[0.03 + random.Random(seed * 7 + pair).gauss(0, 0.001) for pair in range(PAIRS)] for seed in range(200)]
    found = sum(
        judge_time(estimate(ratio, cases=14, looks=2), margin=margin_of(0.5)) is Mark.SLOWER for ratio in ratios
    )
    assert found >= 198

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from flopwatch.stats.interval import deviation_of, interval, locate, single_p
from flopwatch.stats.prior import Prior

PRIOR = Prior(degrees=8, deviation=0.001)
#: With this nothing is cut.
WIDE = Prior(degrees=8, deviation=1.0)


def draws(rows: int, pairs: int, *, mean: float = 0.0, deviation: float = 0.001, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).normal(mean, deviation, size=(rows, pairs))


def test_the_bounds_are_where_the_test_begins_to_reject() -> None:
    table = draws(20, 10)
    found = interval(table, PRIOR, alpha=0.02)
    step = 1e-7

    assert (single_p(table - (found.lower[:, None] - step), PRIOR) <= 0.02).all()
    assert (single_p(table - (found.lower[:, None] + step), PRIOR) > 0.02).all()
    assert (single_p(found.upper[:, None] + step - table, PRIOR) <= 0.02).all()
    assert (single_p(found.upper[:, None] - step - table, PRIOR) > 0.02).all()


def test_without_a_cut_the_lower_bound_is_a_mean_of_a_subset() -> None:
    # Hartigan's typical values: at level k / 2^n it is the k-th smallest mean over all subsets but the empty one.
    table = draws(1, 6)
    means = sorted(np.mean(subset) for size in range(1, 7) for subset in itertools.combinations(table[0], size))

    assert interval(table, WIDE, alpha=3 / 64).lower[0] == pytest.approx(means[2], abs=1e-8)


def test_the_p_value_rises_with_the_margin() -> None:
    table = draws(30, 9, deviation=0.01, seed=2)
    p = np.array([single_p(table - margin, PRIOR) for margin in np.linspace(-0.03, 0.03, 61)])

    assert (np.diff(p, axis=0) >= 0).all()


@pytest.mark.parametrize("kind", ["gaussian", "t3", "modes"])
def test_the_interval_covers_the_effect_as_often_as_it_says(kind: str) -> None:
    rng = np.random.default_rng(3)
    table = rng.normal(0, 0.001, size=(4000, 10)) if kind != "t3" else 0.001 * rng.standard_t(3, size=(4000, 10))
    if kind == "modes":
        slow = rng.random((2, 4000, 10)) < 0.2
        table = table + 0.05 * (slow[0].astype(float) - slow[1])
    found = interval(table + 0.004, PRIOR, alpha=0.05)

    # 4000 series at 5 %: the standard error is 0.34 %.
    assert (found.lower > 0.004).mean() < 0.05 + 3 * 0.0034
    assert (found.upper < 0.004).mean() < 0.05 + 3 * 0.0034
    assert (found.lower > 0.004).mean() > 0.03


def test_too_few_pairs_have_no_bounds() -> None:
    found = interval(np.array([[0.01] * 7 + [np.nan], [0.01] * 8]), PRIOR, alpha=0.005)

    assert found.lower[0] == -math.inf
    assert found.upper[0] == math.inf
    assert found.lower[1] == pytest.approx(0.01, abs=1e-6)


def test_a_series_without_valid_pairs_has_neither_estimate_nor_bounds() -> None:
    found = interval(np.full((1, 8), np.nan), PRIOR, alpha=0.005)

    assert math.isnan(found.estimate[0])
    assert (found.lower[0], found.upper[0]) == (-math.inf, math.inf)


def test_the_estimate_balances_the_scores_and_ignores_how_far_an_outlier_is() -> None:
    near, far = draws(1, 9), draws(1, 9)
    near[0, 0], far[0, 0] = 0.05, 0.5

    assert locate(near, PRIOR) == pytest.approx(locate(far, PRIOR), abs=1e-7)
    assert locate(-near, PRIOR) == pytest.approx(-locate(near, PRIOR))


def test_the_estimate_lies_within_its_bounds() -> None:
    found = interval(draws(50, 8, deviation=0.01), PRIOR, alpha=0.1)

    assert (found.lower <= found.estimate).all()
    assert (found.estimate <= found.upper).all()


def test_the_deviation_of_a_pair_is_estimated_despite_an_outlier() -> None:
    table = draws(200, 13, deviation=0.002)
    table[:, 0] = 0.3

    assert np.median(deviation_of(table, locate(table, PRIOR))) == pytest.approx(0.0026, rel=0.2)


def test_few_pairs_have_no_deviation() -> None:
    assert math.isnan(deviation_of(draws(1, 4), np.zeros(1))[0])


@pytest.mark.parametrize("alpha", [0, 0.5, -1])
def test_a_level_that_is_none_is_refused(alpha: float) -> None:
    with pytest.raises(ValueError, match="alpha must be between"):
        interval(draws(1, 8), PRIOR, alpha=alpha)

"""The rank-sum test against enumeration, and the shift that it allows."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from flopwatch.stats.ranksum import critical, p_value, shift, signs_after


def distribution(before: int, after: int) -> dict[int, float]:
    """Count every order of so many values, by adding one value at a time: P(U = u)."""
    counts = {(0, n): {0: 1.0} for n in range(after + 1)} | {(m, 0): {0: 1.0} for m in range(before + 1)}
    for m, n in itertools.product(range(1, before + 1), range(1, after + 1)):
        total: dict[int, float] = {}
        # The largest value is one after, above all m before, or one before, above all n after.
        for rest, u in ((counts[m, n - 1], m), (counts[m - 1, n], -n)):
            for value, count in rest.items():
                total[value + u] = total.get(value + u, 0.0) + count
        counts[m, n] = total
    return {u: count / math.comb(before + after, before) for u, count in counts[before, after].items()}


@pytest.mark.parametrize(("before", "after"), [(4, 40), (8, 8), (12, 30), (40, 5), (30, 30)])
def test_p_values_agree_with_enumeration(before: int, after: int) -> None:
    chances = distribution(before, after)
    tail = 0.0
    for u in sorted(chances, reverse=True):
        tail += chances[u]
        if u <= 0 or 2 * tail > 0.2:
            break
        assert p_value(u, before, after) == pytest.approx(2 * tail, rel=0.08)
        assert p_value(-u, before, after) == p_value(u, before, after)


def test_all_values_above_all_others_has_the_p_value_of_one_order_in_all() -> None:
    assert p_value(500.0, 5, 100) == pytest.approx(2 / math.comb(105, 5), rel=1e-6)


def test_the_critical_value_is_the_least_that_is_significant() -> None:
    table = critical(1e-4, 40)
    for before, after in ((20, 20), (6, 30), (30, 7)):
        chances = distribution(before, after)
        total = before + after
        beyond = sum(chance for u, chance in chances.items() if abs(u) >= table[total, before])
        one_more = sum(chance for u, chance in chances.items() if abs(u) >= table[total, before] - 2)

        assert beyond <= 1e-4 * 1.05
        assert one_more > 1e-4 * 0.95


def test_too_few_values_have_no_critical_value() -> None:
    table = critical(1e-6, 60)

    assert math.comb(55, 4) < 2e6 < math.comb(60, 5)
    assert np.isinf(table[55, 4])
    assert table[60, 5] <= 5 * 55
    assert np.isinf(table[:20]).all()


def test_the_sum_of_signs_is_that_of_every_split() -> None:
    values = np.random.default_rng(3).integers(6, size=20).astype(float)
    splits = [np.sign(np.subtract.outer(values[k:], values[:k])).sum() for k in range(1, 21)]

    assert signs_after(values).tolist() == splits


def test_intervals_cover_the_shift() -> None:
    rng = np.random.default_rng(4)
    covered = 0
    for _ in range(600):
        found = shift(rng.standard_t(3, size=9), 0.7 + rng.standard_t(3, size=14), alpha=0.05)
        covered += found.lower <= 0.7 <= found.upper

    # The standard error of 95 % in 600 is 0.9 points.
    assert 0.95 - 3 * 0.009 < covered / 600 < 0.99


def test_too_few_values_bound_no_shift() -> None:
    found = shift(np.array([1.0, 2.0]), np.array([3.0, 5.0]), alpha=0.05)

    assert (found.estimate, found.lower, found.upper) == (2.5, -math.inf, math.inf)

from __future__ import annotations

import itertools

import numpy as np
import pytest

from flopwatch.stats.prior import Prior
from flopwatch.stats.signflip import FREE_PAIRS, SUITE_FROM, max_t, p_slower, sign_sums, standardise, suite_row

PRIOR = Prior(degrees=8, deviation=0.001)


def table(rows: int = 4, pairs: int = 6, *, seed: int = 1) -> np.ndarray:
    x = np.random.default_rng(seed).normal(scale=0.002, size=(rows, pairs))
    x[0, 1] = np.nan
    x[1, 0] = 0.3
    return x


def test_the_sums_are_those_of_all_sign_vectors_up_to_opposites() -> None:
    values = np.random.default_rng(1).normal(size=(2, 5))
    signs = np.array([(1, *rest) for rest in itertools.product((1, -1), repeat=4)])

    sums = sign_sums(values)

    assert sums[:, 0] == pytest.approx(values.sum(axis=1))
    assert np.sort(sums, axis=1) == pytest.approx(np.sort(values @ signs.T, axis=1))


def test_beyond_the_free_pairs_the_sign_vectors_and_their_opposites_are_a_group() -> None:
    pairs, free = 9, 4
    # Unit rows read the vectors off.
    half = sign_sums(np.eye(pairs), free=free).T
    group = {tuple(vector) for vector in np.concatenate([half, -half]).astype(int).tolist()}

    assert (1,) * pairs in group
    assert len(group) == 2**free
    assert all(tuple(np.multiply(a, b)) in group for a in group for b in group)


def test_p_values_agree_with_a_count_by_hand() -> None:
    x = table()
    rows = standardise(x, PRIOR)
    sums = np.array([rows @ np.array(signs) for signs in itertools.product((1, -1), repeat=x.shape[1])])
    expected = (sums.max(axis=1)[:, None] >= rows.sum(axis=1) - 1e-12).mean(axis=0)

    assert max_t(rows) == pytest.approx(expected)


def test_turning_a_coin_turns_signs_and_nothing_else() -> None:
    x = table()
    coins = np.array([1, -1, -1, 1, -1, 1])

    assert standardise(x * coins, PRIOR) == pytest.approx(standardise(x, PRIOR) * coins)
    assert suite_row(x * coins) == pytest.approx(suite_row(x) * coins)


def test_over_all_coins_the_p_values_are_uniform_or_larger() -> None:
    # The theorem itself, for one table: among all outcomes of the coins, a share of at most alpha has p <= alpha.
    x = table()
    smallest = np.array(
        [p_slower(x * np.array(coins), PRIOR).min() for coins in itertools.product((1, -1), repeat=x.shape[1])]
    )

    assert all((smallest <= alpha + 1e-12).mean() <= alpha + 1e-12 for alpha in np.arange(1, 33) / 64)


def test_a_row_without_valid_pairs_is_never_accused_and_disturbs_nobody() -> None:
    x = np.vstack([np.full(8, 0.01), np.full(8, np.nan)])

    p = max_t(standardise(x, PRIOR))

    assert p[0] == 1 / 256
    assert p[1] == 1


def test_one_outlier_does_not_hide_a_slowdown() -> None:
    x = np.random.default_rng(3).normal(0.005, 0.001, size=(1, 13))
    x[0, 4] = -0.3

    assert p_slower(x, PRIOR)[0] < 0.01


def test_the_suites_median_is_the_last_entry_where_there_are_enough_series() -> None:
    assert len(p_slower(np.ones((SUITE_FROM - 1, 8)), PRIOR)) == SUITE_FROM - 1
    assert len(p_slower(np.ones((SUITE_FROM, 8)), PRIOR)) == SUITE_FROM + 1


def test_a_shift_of_the_whole_suite_is_found_where_no_series_shows_it() -> None:
    x = np.random.default_rng(4).normal(0.0004, 0.001, size=(60, 13))

    p = p_slower(x, PRIOR)

    assert p[-1] < 0.001
    assert (p[:-1] > 0.01).all()


def test_one_series_that_is_slower_does_not_move_the_suite() -> None:
    x = np.random.default_rng(5).normal(0, 0.001, size=(60, 13))
    x[7] += 0.3

    p = p_slower(x, PRIOR)

    assert p[7] < 0.01
    assert p[-1] > 0.05


def test_thirteen_pairs_are_enumerated() -> None:
    assert sign_sums(np.ones((1, 13))).shape == (1, 2**12)
    assert sign_sums(np.ones((1, 20))).shape == (1, 2 ** (FREE_PAIRS - 1))


def test_what_was_rejected_before_leaves_the_test() -> None:
    x = table()
    tested = np.array([True, False, True, True])
    p = p_slower(x, PRIOR, tested)

    assert np.isnan(p[1])
    np.testing.assert_array_equal(p[tested], p_slower(x[tested], PRIOR))
    assert (p[tested] <= p_slower(x, PRIOR)[tested]).all()
    assert np.isnan(p_slower(x, PRIOR, np.zeros(4, dtype=np.bool_))).all()

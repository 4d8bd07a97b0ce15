from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flopwatch.model import Mark
from flopwatch.stats.design import Design
from flopwatch.stats.prior import PRIOR
from flopwatch.stats.procedure import Stage, decide
from flopwatch.stats.signflip import p_slower
from flopwatch.stats.table import Table

if TYPE_CHECKING:
    from collections.abc import Sequence

SERIES = 6

pairs = st.lists(st.tuples(st.floats(-0.1, 0.1) | st.just(np.nan), st.booleans(), st.booleans()), max_size=20)


def table(ratios: Sequence[float], apart: Sequence[bool]) -> Table:
    return Table(ratios=np.array([ratios], dtype=np.float64), apart=np.array([apart], dtype=np.bool_))


@pytest.mark.parametrize(("apart", "used"), [(0, 8), (1, 7), (3, 5), (4, 8), (8, 8)])
def test_pairs_at_different_clocks_are_left_out_while_they_are_the_fewer(apart: int, used: int) -> None:
    found = table([0.01] * 8, [number < apart for number in range(8)])
    assert np.isfinite(found.used).sum() == used


def test_what_is_invalid_has_no_say() -> None:
    found = table([0.01, np.nan, np.nan, np.nan], [True, False, False, False])
    np.testing.assert_array_equal(found.used, [[0.01, np.nan, np.nan, np.nan]])


def test_each_series_has_its_own_majority() -> None:
    found = Table(ratios=np.full((2, 3), 0.01), apart=np.array([[True, False, False], [True, True, False]]))
    np.testing.assert_array_equal(np.isfinite(found.used), [[False, True, True], [True, True, True]])


def test_a_pair_enters_once_its_like_are_no_longer_few_and_leaves_when_they_are() -> None:
    first, then, last = (
        table([0.01] * 4, [True] + [False] * 3),
        table([0.01] * 2, [True] * 2),
        Table.of(np.ones((1, 2))),
    )
    counts = [np.isfinite(found.used).sum() for found in (first, first.beside(then), first.beside(then).beside(last))]
    assert counts == [3, 6, 5]


@given(pairs)
def test_turning_the_coins_over_uses_the_same_pairs(rows: list[tuple[float, bool, bool]]) -> None:
    ratios, apart = [ratio for ratio, _, _ in rows], [apart for _, apart, _ in rows]
    turned = [-ratio if coin else ratio for ratio, _, coin in rows]
    np.testing.assert_array_equal(np.isfinite(table(ratios, apart).used), np.isfinite(table(turned, apart).used))
    np.testing.assert_array_equal(abs(table(ratios, apart).used), abs(table(turned, apart).used))


def test_a_table_of_the_wrong_shape_is_refused() -> None:
    with pytest.raises(ValueError, match=r"asked for \(1, 8\) log ratios and gave \(1, 9\)"):
        decide(Design(), [0.0], lambda *_: Table(ratios=np.zeros((1, 8)), apart=np.zeros((1, 9), dtype=np.bool_)))


def test_a_change_that_draws_more_power_in_every_pair_is_found() -> None:
    rng = np.random.default_rng(1)

    def sample(rows: Sequence[int], number: int, _stage: Stage) -> Table:
        ratios = rng.normal(0.0, 0.001, (len(rows), number))
        slower = np.array(rows)[:, None] == 2
        return Table(ratios=np.where(slower, ratios + 0.02, ratios), apart=np.broadcast_to(slower, ratios.shape))

    found = decide(Design(), [0.005] * SERIES, sample)
    assert [series.mark is Mark.SLOWER for series in found.series] == [row == 2 for row in range(SERIES)]


@pytest.mark.parametrize("often", [0.2, 0.5, 0.8])
def test_the_innocent_are_accused_no_more_often_where_clocks_make_the_errors(often: float) -> None:
    rng = np.random.default_rng(20261124)
    runs, alarms = 500, 0
    for _ in range(runs):
        # One slot runs 2 % slower in these pairs, in the others now and then; a coin says which slot is head.
        apart = rng.random((SERIES, 13)) < often
        errors = rng.normal(0.0, 0.001, apart.shape) + 0.02 * apart
        found = Table(ratios=errors * rng.choice([-1.0, 1.0], size=13), apart=apart)
        first, last = Table(ratios=found.ratios[:, :8], apart=found.apart[:, :8]), found
        p = p_slower(first.used, PRIOR).min(), p_slower(last.used, PRIOR).min()
        alarms += p[0] <= Design().first_alpha or p[1] <= Design().last_alpha

    # The standard error of 5 % in 500 runs is 1 point.
    assert alarms / runs < 0.05 + 3 * 0.01

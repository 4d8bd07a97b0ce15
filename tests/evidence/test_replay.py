from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pytest
from evidence.replay import Draw, Planted, Scheme, Screening, unseen_share

from flopwatch.model import Mark
from flopwatch.stats import Design, Stage, decide, p_slower

if TYPE_CHECKING:
    from collections.abc import Sequence

    from evidence.replay import PlantedDraw
    from evidence.samples import Samples


@pytest.mark.parametrize("scheme", Scheme)
def test_pairs_are_drawn_whole_and_their_coins_are_fair(scheme: Scheme) -> None:
    table = np.arange(1.0, 31.0) * np.array([[1.0], [100.0]])
    rng = np.random.default_rng(1)
    drawn = np.hstack([Draw(table, rng, scheme)([0, 1], 13) for _ in range(400)])

    np.testing.assert_array_equal(drawn[1], 100 * drawn[0])
    counts = np.unique(abs(drawn[0]), return_counts=True)[1]
    assert len(counts) == 30
    assert counts.min() > 100  # of 173 on average
    # 5200 coins; the standard error of a share is 0.7 points.
    assert (drawn > 0).mean() == pytest.approx(0.5, abs=0.03)
    # Nor does a pair's coin depend on its neighbour's.
    assert (drawn[0, 1:] * drawn[0, :-1] > 0).mean() == pytest.approx(0.5, abs=0.03)


def test_shuffled_pairs_come_again_only_when_all_have_come() -> None:
    draw = Draw(np.arange(1.0, 24.0)[None], np.random.default_rng(2))
    first, second, third = (abs(draw([0], pairs)[0]) for pairs in (13, 10, 23))

    assert {*first} | {*second} == {*third} == {*range(1, 24)}


def test_pairs_in_order_go_round() -> None:
    draw = Draw(np.arange(1.0, 11.0)[None], np.random.default_rng(3), Scheme.IN_ORDER)
    drawn = abs(np.concatenate([draw([0], pairs)[0] for pairs in (8, 7, 10)]))

    assert {*(np.diff(drawn) % 10)} == {1.0}


def test_a_few_pairs_may_miss_much() -> None:
    assert unseen_share(23) == pytest.approx(0.122, abs=1e-3)


def test_stage_1_keeps_its_level_on_drawn_pairs(samples: Samples) -> None:
    table, design = samples.log_ratios(), Design()
    rng = np.random.default_rng(4)
    flagged = sum(
        p_slower(Draw(table, rng, Scheme.REPLACED)(range(len(table)), 9), design.prior).min() <= design.alpha
        for _ in range(600)
    )

    # 5 %, and its standard error in 600 runs is 0.9 points.
    assert 0.02 < flagged / 600 < 0.08


@pytest.mark.parametrize(("margin", "slowdown"), [(0.0, 0.0007), (0.0, 0.002), (0.005, 0.0062), (0.005, 0.01)])
def test_the_quick_answer_is_that_of_decide(samples: Samples, margin: float, slowdown: float) -> None:
    table = samples.log_ratios()
    design = Design(pairs=10, confirm_pairs=10, settle_pairs=0)
    margins = [margin] * len(table)
    found, stages = [], set()
    for seed in range(30):
        planted = Planted(row=seed % len(table), log_ratio=slowdown)
        clean = Draw(table, np.random.default_rng(seed))(range(len(table)), design.pairs)
        slowed = clean.copy()
        slowed[planted.row] += slowdown
        left = [slowed[:, :8], slowed[:, 8:]]
        rng = np.random.default_rng(seed)
        fresh = planted.on(Draw(table, rng), rng)

        def sample(
            rows: Sequence[int],
            pairs: int,
            stage: Stage,
            left: list[np.ndarray] = left,
            fresh: PlantedDraw = fresh,
        ) -> np.ndarray:
            stages.add((stage, pairs))
            return left.pop(0) if stage is Stage.SCREEN else fresh(rows, pairs)

        slow = decide(design, margins, sample).series[planted.row].mark
        rng = np.random.default_rng(seed)
        quick = Screening(design, np.array(margins), clean).found(planted.on(Draw(table, rng), rng))
        found.append((quick, slow is Mark.SLOWER))

    assert [quick for quick, _ in found] == [slow for _, slow in found]
    assert any(quick for quick, _ in found)
    assert stages >= {(Stage.SCREEN, 8), (Stage.CONFIRM, 8)}


def test_a_planted_shift_is_found_in_its_case_alone(samples: Samples) -> None:
    table = samples.log_ratios()
    rng = np.random.default_rng(5)
    planted = Planted(row=2, log_ratio=math.log1p(0.02))
    marks = [series.mark for series in decide(Design(), [0.005] * 8, planted.on(Draw(table, rng), rng)).series]

    assert [index for index, mark in enumerate(marks) if mark is Mark.SLOWER] == [2]


def test_recorded_slow_pairs_stand_in_for_the_drawn_ones() -> None:
    rng = np.random.default_rng(6)
    planted = Planted(row=1, recorded=np.arange(1.0, 9.0))
    drawn = planted.on(Draw(np.full((3, 5), 0.5), rng), rng)([0, 1], 8)

    assert sorted(drawn[1]) == [*range(1, 9)]  # without coins: head was head
    assert {*abs(drawn[0])} == {0.5}

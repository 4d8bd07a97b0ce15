from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pytest
from evidence import rivals
from evidence.rivals import Look, Rule, Side

if TYPE_CHECKING:
    from pathlib import Path

    from evidence.samples import Samples

STEADY = np.array([1.0, 1.001, 0.999, 1.0, 1.0005, 0.9995] * 4)
#: One sample in six is three times as long: the mean is 33 % up, the median is not.
SPIKY = np.array([1.0, 1.001, 0.999, 1.0, 1.0005, 3.0] * 4)


def look(base: np.ndarray, head: np.ndarray) -> Look:
    sides = [Side(samples=values[None], turns=values[None]) for values in (base, head)]
    history = np.array([[0.99, 1.0, 1.01, 1.0, 0.995, 1.005]])
    return Look(base=sides[0], head=sides[1], run=np.median(head)[None], history=history)


@pytest.mark.parametrize(
    ("rule", "limit"),
    [
        (partial(rivals.asv, factor=1.1), 0.1),
        (partial(rivals.asv, factor=1.02), 0.02),
        (partial(rivals.mean_over, threshold=0.05), 0.05),
        (partial(rivals.median_over, threshold=0.02), 0.02),
        # 5 times a deviation of 0.0071
        (partial(rivals.z_over, limit=5.0), 0.035),
    ],
)
def test_a_rule_says_slower_beyond_its_threshold_only(rule: Rule, limit: float) -> None:
    assert not rule(look(STEADY, STEADY * (1 + 0.9 * limit))).any()
    assert rule(look(STEADY, STEADY * (1 + 1.1 * limit))).all()


def test_asv_wants_samples_that_differ_beside_its_factor() -> None:
    wide = np.array([1.0, 3.0] * 12)

    assert rivals.median_over(look(wide, wide + 0.3), 0.1).all()
    assert not rivals.asv(look(wide, wide + 0.3), 1.1).any()


def test_a_spike_moves_the_mean_and_not_the_median() -> None:
    spiky = look(STEADY, SPIKY)

    assert rivals.mean_over(spiky, 0.05).all()
    assert not rivals.median_over(spiky, 0.02).any()


def test_welch_takes_samples_of_a_process_for_independent() -> None:
    # 0.1 % between two processes, of samples that scatter by 0.06 %: noise, and "proved" by 24 samples.
    assert rivals.welch(look(STEADY, STEADY * 1.001), 0.001).all()
    assert not rivals.welch(look(STEADY, STEADY), 0.001).any()


def test_runs_in_turns_share_their_pairs_and_runs_apart_have_none_in_common(samples: Samples) -> None:
    marked = np.broadcast_to(np.arange(24, dtype=np.float32)[:, None, None, None, None, None], samples.seconds.shape)
    for in_turns in (True, False):
        draws = rivals.draws(marked, 8, np.random.default_rng(1), in_turns=in_turns)
        for _, each in zip(range(50), draws, strict=False):
            base, head = ({*side.samples.ravel().tolist()} for side in (each.base, each.head))
            assert (len(base), len(head)) == (8, 8)
            assert (base == head) if in_turns else not base & head
            assert each.run[0] in head
            assert each.run[0] not in each.history[0]


def test_a_case_with_fewer_samples_to_a_cycle_than_others_has_turns(samples: Samples) -> None:
    seconds = samples.seconds.copy()
    seconds[:, 0, ..., 4:] = np.nan
    found = rivals.side(seconds[:, :, 0])

    assert np.array_equal(np.isnan(found.turns[0]), np.isnan(found.turns[1]))
    np.testing.assert_allclose(np.nanmean(found.turns, axis=1), samples.time_us() * 1e-6, rtol=2e-3)


def test_too_few_pairs_for_two_runs_apart_are_refused(samples: Samples) -> None:
    with pytest.raises(ValueError, match="two runs of 8 pairs are 16 pairs, and 15 were recorded"):
        next(rivals.draws(samples.seconds[:15], 8, np.random.default_rng(1), in_turns=False))


def test_every_rule_is_judged_in_turns_and_apart(recording: Path) -> None:
    found = rivals.judge(recording, 8, 2, (False, 0))

    assert [result.rule for result in found] == list(rivals.RULES)
    assert [result.rule for result in rivals.judge(recording, 8, 1, (True, 0))] == [
        name for name in rivals.RULES if name != rivals.STORED
    ]
    both = rivals.merge(found[0], replace(found[0], runs=6, found=(1.0, 1.0, 1.0)))
    assert both.runs == 8
    assert both.found[0] == pytest.approx((2 * found[0].found[0] + 6) / 8)

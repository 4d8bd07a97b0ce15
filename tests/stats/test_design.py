from __future__ import annotations

import pytest

from flopwatch.stats.design import LATER_LOOKS, Design


def test_the_default_leaves_a_fifth_of_one_run_in_a_thousand_to_launches() -> None:
    assert Design().false_alarm_rate == pytest.approx(0.0008)


def test_eight_pairs_can_prove_that_a_series_is_the_same() -> None:
    assert 2.0 ** -Design().first_look <= Design().first_same_alpha


def test_the_looks_share_the_miss_rate() -> None:
    design = Design()
    assert design.first_same_alpha + LATER_LOOKS * design.later_same_alpha == pytest.approx(design.miss_rate)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"pairs": 4, "first_look": 4}, "4 pairs cannot reject at 5 %: .* take 5 or more"),
        ({"first_look": 6}, "6 pairs cannot reject at 0.781 %: .* take 7 or more"),
        ({"confirm_first": 6}, "6 pairs cannot reject at 0.781 %: .* take 7 or more"),
        ({"confirm_first": 20}, "confirm_first is 1 to 18 pairs"),
        ({"confirm_pairs": 6, "confirm_first": 5}, "6 pairs cannot reject at 1.48 %: .* take 7 or more"),
        ({"first_alpha": 0.06}, "first_alpha is a share of alpha"),
        ({"alpha": 0, "first_alpha": 0}, "between 0 and 1"),
        ({"first_look": 14}, "first look"),
        ({"first_look": 0}, "first look"),
        ({"settle_pairs": 3}, "equal rounds"),
        ({"settle_pairs": -2}, "equal rounds"),
    ],
)
def test_a_design_that_cannot_decide_is_refused(changes: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Design(**changes)  # type: ignore[arg-type] # the fields that vary are integers

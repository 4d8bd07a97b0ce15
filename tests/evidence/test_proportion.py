from __future__ import annotations

import pytest
from evidence.proportion import interval, lower_bound, upper_bound


@pytest.mark.parametrize(
    ("count", "trials", "low", "high"),
    [
        # Closed forms: 0.025^(1/n) where all or none were seen.
        (0, 10, 0.0, 0.308497102),
        (10, 10, 0.691502898, 1.0),
        # By binomtest of SciPy 1.17, method "exact".
        (8, 10, 0.443904538, 0.974789274),
        (1, 3000, 8.43923371e-06, 0.00185579999),
        (297, 300, 0.971055489, 0.997932993),
    ],
)
def test_intervals_are_those_of_clopper_and_pearson(count: int, trials: int, low: float, high: float) -> None:
    assert interval(count, trials) == pytest.approx((low, high), abs=1e-8)


def test_none_in_three_thousand_is_a_thousandth_at_most() -> None:
    assert upper_bound(0, 3000) == pytest.approx(1 - 0.05 ** (1 / 3000))
    assert lower_bound(3000, 3000) == pytest.approx(0.05 ** (1 / 3000))

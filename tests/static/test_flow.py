from __future__ import annotations

import pytest

from flopwatch.static.flow import reachable

#: Two loops, 1 to 2 and 3 alone, and a place that leads to the first of them.
AFTER = [[1], [2, 3], [1], [3], [0]]


@pytest.mark.parametrize(
    ("starts", "places"), [([], set()), ([3], {3}), ([2], {1, 2, 3}), ([4], {0, 1, 2, 3, 4}), ([3, 0], {0, 1, 2, 3})]
)
def test_places_are_reached_through_others_and_through_loops(starts: list[int], places: set[int]) -> None:
    assert reachable(starts, AFTER) == places

from __future__ import annotations

import numpy as np
import pytest

from flopwatch.static.traffic.elements import Elements

BASE = 1 << 44


def boxes(elements: Elements, *spans: tuple[int, int]) -> tuple[list[tuple[int, int]], bool]:
    """Return the pairs of a span and a box, and whether any span strays; spans are of bytes from the first element."""
    starts, ends = np.array(spans).T + BASE
    whose, found, strays = elements.boxes_of(starts, ends)
    return sorted(zip(whose.tolist(), found.tolist(), strict=True)), strays


def test_a_span_is_its_elements_row_by_row() -> None:
    elements = Elements((3, 4), (4, 1), 2, BASE)

    assert boxes(elements, (0, 4), (6, 10)) == ([(0, 0), (0, 1), (1, 3), (1, 4)], False)


def test_a_transposed_tensor_is_shown_as_its_axes_are_named() -> None:
    elements = Elements((3, 4), (1, 3), 2, BASE)

    assert boxes(elements, (0, 8)) == ([(0, 0), (0, 1), (0, 4), (0, 8)], False)


def test_large_tensors_are_told_in_boxes() -> None:
    elements = Elements((128, 4096), (4096, 1), 2, BASE)

    assert (elements.box, elements.boxes) == ((2, 64), 64 * 64)
    assert boxes(elements, (2 * 4096 * 2, 2 * 4096 * 2 + 65 * 2)) == ([(0, 64), (0, 65)], False)
    assert boxes(elements, (2 * 63, 2 * 64)) == ([(0, 0)], False)


def test_a_last_box_that_is_not_full_is_one() -> None:
    elements = Elements((5, 130), (130, 1), 4, BASE)

    assert (elements.box, elements.boxes) == ((1, 4), 5 * 33)
    assert boxes(elements, (4 * 129, 4 * 131)) == ([(0, 32), (0, 33)], False)


def test_of_more_axes_the_first_place_is_shown() -> None:
    elements = Elements((2, 3, 4), (12, 4, 1), 2, BASE)

    assert boxes(elements, (0, 2), (24, 26)) == ([(0, 0)], False)
    assert boxes(elements, (22, 26)) == ([(0, 11)], False)


def test_axes_in_another_order_of_memory_are_found() -> None:
    """As of heads that lie beside each other in a row: (batch, head, row, dim) of (batch, row, head, dim)."""
    elements = Elements((1, 2, 3, 4), (24, 4, 8, 1), 2, BASE)

    assert boxes(elements, (0, 8), (8, 16), (16, 18)) == ([(0, 0), (0, 1), (0, 2), (0, 3), (2, 4)], False)


def test_a_span_shows_what_lies_between_two_like_places_that_are_away() -> None:
    """From the second batch of a row to that of the next one the first batch's row is passed over."""
    elements = Elements((3, 2, 4), (4, 12, 1), 2, BASE)

    assert boxes(elements, (2 * 4, 2 * 20)) == ([(0, 4), (0, 5), (0, 6), (0, 7)], False)
    assert boxes(elements, (2 * 4, 2 * 8)) == ([], False)


def test_what_lies_beside_the_elements_strays() -> None:
    view = Elements((2, 3), (8, 1), 2, BASE)

    assert boxes(view, (4, 8)) == ([(0, 2)], True)
    assert boxes(view, (8, 16)) == ([], True)
    assert boxes(view, (-4, 0), (22, 30)) == ([], True)
    assert boxes(view, (-4, 2)) == ([(0, 0)], True)


def test_elements_that_overlap_have_no_picture() -> None:
    with pytest.raises(ValueError, match="overlap"):
        Elements((4, 4), (1, 1), 2, BASE)


def test_an_expanded_axis_has_one_place() -> None:
    assert boxes(Elements((3, 4), (0, 1), 2, BASE), (0, 8)) == ([(0, 0), (0, 1), (0, 2), (0, 3)], False)

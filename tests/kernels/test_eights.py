from __future__ import annotations

import pytest

from flopwatch.kernels.eights import are_readable, eights


@pytest.mark.parametrize(
    ("sizes", "a_strides", "b_strides", "said"),
    [
        ((7, 24, 40), (40, 1), (24, 1), "NN"),
        ((7, 24, 40), (40, 1), (1, 40), "NT"),
        ((24, 32, 48), (1, 24), (32, 1), "TN"),
        ((24, 8, 16), (1, 24), (1, 16), "TT"),
        ((16, 16, 16), (24, 1), (16, 1), "NN"),  # rows of a wider matrix
        ((7, 16, 16), (0, 1), (8, 1), "NN"),  # one row for all
        ((7, 16, 32), (32, 1), (16, 1), ""),  # which 16 divides
        ((20, 24, 40), (1, 20), (24, 1), ""),
        ((7, 20, 40), (40, 1), (1, 40), ""),
        ((7, 24, 40), (44, 1), (24, 1), ""),
        ((7, 24, 40), (40, 1), (1, 41), ""),
        ((7, 24, 40), (80, 2), (24, 1), ""),
        ((1, 8, 1), (1, 1), (8, 1), ""),
    ],
)
def test_what_8_divides_is_said_where_16_does_not_and_it_helps(
    sizes: tuple[int, int, int], a_strides: tuple[int, int], b_strides: tuple[int, int], said: str
) -> None:
    assert eights(sizes, a_strides, b_strides, (sizes[1], 1)) == said


@pytest.mark.parametrize(("c_strides", "said"), [((24, 1), "NN"), ((32, 1), "NN"), ((28, 1), ""), ((1, 8), "")])
def test_rows_of_the_product_count_too(c_strides: tuple[int, int], said: str) -> None:
    assert eights((7, 24, 40), (40, 1), (24, 1), c_strides) == said


@pytest.mark.parametrize(
    ("pointers", "sizes", "a_strides", "readable"),
    [
        ((256, 512), (7, 32, 48), (48, 1), True),
        ((256, 512), (7, 24, 40), (40, 1), True),
        ((256, 520), (7, 24, 40), (40, 1), False),
        ((256, 512), (7, 24, 36), (36, 1), False),
        ((256, 512), (7, 32, 47), (48, 1), False),  # of rows that could be read the ends could not
        ((256, 512), (32, 32, 47), (1, 32), True),
        ((256, 512), (32, 32, 48), (96, 2), False),
    ],
)
def test_operands_are_readable_16_bytes_at_a_time_or_not(
    pointers: tuple[int, int], sizes: tuple[int, int, int], a_strides: tuple[int, int], readable: bool
) -> None:
    assert are_readable(pointers, sizes, a_strides, (sizes[1], 1)) is readable

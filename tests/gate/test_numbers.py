from __future__ import annotations

import pytest

from flopwatch.gate.numbers import NEAR_TIE, changed_choices, settle
from flopwatch.model import Choice
from flopwatch.verdict import Side


def side(config: str, timings_us: dict[str, float] | None = None) -> Side:
    return Side(choices=(Choice(kernel="k", config=config, timings_us=timings_us or {}),))


def settled(base: str, head: Side) -> str:
    return settle(side(base), head).choices[0].config


def test_head_keeps_bases_choice_in_a_near_tie() -> None:
    near = side("wide", {"wide": 10.0, "tall": 10.0 * NEAR_TIE - 0.01})
    assert settled("tall", near) == "tall"


def test_head_keeps_its_own_choice_where_bases_is_clearly_slower() -> None:
    assert settled("tall", side("wide", {"wide": 10.0, "tall": 10.0 * NEAR_TIE + 0.01})) == "wide"


def test_head_keeps_its_own_choice_where_it_no_longer_has_bases() -> None:
    assert settled("gone", side("wide", {"wide": 10.0, "tall": 10.0})) == "wide"


def test_a_kernel_that_only_head_tunes_keeps_its_choice() -> None:
    assert settle(Side(), side("wide", {"wide": 10.0})).choices[0].config == "wide"


@pytest.mark.parametrize(
    ("base", "head", "expected"),
    [
        (side("a: 1, b: 2"), side("a: 1, b: 2"), []),
        (side("a: 1, b: 2"), side("a: 1, b: 3"), ["configuration changed: k from b: 2 to b: 3"]),
        (Side(), side("a: 1"), []),
    ],
)
def test_a_changed_choice_is_told_by_what_differs(base: Side, head: Side, expected: list[str]) -> None:
    assert list(changed_choices(base.choices, head.choices)) == expected

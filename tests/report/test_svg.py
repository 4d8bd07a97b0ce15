from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from flopwatch.report.svg import WIDTH, effects, samples

if TYPE_CHECKING:
    from tests.report.conftest import Gates


def numbers(text: str, name: str) -> list[float]:
    return [float(value) for value in re.findall(rf'\b{name}="(-?[\d.]+)"', text)]


def test_nothing_is_drawn_where_nothing_was_timed(gates: Gates) -> None:
    assert effects(gates.laptop.verdicts) == ""


def test_one_large_effect_is_drawn_at_the_border_and_the_others_keep_their_room(gates: Gates) -> None:
    usual = gates.slower.verdicts[1]
    assert usual.time is not None
    far = replace(usual, time=replace(usual.time, estimate=3.0, lower=2.9, upper=3.1))
    text = effects([usual] * 5 + [far])
    assert max(numbers(text, "x1") + numbers(text, "x2")) <= WIDTH
    assert text.count('<rect class="point"') == 1
    middles = numbers(text, "cx")
    assert len(middles) == 5
    assert max(middles) > 500


def test_pairs_of_the_screen_and_fresh_ones_differ_in_shape(gates: Gates) -> None:
    text = samples(gates.slower.verdicts[1], [("screen", 0.01), ("confirm", 0.02)])
    assert (text.count("<circle"), text.count("<rect")) == (1, 1)
    assert "pair 2, confirm: 2.02 % slower" in text


def test_equal_pairs_can_be_drawn(gates: Gates) -> None:
    verdict = replace(gates.slower.verdicts[1], margin=0.0, time=None)
    assert "nan" not in samples(verdict, [("screen", 0.0)] * 3)

from __future__ import annotations

from typing import TYPE_CHECKING, Self, cast

import pytest

from flopwatch.gate.numbers import _settle, _tune, changed_choices, with_choices_of
from flopwatch.gate.sides import Arm, Sides
from flopwatch.measure.client import Mode, Worker
from flopwatch.model import Case, Choice
from flopwatch.verdict import Side

if TYPE_CHECKING:
    from collections.abc import Sequence

CASE = Case(suite="Toy", values=("flopwatch",))


def side(config: str, timings_us: dict[str, float] | None = None) -> Side:
    return Side(choices=(Choice(kernel="k", config=config, timings_us=timings_us or {}),))


class FakeWorker:
    """Stands in for a worker whose tuner chooses what it is told to, process after process."""

    def __init__(self, choices: list[str]) -> None:
        self.choice = choices.pop(0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def tune(self, case: Case, pins: Sequence[Choice]) -> tuple[Choice, ...]:
        assert (case, pins) == (CASE, ())
        return (Choice(kernel="k", config=self.choice, timings_us={"wide": 10.0, "tall": 10.0}),)


class FakeSides(Sides):
    def __init__(self, **choices: list[str]) -> None:
        self.choices = {Arm(name): chosen for name, chosen in choices.items()}

    def worker(self, mode: Mode, arm: Arm, *, anew: bool = False) -> Worker:
        assert mode is Mode.GPU
        assert not anew
        return cast("Worker", FakeWorker(self.choices[arm]))


def settled(*, base: list[str], head: list[str]) -> tuple[str, bool]:
    """Return what head runs, and whether its tuning is called unstable, given the choices of successive processes."""
    sides = FakeSides(base=base, head=head)
    tuned = {arm: _tune(sides, arm, [CASE], {}) for arm in Arm}
    unstable = _settle(sides, tuned, {})
    return tuned[Arm.HEAD][CASE].choices[0].config, CASE in unstable


def test_sides_that_choose_alike_are_not_tuned_again() -> None:
    assert settled(base=["wide"], head=["wide"]) == ("wide", False)


def test_a_difference_that_is_found_again_is_a_change_of_the_code() -> None:
    assert settled(base=["tall", "tall"], head=["wide", "wide"]) == ("wide", False)


@pytest.mark.parametrize(("base", "head"), [(["tall", "tall"], ["wide", "tall"]), (["tall", "wide"], ["wide", "wide"])])
def test_a_choice_that_flips_is_unstable_and_head_runs_bases(base: list[str], head: list[str]) -> None:
    assert settled(base=base, head=head) == ("tall", True)


def test_head_keeps_its_own_choice_where_it_no_longer_has_bases() -> None:
    assert with_choices_of(side("gone"), side("wide", {"wide": 10.0})).choices[0].config == "wide"


def test_a_kernel_that_only_head_tunes_keeps_its_choice() -> None:
    assert with_choices_of(Side(), side("wide", {"wide": 10.0})).choices[0].config == "wide"


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

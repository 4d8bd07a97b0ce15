from __future__ import annotations

import math
import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self, cast

import pytest

from flopwatch.gate.choices import TIE, TRIALS, UNSTABLE, changed_choices, off_pins, settle, with_choices_of
from flopwatch.gate.sides import Arm, Sides
from flopwatch.measure.client import CaseFailed, Mode, Worker
from flopwatch.measure.protocol import Method, Plan, Prepared
from flopwatch.model import Case, Choice, Failure

if TYPE_CHECKING:
    from collections.abc import Sequence

CASE = Case(suite="Toy", values=("flopwatch",))
BOTH = {"wide": 10.0, "tall": 10.0}


def chosen(config: str, timings_us: dict[str, float] | None = None) -> tuple[Choice, ...]:
    return (Choice(kernel="k", config=config, timings_us=timings_us or {}),)


@dataclass(kw_only=True)
class Gpu:
    """What the stand-ins share: what a call takes on each side in each configuration, and what fails."""

    seconds: dict[tuple[Arm, str], float]
    noise: float = 0.002
    failing: tuple[Arm, str] | None = None
    slots: list[tuple[Arm, str]] = field(default_factory=list)
    started: int = 0
    random: random.Random = field(default_factory=lambda: random.Random(1))


class FakeWorker:
    """Stands in for a worker, to test what is made of known times; the real one is tested in tests/measure."""

    def __init__(self, arm: Arm, gpu: Gpu) -> None:
        self.arm, self.gpu, self.config = arm, gpu, ""
        self.offset = gpu.random.gauss(0, gpu.noise)  # of a process

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def wake(self) -> None:
        pass

    def release(self, _case: Case) -> None:
        pass

    def place(self, _case: Case) -> None:
        pass

    def lend(self, case: Case, _to: Worker) -> str:
        return case.id

    def prepare(self, _case: Case, plan: Plan | None, pins: Sequence[Choice], *, lent: str = "") -> Prepared:
        (pin,) = pins
        self.config = pin.config
        self.gpu.slots.append((self.arm, self.config))
        if self.gpu.failing == (self.arm, self.config):
            raise CaseFailed(Failure(kind="OutOfResources", message="planted"), cast("Worker", self))
        plan = plan or Plan(method=Method.GRAPH, calls=16, input_sets=16)
        return Prepared(plan=plan, choices=tuple(pins), borrowed=bool(lent))

    def visit(self, _case: Case, samples: int) -> tuple[float, ...]:
        return (self.gpu.seconds[self.arm, self.config] * math.exp(self.offset),) * samples

    def launch(self, _case: Case, samples: int) -> tuple[float, ...]:
        return (2e-5,) * samples


class FakeSides(Sides):
    def __init__(self, gpu: Gpu) -> None:
        self.gpu = gpu

    def worker(self, mode: Mode, arm: Arm, *, anew: bool = False) -> Worker:
        assert mode is Mode.GPU
        assert not anew
        self.gpu.started += 1
        return cast("Worker", FakeWorker(arm, self.gpu))


def times(*, base: float, head: float) -> dict[tuple[Arm, str], float]:
    """Return how long "wide" and "tall" take where tall is slower by these log ratios."""
    slower = {Arm.BASE: base, Arm.HEAD: head}
    return {
        (arm, config): 1e-5 * math.exp(slower[arm] if config == "tall" else 0.0)
        for arm in Arm
        for config in ("wide", "tall")
    }


def settled(gpu: Gpu, *, base: str = "tall", head: str = "wide") -> tuple[str, str, bool]:
    """Return what both sides run where they chose so, and whether the tuning is called unstable."""
    found = settle(FakeSides(gpu), {CASE: chosen(base, BOTH)}, {CASE: chosen(head, BOTH)})[CASE]
    return found.base[0].config, found.head[0].config, found.notes == (UNSTABLE,)


def test_sides_that_choose_alike_are_not_asked() -> None:
    gpu = Gpu(seconds={})
    assert settle(FakeSides(gpu), {CASE: chosen("wide", BOTH)}, {CASE: chosen("wide", BOTH)}) == {}
    assert gpu.started == 0


def test_a_case_that_one_side_alone_tuned_is_not_asked() -> None:
    gpu = Gpu(seconds={})
    assert settle(FakeSides(gpu), {CASE: chosen("wide", BOTH)}, {}) == {}
    assert settle(FakeSides(gpu), {}, {CASE: chosen("wide", BOTH)}) == {}
    assert gpu.started == 0


@pytest.mark.parametrize(("base", "head"), [("tall", "wide"), ("wide", "tall")])
@pytest.mark.parametrize(
    ("slower", "expected"),
    [(0.0185, "wide"), (-0.0185, "tall"), (0.05, "wide")],
    ids=["the near tie of an attention kernel", "the other way round", "plain"],
)
def test_sides_of_the_same_code_run_the_same_whatever_their_tuners_took(
    base: str, head: str, slower: float, expected: str
) -> None:
    assert settled(Gpu(seconds=times(base=slower, head=slower)), base=base, head=head) == (expected, expected, True)


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("slower", [0.0, 0.5 * TIE, TIE, -TIE, 1.5 * TIE])
def test_sides_of_the_same_code_never_part_at_the_edge_of_a_tie(slower: float, seed: int) -> None:
    gpu = Gpu(seconds=times(base=slower, head=slower), random=random.Random(seed))
    base, head, unstable = settled(gpu)
    assert (base, unstable) == (head, True)


def test_what_is_a_tie_on_both_sides_is_left_to_base() -> None:
    assert settled(Gpu(seconds=times(base=0.0, head=0.0), noise=0.0)) == ("tall", "tall", True)


@pytest.mark.parametrize(
    ("base", "head", "expected"), [(0.0, 0.02, "wide"), (0.02, 0.0, "wide"), (0.0, -0.02, "tall"), (-0.02, 0.0, "tall")]
)
def test_what_is_a_tie_on_one_side_is_left_to_the_other(base: float, head: float, expected: str) -> None:
    assert settled(Gpu(seconds=times(base=base, head=head), noise=0.0)) == (expected, expected, True)


def test_a_kernel_for_which_another_choice_became_better_has_changed() -> None:
    assert settled(Gpu(seconds=times(base=-0.02, head=0.02))) == ("tall", "wide", False)


def test_each_choice_is_each_slot_on_each_side() -> None:
    gpu = Gpu(seconds=times(base=0.0, head=0.0))
    settled(gpu)
    assert gpu.slots[::2] == [
        (arm, config) for arm in Arm for config in (("wide", "tall"), ("tall", "wide"))[arm is Arm.HEAD]
    ]
    assert len(gpu.slots) == 2 * 2 * TRIALS
    assert gpu.started == len(gpu.slots)


def test_a_side_that_lacks_the_others_choice_keeps_its_own_and_need_not_run() -> None:
    gpu = Gpu(seconds=times(base=0.0, head=0.0))
    found = settle(FakeSides(gpu), {CASE: chosen("gone", {"gone": 9.0})}, {CASE: chosen("wide", {"wide": 10.0})})[CASE]
    assert (found.base[0].config, found.head[0].config, found.notes) == ("gone", "wide", ())
    assert gpu.started == 0


def test_a_side_that_fails_in_the_others_choice_keeps_its_own() -> None:
    gpu = Gpu(seconds=times(base=-0.02, head=-0.02), failing=(Arm.HEAD, "tall"))
    assert settled(gpu) == ("tall", "wide", False)


def test_head_keeps_its_own_choice_where_it_no_longer_has_bases() -> None:
    assert with_choices_of(chosen("gone"), chosen("wide", {"wide": 10.0}))[0].config == "wide"


def test_a_kernel_takes_over_nothing_of_another() -> None:
    other = Choice(kernel="other", config="tall", timings_us=BOTH)
    assert with_choices_of((other,), chosen("wide", BOTH)) == chosen("wide", BOTH)
    assert with_choices_of((other, *chosen("tall")), chosen("wide", BOTH)) == chosen("tall", BOTH)


def test_a_kernel_that_only_head_tunes_keeps_its_choice() -> None:
    assert with_choices_of((), chosen("wide", {"wide": 10.0}))[0].config == "wide"


@pytest.mark.parametrize(
    ("base", "head", "expected"),
    [
        (chosen("a: 1, b: 2"), chosen("a: 1, b: 2"), []),
        (chosen("a: 1, b: 2"), chosen("a: 1, b: 3"), ["configuration changed: k from b: 2 to b: 3"]),
        ((), chosen("a: 1"), []),
    ],
)
def test_a_changed_choice_is_told_by_what_differs(
    base: tuple[Choice, ...], head: tuple[Choice, ...], expected: list[str]
) -> None:
    assert list(changed_choices(base, head)) == expected


def launches(**configs: str) -> tuple[Choice, ...]:
    """Return what a side chose that launches one kernel with several keys."""
    return tuple(Choice(kernel="k", key=key, config=config, timings_us=BOTH) for key, config in configs.items())


def test_each_launch_of_a_kernel_is_given_bases_choice_for_it() -> None:
    changed = with_choices_of(launches(small="tall", large="wide"), launches(large="tall", small="wide", new="wide"))
    assert [(choice.key, choice.config) for choice in changed] == [
        ("large", "wide"),
        ("small", "tall"),
        ("new", "wide"),
    ]


@pytest.mark.parametrize(
    ("base", "head", "expected"),
    [
        (launches(small="tall", large="wide"), launches(large="wide", small="tall"), []),
        (
            launches(small="tall", large="wide"),
            launches(small="tall", large="tall"),
            ["configuration changed: k (large) from wide to tall"],
        ),
        (launches(small="tall"), launches(small="tall", large="wide"), []),
        (launches(small="tall"), launches(other="wide"), ["configuration changed: k from tall to wide"]),
        (chosen("tall"), launches(small="tall", large="wide"), ["configuration changed: k (large) from tall to wide"]),
        (launches(small="tall", large="wide"), chosen("tall"), []),
    ],
)
def test_a_changed_choice_is_told_of_each_launch_that_both_sides_know(
    base: tuple[Choice, ...], head: tuple[Choice, ...], expected: list[str]
) -> None:
    assert list(changed_choices(base, head)) == expected


NOT_WIDE = "k has no configuration wide, and runs in tall"
NO_PIN = "k has no pin, and was tuned"


@pytest.mark.parametrize(
    ("pins", "base", "head", "expected"),
    [
        (chosen("wide"), chosen("wide", BOTH), chosen("wide"), []),
        (chosen("wide"), chosen("tall", BOTH), chosen("wide"), [f"base: {NOT_WIDE}"]),
        (chosen("wide"), chosen("tall"), chosen("tall"), [f"either side: {NOT_WIDE}"]),
        ((), chosen("tall", BOTH), chosen("wide", BOTH), [f"either side: {NO_PIN}"]),
        ((), chosen("tall"), chosen("tall"), []),  # its only candidate, which nobody timed
        (chosen("wide"), launches(small="wide", large="wide"), launches(small="wide"), []),
        (
            launches(small="wide"),
            launches(small="tall"),
            launches(small="wide"),
            ["base: k (small) has no configuration wide, and runs in tall"],
        ),
    ],
)
def test_what_does_not_run_in_its_pin_is_told_of(
    pins: tuple[Choice, ...], base: tuple[Choice, ...], head: tuple[Choice, ...], expected: list[str]
) -> None:
    assert list(off_pins(pins, base, head)) == [f"pinned to no effect on {text}" for text in expected]

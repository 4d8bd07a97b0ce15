from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pytest
from tests.compare.conftest import FakeSides, Gpu

from flopwatch.compare.matches import match_providers
from flopwatch.compare.numbers import check_contenders
from flopwatch.compare.result import ComparedCase, Contender, Kind
from flopwatch.gate.choices import UNSTABLE
from flopwatch.gate.numbers import SEEDS
from flopwatch.gate.sides import Arm

if TYPE_CHECKING:
    from flopwatch.measure.protocol import DeclaredCase


def with_itself(entry: DeclaredCase) -> ComparedCase:
    side = Contender(case=entry.case)
    return ComparedCase(base=side, head=side, flops=1.0, bytes_moved=1.0, ceiling_eps=8.0)


def commits(gpu: Gpu) -> tuple[ComparedCase, ...]:
    return check_contenders(FakeSides(gpu), [with_itself(entry) for entry in gpu.declared[::2]], Kind.COMMITS)


def providers(gpu: Gpu) -> tuple[ComparedCase, ...]:
    sides = FakeSides(gpu)
    cases = match_providers(gpu.declared, ("flopwatch", "torch"), "", sides.config)
    return check_contenders(sides, cases, Kind.PROVIDERS)


def errors(case: ComparedCase) -> list[float | None]:
    return [side.numbers.max_diff_eps if side.numbers else None for side in (case.base, case.head)]


def test_each_provider_is_held_against_the_reference_by_its_worst_seed(gpu: Gpu) -> None:
    gpu.errors_eps = {("Add", "torch"): 0.5}
    found = providers(gpu)
    worst = 0.01 * max(SEEDS)
    assert [errors(case) for case in found] == [
        [pytest.approx(0.5 + worst), pytest.approx(0.25 + worst)],
        [pytest.approx(0.25 + worst), pytest.approx(0.25 + worst)],
    ]
    assert [case.reason for case in found] == ["", ""]


@pytest.mark.parametrize(
    ("eps", "reason"),
    [(20.0, "torch is wrong: error 20 eps, ceiling 8"), (math.inf, "torch returns NaN or infinity")],
)
def test_a_peer_that_computes_something_else_is_not_compared(eps: float, reason: str, gpu: Gpu) -> None:
    gpu.errors_eps = {("Matmul", "torch"): eps}
    found = providers(gpu)
    assert [case.reason.replace("20.0", "20") for case in found] == ["", reason]


def test_what_fails_is_told_with_its_cause_and_not_run_again(gpu: Gpu) -> None:
    gpu.failing = {("Add", "base"): "no scale today\nmore", ("Add", "head"): "gone"}
    found = commits(gpu)
    assert found[0].reason == "base fails (ArithmeticError: no scale today); head fails (ArithmeticError: gone)"
    assert found[1].reason == ""
    assert {name for _, name, _ in gpu.ran} == {"Matmul[1024,flopwatch]"}


def test_each_side_is_checked_in_what_its_tuner_chose_and_a_change_is_noted(gpu: Gpu) -> None:
    gpu.choices = {("Add", "base"): ["tall"], ("Add", "head"): ["wide"]}
    gpu.slower = {("base", "wide"): 0.02, ("head", "tall"): 0.02}
    found = commits(gpu)
    assert {(arm, pins) for arm, name, pins in gpu.ran if "Add" in name} == {
        (Arm.BASE, ("tall",)),
        (Arm.HEAD, ("wide",)),
    }
    assert found[0].notes == ("configuration changed: k from tall to wide",)


def test_where_the_choices_are_a_tie_both_sides_run_bases(gpu: Gpu) -> None:
    gpu.choices = {("Add", "base"): ["tall"], ("Add", "head"): ["wide"]}
    found = commits(gpu)
    assert {pins for _, name, pins in gpu.ran if "Add" in name} == {("tall",)}
    assert found[0].notes == (UNSTABLE,)
    assert found[1].notes == ()


def test_the_choices_of_two_providers_have_nothing_to_agree_on(gpu: Gpu) -> None:
    gpu.choices = {("Add", "head"): ["wide", "tall"], ("Add", "torch"): ["tall"]}
    found = providers(gpu)
    assert [choice.config for choice in found[0].head.choices] == ["wide"]
    assert found[0].notes == ()

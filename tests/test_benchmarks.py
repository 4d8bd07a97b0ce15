from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pytest
import torch

from flopwatch.measure.numbers import check_numbers
from flopwatch.suite import discover

if TYPE_CHECKING:
    from flopwatch.model import Case
    from flopwatch.suite import Suite


@pytest.fixture(scope="module")
def suites(pytestconfig: pytest.Config) -> dict[str, type[Suite]]:
    """The suites as asv and the gate find them."""
    discovery = discover(pytestconfig.rootpath / "benchmarks")
    assert discovery.failures == {}
    return discovery.suites


def own_cases(suite: type[Suite]) -> list[Case]:
    return [case for case in suite.cases() if case.provider == suite.own_provider]


NAMES = ["Attention", "Matmul", "VectorAdd"]


def test_there_is_one_suite_a_kernel(suites: dict[str, type[Suite]]) -> None:
    assert sorted(suites) == NAMES


@pytest.mark.parametrize(("name", "count"), [("Attention", 7), ("Matmul", 11), ("VectorAdd", 3)])
def test_a_suite_has_few_cases_and_every_one_exists_once(suites: dict[str, type[Suite]], name: str, count: int) -> None:
    cases = own_cases(suites[name])

    assert len(cases) == count
    assert len({case.id for case in cases}) == count


@pytest.mark.parametrize(("name", "count"), [("Attention", 6), ("Matmul", 7), ("VectorAdd", 3)])
def test_torch_is_a_peer_where_it_can_compute_the_same(suites: dict[str, type[Suite]], name: str, count: int) -> None:
    assert len([case for case in suites[name].cases() if case.provider == "torch"]) == count


@pytest.mark.parametrize("name", NAMES)
def test_every_small_case_is_within_its_limit(suites: dict[str, type[Suite]], name: str, cuda: str) -> None:
    suite = suites[name]
    limit = suite.max_diff_eps
    assert cuda
    assert limit is not None

    distances = {case.id: check_numbers(suite(), case, seed=3) for case in map(suite.small_case, suite.cases())}

    assert {
        name: numbers
        for name, numbers in distances.items()
        if numbers.max_diff_eps is None or numbers.max_diff_eps > limit or not numbers.finite
    } == {}


@pytest.mark.parametrize("name", NAMES)
def test_a_kernel_that_does_nothing_is_outside_every_limit(
    suites: dict[str, type[Suite]], name: str, cuda: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    suite = suites[name]
    case = suite.small_case(own_cases(suite)[0])
    shape = suite().reference(*suite().inputs(*case.values[:-1], seed=0)).shape
    monkeypatch.setattr(suite, "run", lambda _self, *inputs: torch.empty(shape, device=cuda, dtype=inputs[0].dtype))

    assert check_numbers(suite(), case, seed=0).max_diff_eps is None


@pytest.mark.gpu
@pytest.mark.parametrize("name", NAMES)
def test_every_case_is_within_its_limit(suites: dict[str, type[Suite]], name: str) -> None:
    suite = suites[name]
    limit = suite.max_diff_eps or 0.0

    distances = {
        case.id: check_numbers(suite(), case, seed=5, tune_first=True).max_diff_eps for case in own_cases(suite)
    }

    assert {name: eps for name, eps in distances.items() if eps is None or eps > limit} == {}


@pytest.mark.parametrize("name", NAMES)
def test_inputs_depend_on_the_parameters_and_the_seed_alone(
    suites: dict[str, type[Suite]], name: str, cuda: str
) -> None:
    suite = suites[name]
    values = suite.small_case(own_cases(suite)[0]).values[:-1]
    first, again, other = (suite().inputs(*values, seed=seed)[0] for seed in (7, 7, 8))

    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert first.device.type == cuda


@pytest.mark.parametrize(
    ("name", "values", "flops", "bytes_moved"),
    [
        ("Matmul", ("16x4096x1024", "float16"), 134_217_728, 2 * (16 * 1024 + 1024 * 4096 + 16 * 4096)),
        ("Attention", ("4x8x1024x64", "full"), 8_589_934_592, 16_777_216),
        ("Attention", ("4x8x1024x64", "causal"), 4_294_967_296, 16_777_216),
        # Pairs of 256, 512, 768 and 1024 squared are 30/64 of four times 1024 squared; positions are 10/16.
        ("Attention", ("4x8x1024x64", "lengths"), 4_026_531_840, 12_058_624),
        ("VectorAdd", ("1048576", "float32"), 1_048_576, 12_582_912),
        ("VectorAdd", ("1048576", "float16"), 1_048_576, 6_291_456),
    ],
)
def test_work_is_counted_by_hand(
    suites: dict[str, type[Suite]], name: str, values: tuple[str, ...], flops: int, bytes_moved: int
) -> None:
    suite = suites[name]()

    assert math.isclose(suite.flops(*values), flops)
    assert math.isclose(suite.bytes_moved(*values), bytes_moved)

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pytest
import torch

from flopwatch.kernels.configs import HEAD_DIMS
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


#: How many cases each suite has of our own kernels, and of torch's.
COUNTS = {
    "Attention": (7, 6),
    "BFloat16Attention": (1, 0),
    "CrossAttention": (2, 0),
    "DecoderAttention": (6, 0),
    "EncoderAttention": (6, 0),
    "Float32Matmul": (3, 0),
    "GroupedAttention": (2, 0),
    "ImageAttention": (5, 0),
    "Linear": (8, 8),
    "Matmul": (11, 7),
    "MatmulFp8": (5, 5),
    "MatmulSizes": (11, 0),
    "PaddedAttention": (2, 0),
    "VectorAdd": (3, 3),
    "VectorAddSizes": (4, 0),
    "WeightGradient": (3, 0),
    "WideAttention": (3, 0),
}
NAMES = list(COUNTS)
#: Of an H200: dense float16 on the tensor cores, and its memory (NVIDIA's data sheet).
PEAK_FLOPS, PEAK_BANDWIDTH = 989e12, 4.8e12


def test_the_suites_are_these(suites: dict[str, type[Suite]]) -> None:
    assert sorted(suites) == NAMES


@pytest.mark.parametrize(("name", "counts"), COUNTS.items())
def test_a_suite_has_so_many_cases_and_every_one_exists_once(
    suites: dict[str, type[Suite]], name: str, counts: tuple[int, int]
) -> None:
    own, torch_s = (
        [case.id for case in suites[name].cases() if case.provider == provider] for provider in ("flopwatch", "torch")
    )

    assert (len(own), len(torch_s)) == counts
    assert len({*own, *torch_s}) == sum(counts)


def test_there_are_at_least_sixty_cases_to_judge() -> None:
    assert sum(own for own, _ in COUNTS.values()) >= 60


def test_a_gate_on_one_h200_takes_minutes(suites: dict[str, type[Suite]]) -> None:
    times_us = [
        1e6
        * max(suite().flops(*case.values[:-1]) / PEAK_FLOPS, suite().bytes_moved(*case.values[:-1]) / PEAK_BANDWIDTH)
        for suite in suites.values()
        for case in own_cases(suite)
    ]

    # Large kernels reach half of the roofline: no case beyond 2.5 ms, few beyond 500 us.
    assert max(times_us) < 1250
    assert sum(time > 250 for time in times_us) <= 10


def test_cases_share_few_small_ones(suites: dict[str, type[Suite]]) -> None:
    # A few hundredths of a second each, and one more for every suite would not be noticed.
    assert len({suite.small_case(case).id for suite in suites.values() for case in own_cases(suite)}) <= 24


def test_every_head_dimension_has_a_small_case(suites: dict[str, type[Suite]]) -> None:
    shapes = {suite.small["shape"] for name, suite in suites.items() if name.endswith("Attention")}

    assert {int(shape.rpartition("x")[2]) for shape in shapes} == set(HEAD_DIMS)


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
    done = suite().run(*suite().inputs(*case.values[:-1], seed=0))
    monkeypatch.setattr(suite, "run", lambda *_inputs: torch.empty(done.shape, device=cuda, dtype=done.dtype))

    assert check_numbers(suite(), case, seed=0).max_diff_eps is None


@pytest.mark.gpu
@pytest.mark.parametrize("name", NAMES)
def test_every_case_is_within_its_limit(suites: dict[str, type[Suite]], name: str) -> None:
    suite = suites[name]
    limit = suite.max_diff_eps or 0.0

    distances = {
        case.id: check_numbers(suite(), case, seed=5, tuned=lambda: None).max_diff_eps for case in own_cases(suite)
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
    ("name", "strides"),
    [
        ("Matmul", ((7, 1), (6, 1))),
        ("Linear", ((7, 1), (1, 7))),
        ("WeightGradient", ((1, 5), (6, 1))),
    ],
)
def test_the_operands_of_a_product_are_stored_as_its_suite_says(
    suites: dict[str, type[Suite]], name: str, strides: tuple[tuple[int, int], ...], cuda: str
) -> None:
    assert cuda
    a, b = suites[name]().inputs("5x6x7", "float16", seed=0)

    assert (tuple(a.shape), tuple(b.shape)) == ((5, 7), (7, 6))
    assert (a.stride(), b.stride()) == strides


@pytest.mark.parametrize(
    ("name", "values", "flops", "bytes_moved"),
    [
        ("Matmul", ("16x4096x1024", "float16"), 134_217_728, 2 * (16 * 1024 + 1024 * 4096 + 16 * 4096)),
        ("Linear", ("16x4096x1024", "bfloat16"), 134_217_728, 2 * (16 * 1024 + 1024 * 4096 + 16 * 4096)),
        ("Float32Matmul", ("16x4096x1024", "float32"), 134_217_728, 4 * (16 + 4096) * 1024 + 2 * 16 * 4096),
        ("MatmulFp8", ("16x4096x1024", "float8_e4m3fn", "tensor"), 134_217_728, (16 + 4096) * 1024 + 2 * 16 * 4096 + 8),
        ("MatmulFp8", ("16x4096x1024", "float8_e4m3fn", "row"), 134_217_728, (16 + 4096) * 1028 + 2 * 16 * 4096),
        ("Attention", ("4x8x1024x64", "full"), 8_589_934_592, 16_777_216),
        ("Attention", ("4x8x1024x64", "causal"), 4_294_967_296, 16_777_216),
        # Pairs of 256, 512, 768 and 1024 squared are 30/64 of four times 1024 squared; positions are 10/16.
        ("Attention", ("4x8x1024x64", "lengths"), 4_026_531_840, 12_058_624),
        # Sixteen heads of Q and O, one of K and V.
        ("GroupedAttention", ("4x16x1x1024x64", "causal"), 8_589_934_592, 2 * 4 * 1024 * 64 * (2 * 16 + 2)),
        # The first query sees 7169 keys, the last one all.
        ("CrossAttention", ("1x16x1024x8192x128", "causal"), 64_424_509_440, 2 * 16 * 128 * 2 * (1024 + 8192)),
        ("CrossAttention", ("2x10x4096x77x64", "full"), 1_614_807_040, 2 * 2 * 10 * 64 * 2 * (4096 + 77)),
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

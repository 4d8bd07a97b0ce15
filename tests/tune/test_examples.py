"""The example kernels: both ways to launch them give the same numbers, and what they choose fits an H200."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from flopwatch.measure.numbers import check_numbers
from flopwatch.suite import discover

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flopwatch.suite import Suite

FOLDER = Path(__file__).parents[2] / "examples" / "tuning"


@pytest.fixture(scope="module")
def suites() -> Iterator[dict[str, type[Suite]]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", list(sys.path))
        found = discover(FOLDER)
        assert not found.failures
        yield found.suites
        for name in [name for name in sys.modules if name.partition(".")[0] == "tuning"]:
            del sys.modules[name]


@pytest.mark.usefixtures("cuda")
@pytest.mark.parametrize("name", ["TunedAdd", "TunedMatmul"])
@pytest.mark.parametrize("provider", ["autotune", "heuristics"])
def test_either_way_to_launch_a_kernel_gives_the_references_numbers(
    suites: dict[str, type[Suite]], name: str, provider: str
) -> None:
    suite = suites[name]
    case = next(case for case in suite.cases() if case.provider == provider)
    numbers = check_numbers(suite(), suite.small_case(case), 0)
    assert numbers.finite
    assert numbers.max_diff_eps is not None
    assert suite.max_diff_eps is not None
    assert numbers.max_diff_eps <= suite.max_diff_eps


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ((16, 4096, 4096), (16, 64)),
        ((512, 512, 512), (64, 64)),
        ((4096, 4096, 128), (64, 64)),
        ((1024, 1024, 1024), (64, 64)),
        ((2048, 2048, 2048), (128, 128)),
        ((3072, 3072, 3072), (128, 256)),
        ((8192, 8192, 8192), (128, 256)),
        ((2048, 2304, 4096), (128, 256)),
    ],
)
def test_the_rule_chooses_by_shape_and_intensity(
    suites: dict[str, type[Suite]], shape: tuple[int, int, int], expected: tuple[int, int]
) -> None:
    rules = sys.modules["tuning.rules"]
    assert suites
    found = rules.matmul_rule(*shape)
    assert (found["BLOCK_M"], found["BLOCK_N"]) == expected


def test_the_rule_for_vectors_chooses_by_size(suites: dict[str, type[Suite]]) -> None:
    assert suites
    rule = sys.modules["tuning.rules"].add_rule
    assert [rule(n)["BLOCK"] for n in (4095, 4096, 65535, 65536, 262143, 262144)] == [128, 256, 256, 512, 512, 1024]

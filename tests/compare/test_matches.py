from __future__ import annotations

import pytest
from tests.compare.conftest import Gpu, declared

from flopwatch.compare.matches import match_providers, match_sides
from flopwatch.config import Config
from flopwatch.errors import UndecidedError
from flopwatch.measure.protocol import Hello

CONFIG = Config(packages=("toy",))
PROVIDERS = ("flopwatch", "torch")


def test_providers_are_matched_by_equal_parameters(gpu: Gpu) -> None:
    only_ours = declared("Norm")
    found = match_providers((only_ours, *reversed(gpu.declared)), PROVIDERS, "", CONFIG)

    assert [(case.head.case.id, case.base.case.id) for case in found] == [
        ("Matmul[1024,flopwatch]", "Matmul[1024,torch]"),
        ("Add[1024,flopwatch]", "Add[1024,torch]"),
    ]


def test_a_suite_of_the_same_parameters_is_another_one() -> None:
    with pytest.raises(UndecidedError, match="no case has both providers, flopwatch and torch"):
        match_providers((declared("Add"), declared("Matmul", "torch")), PROVIDERS, "", CONFIG)


def test_the_first_provider_is_head(gpu: Gpu) -> None:
    found = match_providers(gpu.declared, ("torch", "flopwatch"), "matmul", CONFIG)
    assert [(case.head.case.provider, case.base.case.provider) for case in found] == [("torch", "flopwatch")]


def test_what_no_suite_has_is_told_with_what_there_is(gpu: Gpu) -> None:
    with pytest.raises(UndecidedError) as caught:
        match_providers(gpu.declared, ("flopwatch", "cudnn"), "Add", CONFIG)
    assert caught.value.what == "no case with 'Add' in its name has both providers, flopwatch and cudnn"
    assert caught.value.why == "the suites' providers are flopwatch, torch"


def test_of_two_sides_the_kernels_under_test_are_matched(gpu: Gpu) -> None:
    hello = Hello(
        gpu=None, gpu_uuid=None, compute_capability=None, versions={}, declared=gpu.declared, import_failures={}
    )
    found = match_sides(hello, "", CONFIG)
    assert [(case.head.case, case.base.case) for case in found] == [(entry.case,) * 2 for entry in gpu.declared[::2]]


@pytest.mark.parametrize(("own", "expected"), [(None, 8.0), (0.5, 0.5)])
def test_the_ceiling_is_the_suites_own_or_the_repositorys(own: float | None, expected: float) -> None:
    entries = (declared("Add", ceiling=own), declared("Add", "torch", ceiling=own))
    assert match_providers(entries, PROVIDERS, "", CONFIG)[0].ceiling_eps == expected

from __future__ import annotations

from typing import ClassVar

import pytest
import torch

from flopwatch.measure.inputs import input_bytes
from flopwatch.measure.numbers import check_numbers, difference, fingerprint_result
from flopwatch.model import Case
from flopwatch.poison import PoisonedAllocations
from flopwatch.suite import Suite


def test_rounding_to_the_dtype_costs_at_most_half_an_epsilon() -> None:
    reference = torch.randn(10_000, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    for dtype in (torch.float16, torch.bfloat16, torch.float32):
        numbers = difference(reference.to(dtype), reference)
        assert numbers.max_diff_eps is not None
        assert 0 < numbers.max_diff_eps <= 0.5


def test_a_planted_error_is_measured_in_eps_of_the_largest_value() -> None:
    reference = torch.tensor([1.0, -4.0], dtype=torch.float64)
    result = torch.tensor([1.0 + 2**-8, -4.0], dtype=torch.float16)
    numbers = difference(result, reference)
    assert (numbers.max_diff, numbers.max_diff_eps) == (2**-8, 2**-8 / (2**-10 * 4.0))


def test_nan_where_the_reference_has_none_is_not_finite() -> None:
    numbers = difference(torch.tensor([1.0, float("nan")]), torch.ones(2, dtype=torch.float64))
    assert (numbers.finite, numbers.max_diff, numbers.max_diff_eps) == (False, None, None)


def test_equal_bits_have_equal_fingerprints_and_others_not() -> None:
    reference = torch.ones(3, dtype=torch.float64)
    one, two = torch.ones(3, dtype=torch.float16), torch.ones(3, dtype=torch.float16)
    two[1] += 2**-10
    assert difference(one, reference).bitwise == difference(one.clone(), reference).bitwise
    assert difference(one, reference).bitwise != difference(two, reference).bitwise


def test_an_empty_result_is_exact() -> None:
    assert difference(torch.empty(0, 4), torch.empty(0, 4, dtype=torch.float64)).max_diff == 0.0


def test_zeros_where_the_reference_is_zero_are_exact() -> None:
    assert difference(torch.zeros(3), torch.zeros(3, dtype=torch.float64)).max_diff_eps == 0.0


def test_a_wrong_shape_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"shape \(2,\), its reference \(3,\)"):
        difference(torch.ones(2), torch.ones(3, dtype=torch.float64))


def test_allocations_are_poisoned_inside_and_only_inside() -> None:
    with PoisonedAllocations():
        poisoned = [torch.empty(3), torch.empty_like(torch.ones(2)), torch.ones(2).new_empty(2)]
        integers = torch.empty(2, dtype=torch.int32)
        untouched = torch.zeros(2)
    assert all(bool(tensor.isnan().all()) for tensor in poisoned)
    assert integers.tolist() == [2**31 - 1] * 2
    assert untouched.tolist() == [0.0, 0.0]


def test_the_bytes_of_inputs_count_tensors_alone() -> None:
    assert input_bytes((torch.ones(3, 2, dtype=torch.float16), 3.0, None)) == 12


def test_a_planted_nan_is_not_hidden_by_one_that_belongs_there() -> None:
    reference = torch.tensor([1.0, 2.0, float("nan")], dtype=torch.float64)
    right, wrong = torch.tensor([1.0, 2.0, float("nan")]), torch.tensor([1.0, float("nan"), float("nan")])
    assert difference(right, reference).finite
    assert difference(right, reference).max_diff == 0.0
    assert not difference(wrong, reference).finite
    assert not difference(torch.tensor([1.0, 2.0, 3.0]), reference).finite


class Copy(Suite):
    """A copy that is wrong once the kernel was tuned."""

    params = (("right", "wrong"),)
    param_names = ("later",)
    small: ClassVar = {"later": "right"}
    max_diff_eps = 0.5
    tuned = 0

    def inputs(self, *values: str, seed: int) -> tuple[torch.Tensor, str]:
        return torch.full((5,), float(seed)), values[0]

    def run(self, x: torch.Tensor, later: str) -> torch.Tensor:
        out = torch.empty_like(x)
        return out.copy_(x + 1 if self.tuned and later == "wrong" else x)

    def reference(self, x: torch.Tensor, later: str) -> torch.Tensor:
        del later
        return x.double()

    def flops(self, *values: str) -> float:
        del values
        return 0.0

    def bytes_moved(self, *values: str) -> float:
        del values
        return 40.0

    def tune(self) -> None:
        self.tuned += 1


@pytest.mark.parametrize(("later", "max_diff"), [("right", 0.0), ("wrong", 1.0)])
def test_what_a_case_returns_once_it_is_tuned_is_compared_too(later: str, max_diff: float) -> None:
    suite, case = Copy(), Case(suite="Copy", values=(later, "flopwatch"))
    assert check_numbers(suite, case, 3).max_diff == 0.0

    assert check_numbers(suite, case, 3, tuned=suite.tune).max_diff == max_diff
    assert suite.tuned == 1


def test_the_fingerprint_is_of_what_a_case_returns_once_it_is_tuned_too() -> None:
    right, wrong = (
        fingerprint_result(suite := Copy(), Case(suite="Copy", values=(later, "flopwatch")), 3, tuned=suite.tune)
        for later in ("right", "wrong")
    )

    first, again = right.split("; ")
    assert first == again
    assert wrong.split("; ")[0] == first != wrong.split("; ")[1]


class Order(Copy):
    """A result of integers, which have no NaN."""

    def run(self, x: torch.Tensor, later: str) -> torch.Tensor:
        del later
        return x.argsort()


def test_integers_have_a_fingerprint() -> None:
    suite = Order()
    first, again = fingerprint_result(
        suite, Case(suite="Order", values=("right", "flopwatch")), 3, tuned=suite.tune
    ).split("; ")
    assert first == again
    assert first.startswith("int64 (5,) ")

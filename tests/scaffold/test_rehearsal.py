from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch

from flopwatch import Suite
from flopwatch.scaffold.rehearsal import rehearse

if TYPE_CHECKING:
    from collections.abc import Callable


def suite(run: Callable[..., Any], reference: Callable[..., Any], *, outputs: tuple[int, ...] = ()) -> Suite:
    """Make a suite of two functions, and rehearse it."""

    class Tried(Suite):
        def run(self, *inputs: Any) -> Any:  # noqa: ANN401 - as in Suite
            return run(*inputs)

        def reference(self, *inputs: Any) -> Any:  # noqa: ANN401 - as in Suite
            return reference(*inputs)

        def flops(self, *_values: str) -> float:
            return 0.0

        bytes_moved = flops

    rehearse([Tried], outputs)
    return Tried()


def test_the_same_inputs_are_run_once_and_others_again() -> None:
    calls = []

    def double(x: torch.Tensor) -> torch.Tensor:
        calls.append(float(x[0]))
        return x * 2

    tried = suite(double, torch.Tensor.double)
    for value in (1.0, 1.0, 2.0):
        assert tried.run(torch.full((3,), value)).tolist() == [2 * value] * 3
    assert calls == [1.0, 2.0]


def test_an_output_is_no_input() -> None:
    def copy(x: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        return out.copy_(x)

    tried = suite(copy, lambda x, _out: x.double(), outputs=(1,))
    inputs = torch.ones(2), torch.full((2,), float("nan"))
    assert tried.run(*inputs).tolist() == [1.0, 1.0]
    assert tried.reference(*inputs).tolist() == [1.0, 1.0]


@pytest.mark.parametrize(
    ("run", "why"),
    [
        (torch.Tensor.zero_, "it changes its arguments"),
        (lambda x: (x, x), "it returns no tensor"),
        (lambda x: x.argmax(), "it returns no tensor of floating-point numbers"),
    ],
)
def test_what_a_suite_cannot_be_made_of_is_refused(run: Callable[..., Any], why: str) -> None:
    with pytest.raises((RuntimeError, TypeError), match=why):
        suite(run, torch.Tensor.double).run(torch.ones(2))


@pytest.mark.parametrize("reference", [lambda x: x.double() @ torch.ones(7), lambda x: x.double().sum()])
def test_a_formula_for_other_shapes_is_far_off(reference: Callable[..., Any]) -> None:
    tried = suite(torch.clone, reference)
    tried.run(torch.ones(2))
    assert tried.reference(torch.ones(2)).isnan().all()

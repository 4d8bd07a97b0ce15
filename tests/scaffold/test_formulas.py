from __future__ import annotations

import pytest
import torch

from flopwatch.scaffold.arguments import Guess, TensorGuess
from flopwatch.scaffold.formulas import formulas_for

SHAPES = {"a": ("m", "k"), "b": ("k", "n"), "c": ("n",)}
SIZES = {"m": 3, "k": 4, "n": 5}


def guess(*tensors: str, numbers: dict[str, str] | None = None, defaults: tuple[float, ...] = ()) -> Guess:
    return Guess(
        arguments=tensors,
        tensors=tuple(TensorGuess(name=name, dimensions=SHAPES[name]) for name in tensors),
        numbers=numbers or {},
        defaults=defaults,
        sizes=("m", "k", "n"),
    )


@pytest.mark.parametrize("tensors", [("a",), ("a", "b"), ("a", "b", "c")])
def test_what_a_formula_says_is_written_is_what_it_makes(tensors: tuple[str, ...]) -> None:
    known = {name: torch.ones([SIZES[size] for size in SHAPES[name]]) for name in tensors}
    checked = 0
    for formula in formulas_for(guess(*tensors)):
        try:
            result = eval(formula.reference, {"torch": torch}, dict(known))  # noqa: S307 - our own formula
        except RuntimeError:
            continue  # shapes that this formula is not for
        assert result.dtype == torch.float64
        # Elementwise formulas broadcast shapes that a kernel of theirs does not take.
        if result.shape == known["a"].shape or "@" in formula.reference or len(tensors) == 1:
            assert result.numel() == eval(formula.written, {}, SIZES)  # noqa: S307 - likewise
            checked += 1
    assert checked


def test_a_matrix_product_counts_its_operations() -> None:
    (product,) = [
        formula for formula in formulas_for(guess("a", "b")) if formula.reference == "a.double() @ b.double()"
    ]
    assert (product.flops, product.written) == ("2 * m * k * n", "m * n")


def test_a_number_takes_part_where_there_is_one() -> None:
    found = [formula.reference for formula in formulas_for(guess("a", numbers={"factor": "0.5"}))]
    assert "a.double() * factor" in found
    assert all("factor" in reference for reference in found)


def test_an_epsilon_is_the_functions_own_default() -> None:
    norms = [
        formula.reference for formula in formulas_for(guess("a", defaults=(1e-3,))) if "rsqrt" in formula.reference
    ]
    assert norms == ["a.double() * torch.rsqrt((a.double() * a.double()).mean(-1, keepdim=True) + 0.001)"]

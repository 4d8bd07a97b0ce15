from __future__ import annotations

import pytest
from tests.scaffold.conftest import HEAD

from flopwatch.scaffold.arguments import CannotTell, Guess, guesses
from flopwatch.scaffold.kernels import find_launchers, read_module

KERNEL = f"""{HEAD}\
@triton.jit
def k(x, y, out, n, factor, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(out + at, (tl.load(x + at) + tl.load(y + at)) * factor, mask=at < n)


"""


def guess_all(function: str) -> list[Guess]:
    module = read_module("a.py", (KERNEL + function).encode())
    assert module is not None
    launcher = next(found for found in find_launchers([module]) if found.name == "f")
    return list(guesses(launcher, module, {kernel.name: kernel for kernel in module.kernels}))


def dimensions(guess: Guess) -> dict[str, tuple[str, ...]]:
    return {tensor.name: tensor.dimensions for tensor in guess.tensors}


def test_names_of_sizes_are_those_of_the_function() -> None:
    first = guess_all("def f(a, b):\n    M, K = a.shape\n    K, N = b.shape\n    k[(1,)](a, b)\n    return a\n")[0]
    assert dimensions(first) == {"a": ("m", "k"), "b": ("k", "n")}
    assert first.sizes == ("m", "k", "n")


@pytest.mark.parametrize(
    "line", ["assert a.shape[1] == b.shape[0]", "assert a.size(1) == b.size(0)", "M, K = a.shape[0], b.shape[0]"]
)
def test_sizes_that_must_be_equal_are_one(line: str) -> None:
    body = f"    {line}\n    K = a.shape[1]\n    N = b.shape[1]\n    a.stride(1)\n"
    first = guess_all(f"def f(a, b):\n{body}    k[(1,)](a, b)\n    return a\n")[0]
    assert dimensions(first)["a"][1] == dimensions(first)["b"][0]
    assert len(first.sizes) == 3


def test_a_shape_compared_as_a_whole_is_shared() -> None:
    first = guess_all(
        "def f(a, b):\n    M, N = a.shape\n    assert b.shape == a.shape\n    k[(1,)](a, b)\n    return a\n"
    )
    assert dimensions(first[0]) == {"a": ("m", "n"), "b": ("m", "n")}


def test_a_vector_beside_a_matrix_is_tried_as_its_row() -> None:
    found = guess_all("def f(a, w):\n    M, N = a.shape\n    k[(1,)](a, w)\n    return a\n")
    assert [dimensions(guess)["w"] for guess in found] == [("m", "n"), ("n",)]


def test_numbers_are_told_from_tensors_by_annotation_and_by_use() -> None:
    first = guess_all("def f(x, y, factor, by: int):\n    k[(1,)](x, y, x, 1, factor)\n    return x\n")[0]
    assert first.numbers == {"factor": "0.5", "by": "2"}
    assert [tensor.name for tensor in first.tensors] == ["x", "y"]


def test_what_has_a_default_is_left_out_and_an_epsilon_is_remembered() -> None:
    first = guess_all("def f(x, y, eps=1e-6, *, fast=True):\n    k[(1,)](x, y)\n    return x\n")[0]
    assert (first.arguments, first.defaults) == (("x", "y"), (1e-6,))


def test_an_output_is_what_is_only_written() -> None:
    first = guess_all("def f(x, y, out):\n    k[(1,)](x, y, out, x.numel(), 1.0)\n")[0]
    assert first.returns == "out"
    assert [tensor.name for tensor in first.inputs] == ["x", "y"]


def test_the_first_of_several_results_is_taken() -> None:
    assert guess_all("def f(x):\n    k[(1,)](x, x)\n    return x, None\n")[0].returns == "[0]"


def test_helpers_tell_of_what_they_are_handed() -> None:
    found = guess_all(
        "def g(p, q):\n    M, N = p.shape\n    k[(1,)](p, q)\n    return p\n\ndef f(a, b):\n    return g(b, a)\n"
    )
    assert dimensions(found[0])["b"] == ("m", "n")


@pytest.mark.parametrize(
    ("function", "why"),
    [
        ("def f(x, mode):\n    k[(1,)](x)\n    return x\n", "whether mode is a tensor or a number"),
        ("def f(n: int):\n    k[(1,)](torch.empty(n))\n    return n\n", "it takes no tensor"),
        ("def f(x, *, y):\n    k[(1,)](x, y)\n    return x\n", "given by name"),
        ("def f(x):\n    k[(1,)](x, x, x, 1, 1.0)\n", "it returns nothing"),
    ],
)
def test_what_cannot_be_told_is_said(function: str, why: str) -> None:
    with pytest.raises(CannotTell, match=why):
        guess_all(function)


def test_names_that_would_clash_are_changed() -> None:
    first = guess_all("def f(n):\n    N, dtype = n.shape\n    k[(1,)](n, n)\n    return n\n")[0]
    assert dimensions(first) == {"n": ("n_size", "dtype_size")}

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from triton.runtime.errors import InterpreterError

from flopwatch.kernels import vector_add
from flopwatch.kernels.reference import vector_add_reference
from flopwatch.kernels.vector_add import block_size_for, vector_add_debug
from flopwatch.measure.numbers import difference
from flopwatch.poison import PoisonedAllocations

if TYPE_CHECKING:
    from collections.abc import Callable

    Normal = Callable[..., torch.Tensor]

HAS_GPU = torch.cuda.is_available()
DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
SIZES = [1, 127, 128, 129, 1023, 1024, 65537, *[262144, 2**24 + 1] * HAS_GPU]


def error_eps(add: Callable[..., torch.Tensor], x: torch.Tensor, y: torch.Tensor) -> float:
    """Add into poisoned memory; an element that is never written gives an infinite error."""
    with PoisonedAllocations():
        out = add(x, y)
    assert out.dtype == x.dtype
    error = difference(out, vector_add_reference(x, y)).max_diff_eps
    return float("inf") if error is None else error


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("size", SIZES)
def test_a_sum_is_rounded_once(normal: Normal, size: int, dtype: torch.dtype) -> None:
    assert error_eps(vector_add, normal(size, dtype=dtype), normal(size, dtype=dtype)) <= 0.5


VIEWS: dict[str, Callable[[Normal], tuple[torch.Tensor, torch.Tensor]]] = {
    "transposed": lambda normal: (normal(30, 50).T, normal(50, 30)),
    "every other": lambda normal: (normal(300)[::2], normal(150)),
    "expanded": lambda normal: (normal(1, 50).expand(30, 50), normal(30, 50)),
    "no dimension": lambda normal: (normal(1)[0], normal(1)[0]),
}


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("add", [vector_add, vector_add_debug])
def test_strides_do_not_matter(normal: Normal, add: Callable[..., torch.Tensor], view: str) -> None:
    assert error_eps(add, *VIEWS[view](normal)) <= 0.5


@pytest.mark.parametrize("add", [vector_add, vector_add_debug])
@pytest.mark.parametrize("shape", [(0,), (3, 0)], ids=str)
def test_nothing_gives_nothing(normal: Normal, shape: tuple[int, ...], add: Callable[..., torch.Tensor]) -> None:
    assert add(normal(*shape), normal(*shape)).shape == shape


@pytest.mark.gpu
def test_more_than_2_to_the_31_elements_are_added(normal: Normal) -> None:
    x = normal(1).expand(2**31 + 5)

    out = vector_add(x, x)

    assert torch.equal(out[-5:], 2 * x[-5:])


@pytest.mark.parametrize(
    ("n_elements", "block_size"),
    [(0, 128), (1023, 128), (1024, 256), (65535, 256), (65536, 512), (262143, 512), (262144, 1024), (2**31, 1024)],
)
def test_larger_tensors_get_larger_blocks(n_elements: int, block_size: int) -> None:
    assert block_size_for(n_elements) == block_size


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_the_debug_variant_adds_the_same(normal: Normal, dtype: torch.dtype) -> None:
    x, y = normal(300, dtype=dtype), normal(300, dtype=dtype)

    assert torch.equal(vector_add_debug(x, y), vector_add(x, y))


def test_the_debug_variant_prints_its_block_size_while_compiling(
    normal: Normal, capsys: pytest.CaptureFixture[str]
) -> None:
    x = normal(301, dtype=torch.float64)  # a dtype of its own, lest a compiled kernel be at hand

    vector_add_debug(x, x)

    assert HAS_GPU or "vector_add_debug: BLOCK_SIZE = 128\n" in capsys.readouterr().out


@pytest.mark.skipif(HAS_GPU, reason="a GPU prints past Python's streams")
def test_program_1_alone_prints_its_first_offset(normal: Normal, capsys: pytest.CaptureFixture[str]) -> None:
    x = normal(300)

    vector_add_debug(x, x)

    lines = [line for line in capsys.readouterr().out.splitlines() if "first offset of program" in line]
    assert lines == ["(1, 0, 0)  first offset of program 1:  [128]"]


@pytest.mark.skipif(HAS_GPU, reason="a failing assertion ends the CUDA context of the whole test run")
@pytest.mark.parametrize("add", [vector_add, vector_add_debug])
def test_the_debug_variant_alone_refuses_a_sum_that_is_not_a_number(
    normal: Normal, add: Callable[..., torch.Tensor]
) -> None:
    x = normal(300)
    x[299] = float("nan")

    if add is vector_add:
        assert bool(add(x, x)[299].isnan())
    else:
        with pytest.raises(InterpreterError, match="a sum is not a number"):
            add(x, x)


def test_the_check_notices_one_wrong_element(normal: Normal) -> None:
    x = normal(300)
    out = vector_add(x, x)
    out[299] += 0.1

    error = difference(out, vector_add_reference(x, x)).max_diff_eps

    assert error is not None
    assert error > 0.5


@pytest.mark.parametrize("add", [vector_add, vector_add_debug])
def test_shapes_that_differ_are_refused(normal: Normal, add: Callable[..., torch.Tensor]) -> None:
    with pytest.raises(ValueError, match=r"shapes of x and y must match, got \(3,\) and \(1,\)"):
        add(normal(3), normal(1))


@pytest.mark.parametrize("add", [vector_add, vector_add_debug])
def test_a_tensor_on_the_host_is_refused(normal: Normal, add: Callable[..., torch.Tensor]) -> None:
    with pytest.raises(ValueError, match="y must be a CUDA tensor, got one on cpu"):
        add(normal(3), normal(3).cpu())


@pytest.mark.parametrize("add", [vector_add, vector_add_debug])
def test_an_unsupported_dtype_is_refused(normal: Normal, add: Callable[..., torch.Tensor]) -> None:
    x = normal(3).int()

    with pytest.raises(TypeError, match=r"unsupported dtype torch\.int32\n.*float16, torch\.bfloat16"):
        add(x, x)


@pytest.mark.parametrize("add", [vector_add, vector_add_debug])
def test_dtypes_that_differ_are_refused(normal: Normal, add: Callable[..., torch.Tensor]) -> None:
    with pytest.raises(TypeError, match="dtypes of x and y must match"):
        add(normal(3), normal(3).float())

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest
import torch

from flopwatch.kernels.operands import check_dtypes, check_factors, check_on_one_gpu

if TYPE_CHECKING:
    from collections.abc import Callable


def tensor(device: str = "cuda:0", dtype: torch.dtype = torch.float16) -> torch.Tensor:
    """What the checks look at of a tensor on that device."""
    where = torch.device(device)
    return cast("torch.Tensor", SimpleNamespace(device=where, is_cuda=where.type == "cuda", dtype=dtype))


def refused(check: Callable[[], None]) -> str:
    with pytest.raises((ValueError, TypeError)) as caught:
        check()
    return str(caught.value)


def test_tensors_of_one_gpu_and_dtype_pass() -> None:
    check_on_one_gpu(x=tensor("cuda:1"), y=tensor("cuda:1"))
    check_dtypes([torch.float16], x=tensor(), y=tensor())


@pytest.mark.parametrize(
    "check",
    [
        lambda: check_on_one_gpu(x=tensor(), y=tensor("cpu")),
        lambda: check_on_one_gpu(x=tensor(), y=tensor("cuda:1")),
        lambda: check_dtypes([torch.float16], x=tensor(dtype=torch.int8)),
        lambda: check_dtypes([torch.float16, torch.float32], x=tensor(), y=tensor(dtype=torch.float32)),
        lambda: check_factors(torch.zeros(2, 3), torch.zeros(3)),
        lambda: check_factors(torch.zeros(2, 3), torch.zeros(2, 3)),
    ],
)
def test_a_refusal_says_what_why_and_what_to_do(check: Callable[[], None]) -> None:
    _what, why, todo = refused(check).splitlines()

    assert why.startswith("  why: ")
    assert todo.startswith("  do:  ")


def test_the_tensor_that_is_not_on_a_gpu_is_named() -> None:
    assert refused(lambda: check_on_one_gpu(x=tensor(), y=tensor("cpu"))).startswith("y must be a CUDA tensor")


def test_every_device_is_named_where_they_differ() -> None:
    message = refused(lambda: check_on_one_gpu(q=tensor(), k=tensor("cuda:1"), v=tensor()))

    assert message.startswith("q, k and v must be on the same device, got cuda:0, cuda:1, cuda:0\n")


def test_the_supported_dtypes_are_named() -> None:
    message = refused(lambda: check_dtypes([torch.float16, torch.float32], x=tensor(dtype=torch.int8)))

    assert message.startswith("x has the unsupported dtype torch.int8\n  why: the kernel takes torch.float16, torch.fl")


def test_every_dtype_is_named_where_they_differ() -> None:
    message = refused(lambda: check_dtypes([torch.float16, torch.float32], x=tensor(), y=tensor(dtype=torch.float32)))

    assert message.startswith("the dtypes of x and y must match, got torch.float16, torch.float32\n")

# mypy: disable-error-code="no-untyped-def,untyped-decorator"
# ruff: noqa: ANN001, ANN202, N803, PLR0917 - a kernel's arguments are Triton's own types, checked by its compiler

from __future__ import annotations

import os

import pytest
import torch
import triton
import triton.language as tl
from triton.runtime.errors import InterpreterError

pytestmark = pytest.mark.skipif(
    os.environ.get("TRITON_INTERPRET") != "1", reason="kernels are not interpreted where there is a GPU"
)


@triton.jit
def _copy(x, out, shift, n, MASKED: tl.constexpr, SIZE: tl.constexpr):
    i = tl.arange(0, SIZE)
    a = tl.load(x + i + shift)
    if MASKED:
        a = tl.where(i + shift < n, a, 0)
    tl.store(out + i, a)


@triton.jit
def _store(x, shift, SIZE: tl.constexpr):
    i = tl.arange(0, SIZE)
    tl.store(x + i + shift, i.to(x.dtype.element_ty))


@triton.jit
def _add(x, shift, SIZE: tl.constexpr):
    tl.atomic_add(x + shift + tl.arange(0, SIZE), 1.0)


@triton.jit
def _through_table(table, out, SIZE: tl.constexpr):
    i = tl.arange(0, SIZE)
    x = tl.load(table).to(tl.pointer_type(tl.float32))
    tl.store(out + i, tl.load(x + i))


def copied(cuda: str, shift: int, *, masked: bool = False, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    x = torch.ones(16, device=cuda, dtype=dtype)
    out = torch.zeros_like(x)
    _copy[(1,)](x, out, shift, 16, MASKED=masked, SIZE=16)
    return out


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
@pytest.mark.parametrize(("shift", "strays"), [(0, slice(0, 0)), (3, slice(13, 16)), (-2, slice(0, 2))])
def test_what_is_read_outside_the_arguments_is_nan(cuda: str, dtype: torch.dtype, shift: int, strays: slice) -> None:
    expected = torch.ones(16, dtype=torch.bool)
    expected[strays] = False
    out = copied(cuda, shift, dtype=dtype)
    assert torch.equal(out.isnan().cpu(), ~expected)
    assert bool((out.cpu()[expected] == 1).all())


def test_an_integer_that_is_read_outside_is_the_largest(cuda: str) -> None:
    assert copied(cuda, 3, dtype=torch.int32)[13:].tolist() == [2**31 - 1] * 3


def test_a_stray_value_that_is_masked_away_does_no_harm(cuda: str) -> None:
    assert copied(cuda, 3, masked=True).tolist() == [1.0] * 13 + [0.0] * 3


def test_a_view_may_reach_all_of_its_allocation(cuda: str) -> None:
    x = torch.arange(32.0, device=cuda)
    out = torch.zeros(16, device=cuda)
    _copy[(1,)](x[8:16], out, 0, 16, MASKED=False, SIZE=16)
    assert torch.equal(out, x[8:24])


@pytest.mark.parametrize("shift", [1, -1])
def test_a_write_outside_the_arguments_ends_the_kernel(cuda: str, shift: int) -> None:
    x = torch.zeros(16, device=cuda)
    with pytest.raises(InterpreterError, match="writes 1 elements of fp32 outside"):
        _store[(1,)](x, shift, SIZE=16)
    with pytest.raises(InterpreterError, match="outside"):
        _add[(1,)](x, shift, SIZE=16)


def test_a_pointer_from_a_table_may_lead_anywhere(cuda: str) -> None:
    x, out = torch.arange(16.0, device=cuda), torch.zeros(16, device=cuda)
    _through_table[(1,)](torch.tensor([x.data_ptr()], device=cuda), out, SIZE=16)
    assert torch.equal(out, x)

"""Small kernels that show whether the interpreter computes what the device does.

Import this only where ``TRITON_INTERPRET=1`` was set before Triton was imported.
"""

# mypy: disable-error-code="no-untyped-def,untyped-decorator"
# ruff: noqa: ANN001, ANN202, N803 - a kernel's arguments are Triton's own types, checked by its compiler

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl
from triton.runtime.errors import InterpreterError

if TYPE_CHECKING:
    from collections.abc import Callable

_SIZE = 16


@triton.jit
def _arithmetic(x, y, out, SIZE: tl.constexpr):
    i = tl.arange(0, SIZE)
    a, b = tl.load(x + i), tl.load(y + i)
    tl.store(out + i, tl.where(a < b, tl.maximum(a * b, a - b), a / b + 1.5))


@triton.jit
def _fma(x, y, out, SIZE: tl.constexpr):
    i = tl.arange(0, SIZE)
    a, b = tl.load(x + i), tl.load(y + i)
    tl.store(out + i, tl.fma(a, b, a))


@triton.jit
def _dot(x, y, out, SIZE: tl.constexpr):
    i = tl.arange(0, SIZE)
    square = i[:, None] * SIZE + i[None, :]
    tl.store(out + square, tl.dot(tl.load(x + square), tl.load(y + square)))


@triton.jit
def _cast(x, out, SIZE: tl.constexpr):
    i = tl.arange(0, SIZE)
    tl.store(out + i, tl.load(x + i).to(out.dtype.element_ty))


@triton.jit
def _reduce(x, out, SIZE: tl.constexpr):
    a = tl.load(x + tl.arange(0, SIZE))
    tl.store(out, tl.sum(a))
    tl.store(out + 1, tl.max(a))
    tl.store(out + 2, tl.min(a))
    tl.store(out + 3 + tl.arange(0, SIZE), tl.cumsum(a, 0))


@triton.jit
def _scale(x, factor, out, SIZE: tl.constexpr):
    i = tl.arange(0, SIZE)
    tl.store(out + i, tl.load(x + i) * factor.to(tl.float32))


@triton.jit
def _refuse(x):
    tl.device_assert(tl.load(x) > 0, "refused")


@triton.jit
def _loop(n, out):
    total = 0
    for i in range(tl.cdiv(n, 2)):
        total += i
    tl.store(out, total)


def _numbers(*shape: int, scale: float = 1.0) -> torch.Tensor:
    """Return bfloat16 numbers of both signs; the same every time, and without touching any generator."""
    count = torch.Size(shape).numel()
    return ((torch.arange(count, dtype=torch.float32) * 37 % 101 - 50) * scale / 8).reshape(shape).bfloat16()


def _arithmetic_is_right() -> bool:
    x, y = _numbers(_SIZE), _numbers(_SIZE).flip(0)
    out = torch.zeros_like(x)
    _arithmetic[(1,)](x, y, out, SIZE=_SIZE)
    return torch.equal(out, torch.where(x < y, torch.maximum(x * y, x - y), x / y + 1.5))


def _fma_is_right() -> bool:
    x, y = _numbers(_SIZE), _numbers(_SIZE).flip(0)
    out = torch.zeros_like(x)
    _fma[(1,)](x, y, out, SIZE=_SIZE)
    return torch.equal(out, (x.double() * y.double() + x.double()).bfloat16())


def _dot_is_right() -> bool:
    x, y = _numbers(_SIZE, _SIZE), _numbers(_SIZE, _SIZE).T.contiguous()
    out = torch.zeros(_SIZE, _SIZE)
    _dot[(1,)](x, y, out, SIZE=_SIZE)
    return torch.equal(out, x.float() @ y.float())  # every sum is exact in float32


def _casts_are_right() -> bool:
    # Between two bfloat16 numbers at every eighth of the way, of both signs, and what overflows.
    fine = torch.cat(
        (1 + torch.arange(-15, 16) / 1024, -3 - torch.arange(0, 30) / 512, torch.tensor([3.4e38, -3.4e38, 0.0]))
    )
    wide = torch.arange(64, dtype=torch.int32) * 5 - 150
    pairs = [
        (fine, torch.bfloat16),
        (fine[:-3].half(), torch.bfloat16),
        (_numbers(64), torch.float32),
        (_numbers(64), torch.float16),
        (_numbers(64), torch.int32),
        (wide, torch.bfloat16),
    ]
    return all(_cast_is_right(source, dtype) for source, dtype in pairs)


def _cast_is_right(source: torch.Tensor, dtype: torch.dtype) -> bool:
    padded = torch.zeros(64, dtype=source.dtype)
    padded[: source.numel()] = source
    out = torch.zeros(64, dtype=dtype)
    _cast[(1,)](padded, out, SIZE=64)
    return torch.equal(out, padded.to(dtype))


def _reductions_are_right() -> bool:
    x = _numbers(_SIZE)
    out = torch.zeros(3 + _SIZE, dtype=torch.bfloat16)
    _reduce[(1,)](x, out, SIZE=_SIZE)
    wide = x.float()
    expected = torch.cat((torch.stack((wide.sum(), wide.max(), wide.min())), wide.cumsum(0)))
    return torch.equal(out, expected.bfloat16())


def _float_argument_is_right() -> bool:
    x, out = torch.arange(_SIZE, dtype=torch.float32), torch.zeros(_SIZE)
    _scale[(1,)](x, 0.1, out, SIZE=_SIZE)
    return torch.equal(out, x * torch.tensor(0.1))


def _device_assert_is_checked() -> bool:
    _refuse[(1,)](torch.ones(1))
    with contextlib.suppress(InterpreterError, AssertionError):
        _refuse[(1,)](-torch.ones(1))
        return False
    return True


def _loop_over_tensor_is_right() -> bool:
    out = torch.zeros(1, dtype=torch.int32)
    _loop[(1,)](7, out)
    return out.tolist() == [6]


PROBES: dict[str, Callable[[], bool]] = {
    "bfloat16 arithmetic": _arithmetic_is_right,
    "bfloat16 fma": _fma_is_right,
    "bfloat16 dot": _dot_is_right,
    "bfloat16 casts": _casts_are_right,
    "bfloat16 reductions": _reductions_are_right,
    "float argument": _float_argument_is_right,
    "device_assert": _device_assert_is_checked,
    "loop to a computed bound": _loop_over_tensor_is_right,
}

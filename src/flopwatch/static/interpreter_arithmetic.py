"""Small kernels that show which element by element arithmetic the interpreter does as the device does.

Import this only where ``TRITON_INTERPRET=1`` was set before Triton was imported.
"""

# mypy: disable-error-code="no-untyped-def,untyped-decorator,arg-type"
# ruff: noqa: ANN001, ANN202, N803 - a kernel's arguments are Triton's own types, checked by its compiler

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import triton
import triton.language as tl

if TYPE_CHECKING:
    from collections.abc import Callable

#: Elements of what the kernels read.
SIZE = 16
#: What torch rounds as a device does: to the nearest, ties to even. Larger numbers than these saturate on a device.
_FP8 = {torch.float8_e5m2: 57344.0, torch.float8_e4m3fn: 448.0}


@triton.jit
def _integers(x, y, out, SIZE: tl.constexpr):
    i = tl.arange(0, SIZE)
    a, b = tl.load(x + i), tl.load(y + i)
    tl.store(out + i, a // b)
    tl.store(out + SIZE + i, a % b)
    tl.store(out + 2 * SIZE + i, a >> 1)
    tl.store(out + 3 * SIZE + i, a * 123456789)


@triton.jit
def _umulhi(x, y, out, SIZE: tl.constexpr):
    i = tl.arange(0, SIZE)
    tl.store(out + i, tl.umulhi(tl.load(x + i), tl.load(y + i)))


@triton.jit
def _masks(x, out, SIZE: tl.constexpr):
    i = tl.arange(0, SIZE)
    positive = tl.load(x + i) > 0
    tl.store(out + i, (positive + positive).to(tl.int32))


@triton.jit
def _philox(out):
    key = tl.full((1,), 0, tl.uint64)
    zero = tl.full((1,), 0, tl.uint32)
    a, b, c, d = tl.philox(key, zero, zero, zero, zero)
    i = tl.arange(0, 1)
    tl.store(out + i, a)
    tl.store(out + 1 + i, b)
    tl.store(out + 2 + i, c)
    tl.store(out + 3 + i, d)


@triton.jit
def _fma(x, y, z, out, SIZE: tl.constexpr):
    i = tl.arange(0, SIZE)
    tl.store(out + i, tl.fma(tl.load(x + i), tl.load(y + i), tl.load(z + i)))


@triton.jit
def _nan(x, y, out, SIZE: tl.constexpr):
    i = tl.arange(0, SIZE)
    a, b = tl.load(x + i), tl.load(y + i)
    tl.store(out + i, tl.maximum(a, b))
    tl.store(out + SIZE + i, tl.minimum(a, b))
    tl.store(out + 2 * SIZE + i, tl.clamp(a, -1.0, 1.0))


@triton.jit
def _cast(x, out, SIZE: tl.constexpr):
    i = tl.arange(0, SIZE)
    tl.store(out + i, tl.load(x + i).to(out.dtype.element_ty))


def numbers(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Return numbers of both signs, none zero; the same every time, and without touching any generator."""
    count = torch.Size(shape).numel()
    return ((torch.arange(count, dtype=torch.float32) * 37 % 101 - 50.5) / 8).reshape(shape).to(dtype)


def copies(kernel: Any, change: Callable[[torch.Tensor], torch.Tensor], dtype: torch.dtype = torch.float32) -> bool:  # noqa: ANN401 - untyped triton
    """Tell whether a kernel of one input makes of it what torch does."""
    x = numbers(SIZE, dtype=dtype)
    expected = change(x)
    out = torch.zeros_like(expected)
    kernel[(1,)](x, out, SIZE=SIZE)
    return torch.equal(out, expected)


def same(x: torch.Tensor) -> torch.Tensor:
    """Return what was given: what a copy makes of its input."""
    return x


def _integers_are_right() -> bool:
    x = torch.arange(SIZE, dtype=torch.int32) * 1234567 - 9876543
    y = torch.tensor([3, -7], dtype=torch.int32).repeat(SIZE // 2)
    out = torch.zeros(4 * SIZE, dtype=torch.int32)
    _integers[(1,)](x, y, out, SIZE=SIZE)
    wrapped = (x.long() * 123456789 + 2**31) % 2**32 - 2**31
    expected = (torch.div(x, y, rounding_mode="trunc"), torch.fmod(x, y), x >> 1, wrapped.int())
    return torch.equal(out, torch.cat(expected))


def _umulhi_is_right() -> bool:
    x, y = torch.arange(-8, 8, dtype=torch.int32) * 123456789, torch.arange(SIZE, dtype=torch.int32) * 98765432
    out = torch.zeros_like(x)
    _umulhi[(1,)](x, y, out, SIZE=SIZE)
    high = [(a % 2**32) * (b % 2**32) >> 32 for a, b in zip(x.tolist(), y.tolist(), strict=True)]
    return [value % 2**32 for value in out.tolist()] == high


def _philox_is_right() -> bool:
    out = torch.zeros(4, dtype=torch.int32)
    _philox[(1,)](out)
    # Random123's known answer for philox4x32-10 with counter and key 0.
    return [value % 2**32 for value in out.tolist()] == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]


def _fma_is_right() -> bool:
    x = 1 + numbers(SIZE) * 2.0**-12
    z = -(x * x)
    out = torch.zeros_like(x)
    _fma[(1,)](x, x, z, out, SIZE=SIZE)
    return torch.equal(out, (x.double() * x.double() + z.double()).float())


def _nans_are_right() -> bool:
    x, y = numbers(SIZE), numbers(SIZE).flip(0)
    x[3] = y[5] = float("nan")
    out = torch.zeros(3 * SIZE)
    _nan[(1,)](x, y, out, SIZE=SIZE)
    expected = torch.cat(
        (torch.fmax(x, y), torch.fmin(x, y), torch.fmin(torch.fmax(x, torch.tensor(-1.0)), torch.tensor(1.0)))
    )
    return torch.equal(out, expected)


def _fp8_widening_is_right() -> bool:
    return all(
        _widening_is_right(dtype, wide) for dtype in _FP8 for wide in (torch.float16, torch.float32, torch.bfloat16)
    )


def _widening_is_right(dtype: torch.dtype, wide: torch.dtype) -> bool:
    x = torch.arange(256, dtype=torch.int32).to(torch.uint8).view(dtype)
    out = torch.zeros(256, dtype=wide)
    _cast[(1,)](x, out, SIZE=256)
    return torch.equal(out.nan_to_num(nan=12345.0), x.to(wide).nan_to_num(nan=12345.0)) and torch.equal(
        out.isinf(), x.to(wide).isinf()
    )


def _fp8_rounding_is_right() -> bool:
    return all(
        _rounding_is_right(dtype, wide) for dtype in _FP8 for wide in (torch.float32, torch.float16, torch.bfloat16)
    )


def _rounding_is_right(dtype: torch.dtype, wide: torch.dtype) -> bool:
    """Tell whether all fp8 numbers, what is halfway between them and what is beyond them are rounded as on a device."""
    known = torch.arange(127, dtype=torch.int32).to(torch.uint8).view(dtype).float()
    known = known[known.isfinite()].sort().values
    halfway = (known[1:] + known[:-1]) / 2
    x = torch.cat((known, halfway, halfway * 1.01, halfway * 0.99))
    x = torch.cat((x, -x, torch.tensor([_FP8[dtype] * 1.1, -_FP8[dtype] * 1.1]))).to(wide)
    padded = torch.zeros(1024, dtype=wide)
    padded[: x.numel()] = x
    out = torch.zeros(1024, dtype=dtype)
    _cast[(1,)](padded, out, SIZE=1024)
    return torch.equal(out.float(), padded.float().clamp(-_FP8[dtype], _FP8[dtype]).to(dtype).float())


#: Whether each is right, by the name of the feature.
PROBES: dict[str, Callable[[], bool]] = {
    "integer arithmetic": _integers_are_right,
    "arithmetic of masks": lambda: copies(_masks, lambda x: torch.zeros_like(x, dtype=torch.int32)),
    "umulhi of signed integers": _umulhi_is_right,
    "random numbers": _philox_is_right,
    "fma": _fma_is_right,
    "maximum, minimum, clamp of NaN": _nans_are_right,
    "float8 to wider": _fp8_widening_is_right,
    "wider to float8": _fp8_rounding_is_right,
}

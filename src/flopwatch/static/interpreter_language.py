"""Small kernels that show which parts of Triton's language the interpreter runs as the device does.

Import this only where ``TRITON_INTERPRET=1`` was set before Triton was imported.
"""

# mypy: disable-error-code="no-untyped-def,untyped-decorator,arg-type"
# ruff: noqa: ANN001, ANN202, N803 - a kernel's arguments are Triton's own types, checked by its compiler

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import triton
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.language.extra import libdevice
from triton.tools.tensor_descriptor import TensorDescriptor

if TYPE_CHECKING:
    from collections.abc import Callable

_SIZE = 16
#: What torch rounds as a device does: to the nearest, ties to even. Larger numbers than these saturate on a device.
_FP8 = {torch.float8_e5m2: 57344.0, torch.float8_e4m3fn: 448.0}


@triton.jit
def _libdevice(x, out, SIZE: tl.constexpr):
    i = tl.arange(0, SIZE)
    a = tl.load(x + i)
    tl.store(out + i, libdevice.rsqrt(a) + libdevice.tanh(a) * libdevice.erf(a))


@triton.jit
def _inline_asm(x, out, SIZE: tl.constexpr):
    i = tl.arange(0, SIZE)
    y = tl.inline_asm_elementwise("mov.b32 $0, $1;", "=r,r", [tl.load(x + i)], dtype=tl.float32, is_pure=True, pack=1)
    tl.store(out + i, y)


@triton.jit
def _plus_one(x):
    return x + 1


@triton.jit
def _map(x, out, SIZE: tl.constexpr):
    i = tl.arange(0, SIZE)
    tl.store(out + i, tl.map_elementwise(_plus_one, tl.load(x + i)))


@triton.jit
def _dot(x, y, out, SIZE: tl.constexpr):
    i = tl.arange(0, SIZE)
    square = i[:, None] * SIZE + i[None, :]
    product = tl.dot(tl.load(x + square), tl.load(y + square))
    tl.store(out + square, product)


@triton.jit
def _batched_dot(x, out, SIZE: tl.constexpr):
    i = tl.arange(0, SIZE)
    cube = tl.arange(0, 2)[:, None, None] * SIZE * SIZE + i[None, :, None] * SIZE + i[None, None, :]
    a = tl.load(x + cube)
    tl.store(out + cube, tl.dot(a, a))


@triton.jit
def _dot_scaled(x, scale, out, SIZE: tl.constexpr):
    i, k = tl.arange(0, SIZE), tl.arange(0, 32)
    a = tl.load(x + i[:, None] * 32 + k[None, :])
    b = tl.load(x + i[None, :] * 32 + k[:, None])
    scales = tl.load(scale + i[:, None])
    product = tl.dot_scaled(a, scales, "e4m3", b, scales, "e4m3")
    tl.store(out + i[:, None] * SIZE + i[None, :], product)


@triton.jit
def _flip(x, out, SIZE: tl.constexpr):
    i = tl.arange(0, SIZE)
    tl.store(out + i, tl.flip(tl.load(x + i), 0))


@triton.jit
def _sort(x, out, SIZE: tl.constexpr):
    i = tl.arange(0, SIZE)
    tl.store(out + i, tl.sort(tl.load(x + i)))


@triton.jit
def _histogram(x, out, SIZE: tl.constexpr):
    i = tl.arange(0, SIZE)
    tl.store(out + i, tl.histogram(tl.load(x + i), SIZE))


@triton.jit
def _gather(x, index, out, SIZE: tl.constexpr):
    i = tl.arange(0, SIZE)
    tl.store(out + i, tl.gather(tl.load(x + i), tl.load(index + i), 0))


@triton.jit
def _rearrange(x, y, out, SIZE: tl.constexpr):
    i = tl.arange(0, SIZE)
    a, b = tl.load(x + i), tl.load(y + i)
    left, right = tl.split(tl.join(a, b))
    tl.store(out + tl.arange(0, 2 * SIZE), tl.interleave(left * 2, right))
    square = tl.trans(tl.reshape(tl.join(a, b), (4, SIZE // 2))).to(out.dtype.element_ty)
    tl.store(out + 2 * SIZE + tl.arange(0, SIZE // 2)[:, None] * 4 + tl.arange(0, 4)[None, :], square)


@triton.jit
def _combine(a, b):
    return a * 2 + b


@triton.jit
def _reduce(x, out, SIZE: tl.constexpr):
    a = tl.load(x + tl.arange(0, SIZE))
    value, index = tl.max(a, 0, return_indices=True)
    tl.store(out, value)
    tl.store(out + 1, index)
    tl.store(out + 2, tl.argmin(a, 0))
    tl.store(out + 3, tl.reduce(a, 0, _combine))


@triton.jit
def _scan(x, out, SIZE: tl.constexpr):
    i = tl.arange(0, SIZE)
    a = tl.load(x + i)
    tl.store(out + i, tl.cumsum(a, 0, reverse=True))
    tl.store(out + SIZE + i, tl.associative_scan(a, 0, _combine))


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


@triton.jit
def _atomics(x, out, SIZE: tl.constexpr):
    i = tl.arange(0, SIZE)
    a = tl.load(x + i)
    tl.atomic_add(out + i % 2, a)


@triton.jit
def _atomic_max(x, out, SIZE: tl.constexpr):
    i = tl.arange(0, SIZE)
    a = tl.load(x + i)
    tl.atomic_max(out + i % 2, a)
    tl.atomic_min(out + 2 + i % 2, a)


@triton.jit
def _descriptor(x, out, SIZE: tl.constexpr):
    source = tl.make_tensor_descriptor(x, [SIZE - 3, SIZE], [SIZE, 1], [SIZE, SIZE])
    target = tl.make_tensor_descriptor(out, [SIZE, SIZE], [SIZE, 1], [SIZE, SIZE])
    target.store([0, 0], source.load([0, 0]))


@triton.jit
def _host_descriptor(source, target):
    target.store([0, 0], source.load([0, 0]))


@triton.jit
def _descriptor_add(x, out, SIZE: tl.constexpr):
    source = tl.make_tensor_descriptor(x, [SIZE, SIZE], [SIZE, 1], [SIZE, SIZE])
    target = tl.make_tensor_descriptor(out, [SIZE, SIZE], [SIZE, 1], [SIZE, SIZE])
    target.atomic_add([0, 0], source.load([0, 0]))


@triton.jit
def _descriptor_gather(x, out, SIZE: tl.constexpr):
    i = tl.arange(0, SIZE)
    source = tl.make_tensor_descriptor(x, [SIZE, SIZE], [SIZE, 1], [1, SIZE])
    rows = source.gather(SIZE - 1 - i, 0)
    tl.store(out + i[:, None] * SIZE + i[None, :], rows)


@triton.jit
def _padding(x, out, SIZE: tl.constexpr):
    source = tl.make_tensor_descriptor(x, [SIZE - 3, SIZE], [SIZE, 1], [SIZE, SIZE], padding_option="nan")
    target = tl.make_tensor_descriptor(out, [SIZE, SIZE], [SIZE, 1], [SIZE, SIZE])
    target.store([0, 0], source.load([0, 0]))


@gluon.jit
def _gluon(x, out, SIZE: gl.constexpr):
    layout: gl.constexpr = gl.BlockedLayout([1], [32], [1], [0])
    i = gl.arange(0, SIZE, layout=layout)
    gl.store(out + i, gl.load(x + i))


def _numbers(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Return numbers of both signs, none zero; the same every time, and without touching any generator."""
    count = torch.Size(shape).numel()
    return ((torch.arange(count, dtype=torch.float32) * 37 % 101 - 50.5) / 8).reshape(shape).to(dtype)


def _copies(kernel: Any, change: Callable[[torch.Tensor], torch.Tensor], dtype: torch.dtype = torch.float32) -> bool:  # noqa: ANN401 - untyped triton
    """Tell whether a kernel of one input makes of it what torch does."""
    x = _numbers(_SIZE, dtype=dtype)
    expected = change(x)
    out = torch.zeros_like(expected)
    kernel[(1,)](x, out, SIZE=_SIZE)
    return torch.equal(out, expected)


def _libdevice_is_right() -> bool:
    x = _numbers(_SIZE).abs()
    out = torch.zeros_like(x)
    _libdevice[(1,)](x, out, SIZE=_SIZE)
    wide = x.double()
    return torch.allclose(out.double(), wide.rsqrt() + wide.tanh() * wide.erf(), rtol=1e-6, atol=0)


def _dot_is_right(dtype: torch.dtype, result: torch.dtype) -> bool:
    x = (torch.arange(_SIZE * _SIZE) * 37 % 13 - 6).reshape(_SIZE, _SIZE)
    y = x.T.contiguous()
    out = torch.zeros(_SIZE, _SIZE, dtype=result)
    _dot[(1,)](x.to(dtype), y.to(dtype), out, SIZE=_SIZE)
    return torch.equal(out.long(), x @ y)


def _batched_dot_is_right() -> bool:
    x = (torch.arange(2 * _SIZE * _SIZE) * 37 % 13 - 6).reshape(2, _SIZE, _SIZE).float()
    out = torch.zeros_like(x)
    _batched_dot[(1,)](x, out, SIZE=_SIZE)
    return torch.equal(out, x @ x)


def _dot_scaled_is_right() -> bool:
    x = (torch.arange(_SIZE * 32) * 37 % 13 - 6).reshape(_SIZE, 32).float()
    scale = (torch.arange(_SIZE) % 3 + 126).to(torch.uint8)
    out = torch.zeros(_SIZE, _SIZE)
    _dot_scaled[(1,)](x.to(torch.float8_e4m3fn), scale, out, SIZE=_SIZE)
    scaled = x * torch.exp2(scale.float() - 127)[:, None]
    return torch.equal(out, scaled @ scaled.T)


def _histogram_is_right() -> bool:
    x = (torch.arange(_SIZE, dtype=torch.int32) * 5 % 7).int()
    out = torch.zeros(_SIZE, dtype=torch.int32)
    _histogram[(1,)](x, out, SIZE=_SIZE)
    return torch.equal(out, torch.bincount(x, minlength=_SIZE).int())


def _gather_is_right() -> bool:
    x, index = _numbers(_SIZE), (torch.arange(_SIZE, dtype=torch.int32) * 5 % _SIZE).int()
    out = torch.zeros_like(x)
    _gather[(1,)](x, index, out, SIZE=_SIZE)
    return torch.equal(out, x[index.long()])


def _rearranging_is_right() -> bool:
    x, y = _numbers(_SIZE), _numbers(_SIZE).flip(0)
    out = torch.zeros(4 * _SIZE)
    _rearrange[(1,)](x, y, out, SIZE=_SIZE)
    joined = torch.stack((x, y), -1)
    turned = joined.reshape(4, _SIZE // 2).T
    return torch.equal(out, torch.cat((torch.stack((x * 2, y), -1).flatten(), turned.flatten())))


def _folded(x: torch.Tensor) -> torch.Tensor:
    """Return x0, 2 x0 + x1, 2 (2 x0 + x1) + x2, ..."""
    steps = [x[0]]
    for value in x[1:]:
        steps.append(steps[-1] * 2 + value)
    return torch.stack(steps)


def _reductions_are_right() -> bool:
    # Small integers: the order in which an operation that is not associative is folded is the interpreter's own.
    x = (torch.arange(_SIZE) * 5 % 7).float()
    out = torch.zeros(4)
    _reduce[(1,)](x, out, SIZE=_SIZE)
    expected = torch.tensor([6.0, float(x.argmax()), float(x.argmin()), float(_folded(x)[-1])])
    return torch.equal(out, expected)


def _scans_are_right() -> bool:
    x = (torch.arange(_SIZE) * 5 % 7).float()
    out = torch.zeros(2 * _SIZE)
    _scan[(1,)](x, out, SIZE=_SIZE)
    return torch.equal(out, torch.cat((x.flip(0).cumsum(0).flip(0), _folded(x))))


def _integers_are_right() -> bool:
    x = torch.arange(_SIZE, dtype=torch.int32) * 1234567 - 9876543
    y = torch.tensor([3, -7], dtype=torch.int32).repeat(_SIZE // 2)
    out = torch.zeros(4 * _SIZE, dtype=torch.int32)
    _integers[(1,)](x, y, out, SIZE=_SIZE)
    wrapped = (x.long() * 123456789 + 2**31) % 2**32 - 2**31
    expected = (torch.div(x, y, rounding_mode="trunc"), torch.fmod(x, y), x >> 1, wrapped.int())
    return torch.equal(out, torch.cat(expected))


def _umulhi_is_right() -> bool:
    x, y = torch.arange(-8, 8, dtype=torch.int32) * 123456789, torch.arange(_SIZE, dtype=torch.int32) * 98765432
    out = torch.zeros_like(x)
    _umulhi[(1,)](x, y, out, SIZE=_SIZE)
    high = [(a % 2**32) * (b % 2**32) >> 32 for a, b in zip(x.tolist(), y.tolist(), strict=True)]
    return [value % 2**32 for value in out.tolist()] == high


def _philox_is_right() -> bool:
    out = torch.zeros(4, dtype=torch.int32)
    _philox[(1,)](out)
    # Random123's known answer for philox4x32-10 with counter and key 0.
    return [value % 2**32 for value in out.tolist()] == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]


def _fma_is_right() -> bool:
    x = 1 + _numbers(_SIZE) * 2.0**-12
    z = -(x * x)
    out = torch.zeros_like(x)
    _fma[(1,)](x, x, z, out, SIZE=_SIZE)
    return torch.equal(out, (x.double() * x.double() + z.double()).float())


def _nans_are_right() -> bool:
    x, y = _numbers(_SIZE), _numbers(_SIZE).flip(0)
    x[3] = y[5] = float("nan")
    out = torch.zeros(3 * _SIZE)
    _nan[(1,)](x, y, out, SIZE=_SIZE)
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


def _atomics_are_right(dtype: torch.dtype) -> bool:
    x, out = torch.arange(_SIZE).to(dtype), torch.ones(2, dtype=dtype)
    _atomics[(1,)](x, out, SIZE=_SIZE)
    return out.tolist() == [57, 65]


def _float_atomics_are_right() -> bool:
    x, out = _numbers(_SIZE), torch.zeros(4)
    _atomic_max[(1,)](x, out, SIZE=_SIZE)
    return torch.equal(out, torch.stack((x[::2].max(), x[1::2].max(), x[::2].min(), x[1::2].min())))


def _descriptors_are_right() -> bool:
    x = _numbers(_SIZE, _SIZE)
    out, copy = torch.ones_like(x), torch.zeros_like(x)
    _descriptor[(1,)](x, out, SIZE=_SIZE)
    block = [_SIZE, _SIZE]
    _host_descriptor[(1,)](TensorDescriptor.from_tensor(x, block), TensorDescriptor.from_tensor(copy, block))
    cut = x.clone()
    cut[-3:] = 0
    return torch.equal(out, cut) and torch.equal(copy, x)


def _descriptor_adding_is_right() -> bool:
    x = _numbers(_SIZE, _SIZE)
    out = torch.ones_like(x)
    _descriptor_add[(1,)](x, out, SIZE=_SIZE)
    return torch.equal(out, x + 1)


def _descriptor_gathering_is_right() -> bool:
    x = _numbers(_SIZE, _SIZE)
    out = torch.zeros_like(x)
    _descriptor_gather[(1,)](x, out, SIZE=_SIZE)
    return torch.equal(out, x.flip(0))


def _padding_is_right() -> bool:
    for dtype in (torch.float32, torch.bfloat16):
        x = _numbers(_SIZE, _SIZE, dtype=dtype)
        out = torch.zeros_like(x)
        _padding[(1,)](x, out, SIZE=_SIZE)
        if not (out[-3:].isnan().all() and torch.equal(out[:-3], x[:-3])):
            return False
    return True


def _same(x: torch.Tensor) -> torch.Tensor:
    return x


PROBES: dict[str, Callable[[], bool]] = {
    "libdevice": _libdevice_is_right,
    "inline_asm": lambda: _copies(_inline_asm, _same),
    "map_elementwise": lambda: _copies(_map, lambda x: x + 1),
    "Gluon": lambda: _copies(_gluon, _same),
    "dot of float16": lambda: _dot_is_right(torch.float16, torch.float32),
    "dot of float32": lambda: _dot_is_right(torch.float32, torch.float32),
    "dot of int8": lambda: _dot_is_right(torch.int8, torch.int32),
    "dot of float8": lambda: (
        _dot_is_right(torch.float8_e4m3fn, torch.float32) and _dot_is_right(torch.float8_e5m2, torch.float32)
    ),
    "dot of batches": _batched_dot_is_right,
    "dot_scaled": _dot_scaled_is_right,
    "flip": lambda: _copies(_flip, lambda x: x.flip(0)),
    "sort": lambda: _copies(_sort, lambda x: x.sort().values),
    "sort of bfloat16": lambda: _copies(_sort, lambda x: x.sort().values, torch.bfloat16),
    "histogram": _histogram_is_right,
    "gather": _gather_is_right,
    "join, split, interleave, reshape, trans": _rearranging_is_right,
    "reductions, argmax": _reductions_are_right,
    "scans": _scans_are_right,
    "integer arithmetic": _integers_are_right,
    "arithmetic of masks": lambda: _copies(_masks, lambda x: torch.zeros_like(x, dtype=torch.int32)),
    "umulhi of signed integers": _umulhi_is_right,
    "random numbers": _philox_is_right,
    "fma": _fma_is_right,
    "maximum, minimum, clamp of NaN": _nans_are_right,
    "float8 to wider": _fp8_widening_is_right,
    "wider to float8": _fp8_rounding_is_right,
    "atomic_add of float32": lambda: _atomics_are_right(torch.float32),
    "atomic_add of float16": lambda: _atomics_are_right(torch.float16),
    "atomic_add of bfloat16": lambda: _atomics_are_right(torch.bfloat16),
    "atomic_add of int64": lambda: _atomics_are_right(torch.int64),
    "atomic_max, atomic_min of float32": _float_atomics_are_right,
    "tensor descriptors": _descriptors_are_right,
    "descriptor.atomic_add": _descriptor_adding_is_right,
    "descriptor.gather": _descriptor_gathering_is_right,
    "padding with NaN": _padding_is_right,
}

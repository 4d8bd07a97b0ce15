"""Small kernels that show which parts of Triton's language the interpreter runs as the device does.

Import this only where ``TRITON_INTERPRET=1`` was set before Triton was imported.
"""

# mypy: disable-error-code="no-untyped-def,untyped-decorator,arg-type"
# ruff: noqa: ANN001, ANN202, N803 - a kernel's arguments are Triton's own types, checked by its compiler

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.language.extra import libdevice
from triton.tools.tensor_descriptor import TensorDescriptor

from flopwatch.static.interpreter_arithmetic import PROBES as ARITHMETIC_PROBES
from flopwatch.static.interpreter_arithmetic import SIZE, copies, numbers, same

if TYPE_CHECKING:
    from collections.abc import Callable


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


def _libdevice_is_right() -> bool:
    x = numbers(SIZE).abs()
    out = torch.zeros_like(x)
    _libdevice[(1,)](x, out, SIZE=SIZE)
    wide = x.double()
    return torch.allclose(out.double(), wide.rsqrt() + wide.tanh() * wide.erf(), rtol=1e-6, atol=0)


def _dot_is_right(dtype: torch.dtype, result: torch.dtype) -> bool:
    x = (torch.arange(SIZE * SIZE) * 37 % 13 - 6).reshape(SIZE, SIZE)
    y = x.T.contiguous()
    out = torch.zeros(SIZE, SIZE, dtype=result)
    _dot[(1,)](x.to(dtype), y.to(dtype), out, SIZE=SIZE)
    return torch.equal(out.long(), x @ y)


def _batched_dot_is_right() -> bool:
    x = (torch.arange(2 * SIZE * SIZE) * 37 % 13 - 6).reshape(2, SIZE, SIZE).float()
    out = torch.zeros_like(x)
    _batched_dot[(1,)](x, out, SIZE=SIZE)
    return torch.equal(out, x @ x)


def _dot_scaled_is_right() -> bool:
    x = (torch.arange(SIZE * 32) * 37 % 13 - 6).reshape(SIZE, 32).float()
    scale = (torch.arange(SIZE) % 3 + 126).to(torch.uint8)
    out = torch.zeros(SIZE, SIZE)
    _dot_scaled[(1,)](x.to(torch.float8_e4m3fn), scale, out, SIZE=SIZE)
    scaled = x * torch.exp2(scale.float() - 127)[:, None]
    return torch.equal(out, scaled @ scaled.T)


def _histogram_is_right() -> bool:
    x = (torch.arange(SIZE, dtype=torch.int32) * 5 % 7).int()
    out = torch.zeros(SIZE, dtype=torch.int32)
    _histogram[(1,)](x, out, SIZE=SIZE)
    return torch.equal(out, torch.bincount(x, minlength=SIZE).int())


def _gather_is_right() -> bool:
    x, index = numbers(SIZE), (torch.arange(SIZE, dtype=torch.int32) * 5 % SIZE).int()
    out = torch.zeros_like(x)
    _gather[(1,)](x, index, out, SIZE=SIZE)
    return torch.equal(out, x[index.long()])


def _rearranging_is_right() -> bool:
    x, y = numbers(SIZE), numbers(SIZE).flip(0)
    out = torch.zeros(4 * SIZE)
    _rearrange[(1,)](x, y, out, SIZE=SIZE)
    joined = torch.stack((x, y), -1)
    turned = joined.reshape(4, SIZE // 2).T
    return torch.equal(out, torch.cat((torch.stack((x * 2, y), -1).flatten(), turned.flatten())))


def _folded(x: torch.Tensor) -> torch.Tensor:
    """Return x0, 2 x0 + x1, 2 (2 x0 + x1) + x2, ..."""
    steps = [x[0]]
    for value in x[1:]:
        steps.append(steps[-1] * 2 + value)
    return torch.stack(steps)


def _reductions_are_right() -> bool:
    # Small integers: the order in which an operation that is not associative is folded is the interpreter's own.
    x = (torch.arange(SIZE) * 5 % 7).float()
    out = torch.zeros(4)
    _reduce[(1,)](x, out, SIZE=SIZE)
    expected = torch.tensor([6.0, float(x.argmax()), float(x.argmin()), float(_folded(x)[-1])])
    return torch.equal(out, expected)


def _scans_are_right() -> bool:
    x = (torch.arange(SIZE) * 5 % 7).float()
    out = torch.zeros(2 * SIZE)
    _scan[(1,)](x, out, SIZE=SIZE)
    return torch.equal(out, torch.cat((x.flip(0).cumsum(0).flip(0), _folded(x))))


def _atomics_are_right(dtype: torch.dtype) -> bool:
    x, out = torch.arange(SIZE).to(dtype), torch.ones(2, dtype=dtype)
    _atomics[(1,)](x, out, SIZE=SIZE)
    return out.tolist() == [57, 65]


def _float_atomics_are_right() -> bool:
    x, out = numbers(SIZE), torch.zeros(4)
    _atomic_max[(1,)](x, out, SIZE=SIZE)
    return torch.equal(out, torch.stack((x[::2].max(), x[1::2].max(), x[::2].min(), x[1::2].min())))


def _descriptors_are_right() -> bool:
    x = numbers(SIZE, SIZE)
    out, copy = torch.ones_like(x), torch.zeros_like(x)
    _descriptor[(1,)](x, out, SIZE=SIZE)
    block = [SIZE, SIZE]
    _host_descriptor[(1,)](TensorDescriptor.from_tensor(x, block), TensorDescriptor.from_tensor(copy, block))
    cut = x.clone()
    cut[-3:] = 0
    return torch.equal(out, cut) and torch.equal(copy, x)


def _descriptor_adding_is_right() -> bool:
    x = numbers(SIZE, SIZE)
    out = torch.ones_like(x)
    _descriptor_add[(1,)](x, out, SIZE=SIZE)
    return torch.equal(out, x + 1)


def _descriptor_gathering_is_right() -> bool:
    x = numbers(SIZE, SIZE)
    out = torch.zeros_like(x)
    _descriptor_gather[(1,)](x, out, SIZE=SIZE)
    return torch.equal(out, x.flip(0))


def _padding_is_right() -> bool:
    for dtype in (torch.float32, torch.bfloat16):
        x = numbers(SIZE, SIZE, dtype=dtype)
        out = torch.zeros_like(x)
        _padding[(1,)](x, out, SIZE=SIZE)
        if not (out[-3:].isnan().all() and torch.equal(out[:-3], x[:-3])):
            return False
    return True


PROBES: dict[str, Callable[[], bool]] = {
    "libdevice": _libdevice_is_right,
    "inline_asm": lambda: copies(_inline_asm, same),
    "map_elementwise": lambda: copies(_map, lambda x: x + 1),
    "Gluon": lambda: copies(_gluon, same),
    "dot of float16": lambda: _dot_is_right(torch.float16, torch.float32),
    "dot of float32": lambda: _dot_is_right(torch.float32, torch.float32),
    "dot of int8": lambda: _dot_is_right(torch.int8, torch.int32),
    "dot of float8": lambda: (
        _dot_is_right(torch.float8_e4m3fn, torch.float32) and _dot_is_right(torch.float8_e5m2, torch.float32)
    ),
    "dot of batches": _batched_dot_is_right,
    "dot_scaled": _dot_scaled_is_right,
    "flip": lambda: copies(_flip, lambda x: x.flip(0)),
    "sort": lambda: copies(_sort, lambda x: x.sort().values),
    "sort of bfloat16": lambda: copies(_sort, lambda x: x.sort().values, torch.bfloat16),
    "histogram": _histogram_is_right,
    "gather": _gather_is_right,
    "join, split, interleave, reshape, trans": _rearranging_is_right,
    "reductions, argmax": _reductions_are_right,
    "scans": _scans_are_right,
    **ARITHMETIC_PROBES,
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

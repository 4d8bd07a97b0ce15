"""What is wrong with each kernel stands in its docstring; the line at fault ends with the word FAULT."""

# mypy: disable-error-code="no-untyped-def,untyped-decorator"
# ruff: noqa: ANN001, ANN201, N803 - a kernel's arguments are Triton's own types, checked by its compiler

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def sound_kernel(x, out, n, BLOCK: tl.constexpr):
    """Compute out = 2 x: nothing is wrong."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, 2 * tl.load(x + i, mask=i < n), mask=i < n)


@triton.jit
def load_kernel(x, out, n, BLOCK: tl.constexpr):
    """Compute out = 2 x, read from one element further on: the last one lies behind the tensor."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    a = tl.load(x + i + 1, mask=i < n)  # FAULT
    tl.store(out + i, 2 * a, mask=i < n)


@triton.jit
def neighbour_kernel(x, y, out, n, BLOCK: tl.constexpr):  # noqa: ARG001 - it is there to be strayed into
    """Compute out = 2 x, read from one element further on: the last one is the first of y."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    a = tl.load(x + i + 1, mask=i < n)  # FAULT
    tl.store(out + i, 2 * a, mask=i < n)


@triton.jit
def store_kernel(x, out, n, BLOCK: tl.constexpr):
    """Compute out = 2 x, stored one element further on: the last one lies behind the tensor."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    a = 2 * tl.load(x + i, mask=i < n)
    tl.store(out + i + 1, a, mask=i < n)  # FAULT


@triton.jit
def mask_kernel(x, out, n, BLOCK: tl.constexpr):
    """Compute out = 2 x, without a mask where it reads: what the last block reads too much is not stored."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    a = tl.load(x + i)  # FAULT
    tl.store(out + i, 2 * a, mask=i < n)


@triton.jit
def gather_kernel(x, index, out, n, BLOCK: tl.constexpr):
    """Compute out = 2 x[index], where one index is as large as x."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    at = tl.load(index + i, mask=i < n)
    a = tl.load(x + at, mask=i < n)  # FAULT
    tl.store(out + i, 2 * a, mask=i < n)


@triton.jit
def rows_kernel(x, out, stride, BLOCK: tl.constexpr):
    """Compute out[r] = sum of x[r], of which it reads whole strides: x is a view, with others' columns beside it."""
    row = tl.program_id(0)
    column = tl.arange(0, BLOCK)
    a = tl.load(x + row * stride + column, mask=column < stride, other=0.0)  # FAULT
    tl.store(out + row, tl.sum(a, axis=0))


@triton.jit
def accumulate_kernel(x, out, n, BLOCK: tl.constexpr):
    """Compute out += 2 x, where nobody has written out before."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    a = tl.load(out + i, mask=i < n)  # FAULT
    tl.store(out + i, a + 2 * tl.load(x + i, mask=i < n), mask=i < n)


@triton.jit
def race_kernel(x, out, n, BLOCK: tl.constexpr):
    """Compute out[0] = sum of 2 x, in which each program stores its own part to the same place."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    a = tl.load(x + i, mask=i < n, other=0.0)
    tl.store(out, tl.sum(2 * a, axis=0))  # FAULT


@triton.jit
def shift_kernel(x, n, BLOCK: tl.constexpr):
    """Compute x[i] = 2 x[i + 1] in place: a program reads what its neighbour writes."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    a = tl.load(x + i + 1, mask=i + 1 < n, other=0.0)
    tl.store(x + i, 2 * a, mask=i < n)  # FAULT

"""What is wrong with each kernel stands in its docstring; the line at fault ends with the word FAULT.

A function that begins with an underscore is a part of the kernel below it. Triton itself puts barriers between what
touches the same shared memory: for a fault there the last two kernels are in Gluon, and in part in assembly.
"""

# mypy: disable-error-code="no-untyped-def,untyped-decorator"
# ruff: noqa: ANN001, ANN201, ANN202, N803 - a kernel's arguments are Triton's own types, checked by its compiler

from __future__ import annotations

import triton
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

#: Waits for the other threads of the program, where $1 is not zero; $0 is then $2.
_WAIT_IF = tl.constexpr("{ .reg .pred p; setp.ne.b32 p, $1, 0; @p bar.sync 0; mov.b32 $0, $2; }")
#: A thread has one element.
_THREADS = gl.constexpr(gl.BlockedLayout([1], [32], [4], [0]))


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


@gluon.jit
def _hand(x, buffer, n):
    """Put a block of x into shared memory."""
    i = gl.program_id(0) * buffer.shape[0] + gl.arange(0, buffer.shape[0], layout=_THREADS)
    buffer.store(gl.load(x + i, mask=i < n).to(gl.float64))  # FAULT


@gluon.jit
def _take(out, buffer, n):
    """Double what lies in shared memory, whether it has been put there or not."""
    i = gl.program_id(0) * buffer.shape[0] + gl.arange(0, buffer.shape[0], layout=_THREADS)
    a = buffer.load(_THREADS)  # FAULT
    gl.store(out + i, 2 * a, mask=i < n)


@gluon.jit
def handover_kernel(x, out, n, BLOCK: gl.constexpr):
    """Compute out = 2 x, which four warps load and four others store; nothing tells these when it has come."""
    # Of 64 bits: elements of 32 the compiler moves by stmatrix and ldmatrix (sm_90, triton 3.7.1, 2026-11-23), and of
    # a control the tool must not be in doubt to see the instructions.
    buffer = gl.allocate_shared_memory(gl.float64, [BLOCK], gl.SwizzledSharedLayout(1, 1, 1, [0]))
    gl.warp_specialize([(_hand, (x, buffer, n)), (_take, (out, buffer, n))], [4], [40])


@triton.jit
def barrier_kernel(x, out, n, BLOCK: tl.constexpr):
    """Compute out = 2 x, where threads that have an element wait for all others; these end without having waited."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    a = tl.load(x + i, mask=i < n)
    inside = (i < n).to(tl.int32)
    a = tl.inline_asm_elementwise(_WAIT_IF, "=f,r,f", [inside, a], tl.float32, is_pure=False, pack=1)  # FAULT
    tl.store(out + i, 2 * a, mask=i < n)

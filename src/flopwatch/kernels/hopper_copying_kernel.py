"""Matrix multiplication for Hopper of operands that tensor maps cannot describe: it copies them in the same launch.

Programs take pieces of what is to be copied, one after the other, wait until all are there, and go on as
`hopper_matmul_kernel`. What a program waits for is being copied by programs that run: nobody waits for one that has not
begun, so that it does not matter how many of them run at once.

Triton's interpreter does not run Gluon: what is tested without a GPU is what the compiler makes of this.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators
# Triton types what is compiled, and ships no types itself.

from __future__ import annotations

import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from flopwatch.kernels.hopper_matmul_kernel import hopper_matmul_kernel
from flopwatch.kernels.hopper_rows import row_layout

#: Counters of a launch, zero between launches: pieces that are taken, those that are copied, programs that go on.
COUNTERS = 3


@gluon.jit
def _order_for_loads():
    """Have what the tensor memory accelerator loads come after what was stored: it is another way to memory."""
    gl.inline_asm_elementwise("fence.proxy.async; // dummy $0", "=r", [], dtype=gl.int32, is_pure=False, pack=1)


@gluon.jit
def _places(piece, across, ROWS: gl.constexpr, COLUMNS: gl.constexpr, LAYOUT: gl.constexpr):
    """Return the rows and the columns of a piece's elements, 64-bit; `across` pieces are beside each other."""
    first_row = (piece // across).to(gl.int64) * ROWS
    first_column = (piece % across).to(gl.int64) * COLUMNS
    row = first_row + gl.arange(0, ROWS, layout=gl.SliceLayout(1, LAYOUT))
    column = first_column + gl.arange(0, COLUMNS, layout=gl.SliceLayout(0, LAYOUT))
    return row[:, None], column[None, :]


@gluon.jit
def _pitch(columns):
    """Return the elements of a row of a copy: whole lines of memory, as of `flopwatch.kernels.scratch`."""
    LINE: gl.constexpr = 64
    return gl.cdiv(columns, LINE) * LINE


@gluon.jit
def _copy(  # noqa: PLR0917 - a kernel's arguments
    piece,
    first,
    taken_ptr,
    matrix_ptr,
    copy_ptr,
    rows,
    columns,
    row_stride,
    column_stride,
    WIDTH: gl.constexpr,
    DOWN: gl.constexpr,
):
    """Copy pieces of a matrix, of which `first` is the number of the first one.

    Return the first piece taken that is none of its; how many were copied; and the number of the piece after its last.
    """
    # Constants are named here: at those of a module Triton's dispatch looks in each launch, and none goes past it.
    # A piece of this size is the fastest of five (H100, 2026-11-26; decision 13).
    ROWS: gl.constexpr = 64
    COLUMNS: gl.constexpr = 256
    LOADS: gl.constexpr = gl.BlockedLayout([1, 1], [32, 1], [1, 4], [0, 1]) if DOWN else row_layout(COLUMNS, WIDTH)
    STORES: gl.constexpr = row_layout(COLUMNS, 8)
    across = gl.cdiv(columns, COLUMNS)
    beyond = first + gl.cdiv(rows, ROWS) * across
    pitch = _pitch(columns)
    if WIDTH > 1:  # what the host found out, and the compiler is to know
        row_stride = row_stride // WIDTH * WIDTH
        column_stride = 1
    copied = 0
    while piece < beyond:
        row, column = _places(piece - first, across, ROWS, COLUMNS, LOADS)
        there = (row < rows) & (column < columns // WIDTH * WIDTH)
        elements = gl.load(matrix_ptr + row * row_stride + column * column_stride, mask=there, other=0.0)
        following = gl.atomic_add(taken_ptr, 1, sem="relaxed", scope="gpu")  # while the elements are on their way
        row, column = _places(piece - first, across, ROWS, COLUMNS, STORES)
        elements = gl.convert_layout(elements, STORES)
        gl.store(copy_ptr + row * pitch + column, elements, mask=(row < rows) & (column < pitch))
        copied += 1
        piece = following
    return piece, copied, beyond


@gluon.jit
def _copy_operands(  # noqa: PLR0917 - a kernel's arguments
    a_ptr,
    b_ptr,
    copies_ptr,
    counters_ptr,
    M,
    K,
    b_rows,
    b_columns,
    a_row_stride,
    a_column_stride,
    b_row_stride,
    b_column_stride,
    A_WIDTH: gl.constexpr,
    A_DOWN: gl.constexpr,
    B_WIDTH: gl.constexpr,
):
    """Copy what is to be copied, with all other programs, and return when all of it is there."""
    copied_ptr = counters_ptr + 1
    piece = gl.atomic_add(counters_ptr, 1, sem="relaxed", scope="gpu")
    copied = 0
    pieces = 0
    b_copy_ptr = copies_ptr
    if A_WIDTH:
        piece, copied, pieces = _copy(
            piece, 0, counters_ptr, a_ptr, copies_ptr, M, K, a_row_stride, a_column_stride, A_WIDTH, A_DOWN
        )
        b_copy_ptr += M.to(gl.int64) * _pitch(K)
    if B_WIDTH:
        piece, more, pieces = _copy(
            piece, pieces, counters_ptr, b_ptr, b_copy_ptr, b_rows, b_columns, b_row_stride, b_column_stride,
            B_WIDTH, DOWN=False,
        )  # fmt: skip
        copied += more
    _order_for_loads()
    tl.debug_barrier()  # every thread's elements are there before one thread says so
    gl.atomic_add(copied_ptr, copied, sem="release", scope="gpu")
    while gl.atomic_add(copied_ptr, 0, sem="acquire", scope="gpu") < pieces:
        pass
    _order_for_loads()


@gluon.jit
def _leave(counters_ptr):
    """Zero the counters for the next launch, if all other programs have gone on: at the end, where nothing waits."""
    if gl.atomic_add(counters_ptr + 2, 1, sem="acq_rel", scope="gpu") == gl.num_programs(0) - 1:
        gl.atomic_xchg(counters_ptr, 0, sem="relaxed", scope="gpu")
        gl.atomic_xchg(counters_ptr + 1, 0, sem="relaxed", scope="gpu")
        gl.atomic_xchg(counters_ptr + 2, 0, sem="relaxed", scope="gpu")


@gluon.jit(
    do_not_specialize=[
        "M", "N", "K", "shared", "a_row_stride", "a_column_stride", "b_row_stride", "b_column_stride",
    ]
)  # fmt: skip
def hopper_copying_kernel(  # noqa: PLR0917 - a kernel's arguments
    a_desc,  # (M, K), or its copy, in boxes of one consumer's rows
    b_desc,  # (K, N), or its copy; (N, K) with B_BY_COLUMNS
    c,  # (M, N): in boxes of one slice; with C_WIDTH where it begins
    parts_ptr,  # (programs, CONSUMERS, rows of a consumer, BLOCK_N)
    flags_ptr,  # (programs, CONSUMERS)
    a_ptr,  # (M, K)
    b_ptr,  # (K, N); (N, K) with B_BY_COLUMNS
    copies_ptr,  # of A, and then of B: rows of whole lines
    counters_ptr,  # (COUNTERS,)
    M,
    N,
    K,
    shared,
    a_row_stride,
    a_column_stride,
    b_row_stride,
    b_column_stride,
    STAGES: gl.constexpr,
    CONSUMERS: gl.constexpr,
    SLICES: gl.constexpr,
    C_BUFFERS: gl.constexpr,
    REGISTERS: gl.constexpr,
    GROUP_M: gl.constexpr,
    SHARES: gl.constexpr,
    B_BY_COLUMNS: gl.constexpr,
    A_WIDTH: gl.constexpr,
    A_DOWN: gl.constexpr,
    B_WIDTH: gl.constexpr,
    C_WIDTH: gl.constexpr,
):
    """Multiply two matrices on Hopper's tensor cores, of copies where these are needed.

    Formula: ``C[m, n] = sum over k of A[m, k] * B[k, n]``.

    ========  ==============================  ==================================  ===================
    tensor    shape                           layout                              dtype
    ========  ==============================  ==================================  ===================
    A         (M, K)                          any                                 float16 or bfloat16
    B         (K, N), (N, K) if B_BY_COLUMNS  any                                 the same
    C         (M, N)                          contiguous                          the same
    copies    (M, K) and that of B            rows of whole lines, one by one     the same
    parts     (programs, CONSUMERS, a tile)   16-byte words of a warp             float32
    flags     (programs, CONSUMERS)           contiguous                          int32, zero
    counters  (COUNTERS,)                     contiguous                          int32, zero
    ========  ==============================  ==================================  ===================

    WIDTH of A and of B is 0 where it is read as it is. Elsewhere it divides the columns and the stride from row to row,
    so many elements are read at once, and it is 1 where columns are not next to each other; with A_DOWN rows of A are.
    WIDTH of C is 0 where a tensor map describes it, and divides its columns where that would not.

    Programs beyond those with a tile copy, too. Numerics and limits: those of `hopper_matmul_kernel`, and fewer than
    MOST_COLUMNS of C where no tensor map describes it.
    """
    if A_WIDTH or B_WIDTH:
        _copy_operands(
            a_ptr, b_ptr, copies_ptr, counters_ptr, M, K, N if B_BY_COLUMNS else K, K if B_BY_COLUMNS else N,
            a_row_stride, a_column_stride, b_row_stride, b_column_stride, A_WIDTH, A_DOWN, B_WIDTH,
        )  # fmt: skip
    hopper_matmul_kernel(
        a_desc, b_desc, c, parts_ptr, flags_ptr, None, None, M, N, K, shared,
        STAGES, CONSUMERS, SLICES, C_BUFFERS, REGISTERS, GROUP_M, SHARES, B_BY_COLUMNS,
        PER_ROW=False, PER_COLUMN=False, PROMOTE=False, DEPENDENT=False, C_WIDTH=C_WIDTH,
    )  # fmt: skip
    if A_WIDTH or B_WIDTH:
        _leave(counters_ptr)

"""How programs copy operands that tensor maps cannot describe, before they multiply the copies in the same launch.

Programs take pieces of what is to be copied, one after the other, and wait until all are there. What a program waits
for is being copied by programs that run: nobody waits for one that has not begun, so that it does not matter how many
of them run at once.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators
# Triton types what is compiled, and ships no types itself.

from __future__ import annotations

import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from flopwatch.kernels.hopper_rows import row_layout

#: Counters of a launch, zero between launches: pieces that are taken, those that are copied, programs that go on.
COUNTERS = 3


@gluon.constexpr_function
def shift():
    """Return what shifts words to where a row begins, at an even byte: by two words, by one, by half of one.

    Given are the four words of a thread and that byte, four times; the next thread has the four that follow, and the
    last thread of a warp has no next one. (A function, because Triton looks up in each launch what a kernel has of its
    module.)
    """
    return """
{
.reg .pred p;
.reg .b32 n<4>, a<6>, b<5>, s;
shfl.sync.down.b32 n0, $4, 1, 31, -1;
shfl.sync.down.b32 n1, $5, 1, 31, -1;
shfl.sync.down.b32 n2, $6, 1, 31, -1;
shfl.sync.down.b32 n3, $7, 1, 31, -1;
and.b32 s, $8, 8;
setp.ne.b32 p, s, 0;
selp.b32 a0, $6, $4, p;
selp.b32 a1, $7, $5, p;
selp.b32 a2, n0, $6, p;
selp.b32 a3, n1, $7, p;
selp.b32 a4, n2, n0, p;
selp.b32 a5, n3, n1, p;
and.b32 s, $8, 4;
setp.ne.b32 p, s, 0;
selp.b32 b0, a1, a0, p;
selp.b32 b1, a2, a1, p;
selp.b32 b2, a3, a2, p;
selp.b32 b3, a4, a3, p;
selp.b32 b4, a5, a4, p;
and.b32 s, $8, 2;
shl.b32 s, s, 3;
shf.r.wrap.b32 $0, b0, b1, s;
shf.r.wrap.b32 $1, b1, b2, s;
shf.r.wrap.b32 $2, b2, b3, s;
shf.r.wrap.b32 $3, b3, b4, s;
}
"""


@gluon.jit
def _order_for_loads():
    """Have what the tensor memory accelerator loads come after what was stored: it is another way to memory."""
    gl.inline_asm_elementwise("fence.proxy.async; // dummy $0", "=r", [], dtype=gl.int32, is_pure=False, pack=1)


@gluon.jit
def _elements(  # noqa: PLR0917 - a kernel's arguments
    matrix_ptr,
    rows,
    columns,
    row_stride,
    column_stride,
    ROWS: gl.constexpr,
    COLUMNS: gl.constexpr,
    LAYOUT: gl.constexpr,
):
    """Read the first elements of a matrix, zeros where it has none."""
    row = gl.arange(0, ROWS, layout=gl.SliceLayout(1, LAYOUT))[:, None]
    column = gl.arange(0, COLUMNS, layout=gl.SliceLayout(0, LAYOUT))[None, :]
    there = (row < rows) & (column < columns)
    return gl.load(matrix_ptr + (row * row_stride + column * column_stride), mask=there, other=0.0)


@gluon.jit
def _words(matrix_ptr, rows, columns, row_stride, ROWS: gl.constexpr, WORDS: gl.constexpr, LAYOUT: gl.constexpr):  # noqa: PLR0917 - as above
    """Read rows that begin anywhere, in words of two elements, from the 16 bytes on in which each begins.

    Return them, and the byte of its first word at which a row begins. Four words are read at once, none of them past
    where a row or the matrix ends: `_copy_last` has the elements that 16 bytes within the matrix do not hold.
    """
    address = matrix_ptr.to(gl.int64, bitcast=True)
    offset = (address & 15).to(gl.int32)
    words_ptr = gl.multiple_of((address - offset).to(gl.pointer_type(gl.int32), bitcast=True), 16)
    row = gl.arange(0, ROWS, layout=gl.SliceLayout(1, LAYOUT))
    word = gl.arange(0, WORDS, layout=gl.SliceLayout(0, LAYOUT))
    begin = offset + row * (2 * row_stride)
    end = offset + (gl.minimum(rows, 2 * ROWS) - 1) * (2 * row_stride) + 2 * columns
    room = gl.where(row < rows, gl.minimum((begin & 15) + 2 * columns, end - 15 - (begin >> 4 << 4)), 0)
    there = (word // 4 * 16)[None, :] < room[:, None]
    return gl.load(words_ptr + ((begin >> 4 << 2)[:, None] + word[None, :]), mask=there, other=0), begin & 15


@gluon.jit
def _shifted(words, begin, columns, LAYOUT: gl.constexpr):
    """Return words that begin where their rows do, zeros where these have none; the last four of a row are none."""
    begin = gl.broadcast(begin[:, None], words)[0]
    words = gl.inline_asm_elementwise(
        shift(), "=r,=r,=r,=r,r,r,r,r,r,r,r,r", [words, begin], dtype=gl.int32, is_pure=False, pack=4
    )
    left = columns - 2 * gl.arange(0, words.shape[1], layout=gl.SliceLayout(0, LAYOUT))
    return words & gl.where(left > 1, -1, gl.where(left == 1, 0xFFFF, 0))[None, :]


@gluon.jit
def _copy_last(  # noqa: PLR0917 - a kernel's arguments
    from_ptr, to_ptr, rows, columns, row_stride, pitch, ROWS: gl.constexpr, WIDTH: gl.constexpr
):
    """Copy the elements of a piece, if there are any, that follow the last 16 bytes which end within the matrix."""
    from_ptr += (rows - 1).to(gl.int64) * row_stride
    beyond = ((from_ptr + columns).to(gl.int64, bitcast=True) & 15).to(gl.int32) // 2
    if (rows <= ROWS) & (columns - beyond < WIDTH):
        number = gl.arange(0, 8, layout=gl.BlockedLayout([1], [32], [gl.num_warps()], [0]))
        place = columns - beyond + number
        there = (number < beyond) & (place >= 0) & (place < WIDTH)
        last = gl.load(from_ptr + place, mask=there, other=0.0)
        tl.debug_barrier()  # zeros were stored there
        gl.store(to_ptr + ((rows - 1).to(gl.int64) * pitch + place), last, mask=there)


@gluon.jit
def _store(copy_ptr, values, rows, columns, pitch, LAYOUT: gl.constexpr):  # noqa: PLR0917 - as above
    """Write so many rows and columns of a piece of a copy to where it begins."""
    row = gl.arange(0, values.shape[0], layout=gl.SliceLayout(1, LAYOUT))[:, None]
    column = gl.arange(0, values.shape[1], layout=gl.SliceLayout(0, LAYOUT))[None, :]
    gl.store(copy_ptr + (row * pitch + column), values, mask=(row < rows) & (column < columns))


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
    READS: gl.constexpr,
):
    """Copy pieces of a matrix, of which `first` is the number of the first one.

    Return the first piece taken that is none of its; how many were copied; and the number of the piece after its last.
    """
    # Constants are named here: at those of a module Triton's dispatch looks in each launch, and none goes past it.
    ROWS: gl.constexpr = 64
    COLUMNS: gl.constexpr = 64 if READS == "down" else 256
    WIDTH: gl.constexpr = COLUMNS - 8 if READS == "words" else COLUMNS  # the last thread of a row has no next one
    LINE: gl.constexpr = 64
    WARPS: gl.constexpr = gl.num_warps()
    STORED: gl.constexpr = row_layout(COLUMNS, 8, WARPS)
    pitch = gl.cdiv(columns, LINE) * LINE
    across = gl.cdiv(pitch, WIDTH)
    beyond = first + gl.cdiv(rows, ROWS) * across
    copied = 0
    while piece < beyond:
        first_row = ((piece - first) // across).to(gl.int64) * ROWS
        first_column = ((piece - first) % across).to(gl.int64) * WIDTH
        rows_left = (rows - first_row).to(gl.int32)
        left = (columns - first_column).to(gl.int32)
        pitch_left = gl.minimum(pitch - first_column, WIDTH).to(gl.int32)
        from_ptr = matrix_ptr + (first_row * row_stride + first_column * column_stride)
        to_ptr = copy_ptr + (first_row * pitch + first_column)
        if READS == "words":
            IN_WORDS: gl.constexpr = row_layout(COLUMNS // 2, 4, WARPS)
            found, begin = _words(from_ptr, rows_left, left, row_stride, ROWS, COLUMNS // 2, IN_WORDS)
            following = gl.atomic_add(taken_ptr, 1, sem="relaxed", scope="gpu")  # while these are on their way
            found = _shifted(found, begin, left, IN_WORDS)
            to_words_ptr = gl.multiple_of(to_ptr.to(gl.pointer_type(gl.int32), bitcast=True), 16)
            _store(to_words_ptr, found, rows_left, pitch_left // 2, pitch // 2, IN_WORDS)
            _copy_last(from_ptr, to_ptr, rows_left, left, row_stride, pitch, ROWS, WIDTH)
        else:
            if READS == "eights":  # what the host found out, and the compiler is to know
                stride = row_stride.to(gl.int64) // 8 * 8
                found = _elements(from_ptr, rows_left, left // 8 * 8, stride, 1, ROWS, COLUMNS, STORED)
            elif READS == "down":
                DOWN: gl.constexpr = gl.BlockedLayout([1, 1], [32, 1], [1, WARPS], [0, 1])
                found = _elements(from_ptr, rows_left, left, 1, column_stride, ROWS, COLUMNS, DOWN)
            else:
                ALONE: gl.constexpr = row_layout(COLUMNS, 1, WARPS)
                strides = row_stride.to(gl.int64), column_stride.to(gl.int64)
                found = _elements(from_ptr, rows_left, left, strides[0], strides[1], ROWS, COLUMNS, ALONE)
            following = gl.atomic_add(taken_ptr, 1, sem="relaxed", scope="gpu")  # as above
            _store(to_ptr, gl.convert_layout(found, STORED), rows_left, pitch_left, pitch.to(gl.int64), STORED)
        copied += 1
        piece = following
    return piece, copied, beyond


@gluon.jit
def copy_operands(  # noqa: PLR0917 - a kernel's arguments
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
    A_READS: gl.constexpr,
    B_READS: gl.constexpr,
):
    """Copy what is to be copied, with all other programs, and return when all of it is there.

    Rows of copies are whole lines of memory, with zeros at their ends; that of B lies behind that of A.

    Args:
        a_ptr: (M, K).
        b_ptr: (b_rows, b_columns), as it lies.
        copies_ptr: aligned to 16 bytes.
        counters_ptr: (COUNTERS,), int32, zero.
        M: rows of A.
        K: its columns.
        b_rows: of B.
        b_columns: likewise.
        a_row_stride: elements from row to row.
        a_column_stride: likewise.
        b_row_stride: likewise.
        b_column_stride: likewise.
        A_READS: "" where A is not copied. How it is read elsewhere: "eights" of elements at once, which 8 divides the
            strides, the columns and the start for; "words" of any that are next to each other in rows; "down" columns
            in which they are; "elements" alone.
        B_READS: likewise.
    """
    LINE: gl.constexpr = 64
    copied_ptr = counters_ptr + 1
    piece = gl.atomic_add(counters_ptr, 1, sem="relaxed", scope="gpu")
    copied = 0
    pieces = 0
    b_copy_ptr = copies_ptr
    if A_READS != "":
        piece, copied, pieces = _copy(
            piece, 0, counters_ptr, a_ptr, copies_ptr, M, K, a_row_stride, a_column_stride, A_READS
        )
        b_copy_ptr += M.to(gl.int64) * gl.cdiv(K, LINE) * LINE
    if B_READS != "":
        piece, more, pieces = _copy(
            piece, pieces, counters_ptr, b_ptr, b_copy_ptr, b_rows, b_columns, b_row_stride, b_column_stride, B_READS
        )
        copied += more
    _order_for_loads()
    tl.debug_barrier()  # every thread's elements are there before one thread says so
    gl.atomic_add(copied_ptr, copied, sem="release", scope="gpu")
    while gl.atomic_add(copied_ptr, 0, sem="acquire", scope="gpu") < pieces:
        pass
    _order_for_loads()


@gluon.jit
def leave(counters_ptr):
    """Zero the counters for the next launch, if all other programs have gone on: at the end, where nothing waits."""
    if gl.atomic_add(counters_ptr + 2, 1, sem="acq_rel", scope="gpu") == gl.num_programs(0) - 1:
        gl.atomic_xchg(counters_ptr, 0, sem="relaxed", scope="gpu")
        gl.atomic_xchg(counters_ptr + 1, 0, sem="relaxed", scope="gpu")
        gl.atomic_xchg(counters_ptr + 2, 0, sem="relaxed", scope="gpu")

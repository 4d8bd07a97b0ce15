"""How programs copy operands that tensor maps cannot describe, before they multiply the copies in the same launch.

A program takes a share of what is to be copied, and then another, while there are any; and waits until all of it is
there. What it waits for is being copied by programs that run: nobody waits for one that has not begun, so that it does
not matter how many of them run at once. Where as many begin at once as there are shares, each has one.

A share's pieces lie as far apart as there are shares: what programs read at about the same time is close together.
Pieces of rows whose elements are next to each other come into shared memory, some while others are stored.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators
# Triton types what is compiled, and ships no types itself.

from __future__ import annotations

import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from flopwatch.kernels import async_copies
from flopwatch.kernels.hopper_rows import row_layout

#: Counters of a launch, zero between launches: shares that are taken, pieces that are copied, programs that go on.
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


@gluon.constexpr_function
def piece_rows():
    """Return how many rows a piece has: with 64 the kernel has more registers than three programs leave each other."""
    return 32


@gluon.constexpr_function
def piece_width(reads):
    """Return how many columns a piece has: of words the last thread of a row has no next one to shift in."""
    return {"down": 64, "words": 248}.get(reads, 256)


@gluon.constexpr_function
def comes_ahead(reads):
    """Tell whether rows of a matrix come into shared memory before they are stored."""
    return reads in {"words", "eights"}


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
def _begin(matrix_ptr, row_stride, ROWS: gl.constexpr, LAYOUT: gl.constexpr):
    """Return the 16 bytes in which a matrix begins, and where its first rows do, in bytes from there."""
    address = matrix_ptr.to(gl.int64, bitcast=True)
    offset = (address & 15).to(gl.int32)
    words_ptr = gl.multiple_of((address - offset).to(gl.pointer_type(gl.int32), bitcast=True), 16)
    return words_ptr, offset + gl.arange(0, ROWS, layout=gl.SliceLayout(1, LAYOUT)) * (2 * row_stride)


@gluon.jit
def _shifted(words, begin):
    """Return words that begin where their rows do; the last four of a row are none."""
    begin = gl.broadcast((begin & 15)[:, None], words)[0]
    return gl.inline_asm_elementwise(
        shift(), "=r,=r,=r,=r,r,r,r,r,r,r,r,r", [words, begin], dtype=gl.int32, is_pure=False, pack=4
    )


@gluon.jit
def _ended(words, columns, LAYOUT: gl.constexpr):
    """Return words with zeros where rows of so many columns have none."""
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
def _pitch(columns):
    """Return how many elements a row of a copy has: whole lines."""
    # Constants are named here: at those of a module Triton's dispatch looks in each launch, and none goes past it.
    LINE: gl.constexpr = 64
    return gl.cdiv(columns, LINE) * LINE


@gluon.jit
def _place(piece, rows, columns, READS: gl.constexpr):
    """Return the row and the column at which a piece begins; and how many of both there are from there on.

    There are no rows behind the last piece.
    """
    across = gl.cdiv(_pitch(columns), piece_width(READS))
    row = (piece // across).to(gl.int64) * piece_rows()
    column = (piece % across).to(gl.int64) * piece_width(READS)
    return row, column, gl.maximum(rows - row, 0).to(gl.int32), (columns - column).to(gl.int32)


@gluon.jit
def _ask(  # noqa: PLR0917 - as above
    buffer, piece, matrix_ptr, rows, columns, row_stride, READS: gl.constexpr, LAYOUT: gl.constexpr
):
    """Have rows of a piece come into shared memory, from the 16 bytes on in which each begins; none behind the last.

    Words of two elements come, four at once, none of them past where a row or the matrix ends: `_copy_last` has the
    elements that 16 bytes within the matrix do not hold.
    """
    ROWS: gl.constexpr = buffer.shape[0]
    first_row, first_column, rows, columns = _place(piece, rows, columns, READS)
    words_ptr, begin = _begin(matrix_ptr + (first_row * row_stride + first_column), row_stride, ROWS, LAYOUT)
    row = gl.arange(0, ROWS, layout=gl.SliceLayout(1, LAYOUT))
    word = gl.arange(0, buffer.shape[1], layout=gl.SliceLayout(0, LAYOUT))
    end = begin + (gl.minimum(rows, 2 * ROWS) - 1 - row) * (2 * row_stride) + 2 * columns
    room = gl.where(row < rows, gl.minimum((begin & 15) + 2 * columns, end - 15 - (begin >> 4 << 4)), 0)
    there = (word // 4 * 16)[None, :] < room[:, None]
    async_copies.load(buffer, words_ptr + ((begin >> 4 << 2)[:, None] + word[None, :]), mask=there)
    async_copies.commit()


@gluon.jit
def _copy(  # noqa: PLR0917 - as above
    piece, pieces, shares, matrix_ptr, copy_ptr, rows, columns, row_stride, column_stride, READS: gl.constexpr
):
    """Copy a share of a matrix: from a piece on each one that is so many behind the one before. Return how many.

    Args:
        piece: the first.
        pieces: of the matrix.
        shares: how many pieces lie from one to the next.
        matrix_ptr: (rows, columns), as it lies.
        copy_ptr: to where its copy begins.
        rows: of both.
        columns: of the matrix; rows of the copy are whole lines.
        row_stride: elements of the matrix from row to row.
        column_stride: likewise.
        READS: as of `copy_operands`.
    """
    ROWS: gl.constexpr = piece_rows()
    COLUMNS: gl.constexpr = 64 if READS == "down" else 256
    WIDTH: gl.constexpr = piece_width(READS)
    DEPTH: gl.constexpr = 4
    WARPS: gl.constexpr = gl.num_warps()
    STORED: gl.constexpr = row_layout(COLUMNS, 8, WARPS)
    IN_WORDS: gl.constexpr = row_layout(COLUMNS // 2, 4, WARPS)
    AHEAD: gl.constexpr = comes_ahead(READS)
    pitch = _pitch(columns)
    if AHEAD:
        IN_ROWS: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [1, 0])
        buffers = gl.allocate_shared_memory(gl.int32, [DEPTH, ROWS, COLUMNS // 2], IN_ROWS)
        for place in gl.static_range(DEPTH):
            later = piece + place * shares
            _ask(buffers.index(place), later, matrix_ptr, rows, columns, row_stride, READS, IN_WORDS)
    copied = 0
    while piece < pieces:
        row, column, rows_left, left = _place(piece, rows, columns, READS)
        pitch_left = gl.minimum(pitch - column, WIDTH).to(gl.int32)
        from_ptr = matrix_ptr + (row * row_stride + column * column_stride)
        to_ptr = copy_ptr + (row * pitch + column)
        if AHEAD:
            buffer = buffers.index(copied % DEPTH)
            async_copies.wait(DEPTH - 1)
            found = buffer.load(IN_WORDS)
            later = piece + DEPTH * shares
            _ask(buffer, later, matrix_ptr, rows, columns, row_stride, READS, IN_WORDS)
            if READS == "words":
                found = _shifted(found, _begin(from_ptr, row_stride, ROWS, IN_WORDS)[1])
            to_words_ptr = gl.multiple_of(to_ptr.to(gl.pointer_type(gl.int32), bitcast=True), 16)
            found = _ended(found, left, IN_WORDS)
            _store(to_words_ptr, found, rows_left, pitch_left // 2, pitch // 2, IN_WORDS)
            if READS == "words":
                _copy_last(from_ptr, to_ptr, rows_left, left, row_stride, pitch, ROWS, WIDTH)
        else:
            if READS == "down":
                DOWN: gl.constexpr = gl.BlockedLayout([1, 1], [32, 1], [1, WARPS], [0, 1])
                found = _elements(from_ptr, rows_left, left, 1, column_stride, ROWS, COLUMNS, DOWN)
            else:
                ALONE: gl.constexpr = row_layout(COLUMNS, 1, WARPS)
                strides = row_stride.to(gl.int64), column_stride.to(gl.int64)
                found = _elements(from_ptr, rows_left, left, strides[0], strides[1], ROWS, COLUMNS, ALONE)
            _store(to_ptr, gl.convert_layout(found, STORED), rows_left, pitch_left, pitch.to(gl.int64), STORED)
        copied += 1
        piece += shares
    if AHEAD:
        async_copies.wait(0)
    return copied


@gluon.jit
def _pieces(rows, columns, READS: gl.constexpr):
    """Return of how many pieces a copy is; none where nothing is copied."""
    if READS == "":
        return 0
    else:  # noqa: RET505 - Triton compiles one branch, and none after a return
        return gl.cdiv(rows, piece_rows()) * gl.cdiv(_pitch(columns), piece_width(READS))


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
    shares,
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
        shares: of the copies, as many as programs run at once.
        A_READS: "" where A is not copied. How it is read elsewhere: "words" of elements that are next to each other in
            rows, "eights" where 8 divides strides, columns and the start, so that none are shifted; "down" columns
            in which they are; "elements" alone.
        B_READS: likewise.
    """
    copied_ptr = counters_ptr + 1
    pieces_of_a, pieces_of_b = _pieces(M, K, A_READS), _pieces(b_rows, b_columns, B_READS)
    b_copy_ptr = copies_ptr
    if A_READS != "":
        b_copy_ptr += M.to(gl.int64) * _pitch(K)
    share = gl.atomic_add(counters_ptr, 1, sem="relaxed", scope="gpu")
    while share < shares:
        copied = 0
        if A_READS != "":
            copied += _copy(
                share, pieces_of_a, shares, a_ptr, copies_ptr, M, K, a_row_stride, a_column_stride, A_READS
            )  # fmt: skip
        if B_READS != "":
            copied += _copy(
                (share + shares - pieces_of_a % shares) % shares, pieces_of_b, shares, b_ptr, b_copy_ptr,
                b_rows, b_columns, b_row_stride, b_column_stride, B_READS,
            )  # fmt: skip
        _order_for_loads()
        tl.debug_barrier()  # every thread's elements are there before one thread says so
        gl.atomic_add(copied_ptr, copied, sem="release", scope="gpu")
        share = gl.atomic_add(counters_ptr, 1, sem="relaxed", scope="gpu")
    while gl.atomic_add(copied_ptr, 0, sem="acquire", scope="gpu") < pieces_of_a + pieces_of_b:
        pass
    _order_for_loads()


@gluon.jit
def leave(counters_ptr):
    """Zero the counters for the next launch, if all other programs have gone on: at the end, where nothing waits."""
    if gl.atomic_add(counters_ptr + 2, 1, sem="acq_rel", scope="gpu") == gl.num_programs(0) - 1:
        gl.atomic_xchg(counters_ptr, 0, sem="relaxed", scope="gpu")
        gl.atomic_xchg(counters_ptr + 1, 0, sem="relaxed", scope="gpu")
        gl.atomic_xchg(counters_ptr + 2, 0, sem="relaxed", scope="gpu")

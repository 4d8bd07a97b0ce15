"""Matrix multiplication for Hopper of operands that tensor maps cannot describe: it copies them in the same launch.

Programs copy (`flopwatch.kernels.hopper_copies`), and go on as `hopper_matmul_kernel`, or as
`hopper_short_kernel`.

Triton's interpreter does not run Gluon: what is tested without a GPU is what the compiler makes of this.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators
# Triton types what is compiled, and ships no types itself.

from __future__ import annotations

import triton.language as tl  # noqa: F401 - Triton looks for it in the module of what it runs
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from flopwatch.kernels.hopper_copies import copy_operands, leave
from flopwatch.kernels.hopper_matmul_kernel import hopper_matmul_kernel
from flopwatch.kernels.hopper_short_kernel import multiply_tile


@gluon.jit(
    do_not_specialize=[
        "M", "N", "K", "shared", "a_row_stride", "a_column_stride", "b_row_stride", "b_column_stride", "copiers",
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
    copiers,
    STAGES: gl.constexpr,
    CONSUMERS: gl.constexpr,
    SLICES: gl.constexpr,
    C_BUFFERS: gl.constexpr,
    REGISTERS: gl.constexpr,
    GROUP_M: gl.constexpr,
    SHARES: gl.constexpr,
    B_BY_COLUMNS: gl.constexpr,
    A_READS: gl.constexpr,
    B_READS: gl.constexpr,
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

    READS says of A and of B how they are copied, if they are: as of `copy_operands`. C_WIDTH is 0 where a tensor map
    describes C, and divides its columns where that would not.

    Programs beyond those with a tile copy, too. Numerics and limits: those of `hopper_matmul_kernel`, and fewer than
    MOST_COLUMNS of C where no tensor map describes it.
    """
    if A_READS != "" or B_READS != "":
        copy_operands(
            a_ptr, b_ptr, copies_ptr, counters_ptr, M, K, N if B_BY_COLUMNS else K, K if B_BY_COLUMNS else N,
            a_row_stride, a_column_stride, b_row_stride, b_column_stride, copiers, A_READS, B_READS,
        )  # fmt: skip
    hopper_matmul_kernel(
        a_desc, b_desc, c, parts_ptr, flags_ptr, None, None, M, N, K, shared,
        STAGES, CONSUMERS, SLICES, C_BUFFERS, REGISTERS, GROUP_M, SHARES, B_BY_COLUMNS,
        PER_ROW=False, PER_COLUMN=False, PROMOTE=False, DEPENDENT=False, C_WIDTH=C_WIDTH,
    )  # fmt: skip
    if A_READS != "" or B_READS != "":
        leave(counters_ptr)


@gluon.jit(
    do_not_specialize=[
        "M", "N", "K", "tiles_m", "tiles_n", "a_row_stride", "a_column_stride", "b_row_stride", "b_column_stride",
        "copiers",
    ]
)  # fmt: skip
def hopper_copying_short_kernel(  # noqa: PLR0917 - a kernel's arguments
    a_desc,  # (M, K), or its copy, in boxes of a step
    b_desc,  # (K, N), or its copy; (N, K) with B_BY_COLUMNS
    c,  # (M, N): in boxes of a tile; with C_WIDTH where it begins
    a_ptr,  # (M, K)
    b_ptr,  # (K, N); (N, K) with B_BY_COLUMNS
    copies_ptr,  # of A, and then of B: rows of whole lines
    counters_ptr,  # (COUNTERS,)
    more_desc,  # as of `hopper_short_kernel`
    c_more_desc,  # likewise
    M,
    N,
    K,
    tiles_m,
    tiles_n,
    a_row_stride,
    a_column_stride,
    b_row_stride,
    b_column_stride,
    copiers,
    STAGES: gl.constexpr,
    B_BY_COLUMNS: gl.constexpr,
    TURNED: gl.constexpr,
    A_READS: gl.constexpr,
    B_READS: gl.constexpr,
    C_WIDTH: gl.constexpr,
):
    """Multiply two matrices on Hopper's tensor cores, a tile a program, of copies where these are needed.

    Formula, tensors, numerics and limits: those of `hopper_copying_kernel`, without parts and flags.

    Programs beyond those with one of the tiles, tiles_m below each other and tiles_n beside, copy, too.
    """
    if A_READS != "" or B_READS != "":
        copy_operands(
            a_ptr, b_ptr, copies_ptr, counters_ptr, M, K, N if B_BY_COLUMNS else K, K if B_BY_COLUMNS else N,
            a_row_stride, a_column_stride, b_row_stride, b_column_stride, copiers, A_READS, B_READS,
        )  # fmt: skip
    tile_m = gl.program_id(0) % tiles_m
    tile_n = gl.program_id(0) // tiles_m
    if tile_n < tiles_n:
        multiply_tile(
            a_desc, b_desc, c, more_desc, c_more_desc, M, N, K, tile_m, tile_n,
            STAGES, ROW_STEP=1, B_BY_COLUMNS=B_BY_COLUMNS, TURNED=TURNED, DEPENDENT=False, C_WIDTH=C_WIDTH,
        )  # fmt: skip
    if A_READS != "" or B_READS != "":
        leave(counters_ptr)

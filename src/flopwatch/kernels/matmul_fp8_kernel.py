"""The kernel of `flopwatch.kernels.triton_matmul_fp8`."""

from __future__ import annotations

import triton
import triton.language as tl

from flopwatch.kernels.tiles import tile_position

_tile_position = triton.jit(tile_position)


@triton.jit  # type: ignore[untyped-decorator] # Triton ships no types
def matmul_fp8_kernel(  # type: ignore[no-untyped-def] # Triton types them # noqa: PLR0917 - a kernel's arguments
    a_ptr,  # (M, K)
    b_ptr,  # (K, N)
    c_ptr,  # (M, N)
    scale_a_ptr,  # (M,) if PER_ROW, else one element
    scale_b_ptr,  # (N,) if PER_COLUMN, else one element
    M,
    N,
    K,
    stride_am,
    stride_ak,
    stride_bk,
    stride_bn,
    stride_cm,
    stride_cn,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
    EVEN_MN: tl.constexpr,
    EVEN_K: tl.constexpr,
    PER_ROW: tl.constexpr,
    PER_COLUMN: tl.constexpr,
    PROMOTE: tl.constexpr,
    WIDE: tl.constexpr,
):
    """Multiply two matrices and scale the product.

    Formula: ``C[m, n] = (sum over k of A[m, k] * B[k, n]) * scale_a[m] * scale_b[n]``.

    =======  ======  ====================  ==============================
    tensor   shape   strides               dtype
    =======  ======  ====================  ==============================
    A        (M, K)  stride_am, stride_ak  float8_e4m3fn or float16
    B        (K, N)  stride_bk, stride_bn  the same
    C        (M, N)  stride_cm, stride_cn  bfloat16, float16 or float32
    scale_a  (M,)    contiguous            float32; one if not PER_ROW
    scale_b  (N,)    contiguous            float32; one if not PER_COLUMN
    =======  ======  ====================  ==============================

    One program computes one ``BLOCK_M x BLOCK_N`` tile of C, walking along K in steps of BLOCK_K, as `matmul_kernel`
    does. Scales are loaded before, so that the end waits for none.

    Numerics and limits: sums in float32, scaled in float32, rounded once to the dtype of C. The tensor cores of Hopper
    keep some 14 bits of a sum of float8; with PROMOTE they begin anew in every step, and its sum is added in float32. A
    tile's origin is a 64-bit offset; inside a tile offsets are 32-bit unless WIDE. M, N, K and the number of tiles are
    below 2**31. EVEN_MN and EVEN_K promise that tiles fit the matrices exactly, and drop the masks.
    """
    tile_m, tile_n = _tile_position(tl.program_id(0), tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N), GROUP_M)
    rows = tl.arange(0, BLOCK_M)
    columns = tl.arange(0, BLOCK_N)
    depth = tl.arange(0, BLOCK_K)
    rows_left = M - tile_m * BLOCK_M
    columns_left = N - tile_n * BLOCK_N
    first_row = tile_m.to(tl.int64) * BLOCK_M
    first_column = tile_n.to(tl.int64) * BLOCK_N
    a_ptr += first_row * stride_am
    b_ptr += first_column * stride_bn
    c_ptr += first_row * stride_cm + first_column * stride_cn
    if PER_ROW:
        scale_a = tl.load(scale_a_ptr + first_row + rows, mask=rows < rows_left, other=0.0)[:, None]
    else:
        scale_a = tl.load(scale_a_ptr)
    if PER_COLUMN:
        scale_b = tl.load(scale_b_ptr + first_column + columns, mask=columns < columns_left, other=0.0)[None, :]
    else:
        scale_b = tl.load(scale_b_ptr)
    if WIDE:
        rows = rows.to(tl.int64)
        columns = columns.to(tl.int64)
        depth = depth.to(tl.int64)
    a_offsets = rows[:, None] * stride_am + depth[None, :] * stride_ak
    b_offsets = depth[:, None] * stride_bk + columns[None, :] * stride_bn
    a_step = BLOCK_K * tl.cast(stride_ak, tl.int64)
    b_step = BLOCK_K * tl.cast(stride_bk, tl.int64)

    accumulator = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        if EVEN_MN and EVEN_K:
            a = tl.load(a_ptr + a_offsets)
            b = tl.load(b_ptr + b_offsets)
        else:
            a_mask = rows[:, None] < rows_left
            b_mask = columns[None, :] < columns_left
            if not EVEN_K:
                a_mask &= depth[None, :] < K - start
                b_mask &= depth[:, None] < K - start
            a = tl.load(a_ptr + a_offsets, mask=a_mask, other=0.0)
            b = tl.load(b_ptr + b_offsets, mask=b_mask, other=0.0)
        # What is promoted is a product of its own: with max_num_imprecise_acc Triton adds before it waits, and ptxas
        # serialises a step's four instructions (warning C7517; sm_90, triton 3.6.0 and 3.7.1, 2026-11-23).
        accumulator = accumulator + tl.dot(a, b) if PROMOTE else tl.dot(a, b, accumulator)
        a_ptr += a_step
        b_ptr += b_step

    c = (accumulator * scale_a * scale_b).to(c_ptr.dtype.element_ty)
    c_tile = c_ptr + rows[:, None] * stride_cm + columns[None, :] * stride_cn
    if EVEN_MN:
        tl.store(c_tile, c)
    else:
        tl.store(c_tile, c, mask=(rows[:, None] < rows_left) & (columns[None, :] < columns_left))

"""A vector addition and a matrix product, each launched by ``triton.heuristics`` and by ``triton.autotune``.

A rule costs nothing at the first call and is as good as whoever wrote it knew; a tuner compiles and times its list at
the first call of each key. ``python -m evidence.tuning`` measures what either costs and loses; docs/tune.md has it.
"""
# ruff: noqa: N803 - BLOCK_M is the field's name

from __future__ import annotations

import functools

import torch
import triton
import triton.language as tl

#: FLOPs a byte from which a product is bound by arithmetic: an H200 computes 989 TFLOPS of 16 bits and reads 4.8 TB/s.
RIDGE = 200.0
#: Multiprocessors of an H200: a grid with fewer tiles leaves some idle.
MULTIPROCESSORS = 132


def add_rule(n: int) -> dict[str, int]:
    """Choose by size: few elements are spread over more programs, many are read in wide blocks.

    A rule of thumb of Triton tutorials, tuned nowhere.

    >>> add_rule(1000)["BLOCK"], add_rule(100_000_000)["BLOCK"]
    (128, 1024)
    """
    for limit, block in ((1 << 12, 128), (1 << 16, 256), (1 << 18, 512)):
        if n < limit:
            return {"BLOCK": block, "num_warps": 4}
    return {"BLOCK": 1024, "num_warps": 4}


def matmul_rule(m: int, n: int, k: int) -> dict[str, int]:
    """Choose by shape and intensity: the largest tile that keeps every multiprocessor busy, a thin one for few rows.

    What is bound by memory gains nothing from large tiles, and takes the smallest that its rows fill. Rules of thumb,
    tuned nowhere; that the second is wrong, because small tiles read more from L2, is what docs/tune.md measures.

    >>> [matmul_rule(*shape)["BLOCK_M"] for shape in ((16, 4096, 4096), (512, 512, 512), (8192, 8192, 8192))]
    [16, 64, 128]
    """
    intensity = 2 * m * n * k / (2 * (m * k + k * n + m * n))
    if m <= 32:  # noqa: PLR2004 - rows of the smallest tile, twice
        return {"BLOCK_M": 16, "BLOCK_N": 64, "BLOCK_K": 128, "num_warps": 4, "num_stages": 4}
    if intensity >= RIDGE:
        for block_m, block_n, warps, stages in ((128, 256, 8, 3), (128, 128, 8, 3)):
            if triton.cdiv(m, block_m) * triton.cdiv(n, block_n) >= MULTIPROCESSORS:
                return {
                    "BLOCK_M": block_m,
                    "BLOCK_N": block_n,
                    "BLOCK_K": 64,
                    "num_warps": warps,
                    "num_stages": stages,
                }
    return {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 64, "num_warps": 4, "num_stages": 4}


def _ruled(rule, names, setting):
    """Return what triton.heuristics asks for one setting: a function of all arguments."""
    return lambda arguments: rule(*(arguments[name] for name in names))[setting]


@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    """Add BLOCK elements a program."""
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    y = tl.load(y_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, x + y, mask=mask)


@triton.jit
def matmul_kernel(  # noqa: PLR0917 - Triton passes by position
    a_ptr,  # (M, K), row-major
    b_ptr,  # (K, N), row-major
    c_ptr,  # (M, N), row-major
    M,
    N,
    K,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
):
    """Compute one tile of C a program; GROUP_M rows of tiles are numbered together, to share panels in L2."""
    pid = tl.program_id(0)
    tiles_m, tiles_n = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    group = pid // (GROUP_M * tiles_n)
    rows_in_group = min(tiles_m - group * GROUP_M, GROUP_M)
    tile_m = group * GROUP_M + (pid % (GROUP_M * tiles_n)) % rows_in_group
    tile_n = (pid % (GROUP_M * tiles_n)) // rows_in_group
    rows = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
    depths = tl.arange(0, BLOCK_K)
    a_tile = a_ptr + rows[:, None].to(tl.int64) * K + depths[None, :]
    b_tile = b_ptr + depths[:, None].to(tl.int64) * N + columns[None, :]
    sums = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        a = tl.load(a_tile, mask=(rows[:, None] < M) & (depths[None, :] < K - start), other=0.0)
        b = tl.load(b_tile, mask=(depths[:, None] < K - start) & (columns[None, :] < N), other=0.0)
        sums = tl.dot(a, b, sums)
        a_tile += BLOCK_K
        b_tile += BLOCK_K * N
    c_tile = c_ptr + rows[:, None].to(tl.int64) * N + columns[None, :]
    tl.store(c_tile, sums.to(c_ptr.dtype.element_ty), mask=(rows[:, None] < M) & (columns[None, :] < N))


_ADD_SETTINGS = ("BLOCK", "num_warps")
_MATMUL_SETTINGS = ("BLOCK_M", "BLOCK_N", "BLOCK_K", "num_warps", "num_stages")

ruled_add = triton.heuristics({name: _ruled(add_rule, ("n",), name) for name in _ADD_SETTINGS})(add_kernel)
ruled_matmul = triton.heuristics(
    {"GROUP_M": lambda _: 8} | {name: _ruled(matmul_rule, ("M", "N", "K"), name) for name in _MATMUL_SETTINGS}
)(matmul_kernel)

tuned_add = triton.autotune(
    [triton.Config({"BLOCK": block}, num_warps=warps) for block in (128, 512, 1024, 2048) for warps in (4, 8)],
    key=["n"],
)(add_kernel)
tuned_matmul = triton.autotune(
    [
        triton.Config(
            {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8},
            num_warps=warps,
            num_stages=stages,
        )
        for block_m, block_n, block_k, warps, stages in (
            (128, 256, 64, 8, 3),
            (128, 128, 64, 4, 4),
            (128, 128, 64, 8, 3),
            (64, 128, 64, 4, 4),
            (64, 64, 64, 4, 4),
            (16, 64, 128, 4, 4),
        )
    ],
    key=["M", "N", "K"],
)(matmul_kernel)


def add(x: torch.Tensor, y: torch.Tensor, *, kernel=tuned_add) -> torch.Tensor:
    """Add two contiguous vectors."""
    out = torch.empty_like(x)
    n = x.numel()
    kernel[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, y, out, n)
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, kernel=tuned_matmul) -> torch.Tensor:
    """Multiply two contiguous matrices of the same 16-bit type."""
    (m, k), n = a.shape, b.shape[1]
    c = torch.empty((m, n), device=a.device, dtype=a.dtype)
    kernel[lambda meta: (triton.cdiv(m, meta["BLOCK_M"]) * triton.cdiv(n, meta["BLOCK_N"]),)](a, b, c, m, n, k)
    return c


add_by_rule = functools.partial(add, kernel=ruled_add)
matmul_by_rule = functools.partial(matmul, kernel=ruled_matmul)

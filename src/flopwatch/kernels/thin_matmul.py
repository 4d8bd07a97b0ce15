"""Products of few rows: as fast as B can be read.

With up to 64 rows of A, C is computed as the transpose of ``B.T @ A.T``: the columns of B are the 64 rows that an
instruction of Hopper's tensor cores wants at least, and the few rows of A its columns, of which 16 are enough. K is
split, since the columns alone make too few programs to fill a GPU.

Chosen by `triton_matmul` where a table or a rule says so (`flopwatch.kernels.routes`), and, by way of
`flopwatch.kernels.thin_fp8`, by `triton_matmul_fp8`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl

from flopwatch.kernels import dependent_launch
from flopwatch.kernels.eights import eights, in_eights
from flopwatch.kernels.prepared import Prepared
from flopwatch.kernels.stream_k import Schedule
from flopwatch.kernels.workspace import Workspace, in_workspace, without_workspace, workspace_for

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from flopwatch.kernels.launch import Arrange

#: Rows of A that are thin.
MOST_ROWS = 64

_come_after = triton.jit(dependent_launch.come_after)


@triton.jit  # type: ignore[untyped-decorator] # Triton ships no types
def _across(of_rows, of_columns, UPRIGHT: tl.constexpr):  # type: ignore[no-untyped-def] # Triton types them
    """Return what rows of C have, and what columns have, along the sides of a tile that is C or its transpose."""
    if UPRIGHT:
        return of_rows[:, None], of_columns[None, :]
    else:  # noqa: RET505 - Triton compiles one branch, and none after a return
        return of_rows[None, :], of_columns[:, None]


@triton.jit  # type: ignore[untyped-decorator] # Triton ships no types
def _with_products(  # type: ignore[no-untyped-def] # Triton types them
    sums, a, b, UPRIGHT: tl.constexpr, PROMOTE: tl.constexpr
):
    """Add the products of a step.

    What is promoted is a product of its own: with max_num_imprecise_acc Triton adds before it waits, and ptxas
    serialises a step's instructions (warning C7517; sm_90, triton 3.6.0 and 3.7.1, 2026-11-23).
    """
    if not UPRIGHT:
        a, b = b.T, a.T
    return sums + tl.dot(a, b) if PROMOTE else tl.dot(a, b, sums)


@triton.jit  # type: ignore[untyped-decorator] # Triton ships no types
def _load_scale(pointer, places, mask, MANY: tl.constexpr):  # type: ignore[no-untyped-def] # Triton types them
    """Return the scale of each place, or the one for all."""
    return (
        tl.load(pointer + places, mask=mask, other=0.0) if MANY else tl.full(places.shape, tl.load(pointer), tl.float32)
    )


@triton.jit  # type: ignore[untyped-decorator] # Triton ships no types
def thin_matmul_kernel(  # type: ignore[no-untyped-def] # Triton types them # noqa: PLR0915, PLR0917 - as Triton has it
    a_ptr,  # (M, K)
    b_ptr,  # (K, N)
    c_ptr,  # (M, N)
    parts_ptr,  # (tiles, SPLITS, BLOCK_N, BLOCK_M)
    arrived_ptr,  # (tiles,)
    scale_a_ptr,  # (M,) if PER_ROW, else one element; None without scales
    scale_b_ptr,  # (N,) if PER_COLUMN, else one element; likewise
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
    SPLITS: tl.constexpr,
    EVEN_N: tl.constexpr,
    EVEN_K: tl.constexpr,
    UPRIGHT: tl.constexpr,
    PER_ROW: tl.constexpr,
    PER_COLUMN: tl.constexpr,
    PROMOTE: tl.constexpr,
    DEPENDENT: tl.constexpr,
    EIGHTS: tl.constexpr = "",
):
    """Multiply few rows by a matrix.

    Formula: ``C[m, n] = (sum over k of A[m, k] * B[k, n]) * scale_a[m] * scale_b[n]``, the scales if there are any.

    =======  ================================  ====================  =================================
    tensor   shape                             strides               dtype
    =======  ================================  ====================  =================================
    A        (M, K), M up to BLOCK_M           stride_am, stride_ak  float16, bfloat16 or float8_e4m3
    B        (K, N)                            stride_bk, stride_bn  the same
    C        (M, N)                            stride_cm, stride_cn  the same; of float8 16 or 32 bits
    parts    (tiles, SPLITS, BLOCK_N, BLOCK_M) contiguous            float32
    arrived  (tiles,)                          contiguous            int32, zero
    scale_a  (M,)                              contiguous            float32; one if not PER_ROW
    scale_b  (N,)                              contiguous            float32; one if not PER_COLUMN
    =======  ================================  ====================  =================================

    One program sums a SPLITS-th of K for BLOCK_N columns. The last of a tile's programs to arrive adds the parts of
    all, by their numbers, stores C and sets `arrived` back, so that nobody waits for anybody. With UPRIGHT the tensor
    cores compute C itself: then BLOCK_M is at least 64, BLOCK_N may be less, and parts lie as C does.

    Numerics and limits: sums in float32, in SPLITS pieces that are scaled, added in a fixed order, and rounded once.
    The tensor cores of Hopper keep some 14 bits of a sum of float8; with PROMOTE they begin anew in every step, and its
    sum is added in float32. Offsets of B are 64-bit. EVEN_N and EVEN_K promise that BLOCK_N and BLOCK_K divide N and K,
    and drop the masks. DEPENDENT waits for the launch before. EIGHTS promises what
    `flopwatch.kernels.eights.eights` says.
    """
    if EIGHTS != "":
        M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm = in_eights(
            M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, EIGHTS
        )
    _come_after(DEPENDENT)
    tile, split = tl.program_id(0), tl.program_id(1)
    steps = tl.cdiv(K, BLOCK_K)
    begin, end = split * steps // SPLITS, (split + 1) * steps // SPLITS
    rows = tl.arange(0, BLOCK_M)
    columns = tile.to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    depth = begin * BLOCK_K + tl.arange(0, BLOCK_K)
    a_tile = a_ptr + rows[:, None] * stride_am + depth[None, :] * stride_ak
    b_tile = b_ptr + depth.to(tl.int64)[:, None] * stride_bk + columns[None, :] * stride_bn
    has_row, has_column = rows < M, columns < N
    if scale_a_ptr is not None:  # before the steps, so that their end waits for nothing
        scale_a = _load_scale(scale_a_ptr, rows, has_row, PER_ROW)
        scale_b = _load_scale(scale_b_ptr, columns, has_column, PER_COLUMN)
    HEIGHT: tl.constexpr = BLOCK_M if UPRIGHT else BLOCK_N
    WIDTH: tl.constexpr = BLOCK_N if UPRIGHT else BLOCK_M
    sums = tl.zeros((HEIGHT, WIDTH), dtype=tl.float32)
    for step in range(begin, end):
        if EVEN_K:
            a = tl.load(a_tile, mask=has_row[:, None], other=0.0)
            if EVEN_N:
                b = tl.load(b_tile, eviction_policy="evict_first")
            else:
                b = tl.load(b_tile, mask=has_column[None, :], other=0.0, eviction_policy="evict_first")
        else:
            inside = tl.arange(0, BLOCK_K) < K - step * BLOCK_K
            a = tl.load(a_tile, mask=has_row[:, None] & inside[None, :], other=0.0)
            b = tl.load(b_tile, mask=inside[:, None] & has_column[None, :], other=0.0, eviction_policy="evict_first")
        sums = _with_products(sums, a, b, UPRIGHT, PROMOTE)
        a_tile += BLOCK_K * stride_ak
        b_tile += BLOCK_K * tl.cast(stride_bk, tl.int64)

    c_rows, c_columns = _across(rows, columns, UPRIGHT)
    c_tile = c_ptr + c_rows * stride_cm + c_columns * stride_cn
    in_rows, in_columns = _across(has_row, has_column, UPRIGHT)
    c_mask = in_rows & in_columns
    if scale_a_ptr is not None:
        of_rows, of_columns = _across(scale_a, scale_b, UPRIGHT)
        sums = sums * of_rows * of_columns
    if SPLITS == 1:
        tl.store(c_tile, sums.to(c_ptr.dtype.element_ty), mask=c_mask)
    else:
        part = tl.arange(0, HEIGHT)[:, None] * WIDTH + tl.arange(0, WIDTH)[None, :]
        parts_tile = parts_ptr + tile.to(tl.int64) * (SPLITS * BLOCK_M * BLOCK_N) + part
        tl.store(parts_tile + split * (BLOCK_M * BLOCK_N), sums, cache_modifier=".cg")
        tl.debug_barrier()  # every thread's part is there before one thread says so
        if tl.atomic_add(arrived_ptr + tile, 1, sem="acq_rel") == SPLITS - 1:
            total = tl.zeros_like(sums)
            for other in range(SPLITS):
                total += tl.load(parts_tile + other * (BLOCK_M * BLOCK_N), cache_modifier=".cg")
            tl.store(c_tile, total.to(c_ptr.dtype.element_ty), mask=c_mask)
            tl.store(arrived_ptr + tile, 0)


@dataclass(frozen=True, kw_only=True, slots=True)
class ThinConfig:
    """How `thin_matmul_kernel` is compiled.

    Attributes:
        block_n: columns of C per program, at least 64 for the tensor cores of Hopper.
        block_k: step along K.
        splits: programs among which K is split.
        num_warps: warps per program.
        num_stages: steps of loads in flight.
        upright: whether the tensor cores compute C and not its transpose, in tiles of at least 64 rows.
        dependent: whether programs come before the launch in front of theirs has ended
            (`flopwatch.kernels.dependent_launch`).
    """

    block_n: int
    block_k: int
    splits: int
    num_warps: int = 4
    num_stages: int
    upright: bool = False
    dependent: bool = False

    def __str__(self) -> str:
        """Name it in a table, such as "thin 128x64/8 w4 s4"."""
        name = f"thin {self.block_n}x{self.block_k}/{self.splits} w{self.num_warps} s{self.num_stages}"
        return f"{name}{' upright' if self.upright else ''}{' pdl' if self.dependent else ''}"

    def block_m(self, rows: int) -> int:
        """Return the rows of a tile: as few as the tensor cores take."""
        return int(max(64 if self.upright else 16, triton.next_power_of_2(rows)))


#: To choose from. With 4096 columns and K = 4096, 128 to 512 programs: one to four for each multiprocessor. Compiled
#: for sm_90 on 2026-11-22 (triton 3.6.0 and 3.7.1): wgmma of 8 to 64 columns, no spills, 32 to 128 registers. Timed
#: (H200, 2026-11-22, ``evidence/h200/matmul-candidates-2026-11-22.json``): the first of them is the fastest, 1.2 times
#: as fast as cuBLAS at up to 32 rows and 0.9 times at 64. Others, with twice the threads, half the steps or two
#: programs a multiprocessor, were not (``evidence/h200/matmul-candidates-short-2026-11-22.json``).
CANDIDATES = (
    ThinConfig(block_n=64, block_k=128, splits=2, num_stages=5),
    ThinConfig(block_n=64, block_k=128, splits=4, num_stages=4),
    ThinConfig(block_n=64, block_k=128, splits=8, num_stages=3),
    ThinConfig(block_n=128, block_k=64, splits=4, num_stages=6),
    ThinConfig(block_n=128, block_k=64, splits=8, num_stages=5),
    ThinConfig(block_n=128, block_k=64, splits=16, num_stages=4),
    # The fastest with as much on its way as there is room for, and without parts to add.
    ThinConfig(block_n=64, block_k=128, splits=2, num_stages=7),
    ThinConfig(block_n=32, block_k=128, splits=1, num_stages=9, upright=True),
)


def named(candidates: Iterable[ThinConfig]) -> Mapping[str, ThinConfig]:
    """Return all that may be chosen, by name: each of these, launched in either way."""
    configs = (replace(config, dependent=dependent) for config in candidates for dependent in (False, True))
    return MappingProxyType({str(config): config for config in configs})


#: All that may be chosen for operands of 16 bits, by name.
THIN = named(CANDIDATES)


def prepare_thin(
    a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, config: ThinConfig, workspace: Workspace | None = None
) -> Prepared:
    """Prepare the launch of `thin_matmul` that writes `c`."""
    (M, K), N = a.shape, b.shape[1]
    block_m = config.block_m(M)
    tiles = triton.cdiv(N, config.block_n)
    splits = min(config.splits, triton.cdiv(K, config.block_k))
    parts = arrived = c
    arrange: Arrange = without_workspace
    if splits > 1:
        needs = (Schedule(programs=tiles * splits, shared=tiles), block_m * config.block_n)
        workspace = workspace_for(*needs, device=a.device, given=workspace)
        parts, arrived = workspace.parts, workspace.flags
        arrange = in_workspace(*needs, device=a.device)
    return Prepared(
        kernel=thin_matmul_kernel,
        grid=(tiles, splits),
        arguments=(a, b, c, parts, arrived, None, None, M, N, K, *a.stride(), *b.stride(), *c.stride()),
        constants={
            "BLOCK_M": block_m,
            "BLOCK_N": config.block_n,
            "BLOCK_K": config.block_k,
            "SPLITS": splits,
            "EVEN_N": N % config.block_n == 0,
            "EVEN_K": K % config.block_k == 0,
            "EIGHTS": eights((M, N, K), a.stride(), b.stride(), c.stride()),
            "UPRIGHT": config.upright,
            "PER_ROW": False,
            "PER_COLUMN": False,
            "PROMOTE": False,
            "num_warps": config.num_warps,
            "num_stages": config.num_stages,
            **dependent_launch.constants(dependent=config.dependent),
        },
        arrange=arrange,
    )


def thin_matmul(
    a: torch.Tensor, b: torch.Tensor, config: ThinConfig, *, workspace: Workspace | None = None
) -> torch.Tensor:
    """Multiply ``a`` (M, K), of up to 64 rows, by ``b`` (K, N); any strides, no gradient.

    Args:
        a: float16 or bfloat16, on a CUDA device.
        b: the same dtype and device.
        config: how.
        workspace: for the parts; that of the current stream if None. Launches that may overlap need different ones.

    Returns:
        A contiguous (M, N) tensor of the same dtype.

    Raises:
        ValueError: ``a`` has too many rows, or the workspace is too small.
    """
    (M, K), N = a.shape, b.shape[1]
    if not 0 < M <= MOST_ROWS or K == 0 or N == 0:
        raise ValueError(
            f"a thin product has 1 to {MOST_ROWS} rows and is not empty, got {tuple(a.shape)} times {tuple(b.shape)}\n"
            "  why: all rows are one program's\n"
            "  do:  call triton_matmul"
        )
    c = torch.empty((M, N), device=a.device, dtype=a.dtype)
    with torch.cuda.device(a.device):
        prepare_thin(a, b, c, config, workspace).launch()
    return c

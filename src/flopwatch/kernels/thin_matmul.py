"""Products of few rows: as fast as B can be read.

With up to 64 rows of A, C is computed as the transpose of ``B.T @ A.T``: the columns of B are the 64 rows that an
instruction of Hopper's tensor cores wants at least, and the few rows of A its columns, of which 16 are enough. K is
split, since the columns alone make too few programs to fill a GPU.

Chosen by `triton_matmul` where a table says so (`flopwatch.kernels.routes`).
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl

from flopwatch.kernels.eights import eights, in_eights
from flopwatch.kernels.prepared import Prepared
from flopwatch.kernels.stream_k import Schedule, Workspace, in_workspace, without_workspace, workspace_for

if TYPE_CHECKING:
    from flopwatch.kernels.launch import Arrange

#: Rows of A that are thin.
MOST_ROWS = 64


@triton.jit  # type: ignore[untyped-decorator] # Triton ships no types
def thin_matmul_kernel(  # type: ignore[no-untyped-def] # Triton types them # noqa: PLR0917 - a kernel's arguments
    a_ptr,  # (M, K)
    b_ptr,  # (K, N)
    c_ptr,  # (M, N)
    parts_ptr,  # (tiles, SPLITS, BLOCK_N, BLOCK_M)
    arrived_ptr,  # (tiles,)
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
    EIGHTS: tl.constexpr = "",
):
    """Multiply few rows by a matrix.

    Formula: ``C[m, n] = sum over k of A[m, k] * B[k, n]``.

    =======  ================================  ====================  ===================
    tensor   shape                             strides               dtype
    =======  ================================  ====================  ===================
    A        (M, K), M up to BLOCK_M           stride_am, stride_ak  float16 or bfloat16
    B        (K, N)                            stride_bk, stride_bn  the same
    C        (M, N)                            stride_cm, stride_cn  the same
    parts    (tiles, SPLITS, BLOCK_N, BLOCK_M) contiguous            float32
    arrived  (tiles,)                          contiguous            int32, zero
    =======  ================================  ====================  ===================

    One program sums a SPLITS-th of K for BLOCK_N columns. The last of a tile's programs to arrive adds the parts of
    all, by their numbers, stores C and sets `arrived` back, so that nobody waits for anybody.

    Numerics and limits: sums in float32, in SPLITS pieces that are added in a fixed order, rounded once. Offsets of B
    are 64-bit. EVEN_N and EVEN_K promise that BLOCK_N and BLOCK_K divide N and K, and drop the masks. EIGHTS promises
    what `flopwatch.kernels.eights.eights` says.
    """
    if EIGHTS != "":
        M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm = in_eights(
            M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, EIGHTS
        )
    tile = tl.program_id(0)
    split = tl.program_id(1)
    steps = tl.cdiv(K, BLOCK_K)
    begin = split * steps // SPLITS
    end = (split + 1) * steps // SPLITS
    rows = tl.arange(0, BLOCK_M)
    columns = tile.to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    depth = begin * BLOCK_K + tl.arange(0, BLOCK_K)
    a_tile = a_ptr + rows[:, None] * stride_am + depth[None, :] * stride_ak
    b_tile = b_ptr + depth.to(tl.int64)[:, None] * stride_bk + columns[None, :] * stride_bn
    has_row = rows < M
    has_column = columns < N
    transposed = tl.zeros((BLOCK_N, BLOCK_M), dtype=tl.float32)
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
        transposed = tl.dot(b.T, a.T, transposed)
        a_tile += BLOCK_K * stride_ak
        b_tile += BLOCK_K * tl.cast(stride_bk, tl.int64)

    c_tile = c_ptr + rows[None, :] * stride_cm + columns[:, None] * stride_cn
    c_mask = has_row[None, :] & has_column[:, None]
    if SPLITS == 1:
        tl.store(c_tile, transposed.to(c_ptr.dtype.element_ty), mask=c_mask)
    else:
        part = tl.arange(0, BLOCK_N)[:, None] * BLOCK_M + rows[None, :]
        parts_tile = parts_ptr + tile.to(tl.int64) * (SPLITS * BLOCK_M * BLOCK_N) + part
        tl.store(parts_tile + split * (BLOCK_M * BLOCK_N), transposed, cache_modifier=".cg")
        tl.debug_barrier()  # every thread's part is there before one thread says so
        if tl.atomic_add(arrived_ptr + tile, 1, sem="acq_rel") == SPLITS - 1:
            total = tl.zeros((BLOCK_N, BLOCK_M), dtype=tl.float32)
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
    """

    block_n: int
    block_k: int
    splits: int
    num_warps: int = 4
    num_stages: int

    def __str__(self) -> str:
        """Name it in a table, such as "thin 128x64/8 w4 s4"."""
        return f"thin {self.block_n}x{self.block_k}/{self.splits} w{self.num_warps} s{self.num_stages}"


#: To choose from. With 4096 columns and K = 4096, 128 to 512 programs: one to four for each multiprocessor. Compiled
#: for sm_90 on 2026-11-22 (triton 3.6.0 and 3.7.1): wgmma of 8 to 64 columns, no spills, 32 to 128 registers.
#:
#: The first six were timed (H200, 2026-11-22, ``evidence/h200/matmul-candidates-2026-11-22.json``): the first of them
#: is the fastest, 1.2 times as fast as cuBLAS at up to 32 rows and 0.9 times at 64. The others are meant for more than
#: 16 rows, and not timed: there a tile of A is as large as one of B, and parts take longer to add.
CANDIDATES = (
    ThinConfig(block_n=64, block_k=128, splits=2, num_stages=5),
    ThinConfig(block_n=64, block_k=128, splits=4, num_stages=4),
    ThinConfig(block_n=64, block_k=128, splits=8, num_stages=3),
    ThinConfig(block_n=128, block_k=64, splits=4, num_stages=6),
    ThinConfig(block_n=128, block_k=64, splits=8, num_stages=5),
    ThinConfig(block_n=128, block_k=64, splits=16, num_stages=4),
    # The fastest, with twice the threads to copy and to add parts, and with steps of half the depth, the first of which
    # is there sooner.
    ThinConfig(block_n=64, block_k=128, splits=2, num_warps=8, num_stages=5),
    ThinConfig(block_n=64, block_k=64, splits=2, num_stages=10),
    # In shared memory for two programs a multiprocessor, so that all run at once: 192 and 256 of 4096 columns.
    ThinConfig(block_n=64, block_k=128, splits=3, num_stages=3),
    ThinConfig(block_n=64, block_k=128, splits=4, num_stages=3),
    # A is read half as often, and twice the threads add the parts.
    ThinConfig(block_n=128, block_k=64, splits=4, num_warps=8, num_stages=6),
)
#: By name.
THIN = MappingProxyType({str(config): config for config in CANDIDATES})


def prepare_thin(
    a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, config: ThinConfig, workspace: Workspace | None = None
) -> Prepared:
    """Prepare the launch of `thin_matmul` that writes `c`."""
    (M, K), N = a.shape, b.shape[1]
    block_m = max(16, triton.next_power_of_2(M))
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
        arguments=(a, b, c, parts, arrived, M, N, K, *a.stride(), *b.stride(), *c.stride()),
        constants={
            "BLOCK_M": block_m,
            "BLOCK_N": config.block_n,
            "BLOCK_K": config.block_k,
            "SPLITS": splits,
            "EVEN_N": N % config.block_n == 0,
            "EVEN_K": K % config.block_k == 0,
            "EIGHTS": eights((M, N, K), a.stride(), b.stride(), c.stride()),
            "num_warps": config.num_warps,
            "num_stages": config.num_stages,
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

"""Stream-K: a product whose tiles do not fill whole waves of the GPU, in equal shares all the same.

A tile of C is a sum over `steps` steps along K. Tiles that are left over from whole waves are *shared*: the steps of
all of them, one after the other, are dealt out to the programs in equal, contiguous ranges (Osama et al., *Stream-K*,
2023). A program that does not have the last steps of a tile leaves its part in a workspace; the one that has them adds
the parts, in the order of the programs, and stores the tile. So a result never depends on who was faster.

A program takes its range from the end: the tile of which it lacks the last steps comes first, the one to which others
contributed last. So nobody waits who has still a part to write, and those who are waited for have lower numbers, which
a GPU schedules no later. There is no deadlock, whatever the number of multiprocessors, and no need for a cooperative
launch. The whole tiles come after the shared ones.

Who has which steps is arithmetic of integers (`flopwatch.kernels.tiles`). `stream_k_kernel` is the plain Triton kernel
on it, for any strides; `flopwatch.kernels.hopper_matmul` is the one for Hopper. `triton_matmul` chooses them where a
table says so (`flopwatch.kernels.routes`).
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from types import MappingProxyType

import torch
import triton
import triton.language as tl

from flopwatch.kernels.eights import eights, in_eights
from flopwatch.kernels.prepared import Prepared
from flopwatch.kernels.tiles import first_contributor, tile_position, visit, visits
from flopwatch.kernels.workspace import Workspace, in_workspace, workspace_for

#: Products of these numbers are computed in 32 bits on the GPU.
_INT32 = 2**31


class Balance(enum.Enum):
    """Which tiles are shared by programs."""

    #: None.
    WHOLE = "whole"
    #: What is left over from whole waves, by all programs.
    REST = "rest"
    #: That and one wave more, so that no tile of a product of a wave or more has more than two programs.
    WAVE = "wave"
    #: All, each by as many programs as fit on the GPU at once: split-K.
    SPLIT = "split"


@dataclass(frozen=True, kw_only=True, slots=True)
class Schedule:
    """How a product is dealt out.

    Attributes:
        programs: that are launched.
        shared: tiles that programs share.
    """

    programs: int
    shared: int

    @classmethod
    def of(cls, tiles: int, steps: int, *, slots: int, balance: Balance) -> Schedule:
        """Deal out tiles.

        Args:
            tiles: of C, at least one.
            steps: along K of each, at least one.
            slots: programs that run at once: multiprocessors, times the programs that fit one.
            balance: which tiles are shared.

        Raises:
            ValueError: there are too many for 32-bit arithmetic.

        >>> Schedule.of(144, 24, slots=132, balance=Balance.WHOLE)
        Schedule(programs=132, shared=0)
        >>> Schedule.of(144, 24, slots=132, balance=Balance.WAVE)
        Schedule(programs=132, shared=144)
        >>> Schedule.of(60, 24, slots=132, balance=Balance.SPLIT)
        Schedule(programs=120, shared=60)
        """
        rest = tiles % slots
        programs = min(tiles, slots)
        match balance:
            case Balance.WHOLE:
                shared = 0
            case Balance.REST:
                shared = rest
            case Balance.WAVE:
                shared = min(tiles, rest + slots) if rest else 0
            case Balance.SPLIT:
                shared = tiles if tiles < slots else 0
        if shared and balance is Balance.SPLIT:
            programs = tiles * min(steps, slots // tiles)
        elif shared == tiles or shared * steps >= slots:
            programs = min(slots, shared * steps)
        else:  # fewer steps to share than there are programs
            shared = 0
        if (programs + 1) * shared * steps >= _INT32:
            raise ValueError(
                f"{shared} shared tiles of {steps} steps are too many for {programs} programs\n"
                "  why: the shares are computed in 32 bits\n"
                "  do:  share fewer tiles, or take larger ones"
            )
        return cls(programs=programs, shared=shared)


_tile_position = triton.jit(tile_position)
_visits = triton.jit(visits)
_visit = triton.jit(visit)
_first_contributor = triton.jit(first_contributor)


@triton.jit(do_not_specialize=["shared"])  # type: ignore[untyped-decorator] # Triton ships no types
def stream_k_kernel(  # type: ignore[no-untyped-def] # Triton types them # noqa: PLR0917 - a kernel's arguments
    a_ptr,  # (M, K)
    b_ptr,  # (K, N)
    c_ptr,  # (M, N)
    parts_ptr,  # (programs, BLOCK_M, BLOCK_N)
    flags_ptr,  # (programs,)
    M,
    N,
    K,
    stride_am,
    stride_ak,
    stride_bk,
    stride_bn,
    stride_cm,
    stride_cn,
    shared,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
    EVEN: tl.constexpr,
    EIGHTS: tl.constexpr = "",
):
    """Multiply two matrices in equal shares.

    Formula: ``C[m, n] = sum over k of A[m, k] * B[k, n]``.

    ======  ============================  ====================  ===================
    tensor  shape                         strides               dtype
    ======  ============================  ====================  ===================
    A       (M, K)                        stride_am, stride_ak  float16 or bfloat16
    B       (K, N)                        stride_bk, stride_bn  the same
    C       (M, N)                        stride_cm, stride_cn  the same
    parts   (programs, BLOCK_M, BLOCK_N)  contiguous            float32
    flags   (programs,)                   contiguous            int32, zero
    ======  ============================  ====================  ===================

    One program takes its share of the steps of the first `shared` tiles, and then every so many-th of the others.

    Numerics and limits: sums in float32; a shared tile is summed in as many pieces as it has programs, in a fixed
    order, and rounded once. Offsets inside a tile are 32-bit; a tile's origin is 64-bit. EVEN promises that tiles and
    steps fit the matrices exactly, and drops the masks of the loads. EIGHTS promises what
    `flopwatch.kernels.eights.eights` says.
    """
    if EIGHTS != "":
        M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm = in_eights(
            M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, EIGHTS
        )
    program = tl.program_id(0)
    programs = tl.num_programs(0)
    tiles_m = tl.cdiv(M, BLOCK_M)
    tiles_n = tl.cdiv(N, BLOCK_N)
    steps = tl.cdiv(K, BLOCK_K)
    rows = tl.arange(0, BLOCK_M)
    columns = tl.arange(0, BLOCK_N)
    depth = tl.arange(0, BLOCK_K)
    a_offsets = rows[:, None] * stride_am + depth[None, :] * stride_ak
    b_offsets = depth[:, None] * stride_bk + columns[None, :] * stride_bn
    a_step = BLOCK_K * tl.cast(stride_ak, tl.int64)
    b_step = BLOCK_K * tl.cast(stride_bk, tl.int64)
    part = rows[:, None] * BLOCK_N + columns[None, :]
    for index in range(_visits(program, programs, tiles_m * tiles_n, shared, steps)):
        tile, begin, end = _visit(index, program, programs, shared, steps)
        tile_m, tile_n = _tile_position(tile, tiles_m, tiles_n, GROUP_M)
        first_row = tile_m.to(tl.int64) * BLOCK_M
        first_column = tile_n.to(tl.int64) * BLOCK_N
        rows_left = M - tile_m * BLOCK_M
        columns_left = N - tile_n * BLOCK_N
        a_start = a_ptr + first_row * stride_am + begin * a_step
        b_start = b_ptr + first_column * stride_bn + begin * b_step
        accumulator = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for step in range(begin, end):
            if EVEN:
                a = tl.load(a_start + a_offsets)
                b = tl.load(b_start + b_offsets)
            else:
                inside = depth < K - step * BLOCK_K
                a = tl.load(a_start + a_offsets, mask=(rows < rows_left)[:, None] & inside[None, :], other=0.0)
                b = tl.load(b_start + b_offsets, mask=inside[:, None] & (columns < columns_left)[None, :], other=0.0)
            accumulator = tl.dot(a, b, accumulator)
            a_start += a_step
            b_start += b_step
        if end < steps:
            tl.store(parts_ptr + program.to(tl.int64) * (BLOCK_M * BLOCK_N) + part, accumulator, cache_modifier=".cg")
            tl.debug_barrier()  # every thread's part is there before one thread says so
            tl.atomic_xchg(flags_ptr + program, 1, sem="release")
        else:
            if begin > 0:
                for other in range(_first_contributor(tile, programs, shared, steps), program):
                    while tl.atomic_cas(flags_ptr + other, 1, 0, sem="acquire") == 0:
                        pass
                    accumulator += tl.load(
                        parts_ptr + tl.cast(other, tl.int64) * (BLOCK_M * BLOCK_N) + part, cache_modifier=".cg"
                    )
            c_tile = c_ptr + first_row * stride_cm + first_column * stride_cn
            tl.store(
                c_tile + rows[:, None] * stride_cm + columns[None, :] * stride_cn,
                accumulator.to(c_ptr.dtype.element_ty),
                mask=(rows < rows_left)[:, None] & (columns < columns_left)[None, :],
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class StreamKConfig:
    """How `stream_k_kernel` is compiled, and how its tiles are dealt out.

    Attributes:
        block_m: rows of a tile.
        block_n: columns of a tile.
        block_k: step along K.
        group_m: rows of tiles that are numbered together.
        balance: which tiles programs share.
        num_warps: warps per program.
        num_stages: steps of loads in flight.
    """

    block_m: int
    block_n: int
    block_k: int
    group_m: int = 8
    balance: Balance = Balance.WAVE
    num_warps: int
    num_stages: int

    def __str__(self) -> str:
        """Name it in a table, such as "plain 128x128x64 w8 s4 g8 wave"."""
        return (
            f"plain {self.block_m}x{self.block_n}x{self.block_k} w{self.num_warps} s{self.num_stages} "
            f"g{self.group_m} {self.balance.value}"
        )


#: To choose from: the only tiles that do not spill are small (sm_90, triton 3.7.1, 2026-11-22).
CANDIDATES = (StreamKConfig(block_m=64, block_n=128, block_k=64, num_warps=8, num_stages=4),)
#: By name.
STREAM_K = MappingProxyType({str(config): config for config in CANDIDATES})


def prepare_stream_k(
    a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, config: StreamKConfig, workspace: Workspace | None = None
) -> Prepared:
    """Prepare the launch of `stream_k_matmul` that writes `c`."""
    (M, K), N = a.shape, b.shape[1]
    schedule = Schedule.of(
        triton.cdiv(M, config.block_m) * triton.cdiv(N, config.block_n),
        triton.cdiv(K, config.block_k),
        slots=torch.cuda.get_device_properties(a.device).multi_processor_count,
        balance=config.balance,
    )
    tile_elements = config.block_m * config.block_n
    workspace = workspace_for(schedule, tile_elements, device=a.device, given=workspace)
    strides = (*a.stride(), *b.stride(), *c.stride())
    return Prepared(
        kernel=stream_k_kernel,
        grid=(schedule.programs,),
        arguments=(a, b, c, workspace.parts, workspace.flags, M, N, K, *strides, schedule.shared),
        constants={
            "BLOCK_M": config.block_m,
            "BLOCK_N": config.block_n,
            "BLOCK_K": config.block_k,
            "GROUP_M": config.group_m,
            "EVEN": M % config.block_m == N % config.block_n == K % config.block_k == 0,
            "EIGHTS": eights((M, N, K), a.stride(), b.stride(), c.stride()),
            "num_warps": config.num_warps,
            "num_stages": config.num_stages,
        },
        arrange=in_workspace(schedule, tile_elements, device=a.device),
    )


def stream_k_matmul(
    a: torch.Tensor, b: torch.Tensor, config: StreamKConfig, *, workspace: Workspace | None = None
) -> torch.Tensor:
    """Multiply ``a`` (M, K) by ``b`` (K, N), neither empty; any strides, no gradient.

    Args:
        a: float16 or bfloat16, on a CUDA device.
        b: the same dtype and device.
        config: how.
        workspace: for shared tiles; that of the current stream if None. Launches that may overlap need different ones.

    Returns:
        A contiguous (M, N) tensor of the same dtype.

    Raises:
        ValueError: the workspace is too small.
    """
    c = torch.empty((a.shape[0], b.shape[1]), device=a.device, dtype=a.dtype)
    with torch.cuda.device(a.device):
        prepare_stream_k(a, b, c, config, workspace).launch()
    return c

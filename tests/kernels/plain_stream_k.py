"""A product in equal shares, in plain Triton, which the interpreter runs as it does not run Gluon."""

# Triton types what it compiles, and ships no types:
# mypy: disable-error-code="no-untyped-def, untyped-decorator"
# ruff: noqa: ANN001, ANN202, PLR0917 - a kernel's arguments

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl

from flopwatch.kernels.stream_k import Balance, Schedule
from flopwatch.kernels.tiles import first_contributor, tile_position, visit, visits
from flopwatch.kernels.workspace import workspace_for

if TYPE_CHECKING:
    from flopwatch.kernels.workspace import Workspace

#: Rows, columns and step of a tile, and rows of tiles that are numbered together.
BLOCK_M, BLOCK_N, BLOCK_K, GROUP_M = 16, 32, 16, 2

_tile_position = triton.jit(tile_position)
_visits = triton.jit(visits)
_visit = triton.jit(visit)
_first_contributor = triton.jit(first_contributor)


@triton.jit(do_not_specialize=["shared"])
def _kernel(
    a_ptr,  # (M, K)
    b_ptr,  # (K, N)
    c_ptr,  # (M, N)
    parts_ptr,  # (programs, BLOCK_M, BLOCK_N), float32
    flags_ptr,  # (programs,), int32, zero
    M,
    N,
    K,
    shared,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
):
    program = tl.program_id(0)
    programs = tl.num_programs(0)
    tiles_m = tl.cdiv(M, BLOCK_M)
    tiles_n = tl.cdiv(N, BLOCK_N)
    steps = tl.cdiv(K, BLOCK_K)
    part = tl.arange(0, BLOCK_M)[:, None] * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    for index in range(_visits(program, programs, tiles_m * tiles_n, shared, steps)):
        tile, begin, end = _visit(index, program, programs, shared, steps)
        tile_m, tile_n = _tile_position(tile, tiles_m, tiles_n, GROUP_M)
        rows = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
        columns = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
        accumulator = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for step in range(begin, end):
            depth = step * BLOCK_K + tl.arange(0, BLOCK_K)
            of_a, of_b = depth[None, :], depth[:, None]
            a = tl.load(a_ptr + rows * K + of_a, mask=(rows < M) & (of_a < K), other=0.0)
            b = tl.load(b_ptr + of_b * N + columns, mask=(of_b < K) & (columns < N), other=0.0)
            accumulator = tl.dot(a, b, accumulator)
        if end < steps:
            tl.store(parts_ptr + program * (BLOCK_M * BLOCK_N) + part, accumulator, cache_modifier=".cg")
            tl.debug_barrier()  # every thread's part is there before one thread says so
            tl.atomic_xchg(flags_ptr + program, 1, sem="release")
        else:
            if begin > 0:
                for other in range(_first_contributor(tile, programs, shared, steps), program):
                    while tl.atomic_cas(flags_ptr + other, 1, 0, sem="acquire") == 0:
                        pass
                    accumulator += tl.load(parts_ptr + other * (BLOCK_M * BLOCK_N) + part, cache_modifier=".cg")
            inside = (rows < M) & (columns < N)
            tl.store(c_ptr + rows * N + columns, accumulator.to(c_ptr.dtype.element_ty), mask=inside)


def multiply(
    a: torch.Tensor, b: torch.Tensor, *, processors: int, balance: Balance, workspace: Workspace | None = None
) -> torch.Tensor:
    """Multiply contiguous (M, K) by (K, N) as a GPU of so many multiprocessors would, one program each."""
    (M, K), N = a.shape, b.shape[1]
    tiles = triton.cdiv(M, BLOCK_M) * triton.cdiv(N, BLOCK_N)
    schedule = Schedule.of(tiles, triton.cdiv(K, BLOCK_K), slots=processors, balance=balance)
    workspace = workspace_for(schedule, BLOCK_M * BLOCK_N, device=a.device, given=workspace)
    c = torch.empty((M, N), device=a.device, dtype=a.dtype)
    sizes = (M, N, K, schedule.shared, BLOCK_M, BLOCK_N, BLOCK_K, GROUP_M)
    _kernel[schedule.programs,](a, b, c, workspace.parts, workspace.flags, *sizes)
    return c

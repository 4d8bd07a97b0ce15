"""Products of float8 with scales by `hopper_matmul_kernel`: configurations, and the launch.

Chosen by `triton_matmul_fp8` where a table or a rule says so (`flopwatch.kernels.routes`).
"""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING

import torch

from flopwatch.kernels.hopper_matmul import TILES, HopperConfig, can_multiply, named, prepare_hopper

if TYPE_CHECKING:
    from flopwatch.kernels.launch import Arrange
    from flopwatch.kernels.prepared import Prepared
    from flopwatch.kernels.workspace import Workspace

#: Of 8 bits, 128 bytes of a row: as many as 64 elements of 16 bits, so that the tiles fit as they do in 16 bits. It is
#: also after how many products cuBLASLt and DeepGEMM add sums of the tensor cores in float32.
_DEPTH = 128
#: Elements of a tile that a thread may sum, where it needs them twice.
_MOST_PROMOTED = 64

#: Two tiles that store C otherwise than those below: 192x128 has room for all of it in place of a step, 128x128 has it
#: in one slice. Timed in ``evidence/h100/fp8-candidates-2026-11-25-roomier.json`` (docs/decisions/0009-room-for-c.md).
STORED_OTHERWISE = (
    HopperConfig(consumers=3, block_n=128, block_k=_DEPTH, stages=4, slices=2, c_buffers=2),
    HopperConfig(consumers=2, block_n=128, block_k=_DEPTH, stages=6),
)
#: Tiles to choose from.
FP8_TILES = (*(replace(tile, block_k=_DEPTH) for tile in TILES), *STORED_OTHERWISE)
#: Those of them whose sums of steps can be added in float32.
FP8_PROMOTED_TILES = tuple(tile for tile in FP8_TILES if tile.rows * tile.block_n <= _MOST_PROMOTED * 128)


#: All that may be chosen, by name, where the tensor cores sum along all of K, and where they do not.
FP8_CONFIGS = MappingProxyType({False: named(FP8_TILES), True: named(FP8_PROMOTED_TILES)})


def can_multiply_fp8(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> bool:
    """Tell whether `prepare_hopper_fp8` takes these: B by columns, rows at multiples of 16 bytes, C of 16 bits."""
    return a.dtype == torch.float8_e4m3fn and out.dtype in {torch.bfloat16, torch.float16} and can_multiply(a, b)


def prepare_hopper_fp8(  # noqa: PLR0917 - a product's operands
    a: torch.Tensor,
    b: torch.Tensor,
    out: torch.Tensor,
    scale_a: torch.Tensor,
    scale_b: torch.Tensor,
    config: HopperConfig,
    *,
    promotes: bool,
    workspace: Workspace | None = None,
) -> Prepared:
    """Prepare the launch that writes ``(a @ b) * scale_a * scale_b`` to `out`.

    Args:
        a: (M, K), float8_e4m3fn.
        b: (K, N), by columns; see `can_multiply_fp8`.
        out: (M, N), contiguous, bfloat16 or float16.
        scale_a: float32, contiguous: one element, or one for each row of a.
        scale_b: likewise one element, or one for each column of b.
        config: how.
        promotes: whether the sum of each step is added in float32.
        workspace: as of `hopper_matmul`.
    """
    unscaled = prepare_hopper(a, b, out, config, workspace)
    *pointers, _scale_a, _scale_b, M, N, K, shared = unscaled.arguments
    return replace(
        unscaled,
        arguments=(*pointers, scale_a, scale_b, M, N, K, shared),
        constants={
            **unscaled.constants,
            "PER_ROW": scale_a.numel() > 1,
            "PER_COLUMN": scale_b.numel() > 1,
            "PROMOTE": promotes,
        },
        arrange=None if unscaled.arrange is None else with_scales(unscaled.arrange),
    )


def with_scales(arrange: Arrange) -> Arrange:
    """Return what puts the scales behind what is arranged of A, B and C."""

    def arranged(stream: int, *given: int) -> tuple[tuple[int, ...], object]:
        *matrices, scale_a, scale_b = given
        pointers, held = arrange(stream, *matrices)
        return (*pointers, scale_a, scale_b), held

    return arranged

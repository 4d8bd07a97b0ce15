"""Products of few rows of float8 with scales, by `thin_matmul_kernel`: configurations, and the launch.

A product of so few rows takes as long as B takes to come from memory, if enough of it is on its way at all times: the
bandwidth times the time that a byte takes. Of an H200 that is 4.8 TB/s times, guessed, 1 us, or 36 KB for each of 132
multiprocessors; B of 4096 x 4096 is no more than 127 KB for each. So the rings below hold a third of that, or more.

Chosen by `triton_matmul_fp8` where a table or a rule says so (`flopwatch.kernels.routes`).
"""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from flopwatch.kernels.hopper_fp8 import with_scales
from flopwatch.kernels.thin_matmul import ThinConfig, named, prepare_thin

if TYPE_CHECKING:
    import torch

    from flopwatch.kernels.prepared import Prepared
    from flopwatch.kernels.workspace import Workspace

#: Rows of A that are thin: twice those of 16 bits, which take as many bytes.
MOST_FP8_ROWS = 128
#: The deepest step whose sum may be promoted: as many products as cuBLASLt and DeepGEMM sum in the tensor cores.
_DEPTH = 128

#: To choose from. Compiled for sm_90 on 2026-11-23 (triton 3.6.0 and 3.7.1), of 1 to 64 rows: wgmma of 8 to 64 columns,
#: copies of 16 bytes, no spills, no warning of ptxas that it serialises wgmma (C7510 to C7519). Raced on an H200 on
#: that day (``evidence/h200/fp8-candidates-2026-11-23.json``): the first won at 32 rows, the third at 64, 64x256 in one
#: piece at 1 to 16, 64x128 with 6 stages at 16x14336x4096. Of those that split K only 64x128 in halves with 12 stages
#: won, at 16 rows whose sums are promoted.
CANDIDATES = (
    # 128 tiles of 4096 columns, each one program's: nothing is left to add. 64, 60 and 48 KiB of B on their way.
    ThinConfig(block_n=32, block_k=256, splits=1, num_stages=9, upright=True),
    ThinConfig(block_n=32, block_k=128, splits=1, num_stages=16, upright=True),
    ThinConfig(block_n=32, block_k=512, splits=1, num_stages=4, upright=True),
    # 64 tiles, in halves: as many programs, whose rows take no more room than there are, and 88 to 96 KiB. Once with
    # twice the threads to copy and to add.
    ThinConfig(block_n=64, block_k=256, splits=2, num_stages=7),
    ThinConfig(block_n=64, block_k=128, splits=2, num_stages=12),
    ThinConfig(block_n=64, block_k=128, splits=2, num_warps=8, num_stages=12),
    # Two programs a multiprocessor, one of which begins while the other ends: quarters, and more than 4096 columns.
    ThinConfig(block_n=64, block_k=256, splits=4, num_stages=3),
    ThinConfig(block_n=64, block_k=128, splits=4, num_stages=6),
    ThinConfig(block_n=64, block_k=128, splits=1, num_stages=6),
    ThinConfig(block_n=32, block_k=128, splits=1, num_stages=8, upright=True),
    # Half as many programs, with 96 KiB each, and nothing to add.
    ThinConfig(block_n=64, block_k=256, splits=1, num_stages=7),
    # A is read half as often, and parts are as many.
    ThinConfig(block_n=128, block_k=128, splits=4, num_stages=8),
)
#: Likewise for more rows than 64: 128 tiles of 8192 columns, and B is read by one program each, not by one for every 64
#: rows. None of them won at 128x8192x8192.
WIDE = (
    ThinConfig(block_n=64, block_k=128, splits=1, num_stages=9),
    ThinConfig(block_n=64, block_k=128, splits=1, num_warps=8, num_stages=9),
    ThinConfig(block_n=64, block_k=256, splits=1, num_warps=8, num_stages=4),
)
#: All that may be chosen, by name, where the tensor cores sum along all of K, and where they do not.
THIN_FP8 = MappingProxyType(
    {
        promotes: named(config for config in (*CANDIDATES, *WIDE) if not promotes or config.block_k <= _DEPTH)
        for promotes in (False, True)
    }
)


def prepare_thin_fp8(  # noqa: PLR0917 - a product's operands
    a: torch.Tensor,
    b: torch.Tensor,
    out: torch.Tensor,
    scale_a: torch.Tensor,
    scale_b: torch.Tensor,
    config: ThinConfig,
    *,
    promotes: bool,
    workspace: Workspace | None = None,
) -> Prepared:
    """Prepare the launch that writes ``(a @ b) * scale_a * scale_b`` to `out`.

    Args:
        a: (M, K), float8_e4m3fn, of up to `MOST_FP8_ROWS` rows.
        b: (K, N), of the same dtype; what is fast lies by columns.
        out: (M, N), bfloat16, float16 or float32.
        scale_a: float32, contiguous: one element, or one for each row of a.
        scale_b: likewise one element, or one for each column of b.
        config: how.
        promotes: whether the sum of each step is added in float32.
        workspace: as of `flopwatch.kernels.thin_matmul.thin_matmul`.
    """
    unscaled = prepare_thin(a, b, out, config, workspace)
    a_ptr, b_ptr, c_ptr, parts, arrived, _scale_a, _scale_b, *numbers = unscaled.arguments
    return replace(
        unscaled,
        arguments=(a_ptr, b_ptr, c_ptr, parts, arrived, scale_a, scale_b, *numbers),
        constants={
            **unscaled.constants,
            "PER_ROW": scale_a.numel() > 1,
            "PER_COLUMN": scale_b.numel() > 1,
            "PROMOTE": promotes,
        },
        arrange=None if unscaled.arrange is None else with_scales(unscaled.arrange),
    )

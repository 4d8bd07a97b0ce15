"""Products of float8_e4m3fn operands beside torch._scaled_mm, which is cuBLASLt."""

from __future__ import annotations

from typing import Any, ClassVar

import torch

from evidence.peer_shapes import FP8_FEW, FP8_SCALES, FP8_SUMS, MATMUL_FP8
from flopwatch.kernels import triton_matmul_fp8

from . import BUNDLED

_MatmulFp8 = BUNDLED["MatmulFp8"]


def _scaled_mm(*inputs: Any) -> torch.Tensor:  # noqa: ANN401 - whatever the suite's `inputs` makes
    a, b, scale_a, scale_b, is_fast = inputs
    return torch._scaled_mm(  # noqa: SLF001 - it has no public name
        a, b, scale_a, scale_b, out_dtype=torch.bfloat16, use_fast_accum=is_fast
    )


class PeerMatmulFp8(_MatmulFp8):  # type: ignore[misc, valid-type] # discovered, not imported
    """C = (A @ B) * scale_a * scale_b in bfloat16, B stored by columns; `shape` is MxNxK, `sums` both sides' alike."""

    params: ClassVar = (MATMUL_FP8, ("float8_e4m3fn",), FP8_SCALES, FP8_SUMS)
    param_names: ClassVar = ("shape", "dtype", "scales", "sums")
    providers: ClassVar = {"torch": _scaled_mm}
    skip_params: ClassVar = tuple(
        (shape, "float8_e4m3fn", scales, sums, provider)
        for shape in MATMUL_FP8
        for scales, sums in (("row", "fast"), ("tensor", "float32"), ("row", "float32"))
        if shape not in FP8_FEW
        for provider in ("flopwatch", "torch")
    )
    recorded: ClassVar = False
    #: The bundled suite, whose sums are added in float32, holds both to 2. Fast sums have some 14 bits all along K, and
    #: 16384 products add up to a few units of bfloat16, in cuBLASLt as in ours.
    max_diff_eps: ClassVar = 8.0

    def inputs(self, *values: str, seed: int) -> tuple[Any, ...]:
        """Draw what the bundled suite draws; whether sums are fast goes along."""
        *bundled, sums = values
        return (*super().inputs(*bundled, seed=seed), sums == "fast")

    def run(self, *inputs: Any) -> torch.Tensor:  # noqa: ANN401 - whatever `inputs` makes
        """Call the bundled kernel."""
        a, b, scale_a, scale_b, is_fast = inputs
        return triton_matmul_fp8(a, b, scale_a, scale_b, torch.bfloat16, use_fast_accum=is_fast)

    def reference(self, *inputs: Any) -> torch.Tensor:  # noqa: ANN401 - likewise
        """Multiply in float64."""
        *operands, _is_fast = inputs
        exact: torch.Tensor = super().reference(*operands)
        return exact

    def flops(self, *values: str) -> float:
        """Count as the bundled suite."""
        return float(super().flops(*values[:-1]))

    def bytes_moved(self, *values: str) -> float:
        """Count as the bundled suite."""
        return float(super().bytes_moved(*values[:-1]))

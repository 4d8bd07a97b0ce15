"""The suite of the matmul kernel."""

from __future__ import annotations

from typing import ClassVar

import torch

from flopwatch import Suite
from flopwatch.kernels import triton_matmul
from flopwatch.kernels.reference import matmul_reference

SHAPES = (
    "512x512x512",
    "1024x1024x1024",
    "2048x2048x2048",
    "4096x4096x4096",
    "8192x8192x8192",
    "16x4096x4096",
    "1000x1000x1000",
)
#: bfloat16 runs through the same kernel: a small, a large, a skinny and an odd shape are enough to see it differ.
BFLOAT16_SHAPES = ("1024x1024x1024", "4096x4096x4096", "16x4096x4096", "1000x1000x1000")


def _sizes(shape: str) -> tuple[int, int, int]:
    m, n, k = map(int, shape.split("x"))
    return m, n, k


class Matmul(Suite):
    """C = A @ B, row-major; `shape` is MxNxK."""

    params = (SHAPES, ("float16", "bfloat16"))
    param_names = ("shape", "dtype")
    small: ClassVar = {"shape": "33x65x47"}
    providers: ClassVar = {"torch": torch.matmul}
    skip_params = (
        *((shape, "bfloat16", "flopwatch") for shape in SHAPES if shape not in BFLOAT16_SHAPES),
        *((shape, "bfloat16", "torch") for shape in SHAPES),
    )
    #: Rounding the result costs up to half a unit, summing in float32 next to nothing: 0.44 at most in 8 interpreted
    #: products of up to 300x256x129 (triton 3.7.1, 2026-11-20). 2 leaves room for other orders of summing.
    max_diff_eps = 2.0

    def inputs(self, *values: str, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Draw A (M, K) and B (K, N) from a normal distribution."""
        shape, dtype = values
        m, n, k = _sizes(shape)
        generator = torch.Generator(device="cuda").manual_seed(seed)
        a = torch.randn(m, k, device="cuda", generator=generator).to(getattr(torch, dtype))
        b = torch.randn(k, n, device="cuda", generator=generator).to(getattr(torch, dtype))
        return a, b

    def run(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        """Call the bundled kernel."""
        return triton_matmul(a, b)

    def reference(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        """Multiply in float64."""
        return matmul_reference(a, b)

    def flops(self, *values: str) -> float:
        """Count a multiplication and an addition for each of M * N * K."""
        shape, _dtype = values
        m, n, k = _sizes(shape)
        return 2.0 * m * n * k

    def bytes_moved(self, *values: str) -> float:
        """Count A, B and C once each."""
        shape, dtype = values
        m, n, k = _sizes(shape)
        return float((m * k + k * n + m * n) * getattr(torch, dtype).itemsize)

"""The suites of the matmul kernel.

Each is a full product of its parameters but for `Matmul`, whose shapes are those of the recorded history.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import torch

from flopwatch import Suite
from flopwatch.kernels import triton_matmul
from flopwatch.kernels.reference import matmul_reference

if TYPE_CHECKING:
    from collections.abc import Sequence

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
#: A result has 16 bits whatever the operands have.
RESULT_BYTES = 2


def _sizes(shape: str) -> tuple[int, int, int]:
    m, n, k = map(int, shape.split("x"))
    return m, n, k


def _draw(rows: int, columns: int, dtype: str, generator: torch.Generator, *, transposed: bool) -> torch.Tensor:
    """Draw a (rows, columns) matrix from a normal distribution, stored by columns if `transposed`."""
    size = (columns, rows) if transposed else (rows, columns)
    stored = torch.randn(size, device="cuda", generator=generator).to(getattr(torch, dtype))
    return stored.T if transposed else stored


class Matmul(Suite):
    """C = A @ B, row-major; `shape` is MxNxK."""

    params: ClassVar[Sequence[Sequence[str]]] = (SHAPES, ("float16", "bfloat16"))
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
    #: Which operands, of "a" and "b", are stored by columns.
    transposed: ClassVar[str] = ""

    def inputs(self, *values: str, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Draw A (M, K) and B (K, N) from a normal distribution."""
        shape, dtype = values
        m, n, k = _sizes(shape)
        generator = torch.Generator(device="cuda").manual_seed(seed)
        a = _draw(m, k, dtype, generator, transposed="a" in self.transposed)
        b = _draw(k, n, dtype, generator, transposed="b" in self.transposed)
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
        return float((m * k + k * n) * getattr(torch, dtype).itemsize + m * n * RESULT_BYTES)


class MatmulSizes(Matmul):
    """C = A @ B at sizes that tiles, or waves of tiles, do not fit; `shape` is MxNxK."""

    params = (
        (
            "256x256x256",
            "768x768x768",
            "1536x1536x1536",
            "3072x3072x3072",
            "6144x6144x6144",
            "1023x1025x1027",
            "777x1234x5678",
            "4095x4097x4099",
            "320x2049x4099",
            "8192x8192x128",
            "1024x1024x16384",
        ),
        ("float16",),
    )
    providers: ClassVar = {}


class Linear(Matmul):
    """Y = X @ W.T as in a language model's layers, W being row-major; `shape` is tokens x outputs x inputs.

    From decoding one token to training on thousands; 50304 outputs are the vocabulary of GPT-2, padded.
    """

    params = (
        (
            "1x4096x4096",
            "64x4096x4096",
            "16x14336x4096",
            "128x8192x8192",
            "512x4096x4096",
            "2048x4096x14336",
            "4096x11008x4096",
            "1024x50304x768",
        ),
        ("bfloat16",),
    )
    small: ClassVar = {"shape": "5x70x48"}
    transposed: ClassVar[str] = "b"


class WeightGradient(Matmul):
    """dW = dY.T @ X, the gradient of a linear layer's weights; `shape` is outputs x inputs x tokens."""

    params = (("2048x2048x2048", "768x768x8192", "4096x11008x2048"), ("float16",))
    small: ClassVar = {"shape": "34x50x33"}
    providers: ClassVar = {}
    transposed: ClassVar[str] = "a"


class Float32Matmul(Matmul):
    """C = A @ B of float32 operands, which are rounded to float16, as C is; `shape` is MxNxK."""

    params = (("256x256x256", "1024x1024x1024", "4096x4096x4096"), ("float32",))
    providers: ClassVar = {}

"""The suite of the float8 matmul kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import torch

from flopwatch import Suite
from flopwatch.kernels import triton_matmul_fp8
from flopwatch.kernels.reference import matmul_reference

if TYPE_CHECKING:
    from collections.abc import Sequence

SHAPES = ("1024x1024x1024", "4096x4096x4096", "8192x8192x8192", "128x8192x8192")
#: Scales of rows and columns change the end of a program alone; one shape of them is enough.
ROW_SHAPE = "4096x4096x4096"
SCALE_BYTES = 4
#: The result is bfloat16.
RESULT_BYTES = 2


def _sizes(shape: str) -> tuple[int, int, int]:
    m, n, k = map(int, shape.split("x"))
    return m, n, k


def _scaled_mm(a: torch.Tensor, b: torch.Tensor, scale_a: torch.Tensor, scale_b: torch.Tensor) -> torch.Tensor:
    """Call cuBLASLt, which needs compute capability 8.9, and for scales of rows 9.0."""
    product: torch.Tensor = torch._scaled_mm(a, b, scale_a, scale_b, out_dtype=torch.bfloat16)  # noqa: SLF001 - has no public name
    return product


class MatmulFp8(Suite):
    """C = (A @ B) * scale_a * scale_b in bfloat16, B column-major; `shape` is MxNxK.

    Neither side uses fast accumulation: both add sums of the tensor cores in float32 now and then.
    """

    params: ClassVar[Sequence[Sequence[str]]] = (SHAPES, ("float8_e4m3fn",), ("tensor", "row"))
    param_names = ("shape", "dtype", "scales")
    #: What torch._scaled_mm takes too: N and K are multiples of 16.
    small: ClassVar = {"shape": "33x80x48"}
    providers: ClassVar = {"torch": _scaled_mm}
    skip_params = tuple(
        (shape, "float8_e4m3fn", "row", provider)
        for shape in SHAPES
        if shape != ROW_SHAPE
        for provider in ("flopwatch", "torch")
    )
    #: Rounding the result costs up to half a unit. Sums of 14 bits cost little beside: in a step of 128 products an
    #: instruction loses at most 2**-13 of the largest term, of about 2**4 for normal numbers, from each of 33 terms;
    #: if errors are independent, that is 0.02 a step and 0.15 in the 64 steps of K = 8192, where a unit is 3.5. 2
    #: leaves room for other orders of summing. Sums in 14 bits along all of K would err by several units.
    max_diff_eps = 2.0

    def inputs(self, *values: str, seed: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        """Draw A (M, K) and B (K, N) from a normal distribution, and scales between 0.5 and 1.5."""
        shape, dtype, scales = values
        m, n, k = _sizes(shape)
        generator = torch.Generator(device="cuda").manual_seed(seed)
        a, b_columns = (
            torch.randn(rows, k, device="cuda", generator=generator).to(getattr(torch, dtype)) for rows in (m, n)
        )
        scale_a, scale_b = (
            0.5 + torch.rand(size, device="cuda", generator=generator)
            for size in (((m, 1), (1, n)) if scales == "row" else ((), ()))
        )
        return a, b_columns.T, scale_a, scale_b

    def run(self, a: torch.Tensor, b: torch.Tensor, scale_a: torch.Tensor, scale_b: torch.Tensor) -> torch.Tensor:
        """Call the bundled kernel."""
        return triton_matmul_fp8(a, b, scale_a, scale_b)

    def reference(self, a: torch.Tensor, b: torch.Tensor, scale_a: torch.Tensor, scale_b: torch.Tensor) -> torch.Tensor:
        """Multiply in float64."""
        return matmul_reference(a, b) * scale_a * scale_b

    def flops(self, *values: str) -> float:
        """Count a multiplication and an addition for each of M * N * K."""
        shape, _dtype, _scales = values
        m, n, k = _sizes(shape)
        return 2.0 * m * n * k

    def bytes_moved(self, *values: str) -> float:
        """Count A, B, C and the scales once each."""
        shape, dtype, scales = values
        m, n, k = _sizes(shape)
        factors = m + n if scales == "row" else 2
        return float((m * k + k * n) * getattr(torch, dtype).itemsize + m * n * RESULT_BYTES + factors * SCALE_BYTES)

"""The suite of the vector addition kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import torch

from flopwatch import Suite
from flopwatch.kernels import vector_add
from flopwatch.kernels.reference import vector_add_reference

if TYPE_CHECKING:
    from collections.abc import Sequence


class VectorAdd(Suite):
    """out = x + y: bound by launch cost when small, by memory bandwidth when large."""

    params: ClassVar[Sequence[Sequence[str]]] = (("1048576", "67108864"), ("float32", "float16"))
    param_names = ("n", "dtype")
    small: ClassVar = {"n": "1001"}
    providers: ClassVar = {"torch": torch.add}
    skip_params = tuple(("67108864", "float16", provider) for provider in ("flopwatch", "torch"))
    #: A sum that is rounded once is at most half a unit away, by definition.
    max_diff_eps = 0.5

    def inputs(self, *values: str, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Draw both vectors from a normal distribution."""
        n, dtype = values
        generator = torch.Generator(device="cuda").manual_seed(seed)
        x, y = (torch.randn(int(n), device="cuda", generator=generator).to(getattr(torch, dtype)) for _ in range(2))
        return x, y

    def run(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Call the bundled kernel."""
        return vector_add(x, y)

    def reference(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Add in float64."""
        return vector_add_reference(x, y)

    def flops(self, *values: str) -> float:
        """Count one addition an element."""
        n, _dtype = values
        return float(n)

    def bytes_moved(self, *values: str) -> float:
        """Count two inputs and one output."""
        n, dtype = values
        return float(3 * int(n) * getattr(torch, dtype).itemsize)


class VectorAddSizes(VectorAdd):
    """out = x + y from a vector that one wave of programs adds to one far larger than the L2 cache."""

    params = (("65536", "4194304", "16777216", "268435456"), ("bfloat16",))
    providers: ClassVar = {}

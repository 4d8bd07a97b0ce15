"""A launch that is prepared: to be made, or only compiled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from flopwatch.kernels.launch import Arrange, Launched
from flopwatch.kernels.launcher import build_beside


@dataclass(frozen=True, kw_only=True, slots=True)
class Prepared:
    """A launch: what of which kernel, with what.

    Attributes:
        kernel: compiled by Triton.
        grid: its programs.
        arguments: in their order: tensors and descriptors, then numbers.
        constants: it is compiled for, and options.
        arrange: makes the addresses of a later launch's tensors of its stream and those of its operands and its output;
            None where they are the same.
    """

    kernel: Any
    grid: tuple[int, ...]
    arguments: tuple[Any, ...]
    constants: dict[str, Any]
    arrange: Arrange | None = None

    def launch(self) -> Launched:
        """Launch on the current stream."""
        build_beside(self.kernel)
        compiled = self.kernel[self.grid](*self.arguments, **self.constants)
        pointers = sum(not isinstance(argument, int | float | None) for argument in self.arguments)
        return Launched(
            compiled=compiled,
            grid=self.grid,
            pointers=pointers,
            numbers=self.arguments[pointers:],
            descriptors={place: each for place, each in enumerate(self.arguments) if hasattr(each, "block_shape")},
            arrange=self.arrange,
        )

    def compile(self) -> None:
        """Compile into Triton's cache, and launch nothing."""
        self.kernel.warmup(*self.arguments, grid=self.grid, **self.constants)

"""A suite for each planted fault; what each is called in the table stands in `evidence.sanitizers`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import torch
import triton

from flopwatch import Suite

from . import kernels

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Elements a program takes; no multiple of it is the length.
BLOCK = 128


class Sound(Suite):
    """A kernel in which nothing is wrong, and what the other suites have in common."""

    params: ClassVar[Sequence[Sequence[str]]] = (("1000",),)
    param_names = ("n",)
    kernel: ClassVar[Any] = kernels.sound_kernel

    def inputs(self, *values: str, seed: int) -> tuple[Any, ...]:
        """Draw a vector."""
        generator = torch.Generator(device="cuda").manual_seed(seed)
        return (torch.randn(int(values[0]), device="cuda", generator=generator),)

    def run(self, *inputs: Any) -> torch.Tensor:  # noqa: ANN401 - whatever `inputs` makes
        """Launch the kernel."""
        x, *rest = inputs
        out = torch.empty_like(x)
        self.kernel[(triton.cdiv(x.numel(), BLOCK),)](x, *rest, out, x.numel(), BLOCK=BLOCK)
        return out

    def reference(self, *inputs: Any) -> torch.Tensor:  # noqa: ANN401 - whatever `inputs` makes
        """Double it in float64."""
        doubled: torch.Tensor = 2 * inputs[0].double()
        return doubled

    def flops(self, *values: str) -> float:
        """Count one an element."""
        return float(values[0])

    def bytes_moved(self, *values: str) -> float:
        """Count each vector once."""
        return 8.0 * float(values[0])


class Load(Sound):
    """Loads one element behind the tensor."""

    kernel = kernels.load_kernel

    def reference(self, *inputs: Any) -> torch.Tensor:  # noqa: ANN401 - whatever `inputs` makes
        """Double the neighbours, as was meant; behind the last one there is nothing."""
        return torch.cat([2 * inputs[0].double()[1:], torch.zeros(1, device="cuda", dtype=torch.float64)])


class Neighbour(Load):
    """Loads one element behind the tensor, where another begins."""

    kernel = kernels.neighbour_kernel

    def inputs(self, *values: str, seed: int) -> tuple[Any, ...]:
        """Draw two vectors that lie side by side in one allocation."""
        generator = torch.Generator(device="cuda").manual_seed(seed)
        x, y = torch.randn(2, int(values[0]), device="cuda", generator=generator)
        return x, y


class Store(Sound):
    """Stores one element behind the tensor."""

    kernel = kernels.store_kernel


class Mask(Sound):
    """Loads without a mask what is not used."""

    kernel = kernels.mask_kernel


class Gather(Sound):
    """Loads by an index, read from memory, that is too large."""

    kernel = kernels.gather_kernel

    def inputs(self, *values: str, seed: int) -> tuple[Any, ...]:
        """Draw a vector, and indices of which one is too large."""
        n = int(values[0])
        index = torch.arange(n, dtype=torch.int32, device="cuda")
        index[n // 2] = n
        return (*super().inputs(*values, seed=seed), index)


class View(Sound):
    """Loads beside the columns of a view."""

    params = (("96",),)
    kernel = kernels.rows_kernel

    def inputs(self, *values: str, seed: int) -> tuple[Any, ...]:
        """Draw a matrix of ten columns beside six others'."""
        generator = torch.Generator(device="cuda").manual_seed(seed)
        return (torch.randn(int(values[0]), 16, device="cuda", generator=generator)[:, :10],)

    def run(self, *inputs: Any) -> torch.Tensor:  # noqa: ANN401 - whatever `inputs` makes
        """Launch the kernel."""
        (x,) = inputs
        out = torch.empty(x.shape[0], device="cuda")
        self.kernel[(x.shape[0],)](x, out, x.stride(0), BLOCK=16)
        return out

    def reference(self, *inputs: Any) -> torch.Tensor:  # noqa: ANN401 - whatever `inputs` makes
        """Sum in float64."""
        total: torch.Tensor = inputs[0].double().sum(dim=1)
        return total


class Accumulate(Sound):
    """Loads what nobody has written."""

    kernel = kernels.accumulate_kernel


class Short(Sound):
    """Launches one program too few."""

    def run(self, *inputs: Any) -> torch.Tensor:  # noqa: ANN401 - whatever `inputs` makes
        """Launch the kernel, with too small a grid."""
        (x,) = inputs
        out = torch.empty_like(x)
        self.kernel[(x.numel() // BLOCK,)](x, out, x.numel(), BLOCK=BLOCK)
        return out


class Race(Sound):
    """Stores from several programs to one place."""

    kernel = kernels.race_kernel

    def run(self, *inputs: Any) -> torch.Tensor:  # noqa: ANN401 - whatever `inputs` makes
        """Launch the kernel."""
        (x,) = inputs
        out = torch.empty(1, device="cuda")
        self.kernel[(triton.cdiv(x.numel(), BLOCK),)](x, out, x.numel(), BLOCK=BLOCK)
        return out

    def reference(self, *inputs: Any) -> torch.Tensor:  # noqa: ANN401 - whatever `inputs` makes
        """Sum in float64."""
        total: torch.Tensor = 2 * inputs[0].double().sum().reshape(1)
        return total


class Shift(Sound):
    """Loads what another program stores."""

    kernel = kernels.shift_kernel

    def run(self, *inputs: Any) -> torch.Tensor:  # noqa: ANN401 - whatever `inputs` makes
        """Launch the kernel on a copy."""
        x: torch.Tensor = inputs[0].clone()
        self.kernel[(triton.cdiv(x.numel(), BLOCK),)](x, x.numel(), BLOCK=BLOCK)
        return x

    def reference(self, *inputs: Any) -> torch.Tensor:  # noqa: ANN401 - whatever `inputs` makes
        """Double the neighbours."""
        return torch.cat([2 * inputs[0].double()[1:], torch.zeros(1, device="cuda", dtype=torch.float64)])


class Handover(Sound):
    """Shares memory between warps that do not wait for each other."""

    kernel = kernels.handover_kernel


class Barrier(Sound):
    """Has some threads of a warp wait for all."""

    kernel = kernels.barrier_kernel

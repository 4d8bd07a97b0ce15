"""Outputs poisoned before a kernel writes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.overrides import TorchFunctionMode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_ALLOCATORS = frozenset({"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided"})


class Allocations(TorchFunctionMode):
    """Is told what `torch.empty` and its relatives return."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> object:
        """Call `func`; tell what it allocates."""
        result = func(*args, **(kwargs or {}))
        if getattr(func, "__name__", "") in _ALLOCATORS and isinstance(result, torch.Tensor):
            self.allocated(result)
        return result

    def allocated(self, tensor: torch.Tensor) -> None:
        """Hear of a tensor, any shape and dtype, that nobody has written yet."""
        raise NotImplementedError


class PoisonedAllocations(Allocations):
    """Fill what `torch.empty` and its relatives return with NaN, so that an element never written shows."""

    def allocated(self, tensor: torch.Tensor) -> None:
        """Poison it."""
        if not tensor.numel():
            return
        if tensor.dtype.is_floating_point:
            tensor.fill_(float("nan"))
        elif tensor.dtype not in (torch.bool, torch.uint8):
            tensor.fill_(torch.iinfo(tensor.dtype).max)

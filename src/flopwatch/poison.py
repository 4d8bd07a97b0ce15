"""Outputs poisoned before a kernel writes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.overrides import TorchFunctionMode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_ALLOCATORS = frozenset({"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided"})


class PoisonedAllocations(TorchFunctionMode):
    """Fill what `torch.empty` and its relatives return with NaN, so that an element never written shows."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> object:
        """Call `func`; poison what it allocates."""
        result = func(*args, **(kwargs or {}))
        if getattr(func, "__name__", "") in _ALLOCATORS and isinstance(result, torch.Tensor) and result.numel():
            if result.dtype.is_floating_point:
                result.fill_(float("nan"))
            elif result.dtype not in (torch.bool, torch.uint8):
                result.fill_(torch.iinfo(result.dtype).max)
        return result

"""Operators that Python code registers with torch, which run what they run on a GPU.

``torch.library.custom_op`` and ``triton_op`` hand a function to torch's dispatcher, which calls it outside of all torch
function modes. For meta tensors it calls another function instead, one that knows shapes and launches nothing.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import torch
from torch._ops import OpOverload, OpOverloadPacket

if TYPE_CHECKING:
    import contextlib
    from collections.abc import Callable

# Their kernels are torch's own, which are not of interest, and their shapes are known.
_OF_TORCH = frozenset({"aten", "prim", "prims", "quantized", "inductor"})
# Registered under this key, an operator is made of others.
_COMPOSITE = "CompositeImplicitAutograd"


class Operators:
    """Let registered operators run their own code for tensors that pretend to be on a GPU; `restore` ends it.

    Args:
        on_gpu: tells whether any tensor in some values pretends to be there.
        again: enters the modes that torch leaves behind.
        restore: closes when nothing is pretended any more.
    """

    def __init__(
        self,
        on_gpu: Callable[..., bool],
        again: Callable[[], contextlib.AbstractContextManager[object]],
        restore: contextlib.ExitStack,
    ) -> None:
        self._on_gpu = on_gpu
        self._again = again
        self._restore = restore
        self._prepared: set[str] = set()

    def prepare(self, func: object) -> None:
        """Have pretended tensors take the way of a GPU's, if `func` is an operator that has one."""
        match func:
            case OpOverload():
                self._prepare_one(func)
            case OpOverloadPacket():
                for name in func.overloads():
                    self._prepare_one(getattr(func, name))

    def _prepare_one(self, operator: OpOverload[..., Any]) -> None:
        name = operator.name()
        if operator.namespace in _OF_TORCH or name in self._prepared:
            return
        self._prepared.add(name)
        gpu, host = _kernel(operator, "CUDA"), _kernel(operator, "CPU")
        composite = torch._C._dispatch_has_kernel_for_dispatch_key(name, _COMPOSITE)  # noqa: SLF001 - no public name
        if gpu is None:
            return

        def implementation(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - the operator's
            kernel = gpu if self._on_gpu(args, kwargs) else host
            if kernel is None:
                raise NotImplementedError(f"Could not run '{name}' with arguments from the 'CPU' backend.")
            with self._again():
                return kernel(*args, **kwargs)

        library = torch.library.Library(operator.namespace, "IMPL")
        self._restore.callback(library._destroy)  # noqa: SLF001 - no public name
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that another function stood there is the point
            for key in [_COMPOSITE] if composite else ["Meta", "CPU"]:
                library.impl(name, implementation, key, allow_override=True)


def _kernel(operator: OpOverload[..., Any], key: str) -> Callable[..., Any] | None:
    """Return what an operator runs for tensors of one backend; None where it can not."""
    try:
        kernel = torch.library.get_kernel(operator, key)
    except RuntimeError:
        return None
    keys = torch._C.DispatchKeySet(torch._C.DispatchKey.__members__[key])  # noqa: SLF001 - no public name
    return lambda *args, **kwargs: kernel.call_boxed(keys, *args, **kwargs)

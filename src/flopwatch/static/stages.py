"""Triton's compiler, which stops where a kernel turns out not to fit the device.

How much shared memory a kernel takes is known once its tensors are lowered, before LLVM optimizes it and allocates
registers, or ptxas does. Nobody can launch one that takes too much, and all that is told of it is that it does not fit.
Of the bundled suites' 135 configurations 57 do not fit an MI300X, and they took 54 % of the time of compiling for it
(triton 3.7.1, 2026-11-22).
"""

from __future__ import annotations

import functools
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from triton._C.libtriton import llvm
from triton.backends import backends

if TYPE_CHECKING:
    import contextlib
    from collections.abc import Callable

    from flopwatch.static.device import Device

# The stage that makes LLVM's text of a module in MLIR, and that module's own number of bytes (Triton 3.6 to 3.9).
_LOWERING = "llir"
_SHARED = "ttg.shared"

_lowered: ContextVar[Any] = ContextVar("_lowered", default=None)


def stop_where_unfit(device: Device, restore: contextlib.ExitStack) -> None:
    """Patch Triton's backends to make no code of a kernel that takes more shared memory than a block can have.

    Its texts from there on are empty, and so is its binary; Triton refuses to load it by its metadata, as it does on a
    GPU.
    """
    most_bytes = device.max_shared_bytes_per_block
    for backend in backends.values():
        restore.callback(setattr, backend.compiler, "add_stages", backend.compiler.add_stages)
        backend.compiler.add_stages = _stopping(backend.compiler.add_stages, most_bytes)
    restore.callback(setattr, llvm, "optimize_module", llvm.optimize_module)
    llvm.optimize_module = _optimizing(llvm.optimize_module, most_bytes)


def _stopping(original: Callable[..., None], most_bytes: int) -> Callable[..., None]:
    def add_stages(backend: Any, stages: dict[str, Callable[..., Any]], *options: object) -> None:  # noqa: ANN401 - untyped triton
        original(backend, stages, *options)
        names = list(stages)
        if _LOWERING not in names:
            return  # of a backend that is none of Triton's own
        for name in names[names.index(_LOWERING) + 1 :]:
            nothing = b"" if name == backend.binary_ext else ""
            stages[name] = functools.partial(_code, stages[name], most_bytes, nothing)
        stages[_LOWERING] = functools.partial(_lower, stages[_LOWERING])

    return add_stages


def _lower(stage: Callable[..., str], module: Any, metadata: dict[str, Any]) -> str:  # noqa: ANN401 - untyped triton
    """Lower a module, for `_optimizing` to ask; keep its name, which Triton else reads in the assembler's text."""
    metadata["name"] = module.get_entry_func_name()
    token = _lowered.set(module)
    try:
        return stage(module, metadata)
    finally:
        _lowered.reset(token)


def _optimizing(original: Callable[..., None], most_bytes: int) -> Callable[..., None]:
    def optimize_module(*arguments: object, **named: object) -> None:
        module = _lowered.get()
        if module is None or (module.get_int_attr(_SHARED) or 0) <= most_bytes:
            original(*arguments, **named)

    return optimize_module


def _code(
    stage: Callable[..., str | bytes],
    most_bytes: int,
    nothing: str | bytes,
    source: str,
    metadata: dict[str, Any],
) -> str | bytes:
    return stage(source, metadata) if (metadata.get("shared") or 0) <= most_bytes else nothing

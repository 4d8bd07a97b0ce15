"""Watch every access of interpreted kernels: whether it stays in its tensor, reads what was written, and races.

Nothing stops a kernel at its first fault: a stray read is not done, and yields what its mask would, a stray write is
not done either, and the kernel runs on, so that one run tells all.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
from typing import TYPE_CHECKING, Any

import numpy as np
from triton.runtime import interpreter

from flopwatch.poison import Allocations
from flopwatch.sanitize.accesses import Attempt, Guard
from flopwatch.sanitize.findings import Access

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import torch

    from flopwatch.sanitize.buffers import Bits


class _Noted(Allocations):
    """Have the guard know what `torch.empty` and its relatives return."""

    def __init__(self, guard: Guard) -> None:
        super().__init__()
        self._guard = guard

    def allocated(self, tensor: torch.Tensor) -> None:
        self._guard.buffers.allocated(tensor)


@contextlib.contextmanager
def guarded() -> Iterator[Guard]:
    """Watch what interpreted kernels do, where a GPU is pretended with values.

    Memory that is allocated inside is unwritten until somebody writes it.
    """
    guard = Guard()
    with contextlib.ExitStack() as restore:
        for owner, name, make in _patches(guard):
            original = getattr(owner, name)
            restore.callback(setattr, owner, name, original)
            setattr(owner, name, make(original))
        restore.enter_context(_Noted(guard))
        yield guard


def _patches(guard: Guard) -> Iterator[tuple[Any, str, Callable[[Any], Any]]]:
    builder, executor = interpreter.InterpreterBuilder, interpreter.GridExecutor
    yield executor, "_init_args_hst", functools.partial(_beginning, guard)
    yield executor, "__call__", functools.partial(_ending, guard)
    yield interpreter, "_implicit_cvt", functools.partial(_moving, guard)
    yield builder, "create_int_to_ptr", functools.partial(_unchecking, guard)
    yield builder, "create_masked_load", functools.partial(_loading, guard)
    yield builder, "create_masked_store", functools.partial(_storing, guard)
    yield builder, "create_atomic_rmw", functools.partial(_updating, guard)
    yield builder, "create_atomic_cas", functools.partial(_swapping, guard)


def _beginning(guard: Guard, original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def init(self: Any, arguments: Any, named: Any) -> Any:  # noqa: ANN401 - untyped triton
        positional, keywords = original(self, arguments, named)
        guard.begin(self.fn.__name__, inspect.getcallargs(self.fn, *positional, **keywords))
        return positional, keywords

    return init


def _ending(guard: Guard, original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def call(self: Any, *arguments: Any, **named: Any) -> Any:  # noqa: ANN401 - untyped triton
        try:
            return original(self, *arguments, **named)
        finally:
            guard.end()

    return call


def _moving(guard: Guard, original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def convert(argument: Any) -> Any:  # noqa: ANN401 - untyped triton
        converted = original(argument)
        window = guard.window_of(argument)
        if window is not None:
            window.buffer.begin_launch()  # here, behind the hooks that run before the kernel and may write
            converted.handle.data = np.array([window.base], dtype=np.uint64)
        return converted

    return convert


def _unchecking(guard: Guard, original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def create_int_to_ptr(self: Any, *arguments: Any) -> Any:  # noqa: ANN401 - untyped triton
        guard.made_of_integer()
        return original(self, *arguments)

    return create_int_to_ptr


def _loading(guard: Guard, original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def create_masked_load(self: Any, pointers: Any, mask: Any, *options: Any, **named: Any) -> Any:  # noqa: ANN401 - untyped triton
        with guard.alone() as first:
            if first:
                real, allowed = guard.access(Attempt.of(Access.READ, pointers), _bits(mask))
                pointers, mask = interpreter.TensorHandle(real, pointers.dtype), _like(mask, allowed)
            return original(self, pointers, mask, *options, **named)

    return create_masked_load


def _storing(guard: Guard, original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def create_masked_store(self: Any, pointers: Any, value: Any, mask: Any, *options: Any) -> Any:  # noqa: ANN401 - untyped triton
        with guard.alone() as first:
            if first:
                real, allowed = guard.access(Attempt.of(Access.WRITE, pointers, value.data), _bits(mask))
                pointers, mask = interpreter.TensorHandle(real, pointers.dtype), _like(mask, allowed)
            return original(self, pointers, value, mask, *options)

    return create_masked_store


def _updating(guard: Guard, original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def create_atomic_rmw(self: Any, operation: Any, pointers: Any, value: Any, mask: Any, *options: Any) -> Any:  # noqa: ANN401 - untyped triton
        with guard.alone() as first:
            if first:
                real, allowed = guard.access(Attempt.of(Access.ATOMIC, pointers), _bits(mask))
                pointers, mask = interpreter.TensorHandle(real, pointers.dtype), _like(mask, allowed)
            return original(self, operation, pointers, value, mask, *options)

    return create_atomic_rmw


def _swapping(guard: Guard, original: Callable[..., Any]) -> Callable[..., Any]:
    """Leave a stray address as it is: it has no mask, and the interpreter's own check ends the kernel there."""

    @functools.wraps(original)
    def create_atomic_cas(self: Any, pointers: Any, *options: Any) -> Any:  # noqa: ANN401 - untyped triton
        with guard.alone() as first:
            if first:
                real, allowed = guard.access(Attempt.of(Access.ATOMIC, pointers), np.True_)
                pointers = interpreter.TensorHandle(np.where(allowed, real, pointers.data), pointers.dtype)
            return original(self, pointers, *options)

    return create_atomic_cas


def _bits(mask: Any) -> Any:  # noqa: ANN401 - a handle in some versions of Triton, an array in others
    return mask.data if isinstance(mask, interpreter.TensorHandle) else mask


def _like(mask: Any, bits: Bits) -> Any:  # noqa: ANN401 - a handle in some versions of Triton, an array in others
    return interpreter.TensorHandle(bits, mask.dtype) if isinstance(mask, interpreter.TensorHandle) else bits

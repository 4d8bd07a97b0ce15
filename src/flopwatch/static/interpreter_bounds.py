"""Keep interpreted kernels within their arguments' memory: outside it lies the heap of this very process."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from triton.runtime import interpreter
from triton.tools.tensor_descriptor import TensorDescriptor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from numpy.typing import NDArray


class OutOfBounds(Exception):  # noqa: N818 - in the words of those who read it in a verdict
    """A kernel writes outside its arguments' memory."""


class _Memory:
    """The allocations of the launch that runs now; None where a pointer may lead anywhere.

    A pointer that the kernel made of an integer, as kernels do that are given tables of addresses, leads to tensors
    that are no argument: from then on until the end of the launch nothing is checked.
    """

    def __init__(self) -> None:
        self.starts: NDArray[np.uint64] | None = None
        self.ends: NDArray[np.uint64] | None = None

    def know(self, tensors: Iterable[torch.Tensor]) -> None:
        spans: dict[int, int] = {}
        for tensor in tensors:
            storage = tensor.untyped_storage()
            start = storage.data_ptr()
            spans[start] = max(spans.get(start, 0), start + storage.nbytes())
        ordered = sorted(spans)
        self.starts = np.array(ordered, dtype=np.uint64)
        self.ends = np.array([spans[start] for start in ordered], dtype=np.uint64)

    def forget(self) -> None:
        self.starts = self.ends = None

    def outside(self, pointers: Any, mask: Any, width: int) -> NDArray[np.bool_] | None:  # noqa: ANN401 - untyped triton
        """Return which of the addresses are not in memory that the launch was given; None where all are."""
        if self.starts is None or self.ends is None or not self.starts.size:
            return None
        index = np.searchsorted(self.starts, pointers.data, side="right").astype(np.int64) - 1
        inside = (index >= 0) & (pointers.data + np.uint64(width) <= self.ends[index])
        strays = ~inside & _bits(mask)
        return strays if strays.any() else None


_memory = _Memory()


def keep_in_bounds() -> None:
    """Poison what a kernel reads outside its arguments' memory, and refuse what it writes there.

    A value that is read there and then masked away does no harm, on the device either; any other shows as NaN, or as
    the largest integer.
    """
    executor, builder = interpreter.GridExecutor, interpreter.InterpreterBuilder
    executor._init_args_hst = _knowing(executor._init_args_hst)  # noqa: SLF001 - there is no public name
    builder.create_int_to_ptr = _forgetting(builder.create_int_to_ptr)
    builder.create_masked_load = _poisoned(builder.create_masked_load)
    builder.create_masked_store = _refused(builder.create_masked_store, mask_index=2)
    builder.create_atomic_rmw = _refused(builder.create_atomic_rmw, mask_index=3, pointer_index=1)
    builder.create_atomic_cas = _refused(builder.create_atomic_cas)


def _knowing(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def init(self: object, arguments: Any, named: Any) -> Any:  # noqa: ANN401 - untyped triton
        positional, keywords = original(self, arguments, named)
        _memory.know(_tensors((*positional, *keywords.values())))
        return positional, keywords

    return init


def _tensors(values: Iterable[object]) -> Iterator[torch.Tensor]:
    for value in values:
        unwrapped = interpreter._unwrap_tensor(value)  # noqa: SLF001 - there is no public name
        if isinstance(unwrapped, torch.Tensor):
            yield unwrapped
        elif isinstance(value, TensorDescriptor):
            yield from _tensors((value.base,))
        elif isinstance(value, tuple):
            yield from _tensors(value)


def _forgetting(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def create_int_to_ptr(self: object, source: Any, target: Any) -> Any:  # noqa: ANN401 - untyped triton
        _memory.forget()
        return original(self, source, target)

    return create_int_to_ptr


def _poisoned(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def create_masked_load(self: object, pointers: Any, mask: Any, *options: Any, **named: Any) -> Any:  # noqa: ANN401 - untyped triton
        dtype = interpreter._get_np_dtype(pointers.get_element_ty())  # noqa: SLF001 - there is no public name
        strays = _memory.outside(pointers, mask, dtype.itemsize)
        if strays is None:
            return original(self, pointers, mask, *options, **named)
        within = _mask_like(mask, _bits(mask) & ~strays)
        loaded = original(self, pointers, within, *options, **named)
        return interpreter.TensorHandle(np.where(strays, _poison(dtype), loaded.data), loaded.dtype)

    return create_masked_load


def _poison(dtype: np.dtype[Any]) -> Any:  # noqa: ANN401 - a number of that type
    """Return NaN, or the largest integer: which, as the bits of a bfloat16 or a float8, is a NaN too."""
    if dtype.kind == "f":
        return dtype.type(np.nan)
    return np.True_ if dtype.kind == "b" else dtype.type(np.iinfo(dtype).max)


def _refused(
    original: Callable[..., Any], *, mask_index: int | None = None, pointer_index: int = 0
) -> Callable[..., Any]:
    @functools.wraps(original)
    def write(self: object, *arguments: Any) -> Any:  # noqa: ANN401 - untyped triton
        pointers = arguments[pointer_index]
        kind = pointers.get_element_ty()
        width = interpreter._get_np_dtype(kind).itemsize  # noqa: SLF001 - there is no public name
        mask = np.True_ if mask_index is None else arguments[mask_index]
        strays = _memory.outside(pointers, mask, width)
        if strays is not None:
            raise OutOfBounds(f"writes {int(strays.sum())} elements of {kind} outside its arguments' memory")
        return original(self, *arguments)

    return write


def _bits(mask: Any) -> Any:  # noqa: ANN401 - a handle in some versions of Triton, an array in others
    return mask.data if isinstance(mask, interpreter.TensorHandle) else mask


def _mask_like(mask: Any, bits: NDArray[np.bool_]) -> Any:  # noqa: ANN401 - as above
    return interpreter.TensorHandle(bits, mask.dtype) if isinstance(mask, interpreter.TensorHandle) else bits

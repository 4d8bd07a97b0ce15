"""Let the interpreter calculate with bfloat16 as the device does: Triton's own treats it as bare bits."""

from __future__ import annotations

import copy
import functools
from typing import TYPE_CHECKING, Any

import numpy as np
import triton.language as tl
from triton._C.libtriton import ir
from triton.runtime import interpreter

from flopwatch.static.bfloat16 import QUIET_NAN, from_float32, to_float32
from flopwatch.static.not_covered import NotCovered

if TYPE_CHECKING:
    from collections.abc import Callable

_FP8_BITS = 8


def _is_bfloat16(value: object) -> bool:
    return isinstance(value, interpreter.TensorHandle) and value.dtype.scalar == tl.bfloat16


def _widened(value: Any) -> Any:  # noqa: ANN401 - a handle or anything else
    return interpreter.TensorHandle(to_float32(value.data), tl.float32) if _is_bfloat16(value) else value


def _narrowed(handle: Any) -> Any:  # noqa: ANN401 - untyped triton
    return interpreter.TensorHandle(from_float32(handle.data), tl.bfloat16)


def calculate_bfloat16() -> None:
    """Let every operation on bfloat16 go through float32 and round once, as the device's own do."""
    builder = interpreter.InterpreterBuilder
    for name in ("binary_op", "unary_op", "ternary_op", "create_fma", "create_dot"):
        setattr(builder, name, _through_float32(getattr(builder, name)))
    builder.cast_impl = _cast(builder.cast_impl)
    builder.create_fp_to_fp = _convert(builder.create_fp_to_fp)
    builder.create_print = _print(builder.create_print)
    builder.create_descriptor_load = _padded(builder.create_descriptor_load)
    builder.create_atomic_rmw = _atomic(builder.create_atomic_rmw)
    if hasattr(builder, "create_tensor_pointer_load"):  # Triton 3.9 has none
        builder.create_tensor_pointer_load = _block_pointer_load(builder.create_tensor_pointer_load)
    builder.get_bf16 = lambda self, value: _narrowed(self.get_fp32(value))
    for owner, names in ((interpreter.ReduceOps, ("sum", "min_max")), (interpreter.ScanOps, ("cumsum", "cumprod"))):
        for name in names:
            setattr(owner, name, _reduction(getattr(owner, name)))


def _through_float32(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def operation(self: object, *operands: Any) -> Any:  # noqa: ANN401 - untyped triton
        handles = [value for value in operands if isinstance(value, interpreter.TensorHandle)]
        if not any(map(_is_bfloat16, handles)):
            return original(self, *operands)
        result = original(self, *map(_widened, operands))
        if result.data.dtype == np.bool_:
            return interpreter.TensorHandle(result.data, tl.int1)
        # The last operand has the type of the result: a dot's accumulator, the addend of an fma.
        return _narrowed(result) if _is_bfloat16(handles[-1]) else result

    return operation


def _reduction(original: Callable[..., Any]) -> Callable[..., Any]:
    """Reduce bfloat16 in float32 and round the result; the device rounds after every step, in an order of its own."""

    def retyped(value: Any, dtype: Any, change: Callable[[Any], Any]) -> Any:  # noqa: ANN401 - untyped triton
        kind = tl.block_type(dtype, value.shape) if value.type.is_block() else dtype
        return tl.tensor(change(value.handle), kind)

    @functools.wraps(original)
    def reduction(self: object, source: Any, *options: Any, **named: Any) -> Any:  # noqa: ANN401 - untyped triton
        source = source[0] if isinstance(source, tuple) else source
        if not _is_bfloat16(source.handle):
            return original(self, source, *options, **named)
        results = original(self, retyped(source, tl.float32, _widened), *options, **named)
        many = isinstance(results, list | tuple)
        narrowed = [
            retyped(result, tl.bfloat16, _narrowed) if result.dtype == tl.float32 else result
            for result in (results if many else [results])
        ]
        return type(results)(narrowed) if many else narrowed[0]

    return reduction


def _cast(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def cast_impl(self: object, source: Any, target: Any) -> Any:  # noqa: ANN401 - untyped triton
        from_bfloat16, to_bfloat16 = _is_bfloat16(source), target.scalar == tl.bfloat16
        if from_bfloat16 and to_bfloat16:
            return source
        if to_bfloat16:
            return _narrowed(original(self, source, tl.float32))
        return original(self, _widened(source), target)

    return cast_impl


def _convert(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def create_fp_to_fp(self: Any, source: Any, target: Any, rounding: Any) -> Any:  # noqa: ANN401 - untyped triton
        to_bfloat16 = target.scalar == tl.bfloat16
        if not to_bfloat16 and not _is_bfloat16(source):
            return original(self, source, target, rounding)
        if source.dtype.scalar.primitive_bitwidth == _FP8_BITS:
            return _narrowed(original(self, source, tl.float32, rounding))
        if to_bfloat16 and rounding == ir.ROUNDING_MODE.RTZ:
            return original(self, self.cast_impl(source, tl.float32), target, rounding)
        if to_bfloat16 or target.scalar.primitive_bitwidth != _FP8_BITS:
            return self.cast_impl(source, target)
        return original(self, _widened(source), target, rounding)

    return create_fp_to_fp


def _print(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def create_print(self: object, prefix: str, hex_: object, values: list[Any], signed: object) -> None:
        original(self, prefix, hex_, [*map(_widened, values)], signed)

    return create_print


def _padded(original: Callable[..., Any]) -> Callable[..., Any]:
    """Pad with NaN, which Triton converts to an integer and so makes a zero."""

    @functools.wraps(original)
    def create_descriptor_load(self: Any, descriptor: Any, indices: Any, *options: Any, **named: Any) -> Any:  # noqa: ANN401 - untyped triton
        if descriptor.padding != ir.PADDING_OPTION.PAD_NAN or descriptor.base.get_element_ty() != tl.bfloat16:
            return original(self, descriptor, indices, *options, **named)
        with_zeros = copy.copy(descriptor)
        with_zeros.padding = ir.PADDING_OPTION.PAD_ZERO
        loaded = original(self, with_zeros, indices, *options, **named)
        _, mask = descriptor.materialize_pointers(indices)
        inside = mask.data if isinstance(mask, interpreter.TensorHandle) else mask
        return interpreter.TensorHandle(np.where(inside, loaded.data, QUIET_NAN), loaded.dtype)

    return create_descriptor_load


def _block_pointer_load(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def create_tensor_pointer_load(self: Any, pointer: Any, boundary: Any, padding: Any, *options: Any) -> Any:  # noqa: ANN401 - untyped triton
        if padding == ir.PADDING_OPTION.PAD_NAN and pointer.base.get_element_ty() == tl.bfloat16:
            raise NotCovered("a block pointer to bfloat16 that pads with NaN")
        return original(self, pointer, boundary, padding, *options)

    return create_tensor_pointer_load


def _atomic(original: Callable[..., Any]) -> Callable[..., Any]:
    """Add to bfloat16 one element after the other, each rounded; Triton refuses the type."""

    @functools.wraps(original)
    def create_atomic_rmw(self: Any, kind: Any, pointer: Any, value: Any, mask: Any, *options: Any) -> Any:  # noqa: ANN401 - untyped triton
        if not _is_bfloat16(value):
            return original(self, kind, pointer, value, mask, *options)
        if kind != ir.ATOMIC_OP.FADD:
            raise NotCovered(f"atomic {str(kind).rpartition('.')[2]} of bfloat16")
        pointers, values, masks = np.broadcast_arrays(pointer.data, value.data, mask.data)
        before = np.zeros(pointers.shape, dtype=np.uint16)
        for index in np.ndindex(pointers.shape):
            if masks[index]:
                place, always = pointers[index].reshape(1), np.ones(1, dtype=bool)
                old = interpreter._interpreter.load(place, always, np.zeros(1, np.uint16), np.dtype(np.uint16))  # noqa: SLF001 - there is no public name
                total = from_float32(to_float32(old) + to_float32(values[index].reshape(1)))
                interpreter._interpreter.store(place, total, always)  # noqa: SLF001 - likewise
                before[index] = old[0]
        return interpreter.TensorHandle(before, tl.bfloat16)

    return create_atomic_rmw

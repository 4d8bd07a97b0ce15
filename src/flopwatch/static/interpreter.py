"""Repair what Triton's interpreter gets silently wrong.

The interpreter of Triton 3.6 to 3.9 keeps bfloat16 as bare bits and calculates with those; it truncates where the
device rounds, skips ``tl.device_assert``, hands float arguments to the kernel as Python's, and (3.6 with numpy 2.4)
cannot loop to a bound that the kernel computed.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING, Any

import numpy as np
import triton
import triton.language as tl
from triton._C.libtriton import ir
from triton.runtime import interpreter

from flopwatch.errors import UnsupportedTritonError, UsageError
from flopwatch.static.bfloat16 import from_float32, to_float32

if TYPE_CHECKING:
    from collections.abc import Callable

_FP8_BITS = 8


@functools.cache
def correct_interpreter() -> None:
    """Make interpreted kernels compute what the device does; the second call does nothing.

    Small kernels probe the installed version first, so that only what is wrong is replaced, and once more afterwards.

    Raises:
        UsageError: interpretation is off: Triton was imported without ``TRITON_INTERPRET=1``.
        UnsupportedTritonError: something is still wrong after the repair.
    """
    if not triton.knobs.runtime.interpret:
        raise UsageError(
            "kernels are not interpreted",
            why="TRITON_INTERPRET was not set when Triton was imported",
            todo="set TRITON_INTERPRET=1 before",
        )
    from flopwatch.static.interpreter_probes import wrong_probes  # noqa: PLC0415 - its kernels need interpretation

    repairs = {_repair_of(name) for name in wrong_probes()}
    for repair in (_calculate_bfloat16, _convert_float_arguments, _check_device_asserts, _index_by_tensors):
        if repair in repairs:
            repair()
    still_wrong = wrong_probes()
    if still_wrong:
        raise UnsupportedTritonError(
            f"Triton {triton.__version__}'s interpreter computes wrong results: {', '.join(still_wrong)}",
            why=f"this build of Triton, or numpy {np.__version__}, differs from those that flopwatch can repair",
            todo="install a released Triton from 3.6 to 3.9",
        )


def _repair_of(probe: str) -> Callable[[], None] | None:
    if probe.startswith("bfloat16"):
        return _calculate_bfloat16
    return {
        "float argument": _convert_float_arguments,
        "device_assert": _check_device_asserts,
        "loop to a computed bound": _index_by_tensors,
    }.get(probe)


def _is_bfloat16(value: object) -> bool:
    return isinstance(value, interpreter.TensorHandle) and value.dtype.scalar == tl.bfloat16


def _widened(value: Any) -> Any:  # noqa: ANN401 - a handle or anything else
    return interpreter.TensorHandle(to_float32(value.data), tl.float32) if _is_bfloat16(value) else value


def _narrowed(handle: Any) -> Any:  # noqa: ANN401 - untyped triton
    return interpreter.TensorHandle(from_float32(handle.data), tl.bfloat16)


def _calculate_bfloat16() -> None:
    """Let every operation on bfloat16 go through float32 and round once, as the device's own do."""
    builder = interpreter.InterpreterBuilder
    for name in ("binary_op", "unary_op", "ternary_op", "create_fma", "create_dot"):
        setattr(builder, name, _through_float32(getattr(builder, name)))
    builder.cast_impl = _cast(builder.cast_impl)
    builder.create_fp_to_fp = _convert(builder.create_fp_to_fp)
    builder.create_print = _print(builder.create_print)
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


def _convert_float_arguments() -> None:
    """Give float arguments the type that the device gives them, float32."""
    original = interpreter._implicit_cvt  # noqa: SLF001 - there is no public name

    def convert(argument: object) -> object:
        if type(argument) is float:
            data = np.array([argument], dtype=np.float32)
            return tl.tensor(interpreter.TensorHandle(data, tl.float32), tl.float32)
        return original(argument)

    interpreter._implicit_cvt = convert  # noqa: SLF001 - there is no public name


def _check_device_asserts() -> None:
    """Check every ``tl.device_assert``: Triton drops them all unless the builder debugs.

    Overflow checks, which debugging would switch on too, stay off: the device has them only in debug builds.
    """
    builder = interpreter.interpreter_builder
    builder.options = dataclasses.replace(builder.options, debug=True, sanitize_overflow=False)


def _index_by_tensors() -> None:
    """Let a scalar tensor bound a loop: Triton 3.6 converts an array of one element, which numpy 2.4 refuses."""
    original = interpreter._patch_lang_tensor  # noqa: SLF001 - there is no public name

    def patch(tensor: Any, scope: Any) -> None:  # noqa: ANN401 - untyped triton
        original(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))

    interpreter._patch_lang_tensor = patch  # noqa: SLF001 - there is no public name

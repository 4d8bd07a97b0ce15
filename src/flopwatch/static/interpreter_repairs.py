"""Repair what Triton's interpreter gets wrong, but for bfloat16, or cannot do and numpy can."""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import triton.language as tl
from triton._C.libtriton import ir
from triton.language.extra import libdevice as declared
from triton.language.extra.cuda import libdevice as of_cuda
from triton.runtime import interpreter

from flopwatch.static import libdevice
from flopwatch.static.bfloat16 import from_float32
from flopwatch.static.not_covered import NotCovered

if TYPE_CHECKING:
    import types
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

_FP8 = {tl.float8e5: torch.float8_e5m2, tl.float8e4nv: torch.float8_e4m3fn}
_FP8_BITS = 8


def convert_float_arguments() -> None:
    """Give float arguments the type that the device gives them, float32."""
    original = interpreter._implicit_cvt  # noqa: SLF001 - there is no public name

    def convert(argument: object) -> object:
        if type(argument) is float:
            data = np.array([argument], dtype=np.float32)
            return tl.tensor(interpreter.TensorHandle(data, tl.float32), tl.float32)
        return original(argument)

    interpreter._implicit_cvt = convert  # noqa: SLF001 - there is no public name


def check_device_asserts() -> None:
    """Check every ``tl.device_assert``: Triton drops them all unless the builder debugs.

    Overflow checks, which debugging would switch on too, stay off: the device has them only in debug builds.
    """
    builder = interpreter.interpreter_builder
    builder.options = dataclasses.replace(builder.options, debug=True, sanitize_overflow=False)


def index_by_tensors() -> None:
    """Let a scalar tensor bound a loop: Triton 3.6 converts an array of one element, which numpy 2.4 refuses."""
    original = interpreter._patch_lang_tensor  # noqa: SLF001 - there is no public name

    def patch(tensor: Any, scope: Any) -> None:  # noqa: ANN401 - untyped triton
        original(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))

    interpreter._patch_lang_tensor = patch  # noqa: SLF001 - there is no public name


def call_libdevice() -> None:
    """Let ``tl.extra.libdevice`` compute: its functions are empty, for the compiler to fill with the device's own.

    The functions themselves change, not the modules' names for them: a kernel's module may have imported those already.
    """
    for stub in vars(declared).values():
        if hasattr(stub, "__code__") and stub.__module__ == declared.__name__:
            stub.__code__ = _forwarding(stub.__name__)
    for builtin in _builtins(of_cuda):
        builtin.__code__ = _assuming_semantic(builtin)
    interpreter.InterpreterBuilder.create_extern_elementwise = _extern


def _forwarding(name: str) -> types.CodeType:
    """Return the code of a function that calls CUDA's of that name; it can name nothing outside itself."""

    def stub(*arguments):  # type: ignore[no-untyped-def] # noqa: ANN002, ANN202 - any
        from flopwatch.static import interpreter_repairs  # noqa: PLC0415, PLW0406 - it runs in Triton's module

        return interpreter_repairs.forward("name", arguments)

    constants = tuple(name if constant == "name" else constant for constant in stub.__code__.co_consts)
    return stub.__code__.replace(co_consts=constants, co_name=name)


def forward(name: str, arguments: tuple[Any, ...]) -> Any:  # noqa: ANN401 - a tensor of Triton's
    """Call CUDA's function of that name, as the compiler does."""
    function = getattr(of_cuda, name, None)
    if function is None:
        raise NotCovered(f"libdevice.{name}")
    return function(*arguments, _semantic=interpreter.interpreter_semantic)


def _builtins(module: types.ModuleType) -> Iterator[Any]:
    for value in vars(module).values():
        if tl.core.is_builtin(value) and value.__code__.co_freevars == ("fn",):
            yield value


def _assuming_semantic(builtin: Any) -> types.CodeType:  # noqa: ANN401 - a function of Triton's
    """Return the code of a builtin that runs without being told by what: a kernel calls it as if compiled."""
    fn = builtin

    def wrapper(*args, **kwargs):  # type: ignore[no-untyped-def] # noqa: ANN002, ANN003, ANN202 - any
        from triton.runtime.interpreter import interpreter_semantic  # noqa: PLC0415 - the code runs in Triton's module

        if kwargs.get("_semantic") is None:
            kwargs["_semantic"] = interpreter_semantic
        return fn(*args, **kwargs)

    return wrapper.__code__


def _extern(_self: object, _library: str, _path: str, symbol: str, handles: list[Any], kind: Any, _pure: object) -> Any:  # noqa: ANN401 - untyped triton
    dtype = kind.scalar
    arrays = list(np.broadcast_arrays(*(handle.data for handle in handles)))
    data = libdevice.call(symbol, arrays, interpreter._get_np_dtype(dtype))  # noqa: SLF001 - there is no public name
    return interpreter.TensorHandle(data, dtype)


def multiply_unsigned() -> None:
    """Take the upper half of an unsigned product, whatever the sign of the type: Triton extends the sign before."""

    def create_umulhi(_self: object, x: Any, y: Any) -> Any:  # noqa: ANN401 - untyped triton
        unsigned = f"u{x.data.dtype.itemsize}"
        high = libdevice.high_product(*np.broadcast_arrays(x.data.view(unsigned), y.data.view(unsigned)))
        return interpreter.TensorHandle(high.view(x.data.dtype), x.dtype.scalar)

    interpreter.InterpreterBuilder.create_umulhi = create_umulhi


def wrap_masks() -> None:
    """Let the sum of two masks wrap around, as integers of one bit do; numpy's saturates."""
    original = interpreter.InterpreterBuilder.binary_op

    @functools.wraps(original)
    def binary_op(self: object, x: Any, y: Any, operation: Callable[..., Any]) -> Any:  # noqa: ANN401 - untyped triton
        if x.data.dtype != np.bool_ or y.data.dtype != np.bool_:
            return original(self, x, y, operation)
        data = operation(x.data.astype(np.int8), y.data.astype(np.int8)).astype(np.int8)
        return interpreter.TensorHandle((data & 1).astype(np.bool_), x.dtype.scalar)

    interpreter.InterpreterBuilder.binary_op = binary_op


def round_fma_once() -> None:
    """Round a fused multiply-add once."""

    def create_fma(_self: object, x: Any, y: Any, z: Any) -> Any:  # noqa: ANN401 - untyped triton
        return interpreter.TensorHandle(libdevice.fused(x.data, y.data, z.data), z.dtype.scalar)

    interpreter.InterpreterBuilder.create_fma = create_fma


def prefer_numbers_to_nan() -> None:
    """Let maximum, minimum and clamp return the number where one operand is NaN, unless NaN is to be propagated."""
    builder = interpreter.InterpreterBuilder
    builder.create_maxnumf = lambda self, x, y: self.binary_op(x, y, np.fmax)
    builder.create_minnumf = lambda self, x, y: self.binary_op(x, y, np.fmin)

    def create_clampf(self: Any, x: Any, low: Any, high: Any, propagation: Any) -> Any:  # noqa: ANN401 - untyped triton
        if propagation == ir.PROPAGATE_NAN.ALL:
            return self.ternary_op(x, low, high, np.clip)
        return self.ternary_op(x, low, high, lambda *data: np.fmin(np.fmax(data[0], data[1]), data[2]))

    builder.create_clampf = create_clampf


def convert_float8() -> None:
    """Convert from and to float8 as an H100 does: to the nearest, ties to even, saturating; NaN stays NaN."""
    original = interpreter._convert_float  # noqa: SLF001 - there is no public name

    def convert(data: NDArray[Any], source: Any, target: Any, rounding: Any) -> NDArray[Any]:  # noqa: ANN401 - untyped triton
        narrow = [kind for kind in (source, target) if kind.primitive_bitwidth == _FP8_BITS]
        if not narrow:
            return np.asarray(original(data, source, target, rounding))
        unknown = [kind for kind in narrow if kind not in _FP8]
        if unknown:
            raise NotCovered(f"conversion of {unknown[0]}")
        if target in _FP8 and rounding == ir.ROUNDING_MODE.RTZ:
            raise NotCovered(f"rounding to {target} toward zero")
        wide = _from_float8(data, _FP8[source]) if source in _FP8 else data
        if target in _FP8:
            return _to_float8(wide, _FP8[target])
        if target == tl.bfloat16:
            return from_float32(wide)
        return wide.astype(interpreter._get_np_dtype(target))  # noqa: SLF001 - there is no public name

    interpreter._convert_float = convert  # noqa: SLF001 - there is no public name


def _from_float8(bits: NDArray[Any], dtype: torch.dtype) -> NDArray[np.float32]:
    every = torch.arange(256, dtype=torch.int32).to(torch.uint8).view(dtype).float().numpy()
    return np.asarray(every[bits.view(np.uint8)])


def _to_float8(wide: NDArray[Any], dtype: torch.dtype) -> NDArray[np.uint8]:
    largest = torch.finfo(dtype).max
    clipped = torch.from_numpy(np.clip(wide, -largest, largest))
    return np.asarray(clipped.to(dtype).view(torch.uint8).numpy())

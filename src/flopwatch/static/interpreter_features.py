"""What kernels may ask of the interpreter: how each feature is probed, repaired, and refused where it stays wrong.

Import this only where ``TRITON_INTERPRET=1`` was set before Triton was imported.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import triton.language as tl
from triton._C.libtriton import ir
from triton.runtime import interpreter

from flopwatch.static import interpreter_bfloat16 as bfloat16
from flopwatch.static import interpreter_repairs as repairs
from flopwatch.static.interpreter_language import PROBES as LANGUAGE_PROBES
from flopwatch.static.interpreter_probes import PROBES as TYPE_PROBES
from flopwatch.static.not_covered import NotCovered

#: A function that kernels come through: what has it, and its name there.
Place: TypeAlias = tuple[Any, str]

_BUILDER = interpreter.InterpreterBuilder


@dataclass(frozen=True, kw_only=True, slots=True)
class Feature:
    """Something that kernels use.

    Attributes:
        name: what the reader of a verdict is told.
        probe: tells whether the interpreter does it as the device does; it may raise.
        repair: makes the interpreter do it; None where nothing can.
        places: the functions that a kernel which uses it comes through. None are needed where the interpreter itself
            stops at it with an error.
        concerns: whether a call with these arguments uses it.
    """

    name: str
    probe: Callable[[], bool]
    repair: Callable[[], None] | None = None
    places: tuple[Place, ...] = ()
    concerns: Callable[..., bool] = lambda *_arguments, **_named: True

    def right(self) -> bool:
        """Probe; a probe that cannot run is as wrong as one that lies."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # wrong arithmetic divides by zero
            warnings.simplefilter("error", DeprecationWarning)  # what numpy will refuse soon is repaired now
            try:
                return self.probe()
            except Exception:  # noqa: BLE001 - see above
                return False

    def refuse(self) -> None:
        """Let every kernel that uses it end with `NotCovered`."""
        for owner, attribute in self.places:
            original = getattr(owner, attribute, None)
            if original is not None:
                setattr(owner, attribute, self._refusing(original))

    def _refusing(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def function(*arguments: Any, **named: Any) -> Any:  # noqa: ANN401 - untyped triton
            if self.concerns(*arguments, **named):
                raise NotCovered(self.name)
            return original(*arguments, **named)

        return function


def _of_type(*dtypes: Any) -> Callable[..., bool]:  # noqa: ANN401 - untyped triton
    """Return what tells whether an argument is of one of these types, or is one of them."""

    def concerns(*arguments: object, **_named: object) -> bool:
        return any(_dtype(argument) in dtypes for argument in arguments)

    return concerns


def _dtype(argument: Any) -> Any:  # noqa: ANN401 - untyped triton
    argument = argument[0] if isinstance(argument, tuple) and argument else argument
    dtype = argument if isinstance(argument, tl.dtype) else getattr(argument, "dtype", None)
    return getattr(dtype, "scalar", dtype)


def _masks(*arguments: Any) -> bool:  # noqa: ANN401 - untyped triton
    handles = [argument for argument in arguments if isinstance(argument, interpreter.TensorHandle)]
    return all(handle.data.dtype == np.bool_ for handle in handles)


def _padded(*arguments: Any, **_named: Any) -> bool:  # noqa: ANN401 - untyped triton
    nan = ir.PADDING_OPTION.PAD_NAN
    return any(
        argument is nan or argument == nan or getattr(argument, "padding", None) == nan for argument in arguments[1:4]
    )


def _batches(*arguments: Any) -> bool:  # noqa: ANN401 - untyped triton
    return bool(arguments[1].data.ndim > 2)  # noqa: PLR2004 - a matrix


def _float(argument: object) -> bool:
    return type(argument) is float


def _builder(*names: str) -> tuple[Place, ...]:
    return tuple((_BUILDER, name) for name in names)


def _language(*names: str) -> tuple[Place, ...]:
    return tuple(
        (owner, name) for owner in (tl, tl.core, tl.standard, tl.tensor) for name in names if hasattr(owner, name)
    )


_REDUCTIONS = ((interpreter.ReduceOps, "apply"),)
_SCANS = ((interpreter.ScanOps, "apply"),)
_CALCULATIONS = (
    *_builder("binary_op", "unary_op", "ternary_op", "create_fma", "create_dot", "cast_impl", "create_fp_to_fp"),
    *_REDUCTIONS,
    *_SCANS,
)
_FP8 = (tl.float8e5, tl.float8e4nv)
_INTEGERS = ("create_idiv", "create_srem", "create_urem", "create_ashr", "create_lshr", "create_mul")
_ATOMICS = _builder("create_atomic_rmw", "create_atomic_cas")
_DESCRIPTORS = _builder("create_descriptor_load", "create_descriptor_store")

_ALIKE: dict[str, dict[str, Any]] = {
    "bfloat16": {
        "repair": bfloat16.calculate_bfloat16,
        "places": _CALCULATIONS,
        "concerns": _of_type(tl.bfloat16),
    },
    "float8": {
        "repair": repairs.convert_float8,
        "places": _builder("create_fp_to_fp", "create_dot"),
        "concerns": _of_type(*_FP8),
    },
}
_KNOWN: dict[str, dict[str, Any]] = {
    "bfloat16 arithmetic": _ALIKE["bfloat16"],
    "bfloat16 fma": _ALIKE["bfloat16"],
    "bfloat16 dot": _ALIKE["bfloat16"],
    "bfloat16 casts": _ALIKE["bfloat16"],
    "bfloat16 reductions": _ALIKE["bfloat16"],
    "float argument": {
        "repair": repairs.convert_float_arguments,
        "places": ((interpreter, "_implicit_cvt"),),
        "concerns": _float,
    },
    "device_assert": {"repair": repairs.check_device_asserts, "places": _language("device_assert")},
    "loop to a computed bound": {"repair": repairs.index_by_tensors},
    "libdevice": {"repair": repairs.call_libdevice, "places": _builder("create_extern_elementwise")},
    "inline_asm": {"places": _builder("create_inline_asm")},
    "map_elementwise": {"places": _language("map_elementwise")},
    "Gluon": {},
    "dot of float16": {"places": _builder("create_dot"), "concerns": _of_type(tl.float16)},
    "dot of float32": {"places": _builder("create_dot"), "concerns": _of_type(tl.float32)},
    "dot of int8": {"places": _builder("create_dot"), "concerns": _of_type(tl.int8, tl.uint8)},
    "dot of float8": _ALIKE["float8"],
    "dot of batches": {"places": _builder("create_dot"), "concerns": _batches},
    "dot_scaled": {"places": _language("dot_scaled")},
    "flip": {"places": _language("flip")},
    "sort": {"places": _language("sort", "sort_impl", "topk")},
    "sort of bfloat16": {"repair": bfloat16.calculate_bfloat16, "places": _language("sort", "sort_impl", "topk")},
    "histogram": {"places": _builder("create_histogram")},
    "gather": {"places": _builder("create_gather")},
    "join, split, interleave, reshape, trans": {
        "places": _builder("create_join", "create_split", "create_reshape", "create_trans")
    },
    "reductions, argmax": {"places": _REDUCTIONS},
    "scans": {"places": _SCANS},
    "integer arithmetic": {"places": _builder(*_INTEGERS)},
    "arithmetic of masks": {"repair": repairs.wrap_masks, "places": _builder("binary_op"), "concerns": _masks},
    "umulhi of signed integers": {"repair": repairs.multiply_unsigned, "places": _builder("create_umulhi")},
    "random numbers": {"places": _builder("create_umulhi")},
    "fma": {"repair": repairs.round_fma_once, "places": _builder("create_fma")},
    "maximum, minimum, clamp of NaN": {
        "repair": repairs.prefer_numbers_to_nan,
        "places": _builder("create_maxnumf", "create_minnumf", "create_clampf"),
    },
    "float8 to wider": _ALIKE["float8"],
    "wider to float8": _ALIKE["float8"],
    "atomic_add of float32": {"places": _ATOMICS, "concerns": _of_type(tl.float32)},
    "atomic_add of float16": {"places": _ATOMICS, "concerns": _of_type(tl.float16)},
    "atomic_add of bfloat16": {
        "repair": bfloat16.calculate_bfloat16,
        "places": _ATOMICS,
        "concerns": _of_type(tl.bfloat16),
    },
    "atomic_add of int64": {"places": _ATOMICS, "concerns": _of_type(tl.int64)},
    "atomic_max, atomic_min of float32": {"places": _language("atomic_max", "atomic_min")},
    "tensor descriptors": {"places": _DESCRIPTORS},
    "descriptor.atomic_add": {"places": ((tl.core.tensor_descriptor_base, "atomic_add"),)},
    "descriptor.gather": {"places": _builder("create_descriptor_gather")},
    "padding with NaN": {
        "repair": bfloat16.calculate_bfloat16,
        "places": _builder("create_descriptor_load", "create_tensor_pointer_load"),
        "concerns": _padded,
    },
}
#: Every feature that is probed.
FEATURES: tuple[Feature, ...] = tuple(
    Feature(name=name, probe=probe, **_KNOWN[name]) for name, probe in (TYPE_PROBES | LANGUAGE_PROBES).items()
)

"""CUDA's libdevice, as numpy and torch compute it: what ``tl.extra.libdevice`` calls, by the symbols of the library.

Float32 is computed in float32 and float64 in float64, like the device's own. Against float64 the float32 functions err
by at most 4 ulp on the arguments of the tests; erfcx, erfinv, normcdfinv and the modified Bessel functions by 16
(torch 2.13, numpy 2.4; CUDA documents 1 to 6 ulp). The ``fast_`` functions are as exact
here as their namesakes, and so better than on the device.
"""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import torch

from flopwatch.static.not_covered import NotCovered

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Array: TypeAlias = NDArray[Any]

_PREFIX = "__nv_"


def call(symbol: str, arguments: list[Array], dtype: np.dtype[Any]) -> Array:
    """Apply a function of libdevice to each element.

    Args:
        symbol: its name, such as ``__nv_rsqrtf``.
        arguments: arrays of one shape, of the types that the symbol takes.
        dtype: of the result.

    Raises:
        NotCovered: the function is none of those below.

    >>> call("__nv_rsqrtf", [np.array([4.0], dtype=np.float32)], np.dtype(np.float32))
    array([0.5], dtype=float32)
    """
    function = _find(symbol)
    with np.errstate(all="ignore"):
        result = np.asarray(function(*arguments))
        if dtype.kind in "iu" and result.dtype.kind == "f":
            return _saturated(result, dtype)
        return result.astype(dtype, copy=False).reshape(np.shape(arguments[0]))


def _find(symbol: str) -> Callable[..., Any]:
    name = symbol.removeprefix(_PREFIX)
    for known in (name, name.removesuffix("f"), name.removesuffix("ll"), name.removesuffix("d")):
        if symbol.startswith(_PREFIX) and known in _FUNCTIONS:
            return _FUNCTIONS[known]
    raise NotCovered(f"libdevice's {symbol}")


def _saturated(values: Array, dtype: np.dtype[Any]) -> Array:
    """Convert to integers as the device does: what does not fit becomes the nearest that does, NaN becomes 0."""
    limits = np.iinfo(dtype)
    inside = np.where(np.isnan(values), 0.0, values.astype(np.float64))
    result = np.clip(inside, float(limits.min), float(limits.max))
    # The largest 64-bit integer is no float64: what was clipped to it would wrap around.
    return np.where(
        result >= float(limits.max), limits.max, np.where(result < float(limits.max), result, 0).astype(dtype)
    )


def _by_torch(function: Callable[..., torch.Tensor]) -> Callable[..., Array]:
    """Let torch compute what numpy does not have."""

    def apply(*arguments: Array) -> Array:
        return function(*(torch.from_numpy(np.array(argument)) for argument in arguments)).numpy()

    return apply


def fused(x: Array, y: Array, z: Array) -> Array:
    """Return ``x * y + z`` rounded once, but for float64 (twice) and a float32 on the verge of a tie.

    >>> x = np.float32(1 + 2**-12)
    >>> float(fused(x, x, -(x * x))) == 2**-24
    True
    """
    if x.dtype == np.float64:
        return np.asarray(x * y + z)
    # The product of two float32 is exact in float64.
    return np.asarray((x.astype(np.float64) * y.astype(np.float64) + z.astype(np.float64)).astype(x.dtype))


def _round(x: Array) -> Array:
    """Round half away from zero, which numpy does not."""
    size = np.abs(x)
    whole = np.trunc(size)
    return np.asarray(np.copysign(whole + (size - whole >= 0.5), x))  # noqa: PLR2004 - a half


def _of_half_turns(function: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """Return the function of ``pi x``; the argument is reduced first, exactly, and multiplied in float64."""
    return lambda x: function(np.fmod(x, 2).astype(np.float64) * np.pi).astype(x.dtype)


def _reciprocal(function: Callable[..., Array]) -> Callable[..., Array]:
    return lambda *arguments: np.asarray(np.reciprocal(function(*arguments)))


def _norm(*components: Array) -> Array:
    return np.asarray(functools.reduce(np.hypot, components))


def _gamma(x: Array) -> Array:
    def gamma(value: float) -> float:
        try:
            return math.gamma(value)
        except OverflowError:
            return math.inf
        except ValueError:  # a pole
            return math.copysign(math.inf, value) if value == 0 else math.nan

    return np.asarray(np.vectorize(gamma, otypes=[x.dtype])(x.astype(np.float64)))


def _fdim(x: Array, y: Array) -> Array:
    return np.where(np.isnan(x) | np.isnan(y), x + y, np.maximum(x - y, 0))


def _logb(x: Array) -> Array:
    exponent = np.frexp(x)[1] - 1
    return np.where(np.isfinite(x) & (x != 0), exponent, np.where(x == 0, -np.inf, np.abs(x)))


def _scaled(x: Array, exponent: Array) -> Array:
    return np.asarray(np.ldexp(x, np.clip(exponent, -10000, 10000)))


def _saturate(x: Array) -> Array:
    return np.where(np.isnan(x), 0, np.clip(x, 0, 1))


def _power(x: Array, exponent: Array) -> Array:
    return np.asarray(np.power(x, exponent.astype(x.dtype)))


def _unsigned(x: Array) -> Array:
    return x.view(f"u{x.dtype.itemsize}")


def _bit_count(x: Array) -> Array:
    return sum((_unsigned(x) >> bit & 1 for bit in range(8 * x.dtype.itemsize)), np.zeros(x.shape, np.int32))


def _leading_zeros(x: Array) -> Array:
    smeared = _unsigned(x).copy()
    for shift in (1, 2, 4, 8, 16, 32):
        if shift < 8 * x.dtype.itemsize:
            smeared |= smeared >> smeared.dtype.type(shift)
    return 8 * x.dtype.itemsize - _bit_count(smeared)


def _first_set(x: Array) -> Array:
    bits = _unsigned(x)
    lowest = bits & (~bits + bits.dtype.type(1))
    return np.where(bits == 0, 0, 8 * x.dtype.itemsize - _leading_zeros(lowest))


def _reversed(x: Array) -> Array:
    bits, width = _unsigned(x), 8 * x.dtype.itemsize
    one = bits.dtype.type(1)
    result = np.zeros_like(bits)
    for bit in range(width):
        result |= (bits >> bits.dtype.type(bit) & one) << bits.dtype.type(width - 1 - bit)
    return result.view(x.dtype)


def high_product(x: Array, y: Array) -> Array:
    """Return the upper half of the product of two integers of one type, in Python's own integers.

    >>> high_product(np.array([2**31], dtype=np.uint32), np.array([6], dtype=np.uint32))
    array([3], dtype=uint32)
    """
    product = x.astype(object) * y.astype(object)
    return np.asarray(product // 2 ** (8 * x.dtype.itemsize)).astype(x.dtype)


def _low_24_bits(x: Array) -> Array:
    """Return the lower 24 bits of each integer, with their sign where the type has one."""
    wide = x.astype(np.int64) & 0xFFFFFF
    return np.where(wide >= 2**23, wide - 2**24, wide) if x.dtype.kind == "i" else wide


def _product_of_24_bits(x: Array, y: Array) -> Array:
    return (_low_24_bits(x) * _low_24_bits(y)).astype(np.uint64).astype(f"u{x.dtype.itemsize}").view(x.dtype)


def _mean(x: Array, y: Array) -> Array:
    return (x.astype(np.int64) + y.astype(np.int64)) >> 1


def _mean_rounded_up(x: Array, y: Array) -> Array:
    return (x.astype(np.int64) + y.astype(np.int64) + 1) >> 1


def _sum_of_differences(x: Array, y: Array, z: Array) -> Array:
    return np.abs(x.astype(np.int64) - y.astype(np.int64)) + z


def _bits_as(dtype: type[np.generic]) -> Callable[[Array], Array]:
    return lambda x: x.view(dtype)


def _unchanged(x: Array) -> Array:
    return x


_ROUNDED = {"rn": np.rint, "rz": np.trunc, "ru": np.ceil, "rd": np.floor}
_ARITHMETIC: dict[str, Callable[..., Any]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "rcp": np.reciprocal,
    "sqrt": np.sqrt,
}
#: By what is left of a symbol without its prefix and the letter for its type.
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "abs": np.abs,
    "acos": np.arccos,
    "acosh": np.arccosh,
    "asin": np.arcsin,
    "asinh": np.arcsinh,
    "atan": np.arctan,
    "atan2": np.arctan2,
    "atanh": np.arctanh,
    "brev": _reversed,
    "cbrt": np.cbrt,
    "ceil": np.ceil,
    "clz": _leading_zeros,
    "copysign": np.copysign,
    "cos": np.cos,
    "cosh": np.cosh,
    "cospi": _of_half_turns(np.cos),
    "cyl_bessel_i0": _by_torch(torch.special.i0),
    "cyl_bessel_i1": _by_torch(torch.special.i1),
    "double_as_longlong": _bits_as(np.int64),
    "erf": _by_torch(torch.special.erf),
    "erfc": _by_torch(torch.special.erfc),
    "erfcx": _by_torch(torch.special.erfcx),
    "erfinv": _by_torch(torch.special.erfinv),
    "exp": np.exp,
    "exp10": lambda x: np.power(x.dtype.type(10), x),
    "exp2": np.exp2,
    "expm1": np.expm1,
    "fabs": np.abs,
    "fast_fdivide": np.divide,
    "fdim": _fdim,
    "ffs": _first_set,
    "finite": np.isfinite,
    "float_as_int": _bits_as(np.int32),
    "float_as_uint": _bits_as(np.uint32),
    "floor": np.floor,
    "fma": fused,
    "fma_rn": fused,
    "fmaf_rn": fused,
    "fmod": np.fmod,
    "frsqrt_rn": _reciprocal(np.sqrt),
    "hadd": _mean,
    "hypot": np.hypot,
    "ilogb": _logb,
    "int_as_float": _bits_as(np.float32),
    "isfinite": np.isfinite,
    "isinf": np.isinf,
    "isnan": np.isnan,
    "j0": _by_torch(torch.special.bessel_j0),
    "j1": _by_torch(torch.special.bessel_j1),
    "ldexp": _scaled,
    "lgamma": _by_torch(torch.lgamma),
    "llabs": np.abs,
    "llrint": np.rint,
    "llround": _round,
    "log": np.log,
    "log10": np.log10,
    "log1p": np.log1p,
    "log2": np.log2,
    "logb": _logb,
    "longlong_as_double": _bits_as(np.float64),
    "mul24": _product_of_24_bits,
    "mul64hi": high_product,
    "mulhi": high_product,
    "nearbyint": np.rint,
    "nextafter": np.nextafter,
    "norm3d": _norm,
    "norm4d": _norm,
    # In float64: float32 loses 2000 ulp of the tail at -4, of which the device's own loses 5.
    "normcdf": _by_torch(lambda x: torch.erfc(x.double() * -math.sqrt(0.5)) / 2),
    "normcdfinv": _by_torch(torch.special.ndtri),
    "popc": _bit_count,
    "pow": np.power,
    "powi": _power,
    "rcbrt": _reciprocal(np.cbrt),
    "remainder": lambda x, y: np.vectorize(_ieee_remainder, otypes=[x.dtype])(x, y),
    "rhadd": _mean_rounded_up,
    "rhypot": _reciprocal(np.hypot),
    "rint": np.rint,
    "rnorm3d": _reciprocal(_norm),
    "rnorm4d": _reciprocal(_norm),
    "round": _round,
    "rsqrt": _reciprocal(np.sqrt),
    "sad": _sum_of_differences,
    "saturate": _saturate,
    "scalbn": _scaled,
    "signbit": np.signbit,
    "sin": np.sin,
    "sinh": np.sinh,
    "sinpi": _of_half_turns(np.sin),
    "sqrt": np.sqrt,
    "tan": np.tan,
    "tanh": np.tanh,
    "tgamma": _gamma,
    "trunc": np.trunc,
    "uhadd": _mean,
    "uint_as_float": _bits_as(np.float32),
    "umul24": _product_of_24_bits,
    "umul64hi": high_product,
    "umulhi": high_product,
    "urhadd": _mean_rounded_up,
    "usad": _sum_of_differences,
    "y0": _by_torch(torch.special.bessel_y0),
    "y1": _by_torch(torch.special.bessel_y1),
}
_FUNCTIONS |= {
    f"fast_{name}": _FUNCTIONS[name] for name in ("cos", "exp", "exp10", "log", "log2", "log10", "pow", "sin", "tan")
}
_FUNCTIONS |= {f"{kind}{name}_rn": function for kind in "fd" for name, function in _ARITHMETIC.items()}
_FUNCTIONS |= {
    f"{source}2{target}_{mode}": rounded
    for source in ("float", "double")
    for target in ("int", "uint", "ll", "ull")
    for mode, rounded in _ROUNDED.items()
}
_FUNCTIONS |= {
    f"{source}2{target}_rn": _unchanged
    for source, target in (("double", "float"), ("int", "float"), ("uint", "float"), ("ll", "float"), ("ull", "float"))
}
_FUNCTIONS |= {f"{source}2double_rn": _unchanged for source in ("int", "uint", "ll", "ull")}


def _ieee_remainder(x: float, y: float) -> float:
    try:
        return math.remainder(x, y)
    except ValueError:  # of infinity, or by zero
        return math.nan

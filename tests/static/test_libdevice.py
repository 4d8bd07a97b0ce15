# mypy: disable-error-code="no-untyped-def,untyped-decorator"
# ruff: noqa: ANN001, ANN202, N803 - a kernel's arguments are Triton's own types, checked by its compiler

from __future__ import annotations

import math
import os
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice as generic
from triton.language.extra.cuda.libdevice import erf as erf_of_cuda
from triton.language.extra.libdevice import rsqrt

from flopwatch.static import libdevice
from flopwatch.static.not_covered import NotCovered

if TYPE_CHECKING:
    from collections.abc import Callable

interpreted = pytest.mark.skipif(
    os.environ.get("TRITON_INTERPRET") != "1", reason="kernels are not interpreted where there is a GPU"
)

_REAL = torch.linspace(-4.0, 4.0, 81, dtype=torch.float64)
_POSITIVE = torch.logspace(-3, 2, 81, dtype=torch.float64)
_UNIT = torch.linspace(-0.99, 0.99, 81, dtype=torch.float64)
_ABOVE_ONE = torch.linspace(1.0, 9.0, 81, dtype=torch.float64)
#: By the symbol for float64: torch's function, the arguments, and how many ulp of float32 it may err by.
UNARY: dict[str, tuple[Callable[[torch.Tensor], torch.Tensor], torch.Tensor, float]] = {
    "acos": (torch.acos, _UNIT, 4),
    "acosh": (torch.acosh, _ABOVE_ONE, 4),
    "asin": (torch.asin, _UNIT, 4),
    "asinh": (torch.asinh, _REAL, 4),
    "atan": (torch.atan, _REAL, 4),
    "atanh": (torch.atanh, _UNIT, 4),
    "cbrt": (lambda x: x.sign() * x.abs() ** (1 / 3), _REAL, 4),
    "ceil": (torch.ceil, _REAL, 0),
    "cos": (torch.cos, _REAL, 4),
    "cosh": (torch.cosh, _REAL, 4),
    "cyl_bessel_i0": (torch.special.i0, _REAL, 16),
    "cyl_bessel_i1": (torch.special.i1, _REAL, 16),
    "erf": (torch.erf, _REAL, 4),
    "erfc": (torch.erfc, _REAL, 4),
    "erfcx": (torch.special.erfcx, _POSITIVE, 16),
    "erfinv": (torch.erfinv, _UNIT, 16),
    "exp": (torch.exp, _REAL, 4),
    "exp10": (lambda x: 10**x, _REAL, 4),
    "exp2": (torch.exp2, _REAL, 4),
    "expm1": (torch.expm1, _REAL, 4),
    "fabs": (torch.abs, _REAL, 0),
    "floor": (torch.floor, _REAL, 0),
    "log": (torch.log, _POSITIVE, 4),
    "log10": (torch.log10, _POSITIVE, 4),
    "log1p": (torch.log1p, _POSITIVE, 4),
    "log2": (torch.log2, _POSITIVE, 4),
    "nearbyint": (torch.round, _REAL, 0),
    "normcdf": (torch.special.ndtr, _REAL, 4),
    "normcdfinv": (torch.special.ndtri, (_UNIT + 1) / 2, 16),
    "rcbrt": (lambda x: x ** (-1 / 3), _POSITIVE, 4),
    "rint": (torch.round, _REAL, 0),
    "rsqrt": (torch.rsqrt, _POSITIVE, 4),
    "sin": (torch.sin, _REAL, 4),
    "sinh": (torch.sinh, _REAL, 4),
    "sqrt": (torch.sqrt, _POSITIVE, 4),
    "tan": (torch.tan, _UNIT, 4),
    "tanh": (torch.tanh, _REAL, 4),
    "tgamma": (lambda x: torch.lgamma(x).exp(), _ABOVE_ONE, 4),
    "trunc": (torch.trunc, _REAL, 0),
}
BINARY: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "atan2": torch.atan2,
    "copysign": torch.copysign,
    "fmod": torch.fmod,
    "hypot": torch.hypot,
    "fdim": lambda x, y: (x - y).clamp_min(0),
    "nextafter": torch.nextafter,
}


def ulps(actual: np.ndarray[Any, Any], expected: torch.Tensor) -> float:
    """Return the largest distance in units of the last place of a float32 as large as what is expected."""
    size = np.maximum(np.abs(expected.numpy()), 1e-30)
    place = 2.0 ** (np.floor(np.log2(size)) - 23)
    return float((np.abs(actual.astype(np.float64) - expected.numpy()) / place).max())


@pytest.mark.parametrize("name", UNARY)
def test_a_function_of_one_float32_is_as_exact_as_it_says(name: str) -> None:
    function, arguments, limit = UNARY[name]
    narrow = arguments.float()
    result = libdevice.call(f"__nv_{name}f", [narrow.numpy()], np.dtype(np.float32))
    assert result.dtype == np.float32
    assert ulps(result, function(narrow.double())) <= limit


@pytest.mark.parametrize("name", UNARY)
def test_a_function_of_one_float64_is_computed_in_float64(name: str) -> None:
    function, arguments, _ = UNARY[name]
    result = libdevice.call(f"__nv_{name}", [arguments.numpy()], np.dtype(np.float64))
    np.testing.assert_allclose(result, function(arguments).numpy(), rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("name", BINARY)
def test_a_function_of_two_is_torchs(name: str) -> None:
    x, y = _REAL.float(), _REAL.float().flip(0) + 0.125
    result = libdevice.call(f"__nv_{name}f", [x.numpy(), y.numpy()], np.dtype(np.float32))
    np.testing.assert_allclose(result, BINARY[name](x, y).numpy(), rtol=3e-7)


def one(symbol: str, *values: Any, dtype: Any, result: Any = None) -> Any:  # noqa: ANN401 - numbers
    """Call a function of scalars of `dtype`."""
    arrays = [np.array([value], dtype=dtype) for value in values]
    return libdevice.call(symbol, arrays, np.dtype(result or dtype)).item()


@pytest.mark.parametrize(
    ("symbol", "values", "expected"),
    [
        ("__nv_clz", (1,), 31),
        ("__nv_clz", (0,), 32),
        ("__nv_popc", (-1,), 32),
        ("__nv_ffs", (8,), 4),
        ("__nv_ffs", (0,), 0),
        ("__nv_brev", (1,), -(2**31)),
        ("__nv_abs", (-7,), 7),
        ("__nv_mulhi", (-(2**30), 8), -2),
        ("__nv_mul24", (2**24 + 3, 5), 15),
        ("__nv_mul24", (-3, 5), -15),
        ("__nv_hadd", (2**31 - 1, 2**31 - 3), 2**31 - 2),
        ("__nv_rhadd", (1, 2), 2),
        ("__nv_sad", (-5, 7, 1), 13),
    ],
)
def test_integers_are_counted_and_multiplied_as_cuda_does(symbol: str, values: tuple[int, ...], expected: int) -> None:
    assert one(symbol, *values, dtype=np.int32) == expected


@pytest.mark.parametrize(
    ("symbol", "value", "expected"),
    [
        ("__nv_float2int_rn", 2.5, 2),
        ("__nv_float2int_rz", -2.9, -2),
        ("__nv_float2int_ru", 2.1, 3),
        ("__nv_float2int_rd", -2.1, -3),
        ("__nv_float2int_rn", 1e10, 2**31 - 1),
        ("__nv_float2int_rn", math.nan, 0),
        ("__nv_float_as_int", 1.0, 0x3F800000),
        ("__nv_llroundf", 2.5, 3),
        ("__nv_llroundf", -2.5, -3),
        ("__nv_isnanf", math.nan, 1),
        ("__nv_isinff", -math.inf, 1),
        ("__nv_finitef", 1.0, 1),
        ("__nv_signbitf", -0.0, 1),
        ("__nv_ilogbf", 9.0, 3),
    ],
)
def test_a_float_becomes_the_integer_that_cuda_makes(symbol: str, value: float, expected: int) -> None:
    assert one(symbol, value, dtype=np.float32, result=np.int32) == expected


@pytest.mark.parametrize(
    ("symbol", "values", "expected"),
    [
        ("__nv_roundf", (0.49999997,), 0.0),
        ("__nv_roundf", (-3.5,), -4.0),
        ("__nv_saturatef", (1.5,), 1.0),
        ("__nv_saturatef", (math.nan,), 0.0),
        ("__nv_sinpif", (1.0,), 0.0),
        ("__nv_cospif", (1.0,), -1.0),
        ("__nv_fast_fdividef", (3.0, 2.0), 1.5),
        ("__nv_frcp_rn", (4.0,), 0.25),
        ("__nv_fsqrt_rn", (9.0,), 3.0),
        ("__nv_frsqrt_rn", (4.0,), 0.5),
        ("__nv_fadd_rn", (1.0, 2.0), 3.0),
        ("__nv_powf", (2.0, 10.0), 1024.0),
        ("__nv_remainderf", (5.0, 3.0), -1.0),
        ("__nv_norm3df", (1.0, 2.0, 2.0), 3.0),
        ("__nv_rhypotf", (3.0, 4.0), 0.2),
        ("__nv_tgammaf", (5.0,), 24.0),
        ("__nv_logbf", (0.0,), -math.inf),
    ],
)
def test_scalars_of_float32(symbol: str, values: tuple[float, ...], expected: float) -> None:
    assert one(symbol, *values, dtype=np.float32) == pytest.approx(expected, rel=1e-7, abs=2e-7)


def test_the_largest_float_becomes_the_largest_64_bit_integer() -> None:
    assert one("__nv_double2ll_rn", 1e300, dtype=np.float64, result=np.int64) == 2**63 - 1
    assert one("__nv_double2ull_rn", -1.0, dtype=np.float64, result=np.uint64) == 0


def test_an_fma_rounds_once() -> None:
    x = 1 + 2.0**-12
    assert one("__nv_fmaf", x, x, -(1 + 2.0**-11), dtype=np.float32) == 2.0**-24


@pytest.mark.parametrize("symbol", ["__nv_jnf", "__nv_fadd_rz", "__nv_fma_ru", "__ocml_exp_f32", "erf"])
def test_what_is_not_known_is_not_covered(symbol: str) -> None:
    with pytest.raises(NotCovered, match=symbol):
        one(symbol, 1.0, dtype=np.float32)


@triton.jit
def _imported(x, out, SIZE: tl.constexpr):
    i = tl.arange(0, SIZE)
    a = tl.load(x + i)
    tl.store(out + i, rsqrt(a) + generic.pow(a, a) + erf_of_cuda(a))


@triton.jit
def _unknown(x):
    tl.store(x, generic.jn(2, tl.load(x)))


@triton.jit
def _half(x):
    tl.store(x, generic.exp(tl.load(x)))


@interpreted
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_kernel_calls_what_its_module_imported_before(cuda: str, dtype: torch.dtype) -> None:
    x = torch.rand(64, device=cuda, generator=torch.Generator(device=cuda).manual_seed(5)).to(dtype) + 0.5
    out = torch.full_like(x, float("nan"))
    _imported[(1,)](x, out, SIZE=64)
    wide = x.double()
    expected = wide.rsqrt() + wide**wide + wide.erf()
    assert (out.double() - expected).abs().max() <= 4 * torch.finfo(dtype).eps * expected.abs().max()


@interpreted
def test_a_kernel_that_calls_what_is_not_known_is_not_covered(cuda: str) -> None:
    with pytest.raises(NotCovered, match="__nv_jnf"):
        _unknown[(1,)](torch.ones(1, device=cuda))


@interpreted
def test_a_type_that_libdevice_does_not_take_is_an_error_as_on_the_device(cuda: str) -> None:
    with pytest.raises(Exception, match="float16"):
        _half[(1,)](torch.ones(1, device=cuda).half())

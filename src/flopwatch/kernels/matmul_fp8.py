"""Matrix multiplication of float8, with scales for whole matrices or for rows and columns."""

from __future__ import annotations

import contextlib
import functools
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
import triton
from torch.nn.functional import pad
from triton.runtime.errors import OutOfResources

from flopwatch.kernels.configs import MatmulConfig
from flopwatch.kernels.launch import Launched, Launches, key_of
from flopwatch.kernels.layout import product_layouts
from flopwatch.kernels.matmul_fp8_kernel import matmul_fp8_kernel
from flopwatch.kernels.operands import check_dtypes, check_factors, check_on_one_gpu
from flopwatch.kernels.routes import routed_fp8_product
from flopwatch.kernels.scratch import ALIGNMENT, is_aligned, is_worth_scratch
from flopwatch.kernels.tuner import Tuner, triton_configs
from flopwatch.utils.gpu import detect_gpu

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

    from flopwatch.kernels.launch import Arrange

OUT_DTYPES = (torch.bfloat16, torch.float16, torch.float32)

#: To what the depth of copies is rounded: the step of most configurations, which need no masks then.
_DEPTH = 128


def _fp8(block_m: int, block_n: int, block_k: int, num_warps: int, num_stages: int) -> MatmulConfig:
    return MatmulConfig(
        block_m=block_m, block_n=block_n, block_k=block_k, num_warps=num_warps, num_stages=num_stages, use_fp8=True
    )


#: What is chosen from where the tensor cores sum alone. 128x256x128 and 128x128x128 are among the tiles with which a
#: warp-specialised kernel in Gluon came to 0.97 to 1.09 of cuBLASLt from 4096 cubed on (H200, 2026-11-20); this kernel
#: is "plain" in ``evidence/h200/fp8-candidates-2026-11-22.json``. Registers of a thread on sm_90, with scales of rows
#: and columns (triton 3.7.1): 248, 144, 229, 152, 128, 80, 72; nothing spills there in any layout, nor with triton
#: 3.6.0, but for 8 bytes of the last one where M is 1. Elsewhere the first and the third spill up to 216 bytes in some
#: layouts. All but the first fit the 99 KiB of sm_89 and sm_120.
FP8_AUTOTUNE: tuple[MatmulConfig, ...] = (
    _fp8(128, 256, 128, 8, 4),
    _fp8(128, 128, 128, 8, 4),
    _fp8(128, 128, 128, 4, 3),
    _fp8(64, 128, 128, 4, 4),
    _fp8(128, 64, 128, 4, 4),
    _fp8(64, 64, 128, 4, 4),
    _fp8(16, 64, 256, 4, 4),
)

#: What is chosen from where each step's sum is added in registers of its own: no thread holds more than 64 elements of
#: a tile, since it needs them twice (128x256 would spill 216 bytes), and no warpgroup more than 64 rows, or ptxas
#: serialises its products (warning C7514, with 128 rows of four warps). Registers as above: 191, 193, 199, 114, 115,
#: 80; nothing spills. ``FLOPWATCH_KERNELS=plain python -m flopwatch static --device h200 -k MatmulFp8`` tells these
#: anew.
FP8_PROMOTED_AUTOTUNE: tuple[MatmulConfig, ...] = (
    _fp8(128, 128, 128, 8, 4),
    _fp8(64, 256, 128, 8, 4),
    _fp8(64, 128, 128, 4, 4),
    _fp8(128, 64, 128, 8, 4),
    _fp8(64, 64, 128, 4, 4),
    _fp8(16, 64, 256, 4, 4),
)

#: Elements of a tile that a thread may hold where it stores rows of C in pieces.
_ODD_ROWS_ELEMENTS = 64

#: What gfx950 is to PyTorch, and the first major version of what has e4m3fn on AMD's side.
_GFX950 = (9, 5)
_GFX12 = 12

_LARGEST_SIDE = max(max(config.block_m, config.block_n, config.block_k) for config in FP8_AUTOTUNE)


def _fitting_registers(
    configs: list[triton.Config], args: Mapping[str, Any], **_constants: object
) -> list[triton.Config]:
    """Leave out the configurations that spill where rows of C do not start at multiples of 16 elements.

    Triton stores such rows in pieces, each with an address and a mask of its own, for which a thread with 128 elements
    of a tile has no registers: 140 and 600 bytes of spills on sm_90 (triton 3.7.1, 2026-11-22).
    """
    if args["stride_cm"] % ALIGNMENT == 0:
        return configs
    return [
        config
        for config in configs
        if config.kwargs["BLOCK_M"] * config.kwargs["BLOCK_N"] <= _ODD_ROWS_ELEMENTS * config.num_warps * 32
    ]


_configured = triton.heuristics(
    {
        "EVEN_MN": lambda args: args["M"] % args["BLOCK_M"] == 0 and args["N"] % args["BLOCK_N"] == 0,
        "EVEN_K": lambda args: args["K"] % args["BLOCK_K"] == 0,
    }
)(matmul_fp8_kernel)


@functools.cache
def _autotuned(configs: tuple[MatmulConfig, ...]):  # type: ignore[no-untyped-def] # Triton ships no types
    """Return the kernel, to be tuned over `configs` at the first call of each shape, layout and dtype."""
    key = ["M", "N", "K", "PROMOTE"]
    return Tuner(_configured, triton_configs(configs), key, kind=product_layouts, rule=_fitting_registers)


def triton_matmul_fp8(  # noqa: PLR0917 - that of `torch._scaled_mm`
    a: torch.Tensor,
    b: torch.Tensor,
    scale_a: torch.Tensor,
    scale_b: torch.Tensor,
    out_dtype: torch.dtype = torch.bfloat16,
    use_fast_accum: bool = False,  # noqa: FBT001, FBT002 - that of `torch._scaled_mm`
) -> torch.Tensor:
    """Compute ``(a @ b) * scale_a * scale_b`` of float8 matrices, as `torch._scaled_mm` does; no gradient.

    Any strides and any M, N, K >= 0. The tensor cores read both operands along K: fast is a row-major ``a`` and a
    column-major ``b``, the transpose of a linear layer's weight, whose rows start at multiples of 16 bytes. Of what
    Triton cannot read 16 bytes at a time a copy is made that is so, and of what is stored the other way round if the
    product is large.

    The first call of each (M, N, K) and layout compiles and times a short list of configurations, unless a table has
    what was measured, or a rule what is near that (`flopwatch.kernels.routes`).

    GPUs whose matrix units do not take e4m3fn get float16 copies of both operands, which are exact: NVIDIA's before
    compute capability 8.9, for which Triton compiles no e4m3fn, and AMD's gfx942, whose float8 formats (fnuz) are
    others.

    Args:
        a: (M, K), float8_e4m3fn, on a CUDA device.
        b: (K, N), the same dtype and device.
        scale_a: float32, on the same device: one element, or one for each row of a, (M,) or (M, 1).
        scale_b: likewise one element, or one for each column of b, (N,) or (1, N).
        out_dtype: bfloat16, float16 or float32.
        use_fast_accum: on Hopper (compute capability 9.0), whether the tensor cores may sum along all of K. They keep
            some 14 bits of a sum of float8, so that the error grows with K (DeepSeek-V3 technical report, 2024, section
            3.3.2). Otherwise the sum of each 128 products is added in float32, which costs registers and a wait in each
            step; inside a step there are 14 bits all the same, whatever the `out_dtype`. On other GPUs both are one:
            Triton adds sums of steps on Hopper alone.

    Returns:
        A contiguous (M, N) tensor of `out_dtype`. What exceeds its range becomes infinite; NaN stays NaN.

    Raises:
        ValueError: a matrix is not 2D, a tensor is not on CUDA, the devices differ, the dimensions are incompatible, or
            a scale has another shape.
        TypeError: a dtype is not supported, or a scale is no tensor.
    """
    if torch.compiler.is_compiling():
        product: torch.Tensor = torch.ops.flopwatch.triton_matmul_fp8.default(
            a, b, scale_a, scale_b, out_dtype, use_fast_accum
        )
        return product
    return _eager(a, b, scale_a, scale_b, out_dtype, use_fast_accum)


def _eager(  # noqa: PLR0917 - as `triton_matmul_fp8`
    a: torch.Tensor,
    b: torch.Tensor,
    scale_a: torch.Tensor,
    scale_b: torch.Tensor,
    out_dtype: torch.dtype,
    use_fast_accum: bool,  # noqa: FBT001 - as `triton_matmul_fp8`
) -> torch.Tensor:
    key, addresses = key_of(a, b, (out_dtype, not use_fast_accum), scale_a, scale_b)
    product = _launches.again(key, addresses)
    if product is not None:
        return product
    _check_operands(a, b, scale_a, scale_b, out_dtype)
    (M, K), N = a.shape, b.shape[1]
    if K == 0:
        return torch.zeros((M, N), device=a.device, dtype=out_dtype)
    c = torch.empty((M, N), device=a.device, dtype=out_dtype)
    if M * N != 0:
        with torch.cuda.device(a.device):
            _multiply(a, b, c, scale_a, scale_b, is_fast=use_fast_accum, key=key)
    return c


def _multiply(
    a: torch.Tensor,
    b: torch.Tensor,
    c: torch.Tensor,
    scale_a: torch.Tensor,
    scale_b: torch.Tensor,
    *,
    is_fast: bool,
    key: tuple[Hashable, ...] | None,
) -> None:
    """Multiply what was checked, into `c`; keep the launch where all is read as it was given."""
    given = (a, b, scale_a, scale_b)
    is_native = _multiplies_e4m3fn(a.device)
    promotes = is_native and not is_fast and _sums_in_14_bits(a.device)
    configs = FP8_PROMOTED_AUTOTUNE if promotes else FP8_AUTOTUNE
    if not is_native:
        a, b = a.half(), b.half()
        configs = tuple(replace(config, block_k=config.block_k // 2) for config in configs)
    with contextlib.suppress(torch.OutOfMemoryError):  # then as they are, slowly
        a, b = _readable(a, b, along_k=is_native)
    scale_a, scale_b = (scale.reshape(-1).contiguous() for scale in (scale_a, scale_b))
    route = routed_fp8_product(a, b, c, scale_a, scale_b, promotes=promotes) if is_native else None
    try:
        if route is not None:
            launched: Launched | None = route.launch()
        else:
            launched = _launch(_autotuned(configs), a, b, c, scale_a, scale_b, promotes=promotes)
    except OutOfResources as error:
        raise ValueError(
            "no configuration of the float8 matmul fits the GPU\n"
            f"  why: {error}\n"
            "  do:  multiply in float16, and scale the product: triton_matmul(a.half(), b.half())"
        ) from error
    is_as_given = all(x.data_ptr() == y.data_ptr() for x, y in zip(given, (a, b, scale_a, scale_b), strict=True))
    if launched is not None and is_as_given:
        _launches.keep(key, replace(launched, arrange=_with_c_third(launched.arrange)), c)


def _with_c_third(arrange: Arrange | None) -> Arrange:
    """Put C, which a call has last, where the kernels have it: before the scales."""

    def arranged(stream: int, a: int, b: int, *scales_and_c: int) -> tuple[tuple[int, ...], object]:
        *scales, c = scales_and_c
        pointers = (a, b, c, *scales)
        return (pointers, None) if arrange is None else arrange(stream, *pointers)

    return arranged


#: One node of a graph of `torch.compile`, which would trace through to what only an eager call may do.
_operator = torch.library.custom_op(
    "flopwatch::triton_matmul_fp8",
    _eager,
    mutates_args=(),
    schema=(
        "(Tensor a, Tensor b, Tensor scale_a, Tensor scale_b, ScalarType out_dtype, bool use_fast_accum) -> Tensor"
    ),
)
_launches = Launches()


@_operator.register_fake
def _product_of_fakes(  # noqa: PLR0917 - as `triton_matmul_fp8`
    a: torch.Tensor,
    b: torch.Tensor,
    scale_a: torch.Tensor,
    scale_b: torch.Tensor,
    out_dtype: torch.dtype,
    use_fast_accum: bool,  # noqa: ARG001, FBT001 - as `triton_matmul_fp8`
) -> torch.Tensor:
    _check_operands(a, b, scale_a, scale_b, out_dtype)
    return torch.empty((a.shape[0], b.shape[1]), device=a.device, dtype=out_dtype)


def _multiplies_e4m3fn(device: torch.device) -> bool:
    """Tell whether the GPU's matrix units take float8_e4m3fn.

    Of AMD's, gfx950 and gfx12 do, which are 9.5 and 12.x to PyTorch. On gfx942 Triton would convert to float16 in the
    kernel: for a tile of 128x128 and steps of 128 that takes 13,640 lines of assembly, where one of float16 in steps of
    64 has 1493 (triton 3.7.1, 2026-11-22; 3.6.0 likewise).
    """
    if torch.version.hip is None:
        return detect_gpu(device.index or 0).has_fp8
    major, minor = torch.cuda.get_device_capability(device)
    return (major, minor) == _GFX950 or major >= _GFX12


def _sums_in_14_bits(device: torch.device) -> bool:
    """Tell whether products of float8 are those of Hopper, which sum in less than float32."""
    return torch.version.hip is None and detect_gpu(device.index or 0).has_warpgroup_mma


def _readable(a: torch.Tensor, b: torch.Tensor, *, along_k: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Return both operands, or copies of them that Triton can read 16 bytes at a time, along K.

    What it cannot read so is copied always: loaded one by one, the elements of a step need more registers than a thread
    has, in every configuration. Another order costs the kernel a transposition in each step, and is copied, if
    `along_k`, where a product gains by copies.
    """
    (M, K), N = a.shape, b.shape[1]
    is_large = along_k and is_worth_scratch(M, N, K)
    a, b_columns = (
        _copied_along_k(rows)
        if not is_aligned(rows.data_ptr(), rows.stride()) or (is_large and rows.stride(1) != 1)
        else rows
        for rows in (a, b.T)
    )
    return a, b_columns.T


def _copied_along_k(rows: torch.Tensor) -> torch.Tensor:
    """Return a contiguous copy of (rows, K), with zeros that round K up to `_DEPTH`."""
    bits = rows.view(torch.uint8) if rows.itemsize == 1 else rows  # torch fills and copies bytes on every GPU
    return pad(bits, (0, -rows.shape[1] % _DEPTH)).contiguous().view(rows.dtype)


def _launch(  # type: ignore[no-untyped-def] # a kernel's type depends on its decorators # noqa: PLR0917 - its arguments
    kernel,
    a: torch.Tensor,
    b: torch.Tensor,
    c: torch.Tensor,
    scale_a: torch.Tensor,
    scale_b: torch.Tensor,
    *,
    promotes: bool,
) -> Launched | None:
    (M, N), K = c.shape, min(a.shape[1], b.shape[0])  # if only one was copied, the other has no zeros past its depth
    numbers = (M, N, K, *a.stride(), *b.stride(), *c.stride())
    grid: tuple[int, ...] = ()

    def noted_grid(meta: Mapping[str, int]) -> tuple[int, ...]:
        nonlocal grid
        grid = (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)
        return grid

    compiled = kernel[noted_grid](
        *(a, b, c, scale_a, scale_b, *numbers),
        PER_ROW=scale_a.numel() > 1,
        PER_COLUMN=scale_b.numel() > 1,
        PROMOTE=promotes,
        WIDE=any(_LARGEST_SIDE * sum(matrix.stride()) >= 2**31 for matrix in (a, b, c)),
    )
    return (
        None if compiled is None else Launched(compiled=compiled, grid=grid, pointers=5, numbers=numbers, tuner=kernel)
    )


def _check_operands(
    a: torch.Tensor, b: torch.Tensor, scale_a: torch.Tensor, scale_b: torch.Tensor, out_dtype: torch.dtype
) -> None:
    check_factors(a, b)
    for name, scale in (("scale_a", scale_a), ("scale_b", scale_b)):
        if not isinstance(scale, torch.Tensor):
            raise TypeError(
                f"{name} must be a tensor, got {scale!r}\n"
                "  why: the kernel reads scales in the GPU's memory, where they are usually computed\n"
                f'  do:  pass torch.tensor({scale!r}, device="cuda")'
            )
    check_on_one_gpu(a=a, b=b, scale_a=scale_a, scale_b=scale_b)
    check_dtypes((torch.float8_e4m3fn,), a=a, b=b)
    check_dtypes((torch.float32,), scale_a=scale_a, scale_b=scale_b)
    for name, scale, scaled, shapes in (
        ("scale_a", scale_a, "rows of a", ((M := a.shape[0],), (M, 1))),
        ("scale_b", scale_b, "columns of b", ((N := b.shape[1],), (1, N))),
    ):
        if scale.numel() != 1 and tuple(scale.shape) not in shapes:
            raise ValueError(
                f"{name} has the shape {tuple(scale.shape)}, where there are {shapes[0][0]} {scaled}\n"
                f"  why: one factor scales the whole product, or each of the {scaled} has one\n"
                f"  do:  pass one element, or the shape {shapes[0]} or {shapes[1]}"
            )
    if out_dtype not in OUT_DTYPES:
        raise TypeError(
            f"the out_dtype {out_dtype} is not supported\n"
            f"  why: the kernel returns {', '.join(map(str, OUT_DTYPES))}\n"
            "  do:  pass one of these, and convert the result"
        )

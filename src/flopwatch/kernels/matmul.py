"""Matrix multiplication: one Triton kernel for any strides and any sizes."""

from __future__ import annotations

import contextlib
import functools
from typing import TYPE_CHECKING, Any

import torch
import triton
import triton.language as tl
from triton.runtime.errors import OutOfResources

from flopwatch.kernels.blocks import check_blocks, does_not_fit, loads_of_thread
from flopwatch.kernels.configs import MATMUL_AUTOTUNE, MatmulConfig, fitting_matmul_config, matmul_config_for
from flopwatch.kernels.copies import Copying, copies_worth_making
from flopwatch.kernels.copy_kernel import first_columns, make_copies
from flopwatch.kernels.eights import are_readable, eights, in_eights
from flopwatch.kernels.hopper_copying import prepare_hopper_copying
from flopwatch.kernels.launch import Launched, Launches, key_of
from flopwatch.kernels.layout import product_layouts
from flopwatch.kernels.operands import check_dtypes, check_factors, check_on_one_gpu
from flopwatch.kernels.prediction import matmul_us
from flopwatch.kernels.routes import routed_product
from flopwatch.kernels.tuner import Tuner, triton_configs
from flopwatch.utils.gpu import detect_gpu

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

    from flopwatch.kernels.copy_kernel import Copies

SUPPORTED_DTYPES = (torch.float16, torch.bfloat16, torch.float32)

#: Elements of both operands that a thread may load one by one in each step without spilling: compiled for sm_90 on
#: 2026-11-20 (triton 3.7.1) with rows of 1001 elements, configurations of 80 fit 255 registers and not all of 96 do.
#: ``python -m pytest tests/kernels/test_compiled.py -k "spills and odd"`` checks that none which is tried spills. To
#: derive the number again, run this, which prints what every configuration of the list spills::
#:
#:     import torch
#:     from flopwatch.kernels import matmul
#:     from flopwatch.static import kernel_facts, pretend_gpu
#:     matmul.MAX_SCALAR_LOADS = 128
#:     with pretend_gpu("h200", tensors="meta") as recorder:
#:         a = torch.empty(1001, 1001, device="cuda", dtype=torch.float16)
#:         matmul.triton_matmul(a, a)
#:         print(*((fact.config, fact.registers, fact.spill_bytes) for fact in kernel_facts(recorder)), sep="\n")
MAX_SCALAR_LOADS = 80


@triton.jit  # type: ignore[untyped-decorator] # Triton ships no types
def matmul_kernel(  # type: ignore[no-untyped-def] # Triton types them # noqa: PLR0917 - a kernel's arguments
    a_ptr,  # (M, K)
    b_ptr,  # (K, N)
    c_ptr,  # (M, N)
    M,
    N,
    K,
    stride_am,
    stride_ak,
    stride_bk,
    stride_bn,
    stride_cm,
    stride_cn,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
    EVEN_MN: tl.constexpr,
    EVEN_K: tl.constexpr,
    WIDE: tl.constexpr,
    EIGHTS: tl.constexpr = "",
):
    """Multiply two matrices.

    Formula: ``C[m, n] = sum over k of A[m, k] * B[k, n]``.

    ======  ======  ====================  ==========================
    tensor  shape   strides               dtype
    ======  ======  ====================  ==========================
    A       (M, K)  stride_am, stride_ak  float16 or bfloat16
    B       (K, N)  stride_bk, stride_bn  the same
    C       (M, N)  stride_cm, stride_cn  the same
    ======  ======  ====================  ==========================

    One program computes one ``BLOCK_M x BLOCK_N`` tile of C, walking along K in steps of BLOCK_K. Programs are numbered
    in groups of GROUP_M rows of tiles, so that those which run at the same time share panels of A and B in the L2
    cache.

    Numerics and limits: sums in float32, rounded once to the dtype of C. A tile's origin is a 64-bit offset, so that a
    matrix may have more than 2**31 elements; inside a tile offsets are 32-bit unless WIDE. M, N, K and the number of
    tiles are below 2**31. EVEN_MN and EVEN_K promise that tiles fit the matrices exactly, and drop the masks.
    EIGHTS promises what `flopwatch.kernels.eights.eights` says: then loads and stores are of 16 bytes.
    """
    if EIGHTS != "":
        M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm = in_eights(
            M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, EIGHTS
        )
    num_tiles_m = tl.cdiv(M, BLOCK_M)
    num_tiles_n = tl.cdiv(N, BLOCK_N)
    pid = tl.program_id(0)
    tiles_per_group = GROUP_M * num_tiles_n
    first_tile_m = pid // tiles_per_group * GROUP_M
    group_rows = min(num_tiles_m - first_tile_m, GROUP_M)
    tile_m = first_tile_m + pid % tiles_per_group % group_rows
    tile_n = pid % tiles_per_group // group_rows

    rows = tl.arange(0, BLOCK_M)
    columns = tl.arange(0, BLOCK_N)
    depth = tl.arange(0, BLOCK_K)
    rows_left = M - tile_m * BLOCK_M
    columns_left = N - tile_n * BLOCK_N
    first_row = tile_m.to(tl.int64) * BLOCK_M
    first_column = tile_n.to(tl.int64) * BLOCK_N
    a_ptr += first_row * stride_am
    b_ptr += first_column * stride_bn
    c_ptr += first_row * stride_cm + first_column * stride_cn
    if WIDE:
        rows = rows.to(tl.int64)
        columns = columns.to(tl.int64)
        depth = depth.to(tl.int64)
    a_offsets = rows[:, None] * stride_am + depth[None, :] * stride_ak
    b_offsets = depth[:, None] * stride_bk + columns[None, :] * stride_bn
    a_step = BLOCK_K * tl.cast(stride_ak, tl.int64)
    b_step = BLOCK_K * tl.cast(stride_bk, tl.int64)

    accumulator = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        if EVEN_MN and EVEN_K:
            a = tl.load(a_ptr + a_offsets)
            b = tl.load(b_ptr + b_offsets)
        else:
            a_mask = rows[:, None] < rows_left
            b_mask = columns[None, :] < columns_left
            if not EVEN_K:
                a_mask &= depth[None, :] < K - start
                b_mask &= depth[:, None] < K - start
            a = tl.load(a_ptr + a_offsets, mask=a_mask, other=0.0)
            b = tl.load(b_ptr + b_offsets, mask=b_mask, other=0.0)
        accumulator = tl.dot(a, b, accumulator)
        a_ptr += a_step
        b_ptr += b_step

    c_tile = c_ptr + rows[:, None] * stride_cm + columns[None, :] * stride_cn
    c = accumulator.to(c_ptr.dtype.element_ty)
    if EVEN_MN:
        tl.store(c_tile, c)
    else:
        tl.store(c_tile, c, mask=(rows[:, None] < rows_left) & (columns[None, :] < columns_left))


def _is_wide(args: Mapping[str, Any]) -> bool:
    """Tell whether an offset inside one tile can exceed 32 bits, which strides of many millions bring about."""
    farthest: int = max(
        args["BLOCK_M"] * args["stride_am"] + args["BLOCK_K"] * args["stride_ak"],
        args["BLOCK_K"] * args["stride_bk"] + args["BLOCK_N"] * args["stride_bn"],
        args["BLOCK_M"] * args["stride_cm"] + args["BLOCK_N"] * args["stride_cn"],
    )
    return farthest >= 2**31


def _numbers(args: Mapping[str, Any]) -> tuple[tuple[int, int, int], tuple[int, int], tuple[int, int]]:
    """Return the sizes of a product and the strides of its operands."""
    a_strides, b_strides = (args["stride_am"], args["stride_ak"]), (args["stride_bk"], args["stride_bn"])
    return (args["M"], args["N"], args["K"]), a_strides, b_strides


def _eights(args: Mapping[str, Any]) -> str:
    """Say what `matmul_kernel` is to know that 8 divides."""
    return eights(*_numbers(args), (args["stride_cm"], args["stride_cn"]))


def _fitting_registers(
    configs: list[triton.Config], args: Mapping[str, Any], **_constants: object
) -> list[triton.Config]:
    """Leave out the configurations that spill where operands cannot be read 16 bytes at a time.

    Then every element passes through a register of its own.
    """
    if are_readable((args["a_ptr"].data_ptr(), args["b_ptr"].data_ptr()), *_numbers(args)):
        return configs
    fitting = [config for config in configs if _scalar_loads(config) <= MAX_SCALAR_LOADS]
    return fitting or configs  # sides that the caller gave may leave no choice


def _scalar_loads(config: triton.Config) -> float:
    sides = config.kwargs
    return loads_of_thread(sides["BLOCK_M"], sides["BLOCK_N"], sides["BLOCK_K"], config.num_warps)


def _predicted_us(**args: Any) -> float:
    """Predict the time of a launch on the current GPU."""
    gpu = detect_gpu(torch.cuda.current_device())
    config = MatmulConfig(
        block_m=args["BLOCK_M"],
        block_n=args["BLOCK_N"],
        block_k=args["BLOCK_K"],
        group_m=args["GROUP_M"],
        num_warps=args["num_warps"],
        num_stages=args["num_stages"],
    )
    return matmul_us(
        args["M"],
        args["N"],
        args["K"],
        config,
        sms=gpu.num_sms,
        shared_bytes=gpu.sram_per_sm,
        element_bytes=args["a_ptr"].element_size(),
    )


_configured = triton.heuristics(
    {
        "EVEN_MN": lambda args: args["M"] % args["BLOCK_M"] == 0 and args["N"] % args["BLOCK_N"] == 0,
        "EVEN_K": lambda args: args["K"] % args["BLOCK_K"] == 0,
        "WIDE": _is_wide,
        "EIGHTS": _eights,
    }
)(matmul_kernel)


@functools.cache
def _autotuned(configs: tuple[MatmulConfig, ...]):  # type: ignore[no-untyped-def] # Triton ships no types
    """Return the kernel, to be tuned over `configs` at the first call of each shape, layout and dtype."""
    return Tuner(
        _configured,
        triton_configs(configs),
        key=["M", "N", "K"],
        kind=product_layouts,
        rule=_fitting_registers,
        model=_predicted_us,
    )


def _multiply(
    a: torch.Tensor, b: torch.Tensor, given: dict[str, int], *, tuned: bool, key: tuple[Hashable, ...] | None
) -> torch.Tensor:
    """Multiply what was checked, in the configuration of the architecture or of what was given, or in a tuned one."""
    c = torch.empty((a.shape[0], b.shape[1]), device=a.device, dtype=a.dtype)
    config = None if tuned else _config_for(a.device, given, element_bytes=a.element_size())
    route = None
    try:
        route = routed_product(a, b, c) if tuned and not given else None
    except torch.OutOfMemoryError:  # of a workspace: then the plain kernel, which has none; a later call may have it
        key = None
    try:
        if route is not None:
            launched: Launched | None = route.launch()
        elif config is None:
            kernel = _autotuned(_candidates(a.device, given, element_bytes=a.element_size()))
            launched = _launch(kernel, a, b, c)
        else:
            launched = _launch(_configured, a, b, c, config)
    except OutOfResources as error:
        raise ValueError(does_not_fit(given, config, why=error)) from error
    if launched is not None:
        _launches.keep(key, launched, c)
    return c


def triton_matmul(  # noqa: PLR0917 - the published signature
    a: torch.Tensor,
    b: torch.Tensor,
    block_m: int | None = None,
    block_n: int | None = None,
    block_k: int | None = None,
    use_autotune: bool = True,  # noqa: FBT001, FBT002 - the published signature
) -> torch.Tensor:
    """Multiply ``a`` (M, K) by ``b`` (K, N); no gradient.

    Any strides (transposed and sliced views included) and any M, N, K >= 0.

    Unless all three block sizes are given the kernel is autotuned: the first call of each (M, N, K), layout and
    dtype takes what was measured before, or compiles and times a short list of configurations, in which the sizes that
    are given replace the list's own (`flopwatch.kernels.tuner`). With ``use_autotune=False`` the missing sizes come
    from the architecture's configuration (`get_matmul_config`).

    Large operands that are read slowly as they lie are copied where that pays (`flopwatch.kernels.copies`), which takes
    memory while the product is computed; without that memory they are multiplied as they are.

    Args:
        a: float16, bfloat16 or float32, on a CUDA device.
        b: the same dtype and device.
        block_m: rows of C per program: a power of two, at least 16.
        block_n: columns of C per program, likewise.
        block_k: step along K, likewise.
        use_autotune: whether the configuration may be chosen by timing.

    Returns:
        A contiguous (M, N) tensor: float16 and bfloat16 keep their dtype; float32 is rounded to float16, computed and
        returned in float16 (values beyond 65504 become infinite).

    Raises:
        ValueError: an input is not 2D or not on CUDA, the devices differ, the dimensions are incompatible, or a block
            size is invalid or does not fit the GPU.
        TypeError: a dtype is not supported, or the dtypes differ.
    """
    if torch.compiler.is_compiling():
        product: torch.Tensor = torch.ops.flopwatch.triton_matmul.default(a, b, block_m, block_n, block_k, use_autotune)
        return product
    return _eager(a, b, block_m, block_n, block_k, use_autotune)


def _eager(  # noqa: PLR0917 - as `triton_matmul`
    a: torch.Tensor,
    b: torch.Tensor,
    block_m: int | None,
    block_n: int | None,
    block_k: int | None,
    use_autotune: bool,  # noqa: FBT001 - as `triton_matmul`
) -> torch.Tensor:
    key, addresses = key_of(a, b, (block_m, block_n, block_k, not use_autotune))
    product, has_memory = None, True
    try:
        product = _launches.again(key, addresses)
        if product is None:
            product = _launches.again_of_copies(key, addresses)
    except torch.OutOfMemoryError:  # for copies, or a workspace: then without, slowly, and that is not kept
        has_memory = False
    if product is not None:
        return product
    others = (block_m, block_n, block_k, use_autotune)
    _check_operands(a, b)
    blocks = {"block_m": block_m, "block_n": block_n, "block_k": block_k}
    check_blocks(blocks)
    if a.dtype == torch.float32:
        return _eager(a.half(), b.half(), *others)
    (M, K), N = a.shape, b.shape[1]
    if K == 0:
        return torch.zeros((M, N), device=a.device, dtype=a.dtype)
    if M * N == 0:
        return torch.empty((M, N), device=a.device, dtype=a.dtype)
    given = {name: block for name, block in blocks.items() if block is not None}
    tuned = use_autotune and len(given) < len(blocks)
    with torch.cuda.device(a.device):
        copies = copies_worth_making(a, b, routed=tuned and not given)
        if copies is None:
            return _multiply(a, b, given, tuned=tuned, key=key if has_memory else None)
        if has_memory:
            with contextlib.suppress(torch.OutOfMemoryError):  # as above
                if isinstance(copies, Copying):
                    return _copying(copies, a, b, key)
                return _by_way_of(copies, a, b, others, key)
        return _multiply(a, b, given, tuned=tuned, key=None)


def _copying(copying: Copying, a: torch.Tensor, b: torch.Tensor, key: tuple[Hashable, ...] | None) -> torch.Tensor:
    """Multiply operands that were checked in a launch that copies them, and keep that."""
    product = torch.empty((a.shape[0], b.shape[1]), device=a.device, dtype=a.dtype)
    launched = prepare_hopper_copying(a, b, product, copying.config, copies_b=copying.copies_b).launch()
    _launches.keep(key, launched, product)
    return product


def _by_way_of(
    copies: Copies,
    a: torch.Tensor,
    b: torch.Tensor,
    others: tuple[int | None, int | None, int | None, bool],
    key: tuple[Hashable, ...] | None,
) -> torch.Tensor:
    """Multiply copies of operands that were checked, with the other arguments of `_eager`, and keep what that was."""
    copied = make_copies(copies, a, b)
    product, cut = _eager(copied.a, copied.b, *others), None
    if product.shape[1] != b.shape[1]:
        product, launched = first_columns(product, b.shape[1])
        cut = launched, product
    *blocks, use_autotune = others
    of_copies, _ = key_of(copied.a, copied.b, (*blocks, not use_autotune))
    made = copied.launched, copied.memory
    _launches.keep_of_copies(key, made, of_copies, cut, second_begins=copied.b_begins)
    return product


#: One node of a graph of `torch.compile`, which would trace through to what only an eager call may do.
_operator = torch.library.custom_op(
    "flopwatch::triton_matmul",
    _eager,
    mutates_args=(),
    schema="(Tensor a, Tensor b, int? block_m, int? block_n, int? block_k, bool use_autotune) -> Tensor",
)
_launches = Launches()


@_operator.register_fake
def _matmul_of_fakes(  # noqa: PLR0917 - as `triton_matmul`
    a: torch.Tensor,
    b: torch.Tensor,
    block_m: int | None,
    block_n: int | None,
    block_k: int | None,
    use_autotune: bool,  # noqa: ARG001, FBT001 - as `triton_matmul`
) -> torch.Tensor:
    _check_operands(a, b)
    check_blocks({"block_m": block_m, "block_n": block_n, "block_k": block_k})
    dtype = torch.float16 if a.dtype == torch.float32 else a.dtype
    return torch.empty((a.shape[0], b.shape[1]), device=a.device, dtype=dtype)


def triton_matmul_fp32(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Multiply in float16 and return the result as float32.

    This is **not** a float32 product: the inputs are rounded to float16 and so is the result, before it is converted.
    It only spares a caller the conversion when comparing with a float32 reference.

    Args:
        a: (M, K), as for `triton_matmul`.
        b: (K, N), likewise.

    Returns:
        A contiguous (M, N) float32 tensor.

    Raises:
        ValueError: as `triton_matmul`.
        TypeError: as `triton_matmul`.
    """
    _check_operands(a, b)
    return triton_matmul(a.half(), b.half()).float()


def _launch(  # type: ignore[no-untyped-def] # a kernel's type depends on its decorators
    kernel,
    a: torch.Tensor,
    b: torch.Tensor,
    c: torch.Tensor,
    config: MatmulConfig | None = None,
) -> Launched | None:
    (M, K), N = a.shape, b.shape[1]
    numbers = (M, N, K, *a.stride(), *b.stride(), *c.stride())
    grid: tuple[int, ...] = ()

    def noted_grid(meta: Mapping[str, int]) -> tuple[int, ...]:
        nonlocal grid
        grid = (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)
        return grid

    options = {}
    if config is not None:
        options = {**config.constants(), "num_warps": config.num_warps, "num_stages": config.num_stages}
    compiled = kernel[noted_grid](a, b, c, *numbers, **options)
    tuner = kernel if config is None else None
    return (
        None if compiled is None else Launched(compiled=compiled, grid=grid, pointers=3, numbers=numbers, tuner=tuner)
    )


def _candidates(device: torch.device, given: dict[str, int], *, element_bytes: int) -> tuple[MatmulConfig, ...]:
    if not given:
        return MATMUL_AUTOTUNE
    shared_bytes = detect_gpu(device.index or 0).sram_per_sm
    fitted = (
        fitting_matmul_config(config, given, shared_bytes=shared_bytes, element_bytes=element_bytes)
        for config in MATMUL_AUTOTUNE
    )
    return tuple(dict.fromkeys(fitted))


def _config_for(device: torch.device, given: dict[str, int], *, element_bytes: int) -> MatmulConfig:
    gpu = detect_gpu(device.index or 0)
    config = matmul_config_for(gpu.arch)
    if not given:
        return config
    return fitting_matmul_config(config, given, shared_bytes=gpu.sram_per_sm, element_bytes=element_bytes)


def _check_operands(a: torch.Tensor, b: torch.Tensor) -> None:
    check_factors(a, b)
    check_on_one_gpu(a=a, b=b)
    check_dtypes(SUPPORTED_DTYPES, a=a, b=b)

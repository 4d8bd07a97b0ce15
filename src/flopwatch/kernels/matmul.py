"""Matrix multiplication: one Triton kernel for any strides and any sizes."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import torch
import triton
import triton.language as tl
from triton.runtime.errors import OutOfResources

from flopwatch.kernels.configs import MATMUL_AUTOTUNE, MatmulConfig, fitting_matmul_config, matmul_config_for
from flopwatch.kernels.operands import check_dtypes, check_on_one_gpu
from flopwatch.utils.gpu import detect_gpu

if TYPE_CHECKING:
    from collections.abc import Mapping

SUPPORTED_DTYPES = (torch.float16, torch.bfloat16, torch.float32)
MIN_BLOCK = 16

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
    """
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


def _fitting_registers(
    configs: list[triton.Config], args: Mapping[str, Any], **_constants: object
) -> list[triton.Config]:
    """Leave out the configurations that spill where an operand cannot be read 16 bytes at a time.

    Triton vectorises a load when it knows that pointer and stride are multiples of 16. Otherwise every element passes
    through a register of its own.
    """
    if all(
        args[f"{name}_ptr"].data_ptr() % 16 == 0 and 1 in strides and max(strides) % 16 == 0
        for name, strides in (
            ("a", (args["stride_am"], args["stride_ak"])),
            ("b", (args["stride_bk"], args["stride_bn"])),
        )
    ):
        return configs
    fitting = [
        config
        for config in configs
        if (config.kwargs["BLOCK_M"] + config.kwargs["BLOCK_N"]) * config.kwargs["BLOCK_K"]
        <= MAX_SCALAR_LOADS * config.num_warps * 32
    ]
    return fitting or configs  # sides that the caller gave may leave no choice


_configured = triton.heuristics(
    {
        "EVEN_MN": lambda args: args["M"] % args["BLOCK_M"] == 0 and args["N"] % args["BLOCK_N"] == 0,
        "EVEN_K": lambda args: args["K"] % args["BLOCK_K"] == 0,
        "WIDE": _is_wide,
    }
)(matmul_kernel)


@functools.cache
def _autotuned(configs: tuple[MatmulConfig, ...]):  # type: ignore[no-untyped-def] # Triton ships no types
    """Return the kernel, to be tuned over `configs` at the first call of each shape and dtype."""
    return triton.autotune(
        [
            triton.Config(config.constants(), num_warps=config.num_warps, num_stages=config.num_stages)
            for config in configs
        ],
        key=["M", "N", "K"],
        prune_configs_by={"early_config_prune": _fitting_registers},
    )(_configured)


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

    Unless all three block sizes are given the kernel is autotuned: the first call of each (M, N, K) and dtype compiles
    and times a short list of configurations, in which the sizes that are given replace the list's own. With
    ``use_autotune=False`` the missing sizes come from the architecture's configuration (`get_matmul_config`).

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
    _check_operands(a, b)
    blocks = {"block_m": block_m, "block_n": block_n, "block_k": block_k}
    _check_blocks(blocks)
    if a.dtype == torch.float32:
        a, b = a.half(), b.half()
    (M, K), N = a.shape, b.shape[1]
    if K == 0:
        return torch.zeros((M, N), device=a.device, dtype=a.dtype)
    c = torch.empty((M, N), device=a.device, dtype=a.dtype)
    if c.numel() == 0:
        return c
    given = {name: block for name, block in blocks.items() if block is not None}
    with torch.cuda.device(a.device):
        config = None
        if not use_autotune or len(given) == len(blocks):
            config = _config_for(a.device, given, element_bytes=a.element_size())
        try:
            if config is None:
                _launch(_autotuned(_candidates(a.device, given, element_bytes=a.element_size())), a, b, c)
            else:
                _launch(_configured, a, b, c, config)
        except OutOfResources as error:
            raise ValueError(_does_not_fit(given, config, why=error)) from error
    return c


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
    kernel, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, config: MatmulConfig | None = None
) -> None:
    (M, K), N = a.shape, b.shape[1]
    options = {}
    if config is not None:
        options = {**config.constants(), "num_warps": config.num_warps, "num_stages": config.num_stages}
    kernel[lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)](
        a, b, c, M, N, K, *a.stride(), *b.stride(), *c.stride(), **options
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


def _does_not_fit(given: Mapping[str, int], config: MatmulConfig | None, *, why: OutOfResources) -> str:
    """Say which blocks exceed the GPU: those that the caller gave, the architecture's, or all that were tuned."""
    if given:
        what = f"the block sizes {_named(given)} do not fit the GPU"
        todo = "pass smaller block sizes, or none to have them chosen"
    elif config is not None:
        blocks = {"block_m": config.block_m, "block_n": config.block_n, "block_k": config.block_k}
        what = f"the architecture's configuration, {_named(blocks)}, does not fit the GPU"
        todo = "pass smaller block sizes, or leave use_autotune on"
    else:
        what = "none of the configurations to choose from fits the GPU"
        todo = "pass smaller block sizes"
    return f"{what}\n  why: {why}\n  do:  {todo}"


def _named(blocks: Mapping[str, int]) -> str:
    return ", ".join(f"{name}={block}" for name, block in blocks.items())


def _check_operands(a: torch.Tensor, b: torch.Tensor) -> None:
    for name, tensor in (("a", a), ("b", b)):
        if tensor.ndim != 2:  # noqa: PLR2004 - a matrix
            raise ValueError(
                f"{name} must be 2D, got {tensor.ndim}D of shape {tuple(tensor.shape)}\n"
                "  why: the kernel multiplies two matrices\n"
                "  do:  reshape it, or call once per matrix of a batch"
            )
    check_on_one_gpu(a=a, b=b)
    check_dtypes(SUPPORTED_DTYPES, a=a, b=b)
    if a.shape[1] != b.shape[0]:
        raise ValueError(
            f"incompatible dimensions: a is {tuple(a.shape)}, b is {tuple(b.shape)}\n"
            "  why: the columns of a are multiplied by the rows of b, one to one\n"
            "  do:  pass (M, K) and (K, N); transpose one of them if needed: b.T"
        )


def _check_blocks(blocks: dict[str, int | None]) -> None:
    for name, block in blocks.items():
        if block is None:
            continue
        if block < MIN_BLOCK or block & (block - 1):
            raise ValueError(
                f"the block size {name}={block!r} must be positive, a power of two and at least {MIN_BLOCK}\n"
                "  why: Triton's tiles have power-of-two sides, and the tensor cores multiply 16 by 16\n"
                "  do:  pass 16, 32, 64, 128 or 256, or leave it out to have it chosen"
            )
    sides = [block for block in blocks.values() if block is not None]
    sides += [MIN_BLOCK] * (len(blocks) - len(sides))
    *_, second, largest = sorted(sides)
    if second * largest > tl.TRITON_MAX_TENSOR_NUMEL:
        raise ValueError(
            f"the block sizes {', '.join(f'{name}={block}' for name, block in blocks.items() if block)} are too large\n"
            f"  why: a tile of {second}x{largest} has more than Triton's {tl.TRITON_MAX_TENSOR_NUMEL} elements\n"
            "  do:  pass 16, 32, 64, 128 or 256, or leave them out to have them chosen"
        )

"""Which calls take another kernel than the plain one: those for which another was measured to be faster.

A table's choice (`flopwatch.kernels.known`) that names one of these kernels counts for calls with its key, on the GPU
of its name, whose operands are laid out as those that were measured: contiguous, or B by columns. It names the
configuration as ``python -m evidence.matmul_candidates choose`` and ``python -m evidence.attention_candidates choose``
write it; one that the kernel's list no longer has is passed over. What no table has takes a kernel for Hopper by a rule
(`flopwatch.kernels.hopper_choice`) on any GPU of that capability. All other calls take the plain kernel, and so do all
calls where kernels are interpreted, where ``FLOPWATCH_AUTOTUNE=all`` has everything of the plain kernel's list timed,
and where ``FLOPWATCH_KERNELS=plain`` asks for it.
"""

from __future__ import annotations

import functools
import os
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeAlias

import torch
import triton
from triton import knobs

from flopwatch.kernels.hopper_attention import HOPPER_ATTENTION, can_attend, prepare
from flopwatch.kernels.hopper_choice import attention_config, fp8_product_config, lengths_config, product_config
from flopwatch.kernels.hopper_fp8 import FP8_CONFIGS, can_multiply_fp8, prepare_hopper_fp8
from flopwatch.kernels.hopper_matmul import CONFIGS, HopperConfig, can_multiply, lies_by_columns, prepare_hopper
from flopwatch.kernels.hopper_short import SHORT, ShortConfig, can_multiply_short, can_step, prepare_short
from flopwatch.kernels.known import PLAIN, TABLES, key_text, tabled, version_of
from flopwatch.kernels.thin_fp8 import MOST_FP8_ROWS, THIN_FP8, prepare_thin_fp8
from flopwatch.kernels.thin_matmul import MOST_ROWS, THIN, ThinConfig, prepare_thin
from flopwatch.kernels.tuner import VARIABLE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from flopwatch.kernels.prepared import Prepared

ProductConfig: TypeAlias = HopperConfig | ShortConfig | ThinConfig

#: Kernels for products beside the plain one, and their configurations by name.
_PRODUCTS: Mapping[str, Mapping[str, ProductConfig]] = MappingProxyType(
    {
        "hopper_matmul_kernel": CONFIGS,
        "hopper_short_kernel": SHORT,
        "thin_matmul_kernel": THIN,
    }
)
PRODUCTS = tuple(_PRODUCTS)
#: For attention.
ATTENTION = ("hopper_attention_kernel",)
#: For products of float8 with scales.
FP8_PRODUCTS = ("hopper_matmul_kernel", "thin_matmul_kernel")
#: Where tables are.
FOLDER = TABLES
#: In the environment: "plain" has all calls take the plain kernels.
KERNELS_VARIABLE = "FLOPWATCH_KERNELS"
#: What kernels in Gluon for Hopper are compiled for.
_HOPPER = (9, 0)
#: Gluon is experimental, and changes with each Triton: with those that nobody has compiled these kernels with, calls
#: take the plain ones.
_NEWEST_GLUON = (3, 9)


def routed_product(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> Prepared | None:
    """Prepare the launch that a table or the rule has for ``c = a @ b``; None where the plain kernel is to be launched.

    Args:
        a: (M, K), not empty.
        b: (K, N), of the same dtype.
        c: (M, N), contiguous, on the same GPU.
    """
    if _is_plain():
        return None
    config = _tabled_product(a, b, c)
    if config is None and _is_hopper(a) and can_multiply_short(a, b):
        config = _ruled(a, b)
    return None if config is None or isinstance(config, str) else prepared_product(a, b, c, config)


def ruled_product(a: torch.Tensor, b: torch.Tensor, *, in_lines: bool = False) -> ProductConfig | None:
    """Return what the rule has for ``a @ b``, however operands lie, in tiles whose rows are next to each other.

    None where a table has a choice that these operands can be multiplied by, or the plain kernel is to be launched.

    Args:
        a: (M, K), not empty, of 16-bit elements.
        b: (K, N), of the same dtype, which is that of the product.
        in_lines: whether what is multiplied are copies, whose rows begin with lines of memory.
    """
    if _is_plain() or not _is_hopper(a) or _tabled_product(a, b, a) is not None:
        return None
    return _ruled(a, b, has_steps=False, in_lines=in_lines)


def _ruled(a: torch.Tensor, b: torch.Tensor, *, has_steps: bool = True, in_lines: bool = False) -> ProductConfig | None:
    """Return what the rule has for Hopper; without steps, of tiles whose rows are next to each other."""
    (M, K), N = a.shape, b.shape[1]
    by_columns, packed = lies_by_columns(b), has_steps and a.stride(0) == K
    return product_config(M, N, K, processors=_processors(a), by_columns=by_columns, packed=packed, in_lines=in_lines)


def _takes(config: ProductConfig, a: torch.Tensor, b: torch.Tensor) -> bool:
    """Tell whether these operands can be multiplied so."""
    match config:
        case ThinConfig():
            return a.shape[0] <= MOST_ROWS
        case ShortConfig():
            return _is_hopper(a) and can_multiply_short(a, b) and can_step(a.shape[0], config)
        case HopperConfig():
            return _is_hopper(a) and can_multiply(a, b)


def prepared_product(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, config: ProductConfig) -> Prepared:
    """Prepare the launch of a configuration's kernel for ``c = a @ b``."""
    match config:
        case HopperConfig():
            return prepare_hopper(a, b, c, config)
        case ShortConfig():
            return prepare_short(a, b, c, config)
        case ThinConfig():
            return prepare_thin(a, b, c, config)


def routed_fp8_product(
    a: torch.Tensor,
    b: torch.Tensor,
    c: torch.Tensor,
    scale_a: torch.Tensor,
    scale_b: torch.Tensor,
    *,
    promotes: bool,
) -> Prepared | None:
    """Prepare the launch that a table or the rule has for a scaled product; None where the plain kernel is launched.

    Args:
        a: (M, K), float8_e4m3fn, not empty.
        b: (K, N), of the same dtype; what was measured lies by columns.
        c: (M, N), contiguous, on the same GPU.
        scale_a: float32, contiguous: one element, or one for each row.
        scale_b: likewise one element, or one for each column.
        promotes: whether the sum of each step is added in float32.
    """
    if _is_plain():
        return None
    key = fp8_product_key(a, b, c, scale_a, scale_b, promotes=promotes)
    kernel, name = _choice(FP8_PRODUCTS, key, (a, b.T))
    config = _fp8_configs(kernel, promotes=promotes).get(name)
    takes_tiles = _is_hopper(a) and can_multiply_fp8(a, b, c)
    if config is None and kernel != PLAIN and takes_tiles:
        (M, K), N = a.shape, b.shape[1]
        config = fp8_product_config(M, N, K, processors=_processors(a), promotes=promotes)
    if isinstance(config, ThinConfig):
        fits = a.shape[0] <= MOST_FP8_ROWS
        return prepare_thin_fp8(a, b, c, scale_a, scale_b, config, promotes=promotes) if fits else None
    if config is None or not takes_tiles:
        return None
    return prepare_hopper_fp8(a, b, c, scale_a, scale_b, config, promotes=promotes)


def _fp8_configs(kernel: str, *, promotes: bool) -> Mapping[str, HopperConfig | ThinConfig]:
    """Return what a kernel may be launched with for products of float8, by name."""
    match kernel:
        case "thin_matmul_kernel":
            return THIN_FP8[promotes]
        case "hopper_matmul_kernel":
            return FP8_CONFIGS[promotes]
    return {}


def routed_attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    *,
    causal: bool,
    sm_scale: float | None,
    seq_lens: torch.Tensor | None = None,
) -> Prepared | None:
    """Prepare the launch that a table or a rule has for attention; None where the plain kernel is to be launched.

    Args:
        q: (B, H, S, D), not empty.
        k: (B, H_KV, S_KV, D), of the same dtype.
        v: as `k`.
        out: as `q`, contiguous, of any dtype.
        causal: whether a query sees only the keys up to its own position.
        sm_scale: factor of the scores, ``1 / sqrt(D)`` if None.
        seq_lens: (B,), contiguous: how many positions of each batch entry count, if not all.
    """
    if _is_plain() or not _is_hopper(q) or (sm_scale is not None and not sm_scale >= 0):
        return None
    if seq_lens is not None:  # which are in no table
        name = lengths_config(q.shape, causal=causal)
    else:
        key = attention_key(q, k, out, causal=causal)
        _kernel, name = _choice(ATTENTION, key, (q, k, v))
        if not name:
            name = attention_config(key, FOLDER, gpu=torch.cuda.get_device_name(), processors=_processors(q))
    configs = {config.name: config for config in HOPPER_ATTENTION.get(q.shape[3], ())}
    if name not in configs or not can_attend(q, k, v, out):
        return None
    return prepare(q, k, v, out, configs[name], causal=causal, sm_scale=sm_scale, seq_lens=seq_lens)


def product_key(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> str:
    """Return the key of a product in tables: that of the plain kernel's tuner, and whether B lies by columns.

    >>> half = torch.empty(64, 64).half()
    >>> product_key(half, half, half), product_key(half, half.T, half)
    ('64, 64, 64, float16, float16, float16', '64, 64, 64, float16, float16, float16, by columns')
    """
    (M, K), N = a.shape, b.shape[1]
    layout = ["by columns"] if lies_by_columns(b) else []
    return key_text((M, N, K, a.dtype, b.dtype, c.dtype, *layout))


def fp8_product_key(
    a: torch.Tensor,
    b: torch.Tensor,
    c: torch.Tensor,
    scale_a: torch.Tensor,
    scale_b: torch.Tensor,
    *,
    promotes: bool,
) -> str:
    """Return the key of a scaled product in tables: whether sums are promoted, and rows and columns have scales.

    >>> a, one = torch.empty(64, 32, dtype=torch.float8_e4m3fn), torch.empty(1)
    >>> fp8_product_key(a, a.T, torch.empty(64, 64).half(), torch.empty(64, 1), one, promotes=True)
    '64, 64, 32, True, True, False, float8_e4m3fn, float8_e4m3fn, float16'
    """
    (M, K), N = a.shape, b.shape[1]
    return key_text((M, N, K, promotes, scale_a.numel() > 1, scale_b.numel() > 1, a.dtype, b.dtype, c.dtype))


def attention_key(q: torch.Tensor, k: torch.Tensor, out: torch.Tensor, *, causal: bool) -> str:
    """Return the key of attention in tables: all sizes, since the number of heads decides what fills a GPU.

    >>> q = torch.empty(2, 4, 64, 32).half()
    >>> attention_key(q, q[:, :1], q, causal=True)
    '2, 4, 1, 64, 64, 32, True, float16, float16'
    """
    (B, H, S, D), (_, H_KV, S_KV, _) = q.shape, k.shape
    return key_text((B, H, H_KV, S, S_KV, D, causal, q.dtype, out.dtype))


def _is_plain() -> bool:
    """Tell whether the plain kernel is asked for."""
    asked = os.environ.get(VARIABLE) == "all" or os.environ.get(KERNELS_VARIABLE) == PLAIN
    return asked or bool(knobs.runtime.interpret)


def _tabled_product(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> ProductConfig | str | None:
    """Return what a table has that takes these operands, `PLAIN` for the plain kernel; None where it has nothing."""
    kernel, name = _choice(PRODUCTS, product_key(a, b, c), (a, b.T if lies_by_columns(b) else b))
    config = _PRODUCTS.get(kernel, {}).get(name)
    if kernel == PLAIN:
        return PLAIN
    return config if config is not None and _takes(config, a, b) else None


def _choice(kernels: tuple[str, ...], key: str, operands: Sequence[torch.Tensor]) -> tuple[str, str]:
    """Return the kernel that a table has for a call, and its configuration; "" where it has none."""
    if not all(operand.is_contiguous() for operand in operands):
        return "", ""
    return known_routes((*kernels, PLAIN), FOLDER).get((torch.cuda.get_device_name(), key), ("", ""))


@functools.cache
def known_routes(kernels: tuple[str, ...], folder: Path) -> Mapping[tuple[str, str], tuple[str, str]]:
    """Return the kernel and the configuration of each choice that names one of these, by the GPU's name and the key."""
    return {
        (entry["gpu"], choice["key"]): (choice["kernel"], choice["config"])
        for entry, choice in tabled(folder)
        if choice["kernel"] in kernels
    }


def _is_hopper(tensor: torch.Tensor) -> bool:
    """Tell whether kernels in Gluon for Hopper run: there, and with a Triton whose Gluon they were compiled with."""
    if torch.version.hip is not None or version_of(triton.__version__) > _NEWEST_GLUON:  # ROCm calls gfx90a 9.0, too
        return False
    return torch.cuda.get_device_capability(tensor.device) == _HOPPER


def _processors(tensor: torch.Tensor) -> int:
    return int(torch.cuda.get_device_properties(tensor.device).multi_processor_count)

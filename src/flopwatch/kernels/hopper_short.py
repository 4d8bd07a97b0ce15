"""Matrix multiplication for Hopper where it takes microseconds: configurations, and the call of `hopper_short_kernel`.

Chosen by `triton_matmul` where a table or a rule says so (`flopwatch.kernels.routes`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import MappingProxyType

import torch
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from flopwatch.kernels import dependent_launch
from flopwatch.kernels.hopper_matmul import _GLUON_DTYPES, _descriptor, can_multiply, has_mapped_rows
from flopwatch.kernels.hopper_short_kernel import hopper_short_kernel
from flopwatch.kernels.prepared import Prepared


@dataclass(frozen=True, kw_only=True, slots=True)
class ShortConfig:
    """How `hopper_short_kernel` is compiled.

    Attributes:
        block_m: rows of a tile: 64, 128 or 256.
        block_n: columns of a tile.
        block_k: step along K, of 64 or 128 elements.
        stages: steps that the ring holds.
        warps: four or eight; eight need 128 rows, or two instructions' columns.
        per_processor: programs that fit one multiprocessor at once, by their shared memory.
        row_step: rows of the matrix from one row of a tile to its next; more than one only where it divides M.
        through_shared: whether C leaves by the tensor memory accelerator, or from registers.
        dependent: whether programs come before the launch in front of theirs has ended
            (`flopwatch.kernels.dependent_launch`).
    """

    block_m: int
    block_n: int
    block_k: int = 64
    stages: int
    warps: int = 4
    per_processor: int = 1
    row_step: int = 1
    through_shared: bool = True
    dependent: bool = False

    def tiles(self, m: int, n: int) -> tuple[int, int]:
        """Return how many tiles a product of (M, N) has, below each other and beside."""
        return -(-m // self.row_step // self.block_m) * self.row_step, -(-n // self.block_n)

    def __str__(self) -> str:
        """Name it in a table, such as "short 64x128x64 s4 w4 x2 tma", or "r8 tma" with steps of 8 rows."""
        step = f"r{self.row_step} " if self.row_step > 1 else ""
        return (
            f"short {self.block_m}x{self.block_n}x{self.block_k} s{self.stages} w{self.warps} x{self.per_processor} "
            f"{step}{'tma' if self.through_shared else 'direct'}{' pdl' if self.dependent else ''}"
        )


#: Tiles to choose from, with as many stages as fit so many programs on a multiprocessor. Compiled for sm_90 on
#: 2026-11-22 (triton 3.6.0 and 3.7.1), both ways to store: no spills, no warning of ptxas that it serialises wgmma
#: (C7510 to C7519); that of rows eight apart on 2026-11-24, likewise. Timed in
#: ``evidence/h200/matmul-candidates-short-2026-11-22.json``, the most promising of each product, and all of them in
#: ``evidence/h100/short-tiles-2026-11-25.json``.
SHORT_TILES = (
    ShortConfig(block_m=64, block_n=32, block_k=128, stages=8),
    ShortConfig(block_m=64, block_n=64, stages=3, per_processor=4),
    ShortConfig(block_m=64, block_n=64, block_k=128, stages=3, per_processor=2),
    ShortConfig(block_m=64, block_n=64, block_k=128, stages=6),
    ShortConfig(block_m=64, block_n=128, stages=3, per_processor=3),
    ShortConfig(block_m=64, block_n=128, stages=4, per_processor=2),
    ShortConfig(block_m=64, block_n=128, block_k=128, stages=4),
    ShortConfig(block_m=64, block_n=128, stages=9, warps=8),
    ShortConfig(block_m=128, block_n=64, stages=4, per_processor=2),
    ShortConfig(block_m=128, block_n=64, stages=9, warps=8),
    ShortConfig(block_m=128, block_n=64, stages=5, row_step=8),
    ShortConfig(block_m=128, block_n=128, stages=3, per_processor=2),
    ShortConfig(block_m=128, block_n=128, stages=3, warps=8, per_processor=2),
    ShortConfig(block_m=128, block_n=128, stages=7, warps=8),
    ShortConfig(block_m=64, block_n=256, stages=5),
    ShortConfig(block_m=128, block_n=256, stages=4, warps=8),
)
#: All that may be chosen, by name.
SHORT = MappingProxyType(
    {
        str(config): config
        for tile in SHORT_TILES
        for through_shared in (True, False)
        for dependent in (False, True)
        for config in (replace(tile, through_shared=through_shared, dependent=dependent),)
    }
)


def can_multiply_short(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Tell whether `hopper_short_matmul` takes these operands: of 16 bits, and as `hopper_matmul` takes them."""
    return a.element_size() == 2 and can_multiply(a, b)  # noqa: PLR2004 - bytes


def product_for(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor | None) -> torch.Tensor:
    """Return where the product goes: `out`, or a new tensor.

    Raises:
        ValueError: the operands, or `out`, do not lie as tensor maps want them.
    """
    if out is None and can_multiply_short(a, b):
        out = torch.empty((a.shape[0], b.shape[1]), device=a.device, dtype=a.dtype)
    if out is None or not can_multiply_short(a, b) or not has_mapped_rows(out) or out.dtype != a.dtype:
        raise ValueError(
            f"these matrices have no tensor maps: {tuple(a.shape)} times {tuple(b.shape)}, {a.dtype}\n"
            f"  why: their strides are {a.stride()} and {b.stride()}, and rows must start at multiples of 16 bytes\n"
            "  do:  copy them to aligned memory first (flopwatch.kernels.scratch)"
        )
    return out


def can_step(m: int, config: ShortConfig) -> bool:
    """Tell whether so many rows can be taken in the steps of `config`."""
    return m % config.row_step == 0


def prepare_short(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor, config: ShortConfig) -> Prepared:
    """Prepare the launch of `hopper_short_matmul` that writes `out`."""
    (M, K), N = a.shape, b.shape[1]
    if not can_step(M, config):
        raise ValueError(
            f"{M} rows cannot be multiplied by '{config}'\n"
            f"  why: it takes every {config.row_step}th row, and {config.row_step} does not divide their number\n"
            "  do:  choose a configuration without steps"
        )
    by_columns = not has_mapped_rows(b)
    return Prepared(
        kernel=hopper_short_kernel,
        grid=config.tiles(M, N),
        arguments=(
            _in_steps(a, config, config.block_k),
            _descriptor(b.T, config.block_n, config.block_k)
            if by_columns
            else _descriptor(b, config.block_k, config.block_n),
            _in_steps(out, config, config.block_n),
            out,
            M,
            N,
            K,
            out.stride(0),
        ),
        constants={
            "STAGES": config.stages,
            "ROW_STEP": config.row_step,
            "B_BY_COLUMNS": by_columns,
            "THROUGH_SHARED": config.through_shared,
            **dependent_launch.constants(dependent=config.dependent),
            "num_warps": config.warps,
        },
        arrange=_with_c_twice,
    )


def _in_steps(matrix: torch.Tensor, config: ShortConfig, columns: int) -> TensorDescriptor:
    """Describe boxes of rows that are `config.row_step` rows apart."""
    step, stride = config.row_step, matrix.stride(0)
    if step == 1:
        return _descriptor(matrix, config.block_m, columns)
    box = [1, config.block_m, columns]
    layout = gl.NVMMASharedLayout.get_default_for(box, _GLUON_DTYPES[matrix.dtype])
    rows, width = matrix.shape
    return TensorDescriptor(matrix, [step, rows // step, width], [stride, stride * step, 1], box, layout)


def _with_c_twice(_stream: int, a: int, b: int, c: int) -> tuple[tuple[int, ...], None]:
    """Put the address of C into its tensor map, and beside it."""
    return (a, b, c, c), None


def hopper_short_matmul(
    a: torch.Tensor, b: torch.Tensor, config: ShortConfig, *, out: torch.Tensor | None = None
) -> torch.Tensor:
    """Multiply ``a`` (M, K) by ``b`` (K, N) on a GPU of the architecture sm_90; no gradient.

    Args:
        a: float16 or bfloat16.
        b: the same; see `flopwatch.kernels.hopper_matmul.can_multiply`.
        config: how.
        out: where the product goes, of the same dtype; a new tensor if None.

    Raises:
        ValueError: the operands, or `out`, do not lie as tensor maps want them, or `config` has steps that do not
            divide M.
    """
    out = product_for(a, b, out)
    with torch.cuda.device(a.device):
        prepare_short(a, b, out, config).launch()
    return out

"""Matrix multiplication for Hopper where it takes microseconds: configurations, and the call of `hopper_short_kernel`.

Chosen by `triton_matmul` where a table or a rule says so (`flopwatch.kernels.routes`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import torch
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from flopwatch.kernels import dependent_launch
from flopwatch.kernels.hopper_matmul import _GLUON_DTYPES, can_multiply, descriptor, has_mapped_rows, lies_by_columns
from flopwatch.kernels.hopper_short_kernel import hopper_short_kernel
from flopwatch.kernels.prepared import Prepared


@dataclass(frozen=True, kw_only=True, slots=True)
class ShortConfig:
    """How `hopper_short_kernel` is compiled.

    Attributes:
        block_m: rows of a tile, a power of two; unless turned, 64, 128 or 256.
        block_n: columns of a tile, a power of two; if turned, 64 or 128.
        more: columns beside these, another power of two; if turned, rows below; 0 for none.
        block_k: step along K, of 64 or 128 elements.
        stages: steps that the ring holds.
        warps: four or eight; eight need 128 of what an instruction has 64 of, or two instructions beside each other.
        per_processor: programs that fit one multiprocessor at once, by their shared memory.
        row_step: rows of the matrix from one row of a tile to its next; more than one only where it divides M, and
            without `more`.
        turned: whether an instruction's 64 rows are columns of C, and its columns are rows.
        dependent: whether programs come before the launch in front of theirs has ended
            (`flopwatch.kernels.dependent_launch`).
    """

    block_m: int
    block_n: int
    more: int = 0
    block_k: int = 64
    stages: int
    warps: int = 4
    per_processor: int = 1
    row_step: int = 1
    turned: bool = False
    dependent: bool = False

    def __post_init__(self) -> None:
        """Refuse what the kernel would compute wrong."""
        if self.row_step > 1 and self.more:
            raise ValueError(
                f"there is no tile of {self.rows} rows, {self.row_step} apart, and {self.columns} columns\n"
                f"  why: of a tile whose rows are apart, the {self.more} beside a power of two would not be\n"
                "  do:  leave out `more` or `row_step`"
            )

    @property
    def rows(self) -> int:
        """Of a tile."""
        return self.block_m + self.more * self.turned

    @property
    def columns(self) -> int:
        """Of a tile."""
        return self.block_n + self.more * (not self.turned)

    def tiles(self, m: int, n: int) -> tuple[int, int]:
        """Return how many tiles a product of (M, N) has, below each other and beside."""
        return -(-m // self.row_step // self.rows) * self.row_step, -(-n // self.columns)

    def constants(self, *, by_columns: bool) -> dict[str, Any]:
        """Return what a kernel is compiled for, and Triton's options.

        Args:
            by_columns: whether B lies by columns.
        """
        return {
            "STAGES": self.stages,
            "B_BY_COLUMNS": by_columns,
            "TURNED": self.turned,
            "num_warps": self.warps,
        }

    def __str__(self) -> str:
        """Name it in a table, such as "short 64x128x64 s4 w4 x2 tma", with "r8" for steps of 8 rows."""
        step = f"r{self.row_step} " if self.row_step > 1 else ""
        return (
            f"short {self.rows}x{self.columns}x{self.block_k} s{self.stages} w{self.warps} x{self.per_processor} "
            f"{step}{'turned ' if self.turned else ''}tma{' pdl' if self.dependent else ''}"
        )


def _turned(block_m: int, more: int, block_n: int, stages: int, per_processor: int = 1) -> ShortConfig:
    return ShortConfig(
        block_m=block_m, block_n=block_n, more=more, stages=stages, per_processor=per_processor, turned=True
    )


#: Tiles to choose from. Compiled for sm_90 on 2026-11-25 (triton 3.6.0 and 3.7.1), with B by rows and by columns: no
#: spills, no warning of ptxas that it serialises wgmma (C7510 to C7519). These and some more were timed in
#: ``evidence/h100/short-tiles-2026-11-25.json``, and those are left that some size needs.
SHORT_TILES = (
    ShortConfig(block_m=64, block_n=32, block_k=128, stages=8),
    ShortConfig(block_m=64, block_n=64, block_k=128, stages=3, per_processor=2),
    ShortConfig(block_m=64, block_n=64, block_k=128, stages=6),
    ShortConfig(block_m=64, block_n=128, stages=3, per_processor=3),
    ShortConfig(block_m=64, block_n=128, stages=4, per_processor=2),
    ShortConfig(block_m=64, block_n=128, block_k=128, stages=4),
    ShortConfig(block_m=64, block_n=128, stages=9, warps=8),
    ShortConfig(block_m=64, block_n=256, stages=5),
    ShortConfig(block_m=128, block_n=64, stages=9, warps=8),
    ShortConfig(block_m=128, block_n=64, stages=5, row_step=8),
    ShortConfig(block_m=128, block_n=128, stages=3, per_processor=2),
    ShortConfig(block_m=128, block_n=128, stages=3, warps=8, per_processor=2),
    ShortConfig(block_m=128, block_n=128, more=64, stages=5, warps=8),
    _turned(64, 16, 64, 6, per_processor=2),
    _turned(64, 32, 64, 9),
    _turned(64, 32, 64, 5, per_processor=2),
    _turned(128, 0, 64, 6),
    _turned(128, 16, 64, 4, per_processor=2),
    _turned(128, 32, 64, 4, per_processor=2),
    _turned(128, 32, 64, 5),
    _turned(128, 64, 64, 6),
    _turned(64, 16, 128, 4, per_processor=2),
    _turned(64, 32, 128, 4, per_processor=2),
    _turned(128, 0, 128, 5),
    _turned(128, 16, 128, 4),
    _turned(128, 32, 128, 4),
    _turned(128, 64, 128, 4),
)
#: Tiles that a table may have and no rule takes, since on few sizes they were timed. Compiled as those, on 2026-11-27;
#: 3 to 4 % faster than any of those at 128x8192x8192 (``evidence/h200/matmul-candidates-2026-11-27.json``).
TABLED_TILES = (ShortConfig(block_m=64, block_n=128, stages=8),)
ALL_TILES = (*SHORT_TILES, *TABLED_TILES)
#: All that may be chosen, by name.
SHORT = MappingProxyType(
    {
        str(config): config
        for tile in ALL_TILES
        for dependent in (False, True)
        for config in (replace(tile, dependent=dependent),)
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
    by_columns = lies_by_columns(b)

    def of_b(columns: int) -> TensorDescriptor:
        return descriptor(b.T, columns, config.block_k) if by_columns else descriptor(b, config.block_k, columns)

    more: tuple[TensorDescriptor | None, TensorDescriptor | None] = (None, None)
    if config.more and config.turned:
        more = descriptor(a, config.more, config.block_k), descriptor(out, config.more, config.block_n)
    elif config.more:
        more = of_b(config.more), descriptor(out, config.block_m, config.more)
    return Prepared(
        kernel=hopper_short_kernel,
        grid=config.tiles(M, N),
        arguments=(
            _in_steps(a, config, config.block_k),
            of_b(config.block_n),
            _in_steps(out, config, config.block_n),
            *more,
            K,
        ),
        constants={
            **config.constants(by_columns=by_columns),
            "ROW_STEP": config.row_step,
            **dependent_launch.constants(dependent=config.dependent),
        },
        arrange=(_with_a_twice if config.turned else _with_b_twice) if config.more else None,
    )


def _in_steps(matrix: torch.Tensor, config: ShortConfig, columns: int) -> TensorDescriptor:
    """Describe boxes of rows that are `config.row_step` rows apart."""
    step, stride = config.row_step, matrix.stride(0)
    if step == 1:
        return descriptor(matrix, config.block_m, columns)
    box = [1, config.block_m, columns]
    layout = gl.NVMMASharedLayout.get_default_for(box, _GLUON_DTYPES[matrix.dtype])
    rows, width = matrix.shape
    return TensorDescriptor(matrix, [step, rows // step, width], [stride, stride * step, 1], box, layout)


def _with_a_twice(_stream: int, a: int, b: int, c: int) -> tuple[tuple[int, ...], None]:
    """Put the addresses of A and C into the maps of both parts of their rows."""
    return (a, b, c, a, c), None


def _with_b_twice(_stream: int, a: int, b: int, c: int) -> tuple[tuple[int, ...], None]:
    """Put the addresses of B and C into the maps of both parts of their columns."""
    return (a, b, c, b, c), None


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

"""Matrix multiplication for Hopper: configurations, descriptors, and the call of `hopper_matmul_kernel`.

Chosen by `triton_matmul` where a table or a rule says so (`flopwatch.kernels.routes`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import torch
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from flopwatch.kernels import dependent_launch
from flopwatch.kernels.hopper_matmul_kernel import hopper_matmul_kernel
from flopwatch.kernels.prepared import Prepared
from flopwatch.kernels.stream_k import Balance, Schedule
from flopwatch.kernels.workspace import Workspace, in_workspace, without_workspace, workspace_for

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from flopwatch.kernels.launch import Arrange

#: Of a multiprocessor, for its threads.
_REGISTERS = 65536


@dataclass(frozen=True, kw_only=True, slots=True)
class HopperConfig:
    """How `hopper_matmul_kernel` is compiled, and how its tiles are dealt out.

    Attributes:
        consumers: warpgroups that multiply, one to three.
        rows: of a tile that each of them has: 64 or 128.
        block_n: columns of a tile.
        block_k: step along K: 128 bytes, that is 64 elements of 16 bits or 128 of 8.
        stages: steps that the ring holds.
        slices: in which a consumer stores C: 1, 2 or 4.
        c_buffers: slices that may be on their way at once; divides `slices`.
        group_m: rows of tiles that are numbered together, to share panels in L2.
        balance: which tiles programs share.
        per_processor: programs that shall run on one multiprocessor at once, one or two.
        dependent: whether programs come before the launch in front of theirs has ended
            (`flopwatch.kernels.dependent_launch`).
    """

    consumers: int
    rows: int = 64
    block_n: int
    block_k: int = 64
    stages: int
    slices: int = 1
    c_buffers: int = 1
    group_m: int = 8
    balance: Balance = Balance.WHOLE
    per_processor: int = 1
    dependent: bool = False

    @property
    def block_m(self) -> int:
        """Rows of a tile."""
        return self.consumers * self.rows

    @property
    def shares(self) -> bool:
        """Whether the sharing of tiles is compiled in."""
        return self.balance is not Balance.WHOLE

    @property
    def warpgroups(self) -> int:
        """Of a program, the producer's warp counted as one."""
        return self.consumers + 1

    @property
    def max_registers(self) -> int | None:
        """Registers of a thread at the start, so that all programs fit; None where there is but one."""
        if self.per_processor == 1:
            return None
        return _REGISTERS // (self.per_processor * self.warpgroups * 128) // 8 * 8

    @property
    def consumer_registers(self) -> int:
        """Registers of a consumer's thread: all but the producer's 40, as `setmaxnreg` deals them out, in eights."""
        at_start = self.max_registers or min(_REGISTERS // (self.warpgroups * 128) // 8 * 8, 248)
        return min((at_start * self.warpgroups - 40) // self.consumers // 8 * 8, 232)

    def tiles(self, m: int, n: int) -> tuple[int, int]:
        """Return how many tiles a product of (M, N) has, below each other and beside."""
        return -(-m // self.block_m), -(-n // self.block_n)

    def schedule(self, m: int, n: int, k: int, *, processors: int) -> Schedule:
        """Return how the tiles of a product are dealt out on a GPU of so many multiprocessors."""
        slots = processors * self.per_processor
        return Schedule.of(math.prod(self.tiles(m, n)), -(-k // self.block_k), slots=slots, balance=self.balance)

    def box(self, *, by_columns: bool) -> tuple[int, int]:
        """Return the sides of what is loaded of B at once, as it lies."""
        return (self.block_n, self.block_k) if by_columns else (self.block_k, self.block_n)

    def constants(self, schedule: Schedule, *, by_columns: bool) -> dict[str, Any]:
        """Return what a kernel is compiled for, and Triton's options.

        Args:
            schedule: of the product.
            by_columns: whether B lies by columns.
        """
        return {
            "STAGES": self.stages,
            "CONSUMERS": self.consumers,
            "SLICES": self.slices,
            "C_BUFFERS": self.c_buffers,
            "REGISTERS": self.consumer_registers,
            "GROUP_M": self.group_m,
            "SHARES": bool(schedule.shared),
            "B_BY_COLUMNS": by_columns,
            "num_warps": 4,
            **({} if self.max_registers is None else {"maxnreg": self.max_registers}),
        }

    def __str__(self) -> str:
        """Name it in a table, such as "128x256x64 s4 w2 c4/2 g8 whole"."""
        return (
            f"{self.block_m}x{self.block_n}x{self.block_k} s{self.stages} w{self.consumers} "
            f"c{self.slices}/{self.c_buffers} g{self.group_m} {self.balance.value}"
            f"{'' if self.per_processor == 1 else f' x{self.per_processor}'}{' pdl' if self.dependent else ''}"
        )


def _config(  # noqa: PLR0917 - a row of the table below
    consumers: int, rows: int, block_n: int, stages: int, slices: int, c_buffers: int, per_processor: int = 1
) -> HopperConfig:
    return HopperConfig(
        consumers=consumers,
        rows=rows,
        block_n=block_n,
        stages=stages,
        slices=slices,
        c_buffers=c_buffers,
        per_processor=per_processor,
    )


#: Tiles to choose from, for 16-bit operands, as many stages as fit 232448 bytes of shared memory. Compiled for sm_90 on
#: 2026-11-22 (triton 3.6.0 and 3.7.1), with and without sharing: no spills, no warning of ptxas that it serialises
#: wgmma (C7510 to C7519), and the registers of a thread at the start below (consumers go on with up to 232, the
#: producer with 40). Timed in ``evidence/h200/matmul-candidates-2026-11-22.json``, of each product the most promising.
#: Left out: 192x256, whose consumers do not compile with the 152 registers that three of them have.
TILES = (
    _config(2, 64, 256, 4, 4, 2),  # 128x256, 168
    _config(2, 128, 128, 4, 2, 1),  # 256x128, 168
    _config(3, 64, 128, 5, 2, 1),  # 192x128, 128
    _config(1, 64, 256, 5, 4, 2),  # 64x256, 255
    _config(2, 64, 128, 6, 2, 2),  # 128x128, 168
    _config(1, 64, 128, 8, 2, 2),  # 64x128, 255
    _config(1, 64, 128, 4, 2, 1, 2),  # 64x128, two on a multiprocessor, 128
    _config(2, 64, 64, 8, 1, 1),  # 128x64, 168
    _config(1, 64, 64, 6, 1, 1, 2),  # 64x64, two on a multiprocessor, 128
    _config(1, 64, 32, 8, 1, 1, 2),  # 64x32, two on a multiprocessor, 128
)

#: Rows of tiles that are numbered together: 8, as TILES have them, or these.
OTHER_GROUPS = (4, 16)


def named(tiles: Iterable[HopperConfig]) -> Mapping[str, HopperConfig]:
    """Return all that may be chosen, by name: each tile, in each order of tiles and way to share and to launch them."""
    configs = (
        replace(tile, group_m=group_m, balance=balance, dependent=dependent)
        for tile in tiles
        for group_m in (tile.group_m, *OTHER_GROUPS)
        for balance in Balance
        for dependent in (False, True)
    )
    return MappingProxyType({str(config): config for config in configs})


#: All that may be chosen for operands of 16 bits, by name.
CONFIGS = named(TILES)

_GLUON_DTYPES = {
    torch.float16: gl.float16,
    torch.bfloat16: gl.bfloat16,
    torch.float8_e4m3fn: gl.float8e4nv,
}
#: What a tensor map asks of addresses and of rows, in bytes.
_ALIGNMENT = 16


def descriptor(matrix: torch.Tensor, *box: int) -> TensorDescriptor:
    """Describe a matrix with mapped rows, of which boxes of so many rows and columns are loaded or stored."""
    layout = gl.NVMMASharedLayout.get_default_for(list(box), _GLUON_DTYPES[matrix.dtype])
    return TensorDescriptor(matrix, list(matrix.shape), [matrix.stride(0), 1], list(box), layout)


def has_mapped_rows(matrix: torch.Tensor) -> bool:
    """Tell whether a matrix lies by rows that each start at a multiple of 16 bytes."""
    return (
        matrix.stride(1) == 1
        and matrix.stride(0) * matrix.element_size() % _ALIGNMENT == 0
        and (matrix.stride(0) > 0 or matrix.shape[0] == 1)  # an expanded row has no map
        and matrix.data_ptr() % _ALIGNMENT == 0
    )


def lies_by_columns(b: torch.Tensor) -> bool:
    """Tell whether an operand lies by columns, and is read so: no tensor map describes its rows."""
    return not has_mapped_rows(b) and b.stride(0) == 1


def can_multiply(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Tell whether `hopper_matmul` takes these operands: matrices whose rows start at multiples of 16 bytes.

    B may lie by columns instead, and must so in float8.
    """
    by_rows = has_mapped_rows(b) and b.dtype != torch.float8_e4m3fn
    return (
        a.ndim == b.ndim == 2  # noqa: PLR2004 - matrices
        and a.shape[1] == b.shape[0]
        and min(*a.shape, *b.shape) > 0
        and a.dtype == b.dtype
        and a.dtype in _GLUON_DTYPES
        and b.shape[1] * 2 % _ALIGNMENT == 0
        and has_mapped_rows(a)
        and (by_rows or has_mapped_rows(b.T))
    )


def prepare_hopper(
    a: torch.Tensor, b: torch.Tensor, out: torch.Tensor, config: HopperConfig, workspace: Workspace | None = None
) -> Prepared:
    """Prepare the launch of `hopper_matmul` that writes `out`."""
    (M, K), N = a.shape, b.shape[1]
    by_columns = lies_by_columns(b) or b.dtype == torch.float8_e4m3fn
    processors = torch.cuda.get_device_properties(a.device).multi_processor_count
    schedule = config.schedule(M, N, K, processors=processors)
    parts = flags = out
    arrange: Arrange = without_workspace
    if schedule.shared:
        needs = (schedule, config.block_m * config.block_n, config.consumers)
        workspace = workspace_for(*needs, device=a.device, given=workspace)
        parts, flags = workspace.parts, workspace.flags
        arrange = in_workspace(*needs, device=a.device)
    return Prepared(
        kernel=hopper_matmul_kernel,
        grid=(schedule.programs,),
        arguments=(
            descriptor(a, config.rows, config.block_k),
            descriptor(b.T if by_columns else b, *config.box(by_columns=by_columns)),
            descriptor(out, config.rows, config.block_n // config.slices),
            parts,
            flags,
            None,
            None,
            M,
            N,
            K,
            schedule.shared,
        ),
        constants={
            **config.constants(schedule, by_columns=by_columns),
            "PER_ROW": False,
            "PER_COLUMN": False,
            "PROMOTE": False,
            **dependent_launch.constants(dependent=config.dependent),
        },
        arrange=arrange,
    )


def hopper_matmul(
    a: torch.Tensor,
    b: torch.Tensor,
    config: HopperConfig,
    *,
    out: torch.Tensor | None = None,
    workspace: Workspace | None = None,
) -> torch.Tensor:
    """Multiply ``a`` (M, K) by ``b`` (K, N) on a GPU of the architecture sm_90; no gradient.

    Args:
        a: float16, bfloat16 or float8_e4m3fn.
        b: the same; see `can_multiply`.
        config: how.
        out: where the product goes; a new tensor if None, of the dtype of `a`, bfloat16 for float8.
        workspace: for shared tiles; that of the current stream if None. Launches that may overlap need different ones.

    Raises:
        ValueError: the operands, or `out`, do not lie as tensor maps want them.
    """
    dtype = torch.bfloat16 if a.dtype == torch.float8_e4m3fn else a.dtype
    if out is None and can_multiply(a, b):
        out = torch.empty((a.shape[0], b.shape[1]), device=a.device, dtype=dtype)
    if out is None or not can_multiply(a, b) or not has_mapped_rows(out) or out.dtype.itemsize != 2:  # noqa: PLR2004
        raise ValueError(
            f"these matrices have no tensor maps: {tuple(a.shape)} times {tuple(b.shape)}, {a.dtype}\n"
            f"  why: their strides are {a.stride()} and {b.stride()}, and rows must start at multiples of 16 bytes\n"
            "  do:  copy them to aligned memory first (flopwatch.kernels.scratch)"
        )
    with torch.cuda.device(a.device):
        prepare_hopper(a, b, out, config, workspace).launch()
    return out

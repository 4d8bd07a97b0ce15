"""Matrix multiplication for Hopper where operands come too slowly: configurations, and the call of its kernel.

The kernel is `hopper_cluster_kernel`, chosen by `triton_matmul` where a table says so (`flopwatch.kernels.routes`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeAlias

import torch
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from flopwatch.kernels import dependent_launch
from flopwatch.kernels.hopper_cluster_barriers import HAS_CLUSTERS
from flopwatch.kernels.hopper_cluster_kernel import hopper_cluster_kernel
from flopwatch.kernels.hopper_matmul import _GLUON_DTYPES, has_mapped_rows
from flopwatch.kernels.hopper_short import product_for
from flopwatch.kernels.prepared import Prepared

if TYPE_CHECKING:
    from flopwatch.kernels.launch import Arrange

#: Where one program's part of a box lies beside another's, by rows and by columns of the box.
_Step: TypeAlias = tuple[int, int]


@dataclass(frozen=True, kw_only=True, slots=True)
class ClusterConfig:
    """How `hopper_cluster_kernel` is compiled.

    Attributes:
        block_m: rows of a tile: 64, 128 or 256.
        block_n: columns of a tile, a power of two.
        more_n: columns beside these, another one; 0 for none.
        block_k: step along K, of 64 or 128 elements.
        stages: steps that the ring holds, three at least.
        warps: four or eight; eight need 128 rows.
        cluster_m: tiles below each other in a cluster, 1, 2 or 4; they share loads of B.
        cluster_n: tiles beside each other in a cluster, 1, 2 or 4; they share loads of A.
        dependent: whether programs come before the launch in front of theirs has ended
            (`flopwatch.kernels.dependent_launch`).
    """

    block_m: int
    block_n: int
    more_n: int = 0
    block_k: int = 64
    stages: int
    warps: int = 4
    cluster_m: int = 1
    cluster_n: int = 1
    dependent: bool = False

    @property
    def columns(self) -> int:
        """Of a tile."""
        return self.block_n + self.more_n

    @property
    def programs(self) -> int:
        """Of a cluster."""
        return self.cluster_m * self.cluster_n

    def __str__(self) -> str:
        """Name it in a table, such as "cluster 64x96x64 s11 w4 2x1"."""
        return (
            f"cluster {self.block_m}x{self.columns}x{self.block_k} s{self.stages} w{self.warps} "
            f"{self.cluster_m}x{self.cluster_n}{' pdl' if self.dependent else ''}"
        )


def _tile(block_m: int, block_n: int, more_n: int, stages: int, block_k: int = 64) -> ClusterConfig:
    warps = 4 if block_m == 64 else 8  # noqa: PLR2004 - a warpgroup's rows
    return ClusterConfig(block_m=block_m, block_n=block_n, more_n=more_n, block_k=block_k, stages=stages, warps=warps)


#: Tiles to choose from, with as many stages as fit 232448 bytes of shared memory, or about half as many. Compiled for
#: sm_90 on 2026-11-23 in each of the clusters below (triton 3.7.1) and alone (3.6.0, too): no spills, no warning of
#: ptxas that it serialises wgmma (C7510 to C7519). That of 144 columns with four stages is the faster one at 1536 cubed
#: (``evidence/h100/matmul-candidates-2026-11-25.json``).
CLUSTER_TILES = (
    _tile(64, 64, 0, 12),
    _tile(64, 64, 16, 12),
    _tile(64, 64, 16, 6),
    _tile(64, 64, 32, 11),
    _tile(64, 64, 32, 6),
    _tile(64, 64, 32, 5, 128),
    _tile(64, 128, 0, 9),
    _tile(64, 128, 0, 5),
    _tile(64, 128, 0, 4, 128),
    _tile(64, 128, 32, 8),
    _tile(64, 128, 64, 7),
    _tile(128, 64, 0, 9),
    _tile(128, 64, 0, 5),
    _tile(128, 64, 16, 8),
    _tile(128, 128, 0, 7),
    _tile(128, 128, 16, 6),
    _tile(128, 128, 16, 4),
    _tile(128, 128, 32, 6),
    _tile(128, 128, 64, 5),
    _tile(128, 256, 0, 4),
    _tile(256, 128, 0, 4),
)
#: Tiles of a cluster, below and beside each other.
CLUSTERS = ((1, 1), (2, 1), (1, 2), (2, 2), (4, 1))
#: All that may be chosen with this Triton, by name.
CLUSTER = MappingProxyType(
    {
        str(config): config
        for tile in CLUSTER_TILES
        for cluster_m, cluster_n in CLUSTERS
        for dependent in (False, True)
        for config in (replace(tile, cluster_m=cluster_m, cluster_n=cluster_n, dependent=dependent),)
        if HAS_CLUSTERS or config.programs == 1
    }
)


def _descriptor(  # noqa: PLR0917 - private
    matrix: torch.Tensor, rows: int, columns: int, config: ClusterConfig, below: _Step, beside: _Step
) -> TensorDescriptor:
    """Describe boxes of a cluster, of which tiles below and beside each other have parts, or, by (0, 0), all of it.

    A program's number in its cluster has the tiles below each other in its low bits.
    """
    steps = ((config.cluster_m, below), (config.cluster_n, beside))
    bases = [[part << bit for part in step] for count, step in steps for bit in range(count.bit_length() - 1)]
    layout = gl.NVMMASharedLayout.get_default_for(
        [rows, columns], _GLUON_DTYPES[matrix.dtype], cga_layout=bases or None
    )
    return TensorDescriptor(matrix, list(matrix.shape), [matrix.stride(0), 1], [rows, columns], layout)


def prepare_cluster(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor, config: ClusterConfig) -> Prepared:
    """Prepare the launch of `hopper_cluster_matmul` that writes `out`."""
    (M, K), N = a.shape, b.shape[1]
    by_columns = not has_mapped_rows(b)
    rows = config.block_m * config.cluster_m

    def of_b(columns: int) -> TensorDescriptor:
        if by_columns:
            return _descriptor(b.T, columns * config.cluster_n, config.block_k, config, (0, 0), (1, 0))
        return _descriptor(b, config.block_k, columns * config.cluster_n, config, (0, 0), (0, 1))

    def of_c(columns: int) -> TensorDescriptor:
        return _descriptor(out, rows, columns * config.cluster_n, config, (1, 0), (0, 1))

    more = (of_b(config.more_n), of_c(config.more_n)) if config.more_n else (None, None)
    arrange: Arrange | None = _with_b_and_c_twice if config.more_n else None
    return Prepared(
        kernel=hopper_cluster_kernel,
        grid=(-(-M // rows), -(-N // (config.columns * config.cluster_n))),
        arguments=(
            _descriptor(a, rows, config.block_k, config, (1, 0), (0, 0)),
            of_b(config.block_n),
            of_c(config.block_n),
            *more,
            K,
        ),
        constants={
            "STAGES": config.stages,
            "CLUSTER_M": config.cluster_m,
            "CLUSTER_N": config.cluster_n,
            "B_BY_COLUMNS": by_columns,
            **dependent_launch.constants(dependent=config.dependent),
            "num_warps": config.warps,
            "num_ctas": config.programs,
        },
        arrange=arrange,
    )


def _with_b_and_c_twice(_stream: int, a: int, b: int, c: int) -> tuple[tuple[int, ...], None]:
    """Put the addresses of B and C into the maps of both parts of their columns."""
    return (a, b, c, b, c), None


def hopper_cluster_matmul(
    a: torch.Tensor, b: torch.Tensor, config: ClusterConfig, *, out: torch.Tensor | None = None
) -> torch.Tensor:
    """Multiply ``a`` (M, K) by ``b`` (K, N) on a GPU of the architecture sm_90; no gradient.

    Args:
        a: float16 or bfloat16.
        b: the same; see `flopwatch.kernels.hopper_matmul.can_multiply`.
        config: how; of more than one program a cluster, with Triton 3.7 or later.
        out: where the product goes, of the same dtype; a new tensor if None.

    Raises:
        ValueError: the operands, or `out`, do not lie as tensor maps want them.
    """
    out = product_for(a, b, out)
    with torch.cuda.device(a.device):
        prepare_cluster(a, b, out, config).launch()
    return out

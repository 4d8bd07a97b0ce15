"""Does the order in which tiles are computed matter? Groups of rows in Triton, panels in TileLang, and torch.

A GPU works on as many tiles of C at once as fit, a wave. Row by row a wave needs few rows of A and nearly all of B; in
groups of rows, which TileLang calls panels, it needs less of both together, so that more of what it reads is in the L2
cache already. What each order asks of memory is known without a GPU: ``python -m evidence.l2_swizzle predict``.
"""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import torch
import triton

from flopwatch.kernels.configs import MATMUL_AUTOTUNE
from flopwatch.kernels.matmul import matmul_kernel
from flopwatch.kernels.reference import matmul_reference
from flopwatch.study import Conclusion, Study

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

SIZES = ("12288", "14336", "16384", "17408", "18432", "20480")
#: Rows of tiles in a group of our kernel; "none" numbers the tiles row by row.
GROUPS = ("none", "4", "8", "10", "16", "20", "32")
#: Rows of tiles in a panel of TileLang; "none" leaves `use_swizzle` out. 0 is in the original study.
PANELS = ("none", "0", "10", "20")
ORDERS = tuple(dict.fromkeys((*GROUPS, *PANELS)))
#: The blocks of TileLang's kernel, as in the original study: rows, columns and depth.
TILELANG_BLOCKS = (128, 128, 32)
BYTES_PER_ELEMENT = 2


def grouped_matmul(a: torch.Tensor, b: torch.Tensor, order: str) -> torch.Tensor:
    """Call the bundled kernel as it is configured for large products on Hopper, but for its groups."""
    config = replace(MATMUL_AUTOTUNE[0], group_m=1 if order == "none" else int(order))
    (m, k), n = a.shape, b.shape[1]
    c = torch.empty((m, n), device=a.device, dtype=a.dtype)
    matmul_kernel[triton.cdiv(m, config.block_m) * triton.cdiv(n, config.block_n),](
        *(a, b, c, m, n, k, *a.stride(), *b.stride(), *c.stride()),
        **config.constants(),
        EVEN_MN=m % config.block_m == 0 and n % config.block_n == 0,
        EVEN_K=k % config.block_k == 0,
        WIDE=False,
        num_warps=config.num_warps,
        num_stages=config.num_stages,
    )
    return c


def tilelang_matmul(a: torch.Tensor, b: torch.Tensor, order: str) -> torch.Tensor:
    """Call the original study's kernel, compiled for this size and this panel."""
    result: torch.Tensor = compiled_tilelang(a.shape[0], order)(a, b)
    return result


@functools.cache
def compiled_tilelang(size: int, order: str) -> Callable[..., torch.Tensor]:
    """Compile the original study's kernel for square products, once for each size and panel.

    Raises:
        ModuleNotFoundError: TileLang is not installed: ``pip install 'flopwatch[tilelang]'``.
    """
    import tilelang  # noqa: PLC0415 - optional, and it takes a second

    kernel: Callable[..., torch.Tensor] = tilelang.compile(tilelang_program(size, order), out_idx=-1)
    return kernel


def tilelang_program(size: int, order: str) -> Any:  # noqa: ANN401 - TileLang's
    """Write the original study's kernel for square products: 128 threads and three stages."""
    import tilelang.language as T  # noqa: N812, PLC0415 - its usual name; as above

    block_m, block_n, block_k = TILELANG_BLOCKS

    @T.prim_func  # type: ignore[untyped-decorator] # TileLang ships no types
    def matmul(  # type: ignore[no-untyped-def] # TileLang reads these annotations # noqa: ANN202 - likewise
        A: T.Tensor((size, size), "float16"),  # type: ignore[valid-type] # a value, to TileLang # noqa: N803 - usual
        B: T.Tensor((size, size), "float16"),  # type: ignore[valid-type] # likewise # noqa: N803 - likewise
        C: T.Tensor((size, size), "float16"),  # type: ignore[valid-type] # likewise # noqa: N803 - likewise
    ):
        with T.Kernel(T.ceildiv(size, block_n), T.ceildiv(size, block_m), threads=128) as (x, y):
            if order != "none":
                T.use_swizzle(panel_size=int(order))
            a_shared = T.alloc_shared((block_m, block_k), "float16")
            b_shared = T.alloc_shared((block_k, block_n), "float16")
            c_local = T.alloc_fragment((block_m, block_n), "float")
            T.clear(c_local)
            for step in T.Pipelined(T.ceildiv(size, block_k), num_stages=3):
                T.copy(A[y * block_m, step * block_k], a_shared)
                for k, n in T.Parallel(block_k, block_n):
                    b_shared[k, n] = B[step * block_k + k, x * block_n + n]
                T.gemm(a_shared, b_shared, c_local)
            T.copy(c_local, C[y * block_m, x * block_n])

    return matmul


class L2Swizzle(Study):
    """C = A @ B in float16, square; `order` is that of the tiles."""

    params: ClassVar[Sequence[Sequence[str]]] = (SIZES, ORDERS)
    param_names = ("size", "order")
    small: ClassVar = {"size": "256"}
    providers: ClassVar = {
        "tilelang": tilelang_matmul,
        "torch": lambda a, b, _order: torch.matmul(a, b),
    }
    skip_params = tuple(
        (size, order, provider)
        for size in SIZES
        for provider, orders in (("flopwatch", GROUPS), ("tilelang", PANELS), ("torch", ("none",)))
        for order in ORDERS
        if order not in orders
    )
    #: As of the suite of the same kernel: rounding costs half a unit, 2 leaves room for other orders of summing.
    max_diff_eps = 2.0
    line = "order"
    base = "flopwatch 8"
    conclusions = (
        Conclusion(
            says="groups of 8 are within 1 % of the best order of our kernel",
            line="flopwatch 8",
            than=("flopwatch *",),
            percent=1.0,
        ),
        Conclusion(
            says="groups of 8 are faster than tiles row by row",
            line="flopwatch 8",
            than=("flopwatch none",),
            percent=0.0,
        ),
        Conclusion(
            says="panels of 10 are faster than none in TileLang",
            line="tilelang 10",
            than=("tilelang none",),
            percent=0.0,
        ),
    )

    def inputs(self, *values: str, seed: int) -> tuple[torch.Tensor, torch.Tensor, str]:
        """Draw A and B from a normal distribution; the order goes along."""
        size, order = values
        generator = torch.Generator(device="cuda").manual_seed(seed)
        a, b = (torch.randn((int(size), int(size)), device="cuda", generator=generator).half() for _ in range(2))
        return a, b, order

    def run(self, a: torch.Tensor, b: torch.Tensor, order: str) -> torch.Tensor:
        """Call the bundled kernel."""
        return grouped_matmul(a, b, order)

    def reference(self, a: torch.Tensor, b: torch.Tensor, order: str) -> torch.Tensor:
        """Multiply in float64."""
        del order
        return matmul_reference(a, b)

    def flops(self, *values: str) -> float:
        """Count a multiplication and an addition for each of size cubed."""
        size, _order = values
        return 2.0 * int(size) ** 3

    def bytes_moved(self, *values: str) -> float:
        """Count A, B and C once each."""
        size, _order = values
        return 3.0 * BYTES_PER_ELEMENT * int(size) ** 2

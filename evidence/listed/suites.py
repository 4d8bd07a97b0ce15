"""Calls under which a tuner compiles a whole list of the plain kernels'.

Products in either dtype of 16 bits, of rows that 16, 8 and 1 elements divide, and of columns; in float8 with both sums
and scales; attention of each head dimension, with a mask, with lengths, with both, with other lengths of keys, and in
either dtype; additions; copies of operands. They are only compiled, for GPUs that need not be there
(`evidence.architectures`), so that sizes matter by what divides them alone. With ``FLOPWATCH_AUTOTUNE=all`` no table or
rule stands before the lists.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import torch

from flopwatch import Suite
from flopwatch.kernels import flash_attention, triton_matmul, triton_matmul_fp8, vector_add
from flopwatch.kernels.blocks import loads_of_thread
from flopwatch.kernels.configs import ATTENTION_AUTOTUNE, MATMUL_AUTOTUNE
from flopwatch.kernels.copy_kernel import first_columns, in_scratch
from flopwatch.kernels.matmul import MAX_SCALAR_LOADS
from flopwatch.kernels.matmul_fp8 import FP8_AUTOTUNE, FP8_PROMOTED_AUTOTUNE
from flopwatch.kernels.vector_add import vector_add_debug

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Sides of products: multiples of 16 elements, which tiles divide; of 8; and of 1, so few that nothing is copied.
SIDES = {"whole": 512, "columns": 512, "eights": 1000, "odd": 1001}
#: Lengths of attention's sequences, and of those of keys that have others.
POSITIONS, KEYS = 1024, 1536


def _empty(*shape: int, dtype: torch.dtype = torch.float16) -> torch.Tensor:
    return torch.empty(shape, device="cuda", dtype=dtype)


class _Listed(Suite):
    """One launch of a kernel, of which nothing is asked but its code."""

    def flops(self, *_values: str) -> float:
        return 1.0

    def bytes_moved(self, *_values: str) -> float:
        return 1.0

    @staticmethod
    def listed(*_values: str) -> int:
        """Return how many configurations the tuner has of a case."""
        raise NotImplementedError


class ListedMatmul(_Listed):
    """`triton_matmul`; `layout` is what divides its rows, or that both operands lie by columns."""

    params: ClassVar[Sequence[Sequence[str]]] = (("float16", "bfloat16"), tuple(SIDES))
    param_names = ("dtype", "layout")

    def inputs(self, *values: str, seed: int) -> tuple[Any, ...]:  # noqa: ARG002 - they have no values
        """Make both operands."""
        dtype, layout = values
        side = SIDES[layout]
        a, b = (_empty(side, side, dtype=getattr(torch, dtype)) for _ in range(2))
        return (a.T, b.T) if layout == "columns" else (a, b)

    def run(self, *inputs: Any) -> torch.Tensor:  # noqa: ANN401 - what `inputs` makes
        """Launch it."""
        return triton_matmul(*inputs)

    @staticmethod
    def listed(*values: str) -> int:
        """All of them, but of rows that are read in pieces those that have registers for it."""
        if values[1] != "odd":
            return len(MATMUL_AUTOTUNE)
        return sum(
            loads_of_thread(each.block_m, each.block_n, each.block_k, each.num_warps) <= MAX_SCALAR_LOADS
            for each in MATMUL_AUTOTUNE
        )


class ListedMatmulFp8(_Listed):
    """`triton_matmul_fp8`; a GPU without float8 multiplies 16 bits, by the list for fast sums."""

    params: ClassVar[Sequence[Sequence[str]]] = (("fast", "float32"), ("tensor", "row"))
    param_names = ("sums", "scales")

    def inputs(self, *values: str, seed: int) -> tuple[Any, ...]:  # noqa: ARG002 - as above
        """Make A, B by columns, and their scales."""
        sums, scales = values
        side = SIDES["whole"]
        a, b = (_empty(side, side, dtype=torch.float8_e4m3fn) for _ in range(2))
        of_a, of_b = ((side, 1), (1, side)) if scales == "row" else ((), ())
        scale_a, scale_b = (_empty(*shape, dtype=torch.float32) for shape in (of_a, of_b))
        return a, b.T, scale_a, scale_b, sums == "fast"

    def run(self, *inputs: Any) -> torch.Tensor:  # noqa: ANN401 - as above
        """Launch it."""
        a, b, scale_a, scale_b, fast = inputs
        return triton_matmul_fp8(a, b, scale_a, scale_b, use_fast_accum=fast)

    @staticmethod
    def listed(*values: str) -> int:
        """The shorter list, since a GPU with exact sums takes the other one."""
        return min(len(FP8_AUTOTUNE), len(FP8_PROMOTED_AUTOTUNE)) if values[0] == "float32" else len(FP8_AUTOTUNE)


class ListedAttention(_Listed):
    """`flash_attention`."""

    params: ClassVar[Sequence[Sequence[str]]] = (
        tuple(map(str, ATTENTION_AUTOTUNE)),
        ("full", "causal", "lengths", "causal lengths", "causal keys", "bfloat16"),
    )
    param_names = ("head_dim", "kind")

    def inputs(self, *values: str, seed: int) -> tuple[Any, ...]:  # noqa: ARG002 - as above
        """Make Q, K and V."""
        head_dim, kind = values
        dtype = torch.bfloat16 if kind == "bfloat16" else torch.float16
        keys = KEYS if "keys" in kind else POSITIONS
        q, k, v = (_empty(2, 2, length, int(head_dim), dtype=dtype) for length in (POSITIONS, keys, keys))
        return q, k, v, "causal" in kind, _empty(2, dtype=torch.int32) if "lengths" in kind else None

    def run(self, *inputs: Any) -> torch.Tensor:  # noqa: ANN401 - as above
        """Launch it."""
        q, k, v, causal, lengths = inputs
        return flash_attention(q, k, v, causal=causal, seq_lens=lengths, out_dtype=q.dtype)

    @staticmethod
    def listed(*values: str) -> int:
        """All of the head dimension."""
        return len(ATTENTION_AUTOTUNE[int(values[0])])


class ListedAddition(_Listed):
    """`vector_add`, and the one that tells what it does."""

    params: ClassVar[Sequence[Sequence[str]]] = (("float16", "bfloat16", "float32"), ("plain", "debug"))
    param_names = ("dtype", "kernel")

    def inputs(self, *values: str, seed: int) -> tuple[Any, ...]:  # noqa: ARG002 - as above
        """Make both operands."""
        dtype, kernel = values
        return *(_empty(5000, dtype=getattr(torch, dtype)) for _ in range(2)), kernel == "debug"

    def run(self, *inputs: Any) -> torch.Tensor:  # noqa: ANN401 - as above
        """Launch it."""
        x, y, debug = inputs
        return (vector_add_debug if debug else vector_add)(x, y)

    @staticmethod
    def listed(*_values: str) -> int:
        """One: it has no tuner."""
        return 1


class ListedCopies(_Listed):
    """Copies of operands of `triton_matmul`, and what cuts columns off its product."""

    params: ClassVar[Sequence[Sequence[str]]] = (
        ("odd rows", "even rows", "eights", "columns", "columns of eights", "first columns"),
    )
    param_names = ("kind",)

    def inputs(self, *values: str, seed: int) -> tuple[Any, ...]:  # noqa: ARG002 - as above
        """Make both operands."""
        (kind,) = values
        side = SIDES["eights" if "eights" in kind else "odd"] + (kind == "even rows")
        a, b = (_empty(side, side) for _ in range(2))
        return (a.T, b.T, kind) if kind.startswith("columns") else (a, b, kind)

    def run(self, *inputs: Any) -> torch.Tensor:  # noqa: ANN401 - as above
        """Launch it."""
        a, b, kind = inputs
        if kind == "first columns":
            return first_columns(_empty(SIDES["odd"], 1008), SIDES["odd"])[0]  # as of a product of copies
        return in_scratch(a, b)[0]

    @staticmethod
    def listed(*_values: str) -> int:
        """One: it has no tuner."""
        return 1


SUITES = (ListedMatmul, ListedMatmulFp8, ListedAttention, ListedAddition, ListedCopies)

"""Block sizes that a caller of a matmul gives: which are valid, and what to say of those that do not fit the GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

import triton.language as tl

if TYPE_CHECKING:
    from collections.abc import Mapping

    from triton.runtime.errors import OutOfResources

    from flopwatch.kernels.configs import MatmulConfig

#: Rows, columns or depth of a tile: the tensor cores multiply 16 by 16.
MIN_BLOCK = 16
#: Threads of a warp, for which registers are counted: NVIDIA's.
_WARP = 32


def loads_of_thread(block_m: int, block_n: int, block_k: int, num_warps: int) -> float:
    """Return how many elements of both operands a thread loads in a step of a product, one by one.

    >>> loads_of_thread(64, 64, 64, 4)
    64.0
    """
    return (block_m + block_n) * block_k / (num_warps * _WARP)


def check_blocks(blocks: Mapping[str, int | None]) -> None:
    """Check the block sizes that a caller gave; None where it gave none.

    Raises:
        ValueError: one is no power of two from `MIN_BLOCK` up, or a tile would have more elements than Triton allows.
    """
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


def does_not_fit(given: Mapping[str, int], config: MatmulConfig | None, *, why: OutOfResources) -> str:
    """Say which blocks exceed the GPU: those that the caller gave, the architecture's, or all that were tuned.

    Args:
        given: "block_m" and so on, and what the caller gave.
        config: that was launched; None where all were tuned.
        why: what Triton says.
    """
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

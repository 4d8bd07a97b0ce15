"""Refactorings of the bundled kernels, of which no rule should say anything."""

from __future__ import annotations

from dataclasses import dataclass

from evidence.edits import KERNELS, Change, Move, edit
from evidence.regressions import (
    ATTENTION,
    ATTENTION_KERNEL,
    BIG_ADDITION,
    BIG_MATMUL,
    CONFIGS,
    DOT,
    FULL_ATTENTION,
    MATMUL,
    MATMUL_JIT,
    VECTOR_ADD,
)

#: Compiled as well, where tiles do not fit, with all masks, and with lengths.
ODD_MATMUL = "Matmul[1000x1000x1000,float16,flopwatch]"
LENGTHS_ATTENTION = "Attention[4x8x1024x64,lengths,flopwatch]"


@dataclass(frozen=True, kw_only=True, slots=True)
class Refactoring:
    """A change that makes nothing slower, on the cases that it is compiled for."""

    name: str
    cause: str
    changes: tuple[Change, ...]
    cases: tuple[str, ...]


_SWIZZLE = """\
    num_tiles_m = tl.cdiv(M, BLOCK_M)
    num_tiles_n = tl.cdiv(N, BLOCK_N)
    pid = tl.program_id(0)
    tiles_per_group = GROUP_M * num_tiles_n
    first_tile_m = pid // tiles_per_group * GROUP_M
    group_rows = min(num_tiles_m - first_tile_m, GROUP_M)
    tile_m = first_tile_m + pid % tiles_per_group % group_rows
    tile_n = pid % tiles_per_group // group_rows
"""
_TILE_OF = '''\
@triton.jit
def _tile_of(pid, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """Return the tile that a program computes."""
    num_tiles_m = tl.cdiv(M, BLOCK_M)
    num_tiles_n = tl.cdiv(N, BLOCK_N)
    tiles_per_group = GROUP_M * num_tiles_n
    first_tile_m = pid // tiles_per_group * GROUP_M
    group_rows = min(num_tiles_m - first_tile_m, GROUP_M)
    return first_tile_m + pid % tiles_per_group % group_rows, pid % tiles_per_group // group_rows


'''
_GRID = (
    "    def noted_grid(meta: Mapping[str, int]) -> tuple[int, ...]:\n"
    "        nonlocal grid\n"
    '        grid = (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)\n'
)

REFACTORINGS = (
    Refactoring(
        name="comment",
        cause="a comment above a kernel, which moves its lines",
        changes=(edit(MATMUL, MATMUL_JIT, f"# Multiplies.\n# In tiles.\n\n\n{MATMUL_JIT}"),),
        cases=(BIG_MATMUL, ODD_MATMUL),
    ),
    Refactoring(
        name="renamed-variable",
        cause="another name for a variable of the kernel",
        changes=(
            edit(MATMUL, "accumulator = tl.zeros(", "total = tl.zeros("),
            edit(MATMUL, DOT, DOT.replace("accumulator", "total")),
            edit(MATMUL, "c = accumulator.to(", "c = total.to("),
        ),
        cases=(BIG_MATMUL, ODD_MATMUL),
    ),
    Refactoring(
        name="reordered",
        cause="lines that do not depend on each other in another order",
        changes=(
            edit(
                MATMUL,
                "        a_ptr += a_step\n        b_ptr += b_step\n",
                "        b_ptr += b_step\n        a_ptr += a_step\n",
            ),
            edit(
                MATMUL,
                "    rows = tl.arange(0, BLOCK_M)\n    columns = tl.arange(0, BLOCK_N)\n",
                "    columns = tl.arange(0, BLOCK_N)\n    rows = tl.arange(0, BLOCK_M)\n",
            ),
        ),
        cases=(BIG_MATMUL, ODD_MATMUL),
    ),
    Refactoring(
        name="in-place",
        cause="the product is added in place",
        changes=(edit(MATMUL, DOT, "accumulator += tl.dot(a, b)"),),
        cases=(BIG_MATMUL, ODD_MATMUL),
    ),
    Refactoring(
        name="extracted",
        cause="the numbering of tiles in a function of its own",
        changes=(
            edit(
                MATMUL,
                _SWIZZLE,
                "    tile_m, tile_n = _tile_of(tl.program_id(0), M, N, BLOCK_M, BLOCK_N, GROUP_M)\n",
            ),
            edit(MATMUL, MATMUL_JIT, _TILE_OF + MATMUL_JIT),
        ),
        cases=(BIG_MATMUL, ODD_MATMUL),
    ),
    Refactoring(
        name="renamed-kernel",
        cause="another name for a kernel",
        changes=(
            edit(MATMUL, "def matmul_kernel(", "def product_kernel("),
            edit(MATMUL, ")(matmul_kernel)", ")(product_kernel)"),
        ),
        cases=(BIG_MATMUL, ODD_MATMUL),
    ),
    Refactoring(
        name="moved-file",
        cause="another name for a kernel's file",
        changes=(
            Move(path=VECTOR_ADD, to=f"{KERNELS}/addition.py"),
            edit(f"{KERNELS}/__init__.py", "flopwatch.kernels.vector_add import", "flopwatch.kernels.addition import"),
        ),
        cases=(BIG_ADDITION,),
    ),
    Refactoring(
        name="folded-constant",
        cause="a constant that is always 8 is written into the kernel",
        changes=(
            edit(
                CONFIGS,
                '            "GROUP_M": self.group_m,\n        }\n\n    def as_dict',
                "        }\n\n    def as_dict",
            ),
            edit(MATMUL, "    GROUP_M: tl.constexpr,\n", ""),
            edit(MATMUL, "tiles_per_group = GROUP_M * num_tiles_n", "tiles_per_group = 8 * num_tiles_n"),
            edit(MATMUL, "pid // tiles_per_group * GROUP_M", "pid // tiles_per_group * 8"),
            edit(MATMUL, "min(num_tiles_m - first_tile_m, GROUP_M)", "min(num_tiles_m - first_tile_m, 8)"),
            edit(MATMUL, 'group_m=args["GROUP_M"],', "group_m=8,"),
        ),
        cases=(BIG_MATMUL, ODD_MATMUL),
    ),
    Refactoring(
        name="argument-order",
        cause="two arguments of a kernel change places",
        changes=(
            edit(
                ATTENTION_KERNEL,
                "    H,\n    group,\n    S,\n    S_KV,\n",
                "    S,\n    group,\n    H,\n    S_KV,\n",
            ),
            edit(ATTENTION, "    numbers = (H, H // H_KV, S, None", "    numbers = (S, H // H_KV, H, None"),
        ),
        cases=(FULL_ATTENTION, LENGTHS_ATTENTION),
    ),
    Refactoring(
        name="annotations",
        cause="types in the host's code",
        changes=(
            edit(MATMUL, "    options = {}\n", "    options: dict[str, Any] = {}\n"),
            edit(ATTENTION, "    B, H, S, D = operands[0].shape\n", "    B: int\n    B, H, S, D = operands[0].shape\n"),
        ),
        cases=(BIG_MATMUL, FULL_ATTENTION),
    ),
    Refactoring(
        name="grid-function",
        cause="the grid's size in a function of its own",
        changes=(
            edit(
                MATMUL,
                _GRID,
                "    def tiles(meta: Mapping[str, int]) -> int:\n"
                '        return int(triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]))\n\n'
                "    def noted_grid(meta: Mapping[str, int]) -> tuple[int, ...]:\n"
                "        nonlocal grid\n"
                "        grid = (tiles(meta),)\n",
            ),
        ),
        cases=(BIG_MATMUL, ODD_MATMUL),
    ),
    Refactoring(
        name="docstring",
        cause="another docstring",
        changes=(edit(ATTENTION_KERNEL, '"""Compute attention of one batch of heads.\n', '"""Compute attention.\n'),),
        cases=(FULL_ATTENTION, LENGTHS_ATTENTION),
    ),
)

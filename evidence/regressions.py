"""Regressions that a rule should name, planted into the bundled kernels."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from evidence.edits import KERNELS, Change, edit

MATMUL = f"{KERNELS}/matmul.py"
ATTENTION = f"{KERNELS}/attention.py"
ATTENTION_KERNEL = f"{KERNELS}/attention_kernel.py"
VECTOR_ADD = f"{KERNELS}/vector_add.py"
CONFIGS = f"{KERNELS}/configs.py"

#: On an H200 these take 192, 1683, 333, 205 and 186 us (`docs/evidence.md`): long enough for the kernel to be what is
#: measured, and short enough for a pair to take 2 s.
BIG_MATMUL = "Matmul[4096x4096x4096,float16,flopwatch]"
#: A square product of 8192 has too much to multiply for its order to matter: 0.4 % (H200, 2026-11-23).
WIDE_LINEAR = "Linear[1024x50304x768,bfloat16,flopwatch]"
FULL_ATTENTION = "Attention[4x8x4096x64,full,flopwatch]"
CAUSAL_ATTENTION = "Attention[4x8x4096x64,causal,flopwatch]"
BIG_ADDITION = "VectorAdd[67108864,float32,flopwatch]"


class Sight(enum.Enum):
    """Where a regression can be seen without a GPU."""

    CODE = "in the compiled code"
    TRAFFIC = "in what the kernel reads and writes"
    HOST = "in what the host launches"


@dataclass(frozen=True, kw_only=True, slots=True)
class Regression:
    """A change that makes a kernel slower.

    Attributes:
        name: of the branch that has it.
        cause: what a person would say of it.
        changes: of files.
        case: the case that shows it best.
        facts: the names of the findings of which each says what happened; of `flopwatch.static.comparison`, and of
            `flopwatch.static.traffic` where that is what can be seen.
        sight: where it can be seen.
    """

    name: str
    cause: str
    changes: tuple[Change, ...]
    case: str
    facts: tuple[str, ...]
    sight: Sight = Sight.CODE

    @property
    def cases(self) -> tuple[str, ...]:
        """The cases that are compiled."""
        return (self.case,)


_MATMUL_CONFIG = "block_m=block_m, block_n=block_n, block_k=block_k, num_warps=num_warps, num_stages=num_stages)"
_ATTENTION_CONFIG = "block_n=block_n, num_warps=num_warps, num_stages=num_stages\n"
DOT = "accumulator = tl.dot(a, b, accumulator)"
_TILES = """\
    tile_m = first_tile_m + pid % tiles_per_group % group_rows
    tile_n = pid % tiles_per_group // group_rows
"""
_LOADS = """\
            a = tl.load(a_ptr + a_offsets)
            b = tl.load(b_ptr + b_offsets)
"""
MATMUL_JIT = "@triton.jit  # type: ignore[untyped-decorator] # Triton ships no types\ndef matmul_kernel("
_STRIDES = [f"stride_{name}" for name in ("am", "ak", "bk", "bn", "cm", "cn")]
_ADDED = """\
    x = tl.load(x_ptr + offsets, mask=mask)
    y = tl.load(y_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, x + y, mask=mask)
"""
_SUM = "tl.store(out_ptr + offsets, x + y, mask=mask)"
_OFFSETS = "    offsets = tl.program_id(0).to(tl.int64) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)\n"
_PAST_LENGTH = "    if HAS_SEQ_LENS and first_row >= tl.maximum(length, 1):\n"

REGRESSIONS = (
    Regression(
        name="one-stage",
        cause="loads are not in flight while the tensor cores work: one stage instead of three or four",
        changes=(edit(CONFIGS, _MATMUL_CONFIG, _MATMUL_CONFIG.replace("=num_stages", "=1")),),
        case=BIG_MATMUL,
        facts=("pipelining",),
    ),
    Regression(
        name="too-many-stages",
        cause="four stages more than there is shared memory for: the large tiles no longer fit",
        changes=(edit(CONFIGS, _MATMUL_CONFIG, _MATMUL_CONFIG.replace("=num_stages", "=num_stages + 4")),),
        case=BIG_MATMUL,
        facts=("compiles and fits",),
    ),
    Regression(
        name="no-room",
        cause="twenty stages more: no tile fits",
        changes=(edit(CONFIGS, _ATTENTION_CONFIG, _ATTENTION_CONFIG.replace("=num_stages", "=num_stages + 20")),),
        case=FULL_ATTENTION,
        facts=("compiles and fits",),
    ),
    Regression(
        name="narrow-step",
        cause="BLOCK_K of 16 instead of 64: a step has little to multiply for what it costs",
        changes=(edit(CONFIGS, _MATMUL_CONFIG, _MATMUL_CONFIG.replace("=block_k", "=16")),),
        case=BIG_MATMUL,
        facts=("loop",),
    ),
    Regression(
        name="half-the-warps",
        cause="half the warps hold the same tiles: their registers spill, or they are too few for wgmma",
        changes=(edit(CONFIGS, _ATTENTION_CONFIG, _ATTENTION_CONFIG.replace("=num_warps", "=num_warps // 2")),),
        case=FULL_ATTENTION,
        facts=("spills", "tensor core format"),
    ),
    Regression(
        name="unknown-strides",
        cause="strides are not specialised, so that nothing is known to be contiguous",
        changes=(
            edit(MATMUL, MATMUL_JIT, MATMUL_JIT.replace("@triton.jit", f"@triton.jit(do_not_specialize={_STRIDES})")),
        ),
        case=BIG_MATMUL,
        facts=("loads", "pipelining"),
    ),
    Regression(
        name="float32-operands",
        cause="operands are converted to float32, which the tensor cores multiply as tf32",
        changes=(edit(MATMUL, DOT, "accumulator = tl.dot(a.to(tl.float32), b.to(tl.float32), accumulator)"),),
        case=BIG_MATMUL,
        facts=("tensor core format",),
    ),
    Regression(
        name="full-precision",
        cause="a product of full float32 precision, for which there are no tensor cores",
        changes=(
            edit(
                MATMUL,
                DOT,
                'accumulator = tl.dot(a.to(tl.float32), b.to(tl.float32), accumulator, input_precision="ieee")',
            ),
        ),
        case=BIG_MATMUL,
        facts=("tensor cores",),
    ),
    Regression(
        name="float32-weights",
        cause="attention's second product in float32",
        changes=(
            edit(
                ATTENTION_KERNEL,
                "return tl.dot(p.to(v.dtype), v, accumulator * rescale[:, None])",
                "return tl.dot(p, v.to(tl.float32), accumulator * rescale[:, None])",
            ),
        ),
        case=FULL_ATTENTION,
        facts=("tensor core format",),
    ),
    Regression(
        name="long-offsets",
        cause="64-bit offsets that every step computes anew from its place",
        changes=(
            edit(
                MATMUL,
                _LOADS,
                "            k = start + depth.to(tl.int64)\n"
                "            a = tl.load(a_ptr + rows.to(tl.int64)[:, None] * stride_am + k[None, :] * stride_ak)\n"
                "            b = tl.load(b_ptr + k[:, None] * stride_bk + columns.to(tl.int64)[None, :] * stride_bn)\n",
            ),
            edit(MATMUL, "        a_ptr += a_step\n        b_ptr += b_step\n", ""),
        ),
        case=BIG_MATMUL,
        facts=("loop",),
    ),
    Regression(
        name="float64-sum",
        cause="the softmax's sums in float64",
        changes=(
            edit(
                ATTENTION_KERNEL,
                "row_sum = tl.zeros((BLOCK_M,), dtype=tl.float32)",
                "row_sum = tl.zeros((BLOCK_M,), dtype=tl.float64)",
            ),
            edit(
                ATTENTION_KERNEL,
                "row_sum = row_sum * rescale + tl.sum(p, 1)",
                "row_sum = row_sum * rescale + tl.sum(p.to(tl.float64), 1)",
            ),
        ),
        case=FULL_ATTENTION,
        facts=("double precision",),
    ),
    Regression(
        name="barrier",
        cause="a barrier in every step, across which nothing is pipelined",
        changes=(edit(MATMUL, f"        {DOT}\n", f"        {DOT}\n        tl.debug_barrier()\n"),),
        case=BIG_MATMUL,
        facts=("pipelining",),
    ),
    Regression(
        name="all-masked",
        cause="every block takes the way of the diagonal's, with masks and without pipelining",
        changes=(
            edit(
                ATTENTION_KERNEL,
                f"{_PAST_LENGTH}        end = 0\n        unmasked_end = 0\n",
                f"    unmasked_end = 0\n{_PAST_LENGTH}        end = 0\n",
            ),
        ),
        case=FULL_ATTENTION,
        facts=("pipelining",),
    ),
    Regression(
        name="small-blocks",
        cause="programs of 64 elements, which have too little to do",
        changes=(edit(VECTOR_ADD, "\n    return 1024\n", "\n    return 64\n"),),
        case=BIG_ADDITION,
        facts=("loads", "stores"),
    ),
    Regression(
        name="scattered",
        cause="neighbouring threads read far apart: a program takes every n-th element",
        changes=(
            edit(
                VECTOR_ADD,
                _OFFSETS + "    mask = offsets < n_elements\n" + _ADDED,
                "    offsets = tl.program_id(0) + tl.arange(0, BLOCK_SIZE).to(tl.int64) * tl.num_programs(0)\n"
                "    mask = offsets < n_elements\n" + _ADDED,
            ),
        ),
        case=BIG_ADDITION,
        facts=("loads", "stores"),
    ),
    Regression(
        name="atomic",
        cause="an atomic exchange instead of a store",
        changes=(edit(VECTOR_ADD, _SUM, "tl.atomic_xchg(out_ptr + offsets, x + y, mask=mask)"),),
        case=BIG_ADDITION,
        facts=("atomics",),
    ),
    Regression(
        name="huge-blocks",
        cause="programs of 65536 elements, whose registers spill",
        changes=(edit(VECTOR_ADD, "\n    return 1024\n", "\n    return 65536\n"),),
        case=BIG_ADDITION,
        facts=("spills",),
    ),
    Regression(
        name="no-swizzle",
        cause="tiles are numbered row by row, so that programs at the same time share little in L2",
        changes=(
            edit(
                MATMUL,
                _TILES,
                "    tile_m = first_tile_m + pid % tiles_per_group // num_tiles_n\n    tile_n = pid % num_tiles_n\n",
            ),
        ),
        case=WIDE_LINEAR,
        facts=("wave reuse",),
        sight=Sight.TRAFFIC,
    ),
    Regression(
        name="no-causal-skip",
        cause="the blocks behind the diagonal are computed, too, and then masked",
        changes=(
            edit(
                ATTENTION_KERNEL,
                "end = tl.maximum(tl.minimum(num_keys, seen_by_any) if CAUSAL else num_keys, 1)\n",
                "end = num_keys\n",
            ),
        ),
        case=CAUSAL_ATTENTION,
        facts=("dot flops",),
        sight=Sight.TRAFFIC,
    ),
    Regression(
        name="second-pass",
        cause="both operands are copied before they are added",
        changes=(
            edit(
                VECTOR_ADD,
                "def _eager(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:\n",
                "def _eager(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:\n    x, y = x.clone(), y.clone()\n",
            ),
        ),
        case=BIG_ADDITION,
        facts=(),
        sight=Sight.HOST,
    ),
)

#: Rules that none of these can try, and why.
UNTRIED = {
    "tma loads": "no bundled kernel loads by TMA",
    "tma stores": "no bundled kernel stores by TMA",
    "out of bounds": "whatever leaves its tensors is wrong, whether slower or not",
    "launches": "no planted change launches a kernel more often",
    "imbalance": "no planted change moves work from one program to another",
}

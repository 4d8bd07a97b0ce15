"""Race the Hopper attention: ``python -m evidence.attention_candidates OUT.json [--flex]``, on an H200.

Points: head_dim 64, 128, 32 and 256, causal and full, sequences of 512 to 16384 with batch x sequence = 16384 and heads
x head_dim = 2048, float16. Peers: cuDNN and FlashAttention-2 as torch has them, and the plain kernel; with --flex
compiled flex_attention, which takes tens of seconds to compile at each point. What is written can be continued; see
`evidence.candidates`.

``python -m evidence.attention_candidates choose OUT.json`` writes for which calls `flash_attention` takes a winner
(`evidence.routes`), and needs no GPU. With --held-out the points are other sizes, and the one candidate is what calls
take there by the rule of `flopwatch.kernels.hopper_choice`.
"""

from __future__ import annotations

import hashlib
import itertools
import math
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import torch
import triton
from torch.nn.attention import SDPBackend, sdpa_kernel

from evidence.candidates import main
from evidence.race import Contest, Point
from evidence.routes import take_plain_kernels
from evidence.turns import GpuTurns, is_alive
from flopwatch.kernels import flash_attention
from flopwatch.kernels import hopper_attention as hopper
from flopwatch.kernels.hopper_attention import HOPPER_ATTENTION, HopperAttentionConfig, hopper_attention, prepare
from flopwatch.kernels.hopper_choice import attention_config
from flopwatch.kernels.known import PLAIN, TABLES
from flopwatch.kernels.reference import attention_reference
from flopwatch.kernels.routes import attention_key
from flopwatch.measure.inputs import input_bytes
from flopwatch.measure.machine import toolchain_versions
from flopwatch.measure.timer import COLD_L2_FACTOR
from flopwatch.model import Case, Choice

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from evidence.race import Call, Maker

HEAD_DIMS = (64, 128, 32, 256)
LENGTHS = (512, 1024, 2048, 4096, 8192, 16384)
TOKENS = 16384
HIDDEN = 2048
#: The GPU that is chosen for where none is present, and its multiprocessors; an H100 has as many.
GPU, PROCESSORS = "NVIDIA H200", 132
#: Sizes that decided nothing: B, H, H_KV, S, D, and whether causal. A wave of tiles and many, shared heads, and lengths
#: between those that were raced.
HELD_OUT = (
    (1, 16, 16, 1024, 128, 1),
    (1, 12, 12, 2048, 64, 1),
    (1, 8, 8, 2048, 128, 0),
    (2, 32, 8, 4096, 128, 1),
    (4, 32, 32, 1536, 128, 1),
    (1, 32, 8, 8192, 128, 1),
    (3, 44, 44, 1024, 64, 0),
    (16, 12, 12, 512, 64, 0),
    (16, 16, 16, 1024, 64, 1),
    (1, 24, 24, 4352, 128, 0),
    (2, 16, 16, 3000, 64, 1),
    (1, 4, 4, 16384, 128, 1),
    (2, 8, 8, 2048, 256, 1),
    (4, 4, 4, 1100, 256, 0),
    (1, 8, 1, 4096, 256, 1),
)
#: Each of q, k, v and the output has 67 MB, so that two sets turn over an L2 cache of 50 MB. Smaller ones take more.
SETS = 2
#: Relative error, as a norm, of float16 weights and results: 3e-4 is what rounding them gives.
LARGEST_ERROR = 1.5e-3
CHECKED_HEADS = 16
CHECKED_ROWS = 128
_PEERS = {"cudnn": SDPBackend.CUDNN_ATTENTION, "fa2": SDPBackend.FLASH_ATTENTION}
_SEED = 20261122


@dataclass(frozen=True, slots=True)
class Compilation:
    """Compiles a configuration for the present GPU; calls with sequences of whole blocks all take the same code.

    And so do all with lengths, if that is what it is for.
    """

    head_dim: int
    causal: bool
    config: HopperAttentionConfig
    lengths: bool = False

    def __call__(self) -> None:
        """Compile it into Triton's cache, without a launch."""
        q, k, v, out = torch.empty(4, 1, 2, 1024, self.head_dim, device="cuda", dtype=torch.float16)
        seq_lens = torch.empty(1, device="cuda", dtype=torch.int32) if self.lengths else None
        prepare(q, k, v, out, self.config, causal=self.causal, seq_lens=seq_lens).compile()


@dataclass(frozen=True, slots=True)
class Sizes:
    """Of a call.

    Attributes:
        batch: B.
        heads: H, of the queries.
        kv_heads: H_KV, of keys and values.
        length: of both sequences.
        head_dim: D.
        causal: whether a query sees only the keys up to its own position.
    """

    batch: int
    heads: int
    kv_heads: int
    length: int
    head_dim: int
    causal: bool

    @classmethod
    def of(cls, point: Point) -> Sizes:
        """Return those of a point, which of the raced ones has no more than head_dim, mask and length."""
        values = list(map(int, point.values))
        if len(values) == 3:  # noqa: PLR2004 - as above
            head_dim, causal, length = values
            heads = HIDDEN // head_dim
            values = [TOKENS // length, heads, heads, length, head_dim, causal]
        batch, heads, kv_heads, length, head_dim, causal = values
        return cls(batch, heads, kv_heads, length, head_dim, bool(causal))

    @property
    def queries(self) -> tuple[int, int, int, int]:
        """Shape of q."""
        return self.batch, self.heads, self.length, self.head_dim

    @property
    def keys(self) -> tuple[int, int, int, int]:
        """Shape of k and of v."""
        return self.batch, self.kv_heads, self.length, self.head_dim


class Sampled:
    """Some rows of some heads of the result in float64, the first and the last of both among them.

    Args:
        q: (B, H, S, D), as `k` and `v`.
        causal: whether a query sees only the keys up to its own position.
    """

    def __init__(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, causal: bool) -> None:
        batch, heads, length, _ = q.shape
        generator = torch.Generator().manual_seed(_SEED)
        drawn = torch.randint(batch * heads, (CHECKED_HEADS,), generator=generator).tolist()
        self._heads = sorted({0, batch * heads - 1, *drawn})
        rows = torch.randint(length, (CHECKED_ROWS,), generator=generator)
        self._rows = torch.unique(torch.cat([rows, torch.tensor([0, length - 1])])).to(q.device)
        self._expected = []
        for head in self._heads:
            queries, keys, values = (tensor.flatten(0, 1)[head, None, None] for tensor in (q, k, v))
            expected = attention_reference(queries, keys, values, causal=causal)
            self._expected.append(expected[0, 0, self._rows])

    def error(self, out: torch.Tensor) -> float:
        """Return the norm of the difference in units of the norm; NaN where anything at all is."""
        if not torch.isfinite(out).all():
            return math.nan
        found = [out.flatten(0, 1)[head, self._rows].double() for head in self._heads]
        norms = [
            torch.linalg.vector_norm(torch.stack(each)) for each in (self._expected, _minus(found, self._expected))
        ]
        return float(norms[1] / norms[0])


@dataclass(frozen=True, kw_only=True, slots=True)
class AttentionExperiment:
    """All points and candidates.

    Attributes:
        flex: compiled flex_attention is a peer, too.
        held_out: the points are others, with one candidate each: what is taken there by a rule.
    """

    flex: bool = False
    held_out: bool = False

    @property
    def source(self) -> str:
        """What outcomes depend on: the kernel's files and who compiles them."""
        folder = Path(hopper.__file__).parent
        plain = (folder / f"{name}.py" for name in ("attention", "attention_kernel", "configs"))
        files = [*sorted(folder.glob("hopper_attention*.py")), *plain]
        text = b"".join(path.read_bytes() for path in files)
        return f"{hashlib.sha256(text).hexdigest()[:16]} triton {triton.__version__} torch {torch.__version__}"

    def points(self) -> Sequence[Point]:
        """Return all points, by head_dim."""
        if self.held_out:
            return [
                Point(
                    name=f"{'x'.join(map(str, sizes[:5]))} {'causal' if sizes[5] else 'full'}",
                    group="held out",
                    flops=4.0 * sizes[0] * sizes[1] * sizes[3] ** 2 * sizes[4] * (0.5 if sizes[5] else 1.0),
                    values=sizes,
                )
                for sizes in HELD_OUT
            ]
        return [
            Point(
                name=f"{head_dim} {'causal' if causal else 'full'} {length}",
                group=f"{head_dim} {'causal' if causal else 'full'}",
                flops=4.0 * TOKENS * HIDDEN * length * (0.5 if causal else 1.0),
                values=(head_dim, int(causal), length),
            )
            for head_dim, causal, length in itertools.product(HEAD_DIMS, (True, False), LENGTHS)
        ]

    def compilations(self, point: Point) -> Sequence[Callable[[], object]]:
        """Return what compiles the configurations of a head_dim."""
        sizes = Sizes.of(point)
        return [Compilation(sizes.head_dim, sizes.causal, config) for config in self.candidates(sizes)]

    def candidates(self, sizes: Sizes) -> Sequence[HopperAttentionConfig]:
        """Return what is raced."""
        configs = HOPPER_ATTENTION[sizes.head_dim]
        if not self.held_out:
            return configs
        q, k = (torch.empty(shape, device="meta", dtype=torch.float16) for shape in (sizes.queries, sizes.keys))
        gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else GPU
        key = attention_key(q, k, q, causal=sizes.causal)
        name = attention_config(key, TABLES, gpu=gpu, processors=PROCESSORS)
        return [config for config in configs if config.name == name]

    def contest(self, point: Point) -> Contest:
        """Draw the inputs, and compute some rows of the result in float64."""
        sizes = Sizes.of(point)
        causal, queries = sizes.causal, sizes.queries
        generator = torch.Generator(device="cuda").manual_seed(_SEED)

        def drawn(shape: tuple[int, ...]) -> torch.Tensor:
            return torch.randn(shape, device="cuda", generator=generator).half()

        sets = [(drawn(queries), drawn(sizes.keys), drawn(sizes.keys)) for _ in range(SETS)]
        cold_bytes = COLD_L2_FACTOR * torch.cuda.get_device_properties().L2_cache_size
        while sum(map(input_bytes, sets)) < cold_bytes:
            sets.append((drawn(queries), drawn(sizes.keys), drawn(sizes.keys)))
        # Of heads that share keys torch's kernels get copies, which not all of them can do without.
        times = sizes.heads // sizes.kv_heads
        repeated = [(q, k.repeat_interleave(times, 1), v.repeat_interleave(times, 1)) for q, k, v in sets]
        outs = [torch.empty(queries, device="cuda", dtype=torch.float16) for _ in sets]
        sampled = Sampled(*repeated[0], causal=causal)

        def launched(config: HopperAttentionConfig, index: int) -> torch.Tensor:
            q, k, v = sets[index]
            return hopper_attention(q, k, v, config, causal=causal, out=outs[index])

        def asked(backend: SDPBackend, index: int) -> torch.Tensor:
            q, k, v = repeated[index]
            with sdpa_kernel(backend):
                return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)

        def wrong(call: Call) -> str:
            outs[0].fill_(math.nan)
            out = call(0)
            assert isinstance(out, torch.Tensor)  # noqa: S101 - all of these return tensors
            error = sampled.error(out)
            return "" if error <= LARGEST_ERROR else f"is wrong: error {error:.1e}"

        take_plain_kernels()
        peers: dict[str, Maker] = {name: partial(partial, asked, backend) for name, backend in _PEERS.items()}
        peers[PLAIN] = partial(partial, lambda index: flash_attention(*sets[index], causal=causal))
        if self.flex:
            peers["flex"] = partial(_flex, repeated, causal=causal)
        candidates: dict[str, Maker] = {
            f"{sizes.head_dim}: {config.name}": partial(partial, launched, config) for config in self.candidates(sizes)
        }
        return Contest(peers=peers, candidates=candidates, wrong=wrong, sets=len(sets))

    def turns(self, calls: Mapping[str, Call], sets: int) -> GpuTurns:
        """Capture these calls."""
        return GpuTurns(calls, sets)

    def is_alive(self) -> bool:
        """Tell whether the GPU answers."""
        return is_alive()

    def about(self) -> dict[str, str]:
        """Return the GPU and the versions of what runs on it."""
        cudnn = torch.backends.cudnn.version()
        return {"gpu": torch.cuda.get_device_name(), "cudnn": str(cudnn), **toolchain_versions()}

    def case(self, point: Point) -> Case:
        """Return the case whose calls are those of a point."""
        sizes = Sizes.of(point)
        shape = "x".join(map(str, sizes.queries))
        return Case(suite="Attention", values=(shape, "causal" if sizes.causal else "full", "flopwatch"))

    def route(self, point: Point, winner: str) -> Choice | None:
        """Return what calls of those sizes take; None where the winner is gone."""
        sizes = Sizes.of(point)
        name = winner.removeprefix(f"{sizes.head_dim}: ")
        if name not in {config.name for config in HOPPER_ATTENTION[sizes.head_dim]}:
            return None
        q, k = (torch.empty(shape, device="meta", dtype=torch.float16) for shape in (sizes.queries, sizes.keys))
        key = attention_key(q, k, q, causal=sizes.causal)
        return Choice(kernel="hopper_attention_kernel", config=name, key=key)


def _flex(sets: Sequence[tuple[torch.Tensor, torch.Tensor, torch.Tensor]], *, causal: bool) -> Call:
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention  # noqa: PLC0415 - slow to import

    length = sets[0][0].shape[2]
    mask = create_block_mask(lambda _b, _h, i, j: i >= j, None, None, length, length, device="cuda") if causal else None
    compiled = torch.compile(flex_attention, dynamic=False)

    def call(index: int) -> object:
        q, k, v = sets[index]
        return compiled(q, k, v, block_mask=mask)

    return call


def _minus(found: Sequence[torch.Tensor], expected: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    return [one - other for one, other in zip(found, expected, strict=True)]


if __name__ == "__main__":
    if {"--held-out", "choose"} <= set(sys.argv):
        sys.exit("what is held out decides nothing: choose from the races of the others")
    options = [option for option in sys.argv[1:] if option not in {"--flex", "--held-out"}]
    if not {"--table", "choose"} & set(options) and not torch.cuda.is_available():
        sys.exit("there is no GPU here: candidates are raced on one of the capability 9.0")
    main(
        AttentionExperiment(flex="--flex" in sys.argv, held_out="--held-out" in sys.argv),
        options,
        "python -m evidence.attention_candidates",
        str(__doc__),
    )

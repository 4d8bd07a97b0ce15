"""Race the Hopper attention: ``python -m evidence.attention_candidates OUT.json [--flex]``, on an H200.

Points: head_dim 64, 128, 32 and 256, causal and full, sequences of 512 to 16384 with batch x sequence = 16384 and heads
x head_dim = 2048, float16. Peers: cuDNN and FlashAttention-2 as torch has them, and the plain kernel; with --flex
compiled flex_attention, which takes tens of seconds to compile at each point. What is written can be continued; see
`evidence.candidates`.

``python -m evidence.attention_candidates choose OUT.json`` writes for which calls `flash_attention` takes a winner
(`evidence.routes`), and needs no GPU.
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
from evidence.routes import PLAIN, take_plain_kernels
from evidence.turns import GpuTurns, is_alive
from flopwatch.kernels import flash_attention
from flopwatch.kernels import hopper_attention as hopper
from flopwatch.kernels.hopper_attention import HOPPER_ATTENTION, HopperAttentionConfig, hopper_attention, prepare
from flopwatch.kernels.reference import attention_reference
from flopwatch.kernels.routes import attention_key
from flopwatch.measure.machine import toolchain_versions
from flopwatch.model import Case, Choice

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from evidence.race import Call, Maker

HEAD_DIMS = (64, 128, 32, 256)
LENGTHS = (512, 1024, 2048, 4096, 8192, 16384)
TOKENS = 16384
HIDDEN = 2048
#: Each of q, k, v and the output has 67 MB, so that two sets turn over an L2 cache of 50 MB.
SETS = 2
#: Relative error, as a norm, of float16 weights and results: 3e-4 is what rounding them gives.
LARGEST_ERROR = 1.5e-3
CHECKED_HEADS = 16
CHECKED_ROWS = 128
_PEERS = {"cudnn": SDPBackend.CUDNN_ATTENTION, "fa2": SDPBackend.FLASH_ATTENTION}
_SEED = 20261122


@dataclass(frozen=True, slots=True)
class Compilation:
    """Compiles a configuration for the present GPU; calls with sequences of whole blocks all take the same code."""

    head_dim: int
    causal: bool
    config: HopperAttentionConfig

    def __call__(self) -> None:
        """Compile it into Triton's cache, without a launch."""
        q, k, v, out = torch.empty(4, 1, 2, 1024, self.head_dim, device="cuda", dtype=torch.float16)
        prepare(q, k, v, out, self.config, causal=self.causal).compile()


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
    """

    flex: bool = False

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
        head_dim, causal, _ = _values(point)
        return [Compilation(head_dim, bool(causal), config) for config in HOPPER_ATTENTION[head_dim]]

    def contest(self, point: Point) -> Contest:
        """Draw the inputs, and compute some rows of the result in float64."""
        head_dim, causal, length = _values(point)
        shape = _shape(head_dim, length)
        generator = torch.Generator(device="cuda").manual_seed(_SEED)
        drawn = [torch.randn(shape, device="cuda", generator=generator).half() for _ in range(3 * SETS)]
        sets = [(drawn[3 * index], drawn[3 * index + 1], drawn[3 * index + 2]) for index in range(SETS)]
        outs = [torch.empty(shape, device="cuda", dtype=torch.float16) for _ in range(SETS)]
        sampled = Sampled(*sets[0], causal=bool(causal))

        def launched(config: HopperAttentionConfig, index: int) -> torch.Tensor:
            q, k, v = sets[index]
            return hopper_attention(q, k, v, config, causal=bool(causal), out=outs[index])

        def asked(backend: SDPBackend, index: int) -> torch.Tensor:
            q, k, v = sets[index]
            with sdpa_kernel(backend):
                return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=bool(causal))

        def wrong(call: Call) -> str:
            outs[0].fill_(math.nan)
            out = call(0)
            assert isinstance(out, torch.Tensor)  # noqa: S101 - all of these return tensors
            error = sampled.error(out)
            return "" if error <= LARGEST_ERROR else f"is wrong: error {error:.1e}"

        take_plain_kernels()
        peers: dict[str, Maker] = {name: partial(partial, asked, backend) for name, backend in _PEERS.items()}
        peers[PLAIN] = partial(partial, lambda index: flash_attention(*sets[index], causal=bool(causal)))
        if self.flex:
            peers["flex"] = partial(_flex, sets, causal=bool(causal))
        candidates: dict[str, Maker] = {
            f"{head_dim}: {config.name}": partial(partial, launched, config) for config in HOPPER_ATTENTION[head_dim]
        }
        return Contest(peers=peers, candidates=candidates, wrong=wrong, sets=SETS)

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
        head_dim, causal, length = _values(point)
        shape = "x".join(map(str, _shape(head_dim, length)))
        return Case(suite="Attention", values=(shape, "causal" if causal else "full", "flopwatch"))

    def route(self, point: Point, winner: str) -> Choice | None:
        """Return what calls of those sizes take; None where the winner is gone."""
        head_dim, causal, length = _values(point)
        name = winner.removeprefix(f"{head_dim}: ")
        if name not in {config.name for config in HOPPER_ATTENTION[head_dim]}:
            return None
        q = torch.empty(_shape(head_dim, length), device="meta", dtype=torch.float16)
        key = attention_key(q, q, q, causal=bool(causal))
        return Choice(kernel="hopper_attention_kernel", config=name, key=key)


def _shape(head_dim: int, length: int) -> tuple[int, int, int, int]:
    return TOKENS // length, HIDDEN // head_dim, length, head_dim


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


def _values(point: Point) -> tuple[int, int, int]:
    head_dim, causal, length = map(int, point.values)
    return head_dim, causal, length


if __name__ == "__main__":
    options = [option for option in sys.argv[1:] if option != "--flex"]
    if not {"--table", "choose"} & set(options) and not torch.cuda.is_available():
        sys.exit("there is no GPU here: candidates are raced on an H200")
    main(
        AttentionExperiment(flex="--flex" in sys.argv),
        options,
        "python -m evidence.attention_candidates",
        str(__doc__),
    )

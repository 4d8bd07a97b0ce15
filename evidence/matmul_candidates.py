"""Race the kernels for products: ``python -m evidence.matmul_candidates OUT.json [--seconds N]``, on an H200.

Everything in `flopwatch.kernels` that `triton_matmul` takes only where a table says so, on the products of
`peer_shapes`, against torch.matmul and the plain kernel. Tiles and ways to share them are ordered by an estimate first,
and the best dozen of a shape is raced. What is written can be continued; see `evidence.candidates`.

``python -m evidence.matmul_candidates choose OUT.json`` writes the winners into that table (`evidence.routes`), and
needs no GPU.
"""

from __future__ import annotations

import hashlib
import math
import sys
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import torch
import triton

from evidence.candidates import main
from evidence.peer_shapes import MATMUL, MATMUL_DTYPES, sizes
from evidence.race import Contest, Point
from evidence.routes import PLAIN as PLAIN_PEER
from evidence.routes import take_plain_kernels
from evidence.turns import GpuTurns, is_alive
from flopwatch.kernels import stream_k, triton_matmul
from flopwatch.kernels.hopper_matmul import (
    OTHER_GROUPS,
    TILES,
    HopperConfig,
    can_multiply,
    hopper_matmul,
    prepare_hopper,
)
from flopwatch.kernels.reference import matmul_reference
from flopwatch.kernels.routes import product_key
from flopwatch.kernels.scratch import in_scratch
from flopwatch.kernels.stream_k import (
    Balance,
    Schedule,
    StreamKConfig,
    Workspace,
    prepare_stream_k,
    stream_k_matmul,
)
from flopwatch.kernels.thin_matmul import CANDIDATES, MOST_ROWS, ThinConfig, prepare_thin, thin_matmul
from flopwatch.measure.inputs import input_bytes
from flopwatch.measure.machine import toolchain_versions
from flopwatch.measure.numbers import difference
from flopwatch.measure.timer import COLD_L2_FACTOR, MAX_INPUT_SETS
from flopwatch.model import Case, Choice
from flopwatch.poison import PoisonedAllocations

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import TypeAlias

    from evidence.race import Call, Maker
    from flopwatch.kernels.prepared import Prepared

    Config: TypeAlias = HopperConfig | ThinConfig | StreamKConfig

#: Multiprocessors of an H200, for which the candidates are ordered.
PROCESSORS = 132
#: Candidates of a shape, and how many of the best are raced with other groups of rows too.
MOST, REGROUPED = 10, 2
(PLAIN,) = stream_k.CANDIDATES
#: Its tiles are small: raced up to here.
PLAIN_BELOW = 2**36
#: As in `evidence.peered`: rounding costs half a unit, and cuBLAS may round the parts of a float16 sum, half a unit
#: each. A product of one pair of elements too few is off by more: up to 20, of a largest sum of 350 (K = 4096).
CEILING_EPS = 4.0
#: A program's cycles on an H200, roughly: bytes of shared memory filled a cycle and multiprocessor (8192x8192x1024 at
#: 670 TFLOP/s with 128x128 tiles, 2026-11-20), and, guessed, what a tile or a part costs beside. They only order the
#: candidates.
_FILL, _TILE, _PART = 50.0, 1500.0, 2000.0
#: Of the workspace that all candidates have in turn: more than any of them needs.
_FLOATS, _FLAGS = 2**24, 2**16
#: On which Hopper's kernels are compiled, which no size changes.
_SMALL = (520, 776, 1032)
_SEED = 20261122


def candidates(shape: str, *, processors: int = PROCESSORS) -> dict[str, Config]:
    """Return what is raced for a shape, by name, the most promising first.

    >>> next(iter(candidates("16x4096x4096")))
    'thin 64x128/2 w4 s5'
    """
    m, n, k = sizes(shape)
    ordered = sorted(
        (replace(tile, balance=balance) for tile in TILES for balance in Balance),
        key=lambda config: predicted_cycles(config, m, n, k, processors=processors),
    )
    dealt: dict[tuple[object, ...], HopperConfig] = {}  # two ways to share may come to the same
    for config in ordered:
        plan = _schedule(config, m, n, k, processors)
        dealt.setdefault((replace(config, balance=Balance.WHOLE), plan.programs, plan.shared), config)
    first = list(dealt.values())
    chosen: list[Config] = []
    if m <= MOST_ROWS:
        chosen += CANDIDATES
        chosen += [config for config in first if config.block_m <= MOST_ROWS][: MOST // 2]
    else:
        chosen += first[:MOST]
        for config in first[:REGROUPED]:
            if _tiles(config, m, n) >= 2 * processors:
                chosen += [replace(config, group_m=group) for group in OTHER_GROUPS]
        if m * n * k < PLAIN_BELOW:
            chosen.append(PLAIN)
    return {str(config): config for config in chosen}


def predicted_cycles(config: HopperConfig, m: int, n: int, k: int, *, processors: int = PROCESSORS) -> float:
    """Estimate how long the busiest multiprocessor works.

    >>> whole, shared = (replace(TILES[4], balance=balance) for balance in (Balance.WHOLE, Balance.WAVE))
    >>> predicted_cycles(whole, 1536, 1536, 1536) > 1.3 * predicted_cycles(shared, 1536, 1536, 1536)
    True
    """
    steps, tiles = math.ceil(k / config.block_k), _tiles(config, m, n)
    plan = _schedule(config, m, n, k, processors)
    # A multiprocessor multiplies 2048 pairs a cycle; an instruction of few columns waits for shared memory.
    multiply = config.block_m * config.block_n * config.block_k / 2048 * max(1.0, 64 / config.block_n)
    fill = (config.block_m + config.block_n) * config.block_k * 2 / _FILL
    share = math.ceil(plan.shared * steps / plan.programs)
    whole = math.ceil((tiles - plan.shared) / plan.programs)
    cycles = (share + whole * steps) * max(multiply, fill) + (whole + bool(share)) * _TILE
    if plan.shared:
        parts = max(1, math.ceil(plan.programs / plan.shared) - 1)
        cycles += (1 + parts) * (config.block_m * config.block_n * 4 / _FILL) + _PART
    return cycles * math.ceil(plan.programs / processors)


def _tiles(config: HopperConfig, m: int, n: int) -> int:
    return math.ceil(m / config.block_m) * math.ceil(n / config.block_n)


def _schedule(config: HopperConfig, m: int, n: int, k: int, processors: int) -> Schedule:
    slots = processors * config.per_processor
    return Schedule.of(_tiles(config, m, n), math.ceil(k / config.block_k), slots=slots, balance=config.balance)


@dataclass(frozen=True, slots=True)
class Compilation:
    """Compiles a configuration for the present GPU, for operands of these sizes."""

    shape: tuple[int, ...]
    dtype: str
    config: Config

    def __call__(self) -> None:
        """Compile it into Triton's cache, without a launch."""
        m, n, k = self.shape
        a, b, c = (
            torch.empty(size, device="cuda", dtype=getattr(torch, self.dtype)) for size in ((m, k), (k, n), (m, n))
        )
        prepared(a, b, c, self.config).compile()


def prepared(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, config: Config) -> Prepared:
    """Prepare the launch of a configuration."""
    match config:
        case HopperConfig():
            return prepare_hopper(a, b, c, config)
        case ThinConfig():
            return prepare_thin(a, b, c, config)
        case StreamKConfig():
            return prepare_stream_k(a, b, c, config)


def multiply(a: torch.Tensor, b: torch.Tensor, config: Config, workspace: Workspace) -> torch.Tensor:
    """Multiply by a candidate; what tensor maps do not take is copied first, which is part of its time."""
    match config:
        case HopperConfig():
            columns = b.shape[1]
            if not can_multiply(a, b):
                a, b = in_scratch(a, b)
            c = hopper_matmul(a, b, config, workspace=workspace)
            return c if c.shape[1] == columns else c[:, :columns].contiguous()
        case ThinConfig():
            return thin_matmul(a, b, config, workspace=workspace)
        case StreamKConfig():
            return stream_k_matmul(a, b, config, workspace=workspace)


@dataclass(frozen=True, kw_only=True, slots=True)
class MatmulExperiment:
    """All products, in both dtypes, float16 first."""

    @property
    def source(self) -> str:
        """What outcomes depend on: the kernels' files and who compiles them."""
        folder = Path(stream_k.__file__).parent
        others = (folder / f"{name}.py" for name in ("stream_k", "thin_matmul", "tiles", "matmul", "configs"))
        files = [*sorted(folder.glob("hopper_matmul*.py")), *others]
        text = b"".join(path.read_bytes() for path in files)
        return f"{hashlib.sha256(text).hexdigest()[:16]} triton {triton.__version__} torch {torch.__version__}"

    def points(self) -> Sequence[Point]:
        """Return all products."""
        return [
            Point(
                name=f"{shape} {dtype}",
                group=dtype,
                flops=2.0 * math.prod(sizes(shape)),
                values=(shape, dtype),
            )
            for dtype in MATMUL_DTYPES
            for shape in MATMUL
        ]

    def compilations(self, point: Point) -> Sequence[Callable[[], object]]:
        """Return what compiles the candidates: of Hopper's kernel all sizes, and all ways to share, have one code."""
        shape, dtype = map(str, point.values)
        m, n, k = sizes(shape)
        jobs = []
        for config in candidates(shape).values():
            if isinstance(config, HopperConfig):
                shares = bool(_schedule(config, m, n, k, PROCESSORS).shared)
                same = replace(config, balance=Balance.REST if shares else Balance.WHOLE)
                jobs.append(Compilation(_SMALL, dtype, same))
            else:
                jobs.append(Compilation((m, n, k), dtype, config))
        return jobs

    def contest(self, point: Point) -> Contest:
        """Draw inputs that together hold more than twice the L2 cache, and multiply the first in float64."""
        shape, dtype = map(str, point.values)
        m, n, k = sizes(shape)
        generator = torch.Generator(device="cuda").manual_seed(_SEED)

        def drawn(*size: int) -> torch.Tensor:
            return torch.randn(size, device="cuda", generator=generator).to(getattr(torch, dtype))

        sets = [(drawn(m, k), drawn(k, n))]
        cold_bytes = COLD_L2_FACTOR * torch.cuda.get_device_properties().L2_cache_size
        count = min(max(math.ceil(cold_bytes / input_bytes(sets[0])), 2), MAX_INPUT_SETS)
        sets += [(drawn(m, k), drawn(k, n)) for _ in range(count - 1)]
        reference = matmul_reference(*sets[0])
        workspace = Workspace(
            parts=torch.empty(_FLOATS, device="cuda"), flags=torch.zeros(_FLAGS, device="cuda", dtype=torch.int32)
        )

        def raced(config: Config, index: int) -> torch.Tensor:
            return multiply(*sets[index], config, workspace)

        def wrong(call: Call) -> str:
            workspace.flags.zero_()  # of a soak that went wrong
            with PoisonedAllocations():
                c = call(0)
            workspace.flags.zero_()  # the next may be one that is right
            assert isinstance(c, torch.Tensor)  # noqa: S101 - all of these return tensors
            error_eps = difference(c, reference).max_diff_eps
            right = error_eps is not None and error_eps <= CEILING_EPS
            return "" if right else f"is wrong: error {error_eps} eps"

        take_plain_kernels()
        peers: dict[str, Maker] = {
            "torch": partial(partial, lambda index: torch.matmul(*sets[index])),
            PLAIN_PEER: partial(partial, lambda index: triton_matmul(*sets[index])),
        }
        raced_by_name: dict[str, Maker] = {
            name: partial(partial, raced, config) for name, config in candidates(shape).items()
        }
        return Contest(peers=peers, candidates=raced_by_name, wrong=wrong, sets=count)

    def turns(self, calls: Mapping[str, Call], sets: int) -> GpuTurns:
        """Capture these calls."""
        return GpuTurns(calls, sets)

    def is_alive(self) -> bool:
        """Tell whether the GPU answers."""
        return is_alive()

    def about(self) -> dict[str, str]:
        """Return the GPU and the versions of what runs on it."""
        return {"gpu": torch.cuda.get_device_name(), **toolchain_versions()}

    def case(self, point: Point) -> Case:
        """Return the case whose calls are those of a point."""
        shape, dtype = map(str, point.values)
        return Case(suite="Matmul", values=(shape, dtype, "flopwatch"))

    def route(self, point: Point, winner: str) -> Choice | None:
        """Return what calls of that shape take; None where operands were copied first, or the winner is gone."""
        shape, dtype = map(str, point.values)
        m, n, k = sizes(shape)
        a, b, c = (torch.empty(s, device="meta", dtype=getattr(torch, dtype)) for s in ((m, k), (k, n), (m, n)))
        match candidates(shape).get(winner):
            case HopperConfig() if can_multiply(a, b):
                kernel = "hopper_matmul_kernel"
            case ThinConfig():
                kernel = "thin_matmul_kernel"
            case StreamKConfig():
                kernel = "stream_k_kernel"
            case _:
                return None
        return Choice(kernel=kernel, config=winner, key=product_key(a, b, c))


if __name__ == "__main__":
    if not {"--table", "choose"} & set(sys.argv) and not torch.cuda.is_available():
        sys.exit("there is no GPU here: candidates are raced on an H200")
    main(MatmulExperiment(), sys.argv[1:], "python -m evidence.matmul_candidates", str(__doc__))

"""Race tiles for float8 products: ``python -m evidence.fp8_candidates OUT.json [--seconds N]``, on an H200.

Everything that `triton_matmul_fp8` takes only where a table or a rule says so, on the points of `evidence.peered` and
at a few rows more, against torch._scaled_mm and the plain kernel with sums of the same kind. What is written can be
continued; see `evidence.candidates`.

``python -m evidence.fp8_candidates choose OUT.json`` writes the winners into that table (`evidence.routes`), and needs
no GPU. With --held-out the products are others, which no table has, and the candidate is what calls take there by the
rule of `flopwatch.kernels.hopper_choice`; of few rows also what else there is for those, which may be the better rule.
``python -m evidence.fp8_candidates ruled OUT.json ...`` tells how fast that was in races of the others, and needs no
GPU either.
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

from evidence.candidates import Findings, geometric_mean, main
from evidence.matmul_candidates import EARLY_BELOW, PROCESSORS, MatmulExperiment, dealt_out, promising
from evidence.peer_shapes import FP8_FEW, FP8_SCALES, FP8_SUMS, LANGUAGE_MODEL, MATMUL_FP8, sizes
from evidence.race import Contest, Point
from evidence.routes import take_plain_kernels
from flopwatch.kernels import hopper_fp8, triton_matmul_fp8
from flopwatch.kernels.hopper_choice import fp8_product_config, predicted_cycles
from flopwatch.kernels.hopper_fp8 import FP8_PROMOTED_TILES, FP8_TILES, STORED_OTHERWISE, prepare_hopper_fp8
from flopwatch.kernels.hopper_matmul import HopperConfig
from flopwatch.kernels.known import PLAIN
from flopwatch.kernels.reference import matmul_reference
from flopwatch.kernels.routes import fp8_product_key
from flopwatch.kernels.stream_k import Balance
from flopwatch.kernels.thin_fp8 import CANDIDATES, MOST_FP8_ROWS, THIN_FP8, WIDE, prepare_thin_fp8
from flopwatch.kernels.thin_matmul import MOST_ROWS, ThinConfig
from flopwatch.kernels.workspace import Workspace
from flopwatch.measure.inputs import input_bytes
from flopwatch.measure.numbers import difference
from flopwatch.measure.timer import COLD_L2_FACTOR, MAX_INPUT_SETS
from flopwatch.model import Case, Choice, from_json
from flopwatch.poison import PoisonedAllocations

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import TypeAlias

    from evidence.race import Call, Maker
    from flopwatch.kernels.prepared import Prepared

    Config: TypeAlias = HopperConfig | ThinConfig
    Operands: TypeAlias = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]

#: As `evidence.peered` holds both sides to, and the bundled suite: sums of 14 bits all along K err by a few units.
CEILING_EPS = {"fast": 8.0, "float32": 2.0}
#: Few rows, beside those of the points of `evidence.peered`, and a layer's expansion.
FEW_ROWS = (
    *(shape for shape in LANGUAGE_MODEL if sizes(shape)[0] <= MOST_ROWS and shape not in MATMUL_FP8),
    "16x14336x4096",
)
#: Products that no table has: of layers of language models, and sizes between those that were raced.
HELD_OUT = (
    *("8x5120x5120", "48x8192x4096", "64x5120x5120", "96x4096x4096", "112x8192x8192"),
    *("700x4096x14336", "1024x4096x4096", "1280x5120x5120", "2048x14336x4096", "2304x2304x2304"),
    *("3008x3008x3008", "5120x5120x5120", "10240x8192x4096"),
)
#: Hopper's configurations that are raced there beside the thin ones: the best of those of 64 rows, whole,
#: since none that shares tiles was faster (``evidence/h200/fp8-candidates-2026-11-22.json``).
MOST_LOW = 3
#: Products of fewer multiplications are raced as they come before the launch in front of theirs has ended, too: twice
#: as many as of 16 bits, which take as long.
DEPENDENT_BELOW = 2 * EARLY_BELOW
#: Of the fastest, below which a point is told by itself.
FAR = 0.95
#: Of the workspace that all candidates have in turn: more than any of them needs.
_FLOATS, _FLAGS = 2**24, 2**16
#: On which Hopper's kernel is compiled, which no size changes.
_SMALL = (520, 776, 1040)
_SEED = 20261122


def candidates(shape: str, sums: str) -> dict[str, Config]:
    """Return what is raced for a shape, by name, the most promising first.

    >>> list(candidates("8192x8192x8192", "fast"))[0]
    '128x256x128 s4 w2 c4/2 g8 wave'
    >>> list(candidates("16x4096x4096", "fast"))[0]
    'thin 32x256/1 w4 s9 upright'
    """
    m, n, k = sizes(shape)
    tiles = FP8_TILES if sums == "fast" else FP8_PROMOTED_TILES
    ordered = sorted(
        (replace(tile, balance=balance) for tile in tiles if tile not in STORED_OTHERWISE for balance in Balance),
        # A step of 128 takes as many bytes and as many cycles as one of 64 elements of 16 bits.
        key=lambda config: predicted_cycles(
            replace(config, block_k=config.block_k // 2), m, n, k // 2, processors=PROCESSORS
        ),
    )
    first = dealt_out(ordered, (m, n, k))
    chosen: list[Config] = []
    if m <= MOST_ROWS:
        chosen += [config for config in CANDIDATES if str(config) in THIN_FP8[sums != "fast"]]
        chosen += [config for config in first if config.block_m <= MOST_ROWS and not config.shares][:MOST_LOW]
    else:
        if m <= MOST_FP8_ROWS:
            chosen += [config for config in WIDE if str(config) in THIN_FP8[sums != "fast"]]
        hopper = promising(first, m, n)
        chosen += [*hopper, *stored_otherwise(hopper)]
    if m * n * k < DEPENDENT_BELOW:
        chosen += [replace(config, dependent=True) for config in chosen]
    return {str(config): config for config in chosen}


def stored_otherwise(configs: Iterable[HopperConfig]) -> list[HopperConfig]:
    """Return those of `STORED_OTHERWISE` that have the tile of one of these, each dealt out as that one is."""
    return [
        replace(other, group_m=config.group_m, balance=config.balance)
        for config in configs
        for other in STORED_OTHERWISE
        if (config.block_m, config.block_n) == (other.block_m, other.block_n)
    ]


def drawn(shape: str, scales: str, draw: Callable[..., torch.Tensor]) -> Operands:
    """Draw operands, B by columns, and scales between 0.5 and 1.5."""
    m, n, k = sizes(shape)
    a, b_columns = (draw(torch.randn, rows, k).to(torch.float8_e4m3fn) for rows in (m, n))
    scale_a, scale_b = (
        0.5 + draw(torch.rand, *size) for size in (((m, 1), (1, n)) if scales == "row" else ((1,), (1,)))
    )
    return a, b_columns.T, scale_a, scale_b


def prepared(
    operands: Operands, c: torch.Tensor, config: Config, workspace: Workspace | None = None, *, promotes: bool
) -> Prepared:
    """Prepare the launch of a candidate."""
    a, b, *scales = operands
    scale_a, scale_b = (scale.reshape(-1) for scale in scales)
    if isinstance(config, ThinConfig):
        return prepare_thin_fp8(a, b, c, scale_a, scale_b, config, promotes=promotes, workspace=workspace)
    return prepare_hopper_fp8(a, b, c, scale_a, scale_b, config, promotes=promotes, workspace=workspace)


def multiply(operands: Operands, config: Config, workspace: Workspace | None = None, *, promotes: bool) -> torch.Tensor:
    """Multiply by a candidate."""
    a, b, *_ = operands
    c = torch.empty((a.shape[0], b.shape[1]), device=a.device, dtype=torch.bfloat16)
    prepared(operands, c, config, workspace, promotes=promotes).launch()
    return c


@dataclass(frozen=True, slots=True)
class Compilation:
    """Compiles a configuration for the present GPU, for operands of a shape."""

    shape: str
    scales: str
    sums: str
    config: Config

    def __call__(self) -> None:
        """Compile it into Triton's cache, without a launch."""
        operands = drawn(self.shape, self.scales, lambda _draw, *size: torch.empty(size, device="cuda"))
        a, b, *_ = operands
        c = torch.empty((a.shape[0], b.shape[1]), device="cuda", dtype=torch.bfloat16)
        prepared(operands, c, self.config, promotes=self.sums != "fast").compile()


@dataclass(frozen=True, kw_only=True, slots=True)
class Fp8Experiment(MatmulExperiment):
    """All scaled products, those of fast sums with one scale an operand first; or others, by the rule."""

    @property
    def source(self) -> str:
        """What outcomes depend on: the kernels' files and who compiles them."""
        folder = Path(hopper_fp8.__file__).parent
        names = (
            "hopper_fp8",
            "hopper_rows",
            "thin_fp8",
            "thin_matmul",
            "eights",
            "stream_k",
            "tiles",
            "configs",
            "dependent_launch",
        )
        others = (folder / f"{name}.py" for name in names)
        files = [*sorted(folder.glob("hopper_matmul*.py")), *sorted(folder.glob("matmul_fp8*.py")), *others]
        text = b"".join(path.read_bytes() for path in files)
        return f"{hashlib.sha256(text).hexdigest()[:16]} triton {triton.__version__} torch {torch.__version__}"

    def points(self) -> Sequence[Point]:
        """Return the points of `evidence.peered`, and after them the others of few rows; or those that are held out."""
        return [
            Point(
                name=f"{shape} {scales} {sums}",
                group=group,
                flops=2.0 * math.prod(sizes(shape)),
                values=(shape, scales, sums),
            )
            for shape, scales, sums, group in (self._held_out() if self.held_out else self._measured())
        ]

    @staticmethod
    def _held_out() -> list[tuple[str, str, str, str]]:
        # Of sums in float32 also what the bundled suite has: no race had it.
        shapes = {"fast": HELD_OUT, "float32": (*HELD_OUT, "4096x4096x4096")}
        return [(shape, "tensor", sums, f"{sums} held out") for sums in FP8_SUMS for shape in shapes[sums]]

    @staticmethod
    def _measured() -> list[tuple[str, str, str, str]]:
        measured = [
            (shape, scales, sums, f"{scales} {sums}")
            for sums in FP8_SUMS
            for scales in FP8_SCALES
            for shape in MATMUL_FP8
            if (scales, sums) == ("tensor", "fast") or shape in FP8_FEW
        ]
        return [*measured, *((shape, "tensor", "fast", "few rows") for shape in FEW_ROWS)]

    def raced(self, shape: str, sums: str) -> dict[str, Config]:
        """Return what is raced for a shape, by name."""
        if not self.held_out:
            return candidates(shape, sums)
        config = fp8_product_config(*sizes(shape), processors=PROCESSORS, promotes=sums != "fast")
        thin = candidates(shape, sums).values() if sizes(shape)[0] <= MOST_FP8_ROWS else ()
        early = [each for each in thin if isinstance(each, ThinConfig) and each.dependent]
        return {str(each): each for each in ([config] if config else []) + early}

    def compilations(self, point: Point) -> Sequence[Callable[[], object]]:
        """Return what compiles the candidates: of Hopper's kernel all sizes, and all ways to share, have one code."""
        shape, scales, sums = map(str, point.values)
        jobs = []
        for config in self.raced(shape, sums).values():
            if isinstance(config, HopperConfig):
                shares = bool(config.schedule(*sizes(shape), processors=PROCESSORS).shared)
                same = replace(config, balance=Balance.REST if shares else Balance.WHOLE)
                jobs.append(Compilation("x".join(map(str, _SMALL)), scales, sums, same))
            else:
                jobs.append(Compilation(shape, scales, sums, config))
        return jobs

    def contest(self, point: Point) -> Contest:
        """Draw inputs that together hold more than twice the L2 cache, and multiply the first in float64."""
        shape, scales, sums = map(str, point.values)
        generator = torch.Generator(device="cuda").manual_seed(_SEED)

        def draw(distribution: Callable[..., torch.Tensor], *size: int) -> torch.Tensor:
            return distribution(size, device="cuda", generator=generator)

        sets = [drawn(shape, scales, draw)]
        cold_bytes = COLD_L2_FACTOR * torch.cuda.get_device_properties().L2_cache_size
        count = min(max(math.ceil(cold_bytes / input_bytes(sets[0])), 2), MAX_INPUT_SETS)
        sets += [drawn(shape, scales, draw) for _ in range(count - 1)]
        a, b, scale_a, scale_b = sets[0]
        reference = matmul_reference(a, b) * scale_a.double() * scale_b.double()
        workspace = Workspace(
            parts=torch.empty(_FLOATS, device="cuda"), flags=torch.zeros(_FLAGS, device="cuda", dtype=torch.int32)
        )
        is_fast = sums == "fast"

        def wrong(call: Call) -> str:
            workspace.flags.zero_()  # of a soak that went wrong
            with PoisonedAllocations():
                c = call(0)
            workspace.flags.zero_()  # the next may be one that is right
            assert isinstance(c, torch.Tensor)  # noqa: S101 - all of these return tensors
            error_eps = difference(c, reference).max_diff_eps
            right = error_eps is not None and error_eps <= CEILING_EPS[sums]
            return "" if right else f"is wrong: error {error_eps} eps"

        def theirs(index: int) -> torch.Tensor:
            return torch._scaled_mm(  # noqa: SLF001 - it has no public name
                *sets[index], out_dtype=torch.bfloat16, use_fast_accum=is_fast
            )

        take_plain_kernels()
        peers: dict[str, Maker] = {
            "torch": lambda: theirs,
            PLAIN: partial(partial, lambda index: triton_matmul_fp8(*sets[index], use_fast_accum=is_fast)),
        }
        raced: dict[str, Maker] = {
            name: partial(
                partial, lambda config, index: multiply(sets[index], config, workspace, promotes=not is_fast), config
            )
            for name, config in self.raced(shape, sums).items()
        }
        return Contest(peers=peers, candidates=raced, wrong=wrong, sets=count)

    def case(self, point: Point) -> Case:
        """Return the case whose calls are those of a point."""
        shape, scales, sums = map(str, point.values)
        return Case(suite="PeerMatmulFp8", values=(shape, "float8_e4m3fn", scales, sums, "flopwatch"))

    def route(self, point: Point, winner: str) -> Choice | None:
        """Return what calls of that shape take; None where the winner is gone."""
        shape, scales, sums = map(str, point.values)
        config = candidates(shape, sums).get(winner)
        if config is None:
            return None
        a, b, scale_a, scale_b = drawn(shape, scales, lambda _draw, *size: torch.empty(size, device="meta"))
        c = torch.empty((a.shape[0], b.shape[1]), device="meta", dtype=torch.bfloat16)
        key = fp8_product_key(a, b, c, scale_a, scale_b, promotes=sums != "fast")
        kernel = "thin_matmul_kernel" if isinstance(config, ThinConfig) else "hopper_matmul_kernel"
        return Choice(kernel=kernel, config=winner, key=key)


@dataclass(frozen=True, kw_only=True, slots=True)
class Ruled:
    """How fast what the rule takes was at a point of a race, by medians of rounds.

    Attributes:
        point: its name.
        of_torch: in units of torch's speed, of the plain kernel where that is what it takes.
        of_plain: in units of the plain kernel's speed; None where that is what it takes.
        of_fastest: likewise, of the fastest of the candidates and the plain kernel.
    """

    point: str
    of_torch: float
    of_plain: float | None = None
    of_fastest: float | None = None


def ruled(place: Path) -> list[Ruled]:
    """Read a race, and find what the rule takes at its points.

    Raises:
        KeyError: that was not raced at one of them.
    """
    found = []
    for outcome in from_json(place.read_bytes(), Findings).outcomes:
        shape, _scales, sums = map(str, outcome.point.values)
        seconds = {entry.name: entry.seconds for entry in outcome.entries if entry.seconds}
        torchs = seconds.pop("torch")
        config = fp8_product_config(*sizes(shape), processors=PROCESSORS, promotes=sums != "fast")
        if config is None:
            found.append(Ruled(point=outcome.point.name, of_torch=torchs / seconds[PLAIN]))
            continue
        own = seconds[str(config)]
        of_plain, of_fastest = seconds[PLAIN] / own, min(seconds.values()) / own
        point = outcome.point.name
        found.append(Ruled(point=point, of_torch=torchs / own, of_plain=of_plain, of_fastest=of_fastest))
    return found


def told(points: Sequence[Ruled]) -> str:
    """Tell how fast that was on the whole, and where it was far from the fastest.

    >>> points = [Ruled(point="a", of_torch=0.9, of_plain=2.0, of_fastest=0.5), Ruled(point="b", of_torch=0.4)]
    >>> told(points).partition("; ")[2]
    '0.50 to 0.50 of the fastest, 0.50 in the mean; 0.40 to 0.90 of torch, 0.60 in the mean; a 0.50; plain at b'
    """
    parts = []
    of_plain = [each.of_plain for each in points if each.of_plain is not None]
    of_fastest = [each.of_fastest for each in points if each.of_fastest is not None]
    of_torch = [each.of_torch for each in points]
    for who, speeds in (("the plain kernel", of_plain), ("the fastest", of_fastest), ("torch", of_torch)):
        if speeds:
            mean = geometric_mean(speeds)
            parts.append(f"{min(speeds):.2f} to {max(speeds):.2f} of {who}, {mean:.2f} in the mean")
    far = sorted((each.of_fastest, each.point) for each in points if each.of_fastest and each.of_fastest < FAR)
    parts += [", ".join(f"{point} {speed:.2f}" for speed, point in far)] if far else []
    rest = [each.point for each in points if each.of_plain is None]
    return "; ".join(parts + ([f"plain at {', '.join(rest)}"] if rest else []))


if __name__ == "__main__":
    if sys.argv[1:] == ["ruled"]:
        sys.exit("name the races that it is told of, such as evidence/h100/fp8-candidates-2026-11-25.json")
    if sys.argv[1:2] == ["ruled"]:
        sys.stdout.writelines(f"{place}: {told(ruled(Path(place)))}\n" for place in sys.argv[2:])
        sys.exit()
    if {"--held-out", "choose"} <= set(sys.argv):
        sys.exit("what is held out decides nothing: choose from the races of the others")
    if not {"--table", "choose"} & set(sys.argv) and not torch.cuda.is_available():
        sys.exit("there is no GPU here: candidates are raced on one of the capability 9.0")
    main(
        Fp8Experiment(held_out="--held-out" in sys.argv),
        [option for option in sys.argv[1:] if option != "--held-out"],
        "python -m evidence.fp8_candidates",
        str(__doc__),
    )

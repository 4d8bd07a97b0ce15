"""Race the kernels for products: ``python -m evidence.matmul_candidates OUT.json [--seconds N]``, on a Hopper GPU.

Everything in `flopwatch.kernels` that `triton_matmul` takes only where a table or a rule says so, on the products of
`peer_shapes` and on `LAYERS`, against torch.matmul and the plain kernel. Tiles and ways to share them are ordered by an
estimate first, and the best dozen of a shape is raced. What is written can be continued; see `evidence.candidates`.

``python -m evidence.matmul_candidates choose OUT.json`` writes the winners into that table (`evidence.routes`), and
needs no GPU. With --columns, here and where they are chosen, the products are those of linear layers, whose weights
have B lie by columns. With --held-out the products are others, and the one candidate is what calls take there by the
rule of `flopwatch.kernels.hopper_choice`. With --named 'CONFIG,CONFIG' these tiles alone are raced, whatever the
estimate says, at the points of --only; into a file of their own, since what a file has is not raced again.
"""

from __future__ import annotations

import argparse
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
from evidence.routes import take_plain_kernels
from evidence.turns import GpuTurns, is_alive
from flopwatch.kernels import routes, triton_matmul
from flopwatch.kernels.hopper_choice import predicted_cycles, product_config, tiles_of
from flopwatch.kernels.hopper_copying import hopper_copying_matmul
from flopwatch.kernels.hopper_matmul import CONFIGS, OTHER_GROUPS, TILES, HopperConfig, can_multiply, hopper_matmul
from flopwatch.kernels.hopper_short import TABLED_TILES, ShortConfig, can_multiply_short, hopper_short_matmul
from flopwatch.kernels.known import PLAIN as PLAIN_PEER
from flopwatch.kernels.reference import matmul_reference
from flopwatch.kernels.routes import ProductConfig, prepared_product, product_key
from flopwatch.kernels.scratch import is_worth_lines
from flopwatch.kernels.stream_k import Balance
from flopwatch.kernels.thin_matmul import CANDIDATES, MOST_ROWS, ThinConfig, thin_matmul
from flopwatch.kernels.wave_choice import tiles_for, wave_cycles
from flopwatch.kernels.workspace import Workspace
from flopwatch.measure.inputs import input_bytes
from flopwatch.measure.machine import toolchain_versions
from flopwatch.measure.numbers import difference
from flopwatch.measure.timer import COLD_L2_FACTOR, MAX_INPUT_SETS
from flopwatch.model import Case, Choice
from flopwatch.poison import PoisonedAllocations

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from evidence.race import Call, Maker

#: Multiprocessors of an H200, for which the candidates are ordered.
PROCESSORS = 132
#: Candidates of a shape, and how many of the best are raced with other groups of rows too.
MOST, REGROUPED = 10, 2
#: Up to here all are raced as they come before the launch in front of theirs has ended, too: of longer products the
#: start is too small a part.
EARLY_BELOW = 2**36
#: Products with `hopper_short_kernel`: multiplications and elements of C, of which 2**23 are two and a half rounds of
#: its largest tiles on an H200; of its tiles so many are raced.
SHORT_BELOW, SHORT_WAVES, MOST_SHORT = 2**34, 2**23, 12
#: As in `evidence.peered`: rounding costs half a unit, and cuBLAS may round the parts of a float16 sum, half a unit
#: each. A product of one pair of elements too few is off by more: up to 20, of a largest sum of 350 (K = 4096).
CEILING_EPS = 4.0
#: Of the workspace that all candidates have in turn: more than any of them needs.
_FLOATS, _FLAGS = 2**24, 2**16
#: On which Hopper's kernels are compiled: no size changes them.
_SMALL = (520, 776, 1032)
_SEED = 20261122
#: Products of layers that the suites watch, which no point of the peers is.
LAYERS = ("2048x4096x14336", "1024x50304x768")
#: What the suite of linear layers has in bfloat16: their B lies by columns.
WEIGHTS = (
    *("1x4096x4096", "64x4096x4096", "16x14336x4096", "128x8192x8192", "512x4096x4096", "2048x4096x14336"),
    *("4096x11008x4096", "1024x50304x768"),
)
#: Of a point's group, and in its name: B lies by columns, as the weights of a linear layer.
BY_COLUMNS = " columns"
#: Of a group: B lies so, and its columns are no multiple of 8, as in vocabularies: no tensor map describes C.
ODD_COLUMNS = " odd columns"
#: Operands that are copied in the launch of their product, of few rows or columns; of 128 rows calls leave them as they
#: are, since one of the three of these loses by that.
ODD = " odd, few rows or columns"
#: Products that nothing was fitted to: of transformers' layers, of few rows and many, of sides between powers of two;
#: those that are over in microseconds; those of few rows; with B by columns, what tables had by rows alone; and with
#: columns that 8 does not divide.
HELD_OUT = {
    "": (
        *("512x4096x4096", "1024x5120x5120", "2048x8192x2048", "4096x1024x8192", "8192x5120x2048", "2048x11008x4096"),
        *("256x8192x8192", "384x7168x2048", "16384x1536x1536", "1280x3840x1280", "1728x1728x1728", "2304x2304x2304"),
        *("3000x3000x3000", "3584x3584x3584", "5000x5000x5000", "7168x7168x7168", "10240x2560x2560"),
        "1024x32000x4096",
    ),
    " short": (
        *("384x384x384", "576x576x576", "704x704x704", "832x832x832", "960x960x960", "976x976x976"),
        *("1088x1088x1088", "880x1000x1000", "1352x680x1360", "192x4096x1024", "256x3072x3072", "512x1536x4096"),
        *("768x3072x768", "1024x1536x512", "2048x768x1536", "4096x256x1024", "640x1920x640", "96x2048x2048"),
    ),
    " few rows": (*("1x3072x3072", "4x2048x5632", "16x2560x10240", "32x4096x11008", "48x4096x4096", "64x5120x2048"),),
    BY_COLUMNS: (
        *("512x512x512", "768x768x768", "1000x1000x1000", "1024x1024x1024", "1536x1536x1536", "1728x1728x1728"),
        *("2048x2048x2048", "4096x4096x4096", "1024x3072x768", "256x3072x3072", "1280x2560x1280", "16x4096x4096"),
        *("64x4096x4096", "128x4096x4096", "512x4096x4096", "2048x4096x4096", "4096x11008x4096", "128x8192x8192"),
    ),
    ODD: (
        *("128x4097x4099", "160x4097x4099", "200x4097x4099", "300x4097x4099", "400x3001x3001", "448x5001x5001"),
        *("480x8193x4099", "350x2049x6001", "660x660x6001", "128x8191x8191", "280x8191x8191", "520x8193x8192"),
        *("300x16385x16384", "128x16385x16384", "4097x300x4099", "3001x420x5001", "8191x160x8191", "8191x280x8191"),
        "16385x400x4097",
    ),
    ODD_COLUMNS: (
        *("4096x50257x768", "1024x50257x1024", "512x50265x1024", "2048x30522x1024", "8192x51865x1024"),
        *("2000x2001x2000", "1000x1001x1000", "1000x1002x4096", "300x1001x1024", "700x700x704", "512x513x512"),
        "384x385x384",
    ),
}


def candidates(shape: str, *, by_columns: bool = False, processors: int = PROCESSORS) -> dict[str, ProductConfig]:
    """Return what is raced for a shape, by name, the most promising first.

    >>> next(iter(candidates("16x4096x4096")))
    'thin 64x128/2 w4 s5'
    """
    m, n, k = sizes(shape)
    ordered = sorted(
        (replace(tile, balance=balance) for tile in TILES for balance in Balance),
        key=lambda config: predicted_cycles(config, m, n, k, processors=processors),
    )
    first = dealt_out(ordered, (m, n, k), processors=processors)
    chosen: list[ProductConfig] = []
    if m <= MOST_ROWS:
        chosen += CANDIDATES
        chosen += [config for config in first if config.block_m <= MOST_ROWS][: MOST // 2]
    else:
        chosen += promising(first, m, n, processors=processors)
    if m * n * k < SHORT_BELOW and m * n <= SHORT_WAVES:
        in_lines = not by_columns and (n % 8 != 0 or k % 8 != 0)  # by way of copies
        tiles = [tile for tile in (*tiles_for(m), *TABLED_TILES) if tile.row_step == 1 or not in_lines]
        cycles = partial(wave_cycles, m=m, n=n, k=k, processors=processors, by_columns=by_columns, in_lines=in_lines)
        chosen += sorted(tiles, key=cycles)[:MOST_SHORT]
    if m * n * k < EARLY_BELOW:
        chosen += [replace(config, dependent=True) for config in chosen]
    return {str(config): config for config in chosen}


def dealt_out(
    ordered: Iterable[HopperConfig], shape: tuple[int, int, int], *, processors: int = PROCESSORS
) -> list[HopperConfig]:
    """Leave out what is dealt out as an earlier one is: two ways to share may come to the same for (M, N, K)."""
    dealt: dict[tuple[object, ...], HopperConfig] = {}
    for config in ordered:
        plan = config.schedule(*shape, processors=processors)
        dealt.setdefault((replace(config, balance=Balance.WHOLE), plan.programs, plan.shared), config)
    return list(dealt.values())


def promising(dealt: Sequence[HopperConfig], m: int, n: int, *, processors: int = PROCESSORS) -> list[HopperConfig]:
    """Return the first of what `dealt_out` gives, and the very first with other groups of rows, too."""
    regrouped = (
        replace(config, group_m=group_m)
        for config in dealt[:REGROUPED]
        if tiles_of(config, m, n) >= 2 * processors
        for group_m in OTHER_GROUPS
    )
    return [*dealt[:MOST], *regrouped]


@dataclass(frozen=True, slots=True)
class Compilation:
    """Compiles a configuration for the present GPU, for operands of these sizes."""

    shape: tuple[int, ...]
    dtype: str
    config: ProductConfig
    by_columns: bool = False

    def __call__(self) -> None:
        """Compile it into Triton's cache, without a launch."""
        empty = partial(torch.empty, device="cuda", dtype=getattr(torch, self.dtype))
        a, b = operands(self.shape, empty, by_columns=self.by_columns)
        prepared_product(a, b, empty((a.shape[0], b.shape[1])), self.config).compile()


def product_point(name: str, group: str, shape: str, dtype: str, *, by_columns: bool = False) -> Point:
    """Return the point of a product; where B lies by columns, its name says so."""
    layout = [BY_COLUMNS] if by_columns else []
    return Point(
        name="".join([name, *layout]),
        group=group,
        flops=2.0 * math.prod(sizes(shape)),
        values=(shape, dtype, *layout),
    )


def is_by_columns(point: Point) -> bool:
    """Tell whether B lies by columns there."""
    return BY_COLUMNS in point.values


def operands(
    shape: Sequence[int], make: Callable[[tuple[int, int]], torch.Tensor], *, by_columns: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """Make both operands of a product of (M, N, K)."""
    m, n, k = shape
    return make((m, k)), make((n, k)).T if by_columns else make((k, n))


def multiply(a: torch.Tensor, b: torch.Tensor, config: ProductConfig, workspace: Workspace) -> torch.Tensor:
    """Multiply by a candidate; what tensor maps do not take is copied, which is part of its time."""
    match config:
        case HopperConfig() | ShortConfig() if not can_multiply(a, b):
            return hopper_copying_matmul(a, b, config)
        case HopperConfig():
            return hopper_matmul(a, b, config, workspace=workspace)
        case ShortConfig():
            return hopper_short_matmul(a, b, config)
        case ThinConfig():
            return thin_matmul(a, b, config, workspace=workspace)


@dataclass(frozen=True, kw_only=True, slots=True)
class MatmulExperiment:
    """All products, in both dtypes, float16 first.

    Attributes:
        held_out: the products are others, with one candidate each: what is taken there by a rule.
        by_columns: the products are those of linear layers.
        named: configurations of `hopper_matmul` that are the candidates everywhere, if any.
    """

    held_out: bool = False
    by_columns: bool = False
    named: tuple[str, ...] = ()

    @property
    def source(self) -> str:
        """What outcomes depend on: the kernels' files and who compiles them."""
        folder = Path(routes.__file__).parent
        others = (
            folder / f"{name}.py"
            for name in (
                "stream_k",
                "thin_matmul",
                "tiles",
                "eights",
                "matmul",
                "configs",
                "dependent_launch",
                "scratch",
                "async_copies",
                "copy_kernel",
            )
        )
        hopper = [
            path
            for kind in ("matmul", "copies", "copying", "rows", "short")
            for path in sorted(folder.glob(f"hopper_{kind}*.py"))
        ]
        files = [*hopper, *others]
        text = b"".join(path.read_bytes() for path in files)
        return f"{hashlib.sha256(text).hexdigest()[:16]} triton {triton.__version__} torch {torch.__version__}"

    def points(self) -> Sequence[Point]:
        """Return all products."""
        groups = HELD_OUT if self.held_out else {BY_COLUMNS: WEIGHTS} if self.by_columns else {"": (*MATMUL, *LAYERS)}
        return [
            product_point(
                f"{shape} {dtype}", f"{dtype}{group}", shape, dtype, by_columns=group in {BY_COLUMNS, ODD_COLUMNS}
            )
            for dtype in MATMUL_DTYPES
            for group, shapes in groups.items()
            for shape in shapes
        ]

    def candidates(self, shape: str, *, by_columns: bool = False) -> Mapping[str, ProductConfig]:
        """Return what is raced for a shape."""
        if self.named:
            return {name: CONFIGS[name] for name in self.named}
        if not self.held_out:
            return candidates(shape, by_columns=by_columns)
        m, n, k = sizes(shape)
        in_lines = not by_columns and (n % 8 != 0 or k % 8 != 0)  # by way of copies
        config = product_config(
            m, n, k, processors=PROCESSORS, by_columns=by_columns, packed=n % 8 == 0 and not in_lines, in_lines=in_lines
        )
        return {} if config is None else {str(config): config}

    def compilations(self, point: Point) -> Sequence[Callable[[], object]]:
        """Return what compiles the candidates: of Hopper's kernels all sizes, and all ways to share, have one code.

        What tensor maps do not describe is compiled by its first call.
        """
        shape, dtype, *_ = map(str, point.values)
        by_columns = is_by_columns(point)
        m, n, k = sizes(shape)
        if n % 8 or k % 8:
            return []
        jobs = []
        for config in self.candidates(shape, by_columns=by_columns).values():
            if isinstance(config, HopperConfig):
                shares = bool(config.schedule(m, n, k, processors=PROCESSORS).shared)
                same = replace(config, balance=Balance.REST if shares else Balance.WHOLE)
                jobs.append(Compilation(_SMALL, dtype, same, by_columns))
            elif isinstance(config, ShortConfig):
                jobs.append(Compilation(_SMALL, dtype, config, by_columns))
            else:
                jobs.append(Compilation((m, n, k), dtype, config, by_columns))
        return jobs

    def multiplied(self, a: torch.Tensor, b: torch.Tensor, config: ProductConfig, workspace: Workspace) -> torch.Tensor:
        """Multiply by a candidate; by what the rule has, as calls do that it decides."""
        if self.held_out and isinstance(config, HopperConfig) and can_multiply(a, b) and is_worth_lines(b, a.shape[0]):
            return hopper_copying_matmul(a, b, config, copies_b=True)
        return multiply(a, b, config, workspace)

    def contest(self, point: Point) -> Contest:
        """Draw inputs that together hold more than twice the L2 cache, and multiply the first in float64."""
        shape, dtype, *_ = map(str, point.values)
        by_columns = is_by_columns(point)
        generator = torch.Generator(device="cuda").manual_seed(_SEED)

        def drawn(size: tuple[int, int]) -> torch.Tensor:
            return torch.randn(size, device="cuda", generator=generator).to(getattr(torch, dtype))

        draw = partial(operands, sizes(shape), drawn, by_columns=by_columns)
        sets = [draw()]
        cold_bytes = COLD_L2_FACTOR * torch.cuda.get_device_properties().L2_cache_size
        count = min(max(math.ceil(cold_bytes / input_bytes(sets[0])), 2), MAX_INPUT_SETS)
        sets += [draw() for _ in range(count - 1)]
        reference = matmul_reference(*sets[0])
        workspace = Workspace(
            parts=torch.empty(_FLOATS, device="cuda"), flags=torch.zeros(_FLAGS, device="cuda", dtype=torch.int32)
        )

        def raced(config: ProductConfig, index: int) -> torch.Tensor:
            return self.multiplied(*sets[index], config, workspace)

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
            name: partial(partial, raced, config)
            for name, config in self.candidates(shape, by_columns=by_columns).items()
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
        shape, dtype, *_ = map(str, point.values)
        return Case(suite="Linear" if is_by_columns(point) else "Matmul", values=(shape, dtype, "flopwatch"))

    def route(self, point: Point, winner: str) -> Choice | None:
        """Return what calls of that shape take; None where operands were copied first, or the winner is gone."""
        shape, dtype, *_ = map(str, point.values)
        by_columns = is_by_columns(point)
        empty = partial(torch.empty, device="meta", dtype=getattr(torch, dtype))
        a, b = operands(sizes(shape), empty, by_columns=by_columns)
        match {**CONFIGS, **self.candidates(shape, by_columns=by_columns)}.get(winner):
            case HopperConfig() if can_multiply(a, b):
                kernel = "hopper_matmul_kernel"
            case ShortConfig() if can_multiply_short(a, b):
                kernel = "hopper_short_kernel"
            case ThinConfig():
                kernel = "thin_matmul_kernel"
            case _:
                return None
        return Choice(kernel=kernel, config=winner, key=product_key(a, b, empty((a.shape[0], b.shape[1]))))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--held-out", action="store_true")
    parser.add_argument("--columns", action="store_true")
    parser.add_argument("--named", type=lambda names: tuple(name.strip() for name in names.split(",")), default=())
    own, others = parser.parse_known_args()
    if own.held_out and ("choose" in others or own.named):
        sys.exit("what is held out decides nothing, and has the rule's candidate: leave out --held-out")
    if own.held_out and own.columns:
        sys.exit("of what is held out, some lies by columns already: leave out --held-out or --columns")
    if unknown := [name for name in own.named if name not in CONFIGS]:
        sys.exit(f"no tile is called {unknown[0]!r}; the first of {len(CONFIGS)} is {next(iter(CONFIGS))!r}")
    if own.named and "--only" not in others:
        sys.exit("--named races these tiles alone, and whoever chooses takes them for all points: say which by --only")
    if not {"--table", "choose"} & set(others) and not torch.cuda.is_available():
        sys.exit("there is no GPU here: candidates are raced on one of the capability 9.0")
    main(
        MatmulExperiment(held_out=own.held_out, by_columns=own.columns, named=own.named),
        others,
        f"python -m evidence.matmul_candidates{' --columns' * own.columns}",
        str(__doc__),
    )

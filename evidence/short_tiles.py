"""Time tiles for short products on many sizes, and judge what is chosen of them by an estimate.

    python -m evidence.short_tiles race OUT.json [--seconds N]    # on a Hopper GPU; as `evidence.candidates` does
    python -m evidence.short_tiles judge IN.json                  # what the estimate and the rule are worth
    python -m evidence.short_tiles fit IN.json                    # the rates of `flopwatch.kernels.wave_choice`
    python -m evidence.short_tiles times IN.json MxNxK ...        # what was timed of these sizes

Unlike `evidence.matmul_candidates`, which orders tiles by the estimate and races the best, this times what is slow,
too: an estimate is fitted to both. Of few rows the kernel for those is raced beside them, of larger products the two
persistent configurations that are estimated to be the best.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from evidence.candidates import Findings, geometric_mean, main
from evidence.descent import descended
from evidence.matmul_candidates import BY_COLUMNS, PROCESSORS, MatmulExperiment, is_by_columns, product_point
from evidence.peer_shapes import sizes
from flopwatch.kernels.hopper_choice import predicted_cycles, product_config
from flopwatch.kernels.hopper_matmul import TILES
from flopwatch.kernels.hopper_short import SHORT_TILES, ShortConfig
from flopwatch.kernels.known import PLAIN
from flopwatch.kernels.stream_k import Balance
from flopwatch.kernels.thin_matmul import CANDIDATES, MOST_ROWS
from flopwatch.kernels.wave_choice import WAVE_RATES, WaveRates, tiles_for, wave_cycles
from flopwatch.model import from_json

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from evidence.race import Outcome, Point
    from flopwatch.kernels.routes import ProductConfig

#: Sides and steps of all kinds: rows that begin with lines of memory and others, waves that are full and others.
SQUARES = (*(504, 600, 640, 680, 760, 840, 896, 920, 1000, 1008, 1016, 1032, 1152, 1160, 1200, 1320, 1408, 1664, 1792),)
OTHERS = (
    *("1024x1000x1000", "1000x1000x1024", "1024x1024x512", "512x1024x1024", "1024x512x2048", "256x2048x2048"),
    *("128x4096x1024", "512x2048x512", "768x1024x768", "1024x768x3072", "256x1024x4096", "384x2560x1024"),
    *("520x1000x1000", "1000x520x2000", "1000x1000x4000", "1000x1000x200", "296x1000x1000", "1400x600x1000"),
    *("2000x520x1000", "1280x768x1024", "2048x1024x1024", "1024x2048x512", "96x4096x4096", "100x1000x1000"),
    *("72x8000x1000", "200x3000x1000", "960x1000x1200", "1024x1024x1400", "936x1024x776", "992x904x1016"),
    *("1008x640x1288", "904x1048x600", "640x600x3000", "448x1536x1536", "320x3072x768", "128x2048x8192"),
    *("128x8192x2048", "160x5120x1280", "192x1536x1536", "256x256x8192", "512x512x4096", "512x768x768"),
    *("768x768x2048", "896x1792x896", "1280x1280x640", "1536x768x768", "1600x1600x400", "2048x512x2048"),
    *("2048x2048x512", "712x1400x888", "1440x720x1440", "1920x1080x640", "128x50304x768", "100x5000x5000"),
    *("128x28672x1024", "300x4000x1000", "1344x2048x1024", "4096x512x512", "4096x1024x256", "8192x256x512"),
    *("3000x600x1000", "2304x768x3072", "768x2304x768", "1024x4096x1024", "4096x4096x256", "80x11008x4096"),
    "256x4096x14336",
)
FEW_ROWS = tuple(
    f"{m}x{other}"
    for other in (
        *("5120x5120", "8192x1024", "1024x8192", "14336x4096", "4096x14336", "3584x3584", "2048x2048", "1536x8960"),
        "28672x8192",
    )
    for m in (1, 32, 64)
)
BY_ROWS = (*(f"{side}x{side}x{side}" for side in SQUARES), *OTHERS, *FEW_ROWS)
#: Of which B is multiplied as it lies by columns, too: every third.
ALSO_BY_COLUMNS = BY_ROWS[: -len(FEW_ROWS) : 3]
#: Tiles that are estimated to take so many times as long as the first are not timed.
SLOWEST = 1.6
#: Of fewer rows a tile of the short kernel would be nearly empty: the least that its instructions have are 64.
LEAST_ROWS = 8
#: Of the fit: tries; a timing's error counts no more than this, of the logarithm.
TRIES, MOST_ERROR = 2500, 0.5
#: Of an H100, in a second.
_CYCLES = 1.755e9
#: Whose speeds the rule's is told in: the last is the fastest of flopwatch's own that were timed.
PEERS = ("torch", PLAIN, "the fastest")


@dataclass(frozen=True, kw_only=True, slots=True)
class TilesExperiment(MatmulExperiment):
    """Tiles on these sizes, in float16: all that are not estimated to be far from the first."""

    def points(self) -> Sequence[Point]:
        """Return all products."""
        return [
            product_point(shape, "float16", shape, "float16", by_columns=by_columns)
            for by_columns, shapes in ((False, BY_ROWS), (True, ALSO_BY_COLUMNS))
            for shape in shapes
        ]

    def candidates(self, shape: str, *, by_columns: bool = False) -> Mapping[str, ProductConfig]:
        """Return what is timed, as it comes before the launch in front of it has ended."""
        m, n, k = sizes(shape)
        cycles = {
            tile: wave_cycles(tile, m, n, k, processors=PROCESSORS, by_columns=by_columns)
            for tile in (tiles_for(m) if m >= LEAST_ROWS else ())
        }
        slowest = SLOWEST * min(cycles.values(), default=0.0)
        chosen: list[ProductConfig] = [
            replace(tile, dependent=True) for tile, estimate in cycles.items() if estimate <= slowest
        ]
        if m <= MOST_ROWS:
            chosen += [replace(config, dependent=True) for config in CANDIDATES]
        else:
            persistent = sorted(
                (replace(tile, balance=balance) for tile in TILES for balance in (Balance.WHOLE, Balance.WAVE)),
                key=lambda config: predicted_cycles(config, m, n, k, processors=PROCESSORS),
            )
            chosen += [persistent[0], *(replace(config, dependent=True) for config in persistent[:2])]
        return {str(config): config for config in chosen}


def timed(outcome: Outcome) -> dict[str, float]:
    """Return seconds of a call, by name."""
    return {entry.name: entry.seconds for entry in outcome.entries if entry.seconds}


def tile_times(outcome: Outcome) -> dict[ShortConfig, float]:
    """Return seconds of the tiles."""
    seconds = timed(outcome)
    named = {tile: str(replace(tile, dependent=True)) for tile in SHORT_TILES}
    return {tile: seconds[name] for tile, name in named.items() if name in seconds}


def estimated(config: ShortConfig, outcome: Outcome, rates: WaveRates) -> float:
    """Return the estimate in cycles."""
    shape, by_columns = sizes(str(outcome.point.values[0])), is_by_columns(outcome.point)
    return wave_cycles(config, *shape, processors=PROCESSORS, by_columns=by_columns, rates=rates)


def judged(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """Yield what the estimate is worth, and what the rule takes."""
    known = [(outcome, times) for outcome in outcomes if (times := tile_times(outcome))]
    logs = [
        math.log(estimated(tile, one, WAVE_RATES) / seconds) for one, times in known for tile, seconds in times.items()
    ]
    lost = [
        times[min(times, key=lambda tile: estimated(tile, one, WAVE_RATES))] / min(times.values())
        for one, times in known
    ]
    off = statistics.pstdev(logs)
    yield (
        f"{len(logs)} timings of {len(known)} products: the estimate is off by {off:.1%} (standard deviation of the "
        f"logarithm), and what it takes to be the fastest takes {geometric_mean(lost) - 1:.1%} longer than what is"
    )
    kinds: dict[str, list[tuple[float, ...]]] = {"all": []}
    slowest: list[tuple[float, str]] = []
    for outcome in outcomes:
        shape, seconds = str(outcome.point.values[0]), timed(outcome)
        by_columns = is_by_columns(outcome.point)
        config = product_config(*sizes(shape), processors=PROCESSORS, by_columns=by_columns)
        taken = PLAIN if config is None else str(config)
        if taken in seconds:
            fastest = min(value for name, value in seconds.items() if name != "torch")
            speeds = tuple(value / seconds[taken] for value in (seconds["torch"], seconds[PLAIN], fastest))
            own = f"{PLAIN if config is None else type(config).__name__}{BY_COLUMNS * by_columns}"
            for kind in ("all", own):
                kinds.setdefault(kind, []).append(speeds)
            slowest.append((speeds[2], f"{outcome.point.name}: {taken}, {', '.join(map(_of, speeds, PEERS))}"))
    for kind, found in kinds.items():
        means = (geometric_mean(speeds[place] for speeds in found) for place in range(len(PEERS)))
        yield f"the rule, {kind}, {len(found)} products: {', '.join(map(_of, means, PEERS))}"
    yield from (f"slowest: {text}" for _, text in sorted(slowest)[:3])


def _of(speed: float, peer: str) -> str:
    return f"{speed:.3f} of {peer}"


def fitted(outcomes: Sequence[Outcome], *, tries: int = TRIES) -> tuple[WaveRates, float]:
    """Return the rates that fit the timings best, the fastest tiles of a product first, and the error that is left.

    Of the cycles of an H100 at 1755 MHz.
    """
    known = [
        (outcome, tile, seconds * _CYCLES, seconds / min(times.values()))
        for outcome in outcomes
        for times in (tile_times(outcome),)
        for tile, seconds in times.items()
    ]
    weight = math.fsum(slower**-2 for *_, slower in known)

    def error(rates: WaveRates) -> float:
        errors = ((math.log(estimated(tile, one, rates) / cycles), slower) for one, tile, cycles, slower in known)
        return math.sqrt(math.fsum(min(log**2, MOST_ERROR**2) * slower**-2 for log, slower in errors) / weight)

    return descended(WAVE_RATES, error, list(asdict(WAVE_RATES)), tries=tries)


def shown(outcomes: Sequence[Outcome], shapes: Sequence[str]) -> Iterator[str]:
    """Yield what was timed of these sizes, the fastest first, and how many times as long as that it takes."""
    known = {outcome.point.name: timed(outcome) for outcome in outcomes}
    if unknown := [shape for shape in shapes if shape not in known]:
        sys.exit(f"{', '.join(unknown)}: not among what was timed, such as {next(iter(known))}")
    for shape in shapes:
        seconds = known[shape]
        fastest = min(value for name, value in seconds.items() if name.startswith("short"))
        for name in sorted(seconds, key=lambda name: seconds[name]):
            slower = seconds[name] / fastest
            yield f"{shape}: {name} {seconds[name] * 1e6:.2f} us, {slower:.2f} of the fastest short tile's time"


def run(arguments: Sequence[str]) -> None:
    """Do what a command line says."""
    if arguments[:1] == ["race"]:
        if "choose" in arguments:
            sys.exit("the table is chosen from the races of evidence.matmul_candidates: these sizes were fitted to")
        if not torch.cuda.is_available() and "--table" not in arguments:
            sys.exit("there is no GPU here: tiles are timed on one of the capability 9.0")
        main(TilesExperiment(), arguments[1:], "python -m evidence.short_tiles race", str(__doc__))
        return
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, prog="python -m evidence.short_tiles"
    )
    parser.add_argument("do", choices=["race", "judge", "fit", "times"])
    parser.add_argument("path", type=Path, help="what was timed")
    parser.add_argument("shapes", nargs="*", metavar="MxNxK", help="whose times are shown")
    parser.add_argument("--tries", type=int, default=TRIES, help=f"of a fit ({TRIES})")
    options = parser.parse_args(arguments)
    outcomes = from_json(options.path.read_bytes(), Findings).outcomes
    if options.do == "times":
        sys.stdout.writelines(f"{line}\n" for line in shown(outcomes, options.shapes))
    elif options.do == "judge":
        sys.stdout.writelines(f"{line}\n" for line in judged(outcomes))
    else:
        rates, error = fitted(outcomes, tries=options.tries)
        sys.stdout.writelines(f"{name} {value:.3g}\n" for name, value in asdict(rates).items())
        sys.stdout.write(f"error {error:.1%}\n")


if __name__ == "__main__":
    run(sys.argv[1:])

"""Products whose B begins within sectors of memory, as it is and by way of a copy that begins with lines.

::

    python -m evidence.lines race OUT.json [--seconds N]    # on a Hopper GPU; as `evidence.candidates` does
    python -m evidence.lines gains IN.json                  # what copies are worth

Each is multiplied by the configuration that the rule has for it (`flopwatch.kernels.hopper_choice`), and the copy is
part of its time. What `flopwatch.kernels.scratch.is_worth_lines` asks for was read off the gains.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from evidence.candidates import Findings, main
from evidence.matmul_candidates import PROCESSORS, MatmulExperiment, is_by_columns, product_point
from evidence.peer_shapes import sizes
from flopwatch.kernels.hopper_choice import product_config
from flopwatch.kernels.hopper_copying import hopper_copying_matmul
from flopwatch.kernels.hopper_matmul import HopperConfig, hopper_matmul
from flopwatch.model import from_json

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from evidence.race import Contest, Outcome, Point
    from flopwatch.kernels.routes import ProductConfig
    from flopwatch.kernels.workspace import Workspace

#: Squares, few to many rows that read one B, and others; rows of B are of no multiple of 16 elements, but of 8.
BY_ROWS = (
    *(f"{size}x{size}x{size}" for size in (2008, 2504, 3000, 3400, 4008, 5000, 7000)),
    *(f"{rows}x5000x5000" for rows in (504, 1000, 1504, 2000, 2600, 3000)),
    *("1024x11000x4096", "2048x3000x4096", "2048x11000x4096", "4096x3000x4096", "4096x1000x1000", "6000x2008x2008"),
    *("3957x3976x760", "2360x2728x1496", "3314x2056x2040"),
    *("8192x1000x1024", "8200x1032x4104", "12000x1000x3000", "16384x1000x4096", "32768x1000x512"),
)
#: Likewise of columns, where B lies by them.
BY_COLUMNS = (
    *("504x5000x5000", "1024x4096x4104", "2000x5000x5000", "2048x4096x4104", "4104x4104x4104", "4104x11008x4104"),
    *("5000x5000x5000", "8200x1024x1032"),
)
_NAME = "in lines "
#: The peer of the race: the same configuration, by B as it is.
AS_IT_IS = "as it is"


@dataclass(frozen=True, kw_only=True, slots=True)
class InLines(HopperConfig):
    """A configuration that multiplies by a copy of B."""

    def __str__(self) -> str:
        """Name it after the configuration."""
        return _NAME + HopperConfig.__str__(self)


@dataclass(frozen=True, kw_only=True, slots=True)
class LinesExperiment(MatmulExperiment):
    """The rule's configuration, with B as it is and with a copy of it, in float16."""

    def points(self) -> Sequence[Point]:
        """Return all products for which the rule has the persistent kernel."""
        every = [
            product_point(shape, "float16", shape, "float16", by_columns=by_columns)
            for by_columns, shapes in ((False, BY_ROWS), (True, BY_COLUMNS))
            for shape in shapes
        ]
        return [point for point in every if self.candidates(str(point.values[0]), by_columns=is_by_columns(point))]

    def candidates(self, shape: str, *, by_columns: bool = False) -> Mapping[str, ProductConfig]:
        """Return the configuration by way of a copy and as it is; nothing where it is another kernel's."""
        config = product_config(*sizes(shape), processors=PROCESSORS, by_columns=by_columns)
        if not isinstance(config, HopperConfig):
            return {}
        copied = InLines(**asdict(config))
        return {str(copied): copied, AS_IT_IS: config}

    def contest(self, point: Point) -> Contest:
        """Return the contest of products, in which the configuration as it is is a peer."""
        contest = MatmulExperiment.contest(self, point)
        candidates = dict(contest.candidates)
        return replace(contest, peers={AS_IT_IS: candidates.pop(AS_IT_IS), **contest.peers}, candidates=candidates)

    def multiplied(self, a: torch.Tensor, b: torch.Tensor, config: ProductConfig, workspace: Workspace) -> torch.Tensor:
        """Multiply, by way of a copy or as it is."""
        assert isinstance(config, HopperConfig)  # noqa: S101 - as `candidates` has them
        if isinstance(config, InLines):
            return hopper_copying_matmul(a, b, config, copies_b=True)
        return hopper_matmul(a, b, config, workspace=workspace)


def gains(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """Yield of each product how many times as fast the copy makes it, with 99 % bounds.

    And what it has of cuBLAS's speed, as B is and by way of the copy.
    """
    for outcome in outcomes:
        ratios = {found.peer: found for found in outcome.ratios}
        if not {AS_IT_IS, "torch"} <= ratios.keys():
            yield f"{outcome.point.name}: not timed {outcome.reason}".rstrip()
            continue
        gain, of_torch = ratios[AS_IT_IS], ratios["torch"].speed
        both = f"{of_torch / gain.speed:.3f}, {of_torch:.3f}"
        rows = int(str(outcome.point.values[0]).split("x")[0])
        yield (
            f"{outcome.point.name}: {rows} rows, {outcome.point.flops * 5e-10:.3g} G multiply-adds, "
            f"{gain.speed:.3f} ({gain.lower:.3f} to {gain.upper:.3f}); of torch {both}"
        )


def run(arguments: Sequence[str]) -> None:
    """Do what a command line says."""
    if arguments[:1] == ["race"]:
        if "choose" in arguments:
            sys.exit("the table is chosen from the races of evidence.matmul_candidates: these sizes were fitted to")
        if not torch.cuda.is_available() and "--table" not in arguments:
            sys.exit("there is no GPU here: products are timed on one of the capability 9.0")
        main(LinesExperiment(), arguments[1:], "python -m evidence.lines race", str(__doc__))
        return
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, prog="python -m evidence.lines"
    )
    parser.add_argument("do", choices=["race", "gains"])
    parser.add_argument("path", type=Path, help="what was timed")
    outcomes = from_json(parser.parse_args(arguments).path.read_bytes(), Findings).outcomes
    sys.stdout.writelines(f"{line}\n" for line in gains(outcomes))


if __name__ == "__main__":
    run(sys.argv[1:])

"""``flopwatch tune``: search the configurations of an autotuned kernel."""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import TYPE_CHECKING

from flopwatch.cli.console import report_console
from flopwatch.cli.device_option import add_device
from flopwatch.cli.json_option import add_json, claim_json, show
from flopwatch.cli.verb import add_verb
from flopwatch.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from flopwatch.cli.verb import Verbs
    from flopwatch.tune import TuneResult


def add_tune(verbs: Verbs) -> None:
    """Add the verb to the command line."""
    tune = add_verb(
        verbs,
        "tune",
        _run,
        summary="search an autotuned kernel's configurations: prune by static facts, time in turns, choose",
        description="Compile every configuration of the kernel that CASE launches, leave out what spills, does not\n"
        "fit or cannot fill the GPU, and time the others in turns against what the autotuner chooses.\n"
        "One set of samples chooses, another says how much that is worth. Without a GPU nothing is timed.",
        examples=(
            "flopwatch tune 'WeightGradient[2048x2048x2048,float16,flopwatch]'",
            "flopwatch tune WeightGradient --shapes 1024x1024x1024,768x768x8192 --out choices.json",
            "flopwatch tune WeightGradient --space BLOCK_M=64,128,256 num_warps=4,8 num_stages=2,3,4",
        ),
        exit_codes={
            ExitCode.OK: "there is a choice, whether or not it is the autotuner's",
            ExitCode.USAGE: "usage, configuration or repository error, or a kernel that cannot be tuned",
            ExitCode.UNDECIDED: "nothing was timed, as without a GPU, or interrupted",
            ExitCode.UNFIT: "the machine is unfit",
        },
    )
    tune.add_argument("case", metavar="CASE", help="a suite, or cases whose name has this in it")
    tune.add_argument(
        "--shapes",
        type=_values,
        default=(),
        metavar="SHAPES",
        help="of these: values of the suite's parameter shape, or of its first one; it need not list them",
    )
    tune.add_argument(
        "--space",
        nargs="+",
        default=(),
        metavar="NAME=VALUES",
        help="settings to vary in each configuration of the kernel's list, such as num_warps=4,8",
    )
    add_device(tune, "GPU to compile for; one that is not there is not timed")
    tune.add_argument("--rounds", type=_positive, metavar="N", help="of the samples that choose, at most (6)")
    tune.add_argument("--pairs", type=_positive, metavar="N", help="fresh processes that estimate (8)")
    tune.add_argument("--resolution", type=_percent, metavar="PERCENT", help="what differs by less is a tie (0.5)")
    tune.add_argument("--min-occupancy", type=_percent, metavar="PERCENT", help="prune what has less (0)")
    tune.add_argument(
        "--against",
        dest="providers",
        action="append",
        default=[],
        metavar="PROVIDER",
        help="hold the choice against this provider of the suite as well, such as heuristics",
    )
    tune.add_argument("--out", type=Path, metavar="FILE", help="write the choices into this table, beside what it has")
    tune.add_argument("--all", action="store_true", help="show every configuration")
    add_json(tune)


def _run(arguments: argparse.Namespace) -> int:
    # Imported here so that --help answers at once.
    from rich.console import Console  # noqa: PLC0415 - as above

    from flopwatch import git  # noqa: PLC0415 - as above
    from flopwatch.cli.progress import Progress  # noqa: PLC0415 - as above
    from flopwatch.tune.facts import Limits  # noqa: PLC0415 - as above
    from flopwatch.tune.report import print_tune  # noqa: PLC0415 - as above
    from flopwatch.tune.run import PAIRS, RESOLUTION_PERCENT, ROUNDS, TuneOptions, run_tune  # noqa: PLC0415 - as above
    from flopwatch.tune.space import parse_space  # noqa: PLC0415 - as above

    root = git.repository_root(arguments.repository)
    resolution = arguments.resolution
    options = TuneOptions(
        select=arguments.case,
        shapes=arguments.shapes,
        space=parse_space(arguments.space),
        device=arguments.device,
        rounds=arguments.rounds or ROUNDS,
        pairs=arguments.pairs or PAIRS,
        resolution_percent=RESOLUTION_PERCENT if resolution is None else resolution,
        limits=Limits(occupancy=(arguments.min_occupancy or 0.0) / 100),
        providers=tuple(arguments.providers),
    )
    claim_json(arguments.json)
    if arguments.out is not None:
        _claim_table(arguments.out, arguments.json)
    with Progress(Console(stderr=True)) as progress:
        result = run_tune(options, root, observer=progress)
    try:
        show(result, arguments.json, lambda: print_tune(result, report_console(), everything=arguments.all))
    finally:  # a report or a result that cannot be written does not cost the table
        if arguments.out is not None:
            _write(result, arguments.out)
    return result.exit_code


def _claim_table(path: Path, result: Path | None) -> None:
    """Find out whether the table can be read and written: now, not after minutes of measuring."""
    from flopwatch.tune.table import read_table  # noqa: PLC0415 - so that --help answers at once

    if path == Path("-"):
        raise UsageError("a table is a file", todo="name one: --out choices.json")
    if result is not None and result.resolve() == path.resolve():
        raise UsageError(f"{path} cannot be both the table and the result", todo="name another file: --json tune.json")
    claim_json(path)
    if path.exists() and path.stat().st_size:
        read_table(path)


def _write(result: TuneResult, path: Path) -> None:
    """Put the choices into the table; a file that has none is left as it is where there is none to put."""
    from flopwatch.tune.table import Table, read_table, with_result  # noqa: PLC0415 - so that --help answers at once

    before = read_table(path) if path.exists() and path.stat().st_size else Table(entries=())
    table = with_result(before, result)
    if table != before:
        show(table, path, lambda: None)


def _values(text: str) -> tuple[str, ...]:
    values = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    if not values:
        raise argparse.ArgumentTypeError(f"{text!r} names no shape")
    return values


def _positive(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is no number above zero")
    return int(text)


def _percent(text: str) -> float:
    try:
        percent = float(text)
    except ValueError:
        percent = math.nan
    if not 0 <= percent < 100:  # noqa: PLR2004 - percents
        raise argparse.ArgumentTypeError(f"{text!r} is no percentage below 100")
    return percent

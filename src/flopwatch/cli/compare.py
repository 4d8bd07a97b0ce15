"""``flopwatch compare``: two commits, environments or providers, or the values of a parameter, timed in turns."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from flopwatch.cli.console import report_console
from flopwatch.cli.json_option import add_json, claim_json, show
from flopwatch.cli.output_file import print_and_write
from flopwatch.cli.select_option import add_select
from flopwatch.cli.verb import add_verb
from flopwatch.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from flopwatch.cli.verb import Verbs
    from flopwatch.study.result import StudyResult


def add_compare(verbs: Verbs) -> None:
    """Add the verb to the command line."""
    compare = add_verb(
        verbs,
        "compare",
        _run,
        summary="time two commits, environments or providers, or a parameter's values in turns; needs a GPU",
        description="Say how fast HEAD is in units of BASE: two commits, two environments on the working tree, or\n"
        "two providers in one process. What is wrong is not timed. How it came out never changes the exit code.\n"
        "With --study, or --parameter: how fast each value of a parameter is, in one process, and whether what\n"
        "the study concludes is true.",
        examples=(
            "flopwatch compare main -k Matmul",
            "flopwatch compare --base-python old/bin/python --head-python new/bin/python",
            "flopwatch compare --provider flopwatch --provider torch --json torch.json",
            "flopwatch compare --study L2Swizzle --svg swizzle.svg",
            "flopwatch compare --parameter dtype -k Matmul[4096",
        ),
        exit_codes={
            ExitCode.OK: "there is a comparison, whichever side is faster; of a study: all conclusions hold",
            ExitCode.REGRESSED: "a conclusion of the study does not hold",
            ExitCode.USAGE: "usage, configuration or repository error, or an interpreter that cannot import flopwatch",
            ExitCode.UNDECIDED: "nothing could be compared, a conclusion is unsure, or interrupted",
            ExitCode.UNFIT: "there is no GPU, or it is unfit",
        },
    )
    compare.add_argument("base", nargs="?", metavar="BASE", help="commit to compare with (the merge base with main)")
    compare.add_argument("head", nargs="?", metavar="HEAD", help="the other commit (the working tree)")
    compare.add_argument(
        "--base-python", type=Path, metavar="PATH", help="interpreter of one environment (the one that runs this)"
    )
    compare.add_argument("--head-python", type=Path, metavar="PATH", help="interpreter of the other (likewise)")
    compare.add_argument(
        "--provider",
        dest="providers",
        action="append",
        default=[],
        metavar="NAME",
        help="given twice: whose speed, in units of whose",
    )
    add_select(compare)
    compare.add_argument(
        "--pairs", type=_pairs, metavar="N", help="fresh processes, or pairs of them (8, the fewest for an interval)"
    )
    compare.add_argument("--study", default="", metavar="NAME", help="the study whose lines take turns")
    compare.add_argument("--parameter", default="", metavar="NAME", help="the parameter whose values take turns")
    compare.add_argument("--csv", type=Path, metavar="FILE", help="write a study's table")
    compare.add_argument("--svg", type=Path, metavar="FILE", help="write a study's plot")
    add_json(compare)


def _run(arguments: argparse.Namespace) -> int:
    # Imported here so that --help answers at once.
    from rich.console import Console  # noqa: PLC0415 - as above

    from flopwatch import git  # noqa: PLC0415 - as above
    from flopwatch.cli.progress import Progress  # noqa: PLC0415 - as above
    from flopwatch.compare import CompareOptions, run_compare  # noqa: PLC0415 - as above
    from flopwatch.compare.run import PAIRS  # noqa: PLC0415 - as above
    from flopwatch.report.compare import print_compare  # noqa: PLC0415 - as above

    root = git.repository_root(arguments.repository)
    if arguments.study or arguments.parameter:
        return _run_study(arguments, root)
    if arguments.csv or arguments.svg:
        raise UsageError("tables and plots are of studies", todo="name one with --study, or a --parameter")
    options = CompareOptions(
        base=arguments.base,
        head=arguments.head,
        base_python=arguments.base_python,
        head_python=arguments.head_python,
        providers=tuple(arguments.providers),
        select=arguments.select,
        pairs=arguments.pairs or PAIRS,
    )
    claim_json(arguments.json)
    with Progress(Console(stderr=True)) as progress:
        comparison = run_compare(options, root, observer=progress)
    console = report_console()
    show(comparison, arguments.json, lambda: print_compare(comparison, console))
    return comparison.exit_code


def _run_study(arguments: argparse.Namespace, root: Path) -> int:
    # Imported here so that --help answers at once.
    from rich.console import Console  # noqa: PLC0415 - as above

    from flopwatch.cli.progress import Progress  # noqa: PLC0415 - as above
    from flopwatch.compare.run import PAIRS  # noqa: PLC0415 - as above
    from flopwatch.report.study import print_study  # noqa: PLC0415 - as above
    from flopwatch.study.run import StudyOptions, run_study  # noqa: PLC0415 - as above

    if arguments.base or arguments.base_python or arguments.head_python or arguments.providers:
        raise UsageError(
            "a study is of the working tree, in one process",
            why="the command line names commits, environments or providers too",
            todo="leave them out; -k chooses cases",
        )
    options = StudyOptions(
        study=arguments.study,
        parameter=arguments.parameter,
        select=arguments.select,
        rounds=arguments.pairs or PAIRS,
    )
    for path in (arguments.json, arguments.csv, arguments.svg):
        claim_json(path)
    with Progress(Console(stderr=True)) as progress:
        study = run_study(options, root, observer=progress)
    console = report_console()
    try:
        show(study, arguments.json, lambda: print_study(study, console))
    finally:  # what cannot be written does not cost the others
        _write_study(study, arguments)
    return study.exit_code


def _write_study(study: StudyResult, arguments: argparse.Namespace) -> None:
    """Write the table and the plot, of whatever was measured on a machine that was fit."""
    from flopwatch.report.line_plot import line_plot  # noqa: PLC0415 - so that --help answers at once
    from flopwatch.report.study import table, unit, values  # noqa: PLC0415 - as above

    reached = {} if study.unfit else values(study)
    if not reached:
        return

    def plot() -> str:
        title = f"{unit(study)} of {study.suite} on {study.gpu}, a line for each {study.parameter}"
        points = [at for at in study.points if any(at in line for line in reached.values())]
        return line_plot(reached, points, title=title, across=study.across, unit=unit(study))

    print_and_write(lambda: print_and_write(lambda: None, arguments.csv, lambda: table(study)), arguments.svg, plot)


def _pairs(text: str) -> int:
    """Read a number of pairs."""
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is no number of pairs")
    return int(text)

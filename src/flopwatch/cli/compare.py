"""``flopwatch compare``: two commits, environments or providers, timed in turns; no verdict."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from flopwatch.cli.console import report_console
from flopwatch.cli.json_option import add_json, claim_json, show
from flopwatch.cli.verb import add_verb
from flopwatch.errors import ExitCode

if TYPE_CHECKING:
    from flopwatch.cli.verb import Verbs


def add_compare(verbs: Verbs) -> None:
    """Add the verb to the command line."""
    compare = add_verb(
        verbs,
        "compare",
        _run,
        summary="time two commits, environments or providers in turns; needs a GPU, gives no verdict",
        description="Say how fast HEAD is in units of BASE: two commits, two environments on the working tree, or\n"
        "two providers in one process. What is wrong is not timed. How it came out never changes the exit code.",
        examples=(
            "flopwatch compare main -k Matmul",
            "flopwatch compare --base-python old/bin/python --head-python new/bin/python",
            "flopwatch compare --provider flopwatch --provider torch --json torch.json",
        ),
        exit_codes={
            ExitCode.OK: "there is a comparison, whichever side is faster",
            ExitCode.USAGE: "usage, configuration or repository error, or an interpreter that cannot import flopwatch",
            ExitCode.UNDECIDED: "nothing could be compared, or interrupted",
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
    compare.add_argument("-k", dest="select", default="", metavar="TEXT", help="only cases whose name has TEXT in it")
    compare.add_argument(
        "--pairs", type=_pairs, metavar="N", help="fresh processes, or pairs of them (8, the fewest for an interval)"
    )
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


def _pairs(text: str) -> int:
    """Read a number of pairs."""
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is no number of pairs")
    return int(text)

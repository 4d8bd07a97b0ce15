"""``flopwatch bisect``: the commit that made a case slower, by pairs, or by what is compiled."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from flopwatch.cli.console import report_console
from flopwatch.cli.device_option import add_device
from flopwatch.cli.json_option import add_json, claim_json, show
from flopwatch.cli.verb import add_verb
from flopwatch.errors import ExitCode

if TYPE_CHECKING:
    from flopwatch.cli.verb import Verbs

#: Fewer do not prove that good and bad are the same: the first look of the gate.
FEWEST_PAIRS = 8


def add_bisect(verbs: Verbs) -> None:
    """Add the verb to the command line."""
    bisect = add_verb(
        verbs,
        "bisect",
        _run,
        summary="find the commit that made a case slower, or changed what it compiles to",
        description="Prove that CASE is slower, or faster, at BAD than at GOOD, and find the commit that made it so.\n"
        "Each commit is held against GOOD, both taking turns on the GPU, until it is clear on which side it is.\n"
        "With --fact, what is compiled is compared, which needs no GPU.",
        examples=(
            "flopwatch bisect Matmul[4096x4096x4096,float16,flopwatch] v1.2 main",
            "flopwatch bisect Softmax HEAD~20 HEAD --fact registers",
        ),
        exit_codes={
            ExitCode.OK: "the commit is found, and its change is proved",
            ExitCode.UNDECIDED: "no difference is proved, several commits are left or the one is in doubt; interrupted",
            ExitCode.UNFIT: "there is no GPU, which only --fact does without, or it is unfit",
        },
    )
    bisect.add_argument("case", metavar="CASE", help="a case's name, or a part of it that no other has")
    bisect.add_argument("good", metavar="GOOD", help="a commit before the change")
    bisect.add_argument("bad", metavar="BAD", help="a commit after it; its suites are run at every commit")
    bisect.add_argument(
        "--fact",
        choices=("registers", "spills", "shared_memory"),
        default="",
        help="compare this of what is compiled, instead of the time",
    )
    add_device(bisect, "GPU to compile for with --fact")
    bisect.add_argument(
        "--pairs",
        type=_pairs,
        metavar="N",
        help="pairs to prove that GOOD and BAD differ (13), and of a step at most (44)",
    )
    add_json(bisect)


def _run(arguments: argparse.Namespace) -> int:
    # Imported here so that --help answers at once.
    from rich.console import Console  # noqa: PLC0415 - as above

    from flopwatch import git  # noqa: PLC0415 - as above
    from flopwatch.bisect import BisectOptions, run_bisect  # noqa: PLC0415 - as above
    from flopwatch.cli.progress import Progress  # noqa: PLC0415 - as above
    from flopwatch.report.bisect import print_bisect  # noqa: PLC0415 - as above

    root = git.repository_root(arguments.repository)
    options = BisectOptions(
        case=arguments.case,
        good=arguments.good,
        bad=arguments.bad,
        fact=arguments.fact,
        device=arguments.device,
        pairs=arguments.pairs,
    )
    claim_json(arguments.json)
    with Progress(Console(stderr=True)) as progress:
        found = run_bisect(options, root, observer=progress)
    console = report_console()
    show(found, arguments.json, lambda: print_bisect(found, console))
    return found.exit_code


def _pairs(text: str) -> int:
    """Read a number of pairs that is enough for a verdict."""
    if not text.isdecimal() or int(text) < FEWEST_PAIRS:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of pairs from {FEWEST_PAIRS} on")
    return int(text)

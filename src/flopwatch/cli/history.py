"""``flopwatch history``: what was recorded of a case, as a plot."""

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

_SVG, _HTML = ".svg", ".html"


def add_history(verbs: Verbs) -> None:
    """Add the verb to the command line."""
    history = add_verb(
        verbs,
        "history",
        _run,
        summary="plot what was recorded of a case, commit by commit",
        description="Plot what asv's results say of CASE, a line for each machine and toolchain, and name the commits\n"
        "at which its level changed. Needs asv: pip install 'flopwatch[history]'.",
        examples=(
            "flopwatch history Matmul[4096x4096x4096,float16,flopwatch]",
            "flopwatch history Attention --metric registers --last 50",
            "flopwatch history Matmul --out matmul.html",
        ),
        exit_codes={
            ExitCode.OK: "values are shown, whatever they say",
            ExitCode.USAGE: "usage or repository error, no asv or no asv.conf.json, or a file that cannot be written",
            ExitCode.UNDECIDED: "nothing was recorded of such a case, or interrupted",
        },
    )
    history.add_argument("case", metavar="CASE", help="a case's name, or a part of the names of several")
    history.add_argument(
        "--metric", default="time", metavar="NAME", help="what of it, such as registers, spills or max_diff (time)"
    )
    history.add_argument("--last", type=_number, metavar="N", help="only the last N recorded commits (all)")
    history.add_argument("--out", type=_drawing, metavar="FILE", help="draw into FILE too, an .svg or an .html")
    add_json(history)


def _run(arguments: argparse.Namespace) -> int:
    # Imported here so that --help answers at once.
    from flopwatch import git  # noqa: PLC0415 - as above
    from flopwatch.history import read_history  # noqa: PLC0415 - as above
    from flopwatch.report.history import print_history  # noqa: PLC0415 - as above
    from flopwatch.report.history_page import page, svg  # noqa: PLC0415 - as above

    root = git.repository_root(arguments.repository)
    claim_json(arguments.json)
    history = read_history(root, arguments.case, metric=arguments.metric, last=arguments.last)
    if arguments.out is not None:
        draw = svg if arguments.out.suffix == _SVG else page
        arguments.out.write_text(draw(history), encoding="utf-8")
    console = report_console()
    show(history, arguments.json, lambda: print_history(history, console))
    return int(ExitCode.OK)


def _number(text: str) -> int:
    """Read a number of commits."""
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is no number of commits")
    return int(text)


def _drawing(text: str) -> Path:
    """Read the name of a file that can be drawn into."""
    path = Path(text)
    if path.suffix not in (_SVG, _HTML):
        raise argparse.ArgumentTypeError(f"{text!r} ends in neither {_SVG} nor {_HTML}")
    return path

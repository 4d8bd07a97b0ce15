"""``flopwatch explain``: why a case is likely to be slower, by what the compiler made of its kernels."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from flopwatch.cli.console import report_console
from flopwatch.cli.device_option import add_device
from flopwatch.cli.json_option import add_json, claim_json, show
from flopwatch.cli.output_file import claim, print_and_write
from flopwatch.cli.verb import add_verb
from flopwatch.errors import ExitCode, UsageError

if TYPE_CHECKING:
    import argparse

    from flopwatch.cli.verb import Verbs
    from flopwatch.gate import GateResult


def add_explain(verbs: Verbs) -> None:
    """Add the verb to the command line."""
    explain = add_verb(
        verbs,
        "explain",
        _run,
        summary="say why a case is slower: what the compiler does differently, and on a GPU where the time goes",
        description="Compile the kernels of one case on BASE and on HEAD, for a GPU that need not be there, and say\n"
        "what is likeliest to make it slower: first in a sentence, then fact by fact, then line by line. On a GPU\n"
        "both sides are profiled too: what kernels and a launch take, and the GPU's counters if ncu can read them.",
        examples=(
            "flopwatch explain 'Matmul[4096x4096x4096,float16,flopwatch]'",
            "flopwatch explain 'Attention[4x8x4096x64,causal,flopwatch]' main HEAD --html explain.html",
            "flopwatch explain 'Matmul[4096x4096x4096,float16,flopwatch]' --result gate.json",
        ),
        exit_codes={
            ExitCode.OK: "explained, whether or not a cause was found",
            ExitCode.USAGE: "usage, configuration or repository error, or several cases have that name",
            ExitCode.UNDECIDED: "no such case, or interrupted",
        },
    )
    explain.add_argument("case", metavar="CASE", help="a case's name, or a part of it that no other has")
    explain.add_argument("base", nargs="?", metavar="BASE", help="commit to compare with (the merge base with main)")
    explain.add_argument("head", nargs="?", metavar="HEAD", help="commit on trial (the working tree)")
    add_device(explain, "GPU to compile for")
    explain.add_argument(
        "--result",
        type=Path,
        metavar="FILE",
        help="a result of gate --json: its times, what its tuner chose, and its commits where none are named",
    )
    explain.add_argument("--no-profile", action="store_true", help="compile only, also where there is a GPU")
    explain.add_argument("--html", type=Path, metavar="FILE", help="write a page, which needs nothing but itself")
    explain.add_argument("--markdown", action="store_true", help="print Markdown")
    add_json(explain)


def read_measured(path: Path) -> GateResult:
    """Read the result of a gate.

    Raises:
        UsageError: it is none.
    """
    import msgspec  # noqa: PLC0415 - so that --help answers at once

    from flopwatch.gate import GateResult  # noqa: PLC0415 - as above
    from flopwatch.model import from_json  # noqa: PLC0415 - as above

    todo = "name a file that flopwatch gate --json wrote"
    try:
        return from_json(path.read_bytes(), GateResult)
    except OSError as error:
        raise UsageError(f"{path} cannot be read", why=str(error.strerror or error), todo=todo) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not the result of a gate", why=str(error), todo=todo) from None


def _run(arguments: argparse.Namespace) -> int:
    # Imported here so that --help answers at once.
    from rich.console import Console  # noqa: PLC0415 - as above

    from flopwatch import git  # noqa: PLC0415 - as above
    from flopwatch.cli.progress import Progress  # noqa: PLC0415 - as above
    from flopwatch.explain.run import ExplainOptions, run_explain  # noqa: PLC0415 - as above
    from flopwatch.report.explain import print_explanation  # noqa: PLC0415 - as above
    from flopwatch.report.explain_markdown import explanation_markdown  # noqa: PLC0415 - as above
    from flopwatch.report.explain_page import explanation_page  # noqa: PLC0415 - as above

    root = git.repository_root(arguments.repository)
    options = ExplainOptions(
        case=arguments.case,
        base=arguments.base,
        head=arguments.head,
        device=arguments.device,
        measured=read_measured(arguments.result) if arguments.result else None,
        profile=not arguments.no_profile,
    )
    claim_json(arguments.json)
    if arguments.html is not None:
        claim(arguments.html)
    with Progress(Console(stderr=True)) as progress:
        explanation = run_explain(options, root, observer=progress)

    def print_it() -> None:
        if arguments.markdown:
            print(explanation_markdown(explanation), end="")  # noqa: T201 - what was asked for
        else:
            print_explanation(explanation, report_console())

    print_and_write(
        lambda: show(explanation, arguments.json, print_it), arguments.html, lambda: explanation_page(explanation)
    )
    return ExitCode.OK

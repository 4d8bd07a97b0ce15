"""``flopwatch sanitize``: faults of memory in the kernels of a suite, on a GPU or without one."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from flopwatch.cli.console import report_console
from flopwatch.cli.json_option import add_json, claim_json, show
from flopwatch.cli.verb import add_verb
from flopwatch.errors import ExitCode
from flopwatch.sanitize.tools import Tool

if TYPE_CHECKING:
    from flopwatch.cli.verb import Verbs


def add_sanitize(verbs: Verbs) -> None:
    """Add the verb to the command line."""
    sanitize = add_verb(
        verbs,
        "sanitize",
        _run,
        summary="find accesses outside of tensors, reads of what nobody wrote, and races; needs no GPU",
        description="Run each case of the working tree once, at its small size, and watch what its kernels do to\n"
        "memory: on a GPU under NVIDIA's compute-sanitizer, without one in the guarded interpreter.",
        examples=(
            "flopwatch sanitize",
            "flopwatch sanitize Matmul Attention --on cpu",
            "flopwatch sanitize --tool memcheck,racecheck --json sanitized.json",
            "flopwatch sanitize 'Matmul[512x512x512' --full --tool racecheck,synccheck",
        ),
        exit_codes={
            ExitCode.OK: "every case that ran is clean",
            ExitCode.REGRESSED: "a kernel of the suites has a fault",
            ExitCode.UNDECIDED: "no such case, a case or a tool failed, nothing ran, or interrupted",
            ExitCode.UNFIT: "there is no GPU where one is needed, or the tool is not installed",
        },
    )
    sanitize.add_argument("cases", nargs="*", metavar="CASE", help="cases whose name has this in it (all)")
    sanitize.add_argument(
        "--on", choices=("gpu", "cpu"), default="", dest="device", help="where kernels run (a GPU, where there is one)"
    )
    sanitize.add_argument(
        "--tool",
        dest="tools",
        type=_tools,
        default=(),
        metavar="NAME,...",
        help=f"who looks, of {', '.join(tool.value for tool in Tool)} (the first four on an NVIDIA GPU, else"
        " interpreter, and those of the last three that are installed)",
    )
    sanitize.add_argument("--full", action="store_true", help="at the sizes that the suites declare; take few cases")
    sanitize.add_argument("--markdown", action="store_true", help="print Markdown, as for the summary of a job")
    add_json(sanitize)


def _run(arguments: argparse.Namespace) -> int:
    # Imported here so that --help answers at once.
    from rich.console import Console  # noqa: PLC0415 - as above

    from flopwatch import git  # noqa: PLC0415 - as above
    from flopwatch.cli.progress import Progress  # noqa: PLC0415 - as above
    from flopwatch.report.sanitize import print_sanitized  # noqa: PLC0415 - as above
    from flopwatch.report.sanitize_markdown import sanitized_markdown  # noqa: PLC0415 - as above
    from flopwatch.sanitize.run import SanitizeOptions, run_sanitize  # noqa: PLC0415 - as above

    root = git.repository_root(arguments.repository)
    options = SanitizeOptions(
        select=tuple(arguments.cases), device=arguments.device, tools=arguments.tools, full=arguments.full
    )
    claim_json(arguments.json)
    with Progress(Console(stderr=True)) as progress:
        result = run_sanitize(options, root, observer=progress)

    def report() -> None:
        if arguments.markdown:
            print(sanitized_markdown(result), end="")  # noqa: T201 - what was asked for
        else:
            print_sanitized(result, report_console())

    show(result, arguments.json, report)
    return ExitCode(result.exit_code)


def _tools(text: str) -> tuple[Tool, ...]:
    """Read names with commas between them."""
    names = [name.strip().lower() for name in text.split(",") if name.strip()]
    unknown = [name for name in names if name not in {tool.value for tool in Tool}]
    if unknown or not names:
        known = ", ".join(tool.value for tool in Tool)
        raise argparse.ArgumentTypeError(f"{unknown[0] if unknown else text!r} is none of {known}")
    return tuple(Tool(name) for name in names)

"""``flopwatch static``: what the compiler makes of every kernel, for GPUs that need not be there."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from flopwatch.cli.console import report_console
from flopwatch.cli.device_option import KEYS
from flopwatch.cli.json_option import add_json, claim_json, show
from flopwatch.cli.select_option import add_select
from flopwatch.cli.verb import add_verb
from flopwatch.errors import ExitCode

if TYPE_CHECKING:
    from flopwatch.cli.verb import Verbs


def add_static(verbs: Verbs) -> None:
    """Add the verb to the command line."""
    static = add_verb(
        verbs,
        "static",
        _run,
        summary="compile every kernel for named GPUs, compare two commits or hold the facts in a file; needs no GPU",
        description="Compile every kernel of the suites, in every configuration, for GPUs that need not be there, and\n"
        "tell what came out: registers, spills, shared memory, occupancy, instructions. With BASE, what differs from\n"
        "it; with --baseline, what differs from the facts that a file holds.",
        examples=(
            "flopwatch static --device a100,h200,b200",
            "flopwatch static main -k Matmul",
            "flopwatch static HEAD~1 HEAD --markdown",
            "flopwatch static --baseline facts.json",
        ),
        exit_codes={
            ExitCode.OK: "nothing regressed, nothing drifted, and what is launched compiles and fits",
            ExitCode.REGRESSED: "a kernel no longer compiles or fits, or leaves its tensors; or facts drifted",
            ExitCode.USAGE: "usage, configuration or repository error, or no such baseline",
            ExitCode.UNDECIDED: "nothing could be compiled or compared, or interrupted",
        },
    )
    static.add_argument("base", nargs="?", metavar="BASE", help="commit to compare with (none)")
    static.add_argument("head", nargs="?", metavar="HEAD", help="commit to compile (the working tree)")
    add_select(static)
    static.add_argument(
        "--device",
        dest="devices",
        type=_names,
        default=(),
        metavar="NAME,...",
        help=f"GPUs to compile for, of {', '.join(KEYS)} (those of the baseline, or of pyproject.toml)",
    )
    static.add_argument(
        "--autotune",
        choices=("all", "predicted", "first"),
        help="which configurations of autotuned kernels: all of them (the default), those that a call would time, or "
        "the first of these that fits",
    )
    static.add_argument("--baseline", type=Path, metavar="FILE", help="compare with the facts that this file holds")
    static.add_argument("--write", action="store_true", help="put the facts into the file of --baseline")
    static.add_argument("--all", action="store_true", help="show every configuration where there is a comparison too")
    static.add_argument(
        "--launches", action="store_true", help="show what each launch computes and moves, and its least time"
    )
    static.add_argument("--markdown", action="store_true", help="print Markdown, as for the summary of a job")
    add_json(static)
    static.add_argument("--exit-zero", action="store_true", help="exit 0 whatever was found; errors keep their code")


def _run(arguments: argparse.Namespace) -> int:
    # Imported here so that --help answers at once.
    from rich.console import Console  # noqa: PLC0415 - as above

    from flopwatch import git  # noqa: PLC0415 - as above
    from flopwatch.cli.progress import Progress  # noqa: PLC0415 - as above
    from flopwatch.report.static import print_survey  # noqa: PLC0415 - as above
    from flopwatch.report.static_markdown import survey_markdown  # noqa: PLC0415 - as above
    from flopwatch.static.recorder import Autotune  # noqa: PLC0415 - as above
    from flopwatch.survey.run import SurveyOptions, run_survey  # noqa: PLC0415 - as above

    root = git.repository_root(arguments.repository)
    options = SurveyOptions(
        base=arguments.base,
        head=arguments.head,
        select=arguments.select,
        devices=arguments.devices,
        autotune=Autotune(arguments.autotune) if arguments.autotune else None,
        baseline=arguments.baseline,
        write=arguments.write,
    )
    claim_json(arguments.json)
    if arguments.write:
        claim_json(arguments.baseline)
    with Progress(Console(stderr=True)) as progress:
        survey = run_survey(options, root, observer=progress)

    def report() -> None:
        if arguments.markdown:
            text = survey_markdown(survey, everything=arguments.all, launches=arguments.launches)
            print(text, end="")  # noqa: T201 - what was asked for
        else:
            print_survey(survey, report_console(), everything=arguments.all, launches=arguments.launches)

    show(survey, arguments.json, report)
    code = ExitCode(survey.exit_code)
    return 0 if arguments.exit_zero and code in (ExitCode.REGRESSED, ExitCode.UNDECIDED) else code


def _names(text: str) -> tuple[str, ...]:
    """Read names with commas between them."""
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    if not names:
        raise argparse.ArgumentTypeError(f"{text!r} names no device")
    return names

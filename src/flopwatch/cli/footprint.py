"""``flopwatch footprint``: pictures of which elements of its tensors each program of a case loads and stores."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import TYPE_CHECKING

from flopwatch.cli.device_option import add_device
from flopwatch.cli.verb import add_verb
from flopwatch.errors import ExitCode

if TYPE_CHECKING:
    from flopwatch.cli.verb import Verbs


def add_footprint(verbs: Verbs) -> None:
    """Add the verb to the command line."""
    footprint = add_verb(
        verbs,
        "footprint",
        _run,
        summary="draw which elements of its tensors each program of a case loads and stores; needs no GPU",
        description="Compile what CASE launches for a GPU that need not be there, evaluate the addresses of every\n"
        "program, and draw them: a picture (SVG) for each launch, with the order of the programs, the first wave,\n"
        "and single programs.",
        examples=(
            "flopwatch footprint 'Matmul[4096x4096x4096,float16,flopwatch]' --out pictures",
            "flopwatch footprint Attention --program 0,31 --out pictures",
            "flopwatch footprint VectorAdd --small --out pictures",
        ),
        exit_codes={
            ExitCode.OK: "drawn; what could not be drawn is told",
            ExitCode.UNDECIDED: "no such case, nothing could be drawn, or interrupted",
        },
    )
    footprint.add_argument("case", metavar="CASE", help="cases whose name has this in it")
    footprint.add_argument(
        "--out", type=Path, required=True, metavar="DIR", help="where the pictures go; made if needed"
    )
    footprint.add_argument("--small", action="store_true", help="at the suite's small sizes")
    footprint.add_argument(
        "--program",
        dest="programs",
        type=_numbers,
        default=(),
        metavar="N,...",
        help="programs with a row of their own (the first two and the last)",
    )
    add_device(footprint, "GPU to compile for")


def _run(arguments: argparse.Namespace) -> int:
    # Imported here so that --help answers at once.
    from rich.console import Console  # noqa: PLC0415 - as above

    from flopwatch import git  # noqa: PLC0415 - as above
    from flopwatch.cli.console import report_console  # noqa: PLC0415 - as above
    from flopwatch.cli.progress import Progress  # noqa: PLC0415 - as above
    from flopwatch.explain.footprints import FootprintOptions, run_footprints  # noqa: PLC0415 - as above
    from flopwatch.report.footprint import footprint_svg  # noqa: PLC0415 - as above
    from flopwatch.report.foreign import safe  # noqa: PLC0415 - as above

    root = git.repository_root(arguments.repository)
    options = FootprintOptions(
        select=arguments.case, device=arguments.device, small=arguments.small, programs=arguments.programs
    )
    arguments.out.mkdir(parents=True, exist_ok=True)  # now, not after a minute of compiling
    with Progress(Console(stderr=True)) as progress:
        result = run_footprints(options, root, observer=progress)
    console = report_console()
    drawn = 0
    for number, (case, footprint) in enumerate(result.launches):
        told = f"{case.id}: {footprint.kernel} [{footprint.config}]"
        if footprint.panels:
            drawn += 1
            path = arguments.out / f"{_file_name(case.id)}-{number}-{_file_name(footprint.kernel)}.svg"
            path.write_text(footprint_svg(footprint, case.id), encoding="utf-8")
            console.print(safe(f"{told} -> {path}"), soft_wrap=True)
        for cause in footprint.unknown:
            console.print(safe(f"not shown of {case.id}: {cause}", "yellow"), soft_wrap=True)
    for failure in result.failures:
        console.print(safe(f"not compiled: {failure}", "yellow"), soft_wrap=True)
    return ExitCode.OK if drawn else ExitCode.UNDECIDED


def _file_name(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.]+", "-", text).strip("-.")[:100]


def _numbers(text: str) -> tuple[int, ...]:
    """Read numbers of programs with commas between them."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    wrong = next((name for name in names if not name.isdecimal()), None)
    if wrong is not None:
        raise argparse.ArgumentTypeError(f"{wrong!r} is not the number of a program")
    return tuple(map(int, names))

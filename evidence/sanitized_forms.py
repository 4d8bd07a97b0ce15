"""Each form of the kernels that no small case of the bundled suites takes, under compute-sanitizer, on a GPU.

::

    python -m evidence.sanitized_forms [FORM ...] [--tool memcheck,racecheck] [--json FILE]

The forms are those of `evidence.forms.suites`; FORM is a part of a case's name. What is printed, what is written and
the exit code are those of ``flopwatch sanitize --full``.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from flopwatch.cli.console import report_console
from flopwatch.cli.json_option import add_json, claim_json, show
from flopwatch.cli.progress import Progress
from flopwatch.config import load_config
from flopwatch.errors import FlopwatchError, MachineError
from flopwatch.report.sanitize import print_sanitized
from flopwatch.sanitize.run import SanitizeOptions, has_gpu, run_sanitize
from flopwatch.sanitize.tools import NVIDIA, Tool

ROOT = Path(__file__).parents[1]
FORMS = "evidence/forms"


def main(arguments: list[str]) -> int:
    """Look, tell what was found, and return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m evidence.sanitized_forms",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    names = [tool.value for tool in NVIDIA]
    parser.add_argument("forms", nargs="*", metavar="FORM", help="forms whose case's name has this in it (all)")
    parser.add_argument("--tool", default=",".join(names), metavar="NAME,...", help=f"of {', '.join(names)} (all)")
    add_json(parser)
    options = parser.parse_args(arguments)
    tools = options.tool.split(",")
    if unknown := [name for name in tools if name not in names]:
        parser.error(f"{unknown[0]!r} is none of {', '.join(names)}")
    try:
        if not has_gpu():
            raise MachineError(
                "there is no NVIDIA GPU",
                why="most of these kernels are Gluon's, which Triton's interpreter does not run",
                todo="run this on a GPU of compute capability 9.0",
            )
        claim_json(options.json)
        with Progress(Console(stderr=True)) as progress:
            result = run_sanitize(
                SanitizeOptions(select=tuple(options.forms), tools=tuple(map(Tool, tools)), full=True),
                ROOT,
                config=replace(load_config(ROOT), benchmarks=FORMS),
                observer=progress,
            )
        show(result, options.json, lambda: print_sanitized(result, report_console()))
    except FlopwatchError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    return result.exit_code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

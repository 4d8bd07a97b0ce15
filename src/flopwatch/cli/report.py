"""``flopwatch report``: what gates and sanitizers found out, for people and for systems that show it."""

from __future__ import annotations

import argparse
import io
import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from flopwatch.cli.verb import add_verb
from flopwatch.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from flopwatch.cli.verb import Verbs
    from flopwatch.gate import GateResult
    from flopwatch.report.reported import Reported

#: Results of one report: each has its verdict in a comment, whatever the room.
MAX_RESULTS = 16
FORMATS = ("terminal", "markdown", "summary", "annotations", "junit", "html")
_STDOUT = Path("-")


def add_report(verbs: Verbs) -> None:
    """Add the verb to the command line."""
    report = add_verb(
        verbs,
        "report",
        _run,
        summary="show results of gates and sanitizers: in a terminal, a pull request, a job, a test report or a page",
        description="Show what gates and sanitizers found out, by their --json. The files may come from a machine\n"
        "that ran unread code: what is not of their form, or contradicts itself, is refused, and decides nothing.\n"
        "All but the terminal's format and --recompute needs the standard library alone.",
        examples=(
            "flopwatch report gate.json",
            'flopwatch report gate.json --format summary --out "$GITHUB_STEP_SUMMARY"',
            "flopwatch report gate.json sanitized.json --format html --out report.html",
            "flopwatch report *.json --format markdown --pr 7 --sha $SHA --policy . --out comment.md",
        ),
        exit_codes={
            ExitCode.OK: "nothing regressed; of several results the worst decides: 1 before 3 before 4 before 2",
            ExitCode.REGRESSED: "something regressed, or a kernel has a fault",
            ExitCode.USAGE: "usage or configuration error, or a waiver that has expired",
            ExitCode.UNDECIDED: "undecided, interrupted, or a result is refused",
            ExitCode.UNFIT: "the machine was unfit",
        },
    )
    report.add_argument(
        "results", nargs="+", type=Path, metavar="RESULT", help="a file that gate --json or sanitize --json wrote"
    )
    report.add_argument("--format", choices=FORMATS, default="terminal", help="how they are shown (terminal)")
    report.add_argument("--out", type=Path, default=_STDOUT, metavar="FILE", help="where to; - is stdout")
    report.add_argument("--pr", type=_number, metavar="NUMBER", help="the pull request that the results are about")
    report.add_argument("--sha", type=_sha, metavar="SHA", help="the commit that they must be about, in full")
    report.add_argument(
        "--policy",
        type=Path,
        metavar="DIR",
        help="margins, waivers and what SAME excludes must be those of the pyproject.toml in DIR",
    )
    report.add_argument(
        "--suites",
        type=Path,
        metavar="DIR",
        help="annotate the suites' declarations in this folder, such as benchmarks",
    )
    report.add_argument(
        "--recompute",
        action="store_true",
        help="decide again by the pairs in the file, and refuse it where that comes out otherwise; needs numpy",
    )
    report.add_argument("--all", action="store_true", help="with --format terminal: show every case and configuration")
    report.add_argument(
        "--exit-zero",
        action="store_true",
        help="exit 0 whatever the verdicts; errors and refused results keep their code",
    )


def _run(arguments: argparse.Namespace) -> int:
    # Imported here so that --help answers at once.
    from flopwatch.report.policy import read_policy  # noqa: PLC0415 - as above
    from flopwatch.report.reported import Origin, report_on, worst_first  # noqa: PLC0415 - as above

    if len(arguments.results) > MAX_RESULTS:
        raise UsageError(f"{len(arguments.results)} results", todo=f"report {MAX_RESULTS} at most at a time")
    if arguments.suites and not arguments.suites.is_dir():
        raise UsageError(f"{arguments.suites} is not a folder", todo="--suites takes the folder of the suites")
    policy = read_policy(arguments.policy) if arguments.policy else None
    origin = Origin(pull_request=arguments.pr, sha=arguments.sha or "")
    again = _recomputing(policy) if arguments.recompute else None
    reports = worst_first(report_on(path, origin=origin, policy=policy, recompute=again) for path in arguments.results)
    _write(_rendered(reports, arguments), arguments.out)
    code = reports[0].exit_code
    is_verdict = not any(report.is_refused for report in reports)
    if arguments.exit_zero and is_verdict and code in (ExitCode.REGRESSED, ExitCode.UNDECIDED):
        return 0
    return code


def _recomputing(policy: object) -> Callable[[GateResult], Iterable[str]]:
    from flopwatch.config import Config  # noqa: PLC0415 - so that --help answers at once
    from flopwatch.report.recompute import differences  # noqa: PLC0415 - it needs numpy

    config = policy if isinstance(policy, Config) else Config()
    return lambda result: differences(result, config)


def _rendered(reports: Sequence[Reported], arguments: argparse.Namespace) -> str:
    # Imported here so that --help answers at once.
    from flopwatch.report.annotations import annotate, find_suites  # noqa: PLC0415 - as above
    from flopwatch.report.junit import junit  # noqa: PLC0415 - as above
    from flopwatch.report.markdown import comment, job_summary  # noqa: PLC0415 - as above
    from flopwatch.report.page import page  # noqa: PLC0415 - as above

    match arguments.format:
        case "markdown":
            return comment(reports)
        case "summary":
            return job_summary(reports)
        case "annotations":
            return annotate(reports, find_suites(arguments.suites) if arguments.suites else {})
        case "junit":
            return junit(reports)
        case "html":
            return page(reports)
        case _:
            return _terminal(reports, arguments)


def _terminal(reports: Sequence[Reported], arguments: argparse.Namespace) -> str:
    from rich.console import Console  # noqa: PLC0415 - the other formats do without

    from flopwatch.cli.console import LOG_COLUMNS  # noqa: PLC0415 - as above
    from flopwatch.report.escape import plain  # noqa: PLC0415 - as above
    from flopwatch.report.foreign import safe  # noqa: PLC0415 - as above
    from flopwatch.report.sanitize import print_sanitized  # noqa: PLC0415 - as above
    from flopwatch.report.terminal import print_gate  # noqa: PLC0415 - as above

    seen = Console()
    coloured = arguments.out == _STDOUT and seen.is_terminal
    width = seen.width if coloured or "COLUMNS" in os.environ else LOG_COLUMNS
    file = io.StringIO()
    console = Console(file=file, width=width, force_terminal=coloured, no_color=seen.no_color)
    for number, report in enumerate(reports):
        if number:
            console.print()
        if report.origin.text:
            console.print(safe(report.origin.text, "dim"), soft_wrap=True)
        if report.result is not None:
            print_gate(report.result, console, everything=arguments.all)
        elif report.sanitized is not None:
            print_sanitized(report.sanitized, console)
        else:
            console.print(safe(report.sentence, "bold yellow"), soft_wrap=True)
            console.print(safe(f"why: {plain(report.refusal)}", indent=2), soft_wrap=True)
            console.print(safe(f"do:  {report.next_command}", indent=2), soft_wrap=True)
    # What a runner takes for a command, at the start of a line or anywhere in it, ends in the log of a job.
    return re.sub(r"^(\s*):(?=:)|##(?=\[)", lambda found: f"{found[0]} ", file.getvalue(), flags=re.MULTILINE)


def _write(text: str, path: Path) -> None:
    """Write UTF-8, whatever the locale."""
    if path != _STDOUT:
        path.write_text(text, encoding="utf-8")
        return
    sys.stdout.flush()
    sys.stdout.buffer.write(text.encode())
    sys.stdout.buffer.flush()


def _number(text: str) -> int:
    """Read the number of a pull request."""
    if not re.fullmatch("[1-9][0-9]{0,9}", text):
        raise argparse.ArgumentTypeError(f"{text!r} is no number of a pull request")
    return int(text)


def _sha(text: str) -> str:
    """Read the full hash of a commit."""
    if not re.fullmatch("[0-9a-f]{40}|[0-9a-f]{64}", text):
        raise argparse.ArgumentTypeError(f"{text!r} is no full hash of a commit, in lower case")
    return text

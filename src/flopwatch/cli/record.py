"""``flopwatch record``: measure commits once each, for asv's history."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flopwatch.cli.json_option import add_json, claim_json, show
from flopwatch.cli.select_option import add_select
from flopwatch.cli.verb import add_verb
from flopwatch.errors import ExitCode

if TYPE_CHECKING:
    import argparse

    from rich.console import Console

    from flopwatch.cli.verb import Verbs
    from flopwatch.record import RecordedCommit, Recording

#: Failures that are named of a commit; the sidecar has all of them.
MOST_FAILURES = 5


def add_record(verbs: Verbs) -> None:
    """Add the verb to the command line."""
    record = add_verb(
        verbs,
        "record",
        _run,
        summary="measure the commits of a range, for the history that asv keeps",
        description="Measure every case of each commit once, and save it into asv's results as it ends: time,\n"
        "numbers, memory and static facts; without a GPU, what is known without one. What is recorded is skipped.",
        examples=(
            "flopwatch record",
            "flopwatch record NEW --anchor v1.0",
            "flopwatch record v1.0..main -k Matmul --machine h200",
        ),
        exit_codes={
            ExitCode.OK: "everything asked for is recorded, now or before; a failure is a result too",
            ExitCode.USAGE: "usage, configuration or repository error, or no asv",
            ExitCode.UNDECIDED: "interrupted, nothing but failures was measured, or no case was selected",
            ExitCode.UNFIT: "the GPU is unfit, busy or lost, or there is none for an anchor",
        },
    )
    record.add_argument(
        "revisions",
        nargs="?",
        default="HEAD^!",
        metavar="RANGE",
        help="commit, range such as v1..main, NEW (since the last recorded one) or ALL (HEAD^!)",
    )
    record.add_argument("--machine", metavar="NAME", help="name under which results are kept (this machine's)")
    record.add_argument(
        "--anchor", metavar="COMMIT", help="measure in turns with COMMIT too, and record the ratio of the times"
    )
    add_select(record)
    record.add_argument("--samples", action="store_true", help="keep every sample, not only their statistics")
    record.add_argument("--again", action="store_true", help="measure what is recorded already, too")
    add_json(record)


def _run(arguments: argparse.Namespace) -> int:
    # Imported here so that --help answers at once.
    from rich.console import Console  # noqa: PLC0415 - as above

    from flopwatch import git  # noqa: PLC0415 - as above
    from flopwatch.asv.plugin import setup  # noqa: PLC0415 - as above
    from flopwatch.cli.progress import Progress  # noqa: PLC0415 - as above

    setup()  # says what to install where there is no asv, without which the next line fails
    from flopwatch.record import RecordOptions, run_record  # noqa: PLC0415 - as above

    root = git.repository_root(arguments.repository)
    options = RecordOptions(
        revisions=arguments.revisions,
        machine=arguments.machine,
        anchor=arguments.anchor,
        select=arguments.select,
        samples=arguments.samples,
        again=arguments.again,
    )
    claim_json(arguments.json)
    with Progress(Console(stderr=True)) as progress:
        recording = run_record(options, root, observer=progress)
    show(recording, arguments.json, lambda: print_recording(recording, Console()))
    return recording.exit_code


def print_recording(recording: Recording, console: Console) -> None:
    """Print what was recorded: a line for the whole, one for each commit, and one for each failure."""
    from flopwatch.cli.progress import minutes  # noqa: PLC0415 - so that --help answers at once
    from flopwatch.report.foreign import safe  # noqa: PLC0415 - as above
    from flopwatch.report.wording import count  # noqa: PLC0415 - as above

    measured = [commit for commit in recording.commits if commit.cases]
    where = f"{recording.machine} ({recording.gpu or 'no GPU'})"
    begun = "Recorded nothing" if recording.interrupted or recording.unfit else "Nothing new to record"
    if measured:
        cases = sum(commit.cases for commit in measured)
        line = f"Recorded {count(cases, 'case')} of {count(len(measured), 'commit')} on {where}"
    else:
        line = f"{begun} on {where}"
    line += f" in {minutes(recording.seconds)}"
    line += " (interrupted; what is recorded stays, and the same command goes on)" if recording.interrupted else ""
    console.print(safe(line, "bold"), soft_wrap=True)
    if recording.unfit:
        console.print(safe(f"Stopped: {recording.unfit}", "red"), soft_wrap=True)
    for commit in measured:
        failed = f", {commit.failed} with failures" if commit.failed else ""
        before = f", {commit.before} recorded before" if commit.before else ""
        text = f"{commit.commit[:8]}: {count(commit.cases, 'case')}{failed}{before}"
        console.print(safe(text, indent=2), soft_wrap=True)
        for text in _failures(commit):
            console.print(safe(text, "yellow", indent=12), soft_wrap=True)
        if commit.unfit:
            console.print(safe(f"not to be trusted: {commit.unfit}", "red", indent=12), soft_wrap=True)
    for note in recording.notes:
        console.print(safe(f"Note: {note}", "dim"), soft_wrap=True)


def _failures(commit: RecordedCommit) -> list[str]:
    """Return a line for each cause, with the cases that it has."""
    from flopwatch.report.wording import grouped, several  # noqa: PLC0415 - so that --help answers at once

    causes = grouped(
        (f"{failure.failure.kind}: {failure.failure.message}", failure.case) for failure in commit.failures
    )
    lines = [f"{several(list(dict.fromkeys(cases)))}: {cause}" for cause, cases in causes]
    more = [f"and {len(lines) - MOST_FAILURES} more causes; all are in the .jsonl file beside the result"]
    return lines if len(lines) <= MOST_FAILURES else lines[:MOST_FAILURES] + more

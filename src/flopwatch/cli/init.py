"""``flopwatch init``: begin to watch the kernels of a repository."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from flopwatch.cli.verb import add_verb
from flopwatch.errors import ExitCode

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from flopwatch.cli.verb import Verbs
    from flopwatch.scaffold import PlannedFile, Scaffold


_WITH_A_GPU = (
    "On a machine with a GPU, this ends with the noise floor of these suites: how far pairs of the same code come apart"
    " there, and the smallest slowdown that a gate finds. flopwatch doctor measures it."
)


def add_init(verbs: Verbs) -> None:
    """Add the verb to the command line."""
    init = add_verb(
        verbs,
        "init",
        _run,
        summary="begin to watch the kernels of a repository",
        description="Find the Triton kernels of a repository and write what flopwatch needs there: settings, a first\n"
        "suite, asv.conf.json, nox sessions and a workflow that needs no GPU. No file is overwritten. The kernels are\n"
        "imported and run by Triton's interpreter, to find out how they are called. It ends with flopwatch doctor,\n"
        "which on a machine with a GPU measures the noise floor: pairs of the same code.",
        examples=("flopwatch init --dry-run", "flopwatch init", "flopwatch init --gpu-runner h200"),
        exit_codes={
            ExitCode.OK: "nothing stands in the way of a gate; of --dry-run: shown",
            ExitCode.UNFIT: "what was to be written is there, and flopwatch doctor finds what stands in the way",
        },
    )
    init.add_argument("--dry-run", action="store_true", help="show what would be written, and write nothing")
    init.add_argument(
        "--gpu-runner",
        type=_label,
        metavar="LABEL",
        help="also write workflows for the self-hosted runner with that label: the gate of each pushed branch, and a"
        " nightly recording; for private repositories whose authors are trusted with that machine",
    )


def _label(text: str) -> str:
    """Read the label of a runner."""
    from flopwatch.scaffold.workflows import is_label  # noqa: PLC0415 - so that --help answers at once

    if not is_label(text):
        raise argparse.ArgumentTypeError(f"{text!r} is no label of letters, digits and ._-")
    return text


def _run(arguments: argparse.Namespace) -> int:
    # Imported here so that --help answers at once.
    from rich.console import Console  # noqa: PLC0415 - as above

    from flopwatch.doctor import examine  # noqa: PLC0415 - as above
    from flopwatch.measure.noise import LIMIT_S  # noqa: PLC0415 - as above
    from flopwatch.report.doctor import print_doctor  # noqa: PLC0415 - as above
    from flopwatch.scaffold import plan_scaffold, write_files  # noqa: PLC0415 - as above

    console, errors = Console(), Console(stderr=True)
    with errors.status("looking") as status:
        scaffold = plan_scaffold(arguments.repository, gpu_runner=arguments.gpu_runner or "", observe=status.update)
    _print_found(scaffold, console)
    if not arguments.dry_run:
        write_files(scaffold.root, scaffold.files)
    for file in scaffold.files:
        _print_file(file, console, dry_run=arguments.dry_run)
    _print_todo(scaffold, console)
    if arguments.dry_run:
        return 0
    console.print()
    with errors.status("looking at the machine, and measuring the noise floor where it has a GPU"):
        report = examine(scaffold.root, noise_limit_s=LIMIT_S)
    print_doctor(report, console)
    if report.machine.gpu is None:
        console.print(_WITH_A_GPU, soft_wrap=True)
    return report.exit_code


def _print_found(scaffold: Scaffold, console: Console) -> None:
    from flopwatch.report.foreign import safe  # noqa: PLC0415 - so that --help answers at once
    from flopwatch.report.wording import count  # noqa: PLC0415 - as above

    layout = scaffold.layout
    where = f"{layout.source}/" if layout.source else ""
    packages = ", ".join(f"{where}{package}" for package in layout.packages)
    kernels = f"{count(len(scaffold.kernels), 'Triton kernel')} in {packages}"
    launchers = count(len(scaffold.launchers), "launch function")
    console.print(safe(f"Found {kernels}, and {launchers}.", "bold"), soft_wrap=True)
    for reason in scaffold.outcome.reasons if scaffold.outcome else ():
        console.print(safe(f"passed over: {reason}", "dim"), soft_wrap=True)


def _verbatim(line: str) -> Text:
    """Return a line of a file with its blanks; what a terminal would obey becomes one."""
    from rich.text import Text  # noqa: PLC0415 - so that --help answers at once

    return Text("".join(character if character.isprintable() else " " for character in line).rstrip())


def _print_file(file: PlannedFile, console: Console, *, dry_run: bool) -> None:
    from flopwatch.report.foreign import safe  # noqa: PLC0415 - so that --help answers at once
    from flopwatch.scaffold import Action  # noqa: PLC0415 - as above

    if file.action is Action.KEEP:
        console.print(safe(f"left alone   {file.path}: {file.why}", "dim"), soft_wrap=True)
        return
    done = "created" if file.action is Action.CREATE else "appended to"
    planned = f"would {file.action.value}"
    console.print(safe(f"{planned if dry_run else done:<12} {file.path}"), soft_wrap=True)
    if dry_run:
        for line in file.text.splitlines():
            console.print(_verbatim(f"    | {line}"), soft_wrap=True)


def _print_todo(scaffold: Scaffold, console: Console) -> None:
    from flopwatch.report.foreign import safe  # noqa: PLC0415 - so that --help answers at once

    by_hand = [file for file in scaffold.files if file.by_hand]
    if not by_hand and not scaffold.todo:
        console.print("Nothing is left to do.")
        return
    console.print("\n[bold]Left to do:[/bold]")
    for file in by_hand:
        console.print(safe(f"* Add this to {file.path}, which was there:"), soft_wrap=True)
        for line in file.by_hand.splitlines():
            console.print(_verbatim(f"    {line}"), soft_wrap=True)
    for line in scaffold.todo:
        console.print(safe(f"* {line}"), soft_wrap=True)

"""``flopwatch doctor``: what stands in the way of measuring here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flopwatch.cli.json_option import add_json, claim_json, show
from flopwatch.cli.verb import add_verb
from flopwatch.errors import ExitCode

if TYPE_CHECKING:
    import argparse

    from flopwatch.cli.verb import Verbs


def add_doctor(verbs: Verbs) -> None:
    """Add the verb to the command line."""
    doctor = add_verb(
        verbs,
        "doctor",
        _run,
        summary="look at the machine, the toolchain and the repository",
        description="Say what flopwatch can do on this machine and in this repository, and what stands in its way.\n"
        "On a machine with a GPU, a few cases are measured in pairs of the same code: what a gate here would find.",
        examples=("flopwatch doctor", "flopwatch doctor --no-noise", "flopwatch doctor --json doctor.json"),
        exit_codes={
            ExitCode.OK: "nothing stands in the way; warnings and a missing GPU do not",
            ExitCode.USAGE: "usage error, or a file that cannot be written",
            ExitCode.UNFIT: "the machine, the toolchain or the repository is unfit",
        },
    )
    doctor.add_argument(
        "--no-noise",
        action="store_true",
        help="do not measure the noise floor, which takes 20 s on a machine with a GPU",
    )
    add_json(doctor)


def _run(arguments: argparse.Namespace) -> int:
    # Imported here so that --help answers at once.
    from rich.console import Console  # noqa: PLC0415 - as above

    from flopwatch.doctor import examine  # noqa: PLC0415 - as above
    from flopwatch.measure.noise import LIMIT_S  # noqa: PLC0415 - as above
    from flopwatch.report.doctor import print_doctor  # noqa: PLC0415 - as above

    claim_json(arguments.json)
    doing = "looking" if arguments.no_noise else "looking, and measuring the noise floor"
    with Console(stderr=True).status(doing):
        report = examine(arguments.repository, noise_limit_s=0.0 if arguments.no_noise else LIMIT_S)
    show(report, arguments.json, lambda: print_doctor(report, Console()))
    return report.exit_code

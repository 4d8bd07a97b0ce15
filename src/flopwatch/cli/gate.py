"""``flopwatch gate``: compare two commits."""

from __future__ import annotations

import argparse
import contextlib
import math
from pathlib import Path
from typing import TYPE_CHECKING

from flopwatch.cli.console import report_console
from flopwatch.cli.device_option import add_device
from flopwatch.cli.json_option import add_json, claim_json, show
from flopwatch.cli.select_option import add_select
from flopwatch.cli.verb import add_verb
from flopwatch.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from flopwatch.cli.verb import Verbs
    from flopwatch.gate.conclusions import WatchedConclusion
    from flopwatch.gate.pairs import Observer
    from flopwatch.gate.sides import Sides
    from flopwatch.model import Choice


def add_gate(verbs: Verbs) -> None:
    """Add the verb to the command line."""
    gate = add_verb(
        verbs,
        "gate",
        _run,
        summary="compare two commits: static facts, numbers and, on a GPU, time in pairs",
        description="Compare HEAD with BASE: what the compiler makes of every kernel, how far every result is from\n"
        "float64, and, where there is a GPU, how long every case takes, both sides taking turns.",
        examples=(
            "flopwatch gate",
            "flopwatch gate HEAD~1 HEAD -k Matmul --json gate.json",
            "flopwatch gate --budget 300",
        ),
        exit_codes={
            ExitCode.OK: "nothing regressed",
            ExitCode.REGRESSED: "slower, broken, a kernel that no longer compiles or that leaves its tensors, or a"
            " conclusion that no longer holds",
            ExitCode.USAGE: "usage, configuration or repository error, or a waiver that has expired",
            ExitCode.UNDECIDED: "undecided, interrupted, or nothing could be compared",
            ExitCode.UNFIT: "the machine is unfit",
        },
    )
    gate.add_argument("base", nargs="?", metavar="BASE", help="commit to compare with (the merge base with main)")
    gate.add_argument("head", nargs="?", metavar="HEAD", help="commit on trial (the working tree)")
    add_select(gate)
    add_device(gate, "GPU to compile the static facts for")
    gate.add_argument(
        "--budget",
        type=_seconds,
        metavar="SECONDS",
        help="time for the pairs of a run that flags nothing; prints what slowdown it finds before it starts",
    )
    gate.add_argument(
        "--pin",
        type=Path,
        metavar="FILE",
        help="run autotuned kernels, on both sides, as head ran in this result of --json, or as a table of tune says",
    )
    gate.add_argument(
        "--all", action="store_true", help="show every case and configuration, not only what needs a look"
    )
    add_json(gate)
    gate.add_argument("--exit-zero", action="store_true", help="exit 0 whatever the verdicts; errors keep their code")


def read_pins(path: Path) -> dict[str, tuple[Choice, ...]]:
    """Return the configurations in which head ran each case, or that a search chose for it, by its name.

    Raises:
        UsageError: the file is neither the result of a gate nor a table of choices, or has no such configurations.
    """
    import msgspec  # noqa: PLC0415 - so that --help answers at once

    from flopwatch.gate import GateResult  # noqa: PLC0415 - as above
    from flopwatch.model import from_json  # noqa: PLC0415 - as above
    from flopwatch.tune.table import Table, pins_of  # noqa: PLC0415 - as above

    todo = "name a file that flopwatch gate --json, or flopwatch tune --out, wrote on a machine with a GPU"
    try:
        text = path.read_bytes()  # once: it may be a pipe
        with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError):
            return pins_of(from_json(text, Table), path)
        result = from_json(text, GateResult)
    except OSError as error:
        raise UsageError(f"{path} cannot be read", why=str(error.strerror or error), todo=todo) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not the result of a gate", why=str(error), todo=todo) from None
    pins = {verdict.case.id: verdict.head.choices for verdict in result.verdicts if verdict.head.choices}
    if not pins:
        raise UsageError(f"{path} pins nothing", why="no case of it ran an autotuned kernel on a GPU", todo=todo)
    return pins


def _run(arguments: argparse.Namespace) -> int:
    # Imported here so that --help answers at once.
    from rich.console import Console  # noqa: PLC0415 - as above

    from flopwatch import git  # noqa: PLC0415 - as above
    from flopwatch.cli.progress import Progress  # noqa: PLC0415 - as above
    from flopwatch.gate.run import GateOptions, run_gate  # noqa: PLC0415 - as above
    from flopwatch.report.terminal import print_gate  # noqa: PLC0415 - as above

    root = git.repository_root(arguments.repository)
    options = GateOptions(
        base=arguments.base,
        head=arguments.head,
        select=arguments.select,
        device=arguments.device,
        budget_s=arguments.budget,
        pins=read_pins(arguments.pin) if arguments.pin else None,
    )
    claim_json(arguments.json)
    with Progress(Console(stderr=True)) as progress:
        result = run_gate(options, root, observer=progress, conclude=_watch_conclusions)
    show(result, arguments.json, lambda: print_gate(result, report_console(), everything=arguments.all))
    code = ExitCode(result.exit_code)
    return 0 if arguments.exit_zero and code in (ExitCode.REGRESSED, ExitCode.UNDECIDED) else code


def _watch_conclusions(sides: Sides, gpu_uuid: str, observer: Observer) -> tuple[WatchedConclusion, ...]:
    from flopwatch.study.watched import watch_conclusions  # noqa: PLC0415 - needed where some are declared

    return watch_conclusions(sides, gpu_uuid, observer)


def _seconds(text: str) -> float:
    """Read a positive number of seconds."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds")
    return seconds

"""Compile all that the plain kernels' lists have, for a GPU of each architecture; needs no GPU.

::

    python -m evidence.architectures [--device a100,mi300x] [--page docs/kernels.md]

Each configuration has to compile, or to be refused because the GPU has not as much shared memory, or on a Blackwell
memory of its tensor cores; and of each call one has to fit. What does not is told, and the exit code is 1. The calls
are those of `evidence.listed.suites`. With --page, which is for all devices, the table of that page is written.
"""

from __future__ import annotations

import argparse
import datetime as dt
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import triton
from rich.console import Console

from evidence.listed.suites import SUITES
from evidence.page import filled, table
from flopwatch.cli.progress import Progress
from flopwatch.errors import FlopwatchError
from flopwatch.gate.sides import Arm
from flopwatch.measure.client import Code
from flopwatch.static.devices import find_device
from flopwatch.static.recorder import Autotune
from flopwatch.survey.lanes import Lanes, Lot

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from flopwatch.model import Case
    from flopwatch.survey.store import Outcome

LISTED = Path(__file__).parent / "listed"
#: One of each architecture: sm_80, sm_89, sm_90, sm_100, sm_120 and gfx942.
DEVICES = ("a100", "l40s", "h200", "b200", "rtx5090", "mi300x")
#: What a launch says that asks for more of either memory than there is.
TOO_LARGE = "OutOfResources"
HEADS = ("GPU", "architecture", "calls", "configurations", "compile and fit", "take more than there is", "spill")


def compile_all(
    devices: Sequence[str], cases: Sequence[Case], tell: Callable[[int, int], None]
) -> dict[str, dict[Case, Outcome]]:
    """Compile the calls for each device; return what became of them.

    Args:
        devices: their keys.
        cases: of `SUITES`.
        tell: hears how many are done, of how many.
    """
    lots = [Lot(Arm.HEAD, find_device(name), Code(benchmarks=LISTED, device=name)) for name in devices]
    Lanes(lots, autotune=Autotune.ALL, tell=tell).compile(cases, lambda _: cases)
    return {lot.device.key: lot.outcomes for lot in lots}


def every_case() -> dict[Case, int]:
    """Return the calls, and how many configurations the list of each has."""
    return {case: suite.listed(*case.values[:-1]) for suite in SUITES for case in suite.cases()}


def faults(outcomes: Mapping[Case, Outcome], listed: Mapping[Case, int]) -> list[str]:
    """Tell what is wrong of one device: a call each."""
    return [f"{case.id}: {cause}" for case, number in listed.items() if (cause := _fault(outcomes.get(case), number))]


def _fault(outcome: Outcome | None, listed: int) -> str:
    if outcome is None:
        return "was not compiled"
    if outcome.cause:
        return outcome.cause
    for fact in outcome.facts:
        if fact.failure is not None and fact.failure.kind != TOO_LARGE:
            return f"{fact.config}: {fact.failure.kind}: {fact.failure.message}"
    if len(outcome.facts) < listed:
        return f"{len(outcome.facts)} configurations were compiled, and the list has {listed}"
    return "" if any(fact.failure is None for fact in outcome.facts) else "no configuration fits"


def row(device: str, outcomes: Mapping[Case, Outcome]) -> tuple[str, ...]:
    """Sum up what became of the calls on one device."""
    facts = [fact for outcome in outcomes.values() for fact in outcome.facts]
    fitting = [fact for fact in facts if fact.failure is None]
    return (
        device,
        find_device(device).architecture,
        str(len(outcomes)),
        str(len(facts)),
        str(len(fitting)),
        str(len(facts) - len(fitting)),
        str(sum(bool(fact.spill_bytes) for fact in fitting)),
    )


def told(found: Mapping[str, Mapping[Case, Outcome]]) -> str:
    """Return the table, with what it was compiled by, and when."""
    rows = [row(device, outcomes) for device, outcomes in found.items()]
    today = dt.datetime.now(tz=dt.UTC).date()
    return f"triton {triton.__version__}, {today}:\n\n{table(HEADS, rows, left=2)}"


def main(arguments: list[str]) -> int:
    """Compile, tell, and return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m evidence.architectures",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--device", default=",".join(DEVICES), metavar="NAME,...", help="GPUs to compile for (all)")
    parser.add_argument("--page", type=Path, help="whose table is written")
    options = parser.parse_args(arguments)
    devices = tuple(options.device.split(","))
    if options.page and devices != DEVICES:
        parser.error("the page tells of all devices: leave out --device, or --page")
    listed = every_case()
    os.environ["FLOPWATCH_AUTOTUNE"] = "all"  # no table, rule or prediction stands before a list
    try:
        with Progress(Console(stderr=True)) as progress:
            progress.step(f"compiling for {', '.join(devices)}")
            found = compile_all(devices, tuple(listed), progress.cases)
    except FlopwatchError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    text = told(found)
    print(text)  # noqa: T201 - what was asked for
    wrong = [f"{device}: {fault}" for device, outcomes in found.items() for fault in faults(outcomes, listed)]
    for fault in wrong:
        sys.stderr.write(f"{fault}\n")
    if options.page and not wrong:
        page = options.page.read_text(encoding="utf-8")
        options.page.write_text(filled(page, {"architectures": text}), encoding="utf-8")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

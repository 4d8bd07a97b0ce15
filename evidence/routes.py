"""What the races found, as a table that public functions read: ``choose RESULT.json`` of the experiments of kernels.

A winner is chosen for the calls that it was raced on if it is faster than the plain kernel by more than what makes up
for what it costs beside: by the lower of the 99 % bounds, on samples that chose nothing; otherwise the table has the
plain kernel for them. All of a race were right against float64 before they were timed. Earlier choices for the same
calls are replaced, but for those of another Triton (`flopwatch.kernels.known`).
"""

from __future__ import annotations

import math
import os
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol

from evidence.race import FINAL_ROUNDS, Experiment
from flopwatch.compare.result import Speed
from flopwatch.kernels import routes
from flopwatch.kernels.known import PLAIN, TABLES, version_of
from flopwatch.model import to_json
from flopwatch.tune.table import Entry, Table, read_table

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from evidence.candidates import Findings
    from evidence.race import Outcome, Point, Ratio
    from flopwatch.model import Case, Choice

#: A winner is faster by more than this. Gluon is another language, which changes with each Triton: its kernels have to
#: be worth it, by 3 %. Of plain Triton's, what the gate would not notice does not count (`flopwatch.gate.choices.TIE`).
GLUON_GAIN, TRITON_GAIN = 0.03, 0.004
GAINS = MappingProxyType(
    {
        "hopper_matmul_kernel": GLUON_GAIN,
        "hopper_short_kernel": GLUON_GAIN,
        "hopper_attention_kernel": GLUON_GAIN,
        "thin_matmul_kernel": TRITON_GAIN,
    }
)
#: Beside the tables of autotuned kernels, which a gate can pin.
TABLE = TABLES / "routes.json"


class RoutedExperiment(Experiment, Protocol):
    """One whose winners public functions may take."""

    def case(self, point: Point) -> Case:
        """Return the case whose calls are those of a point."""

    def route(self, point: Point, winner: str) -> Choice | None:
        """Return what these calls take for a winner; None where no call is like the race, or the winner is gone."""


def take_plain_kernels() -> None:
    """Have public functions take plain kernels, here and in processes that are started, from their first calls on."""
    os.environ[routes.KERNELS_VARIABLE] = PLAIN


def choose(findings: Findings, experiment: RoutedExperiment, command: str, path: Path = TABLE) -> Iterator[str]:
    """Write the winners into the table, and say of each point what comes of it.

    Args:
        findings: of the races.
        experiment: whose they are.
        command: that derives the table again.
        path: of the table.
    """

    def place_of(gpu: str, versions: Mapping[str, str], case: Case) -> tuple[str, tuple[int, int], Case]:
        return gpu, version_of(versions["triton"]), case

    known = read_table(path).entries if path.exists() else ()
    entries = {place_of(entry.gpu, entry.versions, entry.case): entry for entry in known}
    for outcome in findings.outcomes:
        case = experiment.case(outcome.point)
        place = place_of(findings.about["gpu"], findings.about, case)
        entries.pop(place, None)
        choice = experiment.route(outcome.point, outcome.winner) if outcome.winner else None
        ratio = next((one for one in outcome.ratios if one.peer == PLAIN), None)
        if choice is None or ratio is None:
            why = f"{outcome.winner} cannot be taken" if outcome.winner else outcome.reason
            yield f"{outcome.point.name}: plain; {why}"
            continue
        if ratio.lower <= 1 + GAINS[choice.kernel]:
            choice = replace(choice, kernel=PLAIN, config=PLAIN)
        entries[place] = _entry(case, choice, ratio, outcome, findings, command)
        speed = f"{ratio.speed:.3f} [{ratio.lower:.3f}, {ratio.upper:.3f}] of the plain kernel's speed"
        yield f"{outcome.point.name}: {choice.kernel}; {outcome.winner} has {speed}"
    path.write_bytes(to_json(Table(entries=tuple(entries.values())), indent=2) + b"\n")


def _entry(  # noqa: PLR0917 - private
    case: Case, choice: Choice, ratio: Ratio, outcome: Outcome, findings: Findings, command: str
) -> Entry:
    about = dict(findings.about)
    estimate, lower, upper = (math.log(value) for value in (ratio.speed, ratio.lower, ratio.upper))
    gain = Speed(estimate=estimate, lower=lower, upper=upper, pairs=FINAL_ROUNDS)
    is_plain = choice.kernel == PLAIN
    taken = PLAIN if is_plain else outcome.winner
    return Entry(
        case=case,
        choices=(choice,),
        listed=False,  # of no autotuner's list: a gate cannot pin it
        seconds=next(entry.seconds for entry in outcome.entries if entry.name == taken),
        instead_of=PLAIN,
        gain=None if is_plain else gain,
        first_pass=None,
        date=findings.date,
        gpu=about.pop("gpu"),
        versions=about,
        command=command,
    )

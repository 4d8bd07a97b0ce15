"""Whether a predicted short list holds the fastest configuration: ``python -m evidence.prediction``, into the page.

The judge is what tuners timed on an H200: each candidate of each shape, in the processes of a gate. Three more commands
make what is judged:

    python -m evidence.prediction record GATE.json ...    # keep what the tuners of base timed, from results of gates
    python -m evidence.prediction fit                     # the rates of the model, from what is kept
    python -m evidence.prediction table                   # the table of choices that flopwatch ships, likewise

The gates have to run with ``FLOPWATCH_AUTOTUNE=all``: else what the table has is not timed, and of the rest three are.
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections import defaultdict
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from evidence.descent import descended
from evidence.page import filled, table
from flopwatch.gate.result import GateResult
from flopwatch.kernels.configs import MATMUL_AUTOTUNE, MatmulConfig
from flopwatch.kernels.known import TABLES
from flopwatch.kernels.prediction import HOPPER, TOP_K, Rates, matmul_us
from flopwatch.kernels.tuner import TIE
from flopwatch.model import Case, Choice, from_json, to_json
from flopwatch.static.devices import DEVICES
from flopwatch.tune.space import settings_of
from flopwatch.tune.table import Entry, Table

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "kernels.md"
#: The part of the page that is written by this.
PART = "prediction"
RECORDED = ROOT / "evidence" / "h200" / "tunings-2026-11-22.json"
GPU = DEVICES["h200"]
KERNEL = "matmul_kernel"
#: The suites whose operands are laid out by rows.
ROW_MAJOR = ("Matmul", "MatmulSizes", "Float32Matmul")
#: A list that loses less than this in every tuning that was recorded has what matters.
MOST_LOSS = 0.005
#: Of the fit: tries, and the parts of the shapes of which each is left out once.
TRIES = 1500
PARTS = 5


@dataclass(frozen=True, kw_only=True, slots=True)
class Tuned:
    """What one tuner timed: `choice` has the time of each candidate."""

    case: Case
    choice: Choice


@dataclass(frozen=True, kw_only=True, slots=True)
class Recording:
    """What the tuners of one gate timed, of its base.

    Attributes:
        gpu: its name.
        driver: of the GPU.
        versions: of Python, torch, Triton and so on.
        date: of the gate.
        commit: the base.
        tunings: one for each case and kernel.
    """

    gpu: str
    driver: str
    versions: dict[str, str]
    date: str
    commit: str
    tunings: tuple[Tuned, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Recordings:
    """All that is kept."""

    recordings: tuple[Recording, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Shape:
    """One product of matrices and the times of its candidates in each process that tuned it, in microseconds."""

    M: int
    N: int
    K: int
    times: tuple[dict[MatmulConfig, float], ...]

    def typical(self) -> dict[MatmulConfig, float]:
        """Return the median of each candidate."""
        return {config: statistics.median(times[config] for times in self.times) for config in self.times[0]}


def main(arguments: Sequence[str] | None = None) -> None:
    """Do what the command line asks."""
    parser = argparse.ArgumentParser(prog="python -m evidence.prediction", description=__doc__)
    steps = parser.add_subparsers(dest="step")
    record = steps.add_parser("record")
    record.add_argument("gates", nargs="+", type=Path)
    record.add_argument("--date", required=True, action="append", help="of each gate")
    steps.add_parser("fit")
    steps.add_parser("table")
    asked = parser.parse_args(arguments)
    if asked.step == "record":
        gates = [from_json(path.read_bytes(), GateResult) for path in asked.gates]
        found = Recordings(recordings=tuple(map(recording, gates, asked.date)))
        RECORDED.write_bytes(to_json(found) + b"\n")
        return
    recordings = from_json(RECORDED.read_bytes(), Recordings).recordings
    match asked.step:
        case "fit":
            print(*told_fit(shapes_of(recordings)), sep="\n")  # noqa: T201 - what was asked for
        case "table":
            (TABLES / "h200.json").write_bytes(to_json(table_of(recordings), indent=2) + b"\n")
        case _:
            text = "\n".join(lines(recordings))
            PAGE.write_text(filled(PAGE.read_text(encoding="utf-8"), {PART: text}), encoding="utf-8")


def recording(gate: GateResult, date: str) -> Recording:
    """Take what the tuners of a gate's base timed."""
    gpu = gate.machine.gpu if gate.machine else None
    tunings = tuple(
        Tuned(case=verdict.case, choice=replace(choice, timings_us=_rounded(choice.timings_us)))
        for verdict in gate.verdicts
        for choice in verdict.base.choices
        if choice.timings_us
    )
    return Recording(
        gpu=gate.gpu or "",
        driver=(gpu.driver if gpu else None) or "",
        versions=gate.versions,
        date=date,
        commit=gate.base,
        tunings=tunings,
    )


def _rounded(timings_us: dict[str, float]) -> dict[str, float]:
    return {config: round(time_us, 3) for config, time_us in timings_us.items()}


def shapes_of(recordings: Iterable[Recording]) -> list[Shape]:
    """Return the products that were tuned, each case once for every list of candidates that it had."""
    found = defaultdict(list)
    for one in recordings:
        for tuned in one.tunings:
            if tuned.choice.kernel == KERNEL:
                times = {config_of(text): time_us for text, time_us in tuned.choice.timings_us.items()}
                found[tuned.case.id, tuned.choice.key, frozenset(times)].append(times)
    return [
        Shape(**dict(zip("MNK", map(int, key.split(", ")[:3]), strict=True)), times=tuple(times))
        for (_, key, _), times in found.items()
    ]


def config_of(text: str) -> MatmulConfig:
    """Return the configuration that Triton writes like this."""
    settings = settings_of(text)
    return MatmulConfig(
        block_m=int(settings["BLOCK_M"]),
        block_n=int(settings["BLOCK_N"]),
        block_k=int(settings["BLOCK_K"]),
        group_m=int(settings["GROUP_M"]),
        num_warps=int(settings["num_warps"]),
        num_stages=int(settings["num_stages"]),
    )


def predicted_us(shape: Shape, config: MatmulConfig, rates: Rates = HOPPER) -> float:
    """Predict a shape's time on the GPU that recorded it."""
    sizes = (shape.M, shape.N, shape.K)
    return matmul_us(*sizes, config, sms=GPU.sms, shared_bytes=GPU.shared_bytes_per_sm, rates=rates)


def losses(shape: Shape, kept: int, rates: Rates = HOPPER) -> list[float]:
    """Return by how much the best of the short list is slower than the best of all, in each process."""
    order = sorted(shape.times[0], key=lambda config: predicted_us(shape, config, rates))
    return [min(times[config] for config in order[:kept]) / min(times.values()) - 1 for times in shape.times]


def lines(recordings: Sequence[Recording]) -> list[str]:
    """Write the part of the page."""
    shapes = shapes_of(recordings)
    long = [shape for shape in shapes if len(shape.times[0]) > TOP_K]
    tunings = sum(len(shape.times) for shape in long)
    first = recordings[0]
    versions = ", ".join(f"{name} {version}" for name, version in first.versions.items())
    commits = ", ".join(dict.fromkeys(one.commit[:8] for one in recordings))
    rows = []
    for kept in range(1, len(MATMUL_AUTOTUNE)):
        lost = [loss for shape in long for loss in losses(shape, kept)]
        within = sum(loss <= MOST_LOSS for loss in lost)
        shares = (f"{100 * number / tunings:.0f} %" for number in (lost.count(0), within))
        rows.append([str(kept), *shares, f"{100 * max(lost):.1f} %"])
    head = ["Timed", "Has the fastest", f"Loses {100 * MOST_LOSS:.1f} % at most", "Loses at most"]
    errors = [
        abs(math.log(predicted_us(shape, config) / time_us))
        for shape in long
        for config, time_us in shape.typical().items()
    ]
    dates = " and ".join(sorted({one.date for one in recordings}))
    off = f"{100 * statistics.median(errors):.0f} %"
    return [
        f"{first.gpu}, {dates}; {versions}; commits {commits}.",
        f"{tunings} tunings of {len(long)} shapes that had more than {TOP_K} candidates; half of the predictions are",
        f"within {off} of the time.",
        "",
        table(head, rows, left=0),
    ]


def table_of(recordings: Sequence[Recording]) -> Table:
    """Return what is chosen for each key that was recorded, as `flopwatch tune` writes it.

    Of configurations that are as fast as the fastest, by the median of all processes, the first in declared order is
    taken, so that a choice does not flip with the next recording.
    """
    newest = max(recordings, key=lambda one: one.date)
    found: dict[str, list[Tuned]] = defaultdict(list)
    for one in (newest, *recordings):
        for tuned in one.tunings:
            if tuned.case.suite in ROW_MAJOR and (one is newest or tuned.choice.key in found):
                found[tuned.choice.key].append(tuned)
    entries = []
    for key, tunings in found.items():
        config = _fastest([tuned.choice.timings_us for tuned in tunings])
        entry = Entry(
            case=tunings[0].case,
            choices=(Choice(kernel=KERNEL, config=config, key=key),),
            listed=True,
            seconds=None,
            instead_of=config,
            gain=None,
            first_pass=None,
            date=newest.date,
            gpu=newest.gpu,
            versions=newest.versions,
            command="python -m evidence.prediction table",
        )
        entries.append(entry)
    return Table(entries=tuple(entries))


def _fastest(timings_us: Sequence[dict[str, float]]) -> str:
    losses = {
        text: statistics.median(times[text] / min(times.values()) for times in timings_us) for text in timings_us[0]
    }
    order = [config for config in MATMUL_AUTOTUNE if config in {config_of(text) for text in losses}]
    tied = [text for text, loss in losses.items() if loss <= min(losses.values()) * (1 + TIE)]
    return min(tied, key=lambda text: order.index(config_of(text)))


def told_fit(shapes: Sequence[Shape]) -> list[str]:
    """Fit the rates, and tell what a fit to four fifths of the shapes loses on the others."""
    rates, error = fitted(shapes)
    lost = []
    for part in range(PARTS):
        others, _ = fitted([shape for index, shape in enumerate(shapes) if index % PARTS != part])
        lost += [loss for shape in shapes[part::PARTS] for loss in losses(shape, TOP_K, others)]
    return [
        *(f"{name}={value:.4g}" for name, value in asdict(rates).items()),
        f"typical error {100 * error:.1f} %",
        f"on shapes that were left out the first {TOP_K} lose {100 * max(lost):.2f} % at most",
    ]


def fitted(shapes: Sequence[Shape]) -> tuple[Rates, float]:
    """Return the rates that explain the times best, those of candidates near the fastest above all."""
    known = [
        (shape, config, time_us, max(0.05, min(1.0, (1.35 - time_us / min(shape.typical().values())) / 0.35)))
        for shape in shapes
        for config, time_us in shape.typical().items()
        if len(shape.times[0]) == len(MATMUL_AUTOTUNE)
    ]
    weight = sum(share for *_, share in known)

    def error(rates: Rates) -> float:
        return math.sqrt(
            sum(
                share * math.log(predicted_us(shape, config, rates) / time_us) ** 2
                for shape, config, time_us, share in known
            )
            / weight
        )

    names = [name for name in asdict(HOPPER) if name != "memory_bytes"]  # which was measured by itself
    return descended(HOPPER, error, names, tries=TRIES)


if __name__ == "__main__":
    main()

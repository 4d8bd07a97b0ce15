"""What is found: slowdowns planted in recorded pairs, decided by both stages.

Each case in its turn is made slower by a constant factor while all others stay as they were recorded, with the errors
of its own pairs. That is a shift of recorded samples, not a slower kernel; where `evidence.record_power` has recorded
kernels that a spin on the GPU slowed, those pairs are decided as well.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from evidence.pool import processes
from evidence.replay import Draw, Planted, Screening
from evidence.samples import Origin, Samples
from flopwatch.model import Mark
from flopwatch.stats import Design, Stage, decide
from flopwatch.stats.prior import FloatArray

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray


SEED = 20261122
#: Runs of each case and slowdown: 300 found of 300 are 99 % or more, with 95 % confidence.
RUNS = 300
CHUNK = 10
#: Margin -> the slowdowns that are planted, both as shares.
GRID = {0.005: (0.005, 0.0075, 0.01, 0.015, 0.02, 0.05), 0.0: (0.0025, 0.005, 0.01)}
#: Every so manyth planted run is decided by `decide` too, and the answers must agree.
AUDIT = 500


@dataclass(frozen=True, kw_only=True, slots=True)
class Detection:
    """How often one slowdown was found, in each case.

    Attributes:
        margin: of every case, as a share.
        slowdown: likewise.
        runs: planted in each case.
        found: runs in which that case was called slower, of each case.
    """

    margin: float
    slowdown: float
    runs: int
    found: tuple[int, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class SpinDetection:
    """How often a case that spins on the GPU was found.

    Attributes:
        case: its identity.
        time_us: of a call of base.
        asked: the slowdown asked for, as a share.
        calibrated: what the spin was calibrated to add, as a share of the time of base.
        measured: the mean over the recorded pairs.
        pairs: recorded.
        margin: of every case, as a share.
        runs: decided.
        found: in which the case was called slower.
    """

    case: str
    time_us: float
    asked: float
    calibrated: float
    measured: float
    pairs: int
    margin: float
    runs: int
    found: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Power:
    """All of it. `audited` runs were decided by `decide` too."""

    origin: Origin
    design: Design
    cases: tuple[str, ...]
    time_us: tuple[float, ...]
    detections: tuple[Detection, ...]
    audited: int
    spin_origins: tuple[Origin, ...]
    spins: tuple[SpinDetection, ...]


def make(path: Path, runs: int, spins: Sequence[Path] = ()) -> Power:
    """Plant every slowdown of the grid in every case, `runs` times, and decide what was recorded in `spins`."""
    samples = Samples.load(path)
    table = samples.log_ratios()
    design = Design()
    detections: list[Detection] = []
    audited = 0
    with processes() as pool:
        for margin, slowdowns in GRID.items():
            job = partial(plant, table, design, (margin, slowdowns), CHUNK)
            found, checks = zip(*pool.map(job, range(-(-runs // CHUNK))), strict=True)
            audited += sum(checks)
            for slowdown, counts in zip(slowdowns, np.sum(found, axis=0).tolist(), strict=True):
                detections.append(
                    Detection(
                        margin=margin, slowdown=slowdown, runs=-(-runs // CHUNK) * CHUNK, found=tuple(map(int, counts))
                    )
                )
        recorded = [(spin, Samples.load(spin)) for spin in spins]
        series = [each for _, slowed in recorded for each in spin_series(slowed)]
        spun = list(pool.map(partial(plant_spin, table, samples.cases, design, runs), series))
    return Power(
        origin=samples.origin(path),
        design=design,
        cases=samples.cases,
        time_us=tuple(samples.time_us().tolist()),
        detections=tuple(detections),
        audited=audited,
        spin_origins=tuple(slowed.origin(spin) for spin, slowed in recorded),
        spins=tuple(detection for detections in spun for detection in detections),
    )


def plant(
    table: FloatArray, design: Design, cell: tuple[float, Sequence[float]], runs: int, seed: int
) -> tuple[NDArray[np.intp], int]:
    """Make each case slower in its turn, with the margin and by the slowdowns of `cell`.

    Returns:
        How often it was found, (slowdowns, cases), and how many of the answers were audited.
    """
    margin, slowdowns = cell
    rng = np.random.default_rng([SEED, seed])
    rows = range(len(table))
    found = np.zeros((len(slowdowns), len(table)), dtype=np.intp)
    audited = asked = 0
    for _ in range(runs):
        clean = Draw(table, rng)(rows, design.pairs)
        screening = Screening(design, np.full(len(table), math.log1p(margin)), clean)
        for index, slowdown in enumerate(slowdowns):
            for row in rows:
                planted = Planted(row=row, log_ratio=math.log1p(slowdown))
                answer = found_by(screening, planted, table, rng)
                found[index, row] += answer
                asked += 1
                if asked % AUDIT == seed % AUDIT:
                    audit(screening, planted, table, rng)
                    audited += 1
    return found, audited


def found_by(screening: Screening, planted: Planted, table: FloatArray, rng: np.random.Generator) -> bool:
    """Tell whether both stages find the planted slowdown; stage 2 draws its own pairs."""
    return screening.found(planted.on(Draw(table, rng), rng))


def audit(screening: Screening, planted: Planted, table: FloatArray, rng: np.random.Generator) -> None:
    """Ask `decide` the same question, with the same draws.

    Raises:
        AssertionError: it answers otherwise.
    """
    seed = int(rng.integers(2**32))
    quick = found_by(screening, planted, table, np.random.default_rng(seed))
    again = np.random.default_rng(seed)
    fresh = planted.on(Draw(table, again), again)
    taken = 0

    def sample(rows: Sequence[int], pairs: int, stage: Stage) -> FloatArray:
        """Return the clean table in stage 1, then fresh pairs."""
        nonlocal taken
        if stage is not Stage.SCREEN:
            return fresh(rows, pairs)
        part = screening.table[:, taken : taken + pairs].copy()
        part[planted.row] = part[planted.row] + planted.log_ratio
        taken += pairs
        return part

    # Settling, which comes last and only ever says SAME, is left out: its pairs were not drawn.
    decided = decide(replace(screening.design, settle_pairs=0), screening.margins.tolist(), sample)
    slow = decided.series[planted.row].mark is Mark.SLOWER
    if quick is not slow:
        raise AssertionError(f"decide says {slow} of {planted}, the screening {quick}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Spin:
    """A case as it was recorded with a spin appended; see `SpinDetection`."""

    case: str
    time_us: float
    asked: float
    calibrated: float
    log_ratios: FloatArray


def spin_recordings(path: Path) -> list[Path]:
    """Return the recordings of kernels that spin beside this one, ``spin-DATE*.npz`` of the newest date."""
    found = sorted(path.parent.glob("spin-*.npz"))
    return [spin for spin in found if spin.name.startswith(found[-1].name[: len("spin-2026-11-23")])]


def spin_series(samples: Samples) -> list[Spin]:
    """Return what `evidence.record_power` recorded: base is slot 0, head slot 1."""
    table = samples.log_ratios()
    base_us = 1e6 * np.nanmedian(samples.seconds[:, :, 0].astype(np.float64), axis=(0, 2, 3, 4))
    return [
        Spin(
            case=planted["case"],
            time_us=float(base_us[row]),
            asked=planted["asked"],
            calibrated=planted["calibrated"],
            log_ratios=table[row][np.isfinite(table[row])],
        )
        for row, planted in enumerate(samples.about["planted"])
    ]


def plant_spin(table: FloatArray, cases: tuple[str, ...], design: Design, runs: int, spin: Spin) -> list[SpinDetection]:
    """Decide runs in which one case's pairs are those that were recorded with a spin, for every margin below it."""
    rng = np.random.default_rng(SEED)
    row = cases.index(spin.case)
    planted = Planted(row=row, recorded=spin.log_ratios)
    detections = []
    for margin in GRID:
        if spin.asked <= margin:
            continue
        found = 0
        for _ in range(runs):
            clean = Draw(table, rng)(range(len(table)), design.pairs)
            screening = Screening(design, np.full(len(table), math.log1p(margin)), clean)
            found += found_by(screening, planted, table, rng)
        detections.append(
            SpinDetection(
                case=spin.case,
                time_us=spin.time_us,
                asked=spin.asked,
                calibrated=spin.calibrated,
                measured=math.expm1(float(spin.log_ratios.mean())),
                pairs=len(spin.log_ratios),
                margin=margin,
                runs=runs,
                found=found,
            )
        )
    return detections

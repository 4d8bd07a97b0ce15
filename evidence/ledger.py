"""The ledger: recorded pairs of equal code, decided again thousands of times."""

from __future__ import annotations

import collections
import math
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from evidence.pool import processes
from evidence.replay import Draw, Scheme
from evidence.samples import Origin, Samples, further_recordings
from flopwatch.model import Mark
from flopwatch.stats import Design, Prior, decide, detectable, fit_prior, p_slower

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from flopwatch.stats.prior import FloatArray

SEED = 20261121
RUNS = 3000
#: Runs that one process decides at a time, from a seed of their own.
CHUNK = 50
#: The shipped margin, and none.
MARGINS = (0.005, 0.0)
#: Bins of the smallest p-value of a run.
BINS = 20


@dataclass(frozen=True, kw_only=True, slots=True)
class CleanRuns:
    """What runs of equal code were told.

    Attributes:
        margin: of every case, as a share.
        runs: how many.
        slower: runs in which anything was called slower, a false alarm.
        faster: likewise faster.
        marks: series by mark, over all runs.
        pairs: of all cases, over all runs.
        settle_pairs: further ones of single cases, likewise.
        confirmed: runs that had a stage 2.
        unsure: runs in which a case stayed unsure, for each case.
    """

    margin: float
    runs: int
    slower: int
    faster: int
    marks: dict[str, int]
    pairs: int
    settle_pairs: int
    confirmed: int
    unsure: tuple[int, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class FirstStage:
    """Stage 1 by itself, all its pairs and no margin: the one level that is coarse enough to be seen in so many runs.

    `bins` counts the smallest adjusted p-value of a run, in equal bins from 0 to 1.
    """

    scheme: str
    runs: int
    flagged: int
    bins: tuple[int, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class CaseNoise:
    """How far apart equal code came out. Deviations and the like are log ratios; None was not measured.

    Attributes:
        case: its identity.
        pairs: of processes that ran it, in all recordings.
        time_us: of a call.
        deviation: root mean square of a pair's log ratio, nothing cut.
        alone: the same of the pairs of each recording that has some, from the largest to the least.
        largest: of a pair's, in magnitude.
        detectable: the slowdown that is found with 95 % probability with the margin of 0.5 %, by that deviation.
        launch_us: what a call costs the host.
        launch_deviation: of that, likewise.
    """

    case: str
    pairs: int
    time_us: float
    deviation: float
    alone: tuple[float, ...]
    largest: float
    detectable: float
    launch_us: float | None
    launch_deviation: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Ledger:
    """All of it.

    Attributes:
        origin: of the samples.
        design: that decided.
        cases: their noise.
        prior: fitted to all pairs.
        halves: fitted to every second pair, and to the others.
        clean: runs of equal code.
        first: stage 1 by itself.
        further: of further samples, which tell of the noise alone.
    """

    origin: Origin
    design: Design
    cases: tuple[CaseNoise, ...]
    prior: Prior
    halves: tuple[Prior, Prior]
    clean: tuple[CleanRuns, ...]
    first: tuple[FirstStage, ...]
    further: tuple[Origin, ...] = ()


def make(path: Path, runs: int) -> Ledger:
    """Decide `runs` runs for each margin, and fit a prior."""
    samples = Samples.load(path)
    more = {other: Samples.load(other) for other in further_recordings(path)}
    table = samples.log_ratios()
    design = Design()
    chunks = -(-runs // CHUNK)
    with processes() as pool:
        clean = [
            merge(list(pool.map(partial(clean_runs, table, design, margin, CHUNK), range(chunks))))
            for margin in MARGINS
        ]
        first = list(pool.map(partial(first_stage, table, design, -(-runs // 3)), Scheme))
    return Ledger(
        origin=samples.origin(path),
        further=tuple(others.origin(other) for other, others in more.items()),
        design=design,
        cases=noise(samples, design, further=tuple(more.values())),
        prior=fit_prior(table),
        halves=(fit_prior(table[:, ::2]), fit_prior(table[:, 1::2])),
        clean=tuple(clean),
        first=tuple(first),
    )


def clean_runs(table: FloatArray, design: Design, margin: float, runs: int, seed: int) -> CleanRuns:
    """Decide runs of equal code with the gate's own `decide`."""
    rng = np.random.default_rng([SEED, seed])
    marks: collections.Counter[str] = collections.Counter()
    slower = faster = pairs = settle_pairs = confirmed = 0
    unsure = np.zeros(len(table), dtype=np.intp)
    for _ in range(runs):
        found = decide(design, [math.log1p(margin)] * len(table), Draw(table, rng))
        said = [series.mark for series in found.series]
        marks.update(mark.value for mark in said)
        everything = {*said, found.suite.mark} if found.suite else set(said)
        slower += Mark.SLOWER in everything
        faster += Mark.FASTER in everything
        pairs += found.pairs
        settle_pairs += found.settle_pairs
        confirmed += bool(found.confirm_pairs)
        unsure += [mark is Mark.UNSURE for mark in said]
    return CleanRuns(
        margin=margin,
        runs=runs,
        slower=slower,
        faster=faster,
        marks=dict(sorted(marks.items())),
        pairs=pairs,
        settle_pairs=settle_pairs,
        confirmed=confirmed,
        unsure=tuple(unsure.tolist()),
    )


def merge(parts: list[CleanRuns]) -> CleanRuns:
    """Add up."""
    marks: collections.Counter[str] = collections.Counter()
    for part in parts:
        marks.update(part.marks)
    return CleanRuns(
        margin=parts[0].margin,
        runs=sum(part.runs for part in parts),
        slower=sum(part.slower for part in parts),
        faster=sum(part.faster for part in parts),
        marks=dict(sorted(marks.items())),
        pairs=sum(part.pairs for part in parts),
        settle_pairs=sum(part.settle_pairs for part in parts),
        confirmed=sum(part.confirmed for part in parts),
        unsure=tuple(np.sum([part.unsure for part in parts], axis=0).tolist()),
    )


def first_stage(table: FloatArray, design: Design, runs: int, scheme: Scheme) -> FirstStage:
    """Test runs of equal code once each, after all pairs of stage 1, without a margin."""
    rng = np.random.default_rng(SEED)
    rows = range(len(table))
    smallest = np.array(
        [p_slower(Draw(table, rng, scheme)(rows, design.pairs), design.prior).min() for _ in range(runs)]
    )
    bins, _ = np.histogram(smallest, bins=BINS, range=(0, 1))
    return FirstStage(
        scheme=scheme.value,
        runs=runs,
        flagged=int((smallest <= design.alpha).sum()),
        bins=tuple(bins.tolist()),
    )


def noise(samples: Samples, design: Design, *, further: Sequence[Samples] = ()) -> tuple[CaseNoise, ...]:
    """Describe what equal code came out as, case by case, in these pairs and in further ones of the same cases."""
    recorded = (samples, *further)
    times, launches = (
        _gathered(samples.cases, recorded, ratios) for ratios in (Samples.log_ratios, Samples.launch_log_ratios)
    )
    deviations = np.array([_deviation(np.concatenate(parts)) for parts in times])
    margins = np.full(len(deviations), math.log1p(MARGINS[0]))
    limits = detectable(design, series=len(deviations), margins=margins, deviations=deviations)
    found = []
    for index, (case, time_us) in enumerate(zip(samples.cases, samples.time_us().tolist(), strict=True)):
        ratios, of_launches = np.concatenate(times[index]), np.concatenate(launches[index])
        launch_us = launch_deviation = None
        if len(of_launches):
            launch_us = 1e6 * float(np.nanmedian(samples.launch_seconds[:, index].astype(np.float64)))
            launch_deviation = _deviation(of_launches)
        found.append(
            CaseNoise(
                case=case,
                pairs=len(ratios),
                time_us=time_us,
                deviation=float(deviations[index]),
                alone=tuple(sorted(map(_deviation, filter(len, times[index])), reverse=True)),
                largest=float(abs(ratios).max()),
                detectable=float(limits[index]),
                launch_us=launch_us,
                launch_deviation=launch_deviation,
            )
        )
    return tuple(found)


def _gathered(
    cases: Sequence[str], recorded: Sequence[Samples], ratios: Callable[[Samples], FloatArray]
) -> list[list[FloatArray]]:
    """Return the log ratios of each case in each recording that has it, without those that could not be used."""
    found: list[list[FloatArray]] = [[] for _ in cases]
    for samples in recorded:
        rows = dict(zip(samples.cases, ratios(samples), strict=True))
        for case, entries in zip(cases, found, strict=True):
            if case in rows:
                entries.append(rows[case][np.isfinite(rows[case])])
    return found


def _deviation(ratios: FloatArray) -> float:
    return float(np.sqrt(np.mean(ratios**2)))

"""Recorded samples of pairs, compact enough to be kept: one compressed NumPy file a recording."""

from __future__ import annotations

import hashlib
import json
import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from flopwatch.measure.pair import launch_log_ratio, log_ratio

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from flopwatch.measure.pair import Cycles, PairSample, Turns

FOLDER = Path(__file__).parent
#: float32 keeps 1 part in 16 million, a step of the clock of events 1 part in 10 000.
SAMPLE_DTYPE = np.float32
#: A file keeps whole steps of a clock, a third the size of floats: that of CUDA events, 32 ns on an H200 (every sample
#: of 23 pairs of 66 cases was a multiple within 0.2 ns, 2026-11-21), and 10 ns of the host, 0.01 % of a launch.
EVENT_STEP_SECONDS = 32e-9
HOST_STEP_SECONDS = 10e-9
#: Samples that are not whole steps to within this are kept in steps of `FINE_STEP_SECONDS`.
STEP_ERROR_SECONDS = 1e-9
FINE_STEP_SECONDS = 1e-9
#: Stands for NaN among steps.
_MISSING = -1
_AXES = 6


@dataclass(frozen=True, kw_only=True, slots=True)
class Origin:
    """Where figures come from: the recording, on what it was made, and how.

    Attributes:
        file: its name.
        sha256: of the file.
        gpu: the GPU's name.
        driver: its driver.
        versions: of Python, torch, Triton and so on.
        date: of the recording.
        command: that made it.
        pairs: of processes in it.
        commit: of the kernels that were recorded.
    """

    file: str
    sha256: str
    gpu: str
    driver: str
    versions: dict[str, str]
    date: str
    command: str
    pairs: int
    commit: str


def recordings(folder: Path = FOLDER) -> list[Path]:
    """Return the kept recordings of equal code on both sides, the newest last."""
    return sorted(folder.glob("*/aa-*.npz"), key=lambda path: path.stem)


def further_recordings(path: Path) -> list[Path]:
    """Return recordings of further pairs, of cases that are sampled as in that of `path`, by its date."""
    date = path.stem.removeprefix("aa-")
    return sorted(path.parent.glob(f"further-{date}*.npz"))


@dataclass(frozen=True, kw_only=True, slots=True)
class Samples:
    """Pairs of processes that ran every case in turns; NaN where a case could not be sampled.

    Attributes:
        cases: identities of the cases, in the order of the arrays.
        seconds: per call, (pairs, cases, 2 slots, placements, cycles, samples a cycle).
        launch_seconds: what a call costs the host, likewise.
        calls: calls in one sample, (cases,).
        about: GPU, versions, date, commit and command of the recording, and the pairs of each case that had `faults`.
    """

    cases: tuple[str, ...]
    seconds: NDArray[np.float32]
    launch_seconds: NDArray[np.float32]
    calls: NDArray[np.int32]
    about: dict[str, Any]

    def log_ratios(self) -> NDArray[np.float64]:
        """Return log(slot 1 / slot 0) as the gate computes it, (cases, pairs); NaN where it would not use the pair."""
        ratios = _each(self.seconds, log_ratio)
        for case, pairs in self.about.get("faults", {}).items():
            ratios[self.cases.index(case), pairs] = np.nan
        return ratios

    def time_us(self) -> NDArray[np.float64]:
        """Return the median time of a call, (cases,)."""
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "All-NaN slice", RuntimeWarning)  # a case that could not be sampled
            medians: NDArray[np.float64] = np.nanmedian(self.seconds.astype(np.float64), axis=(0, 2, 3, 4, 5))
        return 1e6 * medians

    def launch_log_ratios(self) -> NDArray[np.float64]:
        """Return the same of the cost to the host; NaN where it was not measured."""
        return _each(self.launch_seconds, launch_log_ratio)

    def only(self, pairs: NDArray[np.intp]) -> Samples:
        """Keep some of the pairs."""
        kept = pairs.tolist()
        faults = {
            case: [kept.index(number) for number in numbers if number in kept]
            for case, numbers in self.about.get("faults", {}).items()
        }
        return replace(
            self,
            seconds=self.seconds[pairs],
            launch_seconds=self.launch_seconds[pairs],
            about={**self.about, "faults": faults},
        )

    def without(self, cases: Collection[str]) -> Samples:
        """Leave cases out, such as those that are sampled in another way since; `about` says which."""
        kept = [index for index, case in enumerate(self.cases) if case not in cases]
        faults = {case: numbers for case, numbers in self.about.get("faults", {}).items() if case not in cases}
        return replace(
            self,
            cases=tuple(self.cases[index] for index in kept),
            seconds=self.seconds[:, kept],
            launch_seconds=self.launch_seconds[:, kept],
            calls=self.calls[kept],
            about={**self.about, "faults": faults, "left_out": sorted(cases)},
        )

    def origin(self, path: Path) -> Origin:
        """Say where these samples come from; `path` is the file they were read from."""
        machine = json.loads(self.about["machine"])
        return Origin(
            file=path.name,
            sha256=hashlib.sha256(path.read_bytes()).hexdigest(),
            gpu=machine["gpu"]["name"],
            driver=machine["gpu"]["driver"],
            versions=machine["versions"],
            date=self.about["date"],
            command=self.about["command"],
            pairs=len(self.seconds),
            commit=self.about["commit"],
        )

    def save(self, path: Path) -> None:
        """Write the recording."""
        totals = self.seconds.astype(np.float64) * _beside(self.calls)
        step = EVENT_STEP_SECONDS
        if np.nanmax(abs(totals - step * np.round(totals / step)), initial=0.0) > STEP_ERROR_SECONDS:
            step = FINE_STEP_SECONDS
        about = {"cases": self.cases, **self.about, "step_seconds": step}
        np.savez_compressed(
            path,
            steps=_planes(totals / step),
            launch_steps=_planes(self.launch_seconds.astype(np.float64) / HOST_STEP_SECONDS),
            calls=self.calls,
            about=np.frombuffer(json.dumps(about).encode(), dtype=np.uint8),
        )

    @classmethod
    def load(cls, path: Path) -> Samples:
        """Read a recording; of those that do not tell placements apart, all cycles count as of one."""
        with np.load(path) as data:
            about = json.loads(data["about"].tobytes())
            cases, calls = tuple(about.pop("cases")), data["calls"]
            steps, launch_steps = _values(data["steps"]), _values(data["launch_steps"])
        if steps.ndim == _AXES - 1:
            steps, launch_steps = steps[:, :, :, None], launch_steps[:, :, :, None]
        seconds = steps * about.pop("step_seconds") / np.maximum(_beside(calls), 1)
        launch_seconds = launch_steps * HOST_STEP_SECONDS
        return cls(
            cases=cases,
            seconds=seconds.astype(SAMPLE_DTYPE),
            launch_seconds=launch_seconds.astype(SAMPLE_DTYPE),
            calls=calls,
            about=about,
        )

    @classmethod
    def collect(cls, pairs: Sequence[dict[str, PairSample]], cases: Sequence[str], about: dict[str, Any]) -> Samples:
        """Put the samples of pairs into arrays; a case that a pair does not have becomes NaN."""
        faults = {
            case: [number for number, pair in enumerate(pairs) if case in pair and pair[case].fault] for case in cases
        }
        calls = [next((pair[case].plan.calls for pair in pairs if case in pair), 0) for case in cases]
        return cls(
            cases=tuple(cases),
            seconds=_stack([[pair[case].seconds if case in pair else None for case in cases] for pair in pairs]),
            launch_seconds=_stack(
                [[pair[case].launch_seconds if case in pair else None for case in cases] for pair in pairs]
            ),
            calls=np.array(calls, dtype=np.int32),
            about={**about, "faults": {case: numbers for case, numbers in faults.items() if numbers}},
        )


def means(values: NDArray[np.float64], axis: int) -> NDArray[np.float64]:
    """Return means of what was sampled; NaN of what was not, such as cycles and places that a case did not need."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Mean of empty slice", RuntimeWarning)
        found: NDArray[np.float64] = np.nanmean(values, axis=axis)
    return found


def _each(seconds: NDArray[np.float32], ratio: Callable[[Turns], float]) -> NDArray[np.float64]:
    """Compute the log ratio of each case and pair; NaN where a case could not be sampled."""
    ratios = np.full(seconds.shape[1::-1], np.nan)
    for pair, case in np.ndindex(seconds.shape[:2]):
        zero, one = (_cycles(slot) for slot in seconds[pair, case].astype(np.float64))
        if zero:
            ratios[case, pair] = ratio((zero, one))
    return ratios


def _cycles(placements: NDArray[np.float64]) -> tuple[Cycles, ...]:
    """Undo `_stack` for one slot."""
    taken = (tuple(tuple(cycle[np.isfinite(cycle)]) for cycle in cycles) for cycles in placements)
    return tuple(filter(None, (tuple(filter(None, cycles)) for cycles in taken)))


def _beside(calls: NDArray[np.int32]) -> NDArray[np.int32]:
    """Shape what each case has one of for the arrays of samples."""
    return calls[:, None, None, None, None]


def _planes(values: NDArray[np.float64]) -> NDArray[np.uint8]:
    """Round to integers and put their first bytes first, then their second ones: like beside like packs well."""
    whole = np.where(np.isfinite(values), np.round(values), _MISSING).astype("<i4")
    return np.ascontiguousarray(np.moveaxis(whole[..., None].view(np.uint8), -1, 0))


def _values(planes: NDArray[np.uint8]) -> NDArray[np.float64]:
    whole = np.ascontiguousarray(np.moveaxis(planes, 0, -1)).view("<i4")[..., 0]
    return np.where(whole == _MISSING, np.nan, whole.astype(np.float64))


def _stack(turns: Sequence[Sequence[Turns | None]]) -> NDArray[np.float32]:
    """Put samples side by side; placements, cycles and samples beyond those that a case had become NaN."""
    cycles = {
        (row, column, slot, placement, cycle): seconds
        for row, entries in enumerate(turns)
        for column, entry in enumerate(entries)
        for slot, placements in enumerate(entry or ())
        for placement, taken in enumerate(placements)
        for cycle, seconds in enumerate(taken)
    }
    lengths = [max((place[axis] + 1 for place in cycles), default=0) for axis in (3, 4)]
    samples = max(map(len, cycles.values()), default=0)
    stacked = np.full((len(turns), len(turns[0]), 2, *lengths, samples), np.nan, dtype=SAMPLE_DTYPE)
    for place, seconds in cycles.items():
        stacked[place][: len(seconds)] = seconds
    return stacked

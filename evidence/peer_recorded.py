"""Our kernels alone: what the recorded history of the bundled suites says of their rates, commit by commit."""

from __future__ import annotations

import datetime as dt
import json
import math
import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from evidence.peer_plots import DEVICE
from evidence.peer_shapes import SQUARES, sizes
from evidence.samples import FOLDER
from flopwatch.measure.machine import Machine
from flopwatch.record.sidecar import CaseLog, read_lines
from flopwatch.suite import discover

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

RESULTS = FOLDER.parent / "results" / DEVICE
#: Classes of cases, as they are told, and the suites of products in 16 bits.
_SIXTEEN, _EIGHT, _ATTENTION = "products in 16 bits", "products in fp8", "attention"
_PRODUCTS = frozenset({"Matmul", "MatmulSizes", "Linear", "WeightGradient"})
#: A recording is whole that has such a part of the cases that recordings have in the median.
WHOLE = 0.9
#: Suites whose rates are told.
SUITES = ("Matmul", "MatmulSizes", "Linear", "Attention", "EncoderAttention", "ImageAttention", "DecoderAttention")
#: What attention's cases call the mask where sequences of a batch end at lengths of their own.
LENGTHS = "lengths"


@dataclass(frozen=True, kw_only=True, slots=True)
class RecordedCase:
    """One case.

    Attributes:
        suite: its suite.
        values: its parameters, without the provider.
        seconds: of a call, the median.
        flops: of a call.
        bytes_moved: that a call must move.
        mean_length: of the sequences, in units of the longest; None where all are as long.
        kernels: that a call launches.
    """

    suite: str
    values: tuple[str, ...]
    seconds: float
    flops: float
    bytes_moved: float
    mean_length: float | None = None
    kernels: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The suite and the parameters."""
        return " ".join((self.suite, *self.values))

    @property
    def tflops(self) -> float:
        """The rate of the arithmetic."""
        return self.flops / self.seconds * 1e-12

    @property
    def gbps(self) -> float:
        """The rate of what must be moved."""
        return self.bytes_moved / self.seconds * 1e-9

    @property
    def square(self) -> int | None:
        """The size of a square product in float16 that is one of `SQUARES`; None of anything else."""
        is_square = (
            self.suite in ("Matmul", "MatmulSizes") and self.values[1] == "float16" and self.values[0] in SQUARES
        )
        return sizes(self.values[0])[0] if is_square else None

    @property
    def is_attention(self) -> bool:
        """Whether it is attention."""
        return _class_of(self.suite) == _ATTENTION


@dataclass(frozen=True, kw_only=True, slots=True)
class Recording:
    """What `flopwatch record` keeps of one commit beside an anchor.

    Attributes:
        commit: its hash.
        date: of the commit.
        machine: that recorded it, the last time.
        cases: of the kernels under test, by name.
    """

    commit: str
    date: dt.datetime
    machine: Machine
    cases: dict[str, CaseLog]

    @property
    def anchor(self) -> str:
        """The commit with which the last case was paired."""
        return max(self.cases.values(), key=lambda case: case.at).anchor

    @property
    def measured(self) -> dt.date:
        """The day of the last case."""
        return max(case.at for case in self.cases.values()).date()


@dataclass(frozen=True, kw_only=True, slots=True)
class Recorded:
    """What the newest commit's recording says.

    Attributes:
        history: of all commits, that one last.
        cases: its own.
    """

    history: tuple[Recording, ...]
    cases: tuple[RecordedCase, ...]

    @property
    def origin(self) -> Recording:
        """Whose the cases are."""
        return self.history[-1]

    @property
    def gpu(self) -> str:
        """The name of the GPU."""
        return self.origin.machine.gpu.name if self.origin.machine.gpu else "no GPU"


def read_recordings(folder: Path = RESULTS) -> tuple[Recording, ...]:
    """Read what was recorded beside the anchor of the newest commit, which comes last.

    What is interrupted is left out until it is whole: ratios of some cases are not those of all.
    """
    found = sorted(filter(None, map(_read, folder.glob("*.jsonl"))), key=lambda each: each.date)
    least = WHOLE * statistics.median(len(each.cases) for each in found) if found else 0
    whole = [each for each in found if len(each.cases) >= least]
    return tuple(each for each in whole if each.anchor == whole[-1].anchor)


def _read(path: Path) -> Recording | None:
    """Read what is beside asv's result; None where there is no such, or no case has a pair."""
    result = path.with_suffix(".json")
    lines = list(read_lines(path))
    sessions = [line.session for line in lines if line.session is not None]
    last = {(line.case.case, line.case.version): line.case for line in lines if line.case is not None}
    cases = {case.case: case for case in last.values() if case.anchor_seconds and case.pair_seconds}
    if not cases or not sessions or not result.exists():
        return None
    about = json.loads(result.read_text(encoding="utf-8"))
    return Recording(
        commit=about["commit_hash"],
        date=dt.datetime.fromtimestamp(about["date"] / 1000, dt.UTC),
        machine=sessions[-1].machine,
        cases=cases,
    )


def recorded(folder: Path = RESULTS) -> Recorded | None:
    """Read the recording of the newest commit; None where there is none. Operations and bytes the suites count."""
    history = read_recordings(folder)
    if not history:
        return None
    suites = discover(FOLDER.parent / "benchmarks").suites
    cases = []
    for name, case in history[-1].cases.items():
        suite, parameters = _parts(name)
        if suite in SUITES and suite in suites and case.pair_seconds:
            counts = suites[suite]()
            cases.append(
                RecordedCase(
                    suite=suite,
                    values=parameters,
                    seconds=case.pair_seconds,
                    flops=counts.flops(*parameters),
                    bytes_moved=counts.bytes_moved(*parameters),
                    mean_length=_mean_length(counts, parameters),
                    kernels=tuple(dict.fromkeys(each.kernel for each in case.compiled)),
                )
            )
    return Recorded(history=history, cases=tuple(cases))


def climb(history: Sequence[Recording]) -> dict[str, list[float]]:
    """Return for each class of cases how fast commits are in units of the anchor, the geometric mean of a commit.

    Of the cases that all of these have.
    """
    shared = [name for name in history[-1].cases if all(name in each.cases for each in history)]
    by_class: dict[str, list[str]] = {}
    for name in shared:
        by_class.setdefault(_class_of(_parts(name)[0]), []).append(name)
    return {
        f"{title}, cases: {len(by_class[title])}": [
            statistics.geometric_mean(_speed(each.cases[name]) for name in by_class[title]) for each in history
        ]
        for title in (_SIXTEEN, _EIGHT, _ATTENTION)
        if title in by_class
    }


def _class_of(suite: str) -> str:
    if suite.endswith("Attention"):
        return _ATTENTION
    if suite == "MatmulFp8":
        return _EIGHT
    return _SIXTEEN if suite in _PRODUCTS else ""


def _speed(case: CaseLog) -> float:
    return (case.anchor_seconds or math.nan) / (case.pair_seconds or math.nan)


def _parts(name: str) -> tuple[str, tuple[str, ...]]:
    """Return a case's suite and its parameters, without the provider."""
    suite, _, values = name.rstrip("]").partition("[")
    return suite, tuple(values.split(","))[:-1]


def _mean_length(suite: Any, parameters: tuple[str, ...]) -> float | None:  # noqa: ANN401 - of attention, discovered
    if parameters[-1] != LENGTHS:
        return None
    found = suite.sizes(parameters[0])
    return statistics.fmean(found.lengths()) / float(found.s)

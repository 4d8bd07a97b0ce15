"""Our kernels alone: what the recorded history of the bundled suites says of their rates, commit by commit."""

from __future__ import annotations

import datetime as dt
import json
import math
import statistics
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from evidence.peer_plots import DEVICE
from evidence.peer_shapes import SQUARES, sizes
from evidence.samples import FOLDER
from flopwatch.record.sidecar import CaseLog, SessionLog, read_lines
from flopwatch.suite import discover

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

RESULTS = FOLDER.parent / "results" / DEVICE
#: Classes of cases, by their suites.
CLASSES: Mapping[str, Callable[[str], bool]] = MappingProxyType(
    {
        "products in 16 bits": lambda suite: suite in {"Matmul", "MatmulSizes", "Linear", "WeightGradient"},
        "products in fp8": lambda suite: suite == "MatmulFp8",
        "attention": lambda suite: suite.endswith("Attention"),
    }
)
#: Suites whose rates are told: those of the kernels that have peers.
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
    """

    suite: str
    values: tuple[str, ...]
    seconds: float
    flops: float
    bytes_moved: float
    mean_length: float | None = None

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
        return self.suite.endswith("Attention")


@dataclass(frozen=True, kw_only=True, slots=True)
class Recording:
    """What `flopwatch record` keeps of one commit beside an anchor.

    Attributes:
        path: of what asv has no place for.
        commit: its hash.
        date: of the commit.
        sessions: when it was recorded and where, the newest last.
        cases: of the kernels under test, by name.
    """

    path: Path
    commit: str
    date: dt.datetime
    sessions: tuple[SessionLog, ...]
    cases: dict[str, CaseLog]


@dataclass(frozen=True, kw_only=True, slots=True)
class Recorded:
    """What the newest recording says, and whose it is."""

    origin: Recording
    cases: tuple[RecordedCase, ...]

    @property
    def gpu(self) -> str:
        """The name of the GPU."""
        gpu = self.origin.sessions[-1].machine.gpu
        return gpu.name if gpu else "no GPU"


def recordings(folder: Path = RESULTS) -> list[Recording]:
    """Read what was recorded beside an anchor, the newest commit last."""
    found = []
    for path in folder.glob("*.jsonl"):
        about = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
        lines = list(read_lines(path))
        cases = [line.case for line in lines if line.case is not None and line.case.anchor_seconds is not None]
        found.append(
            Recording(
                path=path,
                commit=about["commit_hash"],
                date=dt.datetime.fromtimestamp(about["date"] / 1000, dt.UTC),
                sessions=tuple(line.session for line in lines if line.session is not None),
                cases={case.case: case for case in cases},
            )
        )
    return sorted((each for each in found if each.cases), key=lambda each: each.date)


def recorded(folder: Path = RESULTS) -> Recorded | None:
    """Read the recording of the newest commit; None where there is none. Operations and bytes the suites count."""
    kept = recordings(folder)
    if not kept:
        return None
    suites = discover(FOLDER.parent / "benchmarks").suites
    cases = []
    for name, case in kept[-1].cases.items():
        suite, parameters = _parts(name)
        if suite in SUITES and suite in suites and case.pair_seconds is not None:
            counts = suites[suite]()
            cases.append(
                RecordedCase(
                    suite=suite,
                    values=parameters,
                    seconds=case.pair_seconds,
                    flops=counts.flops(*parameters),
                    bytes_moved=counts.bytes_moved(*parameters),
                    mean_length=_mean_length(counts, parameters),
                )
            )
    return Recorded(origin=kept[-1], cases=tuple(cases))


def climb(kept: Sequence[Recording]) -> dict[str, list[float]]:
    """Return for each class of cases how fast commits are in units of the anchor, the geometric mean of a commit.

    Of the cases that all of these have.
    """
    shared = [name for name in kept[-1].cases if all(name in each.cases for each in kept)] if kept else []
    means = {}
    for title, belongs in CLASSES.items():
        names = [name for name in shared if belongs(_parts(name)[0])]
        if names:
            means[f"{title}, {len(names)} cases"] = [
                statistics.geometric_mean(_speed(each.cases[name]) for name in names) for each in kept
            ]
    return means


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

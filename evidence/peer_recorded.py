"""Our kernels alone: what the newest recording of the bundled suites says of their rates."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from evidence.peer_shapes import SQUARES, sizes
from evidence.samples import FOLDER, Origin, Samples, recordings
from flopwatch.suite import discover

if TYPE_CHECKING:
    from pathlib import Path

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
class Recorded:
    """What a recording says, of which version."""

    origin: Origin
    commit: str
    cases: tuple[RecordedCase, ...]


def recorded(folder: Path = FOLDER) -> Recorded | None:
    """Read the newest recording; None where there is none. Operations and bytes are the suites' to count."""
    kept = recordings(folder)
    if not kept:
        return None
    samples = Samples.load(kept[-1])
    suites = discover(FOLDER.parent / "benchmarks").suites
    cases = []
    for identity, time_us in zip(samples.cases, samples.time_us().tolist(), strict=True):
        suite, _, values = identity.rstrip("]").partition("[")
        parameters = tuple(values.split(","))[:-1]
        if suite in SUITES and suite in suites and time_us == time_us:  # noqa: PLR0124 - not NaN
            counts = suites[suite]()
            cases.append(
                RecordedCase(
                    suite=suite,
                    values=parameters,
                    seconds=1e-6 * time_us,
                    flops=counts.flops(*parameters),
                    bytes_moved=counts.bytes_moved(*parameters),
                    mean_length=_mean_length(counts, parameters),
                )
            )
    return Recorded(origin=samples.origin(kept[-1]), commit=str(samples.about["commit"]).split()[0], cases=tuple(cases))


def _mean_length(suite: Any, parameters: tuple[str, ...]) -> float | None:  # noqa: ANN401 - of attention, discovered
    if parameters[-1] != LENGTHS:
        return None
    found = suite.sizes(parameters[0])
    return statistics.fmean(found.lengths()) / float(found.s)

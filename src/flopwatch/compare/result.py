"""What a comparison found out, as records that can be kept and read again."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from flopwatch.errors import ExitCode
from flopwatch.gate.result import PairLog
from flopwatch.measure.machine import Machine
from flopwatch.model import SCHEMA_VERSION, Case, Choice, Failure, Numbers


class Kind(enum.Enum):
    """What the two sides are."""

    COMMITS = "commits"
    ENVIRONMENTS = "environments"
    PROVIDERS = "providers"


@dataclass(frozen=True, kw_only=True, slots=True)
class Contender:
    """What one side says about a case.

    Attributes:
        case: what it runs.
        numbers: distance from the reference, the worst of several seeds; None where it failed.
        choices: what its autotuned kernels run in.
        seconds: per call, the median over the pairs; None where it was not measured.
        launch_seconds: what a call costs the host, likewise.
        failure: why it could not be run.
    """

    case: Case
    numbers: Numbers | None = None
    choices: tuple[Choice, ...] = ()
    seconds: float | None = None
    launch_seconds: float | None = None
    failure: Failure | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Speed:
    """How fast head is, with 99 % bounds, as log(base seconds / head seconds): positive is faster.

    The bounds are None where there are too few pairs for them.
    """

    estimate: float
    lower: float | None
    upper: float | None
    pairs: int


@dataclass(frozen=True, kw_only=True, slots=True)
class ComparedCase:
    """One case on both sides.

    Attributes:
        base: the one side.
        head: the other.
        flops: floating-point operations of one call.
        bytes_moved: bytes that one call must move.
        ceiling_eps: the error past which a result is wrong, and not timed.
        speed: head's, in units of base's; None where it was not measured.
        method: how the time was sampled, "graph" or "events".
        reason: why it was not compared.
        notes: what else is worth knowing.
    """

    base: Contender
    head: Contender
    flops: float
    bytes_moved: float
    ceiling_eps: float
    speed: Speed | None = None
    method: str = ""
    reason: str = ""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """All that a comparison found out.

    Attributes:
        kind: what the sides are.
        base: what is the one side: a commit's hash, an interpreter, a provider.
        head: likewise of the other, or "working tree".
        gpu: the GPU that measured.
        machine: what it was measured on, in detail.
        base_versions: of Python, torch, Triton, torch's CUDA and Triton's ptxas on that side.
        head_versions: likewise.
        cases: one entry for each that both sides declare.
        speed: the geometric mean over the cases.
        pairs: every pair that was measured.
        command: the line that repeats it.
        unfit: why the machine's measurements are worth nothing; "" where they are.
        interrupted: the run was stopped before all was measured.
        seconds: how long it took.
        notes: what else is worth knowing.
    """

    kind: Kind
    base: str
    head: str
    gpu: str
    machine: Machine
    base_versions: dict[str, str]
    head_versions: dict[str, str]
    cases: tuple[ComparedCase, ...]
    speed: Speed | None = None
    pairs: tuple[PairLog, ...] = ()
    command: str = ""
    unfit: str = ""
    interrupted: bool = False
    seconds: float = 0.0
    notes: tuple[str, ...] = ()
    schema_version: int = SCHEMA_VERSION

    @property
    def exit_code(self) -> int:
        """What the process should tell its caller: whether there is a comparison, not how it came out."""
        if self.unfit:
            return int(ExitCode.UNFIT)
        compared = any(case.speed is not None for case in self.cases)
        return int(ExitCode.OK if compared and not self.interrupted else ExitCode.UNDECIDED)

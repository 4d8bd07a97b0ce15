"""What a study found out, as records that can be kept and read again."""

from __future__ import annotations

from dataclasses import dataclass

from flopwatch.compare.result import Speed
from flopwatch.errors import ExitCode
from flopwatch.gate.conclusions import Verdict
from flopwatch.measure.machine import Machine
from flopwatch.model import SCHEMA_VERSION, Case, Choice, Memory, Numbers
from flopwatch.study.declaration import Conclusion


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
    """One line at one point.

    Attributes:
        case: what was run.
        line: its line.
        at: its point.
        flops: floating-point operations of one call.
        bytes_moved: bytes that one call must move.
        ceiling_eps: the error past which a result is wrong, and not timed.
        numbers: distance from the reference; None where it failed.
        memory: what a call takes and keeps of torch's memory; of each line at its first point.
        choices: what its autotuned kernels run in.
        seconds: per call, the median over the rounds; None where it was not measured.
        speed: in units of the base line's; None likewise.
        method: how the time was sampled, "graph" or "events".
        reason: why it was not measured.
    """

    case: Case
    line: str
    at: str
    flops: float
    bytes_moved: float
    ceiling_eps: float
    numbers: Numbers | None = None
    memory: Memory | None = None
    choices: tuple[Choice, ...] = ()
    seconds: float | None = None
    speed: Speed | None = None
    method: str = ""
    reason: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Round:
    """One fresh process, in which all lines took turns.

    Attributes:
        seconds: how long it took, once the process had started.
        turns: seconds per call by case, one for each cycle.
        faults: points at which nothing could be measured, with the cause.
    """

    seconds: float
    turns: dict[str, tuple[float, ...]]
    faults: dict[str, str]


@dataclass(frozen=True, kw_only=True, slots=True)
class Decision:
    """Whether a conclusion is true.

    Attributes:
        conclusion: what is to be true.
        verdict: what the rounds say.
        comparisons: of how many lines and points it is said.
        other: the line beside which the conclusion's is slowest.
        at: the point at which it is.
        speed: its speed there, in units of that line's.
        reason: why nothing can be said; "" where something can.
    """

    conclusion: Conclusion
    verdict: Verdict
    comparisons: int
    other: str = ""
    at: str = ""
    speed: Speed | None = None
    reason: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class StudyResult:
    """All that a study found out.

    Attributes:
        suite: its name.
        parameter: whose values took turns.
        across: the parameters that name the points.
        lines: in the order in which they are declared.
        points: likewise.
        base: the line in whose units speeds are.
        gpu: the GPU that measured.
        machine: what it was measured on, in detail.
        versions: of Python, torch, Triton, torch's CUDA and Triton's ptxas.
        measured: a line at a point each.
        rounds: every process.
        decisions: on the conclusions.
        command: the line that repeats it.
        unfit: why the machine's measurements are worth nothing; "" where they are.
        interrupted: the run was stopped before all was measured.
        seconds: how long it took.
        notes: what else is worth knowing.
    """

    suite: str
    parameter: str
    across: str
    lines: tuple[str, ...]
    points: tuple[str, ...]
    base: str
    gpu: str
    machine: Machine
    versions: dict[str, str]
    measured: tuple[Measured, ...]
    rounds: tuple[Round, ...] = ()
    decisions: tuple[Decision, ...] = ()
    command: str = ""
    unfit: str = ""
    interrupted: bool = False
    seconds: float = 0.0
    notes: tuple[str, ...] = ()
    schema_version: int = SCHEMA_VERSION

    @property
    def exit_code(self) -> int:
        """What the process should tell its caller: whether a conclusion no longer holds."""
        if self.unfit:
            return int(ExitCode.UNFIT)
        verdicts = {decision.verdict for decision in self.decisions}
        if Verdict.FAILS in verdicts:
            return int(ExitCode.REGRESSED)
        timed = any(each.seconds is not None for each in self.measured)
        unsure = Verdict.UNSURE in verdicts or not timed or self.interrupted
        return int(ExitCode.UNDECIDED if unsure else ExitCode.OK)

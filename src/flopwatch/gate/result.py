"""What a gate found out, as records that can be kept, diffed and read again."""

from __future__ import annotations

from dataclasses import dataclass, field

from flopwatch.config import Config
from flopwatch.errors import ExitCode
from flopwatch.gate.conclusions import Outcome, WatchedConclusion
from flopwatch.measure.machine import Machine
from flopwatch.model import SCHEMA_VERSION, Case, KernelFacts, Mark, SeriesResult
from flopwatch.static.comparison import FactChange, Severity
from flopwatch.verdict import Side, exit_code
from flopwatch.waivers import WaiverUse, waived_cases, waivers_exit_code


@dataclass(frozen=True, kw_only=True, slots=True)
class CaseVerdict:
    """The verdict on one case.

    Attributes:
        case: the case.
        base: what base's side says.
        head: likewise.
        mark: None where head could not be compared with base.
        reason: why, in words, where it is not the time alone.
        identical: both sides run the same code, so that nothing was measured.
        time: head's time against base's, where it was measured.
        launch: what a call costs the host, likewise.
        method: how the time was sampled, "graph" or "events".
        margin: the slowdown that is accepted, as a log ratio.
        flops: floating-point operations of one call, as head's suite declares them; None without a GPU.
        bytes_moved: bytes that one call must move, likewise.
        notes: what else is worth knowing, such as another configuration chosen by the tuner.
    """

    case: Case
    base: Side = field(default_factory=Side)
    head: Side = field(default_factory=Side)
    mark: Mark | None = None
    reason: str = ""
    identical: bool = False
    time: SeriesResult | None = None
    launch: SeriesResult | None = None
    method: str = ""
    margin: float = 0.0
    flops: float | None = None
    bytes_moved: float | None = None
    notes: tuple[str, ...] = ()

    @property
    def compared(self) -> bool:
        """Whether head's results, at least, were held against base's."""
        return self.identical or (self.base.ran and self.head.ran)


@dataclass(frozen=True, kw_only=True, slots=True)
class PairLog:
    """One pair of processes: which slot was head, by the toss of a coin, and what was measured.

    `log_ratios` are log(head seconds / base seconds) by the case's name; `launch_log_ratios` the same of the cost to
    the host. `faults` say why a case has none: a failure, or a GPU that slowed down. `clock_log_ratios` are log(head's
    clock / base's) where the two slots ran at different clocks: such pairs are used like all others. `seconds` go from
    the start of the processes to the last case; their end is part of the next pair's.
    """

    stage: str
    head_slot: int
    seconds: float
    log_ratios: dict[str, float]
    launch_log_ratios: dict[str, float]
    faults: dict[str, str]
    clock_log_ratios: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Uncovered:
    """A case whose kernels could not be compiled without running: it has no static facts on that side."""

    side: str
    case: Case
    cause: str


@dataclass(frozen=True, kw_only=True, slots=True)
class CaseKernels:
    """Which of the facts and changes are of one case, as positions in the result's lists, in ascending order.

    Attributes:
        case: the case, at full size.
        base: what base's side launches, in `base_facts`.
        head: what head's side launches, in `facts`.
        base_trials: what base's autotuners tried besides, in `base_facts`.
        head_trials: what head's tried, in `facts`.
        changes: of `fact_changes`, those that its launches show by what they compute and move.
    """

    case: Case
    base: tuple[int, ...] = ()
    head: tuple[int, ...] = ()
    base_trials: tuple[int, ...] = ()
    head_trials: tuple[int, ...] = ()
    changes: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class GateResult:
    """All that a gate found out.

    Attributes:
        base: hash of the base commit.
        head: hash of the head commit, or "working tree".
        gpu: the GPU that measured; None where there was none.
        device: the GPU that the static facts were compiled for.
        versions: of python, torch, triton, cuda (torch's) and ptxas (Triton's); those that are installed.
        machine: what it was measured on, in detail.
        facts: what the compiler made of head's kernels.
        base_facts: likewise of base's.
        fact_changes: how they differ.
        verdicts: one a case.
        exit_code: what the process tells its caller, but for --exit-zero; follows from the rest, and is not read back.
        kernels: which facts are of which case.
        same_within_percent: the slowdown that SAME excludes.
        uncovered: what could not be compiled for the device, with the cause.
        suite: the time of the median case, head against base.
        pairs: every pair that was measured.
        conclusions: what became of each conclusion that is watched; none where no time was judged, and with -k.
        waivers: what became of each waiver.
        unfit: why the machine's measurements are worth nothing; "" where they are.
        interrupted: the run was stopped before all was measured.
        seconds: how long it took.
        notes: what else is worth knowing.
    """

    base: str
    head: str
    gpu: str | None
    device: str
    versions: dict[str, str]
    facts: tuple[KernelFacts, ...]
    base_facts: tuple[KernelFacts, ...]
    fact_changes: tuple[FactChange, ...]
    verdicts: tuple[CaseVerdict, ...]
    exit_code: int = field(init=False, default=0)
    kernels: tuple[CaseKernels, ...] = ()
    same_within_percent: float = Config().same_within_percent
    uncovered: tuple[Uncovered, ...] = ()
    machine: Machine | None = None
    suite: SeriesResult | None = None
    pairs: tuple[PairLog, ...] = ()
    planned_pairs: int | None = None
    conclusions: tuple[WatchedConclusion, ...] = ()
    waivers: tuple[WaiverUse, ...] = ()
    unfit: str = ""
    interrupted: bool = False
    seconds: float = 0.0
    notes: tuple[str, ...] = ()
    schema_version: int = SCHEMA_VERSION

    def __post_init__(self) -> None:
        object.__setattr__(self, "exit_code", self._derive_exit_code())

    def _derive_exit_code(self) -> int:
        broken = sum(change.severity is Severity.FAIL for change in self.fact_changes)
        waived = waived_cases(self.waivers)
        marks = [
            verdict.mark
            for verdict in self.verdicts
            if verdict.mark is not Mark.SLOWER or verdict.case.id not in waived
        ]
        suite = self.suite is not None and self.suite.mark is Mark.SLOWER
        code = exit_code(
            marks,
            broken_code=broken + suite + len(self.lost),
            undecided_code=len(self.newly_uncovered) + self.interrupted,
            compared=any(verdict.compared for verdict in self.verdicts),
        )
        if self.unfit and code is not ExitCode.REGRESSED:
            code = ExitCode.UNFIT
        return int(waivers_exit_code(self.waivers, code))

    @property
    def lost(self) -> tuple[WatchedConclusion, ...]:
        """The conclusions that no longer hold, which fail the run."""
        return tuple(found for found in self.conclusions if found.outcome is Outcome.LOST)

    @property
    def newly_uncovered(self) -> tuple[Uncovered, ...]:
        """The cases that base could compile without running and head cannot."""
        before = {entry.case for entry in self.uncovered if entry.side == "base"}
        return tuple(entry for entry in self.uncovered if entry.side == "head" and entry.case not in before)

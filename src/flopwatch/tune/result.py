"""What a search found out, as records that can be kept and read again."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from flopwatch.compare.result import Speed
from flopwatch.errors import ExitCode
from flopwatch.gate.result import PairLog
from flopwatch.measure.machine import Machine
from flopwatch.model import SCHEMA_VERSION, Case
from flopwatch.tune.space import short


class By(enum.Enum):
    """Who chooses without a search.

    AUTOTUNER: the kernel's tuner, in its first run, by FLOPwatch's timer.
    FIRST: nobody: the first of the kernel's list that compiles and fits.
    PROVIDER: another provider of the suite, such as one that chooses by heuristics.
    """

    AUTOTUNER = "autotuner"
    FIRST = "first of the list"
    PROVIDER = "provider"


@dataclass(frozen=True, kw_only=True, slots=True)
class Candidate:
    """One configuration of one case.

    Attributes:
        config: as Triton's tuner writes it.
        own: it is of the kernel's own list.
        pruned: why it was not timed; "" where it was to be.
        registers: of a thread.
        spill_bytes: of a thread, stores and loads.
        shared_bytes: of a block.
        occupancy: share of the warp slots.
        code: fingerprint of the machine code; "" where there is none.
        grid: programs along each axis.
        estimate_seconds: by its traffic and the device's peaks; None where that is not known.
        log_ratio: log(seconds / seconds of the current choice) on the first pass's samples; None without a time.
        rounds: of the first pass that timed it.
        dropped: the round after which it was dropped; None where it was in the running to the end.
    """

    config: str
    own: bool
    pruned: str = ""
    registers: int | None = None
    spill_bytes: int | None = None
    shared_bytes: int | None = None
    occupancy: float | None = None
    code: str = ""
    grid: tuple[int, ...] = ()
    estimate_seconds: float | None = None
    log_ratio: float | None = None
    rounds: int = 0
    dropped: int | None = None

    @property
    def name(self) -> str:
        """The configuration, as people read it."""
        return short(self.config)


@dataclass(frozen=True, kw_only=True, slots=True)
class Regret:
    """What a rule that does not search loses, on samples that chose nothing.

    Attributes:
        by: the rule.
        name: of the provider; "" for other rules.
        config: what it chooses; "" where that is not known.
        seconds: per call; None where it was not measured.
        speed: of the choice in units of this; None where both are the same, or nothing was measured.
    """

    by: By
    name: str = ""
    config: str = ""
    seconds: float | None = None
    speed: Speed | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class TunedCase:
    """What was found for one case.

    Attributes:
        case: of the kernel under test.
        flops: floating-point operations of one call.
        bytes_moved: bytes that one call must move.
        kernel: the autotuned kernel.
        candidates: every configuration, in declared order.
        current: what the autotuner chooses; None where there is no GPU to ask.
        first: the first of the kernel's list that compiles and fits; "" where none does.
        chosen: the search's choice; None where nothing was timed.
        seconds: of the choice, per call, on fresh samples; None where it was not measured.
        first_pass: log(seconds / seconds of the current choice), on the samples that chose.
        regrets: what rules that do not search lose against the choice, on fresh samples.
        rounds: of the first pass.
        reason: why the case was not tuned.
        notes: what else is worth knowing.
    """

    case: Case
    flops: float = 0.0
    bytes_moved: float = 0.0
    kernel: str = ""
    candidates: tuple[Candidate, ...] = ()
    current: str | None = None
    first: str = ""
    chosen: str | None = None
    seconds: float | None = None
    first_pass: float | None = None
    regrets: tuple[Regret, ...] = ()
    rounds: int = 0
    reason: str = ""
    notes: tuple[str, ...] = ()

    @property
    def gain(self) -> Speed | None:
        """The speed of the choice in units of the current one, on fresh samples; None where both are the same."""
        return next((regret.speed for regret in self.regrets if regret.by is By.AUTOTUNER), None)

    @property
    def optimism(self) -> float | None:
        """By how much the samples that chose flatter the choice, as a log ratio; None where it was not measured anew.

        >>> speed = Speed(estimate=0.04, lower=0.03, upper=0.05, pairs=8)
        >>> regret = Regret(by=By.AUTOTUNER, speed=speed)
        >>> case = Case(suite="Add", values=("16", "flopwatch"))
        >>> round(TunedCase(case=case, first_pass=-0.05, regrets=(regret,)).optimism, 3)
        0.01
        """
        gain = self.gain
        return None if gain is None or self.first_pass is None else -self.first_pass - gain.estimate


@dataclass(frozen=True, kw_only=True, slots=True)
class TuneResult:
    """All that a search found out.

    Attributes:
        device: what was compiled for.
        gpu: the GPU that measured; None without one.
        machine: what it was measured on, in detail.
        versions: of Python, torch, Triton, torch's CUDA and Triton's ptxas.
        date: of the search, as YYYY-MM-DD.
        resolution: what differs by less, as a log ratio, is a tie.
        cases: one entry for each.
        pairs: every process that measured, of both passes.
        command: the line that repeats it.
        unfit: why the machine's measurements are worth nothing; "" where they are.
        interrupted: the run was stopped before all was measured.
        seconds: how long it took.
        notes: what else is worth knowing.
    """

    device: str
    gpu: str | None
    machine: Machine | None
    versions: dict[str, str]
    date: str
    resolution: float
    cases: tuple[TunedCase, ...]
    pairs: tuple[PairLog, ...] = ()
    command: str = ""
    unfit: str = ""
    interrupted: bool = False
    seconds: float = 0.0
    notes: tuple[str, ...] = ()
    schema_version: int = SCHEMA_VERSION

    @property
    def exit_code(self) -> int:
        """What the process should tell its caller: whether there is a choice that was timed."""
        if self.unfit:
            return int(ExitCode.UNFIT)
        timed = any(case.chosen is not None for case in self.cases)
        return int(ExitCode.OK if timed and not self.interrupted else ExitCode.UNDECIDED)

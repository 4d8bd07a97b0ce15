"""What a survey found out, as records that can be kept and read again."""

from __future__ import annotations

from dataclasses import dataclass, field

from flopwatch.errors import ExitCode
from flopwatch.model import SCHEMA_VERSION, Case, KernelFacts
from flopwatch.static.comparison import FactChange, Severity
from flopwatch.static.devices import find_device
from flopwatch.static.recorder import Autotune
from flopwatch.static.traffic import Traffic, bound_of, out_of_bounds_text
from flopwatch.survey.baseline import Drift


@dataclass(frozen=True, kw_only=True, slots=True)
class Gap:
    """A case whose kernels could not be compiled without running, for one side and device, with the cause."""

    side: str
    device: str
    case: Case
    cause: str


@dataclass(frozen=True, kw_only=True, slots=True)
class LaunchWork:
    """What one launch of a case computes and moves (`flopwatch.static.traffic`); None is what its integers do not tell.

    Attributes:
        case: the case.
        kernel: the name of the kernel.
        device: the key of the device.
        variant: the types of its arguments.
        config: its configuration; of autotuned kernels the first that fits.
        grid: programs along each axis.
        least_seconds: of its dots at the device's peak, or of what it must move at its bandwidth, whichever is longer.
        limit: which of both that is, "compute" or "memory"; "" if it is not known.
        dot_flops: of ``tl.dot``.
        compulsory_bytes: of the sectors that it reads and writes, each once.
        waves: its programs over those that the device holds at once; what is behind the point is how full the last is.
        wave_reuse: how many times the programs that run together first ask for each byte that they read.
        imbalance: the most work of a program over the mean.
        out_of_bounds: where it leaves the memory that it was given, a line each.
        unknown: why something is not known.
    """

    case: Case
    kernel: str
    device: str
    variant: str
    config: str
    grid: tuple[int, ...]
    least_seconds: float | None = None
    limit: str = ""
    dot_flops: int | None = None
    compulsory_bytes: int | None = None
    waves: float | None = None
    wave_reuse: float | None = None
    imbalance: float | None = None
    out_of_bounds: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()

    @classmethod
    def of(cls, case: Case, traffic: Traffic) -> LaunchWork:
        """Sum up the traffic of a launch."""
        bound = bound_of(traffic, find_device(traffic.device))
        return cls(
            case=case,
            kernel=traffic.kernel,
            device=traffic.device,
            variant=traffic.variant,
            config=traffic.config,
            grid=traffic.grid,
            least_seconds=bound.seconds if bound else None,
            limit=bound.limit if bound else "",
            dot_flops=traffic.total_dot_flops,
            compulsory_bytes=traffic.compulsory_bytes,
            waves=traffic.waves,
            wave_reuse=traffic.wave_reuse,
            imbalance=traffic.imbalance,
            out_of_bounds=tuple(out_of_bounds_text(stray) for stray in traffic.out_of_bounds),
            unknown=(*traffic.data_dependent, *traffic.uncovered),
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Held:
    """What became of a baseline.

    Attributes:
        path: the file, as it was named.
        written: it has what was found from now on.
        refusal: why it could not be compared, such as another Triton's; "" where it was.
        drifts: where what was found differs from it.
    """

    path: str
    written: bool = False
    refusal: str = ""
    drifts: tuple[Drift, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Survey:
    """All that a survey found out.

    Attributes:
        base: hash of the commit that was compared with; None where there is no comparison.
        head: hash of the commit, or "working tree".
        devices: the GPUs that were compiled for.
        autotune: which configurations of autotuned kernels were compiled.
        versions: of Python, torch, Triton, torch's CUDA and Triton's ptxas.
        cases: how many were selected.
        facts: what the compiler made of head's kernels.
        base_facts: likewise of base's; empty where there is no comparison.
        fact_changes: how they differ, and what head's launches do for the worse.
        launches: what head's launches compute and move.
        gaps: what could not be compiled without running.
        held: what became of the baseline; None where there is none.
        exit_code: what the process tells its caller, but for --exit-zero; follows from the rest, and is not read back.
        recalled: how many of all cases, sides and devices were known from an earlier run.
        seconds: how long it took.
    """

    base: str | None
    head: str
    devices: tuple[str, ...]
    autotune: Autotune
    versions: dict[str, str]
    cases: int
    facts: tuple[KernelFacts, ...]
    base_facts: tuple[KernelFacts, ...] = ()
    fact_changes: tuple[FactChange, ...] = ()
    launches: tuple[LaunchWork, ...] = ()
    gaps: tuple[Gap, ...] = ()
    held: Held | None = None
    exit_code: int = field(init=False, default=0)
    recalled: int = 0
    seconds: float = 0.0
    schema_version: int = SCHEMA_VERSION

    def __post_init__(self) -> None:
        object.__setattr__(self, "exit_code", int(self._derive_exit_code()))

    def _derive_exit_code(self) -> ExitCode:
        if self.failed_changes or self.drifts:
            return ExitCode.REGRESSED
        if self.held is not None and self.held.refusal:
            return ExitCode.UNDECIDED
        if self.base is None and (self.astray or (self.held is None and self.unlaunchable)):
            return ExitCode.REGRESSED
        return ExitCode.UNDECIDED if not self.facts or self.new_gaps else ExitCode.OK

    @property
    def failed_changes(self) -> tuple[FactChange, ...]:
        """The changes that fail the run."""
        return tuple(change for change in self.fact_changes if change.severity is Severity.FAIL)

    @property
    def drifts(self) -> tuple[Drift, ...]:
        """Where what was found differs from the baseline."""
        return () if self.held is None else self.held.drifts

    @property
    def unlaunchable(self) -> tuple[KernelFacts, ...]:
        """Head's launches, but for trials of the autotuner, that do not compile or fit."""
        return tuple(fact for fact in self.facts if fact.chosen and fact.failure is not None)

    @property
    def astray(self) -> tuple[LaunchWork, ...]:
        """Head's launches that leave the memory that they were given."""
        return tuple(launch for launch in self.launches if launch.out_of_bounds)

    @property
    def new_gaps(self) -> tuple[Gap, ...]:
        """The cases that base could compile without running and head cannot."""
        before = {(gap.device, gap.case) for gap in self.gaps if gap.side == "base"}
        return tuple(
            gap
            for gap in self.gaps
            if self.base is not None and gap.side == "head" and (gap.device, gap.case) not in before
        )

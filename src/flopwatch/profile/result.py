"""What a profile found out, as records that can be kept and read again."""

from __future__ import annotations

from dataclasses import dataclass, field

from flopwatch.errors import ExitCode
from flopwatch.model import SCHEMA_VERSION, Case, Choice, Failure, Memory
from flopwatch.profile.comparison import FramePair
from flopwatch.profile.hatchet import Frame


@dataclass(frozen=True, kw_only=True, slots=True)
class Counted:
    """One launch under Nsight Compute: the kernel, and its counters by NVIDIA's names."""

    kernel: str
    counters: dict[str, float]


@dataclass(frozen=True, kw_only=True, slots=True)
class ProfiledCase:
    """One case: what its calls took on the GPU, and what they cost the host. Times are of one call; None is not known.

    Attributes:
        case: the case.
        flops: floating-point operations of one call, as its suite declares them.
        bytes_moved: bytes that one call must move, likewise.
        calls: behind `kernel_seconds` and `wall_seconds`, one after the other.
        kernel_seconds: of all kernels of a call, by Proton; inputs stay in the cache where they fit.
        call_seconds: by the gate's timer: from a cold cache, without the host's part.
        host_seconds: of the Python call, while the GPU's queue is not full.
        wall_seconds: by the host's clock, without Proton: what a loop of calls sees.
        choices: of the autotuners.
        memory: of one call, and what calls leave behind.
        counters: of each launch of one call.
        failure: why there is nothing, or not all.
    """

    case: Case
    flops: float
    bytes_moved: float
    calls: int = 0
    kernel_seconds: float | None = None
    call_seconds: float | None = None
    host_seconds: float | None = None
    wall_seconds: float | None = None
    choices: tuple[Choice, ...] = ()
    memory: Memory | None = None
    counters: tuple[Counted, ...] = ()
    failure: Failure | None = None

    @property
    def idle_seconds(self) -> float | None:
        """What a loop of calls waits with no kernel on the GPU: for the host, and between kernels."""
        if self.wall_seconds is None or self.kernel_seconds is None:
            return None
        return max(self.wall_seconds - self.kernel_seconds, 0.0)


@dataclass(frozen=True, kw_only=True, slots=True)
class Profile:
    """All that a profile found out.

    Attributes:
        gpu: that was profiled.
        versions: of Python, torch, Triton, torch's CUDA and Triton's ptxas.
        cases: in the order of the suites.
        tree: Proton's, of all calls of all cases.
        files: what was written, by what it is: "tree", "timeline", "memory of CASE".
        seconds: how long it took.
        notes: what else is worth knowing.
    """

    gpu: str
    versions: dict[str, str]
    cases: tuple[ProfiledCase, ...]
    tree: Frame
    files: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0
    notes: tuple[str, ...] = ()
    schema_version: int = SCHEMA_VERSION

    @property
    def exit_code(self) -> ExitCode:
        """What the process tells its caller."""
        return ExitCode.OK if any(case.kernel_seconds for case in self.cases) else ExitCode.UNDECIDED


@dataclass(frozen=True, kw_only=True, slots=True)
class ProfiledPair:
    """What the profiles of both sides of a case found out.

    Attributes:
        gpu: that was profiled; "" where neither side could be.
        base: the case on base: times are means over the processes that took turns.
        head: likewise.
        frames: of Proton's trees, per call: all calls first, then each scope and kernel below them.
        spread: how far the times of the kernels are apart between processes of one side, as a share, where it is most;
            None where no side has two.
        notes: what else is worth knowing.
    """

    gpu: str
    base: ProfiledCase
    head: ProfiledCase
    frames: tuple[FramePair, ...] = ()
    spread: float | None = None
    notes: tuple[str, ...] = ()

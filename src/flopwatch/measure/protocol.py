"""What a worker is asked and what it answers: one line of JSON each, on descriptors that nothing else writes to."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Any

from flopwatch.model import Case, Choice, Failure, KernelFacts
from flopwatch.static.identity import CaseIdentity
from flopwatch.static.recorder import Autotune
from flopwatch.static.traffic import Traffic
from flopwatch.study.declaration import Declaration


class Mode(enum.Enum):
    """What a worker can do; decided when it starts, because Triton reads its environment at import."""

    GPU = "gpu"
    STATIC = "static"
    INTERPRET = "interpret"


class Op(enum.Enum):
    """The requests, with the seconds after which a worker that has not answered is stopped."""

    HELLO = ("hello", 180.0)
    WAKE = ("wake", 180.0)
    PREPARE = ("prepare", 300.0)
    VISIT = ("visit", 60.0)
    LAUNCH = ("launch", 60.0)
    LEND = ("lend", 60.0)
    PLACE = ("place", 60.0)
    RELEASE = ("release", 60.0)
    TIME = ("time", 300.0)
    TUNE = ("tune", 300.0)
    BITS = ("bits", 300.0)
    NUMBERS = ("numbers", 300.0)
    MEMORY = ("memory", 300.0)
    FACTS = ("facts", 600.0)
    KEEP = ("keep", 600.0)
    GATHER = ("gather", 600.0)
    IR = ("ir", 600.0)
    FOOTPRINTS = ("footprints", 600.0)

    def __init__(self, word: str, deadline_s: float) -> None:
        self.word = word
        self.deadline_s = deadline_s


class Method(enum.Enum):
    """How one sample is taken, between two events.

    GRAPH: the calls were captured into a CUDA graph, which is replayed.
    EVENTS: the host makes the calls, because they cannot be captured.
    """

    GRAPH = "graph"
    EVENTS = "events"


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """How a case is sampled; both sides of a pair follow the same plan.

    Attributes:
        method: graph or events.
        calls: calls of the kernel in one sample.
        input_sets: sets of inputs that the calls rotate over, together larger than the L2 cache; with a single one the
            cache is flushed before each sample.
    """

    method: Method
    calls: int
    input_sets: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """One question. A visit takes `samples`; a plan is followed, and choices of the tuner are pinned, where given.

    A case is prepared in place of the one before, or `beside` it: then visits of both can take turns. Its inputs are in
    the memory that another worker has `lent`, where it has. What was compiled is asked for by `kernels`, each a name, a
    variant and a configuration, at `levels`. A case that is compiled is also identified, if `identify`; one that is
    kept is compiled as `autotune` says. Footprints tell `programs` apart.
    """

    op: str
    case: Case | None = None
    plan: Plan | None = None
    samples: int = 0
    pins: tuple[Choice, ...] = ()
    seed: int = 0
    beside: bool = False
    lent: str = ""
    kernels: tuple[tuple[str, str, str], ...] = ()
    levels: tuple[str, ...] = ()
    identify: bool = True
    autotune: Autotune = Autotune.ALL
    programs: tuple[int, ...] = ()


class Refusal(enum.Enum):
    """Why inputs that were lent cannot be used.

    UNOPENED: the system does not let this process open the other's memory.
    WRITTEN: the kernel writes to its inputs, which are the other's too.
    """

    UNOPENED = "unopened"
    WRITTEN = "written"


@dataclass(frozen=True, kw_only=True, slots=True)
class Prepared:
    """How a case will be sampled, which configurations its autotuned kernels run in, and whether it borrowed inputs."""

    plan: Plan
    choices: tuple[Choice, ...]
    borrowed: bool = False
    refusal: Refusal | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Compiled:
    """What the compiler made of a case, what its launches do, and whether the other side would run the very same.

    A case that came to its end, and called no autotuner, `tunes` nothing.
    """

    facts: tuple[KernelFacts, ...]
    identity: CaseIdentity | None = None
    traffic: tuple[Traffic, ...] = ()
    tunes: bool = True


@dataclass(frozen=True, kw_only=True, slots=True)
class CaseFacts:
    """What the compiler made of one case, and what its launches do."""

    case: Case
    facts: tuple[KernelFacts, ...]
    traffic: tuple[Traffic, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Gathered:
    """What became of the cases that were kept.

    Attributes:
        cases: their facts.
        loaded: every file that was read, and every folder that modules were looked for in.
    """

    cases: tuple[CaseFacts, ...]
    loaded: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class IrText:
    """One kernel, of one variant and configuration, as the compiler had it at one level, such as "ttgir"."""

    kernel: str
    variant: str
    config: str
    level: str
    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Reply:
    """One answer: a value, or why there is none. After the `last` one the worker ends, its GPU context lost."""

    failure: Failure | None = None
    last: bool = False
    value: Any = None


class NurseryOp(enum.Enum):
    """What a nursery does: fork a worker, or tell how one ended."""

    FORK = "fork"
    REAP = "reap"


@dataclass(frozen=True, kw_only=True, slots=True)
class Nursed:
    """A request to a nursery; `child` is the process to reap."""

    op: NurseryOp
    child: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class DeclaredCase:
    """A case as its suite declares it.

    Attributes:
        case: the case.
        small: the same at the size that the interpreter can run.
        own: it runs the kernel under test, not a peer.
        max_diff_eps: the suite's own ceiling for the numbers, if it has one.
        flops: floating-point operations of one call.
        bytes_moved: bytes that one call must move.
    """

    case: Case
    small: Case
    own: bool
    max_diff_eps: float | None
    flops: float
    bytes_moved: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Hello:
    """What a worker says of itself.

    Attributes:
        gpu: the GPU's name; None without one.
        gpu_uuid: its identity, as NVML knows it; None without one.
        compute_capability: of it, major and minor; None without one.
        versions: of Python, torch, Triton, torch's CUDA and Triton's ptxas.
        declared: the cases of the suites it could import.
        import_failures: the suite modules that it could not, with the cause.
        parameters: of each suite, their names, "provider" the last.
        studies: what those of the suites that are studies say beside their cases.
    """

    gpu: str | None
    gpu_uuid: str | None
    compute_capability: tuple[int, int] | None
    versions: dict[str, str]
    declared: tuple[DeclaredCase, ...]
    import_failures: dict[str, str]
    parameters: dict[str, tuple[str, ...]] = field(default_factory=dict)
    studies: dict[str, Declaration] = field(default_factory=dict)

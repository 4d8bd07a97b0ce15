"""What a worker is asked and what it answers: one line of JSON each, on descriptors that nothing else writes to."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any

from flopwatch.model import Case, Failure


class Mode(enum.Enum):
    """What a worker can do; decided when it starts, because Triton reads its environment at import."""

    GPU = "gpu"
    STATIC = "static"
    INTERPRET = "interpret"


class Op(enum.Enum):
    """The requests, with the seconds after which a worker that has not answered is stopped."""

    HELLO = ("hello", 180.0)
    PREPARE = ("prepare", 300.0)
    VISIT = ("visit", 60.0)
    TIME = ("time", 300.0)
    NUMBERS = ("numbers", 300.0)
    MEMORY = ("memory", 300.0)
    FACTS = ("facts", 600.0)

    def __init__(self, word: str, deadline_s: float) -> None:
        self.word = word
        self.deadline_s = deadline_s


class Method(enum.Enum):
    """How one sample is taken.

    GRAPH: a CUDA graph of many calls over rotating inputs larger than the L2 cache, one replay a sample.
    EVENTS: a pair of events around one call, the L2 cache flushed before it.
    """

    GRAPH = "graph"
    EVENTS = "events"


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """How a case is sampled; both sides of a pair follow the same plan.

    Attributes:
        method: graph or events.
        calls: calls of the kernel in one sample.
        input_sets: sets of inputs that the calls rotate over.
    """

    method: Method
    calls: int
    input_sets: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """One question. `launches` samples are taken by a visit; a plan is followed where one is given."""

    op: str
    case: Case | None = None
    plan: Plan | None = None
    launches: int = 0
    seed: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Reply:
    """One answer: a value, or why there is none. After the `last` one the worker ends, its GPU context lost."""

    failure: Failure | None = None
    last: bool = False
    value: Any = None


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
        versions: of Python, torch and Triton.
        declared: the cases of the suites it could import.
        import_failures: the suite modules that it could not, with the cause.
    """

    gpu: str | None
    versions: dict[str, str]
    declared: tuple[DeclaredCase, ...]
    import_failures: dict[str, str]

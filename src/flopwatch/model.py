"""The records that flow from measuring to reports; each can be written to JSON and read again.

Records are frozen dataclasses. `to_json` and `from_json` convert any of them strictly (msgspec): a missing key or a
wrong type is an error that names the key path.
"""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Sequence

SCHEMA_VERSION = 1
#: In the place of a commit: what is not committed.
WORKING_TREE = "working tree"

T = TypeVar("T")


def to_json(record: object, *, indent: int = 0) -> bytes:
    """Encode a record as JSON; non-finite floats become null.

    >>> to_json(Case(suite="Add", values=("16",)))
    b'{"suite":"Add","values":["16"]}'
    """
    import msgspec  # noqa: PLC0415 - reports of untrusted results are made without it

    data = msgspec.json.encode(record)
    return msgspec.json.format(data, indent=indent) if indent else data


def from_json(data: bytes | str, record_type: type[T]) -> T:
    """Decode JSON into a record, strictly.

    Raises:
        msgspec.ValidationError: with the path of the offending key.
    """
    import msgspec  # noqa: PLC0415 - as above

    return msgspec.json.decode(data, type=record_type)


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """One point of a suite: a value for each of its parameters, the provider last.

    >>> Case(suite="Add", values=("1048576", "float32", "flopwatch")).id
    'Add[1048576,float32,flopwatch]'
    """

    suite: str
    values: tuple[str, ...]

    @property
    def id(self) -> str:
        """The name by which reports and the command line call this case."""
        return f"{self.suite}[{','.join(self.values)}]"

    @property
    def provider(self) -> str:
        """Who computes it: the kernel under test or a peer such as torch."""
        return self.values[-1]


@dataclass(frozen=True, kw_only=True, slots=True)
class Failure:
    """Why a case could not be run: a result, not an accident."""

    kind: str
    message: str
    traceback: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class KernelFacts:
    """What the compiler made of one kernel in one configuration for one device.

    Byte counts are per thread for spills and stack, per block for shared memory; a block has `tensor_memory_columns` of
    512 bytes where the device has tensor memory. Of the `registers` of a thread
    `accumulator_registers` are those of AMD's matrix accumulators; `scalar_registers` are AMD's, per wave. `occupancy`
    is the share of warp slots of a multiprocessor that can be resident (0 to 1), `occupancy_limit` what bounds it.
    `code_fingerprint` hashes the code sections that reach the device, free of file names and line numbers.
    `instructions` counts those of the machine by class, and "all" of them; `loop_instructions` those of them inside
    loops, empty where there is none or its bounds are not known; `code_bytes` is what they take, without padding. Where
    they could not be counted, `uncounted` says why. A configuration that does not compile or fit has `failure` and no
    numbers. `compile_seconds`, by the compiler's stage, are of when and where it was compiled, and tell no two apart.
    """

    kernel: str
    device: str
    config: str
    variant: str
    chosen: bool
    registers: int | None = None
    accumulator_registers: int | None = None
    scalar_registers: int | None = None
    spill_store_bytes: int | None = None
    spill_load_bytes: int | None = None
    stack_bytes: int | None = None
    shared_bytes: int | None = None
    tensor_memory_columns: int | None = None
    num_warps: int | None = None
    num_stages: int | None = None
    occupancy: float | None = None
    occupancy_limit: str = ""
    code_fingerprint: str = ""
    code_bytes: int | None = None
    instructions: dict[str, int] = field(default_factory=dict)
    loop_instructions: dict[str, int] = field(default_factory=dict)
    uncounted: str = ""
    failure: Failure | None = None
    compile_seconds: dict[str, float] = field(default_factory=dict, compare=False)

    @property
    def spill_bytes(self) -> int | None:
        """Bytes spilled per thread, stores and loads together."""
        if self.spill_store_bytes is None or self.spill_load_bytes is None:
            return None
        return self.spill_store_bytes + self.spill_load_bytes

    @property
    def key(self) -> tuple[str, str, str, str]:
        """What must agree for two facts, one from each side, to be about the same thing."""
        return (self.kernel, self.device, self.variant, self.config)


@dataclass(frozen=True, kw_only=True, slots=True)
class Numbers:
    """How far a result is from its float64 reference.

    `max_diff` is the largest absolute difference; `max_diff_eps` is that over the largest magnitude of the reference,
    in units of the result's machine epsilon. Both are None when the result or the reference is not finite. `dtype` is
    the result's, such as "float16"; `bitwise` fingerprints its bits.
    """

    dtype: str
    max_diff: float | None
    max_diff_eps: float | None
    finite: bool
    bitwise: str


def eps_of(numbers: Numbers) -> float:
    """Return the distance from the reference in eps, infinite where it is not known."""
    return math.inf if numbers.max_diff_eps is None else numbers.max_diff_eps


def worst_of(numbers: Sequence[Numbers]) -> Numbers:
    """Return the numbers that are furthest from the reference; not finite is furthest of all."""
    return max(numbers, key=lambda entry: (not entry.finite, eps_of(entry)))


@dataclass(frozen=True, kw_only=True, slots=True)
class Memory:
    """Bytes of GPU memory that one call requests at its peak, and bytes that each call leaves behind.

    The inputs are not counted, nor is what the first calls keep for later ones.
    """

    peak_bytes: int
    growth_bytes: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Choice:
    """The configuration in which an autotuned kernel runs a case.

    `key` is what the tuner knows the launch by, such as "4096, float16, float16": a case may launch a kernel with
    several. It is empty where the tuner has a single candidate; a pin without a key is for every launch of its kernel.
    `timings_us` are what each candidate took where the choice was made in this process, `config` among them, and empty
    where it was read from Triton's cache or pinned.
    """

    kernel: str
    config: str
    key: str = ""
    timings_us: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Timing:
    """Samples of one case on one side: seconds per call, and how they were taken ("graph" or "events")."""

    seconds: tuple[float, ...]
    method: str


class Mark(enum.Enum):
    """The verdict on one case."""

    SLOWER = "slower"
    FASTER = "faster"
    SAME = "same"
    UNSURE = "unsure"
    BROKEN = "broken"


@dataclass(frozen=True, kw_only=True, slots=True)
class SeriesResult:
    """What a run says about one series. Effects are log(head / base), positive is slower; None is not known.

    Attributes:
        mark: SLOWER, FASTER, SAME or UNSURE.
        estimate: the effect; from stage 2's fresh pairs alone where there are some, which chance did not select.
        lower: of its 99 % interval; None where there are too few pairs for one.
        upper: likewise.
        pairs: valid ones behind the estimate.
        deviation: standard deviation of one pair about the estimate.
        detectable: the slowdown that a run like this finds with 95 % probability; None for the suite's median.
        inside_margin: proved slower, though not by more than the margin.
        p_slower: adjusted p-value of stage 1.
        p_faster: likewise.
        confirm_p: adjusted p-value of stage 2, in the direction that was flagged; None where none was.
    """

    mark: Mark
    estimate: float | None
    lower: float | None
    upper: float | None
    pairs: int
    deviation: float | None
    detectable: float | None
    inside_margin: bool
    p_slower: float
    p_faster: float
    confirm_p: float | None

"""What a pretended GPU saw: launches, compiled kernels and failures."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Any

from flopwatch.static.device import Device

#: Begins the text of an argument of which nothing can be said but its type.
UNKNOWN = "?"


class Autotune(enum.Enum):
    """Which configurations of an autotuned kernel are compiled.

    ALL: every one that can run, whatever a model of the kernel's own makes of it; a GPU's choice may be any.
    PREDICTED: those that a call on a GPU would compile and time: what the kernel's own model leaves of them.
    FIRST: of the predicted ones, in their order, until one compiles and fits.
    """

    ALL = "all"
    PREDICTED = "predicted"
    FIRST = "first"


@dataclass(frozen=True, kw_only=True, slots=True)
class TensorArgument:
    """A tensor that a kernel was given; its strides are of elements, and its allocation is what it is a view of."""

    address: int
    element_bytes: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    allocation_address: int
    allocation_bytes: int


@dataclass(frozen=True, kw_only=True, slots=True)
class DescriptorArgument:
    """A tensor descriptor that the host made: what it describes of a tensor, and the block that it moves."""

    tensor: TensorArgument
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    block_shape: tuple[int, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Launch:
    """One launch of a kernel.

    Attributes:
        kernel: the name of the kernel's function; numbered where another one of that name was launched before.
        grid: programs along each axis that the caller named.
        config: the launch's own constants, warps and stages, sorted; None for an interpreted kernel.
        variant: argument types and alignment; empty for an interpreted kernel.
        tuning: whether the autotuner made it while trying configurations.
        binary_hash: the key of `Recorder.compiled`; empty for an interpreted kernel.
        arguments: ``name=value`` of each argument and option, a tensor by its layout and memory
            (`flopwatch.static.arguments`); empty for an interpreted kernel.
        values: the same as numbers, tensors as `TensorArgument`; for `flopwatch.static.traffic`.
    """

    kernel: str
    grid: tuple[int, ...]
    config: str | None
    variant: str
    tuning: bool
    binary_hash: str
    arguments: tuple[str, ...] = ()
    values: tuple[tuple[str, object], ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class LaunchFailure:
    """A launch that did not compile, or whose kernel does not fit the device."""

    kernel: str
    config: str | None
    variant: str
    tuning: bool
    error: Exception


@dataclass(frozen=True, kw_only=True, slots=True)
class Tuning:
    """One call of an autotuned kernel: what it may choose from, and by which arguments it keeps its choice.

    Attributes:
        kernel: as of a launch.
        keys: ``name=value`` of each argument that has a choice of its own.
        configs: every configuration before pruning, in the autotuner's order.
        tuner: Triton's autotuner itself.
    """

    kernel: str
    keys: tuple[str, ...]
    configs: tuple[str, ...]
    tuner: Any


@dataclass(kw_only=True, slots=True)
class Recorder:
    """Fills while a GPU is pretended.

    Attributes:
        device: the pretended device.
        autotune: which configurations of autotuned kernels are tried.
        launches: every launch that went through, in order.
        compiled: Triton's compiled kernels by hash.
        failures: every launch that did not, in order.
        tunings: every call of an autotuned kernel, in order.
        kernels: Triton's functions that were launched, each once.
    """

    device: Device
    autotune: Autotune = Autotune.ALL
    launches: list[Launch] = field(default_factory=list)
    compiled: dict[str, Any] = field(default_factory=dict)
    failures: list[LaunchFailure] = field(default_factory=list)
    tunings: list[Tuning] = field(default_factory=list)
    kernels: list[Any] = field(default_factory=list)

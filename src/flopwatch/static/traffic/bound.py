"""The least time of a launch: what it multiplies and must move, at the device's peaks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flopwatch.static.device import Device
    from flopwatch.static.traffic.result import Traffic

#: PyTorch's name of the type that a dot is computed in, and how many of its products one product takes.
_COMPUTED_IN = {
    "f64": ("float64", 1),
    "ieee": ("float32", 1),
    "tf32": ("tfloat32", 1),
    "tf32x3": ("tfloat32", 3),
    "bf16x3": ("bfloat16", 3),
    "bf16x6": ("bfloat16", 6),
    "f16": ("float16", 1),
    "bf16": ("bfloat16", 1),
    "i8": ("int8", 1),
} | dict.fromkeys(("f8E4M3FN", "f8E5M2", "f8E4M3FNUZ", "f8E5M2FNUZ", "e4m3", "e5m2"), ("float8_e4m3fn", 1))


@dataclass(frozen=True, kw_only=True, slots=True)
class Bound:
    """What bounds a launch from below.

    Attributes:
        compute_seconds: of its dots, each type at its peak, one type after the other.
        memory_seconds: of the sectors that it reads and writes, each once.
    """

    compute_seconds: float
    memory_seconds: float

    @property
    def seconds(self) -> float:
        """The least time, if both overlap."""
        return max(self.compute_seconds, self.memory_seconds)

    @property
    def limit(self) -> str:
        """Which of both it is."""
        return "compute" if self.compute_seconds > self.memory_seconds else "memory"


def bound_of(traffic: Traffic, device: Device) -> Bound | None:
    """Return the least time of a launch; None where its work, or the peak for it, is not known.

    Only dots count as computing: other arithmetic has no peak of one number, and its time is not in the bound.

    >>> from flopwatch.static.devices import find_device
    >>> from flopwatch.static.traffic.result import Traffic
    >>> launch = Traffic(kernel="k", device="h200", config="", variant="", grid=(1,), programs=1)
    >>> bound_of(launch, find_device("h200")) is None
    True
    """
    if traffic.dot_flops is None or traffic.compulsory_bytes is None:
        return None
    compute = 0.0
    for kind, flops in traffic.dot_flops.items():
        dtype, products = _COMPUTED_IN.get(kind, ("", 0))
        peak = device.peaks.of(dtype) if dtype else None
        if peak is None:
            return None
        compute += flops * products / (peak * 1e12)
    return Bound(compute_seconds=compute, memory_seconds=traffic.compulsory_bytes / (device.memory_gbps * 1e9))

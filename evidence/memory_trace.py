"""Where GPU memory goes while something is called again and again: to torch's tensors, to torch's cache, or elsewhere.

What ``nvidia-smi`` shows is all of it: memory that torch keeps for later tensors looks like a leak there, and so do
kernels that a compiler loads and never unloads.
"""

from __future__ import annotations

import gc
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True, kw_only=True, slots=True)
class Reading:
    """Bytes of GPU memory at one time.

    Attributes:
        tensors: that live tensors of torch have asked for.
        cached: that torch kept of the driver's for later tensors, beyond those.
        device: that were taken of the GPU, by whomever, once torch had given back what it kept.
    """

    tensors: int
    cached: int
    device: int

    def __sub__(self, other: Reading) -> Reading:
        return Reading(
            tensors=self.tensors - other.tensors, cached=self.cached - other.cached, device=self.device - other.device
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Trace:
    """The memory before and after something was done several times.

    Attributes:
        what: that was done.
        times: how often, after the first.
        before: anything was done.
        first: after it was done once.
        last: after all times.
        released: after all that was made for it was dropped.
    """

    what: str
    times: int
    before: Reading
    first: Reading
    last: Reading
    released: Reading

    @property
    def growth(self) -> Reading:
        """Bytes that each time after the first has left, rounded down."""
        grown = self.last - self.first
        return Reading(
            tensors=grown.tensors // self.times, cached=grown.cached // self.times, device=grown.device // self.times
        )


def trace(
    what: str, prepare: Callable[[], Callable[[], object]], times: int, read: Callable[[], Reading] | None = None
) -> Trace:
    """Do something once, then `times` more, and read the memory in between.

    Args:
        what: its name.
        prepare: makes what is to be done, which holds all that it needs; its results are dropped.
        times: how often after the first.
        read: tells the memory; torch and the driver by default.
    """
    read = read or read_gpu
    before = read()
    do = prepare()
    do()
    first = read()
    for _ in range(times):
        do()
    last = read()
    del do
    return Trace(what=what, times=times, before=before, first=first, last=last, released=read())


def read_gpu() -> Reading:
    """Ask torch and the driver, after all work is done and cycles of dropped objects are collected."""
    import torch  # noqa: PLC0415 - the tests of `trace` have no use for it

    gc.collect()
    torch.cuda.synchronize()
    cached = torch.cuda.memory_reserved() - torch.cuda.memory_allocated()
    torch.cuda.empty_cache()
    free, total = torch.cuda.mem_get_info()
    return Reading(
        tensors=int(torch.cuda.memory_stats()["requested_bytes.all.current"]),
        cached=cached,
        device=total - free,
    )

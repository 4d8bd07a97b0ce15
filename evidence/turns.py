"""Sample calls on the GPU that take turns, launch by launch, in one process: each from a CUDA graph, on cold inputs."""

from __future__ import annotations

import math
import random
import statistics
from typing import TYPE_CHECKING

import torch

from flopwatch.measure.timer import COLD_L2_FACTOR, MANY_BELOW_SECONDS, MAX_CALLS, SAMPLE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from evidence.race import Call, Round

#: After a switch the first launch was 1 to 6 % slow, of tiny kernels up to 127 % (H200, 2026-11-20): of every sample.
#: It is the same for all, since everyone follows on someone else.
_WARM_UPS = 2
_SEED = 20261122


class GpuTurns:
    """Calls that were captured, ready to be sampled.

    Where the fastest of them is shorter than `MANY_BELOW_SECONDS`, a sample is a graph of so many calls as last
    `SAMPLE_SECONDS`, over all input sets in turn; else it is one call behind a flush of the L2 cache.

    Args:
        calls: by name; each was run before.
        sets: that calls rotate over.
    """

    def __init__(self, calls: Mapping[str, Call], sets: int) -> None:
        self._random = random.Random(_SEED)  # noqa: S311 - an order, not a secret
        cold_bytes = COLD_L2_FACTOR * torch.cuda.get_device_properties().L2_cache_size
        self._flush = torch.empty(cold_bytes, dtype=torch.int8, device="cuda")
        self._calls = 1
        self._graphs = {name: _captured(call, 1, sets) for name, call in calls.items()}
        alone = self.take(list(calls), _WARM_UPS)
        fastest = min(statistics.median(taken[name] for taken in alone) for name in calls)
        if fastest < MANY_BELOW_SECONDS:
            self._calls = min(math.ceil(SAMPLE_SECONDS / fastest / sets) * sets, MAX_CALLS)
            self._graphs = {name: _captured(call, self._calls, sets) for name, call in calls.items()}
            self.take(list(calls), _WARM_UPS)

    def take(self, names: Sequence[str], rounds: int) -> list[Round]:
        """Take a sample of each in every round, in a random order; return seconds a call."""
        events = []
        for _ in range(rounds):
            order = self._random.sample(names, len(names))
            pairs = {
                name: (torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for name in order
            }
            for name in order:
                start, end = pairs[name]
                if self._calls == 1:
                    self._flush.zero_()
                start.record()
                self._graphs[name].replay()
                end.record()
            events.append(pairs)
        torch.cuda.synchronize()
        return [
            {name: pairs[name][0].elapsed_time(pairs[name][1]) * 1e-3 / self._calls for name in names}
            for pairs in events
        ]


def is_alive() -> bool:
    """Tell whether the GPU still answers this process: after an illegal address, say, every call fails."""
    try:
        torch.cuda.synchronize()
        torch.zeros(1, device="cuda").item()
    except RuntimeError:
        return False
    return True


def _captured(call: Call, calls: int, sets: int) -> torch.cuda.CUDAGraph:
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        call(0)
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for index in range(calls):
            call(index % sets)
    return graph

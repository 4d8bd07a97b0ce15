"""Time one case on a GPU: with a CUDA graph over cold rotating inputs, or with events and an L2 flush.

Why two: a pair of CUDA events is too coarse under about 30 us, and up to about 200 us the launch itself shows; a graph
of many calls has neither (measured on an H200, 2026-11-20: 0.05 % against 0.9 % scatter for a 4.5 us kernel).
"""

from __future__ import annotations

import math
import statistics
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from flopwatch.measure.inputs import input_bytes, make_inputs
from flopwatch.measure.protocol import Method, Plan

if TYPE_CHECKING:
    from flopwatch.model import Case
    from flopwatch.suite import Suite

GRAPH_BELOW_SECONDS = 200e-6
REPLAY_SECONDS = 300e-6
COLD_L2_FACTOR = 2
MAX_INPUT_SETS = 256
MAX_CALLS = 1024
_WARM_UP_CALLS = 3


class PreparedCase:
    """A case with its inputs on the GPU, its kernel compiled and tuned, ready to be sampled.

    Args:
        suite: the declaration.
        case: the point of it.
        plan: how to sample; None chooses by the kernel's own duration.

    Raises whatever the kernel raises. A kernel that cannot be captured into a graph is sampled with events; `plan`
    says what was chosen.
    """

    def __init__(self, suite: Suite, case: Case, plan: Plan | None = None) -> None:
        self._call = suite.call(case.provider)
        self._inputs = [make_inputs(suite, case, seed=0)]
        self._graph: torch.cuda.CUDAGraph | None = None
        self._call(*self._inputs[0])  # compiles and tunes
        l2_bytes = torch.cuda.get_device_properties().L2_cache_size
        self._flush = torch.empty(COLD_L2_FACTOR * l2_bytes, dtype=torch.int8, device="cuda")
        self.plan = plan or self._choose(l2_bytes)
        if self.plan.method is Method.GRAPH:
            self._inputs += [make_inputs(suite, case, seed=seed) for seed in range(1, self.plan.input_sets)]
            try:
                self._graph = self._capture()
                if plan is None:
                    self._lengthen()
            except RuntimeError:
                self.plan = Plan(method=Method.EVENTS, calls=1, input_sets=1)
        if self.plan.method is Method.EVENTS:
            del self._inputs[1:]
        self.sample(_WARM_UP_CALLS)

    def sample(self, launches: int, *, warm_up: int = 0) -> tuple[float, ...]:
        """Take `launches` samples after `warm_up` untimed ones.

        Returns:
            Seconds per call of the kernel, one value a sample.
        """
        events = []
        for index in range(warm_up + launches):
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            if self._graph is None:
                self._flush.zero_()
            start.record()
            if self._graph is None:
                self._call(*self._inputs[0])
            else:
                self._graph.replay()
            end.record()
            if index >= warm_up:
                events.append((start, end))
        torch.cuda.synchronize()
        return tuple(start.elapsed_time(end) * 1e-3 / self.plan.calls for start, end in events)

    def _choose(self, l2_bytes: int) -> Plan:
        self.plan = Plan(method=Method.EVENTS, calls=1, input_sets=1)
        seconds = statistics.median(self.sample(5, warm_up=2))
        if seconds >= GRAPH_BELOW_SECONDS:
            return self.plan
        cold = math.ceil(COLD_L2_FACTOR * l2_bytes / max(input_bytes(self._inputs[0]), 1))
        sets = min(max(cold, 2), MAX_INPUT_SETS)
        return Plan(method=Method.GRAPH, calls=sets, input_sets=sets)

    def _lengthen(self) -> None:
        """Capture as many rounds over the inputs as a replay of `REPLAY_SECONDS` takes.

        Known only now: of a short kernel, events time the launch rather than the kernel.
        """
        seconds = statistics.median(self.sample(3, warm_up=2))
        rounds = math.ceil(REPLAY_SECONDS / (seconds * self.plan.calls))
        if rounds > 1:
            self.plan = replace(self.plan, calls=min(rounds * self.plan.calls, MAX_CALLS))
            self._graph = self._capture()

    def _capture(self) -> torch.cuda.CUDAGraph:
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            self._call(*self._inputs[0])
        torch.cuda.current_stream().wait_stream(stream)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for index in range(self.plan.calls):
                self._call(*self._inputs[index % len(self._inputs)])
        return graph

"""Sample the duration of a case on the GPU.

A sample is the time between two CUDA events. What lies between them is captured into a CUDA graph wherever it can be,
so that the host, which may take longer for a Triton launch than the GPU for the kernel, has no part in it: on an H200
(2026-11-21) one process in fourteen timed a kernel of 24 microseconds as 160, because the GPU waited for its host
between the events.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import itertools
import math
import os
import secrets
import statistics
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from flopwatch.measure.inputs import copy_inputs, input_bytes, make_inputs
from flopwatch.measure.lending import are_alike, borrow, lend, open_lent
from flopwatch.measure.protocol import Method, Plan, Refusal

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from flopwatch.model import Case
    from flopwatch.suite import Suite

#: A kernel shorter than this is sampled many at a time, over inputs that rotate through more than the L2 cache holds;
#: a longer one alone, after the cache was flushed. By the first estimate, of a call alone: attention of 160 us is taken
#: for more than 200 us, and sampled alone a pair of it erred by 0.11 % and not by 0.07 % (H200, 2026-11-23).
MANY_BELOW_SECONDS = 300e-6
#: Length of a sample of many calls. Also at least `RESOLUTION_STEPS` steps of the clock of events. With 300 us, more
#: samples to a turn and fewer places pairs erred by 0.105 % and not by 0.098 % in the same time (root mean square of 79
#: cases; decision 2).
SAMPLE_SECONDS = 500e-6
RESOLUTION_STEPS = 500
COLD_L2_FACTOR = 2
#: So that sets of less than 240 KiB fill the 60 MiB of an H200 less than twice; the smallest of the bundled suites'
#: cases have 384 KiB, 256 cubed in 16 bits.
MAX_INPUT_SETS = 512
#: Input sets beyond what keeps the cache cold, because each lies elsewhere in memory: 16x14336x4096 over two sets came
#: out 1.1 % apart from pair to pair, most other cases 0.1 % (H200, 2026-11-21). As many as a sample has calls, and as
#: fit into this share of the free memory, which scratch memory may take once more.
SPREAD_INPUT_SETS = 16
_FREE_MEMORY_SHARE = 8
MAX_CALLS = 1024
#: Up to so many pages of 2 MiB are set aside before results are given memory, at random: memory that is given back and
#: allocated again is mostly the same, so that results would lie where they lay before.
SPACER_PAGES = 64
_WARM_UP_SAMPLES = 3
#: Calls after a process was woken that cost the host up to five times as much as the later ones (H200, 2026-11-21).
_LAUNCH_WARM_UP = 4
#: Flushes before a sample that could not be captured: each writes 126 MB on an H200, which is 0.2 ms for all at the 4.8
#: TB/s of its data sheet, in which the host enqueues the rest.
_UNCAPTURED_FLUSHES = 8
#: Differences below this are float32 rounding of a reading, not a step of its clock.
_ROUNDING_MS = 1e-6


class PreparedCase:
    """A case with its inputs on the GPU, its kernel compiled and tuned, ready to be sampled.

    Args:
        suite: the declaration.
        case: the point of it.
        plan: how to sample; None chooses by the kernel's own duration.
        lent: inputs of another process, to be used where they are as this one's; see `flopwatch.measure.lending`.
        tuned: told after the first call, which compiles and tunes.

    Raises whatever the kernel raises. What cannot be captured into a graph (it synchronises, say) is sampled as the
    host enqueues it; `plan` says what was chosen.
    """

    def __init__(
        self,
        suite: Suite,
        case: Case,
        plan: Plan | None = None,
        *,
        lent: str = "",
        tuned: Callable[[], object] = lambda: None,
    ) -> None:
        tensors = open_lent(lent) if lent else None
        self.refusal = Refusal.UNOPENED if lent and tensors is None else None
        self._call = suite.call(case.provider)
        self._spacer = _new_spacer()
        own = make_inputs(suite, case, seed=0)
        self._inputs = [own]
        self._memory: torch.Tensor | None = None
        borrowed = borrow(tensors, own, plan.input_sets) if tensors and plan else None
        self.borrowed = borrowed is not None
        if borrowed is not None:
            self._inputs = borrowed
        result = self._call(*self._inputs[0])  # compiles and tunes
        tuned()
        if self.borrowed and not are_alike(self._inputs[0], own):
            self.refusal = Refusal.WRITTEN
        del own, tensors, borrowed
        self._cold_bytes = COLD_L2_FACTOR * torch.cuda.get_device_properties().L2_cache_size
        self._flush = torch.empty(self._cold_bytes, dtype=torch.int8, device="cuda")
        self._graph: torch.cuda.CUDAGraph | None = None
        self._results: object = None
        self.plan = plan or Plan(method=Method.GRAPH, calls=1, input_sets=1)
        self._ready(self.plan)
        if plan is None:
            self._choose(input_bytes(self._inputs[0]) + input_bytes((result,)))
        del result
        self.sample(_WARM_UP_SAMPLES)

    def sample(self, samples: int, *, warm_up: int = 0) -> tuple[float, ...]:
        """Take samples after `warm_up` untimed ones.

        Returns:
            Seconds per call of the kernel, one value a sample.
        """
        flushes = _UNCAPTURED_FLUSHES if self.plan.method is Method.EVENTS else int(self.plan.input_sets == 1)
        events = []
        for index in range(warm_up + samples):
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            for _ in range(flushes):
                self._flush.zero_()
            start.record()
            if self._graph is None:
                self._uncaptured()
            else:
                self._graph.replay()
            end.record()
            if index >= warm_up:
                events.append((start, end))
        torch.cuda.synchronize()
        return tuple(start.elapsed_time(end) * 1e-3 / self.plan.calls for start, end in events)

    def place(self) -> None:
        """Move the results to other memory and capture the calls anew; the inputs are left where they are.

        What is not captured allocates its results at every call, and stays as it is. The first samples are the caller's
        to throw away.
        """
        if self._graph is None:
            return
        # There is no room for both, or what was captured once cannot be again: then they stay where they are.
        with contextlib.suppress(RuntimeError):
            spacer = _new_spacer()
            captured = self._capture()  # while the ones before live, so that their memory is not taken again
            self._graph, self._results = captured
            self._spacer = spacer
            del captured
        torch.cuda.empty_cache()

    def lend(self) -> str:
        """Describe the memory of the inputs to another process."""
        return lend(self._inputs[0], self._memory)

    def launch(self, calls: int) -> tuple[float, ...]:
        """Measure what one call costs the host, while the GPU's queue is not full.

        Both sides of a pair run this on the same core: two cores of one machine differed by up to two times for a whole
        process (16 virtual cores beside an H200, 2026-11-21).

        Returns:
            Seconds of the Python call, one value a call.
        """
        seconds = []
        cores = os.sched_getaffinity(0)
        os.sched_setaffinity(0, {min(cores)})
        try:
            for index in range(_LAUNCH_WARM_UP + calls):
                inputs = self._inputs[index % len(self._inputs)]
                start = time.perf_counter()
                self._call(*inputs)
                seconds.append(time.perf_counter() - start)
        finally:
            os.sched_setaffinity(0, cores)
        torch.cuda.synchronize()
        return tuple(seconds[_LAUNCH_WARM_UP:])

    def _choose(self, set_bytes: int) -> None:
        """Choose how many calls over how many input sets make a sample, by the duration of one call."""
        seconds = statistics.median(self.sample(5, warm_up=2))
        if seconds >= MANY_BELOW_SECONDS:
            return
        cold = max(math.ceil(self._cold_bytes / max(set_bytes, 1)), 2)
        length = max(SAMPLE_SECONDS, RESOLUTION_STEPS * event_resolution_s())
        most = max(
            cold, min(SPREAD_INPUT_SETS, torch.cuda.mem_get_info()[0] // _FREE_MEMORY_SHARE // max(set_bytes, 1))
        )
        wanted = math.ceil(length / seconds)
        sets = min(max(cold, math.ceil(wanted / math.ceil(wanted / most))), MAX_INPUT_SETS)
        for _ in range(2):  # the first estimate counts the start of the graph as the kernel's
            rounds = max(round(length / (seconds * sets)), 1)
            calls = min(rounds * sets, MAX_CALLS)
            if calls <= self.plan.calls:
                return
            self._ready(replace(self.plan, calls=calls, input_sets=sets))
            seconds = statistics.median(self.sample(3, warm_up=2))

    def _ready(self, plan: Plan) -> None:
        """Follow `plan`, but for what cannot be captured."""
        if plan.input_sets != len(self._inputs):
            self._memory, self._inputs = copy_inputs(self._inputs[0], plan.input_sets)
        self.plan = plan
        self._graph = self._results = None
        if plan.method is Method.GRAPH:
            try:
                self._call_aside()
                self._graph, self._results = self._capture()
            except torch.OutOfMemoryError:
                raise  # not a matter of capturing
            except RuntimeError:
                self.plan = replace(plan, method=Method.EVENTS)

    def _uncaptured(self) -> object:
        """Make the calls of a sample; the last results live on, so that outputs rotate through memory as inputs do."""
        results: collections.deque[object] = collections.deque(maxlen=len(self._inputs))
        for index in range(self.plan.calls):
            results.append(self._call(*self._inputs[index % len(self._inputs)]))
        return results

    def _call_aside(self) -> None:
        """Call once on a stream of its own: whatever is set up at the first such call cannot be captured."""
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            self._call(*self._inputs[0])
        torch.cuda.current_stream().wait_stream(stream)
        torch.cuda.synchronize()

    def _capture(self) -> tuple[torch.cuda.CUDAGraph, object]:
        streams = [torch.cuda.Stream() for _ in range(min(len(self._inputs), SPREAD_INPUT_SETS))]
        room = torch.cuda.mem_get_info()[0] // _FREE_MEMORY_SHARE
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            results = self._captured(streams, room)
        return graph, results

    def _captured(self, streams: Sequence[torch.cuda.Stream], room: int) -> object:
        """Make the calls of a sample one after the other, as `_uncaptured` does, where they scratch in turn as well.

        Memory that a call gives back is given to the next call on its stream. So those that give any back are made on
        as many of `streams` as leave their scratch within `room` bytes: else all calls would scratch at one place.
        """
        first = last = torch.cuda.current_stream()
        results: collections.deque[object] = collections.deque(maxlen=len(self._inputs))
        torch.cuda.reset_peak_memory_stats()
        for index in range(self.plan.calls):
            stream = streams[index % len(streams)] if index else first
            if stream != last:
                stream.wait_stream(last)
            with torch.cuda.stream(stream) if stream != first else contextlib.nullcontext():
                results.append(self._call(*self._inputs[index % len(self._inputs)]))
            if not index:
                allocated = torch.cuda.memory_stats_as_nested_dict()["allocated_bytes"]["all"]
                scratch = allocated["peak"] - allocated["current"]
                streams = (first, *streams[1 : room // scratch]) if scratch else (first,)
            last = stream
        if last != first:
            first.wait_stream(last)
        return results


def _new_spacer() -> torch.Tensor:
    return torch.empty(secrets.randbelow(SPACER_PAGES) << 21, dtype=torch.uint8, device="cuda")


@functools.cache
def event_resolution_s() -> float:
    """Measure the step of the clock behind CUDA events: the least difference among many short intervals, in seconds."""
    events = [torch.cuda.Event(enable_timing=True) for _ in range(257)]
    for event in events:
        event.record()
    torch.cuda.synchronize()
    readings_ms = sorted({before.elapsed_time(after) for before, after in itertools.pairwise(events)})
    steps_ms = [after - before for before, after in itertools.pairwise(readings_ms)]
    return min((step for step in steps_ms if step > _ROUNDING_MS), default=1.0) * 1e-3

"""What autotuned kernels run in: chosen by the kernel's own duration, recorded, and pinned on request."""

from __future__ import annotations

import functools
import statistics
from typing import TYPE_CHECKING, Any

import torch
from triton.runtime.autotuner import Autotuner
from triton.runtime.jit import JITFunction

from flopwatch.model import Choice

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

#: A candidate is timed for about this long, within these numbers of launches.
_CANDIDATE_SECONDS = 5e-3
_LAUNCHES = (5, 50)
_MICROSECONDS_PER_MILLISECOND = 1e3


def ignore_line_numbers() -> None:
    """Take the line on which a kernel starts out of Triton's keys, for kernels defined from now on.

    Triton keeps the choice of its autotuner on disk (``TRITON_CACHE_AUTOTUNING``) under a key that includes the line
    number. A comment above a kernel would make head tune anew while base keeps its old choice, and a near tie would
    look like a change of speed. Only debug information depends on the line.
    """
    original = JITFunction.__init__

    @functools.wraps(original)
    def initialise(self: Any, *arguments: Any, **options: Any) -> None:  # noqa: ANN401 - Triton's own arguments
        original(self, *arguments, **options)
        self.starting_line_number = 1

    JITFunction.__init__ = initialise


class TunerLog:
    """Watches every autotuned launch of the process from `install` on.

    Attributes:
        pins: kernel name -> the configuration to run, as its candidate's `str`. A pin that names no candidate is
            ignored: the tuner chooses, and `choices` shows what.
    """

    def __init__(self) -> None:
        self.pins: dict[str, str] = {}
        self._choices: dict[str, Choice] = {}
        self._tuners: set[Any] = set()

    def start(self, pins: Sequence[Choice] = ()) -> None:
        """Forget what was seen, and pin."""
        self.pins = {pin.kernel: pin.config for pin in pins}
        self._choices = {}

    def forget(self) -> None:
        """Have every tuner choose anew, also for what it has seen before."""
        for tuner in self._tuners:
            tuner.cache.clear()

    @property
    def choices(self) -> tuple[Choice, ...]:
        """The configurations that were run since `start`, the last one of each kernel."""
        return tuple(self._choices.values())

    def install(self) -> None:
        """Stand between the kernels and Triton's tuner."""
        original = Autotuner.run

        @functools.wraps(original)
        def run(tuner: Any, *arguments: Any, **options: Any) -> Any:  # noqa: ANN401 - Triton's own arguments
            name = tuner.base_fn.__name__
            candidates = tuner.configs
            self._tuners.add(tuner)
            pinned = [config for config in candidates if str(config) == self.pins.get(name)]
            known = len(tuner.cache)
            if tuner._do_bench is None and "do_bench" not in vars(tuner):  # noqa: SLF001 - the author chose no timer
                tuner._do_bench = time_launch  # noqa: SLF001 - likewise
            try:
                tuner.configs = pinned or candidates
                result = original(tuner, *arguments, **options)
            finally:
                tuner.configs = candidates
            timings = _timings_us(tuner) if len(tuner.cache) > known else {}
            before = self._choices.get(name)
            if before is None or before.config != str(tuner.best_config):
                self._choices[name] = Choice(kernel=name, config=str(tuner.best_config), timings_us=timings)
            return result

        Autotuner.run = run


def time_launch(launch: Callable[[], object], quantiles: Sequence[float]) -> list[float]:
    """Time a launch as Triton's tuner asks, but without the host: captured into a graph, with a cold L2 cache.

    On a slow host Triton's own timer times the host, and the tuner picks a tile at random; 16x4096x4096 then took 13.7
    or 18.9 us (H200, 2026-11-20).

    Args:
        launch: makes the launch.
        quantiles: three, of which the middle one comes first, as the tuner expects.

    Returns:
        Milliseconds, one for each quantile.
    """
    launch()  # compiles; what fails here is the tuner's to judge
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph):
            launch()
    except RuntimeError:
        replay: Callable[[], object] = launch
    else:
        replay = graph.replay
    flush = torch.empty(2 * torch.cuda.get_device_properties().L2_cache_size, dtype=torch.int8, device="cuda")

    def sample(launches: int) -> list[float]:
        events = []
        for _ in range(launches):
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            flush.zero_()
            start.record()
            replay()
            end.record()
            events.append((start, end))
        torch.cuda.synchronize()
        return sorted(start.elapsed_time(end) for start, end in events)

    sample(2)
    seconds = statistics.median(sample(3)) * 1e-3
    times = sample(min(max(round(_CANDIDATE_SECONDS / seconds), _LAUNCHES[0]), _LAUNCHES[1]))
    return [times[min(int(quantile * len(times)), len(times) - 1)] for quantile in quantiles]


def _timings_us(tuner: Any) -> dict[str, float]:  # noqa: ANN401 - Triton's tuner
    """Return what the tuner measured last, the fastest first; candidates that failed are left out."""
    timings = {
        str(config): (time[0] if isinstance(time, list | tuple) else time) * _MICROSECONDS_PER_MILLISECOND
        for config, time in getattr(tuner, "configs_timings", {}).items()
    }
    return {name: time for name, time in sorted(timings.items(), key=lambda item: item[1]) if time < float("inf")}

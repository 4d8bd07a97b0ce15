"""What autotuned kernels run in: chosen by the kernel's own duration, recorded, and pinned on request."""

from __future__ import annotations

import functools
import numbers
import re
import statistics
from typing import TYPE_CHECKING, Any

import torch
from triton.runtime.autotuner import Autotuner
from triton.runtime.jit import JITFunction

from flopwatch.model import Choice

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

#: A candidate is timed for about this long, within these numbers of launches.
_CANDIDATE_SECONDS = 5e-3
_LAUNCHES = (5, 50)
_MICROSECONDS_PER_MILLISECOND = 1e3
_ADDRESS = re.compile(r" at 0x[0-9A-Fa-f]+")


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
    """Watches every autotuned launch of the process, from `install` on and while it does not step aside.

    A tuner's answers are another object after each `start`, so that whoever keeps one can tell that it may be another
    now (`flopwatch.kernels.launch`).
    """

    def __init__(self) -> None:
        self._pins: dict[tuple[str, str], str] = {}
        self._choices: dict[tuple[str, str], Choice] = {}
        self._answers: dict[Any, _Answers] = {}
        self._forgets = False  # also what tuners chose that are seen for the first time: a suite's import may launch
        self._original: Any = None
        self._watching: Any = None

    def start(self, pins: Sequence[Choice] = ()) -> None:
        """Forget what was seen, pin, and watch.

        A pin is for the launches of its kernel with its key, one without a key for all others of its kernel. One that
        names no candidate is ignored: the tuner chooses, and `choices` shows what.
        """
        self._pins = {(pin.kernel, pin.key): pin.config for pin in pins}
        self._choices = {}
        self._forgets = False
        for tuner in self._answers:
            self._answer(tuner, tuner.cache)
        if Autotuner.run is self._original:
            Autotuner.run = self._watching

    def forget(self) -> None:
        """Have every tuner choose anew, also for what it has seen before."""
        self._forgets = True
        for tuner in self._answers:
            self._answer(tuner, {})

    def step_aside(self) -> None:
        """Let launches go as they would without a log, which costs the host less, until `start`.

        Pins hold, for every tuner that was seen; what else is chosen meanwhile is not recorded. Where something stands
        before this log, it goes on watching.
        """
        if Autotuner.run is self._watching:
            Autotuner.run = self._original

    @property
    def choices(self) -> tuple[Choice, ...]:
        """The configurations that were run since `start`, the last one of each kernel and key."""
        return tuple(self._choices.values())

    def install(self) -> None:
        """Stand between the kernels and Triton's tuner."""
        original = self._original = Autotuner.run

        @functools.wraps(original)
        def run(tuner: Any, *arguments: Any, **options: Any) -> Any:  # noqa: ANN401 - Triton's own arguments
            answers = self._answers.get(tuner)
            if answers is None or tuner.cache is not answers:
                answers = self._answer(tuner, {} if answers is None and self._forgets else tuner.cache)
            answers.asked = None
            known = getattr(tuner, "configs_timings", None)
            if tuner._do_bench is None and "do_bench" not in vars(tuner):  # noqa: SLF001 - the author chose no timer
                tuner._do_bench = time_launch  # noqa: SLF001 - likewise
            result = original(tuner, *arguments, **options)
            timings = getattr(tuner, "configs_timings", None)  # replaced where this very launch was tuned
            self._keep(tuner, "" if answers.asked is None else answers.text, None if timings is known else timings)
            return result

        self._watching = Autotuner.run = run

    def _answer(self, tuner: Any, chosen: Mapping[Any, Any]) -> _Answers:  # noqa: ANN401 - Triton's tuner
        answers = tuner.cache = self._answers[tuner] = _Answers(tuner, chosen, self._pinned)
        return answers

    def _pinned(self, tuner: Any, key: str) -> Any | None:  # noqa: ANN401 - Triton's tuner and its configuration
        name = tuner.base_fn.__name__
        wanted = self._pins.get((name, key), self._pins.get((name, "")))
        return next((config for config in tuner.configs if config_text(config) == wanted), None)

    def _keep(self, tuner: Any, key: str, timings: dict[Any, Any] | None) -> None:  # noqa: ANN401 - Triton's tuner
        name, config = tuner.base_fn.__name__, config_text(tuner.best_config)
        before = self._choices.get((name, key))
        if before is None or before.config != config:
            self._choices[name, key] = Choice(kernel=name, config=config, key=key, timings_us=_in_us(timings or {}))


class _Answers(dict[Any, Any]):
    """A tuner's cache, in which what is pinned stands before what was chosen.

    Triton looks up each launch that has more than one candidate by the key that it makes of the arguments, so that the
    key need not be made here, where it would be another version's.

    Attributes:
        asked: the key that was looked up last.
        pinned: keys that were looked up, and the configuration that is pinned for each; None where there is none.
    """

    def __init__(self, tuner: Any, chosen: Mapping[Any, Any], pin: Callable[[Any, str], Any]) -> None:  # noqa: ANN401 - Triton's tuner
        super().__init__(chosen)
        self.asked: Any = None
        self.pinned: dict[Any, Any] = {}
        self._tuner, self._pin = tuner, pin
        self._texts: dict[Any, str] = {}

    @property
    def text(self) -> str:
        """The key that was looked up last, in words."""
        known = self._texts.get(self.asked)
        return known if known is not None else self._texts.setdefault(self.asked, key_text(self.asked))

    def __contains__(self, key: object) -> bool:
        self.asked = key
        if key not in self.pinned:
            self.pinned[key] = self._pin(self._tuner, self.text)
        return self.pinned[key] is not None or super().__contains__(key)

    def __getitem__(self, key: object) -> Any:  # noqa: ANN401 - Triton's configuration
        pinned = self.pinned.get(key)
        return super().__getitem__(key) if pinned is None else pinned


def config_text(config: object) -> str:
    """Write a tuner's configuration, alike with every Triton: 3.9 names a setting more, for those who debug a compiler.

    >>> config_text("BLOCK: 64, maxnreg: None, ir_override: None")
    'BLOCK: 64, maxnreg: None'
    """
    return str(config).removesuffix(", ir_override: None")


def key_text(key: object) -> str:
    """Write a tuner's key, or a part of it, alike in every process: values and names, no addresses.

    >>> key_text((4096, None, True, "torch.float16", ("torch.float16", 8), torch.relu))
    '4096, None, True, float16, (float16, 8), relu'
    """
    match key:
        case str() | numbers.Number():
            return str(key).removeprefix("torch.")
        case tuple():
            parts = [f"({key_text(part)})" if isinstance(part, tuple) else key_text(part) for part in key]
            return ", ".join(parts)
        case _ if hasattr(key, "dtype"):  # a tensor: its values would have to come from the GPU
            return type(key).__name__
        case _:
            name = getattr(key, "__name__", None)
            return str(name) if name else _ADDRESS.sub("", str(key)).removeprefix("torch.")


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


def _in_us(timings: dict[Any, Any]) -> dict[str, float]:
    """Convert what a tuner measured from milliseconds, the fastest first; candidates that failed are left out."""
    times_us = {
        config_text(config): (time[0] if isinstance(time, list | tuple) else time) * _MICROSECONDS_PER_MILLISECOND
        for config, time in timings.items()
    }
    return {name: time for name, time in sorted(times_us.items(), key=lambda item: item[1]) if time < float("inf")}

"""What asv records: every metric of every case, measured by workers in one go, and read back value by value.

asv starts a process for each value. Here one process measures all cases of a module (asv's ``setup_cache``), by
workers that import the packages under test from the commit's checkout; the processes that follow only read.
"""

from __future__ import annotations

import contextlib
import math
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from flopwatch import overlay
from flopwatch.asv.failures import KeptFailure, keep_failures
from flopwatch.config import Config, load_config
from flopwatch.measure.client import CaseFailed, Code, Mode, Worker
from flopwatch.model import Case, Failure, KernelFacts, Memory, Numbers
from flopwatch.static.not_covered import NotCovered

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from flopwatch.suite import Suite

#: Names the working tree; what measures runs in folders of asv.
ROOT_VARIABLE = "FLOPWATCH_ROOT"
#: The GPU by which the results are labelled. Empty for none: then none is used, or the label would be wrong.
GPU_VARIABLE = "FLOPWATCH_GPU"

#: Case -> metric -> value, or why there is none. A metric that does not apply is absent.
Cache = dict[str, dict[str, object]]

T = TypeVar("T")


def measure(suites: Sequence[type[Suite]]) -> Cache:
    """Measure every case of the suites; with no GPU, only what can be known without one.

    The checkout comes from the environment (`flopwatch.overlay`); without one, what is installed is measured. Failures
    are kept in ``.flopwatch/failures`` of the working tree as well.

    Raises:
        FlopwatchError: no worker comes up, or ``[tool.flopwatch]`` is wrong.
    """
    folder = _benchmarks_folder(suites[0])
    root = Path(os.environ.get(ROOT_VARIABLE) or folder.parent)
    config = load_config(root)
    with contextlib.ExitStack() as stack:
        gpu, static, interpreter = (stack.enter_context(_worker(mode, folder, config)) for mode in Mode)
        has_gpu = os.environ.get(GPU_VARIABLE) != "" and gpu.hello.gpu is not None
        small_numbers = _SmallNumbers(interpreter, config)
        cache: Cache = {}
        for suite in suites:
            for case in suite.cases():
                values = gpu_metrics(gpu, case) if has_gpu else small_numbers.failures(suite, case)
                if case.provider == suite.own_provider:
                    values |= static_metrics(static, case)
                cache[case.id] = {metric: finite(value) for metric, value in values.items()}
    keep_failures(root, os.environ.get("ASV_COMMIT", "working-tree"), _failures(cache))
    return cache


def read(cache: Cache, case: Case, metric: str) -> object:
    """Return one value for asv: a number, samples, or NaN where the metric does not apply to the case.

    Raises:
        RuntimeError: the case failed; asv then stores null, and shows the cause with ``--show-stderr``.
    """
    value = cache.get(case.id, {}).get(metric, math.nan)
    if isinstance(value, Failure):
        raise RuntimeError(f"{case.id}: {value.kind}: {value.message}\n{value.traceback}")  # noqa: TRY004 - no type error
    return value


def gpu_metrics(worker: Worker, case: Case) -> dict[str, object]:
    """Measure seconds, distance from the reference, and memory in bytes."""
    timing = _attempt(lambda: worker.time(case))
    numbers = _finite_numbers(_attempt(lambda: worker.numbers(case)))
    return {
        "time": timing if isinstance(timing, Failure) else {"samples": list(timing.seconds), "number": 1},
        "max_diff": numbers if isinstance(numbers, Failure) else numbers.max_diff,
        "max_diff_eps": numbers if isinstance(numbers, Failure) else numbers.max_diff_eps,
        "peak_memory": _peak_bytes(_attempt(lambda: worker.memory(case))),
    }


def static_metrics(worker: Worker, case: Case) -> dict[str, object]:
    """Compile the case and sum up what came out, over the kernels in the configurations that would run."""
    facts = _attempt(lambda: worker.facts(case))
    if not isinstance(facts, Failure):
        facts = _chosen(facts)
    if isinstance(facts, Failure):
        return dict.fromkeys(("registers", "spills", "shared_memory", "idle_warp_slots"), facts)
    if not facts:
        return {}
    occupancy = min((fact.occupancy for fact in facts if fact.occupancy is not None), default=math.nan)
    return {
        "registers": max((fact.registers for fact in facts if fact.registers is not None), default=math.nan),
        "spills": sum(fact.spill_bytes or 0 for fact in facts),
        "shared_memory": max((fact.shared_bytes for fact in facts if fact.shared_bytes is not None), default=math.nan),
        "idle_warp_slots": 100 * (1 - occupancy),
    }


class _SmallNumbers:
    """The check of the numbers where there is no GPU: each case at its small size, by Triton's interpreter.

    The difference at the small size is another quantity than that of the case, so it is not recorded; a result that
    fails, is not finite or exceeds the suite's ceiling makes the case's max-diff a failure.
    """

    def __init__(self, worker: Worker, config: Config) -> None:
        self._worker = worker
        self._config = config
        self._known: dict[str, Failure | None] = {}

    def failures(self, suite: type[Suite], case: Case) -> dict[str, object]:
        """Return the failure of the case's numbers, or nothing."""
        if case.provider != suite.own_provider:
            return {}
        small = suite.small_case(case)
        if small.id not in self._known:
            ceiling = self._config.max_diff_eps if suite.max_diff_eps is None else suite.max_diff_eps
            self._known[small.id] = small_failure(self._worker, small, ceiling)
        failure = self._known[small.id]
        return {} if failure is None else {"max_diff": failure, "max_diff_eps": failure}


def small_failure(worker: Worker, small: Case, ceiling: float) -> Failure | None:
    """Run a small case by the interpreter; return why its numbers are wrong, None where they are right or not known."""
    numbers = _finite_numbers(_attempt(lambda: worker.numbers(small)))
    if isinstance(numbers, Failure):
        return None if numbers.kind == NotCovered.__name__ else numbers
    if numbers.max_diff_eps is not None and numbers.max_diff_eps > ceiling:
        return Failure(
            kind="WrongNumbers", message=f"{small.id} is off by {numbers.max_diff_eps:.4g} eps of {ceiling:g}"
        )
    return None


def _peak_bytes(memory: Memory | Failure) -> int | Failure:
    return memory if isinstance(memory, Failure) else memory.peak_bytes


def _worker(mode: Mode, folder: Path, config: Config) -> Worker:
    tree = os.environ.get(overlay.TREE_VARIABLE)
    code = Code(
        benchmarks=folder,
        tree=None if tree is None else Path(tree),
        source=os.environ.get(overlay.SOURCE_VARIABLE, ""),
        packages=tuple(name for name in os.environ.get(overlay.PACKAGES_VARIABLE, "").split(",") if name),
        device=config.device,
        keep_choices=True,  # a near tie must not fall another way at every commit
    )
    return Worker(mode, code)


def _benchmarks_folder(suite: type[Suite]) -> Path:
    package = sys.modules[suite.__module__.partition(".")[0]]
    return Path(next(iter(package.__path__)))


def _attempt(request: Callable[[], T]) -> T | Failure:
    try:
        return request()
    except CaseFailed as error:
        return error.failure


def _chosen(facts: tuple[KernelFacts, ...]) -> tuple[KernelFacts, ...] | Failure:
    """Return the facts of the configurations that would run, or why one of them cannot."""
    chosen = tuple(fact for fact in facts if fact.chosen)
    return next((fact.failure for fact in chosen if fact.failure is not None), chosen)


def _finite_numbers(numbers: Numbers | Failure) -> Numbers | Failure:
    if isinstance(numbers, Failure) or numbers.finite:
        return numbers
    return Failure(kind="NotFinite", message="the result or its reference has an infinity or a NaN")


def finite(value: object) -> object:
    """Turn an infinity into a failure, or asv can no longer publish; None, of what is not known, becomes NaN.

    >>> finite(0.5), finite(None), finite(math.inf).kind
    (0.5, nan, 'NotFinite')
    """
    samples = value["samples"] if isinstance(value, dict) else [value]
    if any(isinstance(sample, float) and math.isinf(sample) for sample in samples):
        return Failure(kind="NotFinite", message=f"measured {value}")
    return math.nan if value is None else value


def _failures(cache: Cache) -> Iterator[KeptFailure]:
    for case, values in cache.items():
        causes: dict[Failure, list[str]] = {}
        for metric, value in values.items():
            if isinstance(value, Failure):
                causes.setdefault(value, []).append(metric)
        for failure, metrics in causes.items():
            yield KeptFailure(case=case, metrics=tuple(metrics), failure=failure)

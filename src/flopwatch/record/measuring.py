"""One case of one commit: what a GPU says of it, or what can be known without one."""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from flopwatch.asv.anchored import RATIO
from flopwatch.asv.recording import finite, gpu_metrics, small_failure, static_metrics
from flopwatch.measure.client import CaseFailed
from flopwatch.measure.pair import PairSample, sample_pair
from flopwatch.model import Failure
from flopwatch.record.sidecar import Missing
from flopwatch.record.store import Values

if TYPE_CHECKING:
    from collections.abc import Callable

    from flopwatch.measure.client import Worker
    from flopwatch.measure.nvml import Watch
    from flopwatch.measure.protocol import DeclaredCase
    from flopwatch.model import Case

#: A pair at fault is measured once more. Where the clocks of the two slots differ each time, they are the commits' own,
#: and the ratio stands, as in a gate.
PAIR_TRIES = 2


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
    """One case.

    Attributes:
        values: of each metric that applies; a `Failure` where there is none.
        anchor_seconds: the anchor's median in the pair; None where there was no pair.
        pair_seconds: the commit's own.
        commit_slot: the slot that ran the commit.
    """

    values: Values
    anchor_seconds: float | None = None
    pair_seconds: float | None = None
    commit_slot: int | None = None

    @property
    def missing(self) -> tuple[Missing, ...]:
        """What could not be measured, each cause once."""
        causes: dict[Failure, list[str]] = {}
        for metric, value in self.values.items():
            if isinstance(value, Failure):
                causes.setdefault(value, []).append(metric)
        return tuple(Missing(metrics=tuple(metrics), failure=failure) for failure, metrics in causes.items())


class OnGpu:
    """Measures on a GPU: seconds, numbers and memory as `asv run` does, the static facts, and the pair.

    Args:
        worker: runs the commit on the GPU.
        static: compiles it.
        anchor: runs the anchor on the GPU; None where there is none.
        watch: reads the GPU.
        toss: a fair coin: whether the commit is slot 1.
    """

    def __init__(
        self, worker: Worker, static: Worker, *, anchor: Worker | None, watch: Watch, toss: Callable[[], bool]
    ) -> None:
        self._worker = worker
        self._static = static
        self._anchor = anchor
        self._watch = watch
        self._toss = toss

    def measure(self, entry: DeclaredCase) -> Measured:
        """Measure a case; what fails is a value too."""
        values = gpu_metrics(self._worker, entry.case)
        if entry.own:
            values |= static_metrics(self._static, entry.case)
        if self._anchor is None or not entry.own:
            return Measured(values=_finite(values))
        if isinstance(values["time"], Failure):
            return Measured(values=_finite(values | {RATIO: values["time"]}))
        commit_slot = int(self._toss())
        slots = (self._anchor, self._worker) if commit_slot else (self._worker, self._anchor)
        pair = self._pair(slots, entry.case)
        if isinstance(pair, Failure):
            return Measured(values=_finite(values | {RATIO: pair}))
        ratio = math.exp(pair.log_ratio if commit_slot else -pair.log_ratio)
        return Measured(
            values=_finite(values | {RATIO: ratio}),
            anchor_seconds=pair.median_seconds(1 - commit_slot),
            pair_seconds=pair.median_seconds(commit_slot),
            commit_slot=commit_slot,
        )

    def _pair(self, slots: tuple[Worker, Worker], case: Case) -> PairSample | Failure:
        for _ in range(PAIR_TRIES):
            try:
                sample = sample_pair(slots, case, meter=self._watch)
            except CaseFailed as error:
                whose = "the anchor" if error.worker is self._anchor else "the commit"
                failure = error.failure
                return Failure(
                    kind=failure.kind, message=f"{whose}, in a pair: {failure.message}", traceback=failure.traceback
                )
            finally:
                for worker in reversed(slots):  # what is borrowed is given back before its owner does
                    with contextlib.suppress(CaseFailed):
                        worker.release(case)
            if not sample.fault or sample.clocks_mhz:  # a clock of its own is part of what a commit costs
                return sample
        return Failure(kind="UnfitPair", message=sample.fault)


class WithoutGpu:
    """Finds out what is the same without a GPU: the static facts, and whether small results are right.

    Args:
        static: compiles the commit for a GPU that is not there.
        interpreter: runs it by Triton's interpreter.
        max_diff_eps: the ceiling for the numbers of suites without one of their own.
    """

    def __init__(self, static: Worker, interpreter: Worker, *, max_diff_eps: float) -> None:
        self._static = static
        self._interpreter = interpreter
        self._max_diff_eps = max_diff_eps
        self._known: dict[Case, Failure | None] = {}

    def measure(self, entry: DeclaredCase) -> Measured:
        """Compile a case and check its small version, as `asv run` does here; peers have nothing to be found out."""
        if not entry.own:
            return Measured(values={})
        if entry.small not in self._known:
            ceiling = self._max_diff_eps if entry.max_diff_eps is None else entry.max_diff_eps
            self._known[entry.small] = small_failure(self._interpreter, entry.small, ceiling)
        wrong = self._known[entry.small]
        values: Values = {} if wrong is None else {"max_diff": wrong, "max_diff_eps": wrong}
        return Measured(values=_finite(values | static_metrics(self._static, entry.case)))


def _finite(values: Values) -> Values:
    return {metric: finite(value) for metric, value in values.items()}

"""Two cases in one process, taking turns: peers that compute the same, such as a kernel and cuBLAS.

One process gives both the same context, clock and host, so that only what they run differs. Modes of the machine are
still drawn by each process: callers repeat this in fresh ones.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, cast

from flopwatch.measure.pair import NO_PINS, sample_pair

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flopwatch.measure.client import Worker
    from flopwatch.measure.pair import Meter, PairSample, Slots
    from flopwatch.measure.protocol import Plan, Prepared
    from flopwatch.model import Case, Choice


def sample_rivals(
    worker: Worker,
    rivals: tuple[Case, Case],
    *,
    plan: Plan | None = None,
    pins: tuple[Sequence[Choice], Sequence[Choice]] = NO_PINS,
    meter: Meter | None = None,
) -> PairSample:
    """Let both cases take turns in one worker, as the two processes of a pair do.

    Args:
        worker: runs both.
        rivals: slot 0 and slot 1.
        plan: how to sample both; None takes the plan of the shorter one, which needs more calls: with fewer, the start
            of a graph would count as its kernel's.
        pins: what the autotuned kernels of each must run in.
        meter: reads the GPU after every turn.

    Raises:
        CaseFailed: either cannot be run.
    """
    if plan is None:
        plans = [worker.prepare(case, None, own).plan for case, own in zip(rivals, pins, strict=True)]
        plan = max(plans, key=lambda own: own.calls)
    worker.release(rivals[0])  # all that is prepared: what was measured before these, too
    asking = threading.Lock()  # the one worker, which both slots are
    slots = [
        # A call outside of a graph asks the tuner again, whichever case was prepared last: both have the pins of both.
        _Rival(worker, case, (*pins[1 - slot], *pins[slot]), asking)
        for slot, case in enumerate(rivals)
    ]
    return sample_pair(cast("Slots", tuple(slots)), rivals[0], plan=plan, meter=meter)


class _Rival:
    """One case of a worker, in the place that a worker of its own has in a pair."""

    def __init__(self, worker: Worker, case: Case, pins: Sequence[Choice], asking: threading.Lock) -> None:
        self._worker = worker
        self._case = case
        self._pins = pins
        self._asking = asking

    def prepare(
        self, _case: Case, plan: Plan | None = None, _pins: Sequence[Choice] = (), *, lent: str = ""
    ) -> Prepared:
        return self._worker.prepare(self._case, plan, self._pins, beside=True, lent=lent)

    def lend(self, _case: Case, _to: Worker) -> str:
        """Lend nothing: a process cannot open its own memory a second time."""
        return ""

    def place(self, _case: Case) -> None:
        with self._asking:  # a pair asks both slots at the same time
            self._worker.place(self._case)

    def abandon(self) -> None:
        self._worker.abandon()

    def visit(self, _case: Case, samples: int) -> tuple[float, ...]:
        return self._worker.visit(self._case, samples)

    def launch(self, _case: Case, samples: int) -> tuple[float, ...]:
        return self._worker.launch(self._case, samples)

    def release(self, _case: Case) -> None:
        self._worker.release(self._case)

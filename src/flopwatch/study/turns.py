"""Many cases in one process, taking turns: what a power controller or a neighbour does, it does to all of them.

A cycle visits every case twice, in an order that is drawn anew and then in the opposite one, so that what drifts in a
line through the cycle cancels, and who comes after a case that draws much power is left to chance.
"""

from __future__ import annotations

import secrets
import statistics
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from flopwatch.measure.client import CaseFailed
from flopwatch.measure.pair import SAMPLES
from flopwatch.measure.protocol import Method, Plan
from flopwatch.model import Case

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from flopwatch.measure.client import Worker
    from flopwatch.model import Choice

#: Cycles at a point, and the time after which the fewest are enough. Eleven lines of products of 20480, 26 ms each,
#: take 1.2 s a cycle, so that eight rounds have 16 of these; two kernels in one process that took 48 turns each, 1.5 ms
#: long, differed by 0.01 % (H200, 2026-11-20).
CYCLES = (2, 40)
TURNS_S = 1.2


@dataclass(kw_only=True)
class Turns:
    """What one process says of some cases.

    Attributes:
        plan: how all of them were sampled.
        seconds: of each case, one for each cycle: the mean of its samples.
        failures: of those that could not be prepared, the cause.
    """

    plan: Plan
    seconds: dict[Case, list[float]]
    failures: dict[Case, str] = field(default_factory=dict)


def take_turns(
    worker: Worker,
    pins: Mapping[Case, Sequence[Choice]],
    *,
    plan: Plan | None = None,
    shuffle: Callable[[Sequence[Case]], list[Case]] | None = None,
) -> Turns:
    """Let cases take turns in one worker.

    Args:
        worker: runs all of them.
        pins: the cases, and what the autotuned kernels of each must run in.
        plan: how to sample all; None takes the plan of the shortest, which needs the most calls.
        shuffle: draws an order; the operating system's chance by default.

    Raises:
        CaseFailed: one fails after it was prepared, with which all others are lost.
    """
    shuffle = shuffle or (lambda cases: secrets.SystemRandom().sample(list(cases), len(cases)))
    cases = list(pins)
    if plan is None:
        plans, failures = _prepare(worker, cases, pins, None)
        if not plans:
            return Turns(plan=Plan(method=Method.GRAPH, calls=1, input_sets=1), seconds={}, failures=failures)
        plan = max(plans.values(), key=lambda own: own.calls)
    plans, failures = _prepare(worker, cases, pins, plan)
    others = [own for own in plans.values() if own != plan]
    if others:  # one cannot be captured into a graph: sample all alike
        plan = others[0]
        plans, failures = _prepare(worker, cases, pins, plan)
    turns = Turns(plan=plan, seconds={case: [] for case in plans}, failures=failures)
    samples = SAMPLES if plan.calls > 1 else 1
    for case in plans:  # the first samples after all were prepared, which are thrown away
        worker.visit(case, samples)
    until = time.monotonic() + TURNS_S
    for cycle in range(CYCLES[1] if plans else 0):
        if cycle >= CYCLES[0] and time.monotonic() >= until:
            break
        order = shuffle(list(plans))
        taken: dict[Case, list[float]] = {case: [] for case in order}
        for case in (*order, *reversed(order)):
            taken[case] += worker.visit(case, samples)
        for case, seconds in taken.items():
            turns.seconds[case].append(statistics.fmean(seconds))
    worker.release(cases[0])
    return turns


def _prepare(
    worker: Worker, cases: Sequence[Case], pins: Mapping[Case, Sequence[Choice]], plan: Plan | None
) -> tuple[dict[Case, Plan], dict[Case, str]]:
    """Prepare all cases beside each other, but where plans are asked for: then each has the memory for itself."""
    worker.release(cases[0])
    plans: dict[Case, Plan] = {}
    failures: dict[Case, str] = {}
    for case in cases:
        # A call outside of a graph asks the tuner again, whichever case was prepared last: all have the pins of all.
        every = [pin for other, own in pins.items() if other != case for pin in own]
        try:
            prepared = worker.prepare(case, plan, (*every, *pins[case]), beside=plan is not None)
        except CaseFailed as error:
            failures[case] = str(error).splitlines()[0]
        else:
            plans[case] = prepared.plan
    return plans, failures

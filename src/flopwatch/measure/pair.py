"""Two workers on one GPU, taking turns: the samples from which an effect is estimated.

The enemy inside a pair is the power controller, which moves within milliseconds: many short turns beat few long ones.
On an H200 (2026-11-20) 16 ABBA cycles of 3 launches gave an A/A error of 0.05 % where 4 cycles of 12 gave 0.7 to 2.4 %
at the same cost.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING

from flopwatch.model import Case

if TYPE_CHECKING:
    from flopwatch.measure.client import Worker

CYCLES = 16
LAUNCHES = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class PairSample:
    """What one pair of processes says about one case.

    Attributes:
        case: the case.
        log_ratio: median over the cycles of log(head seconds / base seconds).
        base_seconds: median of base's samples, seconds per call.
        head_seconds: median of head's.
        method: how the samples were taken, "graph" or "events".
        head_first: whether head took the first turn of each cycle, by the toss of a coin.
    """

    case: Case
    log_ratio: float
    base_seconds: float
    head_seconds: float
    method: str
    head_first: bool


def sample_pair(base: Worker, head: Worker, case: Case, *, head_first: bool) -> PairSample:
    """Let both sides take turns on one case: ABBA, `CYCLES` times, `LAUNCHES` samples a turn.

    Raises:
        CaseFailed: either side cannot run it.
    """
    plan = base.prepare(case)
    followed = head.prepare(case, plan)
    if followed != plan:  # head could not be captured into a graph: both sides must be sampled alike
        plan = base.prepare(case, followed)
    first, second = (head, base) if head_first else (base, head)
    seconds: dict[int, list[float]] = {id(base): [], id(head): []}
    log_ratios = []
    for _ in range(CYCLES):
        turn: dict[int, list[float]] = {id(base): [], id(head): []}
        for worker in (first, second, second, first):
            turn[id(worker)] += worker.visit(case, LAUNCHES)
        for key, values in turn.items():
            seconds[key] += values
        log_ratios.append(math.log(statistics.median(turn[id(head)]) / statistics.median(turn[id(base)])))
    return PairSample(
        case=case,
        log_ratio=statistics.median(log_ratios),
        base_seconds=statistics.median(seconds[id(base)]),
        head_seconds=statistics.median(seconds[id(head)]),
        method=plan.method.value,
        head_first=head_first,
    )

"""Time, in fresh processes that a coin tells apart; and what their pairs say."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from flopwatch.compare.result import ComparedCase, Contender, Speed
from flopwatch.errors import MachineError
from flopwatch.gate.pairs import Arms, Experiment
from flopwatch.gate.sides import Arm
from flopwatch.measure.pair import PairSample, sample_pair
from flopwatch.measure.rivals import sample_rivals
from flopwatch.model import Case
from flopwatch.report.wording import count
from flopwatch.stats import PRIOR, interval

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flopwatch.gate.result import PairLog
    from flopwatch.measure.client import Worker
    from flopwatch.measure.nvml import Watch

#: Of each bound: 0.5 % on either side, as in the gate's reports.
ALPHA = 0.005


class ReasonsAlone:
    """A meter that does not tell the clock: a peer that draws more power runs at a lower one, which belongs to it.

    So no pair is left out, or noted, for its clocks: two providers differ in every pair, bad differs from good in every
    pair of a bisection, and the test is exact with such pairs as without them.
    """

    def __init__(self, watch: Watch) -> None:
        self._watch = watch

    def clock(self) -> int:
        """Return what stands for a clock that is not known."""
        return -1

    def reason_bits(self) -> int:
        """Return why the clock is not higher."""
        return self._watch.reason_bits()


@dataclass(kw_only=True)
class Pairs(Experiment):
    """The pairs of a comparison, which is content with as many as it gets.

    Attributes:
        cases: what is compared, by head's case.
        together: both cases of a pair run in one process; else each side has its own.
        lost: why the GPU no longer answers; "" while it does.
        interrupted: the measuring was stopped.
    """

    cases: dict[Case, ComparedCase]
    together: bool
    stage: str = "compare"
    lost: str = ""
    interrupted: bool = False

    def measure_all(self, pairs: int) -> None:
        """Measure fresh pairs of what can be compared, as far as one gets."""
        cases = [case for case, compared in self.cases.items() if not compared.reason]
        if not cases:
            return
        self.observer.step(f"measuring {count(len(cases), 'case')} in {count(pairs, 'pair')}")
        try:
            self.measure(cases, pairs)
        except KeyboardInterrupt:
            self.interrupted = True
        except MachineError as error:
            self.lost = str(error.what)

    def timed(self, compared: ComparedCase) -> ComparedCase:
        """Add to a case what the pairs say of it."""
        case = compared.head.case
        plan = self.plans.get(case)
        failure = self.given_up(case)
        return replace(
            compared,
            base=self._with_seconds(compared.base, case, Arm.BASE),
            head=self._with_seconds(compared.head, case, Arm.HEAD),
            speed=speed_of([-log.log_ratios[case.id] for log in self.logs if case.id in log.log_ratios]),
            method=plan.method.value if plan else "",
            reason=f"fails while it is measured ({failure})" if failure else compared.reason,
        )

    def unfit(self) -> str:
        """Return why none of this can be trusted; "" where it can."""
        return self.lost or super().unfit()

    def _started(self, arms: Arms) -> tuple[Arm, ...]:
        return (Arm.HEAD,) if self.together else arms

    def _sample(self, workers: Sequence[Worker], case: Case, arms: Arms) -> PairSample:
        compared = self.cases[case]
        zero, one = ((compared.base, compared.head)[arm is Arm.HEAD] for arm in arms)
        plan, pins, meter = self.plans.get(case), (zero.choices, one.choices), ReasonsAlone(self.watch)
        if self.together:
            return sample_rivals(workers[0], (zero.case, one.case), plan=plan, pins=pins, meter=meter)
        return sample_pair((workers[0], workers[1]), case, plan=plan, pins=pins, meter=meter)

    def _with_seconds(self, contender: Contender, case: Case, arm: Arm) -> Contender:
        seconds, launch_seconds = self.medians(case, arm)
        return replace(contender, seconds=seconds, launch_seconds=launch_seconds)


def speed_of(log_ratios: Sequence[float]) -> Speed | None:
    """Estimate a speed from one log(base seconds / head seconds) a pair; None where there are none.

    >>> found = speed_of([0.049, 0.050, 0.051, 0.050, 0.050, 0.050, 0.049, 0.051])
    >>> round(found.estimate, 3), round(found.lower, 3), round(found.upper, 3)
    (0.05, 0.049, 0.051)
    >>> speed_of([0.05, 0.05]).lower is None
    True
    """
    if not log_ratios:
        return None
    bounds = interval(np.array([log_ratios]), PRIOR, alpha=ALPHA)
    lower, upper = float(bounds.lower[0]), float(bounds.upper[0])
    return Speed(
        estimate=float(bounds.estimate[0]),
        lower=lower if math.isfinite(lower) else None,
        upper=upper if math.isfinite(upper) else None,
        pairs=len(log_ratios),
    )


def overall_speed(cases: Sequence[ComparedCase], logs: Sequence[PairLog]) -> Speed | None:
    """Return the geometric mean of the measured cases' speeds; its bounds need pairs that measured all of them."""
    speeds = {case.head.case.id: case.speed for case in cases if case.speed is not None}
    if not speeds:
        return None
    whole = [log.log_ratios for log in logs if speeds.keys() <= log.log_ratios.keys()]
    found = speed_of([-statistics.fmean(ratios[name] for name in speeds) for ratios in whole])
    if found is not None:
        return found
    mean = statistics.fmean(speed.estimate for speed in speeds.values())
    return Speed(estimate=mean, lower=None, upper=None, pairs=0)

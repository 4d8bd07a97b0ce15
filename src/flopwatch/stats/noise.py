"""The noise floor: how far pairs of the same code come out apart, and what a gate finds where they do."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from flopwatch.stats.design import Design
from flopwatch.stats.power import detectable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

#: What a pair may err by: 0.2 %, and 0.1 % from 100 us up. That is the aim on an H200, where 16 ABBA cycles of 3
#: launches gave 0.15 to 0.29 % and 0.05 to 0.12 % (2026-11-20).
AIM = 0.002
AIM_LONG = 0.001
LONG_S = 100e-6
#: A few pairs may err further by chance: a case at its aim is told of once in a thousand times.
CHANCE = 0.001


@dataclass(frozen=True, kw_only=True, slots=True)
class NoiseFloor:
    """What pairs of the same code say of one case.

    Attributes:
        case: its name.
        seconds: per call.
        pairs: how many.
        deviation: root mean square of their log ratios.
        detectable: the slowdown, as a log ratio, that a gate of all cases finds with 95 % probability where pairs err
            by `deviation`.
    """

    case: str
    seconds: float
    pairs: int
    deviation: float
    detectable: float

    @property
    def aim(self) -> float:
        """The deviation that is aimed at."""
        return AIM_LONG if self.seconds >= LONG_S else AIM

    @property
    def excessive(self) -> bool:
        """Whether it misses the aim by more than chance, errors being normal.

        Three pairs may err by 2.3 times the aim, ten by 1.7 times: the quantile of chi-square by E. B. Wilson and M. M.
        Hilferty, "The distribution of chi-square", Proc. Natl. Acad. Sci. 17 (1931), 684.
        """
        spread = 2 / (9 * self.pairs)
        quantile = (1 - spread + statistics.NormalDist().inv_cdf(1 - CHANCE) * math.sqrt(spread)) ** 3
        return self.deviation > self.aim * math.sqrt(quantile)


def noise_floors(
    log_ratios: Mapping[str, Sequence[float]],
    *,
    seconds: Mapping[str, float],
    margins: Mapping[str, float],
    series: int,
    design: Design | None = None,
) -> tuple[NoiseFloor, ...]:
    """Say how far pairs of the same code come out apart, the shortest case first.

    Args:
        log_ratios: of each case, one a pair.
        seconds: of a call of each case.
        margins: the accepted slowdown of each, as a log ratio.
        series: how many cases a gate tests together.
        design: how it tests them; the default design, if None.

    >>> (floor,) = noise_floors({"Add": [0.001, -0.001]}, seconds={"Add": 5e-6}, margins={"Add": 0.005}, series=60)
    >>> floor.pairs, round(floor.deviation, 6), 0.006 < floor.detectable < 0.007, floor.excessive
    (2, 0.001, True, False)
    """
    cases = sorted(log_ratios, key=lambda case: (seconds[case], case))
    deviations = [math.sqrt(statistics.fmean(ratio**2 for ratio in log_ratios[case])) for case in cases]
    found = detectable(
        design or Design(),
        series=series,
        margins=np.array([margins[case] for case in cases]),
        deviations=np.array(deviations),
    )
    return tuple(
        NoiseFloor(
            case=case,
            seconds=seconds[case],
            pairs=len(log_ratios[case]),
            deviation=deviation,
            detectable=slowdown,
        )
        for case, deviation, slowdown in zip(cases, deviations, found.tolist(), strict=True)
    )

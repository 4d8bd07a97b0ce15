"""The effect of a change, estimated from pairs of processes.

The unit is the pair, never the launch: launches within a process share its placement in memory and are not
independent. With few pairs the interval is Student's; its scale has a floor, because five pairs that happen to agree
do not prove a machine without noise.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Pairs of processes behind one decision. The quantile below has a closed form for just this number.
PAIRS = 5
#: The chance that a run with nothing changed reports any case as slower.
FALSE_ALARM_RATE = 0.001
#: The chance, a case, that SAME is said of a slowdown as large as `SAME_WITHIN`.
MISS_RATE = 0.005
SAME_WITHIN = math.log(1.01)
#: Standard deviation of one pair's log ratio below which none is believed: the A/A scatter between processes on an
#: H200 was 0.03 to 0.37 %, in the middle 0.08 % (docs/decisions/0001, with the commands).
SCALE_FLOOR = 0.001


@dataclass(frozen=True, kw_only=True, slots=True)
class Effect:
    """How head compares with base, as log(head seconds / base seconds); positive is slower.

    Attributes:
        log_ratio: mean over the pairs.
        standard_error: of that mean.
        lower: head is slower than this, at the false-alarm rate of the whole run shared among its cases.
        upper: head is faster than this, likewise.
        same_upper: head is not slower than this, at `MISS_RATE`.
    """

    log_ratio: float
    standard_error: float
    lower: float
    upper: float
    same_upper: float


def student_quantile_4(probability: float) -> float:
    """Return the quantile of Student's t distribution with four degrees of freedom.

    Closed form: W. T. Shaw, "Sampling Student's T distribution", Journal of Computational Finance 9 (2006), eq. 37.

    Args:
        probability: strictly between 0 and 1.

    >>> round(student_quantile_4(0.975), 4)
    2.7764
    """
    alpha = 4 * probability * (1 - probability)
    root = math.cos(math.acos(math.sqrt(alpha)) / 3) / math.sqrt(alpha)
    return math.copysign(2 * math.sqrt(max(root - 1, 0.0)), probability - 0.5)


def estimate(log_ratios: Sequence[float], *, cases: int, looks: int = 1) -> Effect:
    """Estimate the effect of a change from `PAIRS` pairs.

    Args:
        log_ratios: log(head seconds / base seconds), one a pair.
        cases: how many cases share the run's false-alarm rate (Bonferroni).
        looks: how often in the run this case may be decided.

    Raises:
        ValueError: not `PAIRS` values, or one that is not finite.

    >>> effect = estimate([0.020, 0.021, 0.019, 0.020, 0.020], cases=10)
    >>> round(effect.log_ratio, 3), effect.lower > 0.005
    (0.02, True)
    """
    if len(log_ratios) != PAIRS or not all(map(math.isfinite, log_ratios)):
        raise ValueError(f"need {PAIRS} finite log ratios, got {list(log_ratios)}")
    mean = statistics.fmean(log_ratios)
    standard_error = max(statistics.stdev(log_ratios), SCALE_FLOOR) / math.sqrt(PAIRS)
    reach = standard_error * student_quantile_4(1 - FALSE_ALARM_RATE / (cases * looks))
    return Effect(
        log_ratio=mean,
        standard_error=standard_error,
        lower=mean - reach,
        upper=mean + reach,
        same_upper=mean + standard_error * student_quantile_4(1 - MISS_RATE),
    )

"""Throughput and occupancy from what asv stores, which is always "lower is better".

asv knows one direction: up is bad. Stored are therefore seconds and idle warp slots; what people want to see is
derived from them when the pages are built, points and steps alike, so that both tell of the same changes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

#: asv's fit of a constant to a stretch of history: first revision, last revision + 1, median, minimum, mean deviation.
Step = tuple[int, int, float, float, float]


@dataclass(frozen=True, kw_only=True, slots=True)
class Derivation:
    """A quantity that is higher when things are better.

    Attributes:
        metric: the stored metric from which it is derived.
        name: what takes the place of ``track_<metric>`` in the benchmark's name.
        unit: its unit.
        work: the attribute of the stored benchmark that lists the work of one call for each case, in `scale` units per
            unit of `unit`; the derived value is work / stored. Empty for percentages: 100 - stored.
        scale: see `work`.
    """

    metric: str
    name: str
    unit: str
    work: str = ""
    scale: float = 1.0

    def value(self, stored: float | None, work: float) -> float | None:
        """Return the derived value; None where there is nothing to derive it from.

        >>> TFLOPS.value(2e-3, 1e12), TFLOPS.value(None, 1e12), TFLOPS.value(2e-3, 0.0)
        (500.0, None, None)
        >>> OCCUPANCY.value(37.5, 0.0)
        62.5
        """
        if stored is None or not math.isfinite(stored):
            return None
        if not self.work:
            return 100 - stored
        return work / stored / self.scale if stored > 0 and work > 0 else None

    def step(self, stored: Step, work: float) -> Step | None:
        """Return the derived step; its deviation to first order: |d(w/t)| = (w/t) |dt| / t.

        >>> TFLOPS.step((3, 9, 2e-3, 1e-3, 2e-5), 1e12)
        (3, 9, 500.0, 1000.0, 5.0)
        """
        first, end, median, minimum, deviation = stored
        value, best = self.value(median, work), self.value(minimum, work)
        if value is None:
            return None
        spread = deviation if not self.work else value * deviation / median
        return first, end, value, value if best is None else best, spread


TFLOPS = Derivation(metric="time", name="tflops", unit="TFLOPS", work="flops", scale=1e12)
BANDWIDTH = Derivation(metric="time", name="bandwidth", unit="GB/s", work="bytes_moved", scale=1e9)
OCCUPANCY = Derivation(metric="idle_warp_slots", name="occupancy", unit="percent")
DERIVATIONS = (TFLOPS, BANDWIDTH, OCCUPANCY)

"""Throughput and occupancy from what asv stores, which is always "lower is better".

asv knows one direction: up is bad. Stored are therefore seconds and idle warp slots; what people want to see is
derived from them when the pages are built, points and steps alike, so that both tell of the same changes.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from flopwatch.static.devices import device_called

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import ArrayLike, NDArray

    Floats = NDArray[np.float64]

#: asv's fit of a constant to a stretch of history: first revision, last revision + 1, median, minimum, mean deviation.
Step = tuple[int, int, float, float, float]


@dataclass(frozen=True, kw_only=True, slots=True)
class Derivation:
    """A quantity that is higher when things are better.

    Attributes:
        metric: the stored metric from which it is derived.
        name: what takes the place of ``track_<metric>`` in the benchmark's name.
        unit: its unit.
        work: what of the stored benchmark is the work of one call: ``flops``, ``bytes_moved``, or ``roofline`` for the
            least seconds that both take on the GPU. The derived value is work / stored. Empty for percentages:
            100 - stored.
        scale: units of `work` in one of `unit`.
    """

    metric: str
    name: str
    unit: str
    work: str = ""
    scale: float = 1.0

    def values(self, stored: ArrayLike, works: ArrayLike) -> Floats:
        """Return the derived values; NaN where there is nothing to derive one from.

        >>> TFLOPS.values([[2e-3, np.nan], [1e-3, 1e-3]], [1e12, 0.0])
        array([[ 500.,   nan],
               [1000.,   nan]])
        >>> OCCUPANCY.values([37.5], [0.0])
        array([62.5])
        """
        stored, works = np.broadcast_arrays(np.asarray(stored, np.float64), np.asarray(works, np.float64))
        if not self.work:
            return np.where(np.isfinite(stored), 100 - stored, np.nan)
        there = np.isfinite(stored) & (stored > 0) & (works > 0)
        values = np.full(stored.shape, np.nan)
        np.divide(works / self.scale, stored, out=values, where=there)
        return values

    def step(self, stored: Step, work: float) -> Step | None:
        """Return the derived step; its deviation to first order: |d(w/t)| = (w/t) |dt| / t.

        >>> TFLOPS.step((3, 9, 2e-3, 1e-3, 2e-5), 1e12)
        (3, 9, 500.0, 1000.0, 5.0)
        """
        first, end, median, minimum, deviation = stored
        value, best = self.values([median, minimum], work).tolist()
        if np.isnan(value):
            return None
        spread = deviation if not self.work else value * deviation / median
        return first, end, value, value if np.isnan(best) else best, spread

    def works(self, benchmark: Mapping[str, Any], gpu: str) -> list[float]:
        """Return the work of each case; empty where the benchmark does not say, or the GPU's peaks are not known.

        >>> benchmark = {"flops": [989.4e9, 0.0], "bytes_moved": [4.8e6, 9.6e9]}
        >>> ROOFLINE.works(benchmark, "NVIDIA H200"), ROOFLINE.works(benchmark, "another")
        ([0.001, 0.002], [])
        """
        if self.work != "roofline":
            return list(benchmark.get(self.work, []))
        device = device_called(gpu)
        if device is None:
            return []
        return [
            device.least_seconds(flops, moved, values)
            for flops, moved, values in zip(
                benchmark.get("flops", []), benchmark.get("bytes_moved", []), _combinations(benchmark), strict=False
            )
        ]


def _combinations(benchmark: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    """Yield the parameters of each case, which asv writes as Python would; nothing of them for ever where it has none.

    >>> list(_combinations({"params": [["'8'"], ["'float16'", "'float32'"]]}))
    [('8', 'float16'), ('8', 'float32')]
    """
    params = [[str(value).strip("'") for value in values] for values in benchmark.get("params", [])]
    return itertools.product(*params) if params else itertools.repeat(())


TFLOPS = Derivation(metric="time", name="tflops", unit="TFLOPS", work="flops", scale=1e12)
BANDWIDTH = Derivation(metric="time", name="bandwidth", unit="GB/s", work="bytes_moved", scale=1e9)
#: Of what the GPU's data sheet promises: memory, and arithmetic in the type that the parameters name, else in 16 bits.
ROOFLINE = Derivation(metric="time", name="roofline", unit="percent", work="roofline", scale=0.01)
OCCUPANCY = Derivation(metric="idle_warp_slots", name="occupancy", unit="percent")
DERIVATIONS = (TFLOPS, BANDWIDTH, ROOFLINE, OCCUPANCY)
#: What of a stored benchmark only serves to derive, and is not published.
WORKS = ("flops", "bytes_moved")

"""The limits of ``nox -s bench``, and how often each would fail a change that costs nothing."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Fail from so many percent over the baseline, module by module: the first multiple of five that fails a clean run
#: less often than once in a hundred, by `false_alarm_rate` of `NOISE`: 0.4 % and 0.6 %, on two cores that others kept
#: busy (2026-11-24). `tests/benchmarks_host` holds them to that.
LIMITS_PERCENT: Mapping[str, int] = {"bench_launch.py": 15, "bench_harness.py": 30}
#: Clean runs of one commit, one process each: ``nox -s bench -- noise`` makes them again.
NOISE = Path(__file__).with_name("noise.json")


@dataclass(frozen=True, kw_only=True, slots=True)
class Noise:
    """What clean runs measured.

    Attributes:
        machine: on which.
        baseline_runs: of how many runs a baseline is the middle.
        medians: of each run, in calibration loops, by module and benchmark (``bench_launch.py::test_matmul``).
    """

    machine: dict[str, str]
    baseline_runs: int
    medians: dict[str, list[float]]

    @property
    def runs(self) -> int:
        """Clean runs."""
        return min(map(len, self.medians.values()))

    def of(self, module: str) -> Noise:
        """Return the benchmarks of one module."""
        return replace(self, medians={name: m for name, m in self.medians.items() if name.startswith(f"{module}::")})


def deviations(noise: Noise) -> dict[str, float]:
    """Return the standard deviation of each benchmark's log ratio, from run to run.

    >>> noise = Noise(machine={}, baseline_runs=1, medians={"test_matmul": [math.exp(0.01), math.exp(-0.01), 1.0]})
    >>> round(deviations(noise)["test_matmul"], 4)
    0.01
    """
    return {name: statistics.stdev(map(math.log, medians)) for name, medians in noise.medians.items()}


def false_alarm_rate(noise: Noise, limit_percent: float) -> float:
    """Estimate how often some benchmark of a clean run is over the limit, its logarithm being normal.

    >>> noise = Noise(machine={}, baseline_runs=1, medians={"test_matmul": [math.exp(0.01), math.exp(-0.01), 1.0]})
    >>> round(false_alarm_rate(noise, 2.0), 4)
    0.0807
    """
    # The baseline has an error of its own: that of a median of so many runs.
    spread = math.sqrt(1 + (math.pi / 2 if noise.baseline_runs > 1 else 1) / noise.baseline_runs)
    normal = statistics.NormalDist()
    limit = math.log1p(limit_percent / 100)
    return 1 - math.prod(normal.cdf(limit / (deviation * spread)) for deviation in deviations(noise).values())


def alarms(noise: Noise, limit_percent: float) -> tuple[int, int]:
    """Return how many runs were over the limit in some benchmark, each held against the rest; and of how many.

    >>> noise = Noise(machine={}, baseline_runs=1, medians={"test_matmul": [1.0, 1.01, 1.5, 1.0]})
    >>> alarms(noise, 20.0)
    (1, 4)
    """
    count = 0
    for run in range(noise.runs):
        count += any(
            medians[run] > (1 + limit_percent / 100) * statistics.median(medians[:run] + medians[run + 1 :])
            for medians in noise.medians.values()
        )
    return count, noise.runs

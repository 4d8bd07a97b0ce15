"""Time in units of a calibration loop that takes turns with what is timed, so that a slow moment slows both.

Seconds on a shared machine move by tens of percent: its clock changes, and neighbours take its caches. The ratio to a
loop of the same interpreter, which takes turns with the work in the same process, moves by a few (`noise.json`). Time
is that of the process on a core, so that waiting for one is not counted, nor is what child processes do.

pytest-benchmark is told the ratios by its own means: it reads `elapsed_loops` as its clock (``--benchmark-timer``),
which a round moves on by the ratio that it measured.
"""

from __future__ import annotations

import math
import statistics
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_benchmark.fixture import BenchmarkFixture

#: A visit to either side: long enough for the clock, short enough to pass undisturbed now and then. The loop is visited
#: as long as the work that it takes turns with, within these limits.
VISIT_S = (0.5e-3, 10e-3)
#: Rounds, each of so many visits to either side; the shortest of them count, as what disturbs only ever adds. Most of
#: both, unless the time on the wall that is meant for a benchmark is over before: a call that waits for a disk, or for
#: another process, may take twenty times what it costs.
ROUNDS = (5, 15)
VISITS = (2, 100)
BENCHMARK_S = 1.5

_elapsed = 0.0


def elapsed_loops() -> float:
    """Return the clock that pytest-benchmark reads: the sum of the ratios measured so far."""
    return _elapsed


def calibration_loop() -> int:
    """Do what host code does most: small tuples, a dictionary, calls and integers; about 5 us.

    >>> calibration_loop()
    496
    """
    seen: dict[tuple[int, str], int] = {}
    for number in range(32):
        key = (number % 8, "key")
        seen[key] = seen.get(key, 0) + number
    return sum(seen.values())


def measure(benchmark: BenchmarkFixture, work: Callable[[], object]) -> None:
    """Benchmark `work` in loops a call; its microseconds are in the record too."""
    for _ in range(2):  # what the first calls do alone is no part of it
        work()
    begun = time.perf_counter()
    work_s = _seconds(work, 1)
    wall_s = max(work_s, time.perf_counter() - begun)
    loop_s = _seconds(calibration_loop, 100) / 100
    calls = max(1, math.ceil(VISIT_S[0] / work_s))
    loops = max(1, math.ceil(min(work_s * calls, VISIT_S[1]) / loop_s))
    affordable = round(BENCHMARK_S / (calls * wall_s + loops * loop_s))
    visits = _within(VISITS, affordable // ROUNDS[1])
    rounds = _within(ROUNDS, affordable // visits)
    shortest: list[float] = []

    def round_() -> None:
        global _elapsed  # noqa: PLW0603 - pytest-benchmark takes the clock by its name
        sides = ((calibration_loop, loops), (work, calls))
        seconds: tuple[list[float], list[float]] = ([], [])
        for visit in range(visits):
            for side in (0, 1) if visit % 2 else (1, 0):
                seconds[side].append(_seconds(*sides[side]))
        shortest.append(min(seconds[1]) / calls)
        _elapsed += shortest[-1] / (min(seconds[0]) / loops)

    benchmark.pedantic(round_, rounds=rounds, warmup_rounds=1)  # type: ignore[no-untyped-call] # has no annotations
    benchmark.extra_info["microseconds"] = round(1e6 * statistics.median(shortest), 2)


def _within(limits: tuple[int, int], count: int) -> int:
    return min(max(count, limits[0]), limits[1])


def _seconds(work: Callable[[], object], calls: int) -> float:
    begun = time.process_time()
    for _ in range(calls):
        work()
    return time.process_time() - begun

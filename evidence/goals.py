"""What the gate is to reach on one H200, and the classes of cases that tables speak of."""

from __future__ import annotations

import math
from dataclasses import dataclass

#: Classes of cases by the time of a call in microseconds: name -> from, below.
CLASSES = {"below 10 µs": (0.0, 10.0), "10 to 100 µs": (10.0, 100.0), "100 µs and more": (100.0, math.inf)}


@dataclass(frozen=True, kw_only=True, slots=True)
class Claim:
    """What the gate is to find: with `margin`, `slowdown` in this share of runs of every case from `from_us` up."""

    margin: float
    slowdown: float
    from_us: float
    share: float


CLAIMS = (
    Claim(margin=0.005, slowdown=0.01, from_us=10.0, share=0.99),
    Claim(margin=0.005, slowdown=0.015, from_us=0.0, share=0.99),
    Claim(margin=0.0, slowdown=0.005, from_us=0.0, share=0.95),
    Claim(margin=0.0, slowdown=0.0025, from_us=100.0, share=0.90),
)
#: Deviation of a pair that the gate is to reach in every case, and from so many microseconds up.
DEVIATIONS = ((0.002, 0.0), (0.001, 100.0))


@dataclass(frozen=True, kw_only=True, slots=True)
class WallGoal:
    """What a run may take in seconds, if it ends with `exit_code` and measures at least and at most so many cases."""

    seconds: float
    exit_code: int
    least: int
    most: float


_CLEAN = WallGoal(seconds=150.0, exit_code=0, least=60, most=math.inf)
_FLAGGED = WallGoal(seconds=200.0, exit_code=1, least=60, most=math.inf)
_IDENTICAL = WallGoal(seconds=15.0, exit_code=0, least=0, most=0)
#: By the name of the run in `evidence.wall_time`. They are of 60 cases; runs of the whole suite, which has more, are
#: held to them too.
WALL_GOALS = {
    "clean-cold-60": _CLEAN,
    "clean-cold": _CLEAN,
    "flagged": _FLAGGED,
    "identical": _IDENTICAL,
    "clean-warm": _CLEAN,
    "flagged-60": _FLAGGED,
    "identical-60": _IDENTICAL,
    "clean-warm-60": _CLEAN,
}

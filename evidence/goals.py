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


#: By the name of the run in `evidence.wall_time`; the bundled suites have a few cases more than 60.
WALL_GOALS = {
    "clean-cold": WallGoal(seconds=150.0, exit_code=0, least=60, most=math.inf),
    "flagged": WallGoal(seconds=200.0, exit_code=1, least=60, most=math.inf),
    "identical": WallGoal(seconds=15.0, exit_code=0, least=0, most=0),
    "clean-warm": WallGoal(seconds=150.0, exit_code=0, least=60, most=math.inf),
}

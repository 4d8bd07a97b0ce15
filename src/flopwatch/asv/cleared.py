"""Changes of seconds that the machine made: a new driver, other clocks or another board are no commit's fault.

The anchor is the same code at every commit, measured in the same pair. Where the seconds of a case moved and its ratio
to the anchor did not, what moved is what both have in common.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from flopwatch.asv.anchored import RATIO
from flopwatch.stats.changepoints import ALPHA, HALF
from flopwatch.stats.ranksum import shift

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from numpy.typing import NDArray

    from flopwatch.asv.derived import Step
    from flopwatch.asv.steps import Change
    from flopwatch.stats.ranksum import Shift

    Floats = NDArray[np.float64]

#: A change is the machine's where the ratio, by its interval, moved less than this share of it. Whatever the code has
#: added to that is a change of the ratio, which is told by itself.
LARGEST_SHARE = 0.5
_TIME = ".track_time"


def ratio_of(benchmark: str) -> str:
    """Return the name of the ratios that go with seconds; "" of anything else.

    >>> ratio_of("add.Add.track_time"), ratio_of("add.Add.track_spills")
    ('add.Add.track_ratio_to_anchor', '')
    """
    return f"{benchmark.removesuffix('time')}{RATIO}" if benchmark.endswith(_TIME) else ""


def clears(change: Change, before: Floats, after: Floats) -> Shift | None:
    """Return by how much the ratio moved where the machine made a change of seconds; None where code may have.

    Args:
        change: of the seconds.
        before: the ratios of the stretch before it.
        after: of the one after it. Where either has too few, nothing is cleared.

    >>> from flopwatch.asv.steps import Change
    >>> slower, same = Change(index=40, effect=0.1), np.linspace(1.0, 1.01, 40)
    >>> clears(slower, same, same[::5]) is None, clears(slower, same, 1.1 * same) is None
    (False, True)
    """
    if change.effect is None or not len(before) or not len(after):
        return None
    moved = shift(np.log(before[-HALF:]), np.log(after[:HALF]), alpha=ALPHA)
    whole = math.log1p(change.effect)
    return moved if max(moved.lower / whole, moved.upper / whole) < LARGEST_SHARE else None


def join_steps(steps: Sequence[Step], changes: Collection[int]) -> list[Step]:
    """Take back changes, by their place among all: what came before them is told at the level after.

    >>> join_steps([(0, 4, 1.0, 0.9, 0.1), (4, 8, 3.0, 2.8, 0.2), (8, 9, 6.0, 6.0, 0.0)], {1})
    [(0, 4, 2.0, 1.8, 0.2), (4, 9, 6.0, 5.6, 0.0)]
    """
    joined: list[Step] = []
    for number, step in enumerate(steps):
        first, end, median, least, deviation = step
        if number - 1 in changes:
            scale = median / joined[-1][2]
            joined = [(one[0], one[1], scale * one[2], scale * one[3], scale * one[4]) for one in joined]
            last = joined.pop()
            first, least = last[0], min(last[3], least)
        joined.append((first, end, median, least, deviation))
    return joined

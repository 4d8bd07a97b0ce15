"""Where a series changes its level: what was found, what is remembered of it, and the constant stretches between.

The grid, the list, the regressions and the page of changes all read the stretches that are fitted here, so that they
tell of the same changes. Noisy values are judged by `flopwatch.stats.changepoints`; what a compiler makes of a kernel
repeats exactly, so there any difference is a change.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from flopwatch.model import from_json, to_json
from flopwatch.stats.changepoints import ALPHA, HALF, Changes, change_points
from flopwatch.stats.ranksum import p_value, shift, signs_after

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from flopwatch.asv.derived import Step

    Floats = NDArray[np.float64]

#: What the compiler makes of a kernel.
COMPILED = ("registers", "spills", "shared_memory", "idle_warp_slots")
#: Compiled values that change at more than this share of the commits, and more often than `FEWEST_FLAPS`, are judged as
#: measured ones are.
FLAPPING = 0.1
FEWEST_FLAPS = 4
#: Level of the test of two series that meet where a version changed. With 300 series, one upgrade in 30 that changed
#: nothing is accused; four values against 40 can reach it.
MEETING_LEVEL = 1e-4


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """A change of level; the effect is relative to the old level, and None where that is zero.

    Attributes:
        index: the first point at the new level.
        effect: 0.3 where the new level is 1.3 times the old one.
        lower: the smallest effect that agrees with the values (95 %); None where there are too few.
        upper: the largest, likewise.
        p: of the test at this place; None for what repeats exactly.
        settled: more values will not move the place.
    """

    index: int
    effect: float | None
    lower: float | None = None
    upper: float | None = None
    p: float | None = None
    settled: bool = True


def is_exact(benchmark: str, values: Floats) -> bool:
    """Tell whether values have no noise: those that the compiler makes, unless they change all the time.

    They do where two configurations are equally fast, so that now one and now the other is chosen and compiled.

    >>> still, flapping = np.repeat([64.0, 96.0], 50), np.tile([64.0, 96.0], 50)
    >>> is_exact("a.A.track_registers", still), is_exact("a.A.track_registers", flapping)
    (True, False)
    >>> is_exact("a.A.track_time", still)
    False
    """
    if not benchmark.endswith(tuple(f".track_{fact}" for fact in COMPILED)):
        return False
    return int(np.count_nonzero(np.diff(values))) <= max(FEWEST_FLAPS, FLAPPING * len(values))


def exact_changes(values: Floats) -> tuple[Change, ...]:
    """Return every difference between neighbours.

    >>> [(change.index, change.effect) for change in exact_changes(np.array([64.0, 64.0, 96.0, 0.0, 8.0]))]
    [(2, 0.5), (3, -1.0), (4, None)]
    """
    changes = []
    for index in (np.flatnonzero(np.diff(values)) + 1).tolist():
        before, after = values[index - 1 : index + 1].tolist()
        effect = after / before - 1 if before else None
        changes.append(Change(index=index, effect=effect, lower=effect, upper=effect))
    return tuple(changes)


def noisy_changes(values: Floats, earlier: Changes | None = None) -> Changes:
    """Find the changes of measured values, or go on from those of their beginning."""
    return change_points(np.log(values) if _has_logs(values) else values, earlier)


def relate(values: Floats, found: Changes) -> tuple[Change, ...]:
    """Put what was found in relation to the level before."""
    logs, changes, begin = _has_logs(values), [], 0
    for point in found.points:
        before = values[max(begin, point.index - HALF) : point.index]
        effect, lower, upper = (_relative(end, before, logs=logs) for end in (point.effect, point.lower, point.upper))
        changes.append(
            Change(index=point.index, effect=effect, lower=lower, upper=upper, p=point.p, settled=point.settled)
        )
        begin = point.index
    return tuple(changes)


def meeting_change(before: Floats, after: Floats) -> Change | None:
    """Compare two series where one takes over from the other; None where they agree.

    >>> change = meeting_change(np.linspace(1.0, 1.1, 40), np.linspace(1.5, 1.6, 5))
    >>> change.index, round(change.effect, 1), change.p < 1e-5
    (40, 0.5, True)
    """
    index, before, after = len(before), before[-HALF:], after[:HALF]
    both = np.concatenate([before, after])
    p = p_value(float(signs_after(both)[len(before) - 1]), len(before), len(after))
    if p > MEETING_LEVEL:
        return None
    logs = _has_logs(both)
    found = shift(np.log(before), np.log(after), alpha=ALPHA) if logs else shift(before, after, alpha=ALPHA)
    effect, lower, upper = (
        _relative(end if math.isfinite(end) else None, before, logs=logs)
        for end in (found.estimate, found.lower, found.upper)
    )
    return Change(index=index, effect=effect, lower=lower, upper=upper, p=p)


def _has_logs(values: Floats) -> bool:
    """Tell whether effects are ratios; where a value is zero or below they are differences."""
    return bool((values > 0).all())


def _relative(effect: float | None, before: Floats, *, logs: bool) -> float | None:
    if effect is None or logs:
        return None if effect is None else math.expm1(effect)
    level = abs(float(np.median(before)))
    return effect / level if level else None


def fit_steps(revisions: Sequence[int], values: Floats, changes: Iterable[Change]) -> list[Step]:
    """Describe the stretches between changes as asv does.

    >>> fit_steps([5, 6, 8], np.array([1.0, 1.0, 3.0]), [Change(index=2, effect=2.0)])
    [(5, 7, 1.0, 1.0, 0.0), (8, 9, 3.0, 3.0, 0.0)]
    """
    if len(values) == 0:
        return []
    ends = [*(change.index for change in changes), len(values)]
    steps = []
    for first, end in zip([0, *ends], ends, strict=False):
        stretch = values[first:end]
        median = float(np.median(stretch))
        deviation = float(np.abs(stretch - median).mean())
        steps.append((revisions[first], revisions[end - 1] + 1, median, float(stretch.min()), deviation))
    return steps


class KnownChanges:
    """What was found when the pages were last built, by the name of the series.

    It is checked against the values before it is used, and a file that is not there or not ours is an empty one:
    everything in it can be computed again.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._known = from_json(path.read_bytes(), dict[str, Changes])
        except (OSError, msgspec.MsgspecError):
            self._known = {}

    def get(self, name: str) -> Changes | None:
        """Return what was known of a series."""
        return self._known.get(name)

    def replace(self, found: Mapping[str, Changes]) -> None:
        """Keep what was found, and nothing else."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        part = self._path.with_suffix(f".{os.getpid()}.part")
        part.write_bytes(to_json(found))
        part.replace(self._path)

"""Labelled series: noise of several kinds, with steps whose places are known."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable

    from flopwatch.stats.prior import FloatArray

#: Commits of each series.
COMMITS = 300
#: A point within so many commits of a step has found it; each finds one.
TOLERANCE = 5

NORMAL, HEAVY, OUTLIERS = "normal", "heavy tails", "outliers"
DRIFT, CORRELATED = "drift", "correlated"
WEATHERS = (NORMAL, HEAVY, OUTLIERS, DRIFT, CORRELATED)
LONG, SHORT = "long", "short"


@dataclass(frozen=True, kw_only=True, slots=True)
class Scenario:
    """What a labelled series is made of.

    Attributes:
        weather: the kind of noise.
        layout: "long" has three steps at least 50 commits apart, "short" two stretches of 6 to 15 commits.
        step: log ratio of a step, up or down.
        noise: standard deviation of the noise, outliers not counted, likewise.
    """

    weather: str
    layout: str
    step: float
    noise: float


SCENARIOS = (
    *(
        Scenario(weather=NORMAL, layout=LONG, step=step, noise=noise)
        for noise in (0.002, 0.005, 0.01)
        for step in (0.005, 0.01, 0.02, 0.05)
    ),
    *(Scenario(weather=weather, layout=LONG, step=0.02, noise=0.005) for weather in WEATHERS[1:]),
    *(Scenario(weather=NORMAL, layout=SHORT, step=step, noise=0.005) for step in (0.01, 0.02, 0.05)),
    Scenario(weather=OUTLIERS, layout=SHORT, step=0.05, noise=0.005),
)


def noise(weather: str, rng: np.random.Generator, commits: int) -> FloatArray:
    """Draw noise of one deviation; outliers come on top, and so does a drift.

    Outliers: 3 % of commits are 5 to 20 deviations slower. Drift: a random walk of 5 % of a deviation a commit, 0.9
    after 300. Correlated: half of the predecessor's deviation stays.
    """
    values = rng.normal(size=commits)
    if weather == HEAVY:
        values = rng.standard_t(3, size=commits) / math.sqrt(3)
    elif weather == OUTLIERS:
        values += np.where(rng.random(commits) < 0.03, rng.uniform(5, 20, commits), 0)  # noqa: PLR2004 - as documented
    elif weather == DRIFT:
        values += 0.05 * rng.normal(size=commits).cumsum()
    elif weather == CORRELATED:
        for index in range(1, commits):
            values[index] = 0.5 * values[index - 1] + math.sqrt(0.75) * values[index]
    return values


def labelled(scenario: Scenario, rng: np.random.Generator) -> tuple[FloatArray, list[int]]:
    """Draw a series of logarithms, and the places of its steps."""
    if scenario.layout == LONG:
        places = 50 + np.sort(rng.integers(COMMITS - 199, size=3)) + np.array([0, 50, 100])
        heights = rng.choice([-1.0, 1.0], size=3)
    else:
        gaps = [rng.integers(*ends) for ends in ((50, 100), (6, 16), (50, 80), (6, 16))]
        places = np.cumsum(gaps)
        heights = np.repeat(rng.choice([-1.0, 1.0], size=2), 2) * [1, -1, 1, -1]
    levels = np.zeros(COMMITS)
    for place, height in zip(places, heights, strict=True):
        levels[place:] += height * scenario.step
    return levels + scenario.noise * noise(scenario.weather, rng, COMMITS), places.tolist()


def matches(found: Iterable[int], places: Iterable[int]) -> int:
    """Count the steps that have a point of their own, the nearest first come.

    >>> matches([10, 52, 90], [50, 54, 93])
    2
    """
    free, matched = set(found), 0
    for place in places:
        near = [point for point in free if abs(point - place) <= TOLERANCE]
        if near:
            free.remove(min(near, key=lambda point: abs(point - place)))
            matched += 1
    return matched

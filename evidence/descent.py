"""Fit the numbers of a model to what was measured."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

T = TypeVar("T")


def descended(rates: T, error: Callable[[T], float], names: Sequence[str], *, tries: int) -> tuple[T, float]:
    """Try changes of one rate at a time, smaller and smaller ones, and keep those that help.

    Args:
        rates: a dataclass, to begin with.
        error: that is left with rates.
        names: of the rates that may change: positive numbers.
        tries: as many changes.

    Returns:
        The rates that were found, and the error that they leave.
    """
    chance = random.Random(0)  # noqa: S311 - no secret
    best = error(rates)
    for tried in range(tries):
        name = chance.choice(names)
        step = math.exp(chance.gauss(0, 0.15 * 0.7 ** (tried * 5 // tries)))
        other = replace(rates, **{name: getattr(rates, name) * step})  # type: ignore[type-var] # a dataclass
        found = error(other)
        if found < best:
            rates, best = other, found
    return rates, best

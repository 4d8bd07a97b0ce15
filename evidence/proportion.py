"""How often, given that it was seen so many times: exact bounds of a probability (Clopper and Pearson, 1934)."""

from __future__ import annotations

import numpy as np

#: Bisections of the unit interval: to 2^-50.
_STEPS = 50


def upper_bound(count: int, trials: int, confidence: float = 0.95) -> float:
    """Return the probability that is exceeded with 1 - `confidence` at most, having seen `count` in `trials`.

    >>> round(upper_bound(0, 3000), 5)
    0.001
    """
    if count >= trials:
        return 1.0
    low, high = 0.0, 1.0
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if _at_most(count, trials, middle) > 1 - confidence else (low, middle)
    return high


def lower_bound(count: int, trials: int, confidence: float = 0.95) -> float:
    """Return the probability that is undercut with 1 - `confidence` at most.

    >>> round(lower_bound(300, 300), 4)
    0.9901
    """
    return 1 - upper_bound(trials - count, trials, confidence)


def interval(count: int, trials: int, confidence: float = 0.95) -> tuple[float, float]:
    """Return both bounds, which enclose the probability with `confidence`.

    >>> low, high = interval(8, 10)
    >>> round(low, 4), round(high, 4)
    (0.4439, 0.9748)
    """
    each = (1 + confidence) / 2
    return lower_bound(count, trials, each), upper_bound(count, trials, each)


def percent(share: float) -> str:
    """Write a share in percent, with three significant digits.

    >>> percent(0.005), percent(0.99), percent(0.001234), percent(1.0)
    ('0.5 %', '99 %', '0.123 %', '100 %')
    """
    return f"{100 * share:.3g} %"


def _at_most(count: int, trials: int, probability: float) -> float:
    """Return the chance of seeing it `count` times at most."""
    steps = np.arange(1, count + 1)
    logs = np.cumsum(np.log(trials - steps + 1) - np.log(steps) + np.log(probability) - np.log1p(-probability))
    terms = trials * np.log1p(-probability) + np.concatenate([[0.0], logs])
    return float(np.exp(terms).sum())

"""Pieces of sentences that the reports share."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from flopwatch.units import format_change

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Sequence

    from flopwatch.stats import SeriesResult

_Key = TypeVar("_Key", bound="Hashable")
_Value = TypeVar("_Value")


def count(number: int, noun: str) -> str:
    """Write a number and what it counts.

    >>> count(1, "case"), count(2, "case")
    ('1 case', '2 cases')
    """
    return f"{number} {noun}" + ("" if number == 1 else "s")


def several(names: Sequence[str]) -> str:
    """Name the first and count the rest.

    >>> several(["a"]), several(["a", "b", "c"])
    ('a', 'a and 2 more')
    """
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"


def grouped(pairs: Iterable[tuple[_Key, _Value]]) -> list[tuple[_Key, list[_Value]]]:
    """Collect the second values under equal first ones, in order.

    >>> grouped([("x", "a"), ("y", "b"), ("x", "c")])
    [('x', ['a', 'c']), ('y', ['b'])]
    """
    groups: dict[_Key, list[_Value]] = {}
    for key, value in pairs:
        groups.setdefault(key, []).append(value)
    return list(groups.items())


def effect(estimate: float, lower: float | None, upper: float | None) -> str:
    """Write an effect and its interval, all log ratios, with the direction in words, and once where it is one.

    >>> effect(0.018, 0.015, 0.021), effect(-0.03, -0.04, -0.02)
    ('1.82 % slower (1.51 % to 2.12 %)', '2.96 % faster (1.98 % to 3.92 %)')
    >>> effect(0.001, -0.002, 0.004), effect(0.018, None, None)
    ('0.10 % slower (0.20 % faster to 0.40 % slower)', '1.82 % slower (too few pairs for an interval)')
    """
    change = format_change(estimate)
    if lower is None or upper is None:
        return f"{change} (too few pairs for an interval)"
    ends = [format_change(lower), format_change(upper)]
    word = change.rpartition(" ")[2]
    if all(end.endswith(word) for end in ends):
        ends = [end.removesuffix(f" {word}") for end in (ends if word == "slower" else reversed(ends))]
    return f"{change} ({ends[0]} to {ends[1]})"


def effect_of(series: SeriesResult | None) -> str:
    """Write what a series shows; "" where nothing was measured."""
    if series is None or series.estimate is None:
        return ""
    return effect(series.estimate, series.lower, series.upper)


def slowdown(log_ratio: float) -> str:
    """Write how large a slowdown is, without a word for its direction.

    >>> slowdown(0.005)
    '0.50 %'
    """
    return format_change(log_ratio).rpartition(" ")[0]

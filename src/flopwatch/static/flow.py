"""Where the jumps of machine code lead to."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


def reachable(starts: Iterable[int], after: Sequence[Sequence[int]]) -> set[int]:
    """Return the places to which these lead, themselves included, by what comes after each.

    >>> sorted(reachable([1], [[1], [2], [1], [0]]))
    [1, 2]
    """
    found = set(starts)
    waiting = list(found)
    while waiting:
        for place in after[waiting.pop()]:
            if place not in found:
                found.add(place)
                waiting.append(place)
    return found

"""Sets of bytes, kept as spans from a first byte to the one after the last."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from flopwatch.static.traffic.result import SECTOR_BYTES

if TYPE_CHECKING:
    from flopwatch.static.traffic.tiles import Array

# 16 MiB of starts and ends.
_MOST_PENDING = 1 << 20


class Spans:
    """A set of bytes that grows."""

    def __init__(self) -> None:
        self._starts: list[Array] = []
        self._ends: list[Array] = []
        self._pending = 0

    def add(self, starts: Array, ends: Array) -> None:
        """Add spans."""
        self._starts.append(starts)
        self._ends.append(ends)
        self._pending += len(starts)
        if self._pending > _MOST_PENDING:
            starts, ends = self.merged()
            self._pending = len(starts) // 2  # so that what cannot be merged is not merged at every turn

    def merged(self) -> tuple[Array, Array]:
        """Return the spans in order, none of which touches another."""
        if not self._starts:
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        starts, ends = merged(np.concatenate(self._starts), np.concatenate(self._ends))
        self._starts, self._ends = [starts], [ends]
        return starts, ends

    def bytes(self) -> int:
        """Count the bytes."""
        starts, ends = self.merged()
        return int((ends - starts).sum())

    def sectors(self) -> int:
        """Count the sectors that have any of the bytes."""
        starts, ends = self.merged()
        starts, ends = merged(starts // SECTOR_BYTES, -(-ends // SECTOR_BYTES))
        return int((ends - starts).sum())


def merged(starts: Array, ends: Array) -> tuple[Array, Array]:
    """Put spans in order, and make one of those that overlap or touch.

    >>> merged(np.array([8, 0, 4]), np.array([9, 2, 8]))
    (array([0, 4]), array([2, 9]))
    """
    order = np.argsort(starts, kind="stable")
    starts, ends = starts[order], np.maximum.accumulate(ends[order])
    if not len(starts):
        return starts, ends
    first = np.concatenate(([True], starts[1:] > ends[:-1]))
    last = np.concatenate((first[1:], [True]))
    return starts[first], ends[last]

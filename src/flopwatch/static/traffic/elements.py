"""Where the elements of a tensor lie in memory, and in which box of its picture each is."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from flopwatch.static.traffic.tiles import MOST_ELEMENTS, Array, TooManyElementsError

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Boxes along an axis, at most: as many as can be told apart in a picture of 150 dots.
MOST_BOXES = 64
_SHOWN_AXES = 2


class Elements:
    """A tensor's last two axes, at the first place of every other, in boxes; those are numbered row by row.

    Args:
        shape: of the tensor.
        strides: in elements.
        element_bytes: of each.
        base: the address of the first.

    Raises:
        ValueError: elements overlap, so that an address is of several.
    """

    def __init__(self, shape: Sequence[int], strides: Sequence[int], element_bytes: int, base: int) -> None:
        self._base, self._width = base, element_bytes
        self.rows, self.columns = (1, 1, *shape)[-_SHOWN_AXES:]
        self.box = (box_size(self.rows), box_size(self.columns))
        self._across = -(-self.columns // self.box[1])
        self.boxes = self._across * -(-self.rows // self.box[0])
        last = len(shape) - 1
        dims = [
            (stride * element_bytes, length, last - axis)
            for axis, (length, stride) in enumerate(zip(shape, strides, strict=True))
            if length > 1 and stride
        ]
        reach = element_bytes
        for step, length, _ in sorted(dims):
            if step < reach:
                raise ValueError("its elements overlap")
            reach += step * (length - 1)
        # In the order of memory, slowest first; along the fastest a place is a box, where these fit into it.
        self._dims = [(step, length, axis, 1) for step, length, axis in sorted(dims, reverse=True)]
        if self._dims:
            step, length, axis, _ = self._dims[-1]
            places = self.box[1 - axis] if axis < _SHOWN_AXES else 1
            self._dims[-1] = (step, length, axis, places)

    def has(self, addresses: Array) -> Array:
        """Return which of these addresses lie in an element."""
        return self._place(addresses)[1]

    def boxes_of(self, starts: Array, ends: Array) -> tuple[Array, Array, bool]:
        """Return the boxes in which spans of bytes have elements.

        Returns:
            The number of a span and the box, for each pair of them, and whether any span begins or ends beside.

        Raises:
            TooManyElementsError: so many at once take too much memory.
        """
        first, begins_inside, begins_away = self._place(starts)
        last, ends_inside, ends_away = self._place(ends - 1)
        strays = not bool((begins_inside & ends_inside).all())
        may_show = (begins_away < 0) | (ends_away < 0) | (begins_away != ends_away)
        spans = np.flatnonzero((begins_inside | ends_inside | (first != last)) & may_show)
        counts = (last - first + 1)[spans]
        total = int(counts.sum())
        if total > MOST_ELEMENTS:
            raise TooManyElementsError
        ramp = np.arange(total) - np.repeat(np.cumsum(counts) - counts, counts)
        place = np.repeat(first[spans], counts) + ramp
        whose = np.repeat(spans, counts)
        row, column = np.zeros_like(place), np.zeros_like(place)
        shown = np.ones(len(place), np.bool_)
        for _, length, axis, places in reversed(self._dims):
            size = -(-length // places)
            index, place = place % size * places, place // size
            if axis == 0:
                column = index
            elif axis == 1:
                row = index
            else:
                shown &= index == 0
        boxes = row // self.box[0] * self._across + column // self.box[1]
        return whose[shown], boxes[shown], strays

    def _place(self, addresses: Array) -> tuple[Array, Array, Array]:
        """Return of the element that an address lies in or behind, in the order of memory, the place.

        Returns:
            The place, whether the address lies in the element, and -1 where it is at the first place of the axes that
            are not shown, else its place without the axes behind the fastest of these: at one such place all is away.
        """
        rest = addresses - self._base
        inside = rest >= 0
        place, away = np.zeros_like(rest), np.full_like(rest, -1)
        is_away = np.zeros(len(rest), np.bool_)
        for step, length, axis, places in self._dims:
            index = np.clip(rest // step, 0, length - 1)
            rest = rest - index * step
            place = place * -(-length // places) + index // places
            if axis >= _SHOWN_AXES:
                is_away |= index > 0
                away = np.where(is_away, place, -1)
        return place, inside & (rest < self._width), away


def box_size(length: int) -> int:
    """Return how many elements along an axis are told of together: a power of two, as the sides of tiles are.

    >>> [box_size(length) for length in (1, 64, 65, 4096)]
    [1, 1, 2, 64]
    """
    return 1 << max(math.ceil(math.log2(length / MOST_BOXES)), 0) if length else 1

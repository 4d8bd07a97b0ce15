"""What one load or store touches: how many lanes, between which addresses, in which spans of bytes."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from flopwatch.static.traffic.tiles import MOST_ELEMENTS, Array, Axes, Tile, TooManyElementsError

if TYPE_CHECKING:
    from collections.abc import Sequence

_FAR = np.int64(1 << 62)


@dataclass(frozen=True, slots=True, eq=False)
class _Group:
    """Addresses and truth values that vary along the same axes; 2D: programs, and elements in the tensor's order."""

    axes: Axes
    offsets: Array
    mask: Array | None
    elements: int

    def lanes(self) -> Array:
        """Count the elements of each program that the mask lets through."""
        return np.full(1, self.elements) if self.mask is None else self.mask.sum(axis=1)

    def least(self) -> Array:
        """Return the least offset of each program."""
        offsets = self.offsets if self.mask is None else np.where(self.mask, self.offsets, _FAR)
        return np.asarray(offsets.min(axis=1))

    def most(self) -> Array:
        """Return the greatest offset of each program."""
        offsets = self.offsets if self.mask is None else np.where(self.mask, self.offsets, -_FAR)
        return np.asarray(offsets.max(axis=1))

    def of(self, programs: Array) -> _Group:
        """Return the same of some programs only; what is the same in all stays one row."""
        mask = self.mask if self.mask is None or len(self.mask) == 1 else self.mask[programs]
        offsets = self.offsets if len(self.offsets) == 1 else self.offsets[programs]
        return _Group(self.axes, offsets, mask, self.elements)


@dataclass(frozen=True, slots=True)
class Layout:
    """The shape of what is accessed at once, and the size of an element."""

    shape: tuple[int, ...]
    element_bytes: int


class Access:
    """The lanes of a tensor's access, in each program.

    Args:
        address: of each element, in bytes.
        mask: which elements are accessed; None for all.
        layout: of the tensor.
    """

    def __init__(self, address: Tile, mask: Tile | None, layout: Layout) -> None:
        shape = layout.shape
        self.element_bytes = layout.element_bytes
        self.address = address
        self._groups = _groups(address, mask, shape)
        varied = {axis for group in self._groups for axis in group.axes}
        self._same = math.prod(size for axis, size in enumerate(shape) if axis not in varied)

    @functools.cached_property
    def lanes(self) -> Array:
        """How many lanes each program accesses; one number where it is the same in all."""
        total: Array = np.full(1, self._same, np.int64)
        for group in self._groups:
            total = total * group.lanes()
        return total

    def reaches(self) -> tuple[Array, Array]:
        """Return the first byte of each program, and the one after the last; only where it has lanes."""
        least = functools.reduce(np.add, (group.least() for group in self._groups))
        most = functools.reduce(np.add, (group.most() for group in self._groups))
        return least, most + self.element_bytes

    def spans(self, programs: Array) -> tuple[Array, Array]:
        """Return the spans of bytes that these programs access, which may overlap."""
        programs = self._busy(programs)
        if not len(programs):
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        _, starts, ends = self._spans(_distinct([group.of(programs) for group in self._groups]), None)
        return starts, ends

    def spans_by_program(self, programs: Array) -> tuple[Array, Array, Array]:
        """Return the same of each program by itself: whose span it is, and the spans."""
        programs = self._busy(programs)
        if not len(programs):
            return programs, np.zeros(0, np.int64), np.zeros(0, np.int64)
        scalars, *groups = (group.of(programs) for group in self._groups)
        each = np.broadcast_to(scalars.offsets, (len(programs), 1))  # a row for each, though all access the same
        return self._spans([_Group(scalars.axes, each, scalars.mask, scalars.elements), *groups], programs)

    def _busy(self, programs: Array) -> Array:
        """Return those of the programs that access anything."""
        lanes = self.lanes if len(self.lanes) == 1 else self.lanes[programs]
        return programs[np.broadcast_to(lanes > 0, programs.shape)]

    def _spans(self, groups: list[_Group], owners: Array | None) -> tuple[Array, Array, Array]:
        """Return whose each span is, if a row of the groups is one of the `owners`, and the spans."""
        run_axis = next((group for group in groups if self._is_run(group)), None)
        others = _outer([group for group in groups if group is not run_axis])
        whose: Array = np.zeros(1, np.int64) if owners is None else owners
        if run_axis is None:
            starts = others.offsets
            ends = starts + self.element_bytes
            whose, mask = whose[:, None], others.mask
        else:
            rows, starts, ends = self._runs(run_axis)
            if len(run_axis.offsets) > 1 or (run_axis.mask is not None and len(run_axis.mask) > 1):
                others = others.of(rows)
                starts, ends = starts[:, None], ends[:, None]
                whose, mask = (whose[rows] if len(whose) > 1 else whose)[:, None], others.mask
            else:
                starts, ends = starts[None, :, None], ends[None, :, None]
                mask = None if others.mask is None else others.mask[:, None, :]
                others = _Group((), others.offsets[:, None, :], mask, others.elements)
                whose = whose[:, None, None]
            if math.prod(np.broadcast_shapes(starts.shape, others.offsets.shape)) > MOST_ELEMENTS:
                raise TooManyElementsError
            starts, ends = starts + others.offsets, ends + others.offsets
        kept = _kept(np.broadcast_to(whose, starts.shape), mask) if owners is not None else whose
        return kept, _kept(starts, mask), _kept(ends, mask)

    def _is_run(self, group: _Group) -> bool:
        """Tell whether neighbours along an axis are neighbours in memory."""
        if len(group.axes) != 1 or group.elements == 1 or group.offsets.shape[1] == 1:
            return False
        return bool((group.offsets[:, 1] - group.offsets[:, 0] == self.element_bytes).any())

    def _runs(self, group: _Group) -> tuple[Array, Array, Array]:
        """Return the runs of neighbours: the row of each, where it starts and where it ends."""
        offsets = group.offsets
        mask = np.ones((1, group.elements), np.bool_) if group.mask is None else group.mask
        offsets, mask = np.broadcast_arrays(offsets, mask)
        joined = mask[:, 1:] & mask[:, :-1] & (np.diff(offsets, axis=1) == self.element_bytes)
        edge = np.zeros((len(offsets), 1), np.bool_)
        first = mask & ~np.concatenate((edge, joined), axis=1)
        last = mask & ~np.concatenate((joined, edge), axis=1)
        return np.nonzero(first)[0], offsets[first], offsets[last] + self.element_bytes


def _groups(address: Tile, mask: Tile | None, shape: Sequence[int]) -> list[_Group]:
    """Gather what varies along the same axes; the first group has the scalars."""
    masks = {} if mask is None else mask.parts
    together: list[set[int]] = []
    for axes in (*address.parts, *masks):
        joined = set(axes)
        apart = []
        for other in together:
            if joined & other:
                joined |= other
            else:
                apart.append(other)
        together = [*apart, joined] if joined else together
    groups = []
    for group in [set[int](), *together]:
        offsets = [part for of, part in address.parts.items() if set(of) <= group and (of or not group)]
        truths = [part for of, part in masks.items() if set(of) <= group and (of or not group)]
        groups.append(_group(tuple(sorted(group)), offsets, truths, shape))
    return groups


def _group(axes: Axes, offsets: list[Array], truths: list[Array], shape: Sequence[int]) -> _Group:
    sizes = tuple(shape[axis] for axis in axes)
    keep = tuple(size if axis in axes else 1 for axis, size in enumerate(shape))

    def flat(arrays: list[Array], total: Array) -> Array:
        programs = total.shape[0]
        if programs * math.prod(sizes) > MOST_ELEMENTS:
            raise TooManyElementsError
        return np.broadcast_to(total, (programs, *keep)).reshape(programs, -1) if arrays else total

    zero: Array = np.zeros((1, math.prod(sizes)), np.int64)
    total = flat(offsets, functools.reduce(np.add, offsets)) if offsets else zero
    mask = flat(truths, functools.reduce(np.bitwise_and, truths)) if truths else None
    return _Group(axes, total, mask, math.prod(sizes))


def _distinct(groups: list[_Group]) -> list[_Group]:
    """Leave out programs that access the same as another one, as those of a row of tiles do.

    Where several numbers tell them apart, these are mixed into 64 bits by random weights: of a million different
    programs two would be taken for one with a chance of 3e-8.
    """
    varied = [
        array for group in groups for array in (group.offsets, group.mask) if array is not None and len(array) > 1
    ]
    if not varied:
        return groups
    if len(varied) == 1 and varied[0].shape[1] == 1:
        key = varied[0].reshape(-1)
    else:
        weights = np.random.default_rng(0)
        key = np.zeros(len(varied[0]), np.int64)
        for array in varied:
            weight = weights.integers(-(1 << 63), (1 << 63) - 1, array.shape[1], np.int64)
            key = key * np.int64(6364136223846793005) + array.astype(np.int64) @ weight
    _, first = np.unique(key, return_index=True)
    return [group.of(first) for group in groups]


def _outer(groups: list[_Group]) -> _Group:
    """Return the sums of one offset of each group."""
    offsets: Array = np.zeros((1, 1), np.int64)
    mask: Array | None = None
    for group in groups:
        programs = max(len(offsets), len(group.offsets))
        if programs * offsets.shape[1] * group.offsets.shape[1] > MOST_ELEMENTS:
            raise TooManyElementsError
        old, old_mask = offsets.shape[1], mask
        offsets = (offsets[:, :, None] + group.offsets[:, None, :]).reshape(programs, -1)
        if mask is not None or group.mask is not None:
            one = np.ones((1, old), np.bool_) if old_mask is None else old_mask
            other = np.ones((1, group.elements), np.bool_) if group.mask is None else group.mask
            mask = one[:, :, None] & other[:, None, :]
            mask = mask.reshape(len(mask), -1)
    return _Group((), offsets, mask, offsets.shape[1])


def _kept(array: Array, mask: Array | None) -> Array:
    """Return the elements for which the mask holds, one after the other."""
    if mask is None:
        return array.reshape(-1)
    shape = np.broadcast_shapes(array.shape, mask.shape)
    kept: Array = np.broadcast_to(array, shape)[np.broadcast_to(mask, shape)]
    return kept

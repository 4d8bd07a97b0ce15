"""Integers of many programs at once: a scalar or a tensor each, kept as a sum of parts that vary along few axes.

The addresses of a 128x64 tile are a base for each program, 128 offsets of rows and 64 of columns: 193 numbers instead
of 8192. A mask is kept likewise, as parts that must all hold. Only what mixes axes otherwise (a product of rows and
columns, a comparison of them) becomes a tensor in full.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

#: One axis for the programs, and one for each of the tensor; sizes of 1 where nothing varies.
Array: TypeAlias = NDArray[Any]
Axes: TypeAlias = tuple[int, ...]

#: 128 MiB of 64-bit integers. Fewer programs at a time are taken where an operation needs more.
MOST_ELEMENTS = 1 << 24
_WORD_BITS = 64


class TooManyElementsError(Exception):
    """An operation needs more memory than it may have."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Unknown:
    """What integers alone do not tell: `cause` is why, `data` whether it depends on values in the GPU's memory."""

    cause: str
    data: bool


@dataclass(frozen=True, slots=True, eq=False)
class Tile:
    """Integers: the sum of `parts`; truth values, if `truth`: whether all of them hold.

    Attributes:
        parts: arrays by the tensor's axes along which they vary.
        rank: how many axes the tensor has.
        low: no element is less; for integers.
        high: no element is more.
        truth: whether it is of truth values.
    """

    parts: Mapping[Axes, Array]
    rank: int
    low: int = 0
    high: int = 1
    truth: bool = False

    def extremes(self) -> tuple[Array, Array]:
        """Return bounds of each program's integers; they are reached where no two parts share an axis."""
        axes = tuple(range(1, self.rank + 1))
        least: Array = np.zeros(1, np.int64)
        most: Array = np.zeros(1, np.int64)
        for part in self.parts.values():
            least = least + part.min(axis=axes)
            most = most + part.max(axis=axes)
        return least, most

    def whole(self) -> Array:
        """Return the elements as one array."""
        size = math.prod(np.broadcast_shapes(*(part.shape for part in self.parts.values()))) if self.parts else 1
        if size > MOST_ELEMENTS:
            raise TooManyElementsError
        if not self.parts:
            return np.full((1,) * (self.rank + 1), self.truth, np.bool_ if self.truth else np.int64)
        total, *others = self.parts.values()
        for other in others:
            total = (total & other) if self.truth else (total + other)
        return total

    def scalar(self) -> Array:
        """Return the one integer of each program, with no other axis."""
        return self.whole().reshape(-1)


def tile(array: Array) -> Tile:
    """Return a tile of one array, of which a base is split off for each program where the rest is the same in all.

    >>> rows = np.arange(3)[:, None] * 100 + np.arange(4)
    >>> {axes: part.shape for axes, part in tile(rows).parts.items()}
    {(): (3, 1), (0,): (1, 4)}
    """
    truth = array.dtype == np.bool_
    rank = array.ndim - 1
    if truth:
        return Tile({_axes(array): array}, rank, truth=True)
    low, high = (int(array.min()), int(array.max())) if array.size else (0, 0)
    parts = {_axes(array): array}
    if array.shape[0] > 1 and _axes(array):
        base = array[(slice(None), *(slice(0, 1),) * rank)]
        rest = array - base
        if (rest == rest[:1]).all():
            parts = _nonzero({(): base, _axes(array): rest[:1]})
    return Tile(parts, rank, low, high)


def constant(value: int, rank: int, *, truth: bool = False) -> Tile:
    """Return the same value everywhere."""
    array: Array = np.full((1,) * (rank + 1), value, np.bool_ if truth else np.int64)
    return Tile({(): array}, rank, value, value, truth=truth)


def plus(first: Tile, second: Tile, sign: int = 1) -> Tile:
    """Add, or subtract with a sign of -1."""
    parts = dict(first.parts)
    for axes, part in second.parts.items():
        term = part if sign > 0 else -part
        parts[axes] = parts[axes] + term if axes in parts else term
    low, high = (second.low, second.high) if sign > 0 else (-second.high, -second.low)
    return Tile(_nonzero(parts), first.rank, first.low + low, first.high + high)


def times(first: Tile, second: Tile) -> Tile:
    """Multiply."""
    parts: dict[Axes, Array] = {}
    for one in first.parts.values():
        for other in second.parts.values():
            if math.prod(np.broadcast_shapes(one.shape, other.shape)) > MOST_ELEMENTS:
                raise TooManyElementsError
            part = one * other
            axes = _axes(part)
            parts[axes] = parts[axes] + part if axes in parts else part
    corners = [one * other for one in (first.low, first.high) for other in (second.low, second.high)]
    return Tile(_nonzero(parts), first.rank, min(corners), max(corners))


def scaled(first: Tile, factor: int) -> Tile:
    """Multiply by a positive constant."""
    parts = {axes: part * factor for axes, part in first.parts.items()}
    return Tile(parts, first.rank, first.low * factor, first.high * factor)


def both(first: Tile, second: Tile) -> Tile:
    """Return where both truth values hold."""
    parts = dict(first.parts)
    for axes, part in second.parts.items():
        parts[axes] = parts[axes] & part if axes in parts else part
    return Tile(parts, first.rank, truth=True)


def elementwise(function: Callable[..., Array], *operands: Tile) -> Tile:
    """Apply a function to the elements."""
    arrays = [operand.whole() for operand in operands]
    if math.prod(np.broadcast_shapes(*(array.shape for array in arrays))) > MOST_ELEMENTS:
        raise TooManyElementsError
    return tile(function(*arrays))


def wrapped(value: Tile, bits: int) -> Tile:
    """Return integers as so many bits hold them, two's complement.

    >>> wrapped(constant(2**31 + 5, 0), 32).scalar().tolist()
    [-2147483643]
    """
    half = 1 << (bits - 1)
    if value.truth or bits >= _WORD_BITS or (value.low >= -half and value.high < half):
        return value
    least, most = value.extremes()
    low, high = int(least.min()), int(most.max())
    if low >= -half and high < half:
        return Tile(value.parts, value.rank, low, high)
    return elementwise(lambda array: ((array + half) & (2 * half - 1)) - half, value)


def chosen(condition: Array, new: Tile, old: Tile) -> Tile:
    """Return `new` for the programs of which `condition` (one truth value each) holds, and `old` for the others."""
    if new is old:
        return new
    shaped = condition.reshape(-1, *(1,) * new.rank)
    none: Array = np.full((1,) * (new.rank + 1), new.truth, np.bool_ if new.truth else np.int64)
    parts: dict[Axes, Array] = {}
    for axes in dict.fromkeys((*new.parts, *old.parts)):
        one, other = new.parts.get(axes, none), old.parts.get(axes, none)
        same = one is other or (one.shape == other.shape and bool((one == other).all()))
        part = one if same else np.where(shaped, one, other)
        parts[axes] = part
    return Tile(parts, new.rank, min(new.low, old.low), max(new.high, old.high), new.truth)


def with_axis(value: Tile, axis: int) -> Tile:
    """Insert an axis of size 1."""
    return _relaid(value, value.rank + 1, (np.expand_dims(part, axis + 1) for part in value.parts.values()))


def splat(value: Tile, rank: int) -> Tile:
    """Return the tensor of a scalar; along no axis does it vary."""
    return _relaid(value, rank, (part.reshape(-1, *(1,) * rank) for part in value.parts.values()))


def transposed(value: Tile, order: Sequence[int]) -> Tile:
    """Permute the axes."""
    places = (0, *(axis + 1 for axis in order))
    return _relaid(value, value.rank, (part.transpose(places) for part in value.parts.values()))


def reshaped(value: Tile, old: Sequence[int], new: Sequence[int]) -> Tile:
    """Give the elements, in their order, another shape."""
    groups = _common_groups(old, new)
    return _relaid(value, len(new), (_reshaped(part, old, new, groups) for part in value.parts.values()))


def taken(value: Tile, place: int) -> Tile:
    """Return what lies at a place of the last axis."""
    parts = (part[..., place if part.shape[-1] > 1 else 0] for part in value.parts.values())
    return _relaid(value, value.rank - 1, parts)


def full(value: Tile, shape: Sequence[int]) -> Array:
    """Return every element; the axis of programs stays as short as it is."""
    whole = value.whole()
    if whole.shape[0] * math.prod(shape) > MOST_ELEMENTS:
        raise TooManyElementsError
    return np.broadcast_to(whole, (whole.shape[0], *shape))


def _axes(array: Array) -> Axes:
    return tuple(axis for axis, size in enumerate(array.shape[1:]) if size != 1)


def _nonzero(parts: Mapping[Axes, Array]) -> dict[Axes, Array]:
    return {axes: part for axes, part in parts.items() if axes == () or part.any()}


def _relaid(value: Tile, rank: int, arrays: Iterable[Array]) -> Tile:
    parts: dict[Axes, Array] = {}
    for array in arrays:
        axes = _axes(array)
        if axes in parts:
            parts[axes] = parts[axes] & array if value.truth else parts[axes] + array
        else:
            parts[axes] = array
    return Tile(parts, rank, value.low, value.high, value.truth)


def _common_groups(old: Sequence[int], new: Sequence[int]) -> list[tuple[range, range]]:
    """Return runs of axes, of the old shape and of the new one, that hold equally many elements.

    >>> _common_groups((256, 4), (16, 16, 4))
    [(range(0, 1), range(0, 2)), (range(1, 2), range(2, 3))]
    """
    groups = []
    i = j = 0
    while i < len(old) or j < len(new):
        first_old, first_new = i, j
        one = old[i] if i < len(old) else 1
        other = new[j] if j < len(new) else 1
        i, j = min(i + 1, len(old)), min(j + 1, len(new))
        while one != other:
            if one < other:
                one, i = one * old[i], i + 1
            else:
                other, j = other * new[j], j + 1
        groups.append((range(first_old, i), range(first_new, j)))
    return groups


def _reshaped(part: Array, old: Sequence[int], new: Sequence[int], groups: Sequence[tuple[range, range]]) -> Array:
    """Reshape within the groups along which the part varies; along the others it keeps sizes of 1."""
    source, target = [part.shape[0]], [part.shape[0]]
    for olds, news in groups:
        varies = any(part.shape[axis + 1] != 1 for axis in olds)
        source.extend(old[axis] if varies else 1 for axis in olds)
        target.extend(new[axis] if varies else 1 for axis in news)
    if math.prod(source) > MOST_ELEMENTS:
        raise TooManyElementsError
    return np.broadcast_to(part, source).reshape(target)

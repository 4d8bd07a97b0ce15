"""Tensor maps that are encoded once for each place in memory.

Triton encodes the map of every descriptor for every launch. A map is a number of bytes that depends on nothing but the
address, the shape, the strides and the box, and it keeps no memory alive; so one that was encoded for an address is
right whenever a tensor of the same geometry lies there again, whatever was there meanwhile.
"""

from __future__ import annotations

import copy
import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

#: Maps that are kept, of all kernels together: those of all layers of a large model, and of what they compute.
CAPACITY = 8192


@dataclass(frozen=True, slots=True)
class Address:
    """Where a tensor lies, for a descriptor that must not keep the memory alive."""

    address: int
    dtype: Any

    def data_ptr(self) -> int:
        """Return the address."""
        return self.address


class Geometry:
    """All that a descriptor's map is made of but the address.

    Args:
        descriptor: of a tensor anywhere.
        encode: Triton's: returns what a kernel is given for a descriptor, the map first.
    """

    def __init__(self, descriptor: Any, encode: Callable[[Any], list[Any]]) -> None:
        self._descriptor = copy.copy(descriptor)
        self._descriptor.base = Address(0, descriptor.base.dtype)
        self._encode = encode

    def given(self, address: int) -> list[Any]:
        """Return what a kernel is given for a tensor that lies there, encoded anew."""
        moved = copy.copy(self._descriptor)
        moved.base = Address(address, moved.base.dtype)
        return self._encode(moved)


_geometries: dict[tuple[Any, ...], Geometry] = {}


def geometry_of(descriptor: Any, metadata: Any, make: Callable[..., list[Any]]) -> Geometry:
    """Return the geometry of a descriptor: the same object for all that have the same, so that they share their maps.

    Args:
        descriptor: of a tensor.
        metadata: how the kernel was compiled to read it.
        make: Triton's function that encodes; it may take more than these two, of which a map does not depend.
    """
    key = (make, repr(metadata), *((name, repr(value)) for name, value in vars(descriptor).items() if name != "base"))
    key += (descriptor.base.dtype,)
    found = _geometries.get(key)
    if found is None:
        if len(_geometries) >= CAPACITY:
            _geometries.clear()
        rest = (None,) * (make.__code__.co_argcount - 2)
        found = _geometries.setdefault(key, Geometry(descriptor, lambda moved: make(moved, metadata, *rest)))
    return found


@functools.lru_cache(maxsize=CAPACITY)
def tensor_map(geometry: Geometry, address: int) -> Any:
    """Return the map of a tensor that lies there."""
    return geometry.given(address)[0]

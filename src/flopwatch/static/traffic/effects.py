"""What operations do that counts: accesses to memory, dots, and what is left open."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

import numpy as np

from flopwatch.static.traffic.accesses import Access, Layout
from flopwatch.static.traffic.needed import BY_DESCRIPTOR, BY_POINTER, called
from flopwatch.static.traffic.program import operations_in
from flopwatch.static.traffic.tiles import (
    Array,
    Tile,
    Unknown,
    both,
    elementwise,
    plus,
    scaled,
    splat,
    tile,
    times,
    with_axis,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flopwatch.static.traffic.binding import Value
    from flopwatch.static.traffic.counts import Counts
    from flopwatch.static.traffic.program import Module, Operation

#: Products of matrices.
DOTS = ("tt.dot", "tt.dot_scaled")
#: Stands for what is not needed, and so was not computed.
NOTHING = Unknown(cause="a value that was not computed", data=False)
_PRECISION = re.compile(r"inputPrecision = (\w+)")
_SIDES = re.compile(r"lhs = (\w+) rhs = (\w+)")
_FLOPS, _BYTES, _ADDRESSES, _TURNS = "flops", "bytes", "addresses", "turns"


class Effects:
    """Counts what the operations of some programs do.

    Args:
        module: the kernel.
        counts: of all programs.
        first: the place of the first of these among all.
    """

    def __init__(self, module: Module, counts: Counts, first: int) -> None:
        self.module = module
        self.counts = counts
        self.first = first
        self._accesses: dict[Operation, tuple[Tile, Tile | None, Access]] = {}

    def access(
        self,
        operation: Operation,
        address: Value,
        mask: Value | None,
        layout: Layout,
        active: Array,
    ) -> None:
        """Count a load, a store or an atomic by the active programs, as far as its address and mask are known."""
        kind = "load" if "load" in operation.name or "gather" in operation.name else "store"
        kind = "atomic" if "atomic" in operation.name or "reduce" in operation.name else kind
        programs = np.flatnonzero(active)
        if isinstance(mask, Tile):
            mask = splat(mask, len(layout.shape)) if mask.rank < len(layout.shape) else mask
        elif mask is not None:
            self.give_up((_BYTES, _ADDRESSES), f"the mask at {operation.where}", mask)
            return
        if not isinstance(address, Tile):
            lanes = Access(Tile({}, len(layout.shape)), mask, layout).lanes
            self.counts.request(kind, lanes, layout.element_bytes, programs, self.first)
            self.give_up((_ADDRESSES,), f"the address at {operation.where}", address)
            return
        access = self._remembered(operation, address, mask, layout)
        self.counts.request(kind, access.lanes, layout.element_bytes, programs, self.first)
        self.counts.access(operation, kind, access, programs, self.first)

    def _remembered(self, operation: Operation, address: Tile, mask: Tile | None, layout: Layout) -> Access:
        """Return the access of the last time where address and mask are the same objects."""
        before = self._accesses.get(operation)
        if before is None or before[0] is not address or before[1] is not mask:
            before = (address, mask, Access(address, mask, layout))
            self._accesses[operation] = before
        return before[2]

    def give_up(self, quantities: Sequence[str], what: str, value: Value) -> None:
        """Leave quantities open, because something depends on a value that is not known."""
        cause = value if isinstance(value, Unknown) else NOTHING
        for quantity in quantities:
            self.counts.unknown[quantity][f"{what} depends on {cause.cause}"] = cause.data

    def skip(self, operation: Operation, skipped: Sequence[Operation], condition: Value) -> None:
        """Take note of what cannot be counted because nobody knows whether it runs."""
        names = {inner.name for each in skipped for inner in self._run_by(each)}
        if names & {"tt.dot", "tt.dot_scaled"}:
            self.give_up((_FLOPS,), f"{operation.name} at {operation.where}", condition)
        if names & {*BY_POINTER, *BY_DESCRIPTOR}:
            self.give_up((_BYTES, _ADDRESSES), f"{operation.name} at {operation.where}", condition)
        self.give_up((_TURNS,), f"{operation.name} at {operation.where}", condition)

    def _run_by(self, operation: Operation) -> Sequence[Operation]:
        if operation.name != "tt.call":
            return (operation,)
        return tuple(
            inner for each in operations_in(called(self.module, operation).body) for inner in self._run_by(each)
        )

    def dot(self, operation: Operation, active: Array) -> None:
        """Count a multiplication and an addition for each element and step of the product."""
        left = self.module.types[operation.operands[0]]
        result = self.module.types[operation.results[0]]
        depth = left.shape[-1]
        kind = left.element
        if operation.name == "tt.dot":
            precision = _PRECISION.search(operation.text)
            kind = precision[1] if kind == "f32" and precision else kind
        else:
            sides = _SIDES.search(operation.text)
            kind = sides[1] if sides else kind
            if sides and sides[1] == "e2m1" and left.element == "i8" and "lhs_k_pack = false" not in operation.text:
                depth *= 2
        flops = 2 * math.prod(result.shape) * depth
        programs = np.flatnonzero(active)
        self.counts.dot_flops[kind] += flops * len(programs)
        self.counts.flops[programs + self.first] += flops


def box(parts: Sequence[Tile], layout: Layout) -> tuple[Tile, Tile]:
    """Return the addresses of a box, and which of its elements are inside of the tensor.

    Args:
        parts: the tensor's address; its size along each axis, and its stride; where the box begins along each, or, for
            a gather, every row of it.
        layout: of the box.
    """
    rank = len(layout.shape)
    base, *numbers = parts
    sizes, strides, indices = (numbers[first : first + rank] for first in (0, rank, 2 * rank))
    address = splat(base, rank)
    mask = Tile({}, rank, truth=True)
    for axis, (size, stride, along) in enumerate(zip(sizes, strides, indices, strict=True)):
        if not along.rank:
            along = plus(splat(along, 1), tile(np.arange(layout.shape[axis])[None, :]))  # noqa: PLW2901
        for other in range(rank):
            if other != axis:
                along = with_axis(along, other)  # noqa: PLW2901 - one axis after the other
        address = plus(address, scaled(times(along, splat(stride, rank)), layout.element_bytes))
        inside = elementwise(lambda place, end: (place >= 0) & (place < end), along, splat(size, rank))
        mask = both(mask, inside)
    return address, mask

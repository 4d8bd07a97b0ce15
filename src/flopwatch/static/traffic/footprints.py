"""Which elements each program accesses: the accesses of a launch, kept by program and tensor."""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from flopwatch.static.recorder import DescriptorArgument, TensorArgument
from flopwatch.static.traffic.binding import APART_BYTES
from flopwatch.static.traffic.counts import Counts
from flopwatch.static.traffic.elements import Elements
from flopwatch.static.traffic.footprint import Footprint, Panel, Rectangle
from flopwatch.static.traffic.model import launch_counts, why_not
from flopwatch.static.traffic.recorded import MOST_TURNS
from flopwatch.static.traffic.turns import Turns

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from flopwatch.static.recorder import Launch, Recorder
    from flopwatch.static.traffic.accesses import Access
    from flopwatch.static.traffic.binding import Allocation
    from flopwatch.static.traffic.program import Operation
    from flopwatch.static.traffic.tiles import Array

#: Of larger grids nothing is told: their programs are too many to be told apart.
MOST_PROGRAMS = 1 << 17
#: Pairs of a program and a box: 64 MiB.
_MOST_PAIRS = 1 << 23


def footprints_of(recorder: Recorder, programs: Sequence[int] = (), *, first: int = 0) -> tuple[Footprint, ...]:
    """Return the footprint of each different launch that was recorded, in order; of autotuners, of what they chose.

    Args:
        recorder: that saw the launches.
        programs: to be told apart; where there are none, the first two and the last that access what is shown.
        first: how many of the recorded launches to leave out.
    """
    turns = Turns(left=MOST_TURNS)
    found: dict[tuple[object, ...], Footprint] = {}
    for launch in recorder.launches[first:]:
        key = (launch.kernel, launch.grid, launch.binary_hash, launch.arguments)
        if launch.binary_hash and key not in found and not launch.tuning:
            found[key] = _footprint(launch, recorder, programs, turns)
    return tuple(found.values())


def _footprint(launch: Launch, recorder: Recorder, programs: Sequence[int], turns: Turns) -> Footprint:
    total = math.prod(launch.grid)
    told: dict[str, Any] = {
        "kernel": launch.kernel,
        "device": recorder.device.key,
        "config": launch.config or "",
        "grid": launch.grid,
        "programs": total,
    }
    if total > MOST_PROGRAMS:
        return Footprint(**told, unknown=(f"{total:,} programs are too many to be told apart",))
    try:
        touches = launch_counts(
            launch,
            recorder.compiled[launch.binary_hash],
            recorder.device,
            turns,
            functools.partial(Touches, tensors=dict(_tensors(launch.values))),
        )
    except Exception as error:  # noqa: BLE001 - the text is of any kernel and any Triton, as for its traffic
        return Footprint(**told, unknown=(why_not(error),))
    layers = touches.layers(total, programs)
    return Footprint(
        **told,
        wave=touches.in_wave,
        layers=layers,
        panels=tuple(touches.panels(layers)),
        unknown=tuple(touches.unknown["addresses"]),
    )


def _tensors(values: Iterable[tuple[str, object]]) -> Iterator[tuple[str, TensorArgument]]:
    """Yield the tensors of a launch, and what each is called."""
    for name, value in values:
        match value:
            case TensorArgument():
                yield name, value
            case DescriptorArgument():
                yield name, value.tensor
            case tuple():
                yield from _tensors((f"{name}[{place}]", part) for place, part in enumerate(value))


class Touches(Counts):
    """Keeps which boxes of which tensor each program accesses; all programs are evaluated.

    Args:
        programs: how many.
        wave: how many of them the device holds at once.
        allocations: of the launch.
        tensors: of the launch, by name.
    """

    def __init__(
        self, programs: int, *, wave: int, allocations: Sequence[Allocation], tensors: Mapping[str, TensorArgument]
    ) -> None:
        super().__init__(programs, wave=wave, allocations=allocations)
        starts = {tensors[each.name].allocation_address: each.start for each in allocations}
        names: dict[TensorArgument, list[str]] = {}
        for name, tensor in tensors.items():
            if math.prod(tensor.shape) and tensor.allocation_address in starts:
                names.setdefault(tensor, []).append(name)
        #: By the number of the allocation.
        self._shown: dict[int, list[_Shown]] = {}
        for tensor, called in names.items():
            start = starts[tensor.allocation_address]
            shown = _Shown(", ".join(called), tensor, start)
            self._shown.setdefault(start // APART_BYTES, []).append(shown)

    def access(self, operation: Operation, kind: str, access: Access, programs: Array, first: int) -> None:
        """Keep an access by some programs of those that are evaluated together."""
        whose, starts, ends = access.spans_by_program(programs)
        whose = whose + first
        number = (starts + APART_BYTES // 2) // APART_BYTES
        for allocation in np.unique(number).tolist():
            here = number == allocation
            tensors = self._shown.get(allocation, [])
            if not tensors:
                self.unknown["addresses"][f"the access at {operation.where} is to no tensor of the launch"] = False
            for place, shown in enumerate(tensors):
                # Of several tensors in one allocation it is the one that has an element there, else the last.
                mine = here if place == len(tensors) - 1 else here & shown.elements.has(starts)
                shown.add(kind, whose[mine], starts[mine], ends[mine])
                here = here & ~mine

    def layers(self, total: int, programs: Sequence[int]) -> tuple[tuple[int, int], ...]:
        """Return the first and the last program of what is told apart."""
        chosen = list(programs)
        if not chosen:
            pairs = [shown.owners() for tensors in self._shown.values() for shown in tensors]
            active = np.unique(np.concatenate([np.zeros(0, np.int64), *pairs])).tolist()
            chosen = [*active[:2], *active[-1:]]
        wave = [(0, self.in_wave - 1)] if 1 < self.in_wave < total else []
        single = [(number, number) for number in dict.fromkeys(chosen) if number < total] if total > 1 else []
        return ((0, total - 1), *wave, *single)

    def panels(self, layers: Sequence[tuple[int, int]]) -> Iterator[Panel]:
        """Yield what is told of each tensor, of those that are accessed."""
        for tensors in self._shown.values():
            for shown in tensors:
                yield from shown.panels(layers)


class _Pairs:
    """Numbers, each kept once."""

    def __init__(self) -> None:
        self._parts: list[Array] = []
        self._pending = 0

    def add(self, numbers: Array) -> None:
        fresh = np.unique(numbers)
        self._parts.append(fresh)
        self._pending += len(fresh)
        if self._pending > _MOST_PAIRS:
            self._pending = len(self.merged()) // 2  # so that what is different is not merged at every turn
            if 2 * self._pending >= _MOST_PAIRS:
                raise ValueError("its programs access too many places to be told apart")

    def merged(self) -> Array:
        self._parts = [np.unique(np.concatenate(self._parts))]
        return self._parts[0]


class _Shown:
    """A tensor, and the pairs of a program and a box, by the kind of the access."""

    def __init__(self, name: str, tensor: TensorArgument, start: int) -> None:
        self.name, self.shape, self.element_bytes = name, tensor.shape, tensor.element_bytes
        base = start + tensor.address - tensor.allocation_address
        try:
            self.elements = Elements(tensor.shape, tensor.strides, tensor.element_bytes, base)
        except ValueError:  # elements overlap: what is shown is memory
            self.shape = (tensor.allocation_bytes // tensor.element_bytes,)
            self.elements = Elements(self.shape, (1,), tensor.element_bytes, start)
        self._pairs: dict[str, _Pairs] = {}
        self._strays: set[str] = set()

    def add(self, kind: str, whose: Array, starts: Array, ends: Array) -> None:
        if not len(starts):
            return
        spans, boxes, strays = self.elements.boxes_of(starts, ends)
        if strays:
            self._strays.add(kind)
        self._pairs.setdefault(kind, _Pairs()).add(whose[spans] * self.elements.boxes + boxes)

    def owners(self) -> Array:
        """Return the programs that access it."""
        each = [pairs.merged() // self.elements.boxes for pairs in self._pairs.values()]
        return np.unique(np.concatenate([np.zeros(0, np.int64), *each]))

    def panels(self, layers: Sequence[tuple[int, int]]) -> Iterator[Panel]:
        """Yield a panel for each kind of access."""
        elements = self.elements
        for kind, pairs in self._pairs.items():
            programs, boxes = np.divmod(pairs.merged(), elements.boxes)
            yield Panel(
                argument=self.name,
                access=kind,
                shape=self.shape,
                element_bytes=self.element_bytes,
                rows=elements.rows,
                columns=elements.columns,
                box=elements.box,
                layers=tuple(
                    tuple(_rectangles(programs[chosen], boxes[chosen], elements))
                    for chosen in ((programs >= low) & (programs <= high) for low, high in layers)
                ),
                strays=kind in self._strays,
            )


def _rectangles(programs: Array, boxes: Array, elements: Elements) -> Iterator[Rectangle]:
    """Put boxes of the same programs together, along the rows and then down the columns."""
    tall, wide = elements.box
    count = np.bincount(boxes, minlength=elements.boxes)
    first, last = np.full(elements.boxes, np.iinfo(np.int64).max), np.full(elements.boxes, -1)
    np.minimum.at(first, boxes, programs)
    np.maximum.at(last, boxes, programs)
    across = -(-elements.columns // wide)
    told = np.stack((first, last, count), axis=1).reshape(-1, across, 3)
    open_runs: dict[tuple[int, ...], int] = {}
    for row in range(len(told) + 1):
        runs = dict.fromkeys(_runs(told[row]), row) if row < len(told) else {}
        for run, top in open_runs.items():
            if run in runs:
                runs[run] = top
            else:
                start, end, *who = run
                yield Rectangle(
                    row=top * tall,
                    column=start * wide,
                    rows=min(row * tall, elements.rows) - top * tall,
                    columns=min(end * wide, elements.columns) - start * wide,
                    first=who[0],
                    last=who[1],
                    programs=who[2],
                )
        open_runs = runs


def _runs(told: Array) -> Iterator[tuple[int, ...]]:
    """Yield the boxes of a row that the same programs access: the first, the one after the last, and who."""
    edges = np.flatnonzero((np.diff(told, axis=0) != 0).any(axis=1)) + 1
    for start, end in zip([0, *edges.tolist()], [*edges.tolist(), len(told)], strict=True):
        first, last, count = told[start].tolist()
        if count:
            yield start, end, first, last, count

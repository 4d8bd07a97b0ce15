"""What is counted while a launch is evaluated."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from flopwatch.static.traffic.binding import APART_BYTES, Allocation
from flopwatch.static.traffic.spans import Spans

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flopwatch.static.traffic.accesses import Access
    from flopwatch.static.traffic.program import Operation
    from flopwatch.static.traffic.tiles import Array


@dataclass(kw_only=True, slots=True)
class Stray:
    """Accesses of one operation outside of one allocation."""

    allocation: Allocation
    programs: set[int] = field(default_factory=set)
    before_bytes: int = 0
    past_bytes: int = 0


@dataclass(kw_only=True, slots=True)
class Trips:
    """How often a loop went round, each time that a program came to it."""

    entered: int = 0
    total: int = 0
    least: int = 0
    most: int = 0


class Counts:
    """Sums over all programs that were evaluated.

    Attributes:
        in_wave: how many of them are of the first wave.
        flops: of each program, by its place among those that are evaluated.
        requested: bytes of each program's loads and stores.
        dot_flops: by the type of the operands.
        bytes: of "load", "store" and "atomic".
        unknown: what could not be counted ("flops", "bytes", "addresses", "turns"), with the causes, and whether these
            are values in memory.
    """

    def __init__(self, programs: int, *, wave: int, allocations: Sequence[Allocation]) -> None:
        self.in_wave = wave
        self.allocations = allocations
        self.flops: Array = np.zeros(programs, np.int64)
        self.requested: Array = np.zeros(programs, np.int64)
        self.dot_flops = Counter[str]()
        self.bytes = Counter[str]()
        self.read = Spans()
        self.written = Spans()
        self.wave = Spans()
        self.wave_requested = 0
        self.trips: dict[Operation, Trips] = {}
        self.strays: dict[tuple[Operation, str], Stray] = {}
        self.unknown: dict[str, dict[str, bool]] = defaultdict(dict)

    def loop(self, operation: Operation, trips: Array) -> None:
        """Count a loop that some programs came to."""
        least, most = int(trips.min()), int(trips.max())
        before = self.trips.setdefault(operation, Trips(least=least, most=most))
        before.entered += len(trips)
        before.total += int(trips.sum())
        before.least, before.most = min(before.least, least), max(before.most, most)

    def access(self, operation: Operation, kind: str, access: Access, programs: Array, first: int) -> None:
        """Count an access by some programs of those that are evaluated together.

        Args:
            operation: the load or store.
            kind: "load", "store" or "atomic".
            access: of all programs that are evaluated together.
            programs: the places of those that get there.
            first: the place of the first program among all.
        """
        places = programs + first
        in_wave = programs[places < self.in_wave]
        later = programs[places >= self.in_wave]
        for some, is_wave in ((in_wave, True), (later, False)):
            if len(some):
                starts, ends = access.spans(some)
                if kind != "store":
                    self.read.add(starts, ends)
                if kind != "load":
                    self.written.add(starts, ends)
                if is_wave and kind == "load":
                    self.wave.add(starts, ends)
        if kind == "load" and len(in_wave):
            lanes = np.broadcast_to(access.lanes, (int(programs[-1]) + 1,)) if len(access.lanes) == 1 else access.lanes
            self.wave_requested += int(lanes[in_wave].sum()) * access.element_bytes
        self._check(operation, access, programs, first)

    def request(self, kind: str, lanes: Array, element_bytes: int, programs: Array, first: int) -> None:
        """Count the bytes that the lanes of some programs ask for."""
        asked = (lanes if len(lanes) == 1 else lanes[programs]) * element_bytes
        self.requested[programs + first] += asked
        self.bytes[kind] += int(asked.sum()) * (len(programs) if len(asked) == 1 else 1)

    def _check(self, operation: Operation, access: Access, programs: Array, first: int) -> None:
        owners = {access.address.low // APART_BYTES, access.address.high // APART_BYTES}
        if len(owners) == 1:
            allocation = self._allocation(owners.pop())
            if (
                allocation is not None
                and access.address.low >= allocation.start
                and access.address.high + access.element_bytes <= allocation.start + allocation.size_bytes
            ):
                return
        least, past = access.reaches()
        count = max(len(least), len(past), len(access.lanes), int(programs[-1]) + 1)
        lanes = np.broadcast_to(access.lanes, (count,))[programs] if len(access.lanes) == 1 else access.lanes[programs]
        least = np.broadcast_to(least, (count,))[programs] if len(least) == 1 else least[programs]
        past = np.broadcast_to(past, (count,))[programs] if len(past) == 1 else past[programs]
        least, past, places = least[lanes > 0], past[lanes > 0], (programs + first)[lanes > 0]
        # The nearest allocation: half of the distance before it, half of it behind.
        near = (least + APART_BYTES // 2) // APART_BYTES
        if (near != (past + APART_BYTES // 2) // APART_BYTES).any():
            self.unknown["addresses"][f"the access at {operation.where} spans several tensors"] = False
            return
        for number in np.unique(near).tolist():
            allocation = self._allocation(number)
            if allocation is None:
                self.unknown["addresses"][f"the access at {operation.where} is to no tensor of the launch"] = False
                continue
            mine = near == number
            before = allocation.start - least[mine]
            behind = past[mine] - (allocation.start + allocation.size_bytes)
            wrong = (before > 0) | (behind > 0)
            if wrong.any():
                key = (operation, allocation.name)
                stray = self.strays.setdefault(key, Stray(allocation=allocation))
                stray.programs.update(places[mine][wrong].tolist())
                stray.before_bytes = max(stray.before_bytes, int(before.max()))
                stray.past_bytes = max(stray.past_bytes, int(behind.max()))

    def _allocation(self, number: int) -> Allocation | None:
        return self.allocations[number - 1] if 0 < number <= len(self.allocations) else None

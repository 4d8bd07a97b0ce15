"""Go through a kernel once for many programs: count what it accesses and multiplies, follow its control flow.

Every program computes everything, like the lanes of a warp; what it does counts only where it is active. Of a loop as
many turns are taken as the longest program needs.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from flopwatch.static.traffic.accesses import Layout
from flopwatch.static.traffic.binding import Descriptor, Value
from flopwatch.static.traffic.effects import DOTS, NOTHING, Effects, box
from flopwatch.static.traffic.integers import computed, split_pair
from flopwatch.static.traffic.needed import BY_DESCRIPTOR, BY_POINTER, called
from flopwatch.static.traffic.program import bits_of, operations_in
from flopwatch.static.traffic.tiles import Array, Tile, Unknown, chosen, tile
from flopwatch.static.traffic.ttir import TtirError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from flopwatch.static.traffic.counts import Counts
    from flopwatch.static.traffic.program import Block, Module, Operation, Region
    from flopwatch.static.traffic.turns import Turns

_PROGRAM_AXIS = re.compile(r"^tt\.get_(?:program_id|num_programs) ([xyz])")
_ENDS = frozenset({"scf.yield", "scf.condition", "tt.return", "tt.reduce.return", "tt.scan.return"})


@dataclass(frozen=True, kw_only=True, slots=True)
class Programs:
    """Programs that are evaluated together: their numbers in the grid, and the place of the first among all of them."""

    numbers: Array
    grid: tuple[int, int, int]
    first: int


class Evaluation:
    """Programs of a launch, on their way through the kernel.

    Args:
        module: the kernel.
        needed: the values that are computed.
        parameters: what the launch gives.
        programs: which.
        counts: where they are counted.
        turns: of loops.
    """

    def __init__(
        self,
        module: Module,
        needed: frozenset[int],
        parameters: Mapping[int, Value],
        programs: Programs,
        counts: Counts,
        *,
        turns: Turns,
    ) -> None:
        self.module = module
        self.needed = needed
        self.values: dict[int, Value] = dict(parameters)
        self.grid = programs.grid
        self.programs = programs.numbers
        self.effects = Effects(module, counts, programs.first)
        self.covered: set[Operation] = set()
        self.uncovered: set[Operation] = set()
        self.turns = turns
        self._memory: dict[Operation, tuple[Sequence[object], Any]] = {}
        self._steps: dict[str, Callable[[Operation, Array], None]] = {
            **dict.fromkeys(BY_POINTER, self._pointer_access),
            **dict.fromkeys(BY_DESCRIPTOR, self._descriptor_access),
            **dict.fromkeys(DOTS, self._dot),
            "tt.call": self._call,
            "scf.for": self._for,
            "scf.while": self._while,
            "scf.if": self._if,
        }

    def run(self) -> None:
        """Evaluate the kernel.

        Raises:
            TooManyElementsError: fewer programs must be evaluated together.
            TooLongError: the loops take too long.
            TtirError: the control flow is not understood.
        """
        self._body(self.module.entry.body, np.ones(len(self.programs), np.bool_))

    def _body(self, body: Region, active: Array) -> list[Value] | Unknown:
        """Evaluate a function, whose blocks go forwards only; return what it returns, or why nobody knows."""
        places = {block.label: place for place, block in enumerate(body.blocks)}
        arriving: dict[int, Array] = {0: active}
        returned: list[Value] | None = None
        unknown: Unknown | None = None
        for place, block in enumerate(body.blocks):
            here = arriving.get(place)
            end = None if here is None else self._block(block, here)
            if here is None or end is None:
                continue
            if end.name == "tt.return":
                values = [self._value(operand) for operand in end.operands]
                returned = values if returned is None else _all_merged(here, values, returned)
            going = self._going(end, here)
            if isinstance(going, Unknown):
                unknown = going
                self._skip(end, [inner for later in body.blocks[place + 1 :] for inner in _inside(later)], unknown)
                continue
            for (label, given), some in zip(end.successors, going, strict=True):
                target = places.get(label, -1)
                if target <= place:
                    raise TtirError(f"the jump back at {end.where} is not understood")
                if some.any():
                    self._arrive(body.blocks[target], given, some, first=target not in arriving)
                    arriving[target] = arriving.get(target, np.zeros_like(some)) | some
        return unknown or returned or []

    def _arrive(self, block: Block, given: Sequence[int], some: Array, *, first: bool) -> None:
        """Give a block its arguments, of the programs that go there."""
        for argument, value in zip(block.arguments, given, strict=True):
            if argument in self.needed:
                new = self._value(value)
                self.values[argument] = new if first else _merged(some, new, self._value(argument))

    def _going(self, end: Operation, here: Array) -> list[Array] | Unknown:
        """Return which programs go on to each successor, or why nobody knows."""
        if len(end.successors) < 2:  # noqa: PLR2004 - both ways
            return [here] * len(end.successors)
        condition = self._value(end.operands[0])
        if end.name != "cf.cond_br" or not isinstance(condition, Tile):
            return condition if isinstance(condition, Unknown) else Unknown(cause=end.name, data=False)
        holds = condition.scalar()
        return [here & holds, here & ~holds]

    def _block(self, block: Block, active: Array) -> Operation | None:
        """Evaluate a block up to its end, which is returned if it has operands or goes on."""
        for operation in block.operations:
            if operation.name in _ENDS or operation.successors:
                return operation
            self._step(operation, active)
        return None

    def _step(self, operation: Operation, active: Array) -> None:
        step = self._steps.get(operation.name)
        if step is not None:
            step(operation, active)
        elif operation.regions and operation.name not in {"tt.reduce", "tt.scan"}:
            self.uncovered.add(operation)
            unknown = Unknown(cause=f"{operation.name}, which is not understood", data=False)
            self._skip(operation, _within(operation), unknown)
        elif any(result in self.needed for result in operation.results):
            self._compute(operation)

    def _call(self, operation: Operation, active: Array) -> None:
        function = called(self.module, operation)
        self.values.update(zip(function.parameters, map(self._value, operation.operands), strict=True))
        returned = self._body(function.body, active)
        if isinstance(returned, Unknown):
            self.values.update(dict.fromkeys(operation.results, returned))
        else:
            self.values.update(zip(operation.results, returned, strict=True))

    def _value(self, value: int) -> Value:
        return self.values.get(value, NOTHING)

    def _compute(self, operation: Operation) -> None:
        """Compute the results, or take those of the last time where the operands are the same objects."""
        operands = [self._value(operand) for operand in operation.operands]
        before = self._memory.get(operation)
        if before is not None and all(new is old for new, old in zip(operands, before[0], strict=True)):
            results = before[1]
        else:
            results = self._results(operation, operands)
            self._memory[operation] = (operands, results)
        self.values.update(zip(operation.results, results, strict=True))

    def _results(self, operation: Operation, operands: list[Value]) -> Sequence[Value]:
        count = len(operation.results)
        unknown = next((operand for operand in operands if isinstance(operand, Unknown)), None)
        if unknown is not None:
            return (unknown,) * count
        if operation.name == "tt.make_tensor_descriptor":
            self.covered.add(operation)
            rank = (len(operands) - 1) // 2
            base, *numbers = operands
            return (
                Descriptor(base=base, shape=tuple(numbers[:rank]), strides=tuple(numbers[rank : 2 * rank])),  # type: ignore[arg-type] # none is Unknown, none a Descriptor
            )
        tiles = [operand for operand in operands if isinstance(operand, Tile)]
        results: Sequence[Value] | None = None
        if len(tiles) == len(operands):
            results = self._known(operation, tiles)
        if results is None:
            self.uncovered.add(operation)
            kind = "floating point" if _is_float(self.module.types[operation.results[0]].element) else operation.name
            return (Unknown(cause=f"{kind} at {operation.where or 'an unknown line'}", data=False),) * count
        self.covered.add(operation)
        return results

    def _known(self, operation: Operation, operands: list[Tile]) -> Sequence[Value] | None:
        axis = _PROGRAM_AXIS.match(operation.text)
        if axis:
            return (tile(self._program(operation.name, "xyz".index(axis[1]))),)
        if operation.name == "tt.split":
            return split_pair(operands[0])
        if len(operation.results) != 1:
            return None
        types = [self.module.types[operand] for operand in operation.operands]
        result = computed(operation, operands, types, self.module.types[operation.results[0]])
        return None if result is None else (result,)

    def _program(self, name: str, axis: int) -> Array:
        if name == "tt.get_num_programs":
            return np.array([self.grid[axis]], np.int64)
        before = math.prod(self.grid[:axis])
        return np.asarray(self.programs // before % self.grid[axis])

    # Memory

    def _pointer_access(self, operation: Operation, active: Array) -> None:
        address_place, mask_place = BY_POINTER[operation.name]
        operands = operation.operands
        address = self._value(operands[address_place])
        mask = self._value(operands[mask_place]) if mask_place < len(operands) else None
        kind = self.module.types[operands[address_place]]
        layout = Layout(kind.shape, max(bits_of(kind.pointee) // 8, 1))
        self.effects.access(operation, address, mask, layout, active)
        self._loaded(operation)

    def _descriptor_access(self, operation: Operation, active: Array) -> None:
        """Count what a box has inside of the tensor; the hardware leaves out what is outside of it."""
        descriptor = self._value(operation.operands[0])
        kind = self.module.types[operation.operands[0]]
        stored = BY_DESCRIPTOR[operation.name]
        indices = [self._value(operand) for operand in operation.operands[1 : -1 if stored else None]]
        shape = list(kind.shape)
        if "gather" in operation.name or "scatter" in operation.name:
            shape[0] = self.module.types[operation.operands[1]].shape[0]
        layout = Layout(tuple(shape), max(bits_of(kind.pointee) // 8, 1))
        given: list[Value] = [descriptor, *indices]
        if isinstance(descriptor, Descriptor):
            given = [descriptor.base, *descriptor.shape, *descriptor.strides, *indices]
        parts = [part for part in given if isinstance(part, Tile)]
        if len(parts) == len(given) == 1 + 3 * len(shape):
            before = self._memory.get(operation)
            if before is None or not all(new is old for new, old in zip(parts, before[0], strict=True)):
                before = (parts, box(parts, layout))
                self._memory[operation] = before
            address, mask = before[1]
            self.effects.access(operation, address, mask, layout, active)
        else:
            # The box may reach over the edge of the tensor, so that not even the bytes are known.
            unknown = next((part for part in given if isinstance(part, Unknown)), NOTHING)
            self.effects.access(operation, unknown, unknown, layout, active)
        self._loaded(operation)

    def _loaded(self, operation: Operation) -> None:
        self.covered.add(operation)
        for result in operation.results:
            if result in self.needed:
                self.values[result] = Unknown(cause=f"values loaded at {operation.where}", data=True)

    def _dot(self, operation: Operation, active: Array) -> None:
        self.covered.add(operation)
        self.effects.dot(operation, active)

    def _skip(self, operation: Operation, skipped: Sequence[Operation], condition: Value) -> None:
        """Leave out what nobody knows whether it runs."""
        self.effects.skip(operation, skipped, condition)
        cause = condition if isinstance(condition, Unknown) else NOTHING
        self.values.update(dict.fromkeys(operation.results, cause))

    # Control flow

    def _if(self, operation: Operation, active: Array) -> None:
        condition = self._value(operation.operands[0])
        if not isinstance(condition, Tile):
            self._skip(operation, _within(operation), condition)
            return
        self.covered.add(operation)
        holds = condition.scalar()
        outcomes: list[tuple[Array, Sequence[Value]]] = []
        for region, going in zip(operation.regions, (active & holds, active & ~holds), strict=False):
            if going.any():
                end = self._block(region.blocks[0], going)
                outcomes.append((going, [self._value(operand) for operand in end.operands] if end else []))
        if not outcomes:
            return
        _, values = outcomes[0]
        if len(outcomes) > 1:
            going, others = outcomes[1]
            values = _all_merged(going, others, values)
        self.values.update(zip(operation.results, values, strict=True))

    def _for(self, operation: Operation, active: Array) -> None:
        low, high, step, *starts = (self._value(operand) for operand in operation.operands)
        bounds = [bound for bound in (low, high, step) if isinstance(bound, Tile)]
        if len(bounds) < 3:  # noqa: PLR2004 - one of them is unknown
            unknown = next(bound for bound in (low, high, step) if not isinstance(bound, Tile))
            self._skip(operation, _within(operation), unknown)
            return
        self.covered.add(operation)
        first, last, stride = (bound.scalar() for bound in bounds)
        trips = np.maximum(-((first - last) // np.maximum(stride, 1)), 0)
        trips = np.broadcast_to(trips, active.shape)
        self.effects.counts.loop(operation, trips[active])
        block = operation.regions[0].blocks[0]
        counter, *arguments = block.arguments
        current = list(starts)
        for turn in range(int(trips[active].max())):
            self.turns.take()
            going = active & (trips > turn)
            if counter in self.needed:
                self.values[counter] = tile(first + turn * stride)
            self.values.update(zip(arguments, current, strict=True))
            end = self._block(block, going)
            given = [self._value(operand) for operand in end.operands] if end is not None else current
            all_go = bool((going == active).all())
            current = given if all_go else _all_merged(going, given, current)
        self.values.update(zip(operation.results, current, strict=True))

    def _while(self, operation: Operation, active: Array) -> None:
        before, after = (region.blocks[0] for region in operation.regions)
        current = [self._value(operand) for operand in operation.operands]
        results: list[Value] = []
        first = True
        trips = np.zeros(len(active), np.int64)
        going = active
        self.covered.add(operation)
        while True:
            self.turns.take()
            self.values.update(zip(before.arguments, current, strict=True))
            end = self._block(before, going)
            if end is None:
                raise TtirError(f"the loop at {operation.where} has no condition")
            condition, *passed = (self._value(operand) for operand in end.operands)
            if not isinstance(condition, Tile):
                self._skip(operation, _within(operation), condition)
                return
            results = passed if first else _all_merged(going, passed, results)
            first = False
            going = going & condition.scalar()
            if not going.any():
                break
            trips += going
            self.values.update(zip(after.arguments, passed, strict=True))
            end = self._block(after, going)
            given = [self._value(operand) for operand in end.operands] if end is not None else []
            current = _all_merged(going, given, current)
        self.effects.counts.loop(operation, trips[active])
        self.values.update(zip(operation.results, results, strict=True))


def _is_float(element: str) -> bool:
    return bool(re.match(r"(bf|tf|f)\d", element))


def _within(operation: Operation) -> list[Operation]:
    return [inner for region in operation.regions for inner in operations_in(region)]


def _inside(block: Block) -> list[Operation]:
    return [inner for operation in block.operations for inner in (operation, *_within(operation))]


def _all_merged(condition: Array, new: Sequence[Value], old: Sequence[Value]) -> list[Value]:
    return [_merged(condition, one, other) for one, other in zip(new, old, strict=True)]


def _merged(condition: Array, new: Value, old: Value) -> Value:
    """Return `new` for the programs of which the condition holds, `old` for the others."""
    if new is old:
        return new
    if isinstance(new, Tile) and isinstance(old, Tile):
        return chosen(condition, new, old)
    if isinstance(new, Unknown):
        return new
    return old if isinstance(old, Unknown) else Unknown(cause="one of two descriptors", data=False)

"""What TTIR's operations do to integers, truth values and addresses."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from flopwatch.static.traffic.program import bits_of, operations_in
from flopwatch.static.traffic.tiles import (
    Array,
    Tile,
    both,
    constant,
    elementwise,
    full,
    plus,
    reshaped,
    scaled,
    splat,
    taken,
    tile,
    times,
    transposed,
    with_axis,
    wrapped,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from flopwatch.static.traffic.program import Operation, Type

#: These change what a value is called and not what it is.
_SAME = frozenset(
    {"arith.extsi", "arith.index_cast", "arith.bitcast", "tt.bitcast", "tt.ptr_to_int", "tt.int_to_ptr"}
    | {"tt.broadcast", "arith.trunci"}
)
_DENSE = re.compile(r"^arith\.constant (?:dense<)?(true|false|-?\d+)>? ?(?:: |$)")
_LISTED = re.compile(r"^arith\.constant dense<([\[\]\-\d, truefals]+)> : ")
_RANGE = re.compile(r"end = (-?\d+) : i32, start = (-?\d+)")
_AXIS = re.compile(r"axis = (\d+)")
_ORDER = re.compile(r"order = array<i32: ([\d, ]+)>")
_PREDICATE = re.compile(r"^arith\.cmpi (\w+)")
_TRUTHS = {"true": 1, "false": 0}


def computed(operation: Operation, operands: Sequence[Tile], types: Sequence[Type], result: Type) -> Tile | None:
    """Return the result of an operation on known integers; None where this module does not know it.

    Args:
        operation: it has one result.
        operands: their values.
        types: the operands' types.
        result: the result's type.
    """
    if not (result.is_integer or result.is_pointer):
        return None
    name = operation.name
    value = _made(operation, operands, types, result)
    if value is None:
        value = _laid_out(operation, operands, types, result)
    if value is None and name in _ARITHMETIC:
        value = _ARITHMETIC[name](*operands)
    if value is None and name in _UNSIGNED and len(operands) == 2:  # noqa: PLR2004 - two sides
        value = elementwise(_UNSIGNED[name], *(_unsigned(side, bits_of(types[0].element)) for side in operands))
    if value is None and name == "arith.cmpi":
        value = _compared(operation, operands, types[0])
    if value is None and name in {"tt.reduce", "tt.scan"}:
        value = _folded(operation, operands, types[0])
    if value is None:
        return None
    if result.element == "i1" and not value.truth:
        return elementwise(lambda array: (array & 1).astype(np.bool_), value)
    if result.element != "i1" and value.truth:
        value = elementwise(lambda array: array.astype(np.int64), value)
    return wrapped(value, 64 if result.is_pointer else bits_of(result.element))


def split_pair(operand: Tile) -> tuple[Tile, Tile]:
    """Return both halves of ``tt.split``."""
    return taken(operand, 0), taken(operand, 1)


def _made(operation: Operation, operands: Sequence[Tile], types: Sequence[Type], result: Type) -> Tile | None:
    """Return the result of what makes integers, or calls them something else."""
    match operation.name:
        case "arith.constant":
            return _constant(operation.text, result)
        case "tt.make_range":
            found = _RANGE.search(operation.text)
            return tile(np.arange(int(found[2]), int(found[1]))[None, :]) if found else None
        case "tt.addptr":
            return plus(operands[0], scaled(operands[1], bits_of(result.pointee) // 8))
        case "arith.extsi" if operands[0].truth:
            return elementwise(lambda array: -array.astype(np.int64), operands[0])
        case "arith.extui":
            return _unsigned(operands[0], bits_of(types[0].element))
        case name if name in _SAME:
            return operands[0]
    return None


def _laid_out(operation: Operation, operands: Sequence[Tile], types: Sequence[Type], result: Type) -> Tile | None:
    """Return the result of what gives a tensor another shape, or makes one of others."""
    axis, order = _AXIS.search(operation.text), _ORDER.search(operation.text)
    match operation.name:
        case "tt.splat":
            return splat(operands[0], len(result.shape))
        case "tt.unsplat":
            return splat(reshaped(operands[0], types[0].shape, ()), 0)
        case "tt.expand_dims" if axis:
            return with_axis(operands[0], int(axis[1]))
        case "tt.reshape" if "allow_reorder" not in operation.text:
            return reshaped(operands[0], types[0].shape, result.shape)
        case "tt.trans" if order:
            return transposed(operands[0], [int(place) for place in order[1].split(",")])
        case "tt.join":
            sides = np.broadcast_arrays(*(side.whole() for side in operands))
            return tile(np.stack(sides, axis=-1))
    return None


def _constant(text: str, result: Type) -> Tile | None:
    found = _DENSE.match(text)
    if found:
        value = _TRUTHS.get(found[1])
        number = int(found[1]) if value is None else value
        return constant(number, len(result.shape), truth=result.element == "i1")
    listed = _LISTED.match(text)
    if listed:
        numbers = [_TRUTHS[word] if word in _TRUTHS else int(word) for word in re.findall(r"-?\d+|true|false", text)]
        count = int(np.prod(result.shape))
        array = np.array(numbers[:count], np.int64).reshape(1, *result.shape)
        return tile(array.astype(np.bool_) if result.element == "i1" else array)
    return None


def _unsigned(value: Tile, bits: int) -> Tile:
    if value.truth or value.low >= 0 or bits >= 64:  # noqa: PLR2004 - numpy's widest
        return value
    return elementwise(lambda array: array & ((1 << bits) - 1), value)


def _quotient(one: Array, other: Array) -> Array:
    """Divide and round towards zero; what a program divides by zero is no integer of any use."""
    safe = np.where(other == 0, 1, other)
    floor = one // safe
    return np.asarray(floor + ((floor < 0) & (floor * safe != one)))


def _remainder(one: Array, other: Array) -> Array:
    return np.asarray(one - other * _quotient(one, other))


def _and(one: Tile, other: Tile) -> Tile:
    return both(one, other) if one.truth and other.truth else elementwise(np.bitwise_and, one, other)


def _selected(condition: Tile, one: Tile, other: Tile) -> Tile:
    if condition.rank < one.rank:
        condition = splat(condition, one.rank)
    return elementwise(_where, condition, one, other)


def _where(condition: Array, one: Array, other: Array) -> Array:
    return np.asarray(np.where(condition, one, other))


def _shifted(one: Array, other: Array) -> Array:
    return np.asarray(np.left_shift(one, np.clip(other, 0, 63)))


def _shifted_back(one: Array, other: Array) -> Array:
    return np.asarray(np.right_shift(one, np.clip(other, 0, 63)))


_ARITHMETIC: dict[str, Callable[..., Tile]] = {
    "arith.addi": lambda one, other: elementwise(np.not_equal, one, other) if one.truth else plus(one, other),
    "arith.subi": lambda one, other: elementwise(np.not_equal, one, other) if one.truth else plus(one, other, -1),
    "arith.muli": lambda one, other: both(one, other) if one.truth else times(one, other),
    "arith.divsi": lambda one, other: elementwise(_quotient, one, other),
    "arith.remsi": lambda one, other: elementwise(_remainder, one, other),
    "arith.floordivsi": lambda one, other: elementwise(lambda a, b: a // np.where(b == 0, 1, b), one, other),
    "arith.ceildivsi": lambda one, other: elementwise(lambda a, b: -(-a // np.where(b == 0, 1, b)), one, other),
    "arith.minsi": lambda one, other: elementwise(np.minimum, one, other),
    "arith.maxsi": lambda one, other: elementwise(np.maximum, one, other),
    "arith.andi": _and,
    "arith.ori": lambda one, other: elementwise(np.bitwise_or, one, other),
    "arith.xori": lambda one, other: elementwise(np.bitwise_xor, one, other),
    "arith.shli": lambda one, other: elementwise(_shifted, one, other),
    "arith.shrsi": lambda one, other: elementwise(_shifted_back, one, other),
    "arith.select": _selected,
    "math.absi": lambda one: elementwise(np.abs, one),
}

#: Of operands that are not negative.
_UNSIGNED: dict[str, Callable[..., Array]] = {
    "arith.divui": _quotient,
    "arith.remui": _remainder,
    "arith.ceildivui": lambda one, other: -(-one // np.where(other == 0, 1, other)),
    "arith.minui": np.minimum,
    "arith.maxui": np.maximum,
    "arith.shrui": _shifted_back,
}

_COMPARISONS: dict[str, Callable[..., Array]] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}


def _compared(operation: Operation, operands: Sequence[Tile], kind: Type) -> Tile | None:
    """Compare, and say it once for a program where all its elements agree, which they mostly do."""
    found = _PREDICATE.match(operation.text)
    if found is None:
        return None
    predicate = found[1]
    compare = _COMPARISONS[predicate if predicate in _COMPARISONS else predicate[1:]]
    one, other = operands
    if one.truth:
        return elementwise(lambda a, b: compare(a.astype(np.int64), b.astype(np.int64)), one, other)
    if predicate.startswith("u"):
        one, other = (_unsigned(side, bits_of(kind.element)) for side in (one, other))
        if bits_of(kind.element) == 64 and min(one.low, other.low) < 0:  # noqa: PLR2004 - numpy's widest
            return elementwise(lambda a, b: compare(a.astype(np.uint64), b.astype(np.uint64)), one, other)
    difference = plus(one, other, -1)
    least, most = difference.extremes()
    at_least, at_most = compare(least, 0), compare(most, 0)
    agree = at_least == at_most
    if predicate in {"eq", "ne"}:  # these may differ between two ends that agree
        agree &= (least > 0) | (most < 0) | (least == most)
    if agree.all():
        return tile(at_least.reshape(-1, *(1,) * difference.rank))
    return elementwise(lambda array: compare(array, 0), difference)


_FOLDS: dict[str, Callable[..., Array]] = {
    "arith.addi": np.add.reduce,
    "arith.maxsi": np.maximum.reduce,
    "arith.minsi": np.minimum.reduce,
    "arith.andi": np.bitwise_and.reduce,
    "arith.ori": np.bitwise_or.reduce,
    "arith.xori": np.bitwise_xor.reduce,
}
_SCANS: dict[str, Callable[..., Array]] = {
    "arith.addi": np.add.accumulate,
    "arith.maxsi": np.maximum.accumulate,
    "arith.minsi": np.minimum.accumulate,
}


def _folded(operation: Operation, operands: Sequence[Tile], kind: Type) -> Tile | None:
    """Reduce or scan one tensor by one operation."""
    steps = [step for region in operation.regions for step in operations_in(region)]
    axis = _AXIS.search(operation.text)
    table = _FOLDS if operation.name == "tt.reduce" else _SCANS
    if len(operands) != 1 or len(steps) != 2 or axis is None or "reverse = true" in operation.text:  # noqa: PLR2004
        return None
    combine = table.get(steps[0].name)
    if combine is None:
        return None
    return tile(np.asarray(combine(full(operands[0], kind.shape), axis=int(axis[1]) + 1)))

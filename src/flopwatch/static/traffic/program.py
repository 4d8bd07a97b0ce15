"""A TTIR program as records: functions of blocks of operations, and the type of every value."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_BITS = {"i1": 8, "index": 64, "bf16": 16, "tf32": 32}


@dataclass(frozen=True, kw_only=True, slots=True)
class Type:
    """A scalar's or tensor's type; a descriptor's shape is its block's."""

    shape: tuple[int, ...]
    element: str

    @property
    def is_pointer(self) -> bool:
        """Whether the elements are addresses."""
        return self.element.startswith("!tt.ptr<")

    @property
    def is_descriptor(self) -> bool:
        """Whether it is a tensor descriptor."""
        return self.element.startswith("!tt.tensordesc<")

    @property
    def pointee(self) -> str:
        """The type of what a pointer or a descriptor leads to."""
        inner = self.element.partition("<")[2].removesuffix(">")
        return inner.split(",")[0]

    @property
    def is_integer(self) -> bool:
        """Whether the elements are integers or truth values."""
        return bool(re.fullmatch(r"i\d+|index", self.element))


@dataclass(frozen=True, slots=True, eq=False)
class Operation:
    """One operation: `text` is what follows its results, without strings and locations; `where` is ``file.py:line``."""

    name: str
    results: tuple[int, ...]
    operands: tuple[int, ...]
    text: str
    regions: tuple[Region, ...]
    successors: tuple[tuple[str, tuple[int, ...]], ...]
    where: str


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """A list of operations, the last of which says where it goes on."""

    label: str
    arguments: tuple[int, ...]
    operations: list[Operation] = field(default_factory=list)


@dataclass(frozen=True, slots=True, eq=False)
class Region:
    """Blocks in the order of the text, which begins with the entry."""

    blocks: list[Block] = field(default_factory=list)


@dataclass(frozen=True, slots=True, eq=False)
class Function:
    """A function: its parameters, and its body."""

    name: str
    parameters: tuple[int, ...]
    body: Region


@dataclass(frozen=True, slots=True, eq=False)
class Module:
    """All functions by name, the one that is launched, and the type of every value."""

    functions: dict[str, Function]
    entry: Function
    types: dict[int, Type]

    def operations(self) -> Iterator[Operation]:
        """Yield every operation of every function, outer ones first."""
        for function in self.functions.values():
            yield from operations_in(function.body)


def operations_in(region: Region) -> Iterator[Operation]:
    """Yield the operations of a region and of those inside of it."""
    for block in region.blocks:
        for operation in block.operations:
            yield operation
            for inner in operation.regions:
                yield from operations_in(inner)


def bits_of(element: str) -> int:
    """Return how many bits of memory an element takes.

    >>> [bits_of(element) for element in ("f16", "f8E4M3FN", "i1", "i32", "!tt.ptr<f16>")]
    [16, 8, 8, 32, 64]
    """
    if element.startswith("!tt.ptr<"):
        return 64
    digits = re.match(r"[a-z]+(\d+)", element)
    return _BITS.get(element) or (int(digits[1]) if digits else 32)

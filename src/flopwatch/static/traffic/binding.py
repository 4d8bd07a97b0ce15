"""What the parameters of a kernel's TTIR are at one launch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from flopwatch.static.recorder import DescriptorArgument, TensorArgument
from flopwatch.static.traffic.tiles import Tile, Unknown, constant
from flopwatch.static.traffic.ttir import TtirError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from flopwatch.static.recorder import Launch
    from flopwatch.static.traffic.program import Module, Type

#: Allocations are put so far apart that no stray address reaches another one: 16 TiB.
APART_BYTES = 1 << 44
#: What numpy's widest integers do not hold; no address is as large.
_TOO_LARGE = 1 << 63


@dataclass(frozen=True, kw_only=True, slots=True)
class Allocation:
    """Memory that a launch was given: the argument that leads there, where it is put, and its size."""

    name: str
    start: int
    size_bytes: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Descriptor:
    """A tensor descriptor: an address, and a size and a stride (in elements) for each axis."""

    base: Tile | Unknown
    shape: tuple[Tile | Unknown, ...]
    strides: tuple[Tile | Unknown, ...]


Value: TypeAlias = "Tile | Unknown | Descriptor"


class Binding:
    """The values of parameters, and the memory that they lead to.

    Allocations are numbered in the order of the arguments and begin at multiples of 512 bytes, as CUDA's own do, so
    that what is counted does not depend on where a tensor happened to lie.

    Raises:
        TtirError: the parameters are not those of the launch.
    """

    def __init__(self, module: Module, signature: Mapping[str, object], launch: Launch) -> None:
        self.allocations: list[Allocation] = []
        self._starts: dict[int, int] = {}
        self.values: dict[int, Value] = {}
        self._waiting = list(module.entry.parameters)
        self._types = module.types
        given = dict(launch.values)
        for name, kind in signature.items():
            self._bind(name, kind, given.get(name))
        if self._waiting:
            raise TtirError(f"{len(self._waiting)} parameters of {module.entry.name} are not understood")

    def _bind(self, name: str, kind: object, value: object) -> None:
        if isinstance(kind, tuple):
            parts: Sequence[Any] = value if isinstance(value, tuple) else (None,) * len(kind)
            for place, (inner, part) in enumerate(zip(kind, parts, strict=True)):
                self._bind(f"{name}[{place}]", inner, part)
        elif kind == "constexpr":
            return
        elif str(kind).startswith("tensordesc"):
            self._bind_descriptor(name, value)
        else:
            self._next(self._single(name, value))

    def _single(self, name: str, value: object) -> Tile | Unknown:
        match value:
            case bool():
                return constant(int(value), 0, truth=self._type().element == "i1")
            case int() if -_TOO_LARGE <= value < _TOO_LARGE:
                return constant(value, 0)
            case TensorArgument():
                return constant(self._address(name, value), 0)
        return Unknown(cause=f"argument {name} is no integer and no tensor", data=False)

    def _bind_descriptor(self, name: str, value: object) -> None:
        """Bind a descriptor; where the device has none of its own, Triton makes a pointer and numbers of it."""
        if not isinstance(value, DescriptorArgument):
            raise TtirError(f"argument {name} is a descriptor that was not recorded")
        base = constant(self._address(name, value.tensor), 0)
        numbers = [constant(number, 0) for number in (*value.shape, *value.strides)]
        rank = len(value.shape)
        if self._type().is_descriptor:
            self._next(Descriptor(base=base, shape=tuple(numbers[:rank]), strides=tuple(numbers[rank:])))
        else:
            self._next(base)
            for number in numbers:
                self._next(number)
            while self._type().element == "i1":
                self._next(Unknown(cause=f"how descriptor {name} fills in", data=False))
        for number in numbers:
            self._next(number)

    def _type(self) -> Type:
        if not self._waiting:
            raise TtirError("the launch has more arguments than the kernel")
        return self._types[self._waiting[0]]

    def _next(self, value: Value) -> None:
        self._type()
        self.values[self._waiting.pop(0)] = value

    def _address(self, name: str, tensor: TensorArgument) -> int:
        start = self._starts.get(tensor.allocation_address)
        if start is None:
            start = (len(self.allocations) + 1) * APART_BYTES
            self._starts[tensor.allocation_address] = start
            self.allocations.append(Allocation(name=name, start=start, size_bytes=tensor.allocation_bytes))
        return start + tensor.address - tensor.allocation_address

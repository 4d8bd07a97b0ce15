"""Memory that interpreted kernels are given: which bytes are whose, which were written, and by which program.

Every tensor argument gets addresses of its own, terabytes from those of any other, so that an address tells which
argument a kernel has made it of, however far it strays. Real addresses take their place when memory is accessed.
"""

from __future__ import annotations

import ctypes
import functools
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import torch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Bits: TypeAlias = NDArray[np.bool_]
    Places: TypeAlias = NDArray[np.int64]

#: An argument has 2^44 bytes to itself; its tensor begins in the middle, so that it can be left on either side.
WINDOW_BITS = 44
#: Windows begin above every real address of a process, which has 47 bits on x86-64 and 48 on 64-bit Arm.
FIRST_WINDOW = 1 << (48 - WINDOW_BITS)
#: The host's writes are known by what changes of random bytes, in units of so many or, at the end, up to twice as many:
#: a byte alone would be written with what was there once in 126 times, a unit once in 2^55 times. A kernel's own writes
#: are known byte by byte.
_UNIT_BYTES = 8
#: The random bytes are between these: where there are less than a unit, such as a flag, small numbers differ from them.
_SCRAMBLED = (0x81, 0xFF)
_MANY = -1


class Buffer:
    """One allocation.

    Attributes:
        start: the address of its first byte.
        size: of all bytes.
        contents: the bytes themselves.
        unwritten: which of them nobody has written; None where all were, as of a tensor that was computed.
        writers: for each byte that an element begins at, the program that wrote it in this launch, counted from 1.
        readers: likewise who read it; `_MANY` for several.
    """

    def __init__(self, storage: torch.UntypedStorage) -> None:
        self._storage = storage  # alive, so that no other comes to its address
        self.start, self.size = storage.data_ptr(), storage.nbytes()
        array = (ctypes.c_uint8 * self.size).from_address(self.start) if self.size else (ctypes.c_uint8 * 0)()
        self.contents: NDArray[np.uint8] = np.ctypeslib.as_array(array)
        self.unwritten: Bits | None = None
        self._pattern: NDArray[np.uint8] | None = None
        self.writers: NDArray[np.int32] | None = None
        self.readers: NDArray[np.int32] | None = None

    def scramble(self, generator: np.random.Generator) -> None:
        """Fill it with random bytes, and take them for unwritten until they change."""
        self._pattern = generator.integers(*_SCRAMBLED, self.size, dtype=np.uint8)
        self.contents[:] = self._pattern
        self.unwritten = np.ones(self.size, dtype=np.bool_)

    def begin_launch(self) -> None:
        """Take note of what the host has written, and forget who did what in the launch before."""
        self.writers = self.readers = None
        if self.unwritten is None or self._pattern is None:
            return
        changed = self.unwritten & (self.contents != self._pattern)
        starts = np.arange(max(self.size // _UNIT_BYTES, 1)) * _UNIT_BYTES
        units = np.logical_or.reduceat(changed, starts)
        self.unwritten[np.repeat(units, np.diff(starts, append=self.size))] = False
        if not self.unwritten.any():
            self.unwritten = None

    def is_unwritten(self, places: Places, width: int) -> Bits | None:
        """Return which elements have a byte that nobody has written; None where that is none at all."""
        if self.unwritten is None:
            return None
        bits = np.logical_or.reduce(self.unwritten[_bytes(places, width)], axis=1)
        return bits if bits.any() else None

    def write(self, places: Places, width: int) -> None:
        """Take elements for written."""
        if self.unwritten is not None:
            self.unwritten[_bytes(places, width)] = False

    def read_by(self, places: Places, program: int) -> Bits:
        """Note who reads; return which elements another program has written in this launch."""
        if self.readers is None:
            self.readers = np.zeros(self.size, dtype=np.int32)
        before = self.readers[places]
        self.readers[places] = np.where((before == 0) | (before == program), program, _MANY)
        if self.writers is None:
            return np.zeros(places.shape, dtype=np.bool_)
        writers = self.writers[places]
        others: Bits = (writers != 0) & (writers != program)
        return others

    def write_by(self, places: Places, values: NDArray[np.uint8], program: int) -> Bits:
        """Note who writes; return which elements another program reads or has written, with another value, or a lane.

        Args:
            places: of each element, from the first byte.
            values: (elements, bytes of each).
            program: counted from 1.
        """
        if self.writers is None:
            self.writers = np.zeros(self.size, dtype=np.int32)
        differs = (self.contents[_bytes(places, values.shape[1])] != values).any(axis=1)
        clash = np.zeros(places.shape, dtype=np.bool_)
        for others in (self.writers, self.readers):
            if others is not None:
                before = others[places]
                clash |= (before != 0) & (before != program) & differs
        self.writers[places] = program
        order = np.argsort(places, kind="stable")
        twice = places[order][1:] == places[order][:-1]
        if twice.any():
            clash[order[1:]] |= twice & (values[order][1:] != values[order][:-1]).any(axis=1)
        return clash


def _bytes(places: Places, width: int) -> NDArray[np.int64]:
    return places[:, None] + np.arange(width)


class Window:
    """The addresses of one tensor argument of one launch.

    Attributes:
        name: of the argument.
        tensor: what it is given.
        buffer: the allocation that it is a view of.
        base: where the kernel believes it to begin.
        offset: of its first element in the allocation, in bytes.
    """

    def __init__(self, number: int, name: str, tensor: torch.Tensor, buffer: Buffer) -> None:
        self.name, self.tensor, self.buffer = name, tensor, buffer
        address = tensor.data_ptr() if tensor.numel() else buffer.start
        self.offset = address - buffer.start
        low = address & ((1 << 20) - 1)  # kernels and descriptors ask for the alignment
        self.base = ((FIRST_WINDOW + number) << WINDOW_BITS) + (1 << (WINDOW_BITS - 1)) + low

    def strays(self, places: Places, width: int) -> Bits:
        """Return which accesses, in bytes from the first element, leave the allocation."""
        begins = places + self.offset
        return (begins < 0) | (begins + width > self.buffer.size)

    def misses(self, places: Places, width: int) -> Bits | None:
        """Return which accesses inside the allocation are to no element of the tensor; None where none can be."""
        if width != self.tensor.element_size():
            return None  # it is cast to another type
        inside = _Elements.of(self.tensor)
        missed = ~inside.have(places)
        return missed if missed.any() else None

    def describe(self, place: int, width: int) -> str:
        """Say where an access is.

        >>> tensor = torch.zeros(10)
        >>> Window(0, "x", tensor, Buffer(tensor.untyped_storage())).describe(40, 4)
        'the first byte after x, float32[10]'
        """
        shape = ",".join(map(str, self.tensor.shape))
        name = f"{self.name}, {str(self.tensor.dtype).removeprefix('torch.')}[{shape}]"
        end = _Elements.of(self.tensor).end
        if place < 0:
            return f"{-place:,} bytes before {name}"
        if place + width <= end:
            return f"{place:,} bytes into {name}, between its elements"
        past = place - end
        return f"the first byte after {name}" if past == 0 else f"{past:,} bytes after {name}"


class _Elements:
    """Where the elements of a tensor are, in bytes from the first.

    Args:
        dims: (bytes from one to the next, length), without those of length 1 and those that are expanded.
        width: of an element.
    """

    def __init__(self, dims: Sequence[tuple[int, int]], width: int) -> None:
        self._dims = sorted(dims, reverse=True)
        self._width = width
        self.end = sum(step * (length - 1) for step, length in dims) + width
        reach = width
        self._nested = True
        for step, length in sorted(dims):
            self._nested &= step >= reach
            reach += step * (length - 1)
        self._dense = reach == self._width * int(np.prod([length for _, length in dims], dtype=np.int64))

    @classmethod
    def of(cls, tensor: torch.Tensor) -> _Elements:
        """Return those of a tensor."""
        return _elements(tuple(tensor.shape), tuple(tensor.stride()), tensor.element_size())

    def have(self, places: Places) -> Bits:
        """Return at which places one begins; where they overlap, anything between the first and the last counts."""
        found: Bits = (places >= 0) & (places + self._width <= self.end)
        if self._nested and not self._dense:
            rest = np.where(found, places, 0)
            for step, length in self._dims:
                index = np.minimum(rest // step, length - 1)
                rest = rest - index * step
            found &= rest == 0
        return found


@functools.lru_cache(maxsize=256)
def _elements(shape: tuple[int, ...], strides: tuple[int, ...], width: int) -> _Elements:
    if 0 in shape:
        return _Elements([], 0)
    dims = [(step * width, length) for length, step in zip(shape, strides, strict=True) if length > 1 and step]
    return _Elements(dims, width)


class Buffers:
    """Every allocation that the case has made or given to a kernel."""

    def __init__(self) -> None:
        self._known: dict[int, Buffer] = {}
        self._generator = np.random.default_rng(0)

    def of(self, tensor: torch.Tensor) -> Buffer:
        """Return the allocation of a tensor."""
        storage = tensor.untyped_storage()
        known = self._known.get(storage.data_ptr())
        if known is None or known.size != storage.nbytes():
            known = self._known[storage.data_ptr()] = Buffer(storage)
        return known

    def allocated(self, tensor: torch.Tensor) -> None:
        """Take a new tensor for unwritten, if it has memory here: one of torch's "meta" device has none."""
        if tensor.layout is not torch.strided or tensor.untyped_storage().device.type != "cpu":
            return
        buffer = self.of(tensor)
        if buffer.size:
            buffer.scramble(self._generator)

    def never_written(self, tensor: torch.Tensor) -> int:
        """Count the elements of a result that nobody has written."""
        if not tensor.numel() or tensor.layout is not torch.strided:
            return 0
        buffer = self._known.get(tensor.untyped_storage().data_ptr())
        if buffer is None:
            return 0
        buffer.begin_launch()
        if buffer.unwritten is None:
            return 0
        width = tensor.element_size()
        steps = [step * width for step in tensor.stride()]
        first = buffer.unwritten[tensor.storage_offset() * width :]
        elements = np.lib.stride_tricks.as_strided(first, (*tensor.shape, width), (*steps, 1), writeable=False)
        return int(elements.any(axis=-1).sum())


def bytes_of(values: NDArray[Any]) -> NDArray[np.uint8]:
    """Return the bytes of each value, a row each.

    >>> bytes_of(np.array([1, 256], dtype=np.int16)).tolist()
    [[1, 0], [0, 1]]
    """
    flat = np.ascontiguousarray(values).reshape(-1)
    return flat.view(np.uint8).reshape(flat.size, flat.dtype.itemsize)

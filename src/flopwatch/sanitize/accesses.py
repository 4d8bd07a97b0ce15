"""What interpreted kernels do to memory, access by access, and what of it is a fault."""

from __future__ import annotations

import contextlib
import os
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import triton
from numpy.typing import NDArray
from triton.runtime import interpreter
from triton.tools.tensor_descriptor import TensorDescriptor

from flopwatch.sanitize.buffers import FIRST_WINDOW, WINDOW_BITS, Buffers, Window, bytes_of
from flopwatch.sanitize.findings import Access, Finding, Kind, merged
from flopwatch.static import __file__ as static_file

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flopwatch.sanitize.buffers import Bits, Places

#: Frames of these are the interpreter's, not the kernel's.
_MACHINERY = tuple(
    f"{Path(file).parent}{os.sep}" for file in (triton.__file__, np.__file__, torch.__file__, static_file, __file__)
)
ORDERED_BY_ATOMICS = "{kernel} uses atomics, which may order its programs: races were not looked for"
MADE_OF_INTEGERS = "{kernel} makes pointers of integers: what it accesses through those was not checked"


class Guard:
    """What is known of memory, and what was found, while kernels run; see `guarded`."""

    def __init__(self) -> None:
        self.buffers = Buffers()
        self.kernels: list[str] = []
        self.notes: list[str] = []
        self._found: list[Finding] = []
        self._races: list[Finding] = []
        self._launch = _Launch("")
        self._inside = False

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Each fault once, in the order in which they came up."""
        return merged(self._found)

    def result(self, value: object) -> None:
        """Look for elements of a result that nobody has written."""
        for tensor in _tensors(value):
            count = self.buffers.never_written(tensor)
            if count:
                shape = ",".join(map(str, tensor.shape))
                self._found.append(
                    Finding(
                        kind=Kind.NEVER_WRITTEN,
                        what=f"of the result [{shape}] {count:,} of {tensor.numel():,} elements were never written",
                        kernel=self.kernels[-1] if self.kernels else "",
                        element_bytes=tensor.element_size(),
                        count=count,
                    )
                )

    def begin(self, kernel: str, arguments: dict[str, object]) -> None:
        """A kernel is launched."""
        self._launch = _Launch(kernel)
        if kernel not in self.kernels:
            self.kernels.append(kernel)
        for name, value in arguments.items():
            for part, tensor in _named(name, value):
                window = Window(len(self._launch.windows), part, tensor, self.buffers.of(tensor))
                self._launch.windows.append(window)
                self._launch.of_argument[id(tensor)] = window

    def end(self) -> None:
        """The launch is over, however it ended."""
        launch = self._launch
        if self._races and launch.atomics:
            self._note(ORDERED_BY_ATOMICS)
        else:
            self._found += self._races
        if launch.unchecked:
            self._note(MADE_OF_INTEGERS)
        self._races = []

    @contextlib.contextmanager
    def alone(self) -> Iterator[bool]:
        """Tell whether this access is the kernel's own, and not one that another of its operations is made of."""
        first, self._inside = not self._inside, True
        try:
            yield first
        finally:
            self._inside = not first

    def window_of(self, argument: object) -> Window | None:
        """Return the addresses that an argument of the launch has."""
        return self._launch.of_argument.get(id(interpreter._unwrap_tensor(argument)))  # noqa: SLF001 - there is no public name

    def made_of_integer(self) -> None:
        """The kernel has made a pointer of an integer."""
        self._launch.unchecked = True

    def access(self, attempt: Attempt, mask: object) -> tuple[NDArray[np.uint64], Bits]:
        """Check an access.

        Args:
            attempt: what the kernel is about to do.
            mask: of the shape of its pointers, or one that broadcasts to it.

        Returns:
            The real addresses, and which of them may be accessed.
        """
        pointers = attempt.pointers
        active = np.broadcast_to(np.asarray(mask, dtype=np.bool_), pointers.shape)
        real, allowed = pointers.copy(), active.copy()
        self._launch.atomics |= attempt.access is Access.ATOMIC
        numbers = (pointers >> np.uint64(WINDOW_BITS)).astype(np.int64) - FIRST_WINDOW
        seen = np.unique(numbers)
        for number in seen.tolist():
            here = np.broadcast_to(np.True_, pointers.shape) if seen.size == 1 else numbers == number
            lanes = active & here
            if 0 <= number < len(self._launch.windows):
                window = self._launch.windows[number]
                real[here] -= np.uint64(window.base - window.offset - window.buffer.start)
                self._check(window, lanes, allowed, attempt)
            elif lanes.any() and not self._launch.unchecked:
                allowed &= ~lanes
                self._tell(Kind.OUT_OF_BOUNDS, attempt, "at an address that belongs to no argument", lanes)
        return real, allowed

    def _check(self, window: Window, lanes: Bits, allowed: Bits, attempt: Attempt) -> None:
        """Check the active lanes of one argument; take those that leave its allocation out of `allowed`."""
        access, width = attempt.access, attempt.width
        places = attempt.pointers[lanes].astype(np.int64) - window.base
        strays = window.strays(places, width)
        if strays.any():
            allowed[lanes] &= ~strays
            self._tell_place(Kind.OUT_OF_BOUNDS, attempt, window, places[strays])
        missed = window.misses(places, width)
        if missed is not None and (missed := missed & ~strays).any():
            self._tell_place(Kind.OUTSIDE_VIEW, attempt, window, places[missed])
        inside = places[~strays]
        if not inside.size:
            return
        buffer, program, at = window.buffer, self._launch.program, inside + window.offset
        if access is not Access.WRITE and (unwritten := buffer.is_unwritten(at, width)) is not None:
            self._tell_place(Kind.UNINITIALISED, attempt, window, inside[unwritten])
        clash = None
        if access is Access.READ:
            clash = buffer.read_by(at, program)
        elif attempt.values is not None:
            values = np.broadcast_to(attempt.values, lanes.shape)[lanes][~strays]
            clash = buffer.write_by(at, bytes_of(values), program)
        if access is not Access.READ:
            buffer.write(at, width)
        if clash is not None and clash.any():
            self._tell_place(Kind.RACE, attempt, window, inside[clash])

    def _tell_place(self, kind: Kind, attempt: Attempt, window: Window, places: Places) -> None:
        """Keep a fault at these places of an argument."""
        place = int(places[0])
        match kind:
            case Kind.UNINITIALISED:
                words = f"{place:,} bytes into {window.name}, where nobody has written"
            case Kind.RACE:
                read = attempt.access is Access.READ
                does = "has written" if read else "has read, or written another value,"
                words = f"{place:,} bytes into {window.name}, where another program or lane {does} in this launch"
            case _:
                words = window.describe(place, attempt.width)
        finding = self._finding(kind, attempt, words, places.size)
        finding = replace(finding, argument=window.name, address=str(place))
        (self._races if kind is Kind.RACE else self._found).append(finding)

    def _tell(self, kind: Kind, attempt: Attempt, words: str, lanes: Bits) -> None:
        """Keep a fault that is of no argument."""
        self._found.append(self._finding(kind, attempt, words, int(lanes.sum())))

    def _finding(self, kind: Kind, attempt: Attempt, words: str, count: int) -> Finding:
        file, line = _source()
        verb = {Access.READ: "reads", Access.WRITE: "writes", Access.ATOMIC: "updates"}[attempt.access]
        x, y, z = interpreter.interpreter_builder.grid_idx
        return Finding(
            kind=kind,
            what=f"program ({x}, {y}, {z}) {verb} {attempt.width} bytes, {words}",
            kernel=self._launch.kernel,
            file=file,
            line=line,
            access=attempt.access,
            element_bytes=attempt.width,
            block=(x, y, z),
            count=count,
        )

    def _note(self, text: str) -> None:
        note = text.format(kernel=self._launch.kernel)
        if note not in self.notes:
            self.notes.append(note)


@dataclass(frozen=True, kw_only=True, slots=True)
class Attempt:
    """What a kernel is about to do.

    Attributes:
        access: read, write or atomic.
        pointers: as the kernel has made them, any shape.
        width: of an element, in bytes.
        values: what is written; None for another access.
    """

    access: Access
    pointers: NDArray[np.uint64]
    width: int
    values: NDArray[Any] | None = None

    @classmethod
    def of(cls, access: Access, pointers: Any, values: NDArray[Any] | None = None) -> Attempt:  # noqa: ANN401 - untyped triton
        """Describe an access through pointers of the interpreter's."""
        dtype = interpreter._get_np_dtype(pointers.get_element_ty())  # noqa: SLF001 - there is no public name
        return cls(access=access, pointers=pointers.data, width=int(dtype.itemsize), values=values)


class _Launch:
    """The launch that runs now."""

    def __init__(self, kernel: str) -> None:
        self.kernel = kernel
        self.windows: list[Window] = []
        self.of_argument: dict[int, Window] = {}
        self.atomics = False
        self.unchecked = False

    @property
    def program(self) -> int:
        """The number of the program that runs now, from 1."""
        builder = interpreter.interpreter_builder
        (x, y, z), (_, height, depth) = builder.grid_idx, builder.grid_dim
        return int((x * height + y) * depth + z + 1)


def _named(name: str, value: object) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the tensors of an argument, and what to call each."""
    unwrapped = interpreter._unwrap_tensor(value)  # noqa: SLF001 - there is no public name
    if isinstance(unwrapped, torch.Tensor):
        yield name, unwrapped
    elif isinstance(value, TensorDescriptor):
        yield from _named(name, value.base)
    elif isinstance(value, tuple):
        for index, part in enumerate(value):
            yield from _named(f"{name}[{index}]", part)


def _tensors(value: object) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _tensors(part)


def _source() -> tuple[str, int]:
    """Return the file and line of the kernel, or of the function that it calls, which runs now."""
    frame = sys._getframe(1)  # noqa: SLF001 - there is no other way without a traceback
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_MACHINERY):
        frame = frame.f_back
    return frame.f_code.co_filename, frame.f_lineno

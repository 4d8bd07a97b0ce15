"""What Triton's launcher hands to its function of C, so that the same can be handed to it again.

The order of that function's arguments is another with each Triton, and a descriptor becomes several of them. None of it
is written down here: Triton's own launcher runs once with a function in the place of that of C, which notes what it is
handed. What is found is used only if it is what was expected of the arguments; otherwise Triton launches as ever.

Read in the launchers of triton 3.6.0, 3.7.1 and 3.9.0 (2026-11-22): the function of C has the grid, the stream and the
kernel first in all of them; its last arguments are those of the kernel, one by one (3.6) or as a sequence (3.7 on).
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from dataclasses import dataclass
from types import CellType, FunctionType
from typing import TYPE_CHECKING, Any

from flopwatch.kernels.tensor_maps import Geometry, geometry_of, tensor_map

if TYPE_CHECKING:
    from collections.abc import Sequence


#: What is handed over whole, of all kernels together: that of each layer of a large model, some times over.
CAPACITY = 8192


@dataclass(frozen=True, kw_only=True, slots=True)
class Handover:
    """How to launch a kernel again: ``launch(*given(stream, *pointers))``.

    Attributes:
        launch: the launcher's function of C.
        given: returns all that it is handed, for a stream and the kernel's pointers.
    """

    launch: Callable[..., None]
    given: Callable[..., tuple[Any, ...]]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class _Arguments:
    """What the function of C is handed, but for the stream and for addresses.

    Attributes:
        before: its arguments before the stream.
        after: those after it, but for those of the kernel.
        of_kernel: those.
        is_sequence: whether these are one argument, the last.
        places: of the kernel's pointers among its arguments.
        geometries: of those that are tensor maps; None for addresses.
    """

    before: tuple[Any, ...]
    after: tuple[Any, ...]
    of_kernel: tuple[Any, ...]
    is_sequence: bool
    places: tuple[int, ...]
    geometries: tuple[Geometry | None, ...]

    def with_addresses(self, stream: int, *pointers: int) -> tuple[Any, ...]:
        """Return them all, where no pointer is a map: the addresses come first."""
        numbers = self.of_kernel[len(pointers) :]
        if self.is_sequence:
            return (*self.before, stream, *self.after, [*pointers, *numbers])
        return (*self.before, stream, *self.after, *pointers, *numbers)


@functools.lru_cache(maxsize=CAPACITY)
def _with_maps(arguments: _Arguments, stream: int, *pointers: int) -> tuple[Any, ...]:
    """Return all arguments: numbers and maps, which keep no memory alive."""
    of_kernel = list(arguments.of_kernel)
    for place, geometry, pointer in zip(arguments.places, arguments.geometries, pointers, strict=True):
        of_kernel[place] = pointer if geometry is None else tensor_map(geometry, pointer)
    if arguments.is_sequence:
        return (*arguments.before, stream, *arguments.after, of_kernel)
    return (*arguments.before, stream, *arguments.after, *of_kernel)


def handover_of(
    compiled: Any, grid: tuple[int, int, int], pointers: Sequence[Any], numbers: Sequence[Any]
) -> Handover | None:
    """Return what a launch hands over; None where that is more than these arguments, or not known.

    Args:
        compiled: the kernel.
        grid: its programs.
        pointers: its first arguments: descriptors of tensors, and None for the addresses of others.
        numbers: the others, as the launcher is given them.
    """
    noted: list[tuple[Any, ...]] = []
    stand_ins: list[Any] = [_ADDRESS + place if pointer is None else pointer for place, pointer in enumerate(pointers)]
    places: list[int] = []
    expected: list[Any] = []
    try:
        launch, watched = _watched(compiled.run, noted)
        geometries = _geometries(compiled, pointers)
        if launch is None or geometries is None or _needs_memory(compiled.run):
            return None
        watched(*grid, _STREAM, compiled.function, compiled.packed_metadata, None, None, None, *stand_ins, *numbers)
        (given,) = noted
        for pointer, geometry in zip(stand_ins, geometries, strict=True):
            places.append(len(expected))
            expected += [pointer] if geometry is None else geometry.given(pointer.base.data_ptr())
    except (AttributeError, LookupError, TypeError, ValueError):  # of a launcher of another make
        return None
    expected += numbers
    is_sequence = isinstance(given[-1], list | tuple)
    arguments = tuple(given[-1]) if is_sequence else given[len(given) - len(expected) :]
    first = given[: -1 if is_sequence else len(given) - len(expected)]
    streams = [place for place, value in enumerate(first) if value == _STREAM]
    maps = {place for place, geometry in zip(places, geometries, strict=True) if geometry is not None}
    if len(streams) != 1 or not _are_alike(arguments, expected, maps):
        return None
    found = _Arguments(
        before=first[: streams[0]],
        after=first[streams[0] + 1 :],
        of_kernel=tuple(None if place in places else value for place, value in enumerate(arguments)),
        is_sequence=is_sequence,
        places=tuple(places),
        geometries=geometries,
    )
    return Handover(launch=launch, given=functools.partial(_with_maps, found) if maps else found.with_addresses)


#: In the places of the stream and of the first address: numbers like no other, which a launcher may look at.
_STREAM, _ADDRESS = 2**50, 2**51


def _watched(run: Any, noted: list[tuple[Any, ...]]) -> tuple[Any, Any]:
    """Return the function of C, and a launcher like `run` that notes its arguments instead of calling it; or None."""

    def note(*arguments: Any) -> None:
        noted.append(arguments)

    launch = getattr(run, "launch", None)
    replaced = note
    if isinstance(launch, FunctionType):  # stands before that of C, and makes maps of descriptors
        names = launch.__code__.co_freevars
        if "launcher" not in names:
            return None, None
        cells = launch.__closure__ or ()
        launch, replaced = (
            cells[names.index("launcher")].cell_contents,
            FunctionType(
                launch.__code__,
                launch.__globals__,
                launch.__name__,
                launch.__defaults__,
                tuple(CellType(note) if name == "launcher" else cell for name, cell in zip(names, cells, strict=True)),
            ),
        )
    watched = copy.copy(run)
    if launch is not None:
        watched.launch = replaced
    return launch, watched


def _needs_memory(run: Any) -> bool:
    """Tell whether each launch is given memory of its own, or is counted: kernels that make descriptors, sanitizers."""
    sizes = [getattr(run, name, None) for name in ("global_scratch_size", "profile_scratch_size")]
    return sizes != [0, 0] or getattr(run, "gsan_enabled", False)


def _geometries(compiled: Any, pointers: Sequence[Any]) -> tuple[Geometry | None, ...] | None:
    """Return the geometries of those that are descriptors; None where Triton does not make maps of them."""
    descriptors = [pointer for pointer in pointers if pointer is not None]
    if not descriptors:
        return (None,) * len(pointers)
    make = type(compiled.run).__call__.__globals__.get("make_tensordesc_arg")
    metadata = getattr(compiled.metadata, "tensordesc_meta", None) or ()
    if make is None or not hasattr(make, "__code__") or len(metadata) != len(descriptors):
        return None
    rest = iter(metadata)
    return tuple(None if pointer is None else geometry_of(pointer, next(rest), make) for pointer in pointers)


def _are_alike(found: Sequence[Any], expected: Sequence[Any], maps: set[int]) -> bool:
    """Tell whether these are the same; of maps, which cannot be compared, whether they are where they should be."""
    return len(found) == len(expected) and all(
        one is other or (type(one) is type(other) and (place in maps or one == other))
        for place, (one, other) in enumerate(zip(found, expected, strict=True))
    )

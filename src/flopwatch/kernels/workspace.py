"""Where programs that share a tile leave their parts, and the flags by which they find each other.

Flags are zero but between the writing of a part and its reading: whoever reads resets them. So a launch finds what the
one before it found, as long as launches that may overlap have different flags: each stream has its own, and so has
each capture into a CUDA graph, which may be replayed beside others on any stream.
"""

from __future__ import annotations

import ctypes
import functools
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from flopwatch.kernels.launch import Arrange
    from flopwatch.kernels.stream_k import Schedule


@dataclass(frozen=True, kw_only=True, slots=True)
class Workspace:
    """Where programs leave their parts.

    Attributes:
        parts: float32, one tile a program.
        flags: int32, zero but between the writing of a part and its reading.
        addresses: of both.
        room: elements of both.
    """

    parts: torch.Tensor
    flags: torch.Tensor
    addresses: tuple[int, int] = field(init=False)
    room: tuple[int, int] = field(init=False)

    def __post_init__(self) -> None:
        """Keep what each launch asks for, and torch takes half a microsecond to tell."""
        object.__setattr__(self, "addresses", (self.parts.data_ptr(), self.flags.data_ptr()))
        object.__setattr__(self, "room", (self.parts.numel(), self.flags.numel()))

    @classmethod
    def of(
        cls,
        schedule: Schedule,
        tile_elements: int,
        groups: int = 1,
        *,
        device: torch.device,
        flags: torch.Tensor | None = None,
        beside: Workspace | None = None,
    ) -> Workspace:
        """Make one for launches that follow one another.

        Args:
            schedule: of the product.
            tile_elements: rows times columns of a tile.
            groups: parts that a program's tile is written and waited for in.
            device: of the operands.
            flags: zeros, enough of them; new ones if None.
            beside: for as much as this has, too.
        """
        elements, number = (0, 0) if beside is None else beside.room
        parts = torch.empty(max(elements, schedule.programs * tile_elements), device=device, dtype=torch.float32)
        if flags is None:
            flags = torch.zeros(max(number, schedule.programs * groups), device=device, dtype=torch.int32)
        return cls(parts=parts, flags=flags)

    def is_enough(self, schedule: Schedule, tile_elements: int, groups: int = 1) -> bool:
        """Tell whether a launch that needs as much as `of` would make fits in here."""
        elements, flags = self.room
        return elements >= schedule.programs * tile_elements and flags >= schedule.programs * groups


#: Streams whose workspace is kept, of up to 34 MB (132 parts of 256x256 elements).
_MOST_WORKSPACES = 16
_workspaces: dict[tuple[int | None, int], Workspace] = {}


def workspace_for(
    schedule: Schedule,
    tile_elements: int,
    groups: int = 1,
    *,
    device: torch.device,
    given: Workspace | None = None,
    stream: int | None = None,
) -> Workspace:
    """Return the workspace that was given, if any, or that of the current stream, on which launches follow one another.

    Who knows the current stream names it, which spares asking torch for it.

    What is captured into a CUDA graph gets parts in the graph's memory, and flags of the capture.

    Raises:
        ValueError: that which was given is too small.
    """
    if given is not None:
        if not given.is_enough(schedule, tile_elements, groups):
            raise ValueError(
                f"the workspace is too small: {given.parts.numel()} elements and {given.flags.numel()} flags\n"
                f"  why: {schedule.programs} programs leave {tile_elements} elements and {groups} flags each\n"
                "  do:  make one by Workspace.of, or give none"
            )
        return given
    if stream is None:
        stream = torch.cuda.current_stream(device).cuda_stream
    if stream and torch.cuda.is_current_stream_capturing():  # which the default stream, 0, cannot be
        flags = _captured_flags(schedule.programs * groups, device, stream)
        return Workspace.of(schedule, tile_elements, groups, device=device, flags=flags)
    key = (device.index, stream)
    kept = _workspaces.get(key)
    if kept is None or not kept.is_enough(schedule, tile_elements, groups):
        if kept is None and len(_workspaces) >= _MOST_WORKSPACES:
            _workspaces.clear()  # the allocator hands memory on in the order of its stream
        kept = _workspaces[key] = Workspace.of(schedule, tile_elements, groups, device=device, beside=kept)
        _reserve(device)
    return kept


#: Flags of captures: so many rows of so many for each GPU, 4 MiB, which is enough for some hundred captures. Each
#: stream of a capture has its own, and the next one those of another row. Programs wait for flags, and how long depends
#: on where these are: while all captures had neighbours, 16x4096x4096 took 10.82 us in half of the processes, and 10.87
#: us in the others (16 pairs of processes, H200, 2026-11-23).
_ROWS = 16
_RESERVED_FLAGS = 1 << 16
_reserved: dict[int | None, torch.Tensor] = {}
#: How many of each row captures have. A capture keeps what it has: nobody tells when its graph is gone.
_taken: dict[int | None, list[int]] = {}
#: (GPU, stream, capture) -> the flags of its calls, which follow one another. The oldest is forgotten.
_captured: dict[tuple[int | None, int, int], torch.Tensor] = {}
_MOST_CAPTURED = 64
_taking = threading.Lock()


def _reserve(device: torch.device) -> None:
    """Zero flags for captures, outside of any: zeroed inside, they would be once more at each replay, in a launch."""
    if device.index not in _reserved:
        flags = torch.zeros(_ROWS, _RESERVED_FLAGS, device=device, dtype=torch.int32)
        torch.cuda.current_stream(device).synchronize()  # a graph may be replayed on any other
        _reserved[device.index] = flags


def _captured_flags(number: int, device: torch.device, stream: int) -> torch.Tensor | None:
    """Return zeros that a capture shares with no other; None where there are none, so that the graph zeroes its own."""
    capture = _capture_of(stream)
    if capture is None or device.index not in _reserved:
        return None
    key = (device.index, stream, capture)
    with _taking:
        kept = _captured.get(key)
        if kept is None or kept.numel() < number:
            taken = _taken.setdefault(device.index, [0] * _ROWS)
            begin = min(taken)
            if begin + number > _RESERVED_FLAGS:
                return None
            row = taken.index(begin)
            taken[row] += number
            if len(_captured) >= _MOST_CAPTURED:
                del _captured[next(iter(_captured))]
            kept = _captured[key] = _reserved[device.index][row, begin : begin + number]
        return kept


def _capture_of(stream: int) -> int | None:
    """Return the driver's number of what the stream captures; None where it does not say."""
    ask = _capture_info()
    status, number = ctypes.c_int(), ctypes.c_uint64()
    if ask is None or ask(stream, ctypes.byref(status), ctypes.byref(number), None, None, None):
        return None
    return number.value


@functools.cache
def _capture_info() -> Any:
    """Return `cuStreamGetCaptureInfo_v2` of CUDA's driver; None where another, or an older, is installed."""
    try:
        found = ctypes.CDLL("libcuda.so.1").cuStreamGetCaptureInfo_v2
    except (OSError, AttributeError):
        return None
    found.argtypes = [ctypes.c_void_p] * 6
    return found


def in_workspace(schedule: Schedule, tile_elements: int, groups: int = 1, *, device: torch.device) -> Arrange:
    """Return what adds a workspace's addresses to those of A, B and C: that of the stream on which a launch is made.

    Args: as of `workspace_for`.
    """

    def arranged(stream: int, a: int, b: int, c: int) -> tuple[tuple[int, ...], Workspace]:
        workspace = workspace_for(schedule, tile_elements, groups, device=device, stream=stream)
        return (a, b, c, *workspace.addresses), workspace

    return arranged


def without_workspace(_stream: int, a: int, b: int, c: int) -> tuple[tuple[int, ...], None]:
    """Put the address of C where a kernel that shares no tile wants a workspace, which it never touches."""
    return (a, b, c, c, c), None

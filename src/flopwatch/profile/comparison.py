"""Two of Proton's trees, scope by scope and kernel by kernel."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from flopwatch.profile.hatchet import Frame


@dataclass(frozen=True, kw_only=True, slots=True)
class Taken:
    """What a frame and all below it took of one call.

    Attributes:
        seconds: on the GPU.
        launches: of kernels.
        flops: that were declared of the frame itself.
        bytes_moved: likewise.
    """

    seconds: float
    launches: float
    flops: float = 0.0
    bytes_moved: float = 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class FramePair:
    """A scope or a kernel on both sides.

    Attributes:
        path: its name behind those of the scopes around it; empty for the calls as a whole.
        is_kernel: it is no scope.
        base: what it took there; None where base does not enter or launch it.
        head: likewise.
    """

    path: tuple[str, ...]
    is_kernel: bool
    base: Taken | None
    head: Taken | None


def compare_frames(base: Sequence[Frame], head: Sequence[Frame], *, calls: tuple[int, int]) -> Iterator[FramePair]:
    """Yield the frames of two trees as pairs, each before what is below it, base's before what only head has.

    Args:
        base: the same scope of each of its recordings; none where it was not recorded.
        head: likewise.
        calls: in all recordings of base, and of head.

    >>> from flopwatch.profile.hatchet import Frame
    >>> before, after = (Frame(name="k", time_ns=time, count=2) for time in (4e3, 6e3))
    >>> (pair,) = compare_frames([before], [after], calls=(2, 2))
    >>> pair.base.seconds, pair.head.seconds, pair.head.launches
    (2e-06, 3e-06, 1.0)
    """
    if base or head:
        yield from _compared((), base, head, calls)


def _compared(
    path: tuple[str, ...], base: Sequence[Frame], head: Sequence[Frame], calls: tuple[int, int]
) -> Iterator[FramePair]:
    frames = (*base, *head)
    yield FramePair(
        path=path,
        is_kernel=not any(frame.children for frame in frames),
        base=_taken(base, calls[0]),
        head=_taken(head, calls[1]),
    )
    below = [[child for frame in side for child in frame.children] for side in (base, head)]
    for name in dict.fromkeys(child.name for side in below for child in side):
        of_base, of_head = ([child for child in side if child.name == name] for side in below)
        yield from _compared((*path, name), of_base, of_head, calls)


def _taken(frames: Sequence[Frame], calls: int) -> Taken | None:
    if not frames:
        return None
    return Taken(
        seconds=math.fsum(frame.seconds for frame in frames) / calls,
        launches=sum(frame.launches for frame in frames) / calls,
        flops=math.fsum(frame.flops for frame in frames) / calls,
        bytes_moved=math.fsum(frame.bytes_moved for frame in frames) / calls,
    )

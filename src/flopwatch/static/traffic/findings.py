"""What the traffic of two sides shows: that head leaves its tensors, computes or moves more, or shares less.

Nothing here was timed. Counts are exact for the arguments of the launch, so that the same tiles that multiply more do
it for a reason; other tiles pad differently, and are given room for that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flopwatch.static.devices import find_device
from flopwatch.static.instructions import Finding
from flopwatch.static.traffic.bound import bound_of
from flopwatch.static.traffic.result import SECTOR_BYTES
from flopwatch.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flopwatch.static.traffic.result import OutOfBounds, Traffic

#: The name of the finding that fails: no launch may leave the memory that it was given.
OUT_OF_BOUNDS = "out of bounds"
#: The name of the one finding that is about how many launches there are (`flopwatch.static.launches`).
LAUNCHES = "launches"

#: What a finding is called where it is for the worse.
TRAFFIC_WORSE = {
    LAUNCHES: "is launched more often",
    OUT_OF_BOUNDS: "leaves its tensors",
    "dot flops": "multiplies more",
    "memory traffic": "moves more memory",
    "requested bytes": "asks for more",
    "wave reuse": "shares less in the L2 cache",
    "imbalance": "spreads its work worse",
}

#: Of exact counts, for the same configuration. A lost causal skip of 8 tiles adds 78 %, of 64 tiles 97 %.
_GROWTH = 1.02
#: Of FLOPs where the configuration differs: 1000x1000x1000 takes 7 % more in tiles of 128 and 256 than it has.
_OTHER_GROWTH = 1.5
#: Of what all waves read. 8192x8192x8192 in tiles of 128 and 256, with no groups of rows instead of groups of 8: 1.64,
#: with groups of 4: 1.71 (132 programs at once, 2026-11-21).
_WAVE_GROWTH = 1.25
#: Of the least time of the launch, for what all waves of head read. Square products in tiles that are numbered row by
#: row lost 0.4 % where the memory takes 42 % of that time, 6 % where it takes 61 %, 27 % where it takes 99 % (8192,
#: 12288 and 20480, H200, 2026-11-23: docs/evidence-static.md, docs/studies/l2_swizzle.md).
_WAVE_SHARE = 0.5
#: Of the most work over the mean. Less than this says nothing either: the tail of the last wave is as much.
_IMBALANCE_GROWTH = 1.25
_LEAST_IMBALANCE = 1.25


def traffic_findings(base: Traffic, head: Traffic) -> Iterator[Finding]:
    """Yield what differs between two launches of the same case, the most telling first.

    What is not known of a side is not compared. `OUT_OF_BOUNDS` is yielded for what head alone does: by kernel,
    operation and tensor, since lines move.
    """
    yield from _out_of_bounds(base, head)
    same = base.config == head.config
    yield from _grown(
        "dot flops", base.total_dot_flops, head.total_dot_flops, growth=_GROWTH if same else _OTHER_GROWTH, unit="FLOPs"
    )
    yield from _grown("memory traffic", base.compulsory_bytes, head.compulsory_bytes, growth=_GROWTH)
    if same:
        yield from _grown("requested bytes", _requested(base), _requested(head), growth=_GROWTH)
    yield from _wave_reuse(base, head)
    if base.imbalance and head.imbalance:
        least = max(_IMBALANCE_GROWTH * base.imbalance, _LEAST_IMBALANCE)
        if head.imbalance > least:
            old, new = f"{base.imbalance:.2f} of the mean in one program", f"{head.imbalance:.2f}"
            yield Finding(name="imbalance", base=old, head=new)


def out_of_bounds_text(stray: OutOfBounds) -> str:
    """Say where a launch leaves its memory, and how far.

    >>> from flopwatch.static.traffic.result import OutOfBounds
    >>> stray = OutOfBounds(
    ...     operation="tt.load",
    ...     where="kernel.py:12",
    ...     argument="x_ptr",
    ...     programs=1,
    ...     first_program=(3, 0, 0),
    ...     before_bytes=0,
    ...     past_bytes=48,
    ...     allocation_bytes=2000,
    ... )
    >>> out_of_bounds_text(stray)
    'load at kernel.py:12 ends 48 B past x_ptr (1.953 KiB), in 1 program, first (3, 0, 0)'
    """
    name = stray.operation.rpartition(".")[2]
    sides = []
    if stray.before_bytes:
        sides.append(f"begins {format_bytes(stray.before_bytes)} before")
    if stray.past_bytes:
        sides.append(f"ends {format_bytes(stray.past_bytes)} past")
    programs = "1 program" if stray.programs == 1 else f"{stray.programs} programs"
    return (
        f"{name} at {stray.where} {' and '.join(sides)} {stray.argument} ({format_bytes(stray.allocation_bytes)}),"
        f" in {programs}, first {stray.first_program}"
    )


def _out_of_bounds(base: Traffic, head: Traffic) -> Iterator[Finding]:
    before, after = ({(stray.operation, stray.argument) for stray in side.out_of_bounds} for side in (base, head))
    gone = [operation for operation, _ in sorted(before - after)]
    for stray in head.out_of_bounds:
        if (stray.operation, stray.argument) in before:
            continue
        if stray.operation in gone:  # of a tensor that has another name now
            gone.remove(stray.operation)
            continue
        yield Finding(name=OUT_OF_BOUNDS, base="none", head=out_of_bounds_text(stray))


def _grown(name: str, old: int | None, new: int | None, *, growth: float, unit: str = "") -> Iterator[Finding]:
    if old is None or new is None or new <= growth * old:
        return
    texts = [f"{value:.4g} {unit}" if unit else format_bytes(value) for value in (old, new)]
    yield Finding(name=name, base=texts[0], head=f"{texts[1]}, {new / old:.2f}x" if old else texts[1])


def _requested(traffic: Traffic) -> int | None:
    if traffic.load_bytes is None or traffic.store_bytes is None or traffic.atomic_bytes is None:
        return None
    return traffic.load_bytes + traffic.store_bytes + traffic.atomic_bytes


def _wave_reuse(base: Traffic, head: Traffic) -> Iterator[Finding]:
    """Yield a wave whose programs share less of what they read: by what all waves read, which tiles do not change.

    Where the memory delivers that in half of the launch's least time, nobody waits for it.
    """
    totals = [_of_all_waves(side) for side in (base, head)]
    if not totals[0] or not totals[1] or totals[1] <= _WAVE_GROWTH * totals[0]:
        return
    device = find_device(head.device)
    bound = bound_of(head, device)
    waited_for = bound is not None and totals[1] / (device.memory_gbps * 1e9) > _WAVE_SHARE * bound.seconds
    if waited_for and base.wave_reuse and head.wave_reuse:
        yield Finding(
            name="wave reuse",
            base=f"{base.wave_reuse:.1f}x, {format_bytes(round(totals[0]))} in all waves",
            head=f"{head.wave_reuse:.1f}x, {format_bytes(round(totals[1]))}",
        )


def _of_all_waves(traffic: Traffic) -> float | None:
    """Return the bytes that all waves read if each was like the first one, and the cache was empty before each."""
    if traffic.wave_sectors is None or not traffic.wave_programs:
        return None
    return traffic.wave_sectors * SECTOR_BYTES * traffic.programs / traffic.wave_programs

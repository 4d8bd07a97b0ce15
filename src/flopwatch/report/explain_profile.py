"""What the profiles of both sides say, as parts of an explanation: kernels, what a launch costs, and counters."""

from __future__ import annotations

from itertools import zip_longest
from typing import TYPE_CHECKING

from flopwatch.gate.choices import configs_of
from flopwatch.report.explain_part import Part
from flopwatch.report.profile import counter, counter_rows, ran_in, rate, waits
from flopwatch.units import format_seconds

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from flopwatch.profile.comparison import FramePair, Taken
    from flopwatch.profile.result import Counted, ProfiledPair

#: Rows of scopes and kernels; a call of torch's can have more.
MAX_FRAMES = 24
_MANY = 10.0
_NAMED = ("scope or kernel", "base", "head", "change", "launches")
_RATES = ("base, TFLOPS", "head, TFLOPS", "base, GB/s", "head, GB/s")


def profile_parts(pair: ProfiledPair) -> Iterator[Part]:
    """Yield where the time of a call goes on both sides, what a launch costs, and the counters where they were read."""
    if not pair.frames:
        yield Part(title="Profile", lines=tuple(_failures(pair)) or ("a call launches no kernel",))
        return
    yield _frames(pair)
    yield _launch(pair)
    yield from _counters(pair.base.counters, pair.head.counters)


def _frames(pair: ProfiledPair) -> Part:
    longest = sorted(pair.frames, key=_longer, reverse=True)[:MAX_FRAMES]
    rows = [_row(frame) for frame in pair.frames if frame in longest]
    header = (*_NAMED, *_RATES)
    told = [place for place in range(len(header)) if place < len(_NAMED) or any(row[place] for row in rows)]
    return Part(
        title=f"Profile of a call on {pair.gpu}, inputs in the cache where they fit",
        header=tuple(header[place] for place in told),
        rows=tuple(tuple(row[place] for place in told) for row in rows),
        lines=(*_failures(pair), *_lines(pair, left_out=len(pair.frames) - len(longest))),
    )


def _lines(pair: ProfiledPair, *, left_out: int) -> Iterator[str]:
    if left_out:
        yield f"and {left_out} more, which take less"
    sides = (("base", pair.base, "head", pair.head), ("head", pair.head, "base", pair.base))
    for side, case, other, others in sides:
        alone = [_name(frame) for frame in pair.frames if frame.is_kernel and getattr(frame, other) is None]
        if alone and others.failure is None:
            yield f"launched by {side} alone: {', '.join(alone)}"
        kernels = {frame.path[-1] for frame in pair.frames if frame.is_kernel and frame.path}
        theirs = configs_of(others.choices)
        for choice in ran_in(case, kernels):
            if theirs.get((choice.kernel, choice.key)) != choice.config:
                yield f"{side}: {choice.kernel} runs in {choice.config}"
    if pair.spread is not None:
        yield (
            f"processes of one side are up to {100 * pair.spread:.1f} % apart: what differs by less is no difference,"
            " and of the rest flopwatch gate is the judge"
        )


def _failures(pair: ProfiledPair) -> Iterator[str]:
    for side, case in (("base", pair.base), ("head", pair.head)):
        if case.failure is not None:
            yield f"{side} cannot be profiled: {case.failure.kind}: {case.failure.message}"


def _row(frame: FramePair) -> tuple[str, ...]:
    base, head = frame.base, frame.head
    launches = dict.fromkeys(f"{side.launches:.4g}" for side in (base, head) if side is not None)
    rates = [rate(side.flops, side.seconds, "TFLOPS") if side else "" for side in (base, head)]
    rates += [rate(side.bytes_moved, side.seconds, "GB/s") if side else "" for side in (base, head)]
    return (_name(frame), *_times(_seconds(base), _seconds(head)), " -> ".join(launches), *rates)


def _launch(pair: ProfiledPair) -> Part:
    """Tell what a call costs beside its kernels."""
    sides = {name: case for name, case in (("base", pair.base), ("head", pair.head)) if case.failure is None}
    rows = []
    for name, attribute in (
        ("from a cold cache, by the gate's timer", "call_seconds"),
        ("of the host", "host_seconds"),
        ("in a loop of calls", "wall_seconds"),
        ("of that, without a kernel", "idle_seconds"),
    ):
        base, head = (getattr(sides[side], attribute) if side in sides else None for side in ("base", "head"))
        if base is not None or head is not None:
            rows.append((name, *_times(base, head)))
    waiting = [side for side, case in sides.items() if waits(case)]
    lines = [f"{side}: a loop of calls waits for the host, whatever its kernels take" for side in waiting]
    return Part(
        title="What a call takes beside its kernels",
        header=("time", "base", "head", "change"),
        rows=tuple(rows),
        lines=tuple(lines),
    )


def _counters(base: Sequence[Counted], head: Sequence[Counted]) -> Iterator[Part]:
    """Yield the counters of each launch, those of one kernel in the order in which it is launched."""
    for kernel in dict.fromkeys(launch.kernel for launch in (*base, *head)):
        sides = ([launch for launch in side if launch.kernel == kernel] for side in (base, head))
        for launches in zip_longest(*sides):
            rows = [
                (
                    name,
                    *("" if value is None else counter(name, value) for value in values),
                    "" if "pct" in name else _change(*values),
                )
                for name, values in counter_rows([launch.counters if launch else {} for launch in launches])
            ]
            yield Part(
                title=f"{kernel}: counters of a launch, caches flushed",
                header=("counter", "base", "head", "change"),
                rows=tuple(rows),
            )


def _name(frame: FramePair) -> str:
    return " / ".join(frame.path) or "all kernels"


def _longer(frame: FramePair) -> float:
    return max(_seconds(frame.base) or 0.0, _seconds(frame.head) or 0.0)


def _seconds(taken: Taken | None) -> float | None:
    return taken.seconds if taken else None


def _times(base: float | None, head: float | None) -> tuple[str, str, str]:
    before, after = ("" if value is None else format_seconds(value) for value in (base, head))
    return before, after, _change(base, head)


def _change(base: float | None, head: float | None) -> str:
    """Write a change as people read it: many times as much is no percentage.

    >>> _change(2e-6, 3e-6), _change(2e-6, 245e-6), _change(None, 3e-6)
    ('+50.0 %', '122x', '')
    """
    if not base or head is None:
        return ""
    ratio = head / base
    return f"{ratio:.0f}x" if ratio >= _MANY else f"{100 * (ratio - 1):+.1f} %"

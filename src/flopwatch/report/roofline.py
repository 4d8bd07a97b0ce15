"""The roofline: what the cases reach of what the GPU's data sheet allows, by their operations a byte.

Williams, Waterman and Patterson, "Roofline", CACM 52 (4), 2009. The roof is that of the dashboard's percentages: the
peak of the memory, and of arithmetic in the type that a case's parameters name, in 16 bits where they name none
(`flopwatch.static.devices`). A case's work is what its suite declares, the same for base and head, so that one is right
above the other.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from flopwatch.report.escape import html
from flopwatch.report.svg import along, canvas, dot, line
from flopwatch.report.wording import count
from flopwatch.static.device import named_dtypes
from flopwatch.units import format_rate, format_seconds

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from flopwatch.gate import CaseVerdict
    from flopwatch.static.device import Device

#: Layout, in units of the viewBox.
WIDTH, HEIGHT, LEFT, RIGHT, TOP, FOOT = 960.0, 420.0, 64.0, 28.0, 24.0, 48.0
#: Decades to either side of the ridge, and below and above the peak, that the axes show at least and at most.
ALONG = (1.0, 5.0)
DOWN = (2.0, 7.0)
UP = (0.0, 1.0)
#: Room for a name above the roof, in decades.
AIR = 0.2
#: Cases that are drawn.
MAX_POINTS = 200
#: What stays in the cache exceeds the roof of the memory a few times; what claims more is told without numbers.
MOST = 100.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Placed:
    """A case that has a place.

    Attributes:
        name: of the case.
        kind: its mark, or "none".
        flops: floating-point operations of one call.
        bytes_moved: bytes that one call must move.
        seconds: per call, by side, base first; one at least.
        values: its parameters, which may name the type of its operands.
    """

    name: str
    kind: str
    flops: float
    bytes_moved: float
    seconds: dict[str, float]
    values: tuple[str, ...] = ()

    @property
    def place(self) -> float:
        """Decades of operations a byte."""
        return math.log10(self.flops) - math.log10(self.bytes_moved)

    @property
    def heights(self) -> list[float]:
        """Decades of TFLOPS, by side."""
        return [math.log10(self.flops) - math.log10(seconds) - 12 for seconds in self.seconds.values()]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Axes:
    """The decades that the plot shows, and where they are."""

    left: float
    right: float
    bottom: float
    top: float

    def x(self, place: float) -> float:
        return along(place, self.left, self.right, LEFT, WIDTH - RIGHT)

    def y(self, height: float) -> float:
        return along(height, self.bottom, self.top, HEIGHT - FOOT, TOP)

    def has(self, place: float, height: float) -> bool:
        return self.left <= place <= self.right and self.bottom <= height <= self.top


def placed(verdicts: Sequence[CaseVerdict]) -> list[Placed]:
    """Return the cases that were timed and whose work is known; less than one operation or byte is none."""
    return [
        Placed(
            name=verdict.case.id,
            kind=verdict.mark.value if verdict.mark else "none",
            flops=verdict.flops,
            bytes_moved=verdict.bytes_moved,
            seconds=seconds,
            values=verdict.case.values,
        )
        for verdict in verdicts
        if (seconds := seconds_of(verdict))
        and (verdict.flops is not None and verdict.flops >= 1)
        and (verdict.bytes_moved is not None and verdict.bytes_moved >= 1)
    ]


def seconds_of(verdict: CaseVerdict) -> dict[str, float]:
    """Return the seconds of a call on the sides where it was timed."""
    sides = (("base", verdict.base.seconds), ("head", verdict.head.seconds))
    return {name: seconds for name, seconds in sides if seconds}


def left_out(verdicts: Sequence[CaseVerdict], cases: Sequence[Placed]) -> str:
    """Say which cases are not drawn, and why; "" where all are.

    Args:
        verdicts: of all cases.
        cases: those of them that have a place.
    """
    timed = sum(bool(seconds_of(verdict)) for verdict in verdicts)
    reasons = [
        (len(verdicts) - timed, "without a time"),
        (timed - len(cases), "without FLOPs or bytes"),
        (len(cases) - MAX_POINTS, f"beyond the first {MAX_POINTS}"),
    ]
    told = ", ".join(f"{count(number, 'case')} {why}" for number, why in reasons if number > 0)
    return f"Not drawn: {told}." if told else ""


def told(case: Placed, device: Device) -> str:
    """Say what a case reaches, in the unit of what bounds it.

    >>> from flopwatch.static.devices import DEVICES
    >>> case = Placed(name="Add[8]", kind="same", flops=1e6, bytes_moved=12e6, seconds={"base": 5e-6, "head": 4e-6})
    >>> told(case, DEVICES["h200"])
    'Add[8]: same: base 5.000 µs, 2400 GB/s, 50.0 % of the roofline; head 4.000 µs, 3000 GB/s, 62.5 % of the roofline'
    """
    kind = f" {case.kind}:" if case.kind != "none" else ""
    return f"{case.name}:{kind} {'; '.join(_reached(case, device, side) for side in case.seconds)}"


def _reached(case: Placed, device: Device, side: str) -> str:
    seconds = case.seconds[side]
    share = device.least_seconds(case.flops, case.bytes_moved, case.values) / seconds
    if share > MOST:
        return f"{side} {format_seconds(seconds)}, more than {MOST:g} times the roofline"
    is_fed = case.place >= _ridge(device, device.peak_tflops(case.values))
    rate = format_rate(case.flops / seconds, "TFLOPS") if is_fed else format_rate(case.bytes_moved / seconds, "GB/s")
    return f"{side} {format_seconds(seconds)}, {rate}, {100 * share:.1f} % of the roofline"


def roofline(cases: Sequence[Placed], device: Device) -> str:
    """Draw the first cases under the roof of a GPU, the first on top; "" where there is none.

    Args:
        cases: that have a place.
        device: the GPU that measured.
    """
    cases = cases[:MAX_POINTS]
    if not cases:
        return ""
    axes = axes_of(cases, device)
    title = f"Roofline of the {device.name}: TFLOPS of {count(len(cases), 'case')}, base and head, by FLOPs a byte"
    parts = [canvas(WIDTH, HEIGHT, title), *_grid(axes), *_roof(axes, device, _roofs(cases, device))]
    for case in reversed(cases):
        parts += _case(case, axes, device)
    return "\n".join([*parts, "</svg>"])


def axes_of(cases: Sequence[Placed], device: Device) -> _Axes:
    """Choose what the axes show: all points but the absurd ones, and always the ridges."""
    peaks = list(_roofs(cases, device))
    lowest, highest = math.log10(peaks[0]), math.log10(peaks[-1])
    ridges = [_ridge(device, peak) for peak in (peaks[0], peaks[-1])]
    places = [case.place for case in cases]
    heights = [height for case in cases for height in case.heights]
    return _Axes(
        left=math.floor(_within(min(places), ridges[0] - ALONG[1], ridges[0] - ALONG[0])),
        right=math.ceil(_within(max(places), ridges[1] + ALONG[0], ridges[1] + ALONG[1])),
        bottom=math.floor(_within(min(heights), lowest - DOWN[1], lowest - DOWN[0])),
        top=_within(max(heights), highest + UP[0], highest + UP[1]) + AIR,
    )


def _within(value: float, low: float, high: float) -> float:
    return min(max(value, low), high)


def _roofs(cases: Sequence[Placed], device: Device) -> dict[float, str]:
    """Return the peaks that bound the cases, in TFLOPS, the lowest first, with what each of them is called."""
    names: dict[float, set[str]] = {}
    for case in cases:
        names.setdefault(device.peak_tflops(case.values), set()).update(named_dtypes(case.values))
    return {
        peak: "tensor cores at 16 bits" if peak == device.peaks.float16 else ", ".join(sorted(names[peak]))
        for peak in sorted(names)
    }


def _ridge(device: Device, peak_tflops: float) -> float:
    """Return the decades of operations a byte from which the memory can feed arithmetic at its peak."""
    return math.log10(peak_tflops * 1e12) - math.log10(device.memory_gbps * 1e9)


def _grid(axes: _Axes) -> list[str]:
    parts = []
    for decade in range(math.ceil(axes.left), math.floor(axes.right) + 1):
        x = axes.x(decade)
        parts += [
            line(x, TOP, x, HEIGHT - FOOT, "grid"),
            f'<text x="{x:.1f}" y="{HEIGHT - FOOT + 18:g}" text-anchor="middle">{10.0**decade:g}</text>',
        ]
    for decade in range(math.ceil(axes.bottom), math.floor(axes.top) + 1):
        y = axes.y(decade)
        parts += [
            line(LEFT, y, WIDTH - RIGHT, y, "grid"),
            f'<text x="{LEFT - 6:g}" y="{y + 4:.1f}" text-anchor="end">{10.0**decade:g}</text>',
        ]
    middle = (LEFT + WIDTH - RIGHT) / 2
    return [
        *parts,
        f'<text x="{middle:g}" y="{HEIGHT - 8:g}" text-anchor="middle">FLOPs a byte</text>',
        f'<text x="{LEFT - 6:g}" y="{TOP - 10:g}" text-anchor="end">TFLOPS</text>',
    ]


def _roof(axes: _Axes, device: Device, peaks: Mapping[float, str]) -> list[str]:
    """Draw the slope of the memory up to the last ridge, and each peak from its own ridge on."""
    ridge, highest = _ridge(device, max(peaks)), math.log10(max(peaks))
    start = max(axes.left, ridge - (highest - axes.bottom))
    (x1, y1), (x2, y2) = ((axes.x(at), axes.y(highest - (ridge - at))) for at in (start, ridge))
    memory = format_rate(device.memory_gbps * 1e9, "GB/s")
    lines = [f"<g><title>memory: {memory}</title>{line(x1, y1, x2, y2, 'roof')}</g>"]
    texts = [f'<text x="{(x1 + x2) / 2 - 10:.1f}" y="{(y1 + y2) / 2 - 6:.1f}" text-anchor="end">{memory}</text>']
    for peak, name in peaks.items():
        x, y = axes.x(_ridge(device, peak)), axes.y(math.log10(peak))
        rate = format_rate(peak * 1e12, "TFLOPS")
        lines.append(f"<g><title>{name}: {rate}</title>{line(x, y, WIDTH - RIGHT, y, 'roof')}</g>")
        texts.append(f'<text x="{WIDTH - RIGHT:g}" y="{y - 6:.1f}" text-anchor="end">{rate}</text>')
    return [*lines, *texts]


def _case(case: Placed, axes: _Axes, device: Device) -> list[str]:
    """Draw base as a ring, head as a dot, and from the one to the other a line."""
    x, heights = axes.x(case.place), case.heights
    points = [
        dot(
            x,
            axes.y(height),
            is_square=not axes.has(case.place, height),
            kind="ring" if side == "base" else "point",
            radius=6 if side == "base" else 4,
        )
        for side, height in zip(case.seconds, heights, strict=True)
    ]
    return [
        f'<g class="{case.kind}"><title>{html(told(case, device))}</title>',
        line(x, axes.y(heights[0]), x, axes.y(heights[-1]), "moved"),
        *points,
        "</g>",
    ]

"""Plots inside a page: effects with their intervals, and the pairs behind one; colours are the page's to choose.

Points differ in shape as well as in colour, and each says in words what it is to whoever points at it or hears it read.
What they are drawn of is here as well, for `flopwatch.report.roofline`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from flopwatch.report.escape import html
from flopwatch.report.wording import effect, slowdown
from flopwatch.units import format_change

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flopwatch.gate import CaseVerdict

#: Layout of the effects, in units of the viewBox.
WIDTH, NAMES, ROW, FOOT = 960.0, 400.0, 22.0, 40.0
#: Layout of the pairs of one case.
SMALL_WIDTH, SMALL_HEIGHT, SMALL_LEFT, SMALL_FOOT = 440.0, 180.0, 64.0, 28.0
#: Characters of a name that fit beside its effect.
NAME_LENGTH = 56
#: The axis ends at so many times the median size of what is shown: one case that is 40 % slower shall not press all
#: others into a line. It is drawn at the border.
REACH = 6.0
#: What the axis shows at least: 1 % in either direction.
LEAST = math.log1p(0.01)


def effects(verdicts: Sequence[CaseVerdict]) -> str:
    """Draw the effect of each timed case with its interval, a row each; "" where none was timed."""
    rows = [
        (verdict, series, series.estimate)
        for verdict in verdicts
        if (series := verdict.time) is not None and series.estimate is not None
    ]
    if not rows:
        return ""
    sizes = sorted(max(abs(series.lower or 0.0), abs(series.upper or 0.0), abs(middle)) for _, series, middle in rows)
    end = max(LEAST, min(sizes[-1], REACH * sizes[len(sizes) // 2])) * 1.05
    height = ROW * len(rows) + FOOT

    def x(value: float) -> float:
        return along(value, -end, end, NAMES + 50, WIDTH - 50)

    parts = [canvas(WIDTH, height, f"Change of the time of {len(rows)} cases, with intervals of 99 %")]
    for tick in (-end / 1.05, -end / 2.1, 0.0, end / 2.1, end / 1.05):
        at = x(tick)
        label = format_change(tick) if tick else "as fast"
        parts += [
            line(at, 0, at, height - FOOT + 6, "axis" if tick == 0 else "grid"),
            f'<text x="{at:.1f}" y="{height - FOOT + 22:.1f}" text-anchor="middle">{html(label)}</text>',
        ]
    for index, (verdict, series, middle) in enumerate(rows):
        y = ROW * index + ROW / 2
        kind = verdict.mark.value if verdict.mark else "none"
        told = f"{verdict.case.id}: {kind}: {effect(middle, series.lower, series.upper)}"
        low = -end if series.lower is None else series.lower
        high = end if series.upper is None else series.upper
        name = html(verdict.case.id, length=NAME_LENGTH)
        parts += [
            f'<g class="{kind}"><title>{html(told)}</title>',
            f'<text x="{NAMES:g}" y="{y + 4:.1f}" text-anchor="end">{name}</text>',
            line(x(low), y, x(high), y, "interval"),
            line(x(verdict.margin), y - ROW / 2, x(verdict.margin), y + ROW / 2, "margin"),
            dot(x(middle), y, is_square=abs(middle) > end),
            "</g>",
        ]
    return "\n".join([*parts, "</svg>"])


def samples(verdict: CaseVerdict, found: Sequence[tuple[str, float]]) -> str:
    """Draw the pairs of one case in the order in which they were measured, with its margin and its estimate.

    Args:
        verdict: of the case.
        found: the stage and the log ratio of each pair; one at least.
    """
    values = [value for _, value in found]
    low, high = min(*values, 0.0, verdict.margin), max(*values, 0.0, verdict.margin)
    room = max(high - low, 1e-4) * 0.08
    bottom = SMALL_HEIGHT - SMALL_FOOT

    def x(index: float) -> float:
        return along(index, 0, len(found) + 1, SMALL_LEFT, SMALL_WIDTH - 8)

    def y(value: float) -> float:
        return along(value, low - room, high + room, bottom, 8)

    title = f"{len(found)} pairs of {verdict.case.id}: head's time against base's"
    parts = [canvas(SMALL_WIDTH, SMALL_HEIGHT, title)]
    lines = [(0.0, "axis", "as fast"), (verdict.margin, "margin", f"margin {slowdown(verdict.margin)}")]
    if verdict.time is not None and verdict.time.estimate is not None:
        lines.append((verdict.time.estimate, "estimate", f"estimate {format_change(verdict.time.estimate)}"))
    for value, kind, told in lines:
        parts.append(f"<g><title>{html(told)}</title>{line(SMALL_LEFT, y(value), SMALL_WIDTH - 8, y(value), kind)}</g>")
    parts += [
        f'<text x="{SMALL_LEFT - 6:g}" y="{y(value) + 4:.1f}" text-anchor="end">{math.expm1(value) * 100:+.2f} %</text>'
        for value in (low, high)
    ]
    for index, (stage, value) in enumerate(found, start=1):
        told = f"pair {index}, {stage}: {format_change(value)}"
        point = dot(x(index), y(value), is_square=stage != "screen")
        parts.append(f'<g class="pair"><title>{html(told)}</title>{point}</g>')
    middle = (SMALL_LEFT + SMALL_WIDTH) / 2
    parts.append(f'<text x="{middle:g}" y="{SMALL_HEIGHT - 8:g}" text-anchor="middle">pair</text>')
    return "\n".join([*parts, "</svg>"])


def canvas(width: float, height: float, title: str) -> str:
    """Begin a plot, and say what it shows to whoever cannot see it."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" role="img"'
        f' aria-label="{html(title)}">'
    )


def along(value: float, low: float, high: float, start: float, end: float) -> float:
    """Return where a value lies between two ends; what is beyond is drawn at the border."""
    return start + (end - start) * min(max((value - low) / (high - low), 0.0), 1.0)


def line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    """Draw a line; the page has a style for its kind."""
    return f'<line class="{kind}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def dot(x: float, y: float, *, is_square: bool, kind: str = "point", radius: int = 4) -> str:
    """Draw a point; a square one is beyond the axes, or of another stage."""
    if is_square:
        size = 2 * radius
        return f'<rect class="{kind}" x="{x - radius:.1f}" y="{y - radius:.1f}" width="{size}" height="{size}"/>'
    return f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="{radius}"/>'

"""A plot of lines over points, as triton's perf_report draws it, in a file of its own: SVG with its own colours."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING

from flopwatch.report.escape import html
from flopwatch.report.svg import along, canvas, line

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

#: Layout, in units of the viewBox; the names of the lines stand at the right.
WIDTH, HEIGHT, LEFT, RIGHT, TOP, FOOT = 860.0, 400.0, 72.0, 170.0, 20.0, 48.0
#: Colours that readers with any colour vision tell apart (Okabe and Ito, 2008); after all of them, other dashes.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
DASHES = ("", "7 4", "2 3")
#: Of a point's name and of a line's: the width of a character, in units of the viewBox; the characters that have room.
CHARACTER, NAME_LENGTH = 7.0, 17
#: Between the names of lines.
ROW = 18.0
#: Ticks of the vertical axis, about.
_TICKS = 6
_STYLE = """\
<style>
:root { color-scheme: light dark }
svg { --ink: #1b1f24; --paper: #fff; --faint: #d5dae0 }
@media (prefers-color-scheme: dark) { svg { --ink: #e6e9ed; --paper: #15181c; --faint: #3a414a } }
text { fill: var(--ink); font: 12px system-ui, sans-serif } .paper { fill: var(--paper) } .grid { stroke: var(--faint) }
polyline { fill: none; stroke-width: 2 }
</style>
"""


def line_plot(
    lines: Mapping[str, Mapping[str, float]], points: Sequence[str], *, title: str, across: str, unit: str
) -> str:
    """Draw a line for each entry.

    Points that are numbers lie as far apart as these are where their names have room, others evenly; a name
    without room is left out. The vertical axis shows what there is, and need not begin at 0.

    Args:
        lines: name -> point -> value; a line need not have every point.
        points: their order.
        title: what it shows, for those who do not see it.
        across: what the points are.
        unit: of the values.

    Raises:
        ValueError: there is no value.
    """
    found = [value for values in lines.values() for value in values.values()]
    if not found:
        raise ValueError("there is nothing to draw")
    step = _step(max(found) - min(found) or max(found) or 1.0)
    low, high = math.floor(min(found) / step) * step, math.ceil(max(found) / step) * step
    high = high if high > low else low + step
    places = _places(points)

    def y(value: float) -> float:
        return along(value, low, high, HEIGHT - FOOT, TOP)

    tall = max(HEIGHT, TOP + 14 + ROW * len(lines))
    parts = [canvas(WIDTH, tall, title), _STYLE, f'<rect class="paper" width="{WIDTH:g}" height="{tall:g}"/>']
    for index in range(round((high - low) / step) + 1):
        at = y(low + index * step)
        parts += [
            line(LEFT, at, WIDTH - RIGHT, at, "grid"),
            f'<text x="{LEFT - 8:g}" y="{at + 4:.1f}" text-anchor="end">{low + index * step:.6g}</text>',
        ]
    end = 0.0
    for point in points:
        x, width = places[point], CHARACTER * len(point)
        parts.append(line(x, TOP, x, HEIGHT - FOOT, "grid"))
        if x - width / 2 >= end:
            end = x + width / 2
            parts.append(f'<text x="{x:.1f}" y="{HEIGHT - FOOT + 18:g}" text-anchor="middle">{html(point)}</text>')
    middle = (LEFT + WIDTH - RIGHT) / 2
    turned = f'transform="translate(16 {(TOP + HEIGHT - FOOT) / 2:g}) rotate(-90)"'
    parts += [
        f'<text x="{middle:g}" y="{HEIGHT - 8:g}" text-anchor="middle">{html(across)}</text>',
        f'<text {turned} text-anchor="middle">{html(unit)}</text>',
    ]
    for index, (name, values) in enumerate(lines.items()):
        colour, dash = COLOURS[index % len(COLOURS)], DASHES[index // len(COLOURS) % len(DASHES)]
        look = f'stroke="{colour}"' + (f' stroke-dasharray="{dash}"' if dash else "")
        drawn = [(point, places[point], y(values[point])) for point in points if point in values]
        told = ", ".join(f"{point}: {values[point]:.5g}" for point, _, _ in drawn)
        path = " ".join(f"{x:.1f},{at:.1f}" for _, x, at in drawn)
        key = TOP + 14 + ROW * index
        parts += [
            f"<g><title>{html(f'{name}: {told}')}</title>",
            f'<polyline points="{path}" {look}/>',
            *(f'<circle cx="{x:.1f}" cy="{at:.1f}" r="3" fill="{colour}"/>' for _, x, at in drawn),
            "</g>",
            f'<polyline points="{WIDTH - RIGHT + 14:g},{key - 4:g} {WIDTH - RIGHT + 40:g},{key - 4:g}" {look}/>',
            f'<text x="{WIDTH - RIGHT + 46:g}" y="{key:g}">{html(name, length=NAME_LENGTH)}</text>',
        ]
    return "\n".join([*parts, "</svg>\n"])


def _places(points: Sequence[str]) -> dict[str, float]:
    evenly = _spread([float(index) for index in range(len(points))])
    try:
        places = _spread([float(point) for point in points])
    except ValueError:
        places = evenly
    room = CHARACTER * max(map(len, points))
    near = min((abs(right - left) for left, right in itertools.pairwise(sorted(places))), default=room)
    return dict(zip(points, places if near >= room else evenly, strict=True))


def _spread(numbers: Sequence[float]) -> list[float]:
    """Lay numbers along the axis.

    Raises:
        ValueError: one of them is none, or infinite.
    """
    if not all(map(math.isfinite, numbers)):
        raise ValueError("no axis has a place for it")
    low, high = min(numbers), max(numbers)
    start, end = LEFT + 20, WIDTH - RIGHT - 20
    return [along(number, low, high, start, end) if high > low else (start + end) / 2 for number in numbers]


def _step(span: float) -> float:
    """Return a round step of which a span has about `_TICKS`.

    >>> _step(130.0), _step(0.031)
    (20.0, 0.005)
    """
    rough = span / _TICKS
    power = 10.0 ** math.floor(math.log10(rough))
    return next(factor * power for factor in (1.0, 2.0, 5.0, 10.0) if factor * power >= rough * 0.9)

"""Plots of points and lines as SVG, in plain strings: what a page of evidence needs, and no more."""

from __future__ import annotations

import html
import math
from dataclasses import dataclass, field

WIDTH, HEIGHT = 640.0, 360.0
LEFT, RIGHT, TOP, BOTTOM = 64.0, 28.0, 16.0, 48.0
#: Colours that readers with any colour vision tell apart (Okabe and Ito, 2008).
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
GRID, INK = "#d8d8d8", "#333333"
TEXT = f'font-family="sans-serif" font-size="12" fill="{INK}"'


@dataclass(frozen=True, kw_only=True, slots=True)
class Axis:
    """One axis.

    Attributes:
        title: with the unit.
        low: the value at its start.
        high: the value at its end.
        ticks: value -> label.
        log: logarithmic.
    """

    title: str
    low: float
    high: float
    ticks: dict[float, str]
    log: bool = False

    def share(self, value: float) -> float:
        """Return where a value lies, 0 at the start and 1 at the end; values beyond are drawn at the border.

        >>> Axis(title="", low=1, high=100, ticks={}, log=True).share(10)
        0.5
        """
        low, high = self.low, self.high
        if self.log:
            value, low, high = (math.log(max(number, 1e-300)) for number in (value, low, high))
        return min(max((value - low) / (high - low), 0.0), 1.0)


@dataclass
class Plot:
    """A plot that is drawn piece by piece; `render` returns the file's text.

    Attributes:
        title: for readers who do not see it.
        x: the horizontal axis.
        y: the vertical axis.
        legend_below: the legend stands at the lower right, not at the upper left.
    """

    title: str
    x: Axis
    y: Axis
    legend_below: bool = False
    _body: list[str] = field(default_factory=list)
    _legend: list[tuple[str, str]] = field(default_factory=list)

    def points(self, values: list[tuple[float, float, str]], label: str, colour: str) -> None:
        """Draw dots; the third of each is what a reader sees who points at it."""
        for x, y, name in values:
            self._body.append(
                f'<circle cx="{self._x(x):.1f}" cy="{self._y(y):.1f}" r="3.5" fill="{colour}" fill-opacity="0.75">'
                f"<title>{html.escape(name)}</title></circle>"
            )
        self._legend.append((label, colour))

    def line(self, values: list[tuple[float, float]], label: str, colour: str, *, dashed: bool = False) -> None:
        """Draw a line through points; an empty label is left out of the legend."""
        path = " ".join(f"{self._x(x):.1f},{self._y(y):.1f}" for x, y in values)
        dash = ' stroke-dasharray="6 4"' if dashed else ""
        self._body.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"{dash}/>')
        if label:
            self._legend.append((label, colour))

    def bar(self, x: float, low: float, high: float, colour: str) -> None:
        """Draw an interval."""
        ends = f'y1="{self._y(low):.1f}" y2="{self._y(high):.1f}"'
        self._body.append(f'<line x1="{self._x(x):.1f}" x2="{self._x(x):.1f}" {ends} stroke="{colour}"/>')

    def render(self) -> str:
        """Return the SVG."""
        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH:g} {HEIGHT:g}" role="img" {TEXT}>',
            f"<title>{html.escape(self.title)}</title>",
            f'<rect width="{WIDTH:g}" height="{HEIGHT:g}" fill="#ffffff"/>',
        ]
        floor, wall = HEIGHT - BOTTOM, WIDTH - RIGHT
        for value, label in self.x.ticks.items():
            at = self._x(value)
            parts.append(f'<line x1="{at:.1f}" x2="{at:.1f}" y1="{TOP:g}" y2="{floor:g}" stroke="{GRID}"/>')
            parts.append(f'<text x="{at:.1f}" y="{floor + 16:g}" text-anchor="middle">{html.escape(label)}</text>')
        for value, label in self.y.ticks.items():
            at = self._y(value)
            parts.append(f'<line x1="{LEFT:g}" x2="{wall:g}" y1="{at:.1f}" y2="{at:.1f}" stroke="{GRID}"/>')
            parts.append(f'<text x="{LEFT - 6:g}" y="{at + 4:.1f}" text-anchor="end">{html.escape(label)}</text>')
        middle = (LEFT + wall) / 2
        parts.append(
            f'<text x="{middle:g}" y="{HEIGHT - 10:g}" text-anchor="middle">{html.escape(self.x.title)}</text>'
        )
        turn = f'transform="translate(14 {(TOP + floor) / 2:g}) rotate(-90)"'
        parts.append(f'<text {turn} text-anchor="middle">{html.escape(self.y.title)}</text>')
        parts += self._body
        for index, (label, colour) in enumerate(self._legend):
            x, y = LEFT + 10, TOP + 14 + 16 * index
            if self.legend_below:
                x, y = middle + 90, floor - 16 * (len(self._legend) - index)
            parts.append(f'<rect x="{x:g}" y="{y - 8:g}" width="10" height="10" fill="{colour}"/>')
            parts.append(f'<text x="{x + 16:g}" y="{y + 1:g}">{html.escape(label)}</text>')
        return "\n".join([*parts, "</svg>\n"])

    def _x(self, value: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * self.x.share(value)

    def _y(self, value: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * self.y.share(value)

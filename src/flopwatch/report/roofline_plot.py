"""The roofline of a suite as a picture that needs nothing but itself, and as a page: measured and estimated points.

What is drawn of a case, and where the roofs are, is `flopwatch.report.roofline`'s; here are colours for readers in
light and in dark, names beside the points, and words for those who do not see them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from flopwatch.report.escape import html
from flopwatch.report.page import document, scrolled
from flopwatch.report.roofline import FOOT, HEIGHT, LEFT, MAX_POINTS, RIGHT, TOP, WIDTH, Placed, axes_of, roofline, told
from flopwatch.report.svg import line
from flopwatch.report.wording import count
from flopwatch.static.devices import find_device

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from flopwatch.profile.roofline import Point, RooflinePoints
    from flopwatch.static.device import Device

#: The page's own colours and shapes (`flopwatch.report.page`), and rings for what was not measured.
_STYLE = """\
svg { color-scheme: light dark; --ink: #1b1f24; --paper: #fff; --faint: #d5dae0; --quiet: #57606a; --own: #0550ae;
  --doubt: #8a5a00; color: var(--ink); background: var(--paper); font: 12px system-ui, sans-serif }
@media (prefers-color-scheme: dark) { svg { --ink: #e6e9ed; --paper: #15181c; --faint: #3a414a; --quiet: #a3acb6;
  --own: #79b8ff; --doubt: #f2c14e } }
text { fill: currentColor } .name, .key { fill: var(--quiet) }
.name { font-size: 10px; paint-order: stroke; stroke: var(--paper); stroke-width: 3px }
line { stroke: var(--faint) } line.leader { stroke: var(--quiet) } line.moved { stroke: none }
line.roof { stroke: var(--own); stroke-width: 2 }
.point { fill: currentColor; stroke: var(--paper) } .estimated { color: var(--doubt) }
.estimated .point { fill: none; stroke: currentColor; stroke-width: 1.5 }
"""
#: Of a name beside its point, in units of the viewBox: its characters at most, their width, its height.
NAME_LENGTH, CHARACTER, LINE = 44, 6.0, 12.0
#: Between a point and its name.
GAP = 8.0
#: What is written along the roofs and the axes.
_TEXT = re.compile(r'<text x="([\d.]+)" y="([\d.]+)" text-anchor="(end|middle)">([^<]*)</text>')
_TEXT_CHARACTER = 7.0


@dataclass(frozen=True, kw_only=True, slots=True)
class _Box:
    left: float
    right: float
    top: float
    bottom: float

    def meets(self, other: _Box) -> bool:
        return (
            self.left < other.right and other.left < self.right and self.top < other.bottom and other.top < self.bottom
        )


def roofline_svg(found: RooflinePoints) -> str:
    """Draw the points under the roofs of their device, as a file."""
    device = find_device(found.device)
    cases = [placed(point) for point in found.points[:MAX_POINTS]]
    body = roofline(cases, device).partition("\n")[2].removesuffix("</svg>")
    names, nameless = _names(cases, device, body)
    described = " ".join([headline(found), *_legend(found), *([_unnamed(nameless)] if nameless else [])])
    top = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH:g} {HEIGHT:g}" role="img"'
    return "\n".join(
        [
            f'{top} aria-labelledby="roofline-title roofline-desc">',
            f'<title id="roofline-title">{html(f"Roofline of the {device.name}")}</title>',
            f'<desc id="roofline-desc">{html(described)}</desc>',
            f"<style>\n{_STYLE}</style>",
            f'{body.rstrip()}\n<g aria-hidden="true">',
            *names,
            *_key(found),
            "</g>\n</svg>\n",
        ]
    )


def roofline_page(found: RooflinePoints) -> str:
    """Draw the points on a page, with their numbers below."""
    device = find_device(found.device)
    title = f"Roofline of the {device.name}"
    rows = "\n".join(f"<li><code>{html(told(placed(point), device))}</code></li>" for point in found.points)
    body = [
        f"<h1>{html(title)}</h1>",
        f"<p>{html(headline(found))}</p>",
        scrolled("roofline", roofline_svg(found)),
        *(f'<p class="quiet">{html(sentence)}</p>' for sentence in _legend(found)),
        f"<h2>In numbers</h2>\n<ul>\n{rows}\n</ul>",
    ]
    if found.left_out:
        reasons = "\n".join(f"<li><code>{html(reason)}</code></li>" for reason in found.left_out)
        body.append(f"<h2>Without a point</h2>\n<ul>\n{reasons}\n</ul>")
    return document(f"flopwatch: {title}", body)


def headline(found: RooflinePoints) -> str:
    """Say in one sentence what is drawn."""
    device = find_device(found.device)
    measured = sum(point.measured for point in found.points)
    parts = []
    if measured:
        parts.append(f"{count(measured, 'case')} as measured ({found.source})")
    if estimated := len(found.points) - measured:
        parts.append(f"{count(estimated, 'case')} at the most that their work allows")
    return f"{' and '.join(parts)}, under the roofs of the {device.name}."


def placed(point: Point) -> Placed:
    """Return a point as the roofline draws it."""
    kind, word = ("measured", "in") if point.measured else ("estimated", "at best")
    return Placed(
        name=point.case.id,
        kind=kind,
        flops=point.flops,
        bytes_moved=point.bytes_moved,
        seconds={word: point.seconds},
        values=point.case.values,
    )


def _legend(found: RooflinePoints) -> Iterator[str]:
    yield (
        "Across: FLOPs a byte that the suite declares. Up: TFLOPS. The roofs are the data sheet's: memory, and"
        " arithmetic in each type that the cases name, in 16 bits where they name none."
    )
    if any(point.measured for point in found.points):
        yield "Dots were measured; data that stay in a cache may exceed the memory's roof."
    if any(not point.measured for point in found.points):
        yield "Rings were not: no call can be faster, by its declared work, and the dots and sectors of its launches."
    if found.points[MAX_POINTS:]:
        yield f"The first {MAX_POINTS} of {len(found.points)} cases are drawn."


def _key(found: RooflinePoints) -> Iterator[str]:
    """Yield the words for the two kinds of points, where both or estimates are drawn."""
    kinds = list(dict.fromkeys(placed(point).kind for point in found.points))
    if kinds == ["measured"]:
        return
    for index, kind in enumerate(sorted(kinds, reverse=True)):
        x, y = WIDTH - RIGHT - 96, HEIGHT - 64 - 16 * index
        yield f'<g class="{kind}"><circle class="point" cx="{x:g}" cy="{y:g}" r="4"/></g>'
        yield f'<text class="key" x="{x + 10:g}" y="{y + 4:g}">{kind}</text>'


def _names(cases: Sequence[Placed], device: Device, body: str) -> tuple[list[str], int]:
    """Write each case's name where it covers nothing else; return also how many have no room.

    Args:
        cases: that are drawn.
        device: whose roofs they are under.
        body: the drawing, whose own texts are kept free.
    """
    axes = axes_of(cases, device)
    places = [(case, axes.x(case.place), axes.y(case.heights[0])) for case in cases]
    taken = [_Box(left=x - 4, right=x + 4, top=y - 4, bottom=y + 4) for _, x, y in places]
    taken += _texts(body)
    written: list[str] = []
    named = 0
    for case, x, y in sorted(places, key=lambda place: place[0].kind == "estimated"):  # measured ones first
        text = short_name(case.name)
        box = next((box for box in _candidates(x, y, CHARACTER * len(text)) if not any(map(box.meets, taken))), None)
        if box is not None:
            taken.append(box)
            if not box.top < y < box.bottom:
                written.append(line(x, y, min(max(x, box.left), box.right), min(max(y, box.top), box.bottom), "leader"))
            written.append(f'<text class="name" x="{box.left:.1f}" y="{box.bottom - 3:.1f}">{html(text)}</text>')
            named += 1
    return written, len(cases) - named


def _texts(body: str) -> Iterator[_Box]:
    """Yield where the drawing has texts of its own."""
    for x, y, anchor, text in _TEXT.findall(body):
        width = _TEXT_CHARACTER * len(text)
        left = float(x) - (width if anchor == "end" else width / 2)
        yield _Box(left=left, right=left + width, top=float(y) - LINE, bottom=float(y) + 3)


def _candidates(x: float, y: float, width: float) -> Iterator[_Box]:
    """Yield where a name may stand, the best first: beside its point, then further and further up and down."""
    for lines in (0, -1, 1, -2, 2, 3, 4, 5, 6):
        top = y - LINE / 2 + lines * LINE
        for left in (x + GAP, x - GAP - width, x - width / 2):
            box = _Box(left=left, right=left + width, top=top, bottom=top + LINE)
            if box.left >= LEFT and box.right <= WIDTH - RIGHT and box.top >= TOP and box.bottom <= HEIGHT - FOOT:
                yield box


def short_name(name: str) -> str:
    """Return a case's name as it stands beside its point: without our own provider, which is the rule, and cut.

    >>> short_name("Matmul[16x4096x4096,float16,flopwatch]"), short_name("Matmul[16x4096x4096,float16,torch]")
    ('Matmul 16x4096x4096 float16', 'Matmul 16x4096x4096 float16 torch')
    """
    text = name.replace("[", " ").rstrip("]").replace(",", " ").removesuffix(" flopwatch")
    return text if len(text) <= NAME_LENGTH else f"{text[: NAME_LENGTH - 1]}…"


def _unnamed(number: int) -> str:
    return f"{count(number, 'point')} had no room for a name."

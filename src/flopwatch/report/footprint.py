"""Which elements each program of a launch accesses, as a picture that needs nothing but itself.

A column for each tensor and kind of access; a row for all programs, one for the first wave, one for each program by
itself. An element has the colour of the first program that accesses it; whoever points at it is told of the others.
The numbers that the colours stand for are beside the row that has them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flopwatch.report.escape import html
from flopwatch.report.svg import canvas
from flopwatch.report.wording import count

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flopwatch.static.traffic.footprint import Footprint, Panel, Rectangle

#: Layout, in units of the viewBox: a panel's longer side, and what is around it.
SIDE, GAP, LEFT, HEAD, FOOT, ROW = 128.0, 40.0, 184.0, 102.0, 44.0, 20.0
#: A panel's shorter side, at least.
_LEAST = 24.0
#: Characters of a heading over a panel or beside a row, of 6.4 in width, and of bold ones; of the
#: configuration's small ones, most of them capitals.
_NAME, _BOLD, _SMALL = 26, 6.8, 5.9
#: Of the bar of a row's colours.
_BAR = 60.0
#: Viridis, whose order readers with any colour vision see, and who print it (van der Walt and Smith, 2015).
_STOPS = ((68, 1, 84), (59, 82, 139), (33, 145, 140), (94, 201, 98), (253, 231, 37))
# No variables: programs beside browsers, such as Inkscape and rsvg-convert, take what has one for black.
_STYLE = """\
<style>
:root { color-scheme: light dark }
text { fill: #1b1f24; font: 12px system-ui, sans-serif } .name { font-weight: 600 }
.config { font-size: 9px } rect { shape-rendering: crispEdges }
.paper { fill: #fff } .tensor { fill: #eef0f3; stroke: #c3c9d1 }
@media (prefers-color-scheme: dark) {
text { fill: #e6e9ed } .paper { fill: #15181c } .tensor { fill: #262c34; stroke: #4a525d }
}
</style>
"""


def footprint_svg(footprint: Footprint, case: str) -> str:
    """Draw a launch.

    Args:
        footprint: with a panel at least.
        case: the name of the case that launched it.

    Raises:
        ValueError: there is no panel.
    """
    if not footprint.panels:
        raise ValueError("there is nothing to draw")
    tall = max(_size(panel)[1] for panel in footprint.panels) + ROW
    width = max(LEFT + len(footprint.panels) * (SIDE + GAP), 560.0)
    height = HEAD + tall * len(footprint.layers) + FOOT
    room = int((width - 24) / _BOLD)
    grid = f" ({'x'.join(map(str, footprint.grid))})" if len(footprint.grid) > 1 else ""
    title = f"{footprint.kernel}, {count(footprint.programs, 'program')}{grid}, {footprint.device}"
    parts = [
        canvas(width, height, f"What each program of {title} accesses: {case}"),
        f'{_STYLE}{_order()}<rect class="paper" width="{width:g}" height="{height:g}"/>',
        f'<text class="name" x="12" y="20">{html(case, length=room)}</text>',
        f'<text x="12" y="38">{html(title, length=room)}</text>',
        f'<text class="config" x="12" y="56">{html(footprint.config, length=int((width - 24) / _SMALL))}</text>',
    ]
    for place, panel in enumerate(footprint.panels):
        left = LEFT + place * (SIDE + GAP)
        name = f"{panel.access} {panel.argument}{' *' if panel.strays else ''}"
        told = f"{_shape(panel)}, {panel.element_bytes} bytes each, in boxes of {panel.box[0]}x{panel.box[1]}"
        parts += [
            f"<g><title>{html(f'{name}: {told}')}</title>",
            f'<text class="name" x="{left:g}" y="{HEAD - 26:g}">{html(name, length=_NAME)}</text>',
            f'<text x="{left:g}" y="{HEAD - 10:g}">{html(_shape(panel), length=_NAME)}</text></g>',
        ]
    for index, layer in enumerate(footprint.layers):
        top, scale = HEAD + tall * index, _scale(footprint, index)
        parts.append(f'<text x="12" y="{top + 14:g}">{html(_layer(footprint, layer), length=_NAME)}</text>')
        if layer[0] < layer[1] and scale[0] < scale[1]:
            parts += [
                f'<rect x="12" y="{top + 23:g}" width="{_BAR:g}" height="8" fill="url(#order)"/>',
                f'<text x="{_BAR + 18:g}" y="{top + 31:g}">{scale[0]} to {scale[1]}</text>',
            ]
        for place, panel in enumerate(footprint.panels):
            parts += _panel(panel, index, scale, LEFT + place * (SIDE + GAP), top)
    return "\n".join([*parts, *_foot(footprint, height, room), "</svg>\n"])


def _panel(panel: Panel, index: int, scale: tuple[int, int], left: float, top: float) -> Iterator[str]:
    """Yield one tensor, as far as the programs of a layer access it; inside, a unit is an element."""
    wide, tall = _size(panel)
    yield f'<rect class="tensor" x="{left:g}" y="{top:g}" width="{wide:.4g}" height="{tall:.4g}"/>'
    yield f'<g transform="translate({left:g} {top:g}) scale({wide / panel.columns:.6g} {tall / panel.rows:.6g})">'
    for each in panel.layers[index]:
        yield (
            f'<rect x="{each.column}" y="{each.row}" width="{each.columns}" height="{each.rows}"'
            f' fill="{_colour(each.first, scale)}"><title>{html(_told(panel, each))}</title></rect>'
        )
    yield "</g>"


def _scale(footprint: Footprint, index: int) -> tuple[int, int]:
    """Return the programs that have the first and the last colour: a wave's own, else of all and of single ones."""
    first, last = footprint.layers[index]
    if index and first < last:
        rows = [index]
    else:  # a single one may be the first nowhere, and beyond all that are
        rows = [0, *(place for place, (low, high) in enumerate(footprint.layers) if low == high)]
    shown = [each.first for panel in footprint.panels for row in rows for each in panel.layers[row]]
    return min(shown, default=0), max(shown, default=0)


def _order() -> str:
    """Define the colours in their order."""
    stops = "".join(
        f'<stop offset="{place / (len(_STOPS) - 1):g}" stop-color="{_hex(stop)}"/>' for place, stop in enumerate(_STOPS)
    )
    return f'<defs><linearGradient id="order">{stops}</linearGradient></defs>\n'


def _foot(footprint: Footprint, height: float, room: int) -> Iterator[str]:
    """Yield what the colours mean, and what is not shown."""
    y = height - FOOT + 20
    told = "colour: the first program that accesses it; single programs as in the top row"
    yield f'<text x="12" y="{y:g}">{html(told)}</text>'
    notes = [f"not shown: {cause}" for cause in footprint.unknown]
    if any(panel.strays for panel in footprint.panels):
        notes.insert(0, "* also accessed beside its elements")
    if notes:
        yield f'<text x="12" y="{y + 17:g}">{html("; ".join(notes), length=room)}</text>'


def _size(panel: Panel) -> tuple[float, float]:
    """Return the width and the height of a panel."""
    scale = SIDE / max(panel.rows, panel.columns)
    return max(panel.columns * scale, _LEAST), max(panel.rows * scale, _LEAST)


def _shape(panel: Panel) -> str:
    """Say what is shown of a tensor."""
    shape = "x".join(map(str, panel.shape)) or "a scalar"
    leading = len(panel.shape) - 2
    return f"{'0, ' * leading}:, : of {shape}" if leading > 0 else shape


def _layer(footprint: Footprint, layer: tuple[int, int]) -> str:
    """Say whose accesses a row shows."""
    first, last = layer
    if layer == (0, footprint.programs - 1):
        return f"all {count(footprint.programs, 'program')}" if last else "the only program"
    if first != last:
        return f"first wave: {first} to {last}"
    place = []
    for size in footprint.grid:
        place.append(first % size)
        first //= size
    return f"program {last}" + (f" ({', '.join(map(str, place))})" if len(place) > 1 else "")


def _told(panel: Panel, each: Rectangle) -> str:
    """Say of a rectangle where it is and who accesses it."""
    places = f"columns {each.column} to {each.column + each.columns - 1}"
    if panel.rows > 1:
        places = f"rows {each.row} to {each.row + each.rows - 1}, {places}"
    if each.programs == 1:
        return f"{places}: program {each.first}"
    return f"{places}: {each.programs} programs, {each.first} to {each.last}"


def _colour(program: int, scale: tuple[int, int]) -> str:
    """Return the colour of a program between the first and the last.

    >>> _colour(0, (0, 4)), _colour(2, (0, 4)), _colour(4, (0, 4)), _colour(7, (7, 7))
    ('#440154', '#21918c', '#fde725', '#440154')
    """
    first, last = scale
    place = (program - first) / max(last - first, 1) * (len(_STOPS) - 1)
    left = min(int(place), len(_STOPS) - 2)
    mixed = tuple(round(a + (b - a) * (place - left)) for a, b in zip(_STOPS[left], _STOPS[left + 1], strict=True))
    return _hex(mixed)


def _hex(colour: tuple[int, ...]) -> str:
    return "#" + "".join(f"{part:02x}" for part in colour)

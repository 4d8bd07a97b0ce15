"""A history as SVG, alone or in a page of HTML: no script, no font, no network; each point says in words what it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flopwatch.report.escape import html
from flopwatch.report.history import MAX_CHANGES, limits, place, shown, title, words
from flopwatch.report.wording import count
from flopwatch.units import short_commit

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flopwatch.history import History, Point, Series

#: Layout of one series, in units of the viewBox.
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 960, 260, 110, 24, 34, 34
_COLUMNS = WIDTH - LEFT - RIGHT
_STYLE = """\
:root { color-scheme: light dark }
.history { --ink: #1b1f24; --paper: #fff; --faint: #d5dae0; --own: #0550ae; --bad: #b3261e }
@media (prefers-color-scheme: dark) {
  .history { --ink: #e6e9ed; --paper: #15181c; --faint: #3a414a; --own: #79b8ff; --bad: #ff8a80 } }
.history text { fill: var(--ink); font: 12px system-ui, sans-serif } .history .head { font-weight: 600 }
.history .paper { fill: var(--paper) } .history .grid { stroke: var(--faint) }
.history .line { fill: none; stroke: var(--own); stroke-width: 1.5 } .history .point { fill: var(--own) }
.history .change { stroke: var(--bad); stroke-dasharray: 4 3 } .history .failed { stroke: var(--bad); fill: none }
"""
_PAGE_STYLE = """\
body { margin: 0 auto; max-width: 72rem; padding: 1rem; font: 1rem/1.5 system-ui, sans-serif }
h1 { font-size: 1.4rem } h2 { font-size: 1.1rem; overflow-wrap: anywhere } svg { width: 100%; height: auto }
.scroll { overflow: auto; max-height: 24rem } table { border-collapse: collapse }
th, td { padding: .2rem .6rem; text-align: left } td:last-child { text-align: right }
:focus-visible { outline: 3px solid #0550ae; outline-offset: 2px }
"""
_HEAD = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
"""


def svg(history: History) -> str:
    """Return a file with all series below each other."""
    return _svg(history, history.series, f"<style>\n{_STYLE}</style>\n") + "\n"


def page(history: History) -> str:
    """Return a page: for each series its plot, its changes, and its values in a table."""
    name = html(f"History of {history.metric.replace('_', ' ')}")
    parts = [f"{_HEAD}<title>{name}</title>\n<style>\n{_PAGE_STYLE}{_STYLE}</style>\n</head>\n<body>\n<main>"]
    parts.append(f"<h1>{name}</h1>")
    for series in history.series:
        parts += [
            "<section>",
            f"<h2>{html(title(history, series))}</h2>",
            _svg(history, (series,), ""),
            *_changes(history, series),
            *_table(history, series),
            "</section>",
        ]
    parts += [f"<p>note: {html(note)}</p>" for note in history.notes]
    return "\n".join([*parts, "</main>\n</body>\n</html>\n"])


def describe(history: History, series: Series) -> str:
    """Say in a sentence what the plot of a series shows, for whoever does not see it."""
    points = [f"{short_commit(point.commit)} ({point.date}): {_said(point, history.unit)}" for point in series.points]
    ends = points[:1] if len(points) == 1 else [points[0], points[-1]]
    changed = f"; {count(len(series.changes), 'change')} of level" if series.changes else "; no change of level"
    return f"{title(history, series)}; {count(len(points), 'commit')}, from {' to '.join(ends)}{changed}"


def _svg(history: History, shown_series: tuple[Series, ...], style: str) -> str:
    height = HEIGHT * len(shown_series)
    name = html(f"{history.metric.replace('_', ' ')}, {len(shown_series)} series")
    if len(shown_series) == 1:
        name = html(title(history, shown_series[0]))
    told = html(". ".join(describe(history, series) for series in shown_series), length=10_000)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="history" viewBox="0 0 {WIDTH} {height}" role="img">',
        f"<title>{name}</title>\n<desc>{told}</desc>",
        f'{style}<rect class="paper" width="{WIDTH}" height="{height}"/>',
    ]
    for number, series in enumerate(shown_series):
        parts += [
            f'<g transform="translate(0 {number * HEIGHT})">',
            *_panel(history, series, headed=bool(style)),
            "</g>",
        ]
    return "\n".join([*parts, "</svg>"])


def _panel(history: History, series: Series, *, headed: bool) -> Iterator[str]:
    """Yield one plot; in a page its heading is the section's."""
    values = [point.value for point in series.points if point.value is not None]
    if headed:
        yield f'<text class="head" x="8" y="18">{html(title(history, series), length=140)}</text>'
    if not values:
        yield f'<text x="{LEFT}" y="{HEIGHT // 2}">failed at every commit shown</text>'
        return
    low, high = limits(values)
    floor = HEIGHT - BOTTOM

    def y(value: float) -> float:
        share = (value - low) / (high - low) if high > low else 0.5
        return floor - 8 - share * (floor - TOP - 16)

    for value in sorted({low, (low + high) / 2, high}):
        yield f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(value):.1f}" y2="{y(value):.1f}"/>'
        label = html(shown(value, history.unit))
        yield f'<text x="{LEFT - 8}" y="{y(value) + 4:.1f}" text-anchor="end">{label}</text>'
    yield from _ends(series)
    changes = {change.commit: change for change in series.changes}
    line: list[str] = []
    points = []
    for index, point in enumerate(series.points):
        x = _x(index, series)
        if point.commit in changes:
            told = html(f"{short_commit(point.commit)} {point.date}: {words(changes[point.commit], history.unit)}")
            yield f'<line class="change" x1="{x}" x2="{x}" y1="{TOP}" y2="{floor}"><title>{told}</title></line>'
        told = html(f"{short_commit(point.commit)} {point.date}: {_said(point, history.unit)}")
        if point.value is None:
            yield from _drawn(line)
            line = []
            cross = f"M{x - 4} {floor - 4}l8 8m0-8l-8 8"
            points.append(f'<path class="failed" d="{cross}"><title>{told}</title></path>')
            continue
        line.append(f"{x},{y(point.value):.1f}")
        points.append(f'<circle class="point" cx="{x}" cy="{y(point.value):.1f}" r="3"><title>{told}</title></circle>')
    yield from _drawn(line)
    yield from points


def _ends(series: Series) -> Iterator[str]:
    """Yield the first and the last commit, below the plot."""
    first, last = series.points[0], series.points[-1]
    y = HEIGHT - 12
    yield f'<text x="{LEFT}" y="{y}">{html(f"{short_commit(first.commit)} {first.date}")}</text>'
    if last is not first:
        label = html(f"{short_commit(last.commit)} {last.date}")
        yield f'<text x="{WIDTH - RIGHT}" y="{y}" text-anchor="end">{label}</text>'


def _drawn(line: list[str]) -> Iterator[str]:
    if len(line) > 1:
        yield f'<polyline class="line" points="{" ".join(line)}"/>'


def _x(index: int, series: Series) -> int:
    """Return where a commit stands; to a unit, which is less than a pixel on most screens."""
    return LEFT + place(index, len(series.points), _COLUMNS + 1)


def _changes(history: History, series: Series) -> Iterator[str]:
    if not series.changes:
        return
    dates = {point.commit: point.date for point in series.points}
    yield "<ul>"
    for change in series.changes[-MAX_CHANGES:]:
        told = f"{dates[change.commit]}: {words(change, history.unit)}"
        yield f"<li><code>{html(short_commit(change.commit))}</code> {html(told)}</li>"
    yield "</ul>"


def _table(history: History, series: Series) -> Iterator[str]:
    """Yield the values, the newest first, in a fold."""
    name = html(f"Values of {series.case}")
    yield f"<details><summary>{count(len(series.points), 'value')}</summary>"
    yield f'<div class="scroll" tabindex="0" role="region" aria-label="{name}"><table>'
    yield f"<caption>{name}</caption>"
    yield '<tr><th scope="col">commit</th><th scope="col">date</th><th scope="col">value</th></tr>'
    for point in reversed(series.points):
        cells = (short_commit(point.commit), point.date, _said(point, history.unit))
        yield f"<tr>{''.join(f'<td>{html(cell)}</td>' for cell in cells)}</tr>"
    yield "</table></div></details>"


def _said(point: Point, unit: str) -> str:
    return "failed" if point.value is None else shown(point.value, unit)

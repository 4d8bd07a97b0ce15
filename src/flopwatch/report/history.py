"""A history in a terminal: a line of points for each series, as wide as there is room, and what changed in words."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

from rich.text import Text

from flopwatch.report.foreign import safe
from flopwatch.report.wording import count, effect
from flopwatch.units import format_bytes, format_seconds, short_commit
from flopwatch.waivers import printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import Console

    from flopwatch.history import Change, History, Point, Series

#: Rows of a plot, an odd number so that one is the middle; and series and changes that are shown, the rest are counted.
ROWS = 9
MAX_SERIES = 8
MAX_CHANGES = 12
#: Columns from one commit to the next, at most: a few commits are no reason to fill the screen.
SPREAD = 6
#: Of the values' axis.
LEAST_SPAN = 0.01
#: Where series differ in labels, all are told; these always are.
MACHINE, GPU = "machine", "gpu"
_POINT, _RANGE, _FAILED, _CHANGE, _FLOOR = "•", "┊", "×", "▲", "─"  # noqa: RUF001 - a cross, not a letter


def print_history(history: History, console: Console) -> None:
    """Print a plot of each series, its first and last value, and its changes."""
    for number, series in enumerate(history.series[:MAX_SERIES]):
        if number:
            console.print()
        console.print(safe(title(history, series), "bold"), soft_wrap=True)
        for line in plot(series, history.unit, console.width):
            console.print(Text(line), soft_wrap=True)
        for line in told(series, history.unit):
            console.print(safe(line, indent=2), soft_wrap=True)
    if history.series[MAX_SERIES:]:
        console.print(f"\nand {len(history.series) - MAX_SERIES} more series; name the case in full, or see --json.")
    for note in history.notes:
        console.print(safe(f"note: {note}"), soft_wrap=True)


def title(history: History, series: Series) -> str:
    """Say what a series is of, and what it was recorded with."""
    labels = [f"{name} {value}" for name, value in series.labels.items() if name not in (MACHINE, GPU)]
    machine = [series.labels[name] for name in (MACHINE, GPU) if name in series.labels]
    metric = history.metric.replace("_", " ")
    return f"{series.case}: {metric}; {', '.join([*dict.fromkeys(machine), *labels])}"


def plot(series: Series, unit: str, width: int) -> list[str]:
    """Draw a series: values upwards, commits from left to right, as many to a column as there must be.

    Args:
        series: what to draw.
        unit: of the values.
        width: columns that there are.

    Returns:
        The lines, none of which is longer; none where the case failed at every commit.
    """
    values = [point.value for point in series.points if point.value is not None]
    if not values:
        return []
    low, high = limits(values)
    rows = ROWS if high > low else 1
    ticks = {0: high, rows // 2: (low + high) / 2, rows - 1: low}
    labels = {row: printable(shown(value, unit)) for row, value in ticks.items()}
    margin = max(map(len, labels.values()))
    columns = max(width - margin - 2, 1)
    grid = _grid(series.points, min(columns, SPREAD * (len(series.points) - 1) + 1), rows, (low, high))
    lines = [
        f"{labels.get(row, ''):>{margin}} {'┤' if row in labels else '│'}{''.join(cells).rstrip()}"
        for row, cells in enumerate(grid)
    ]
    return [*lines, f"{'':{margin}} └{_floor(series, len(grid[0]))}"]


def told(series: Series, unit: str) -> Iterator[str]:
    """Yield the first and the last value of a series, and between them what changed, with commits and dates."""
    dates = {point.commit: point.date for point in series.points}
    first, last = series.points[0], series.points[-1]
    if len(series.points) > 1:
        yield f"first {_value(first, unit)}"
    for change in series.changes[-MAX_CHANGES:]:
        yield f"{_CHANGE} {short_commit(change.commit)} {dates[change.commit]}: {words(change, unit)}"
    if series.changes[:-MAX_CHANGES]:
        yield f"and {len(series.changes) - MAX_CHANGES} changes before"
    yield f"last  {_value(last, unit)}"
    failed = sum(point.value is None for point in series.points)
    if failed:
        yield f"{_FAILED} failed at {count(failed, 'commit')} of {len(series.points)}"


def words(change: Change, unit: str) -> str:
    """Say what changed, with the effect and its interval where it has them."""
    text = f"{shown(change.from_value, unit)} -> {shown(change.to_value, unit)}"
    if change.effect is not None and unit == "seconds":
        text += f", {effect(change.effect, change.lower, change.upper)}"
    elif change.from_value:
        text += f", {(change.to_value / change.from_value - 1) * 100:+.2f} %"
    return text if change.settled else f"{text}; the place may still move"


def shown(value: float, unit: str) -> str:
    """Write a value with its unit.

    >>> shown(231.44e-6, "seconds"), shown(147456.0, "bytes"), shown(87.5, "percent"), shown(64.0, "registers")
    ('231.4 µs', '144 KiB', '87.5 %', '64 registers')
    """
    if unit == "seconds":
        return format_seconds(value)
    if unit == "bytes":
        return format_bytes(round(value))
    return f"{value:.4g} {'%' if unit == 'percent' else unit}".rstrip()


def limits(values: Sequence[float]) -> tuple[float, float]:
    """Return the ends of the axis of values: 1 % apart at least, so that noise does not look like a change.

    >>> limits([99.9, 100.1]), limits([100.0, 150.0]), limits([64.0, 64.0])
    ((99.5, 100.5), (100.0, 150.0), (64.0, 64.0))
    """
    low, high = min(values), max(values)
    middle, half = (low + high) / 2, max(high - low, LEAST_SPAN * abs(low + high) / 2) / 2
    return (middle - half, middle + half) if high > low else (low, high)


def place(index: int, points: int, columns: int) -> int:
    """Return the column of a point: the first is at the left, the last at the right.

    >>> [place(index, 3, 9) for index in range(3)], place(0, 1, 1)
    ([0, 4, 8], 0)
    """
    return round(index * (columns - 1) / (points - 1)) if points > 1 else 0


def _grid(points: Sequence[Point], columns: int, rows: int, ends: tuple[float, float]) -> list[list[str]]:
    """Put each column's median into its row, with the range of its commits where it has several."""
    low, high = ends
    by_column: dict[int, list[float]] = {}
    for index, point in enumerate(points):
        if point.value is not None:
            by_column.setdefault(place(index, len(points), columns), []).append(point.value)
    grid = [[" "] * columns for _ in range(rows)]

    def row(value: float) -> int:
        return round((high - value) / (high - low) * (rows - 1)) if high > low else 0

    for column, values in by_column.items():
        for between in range(row(max(values)), row(min(values)) + 1):
            grid[between][column] = _RANGE
        grid[row(statistics.median(values))][column] = _POINT
    return grid


def _floor(series: Series, columns: int) -> str:
    """Draw the axis of the commits: changes and failures."""
    cells = [_FLOOR] * columns
    changed = {change.commit for change in series.changes}
    for index, point in enumerate(series.points):
        column = place(index, len(series.points), columns)
        if point.commit in changed:
            cells[column] = _CHANGE
        elif point.value is None and cells[column] != _CHANGE:
            cells[column] = _FAILED
    return "".join(cells)


def _value(point: Point, unit: str) -> str:
    return f"{short_commit(point.commit)} {point.date}: {'failed' if point.value is None else shown(point.value, unit)}"

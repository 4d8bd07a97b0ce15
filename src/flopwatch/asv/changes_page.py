"""The page of changes: plain HTML that says everything without a script, so that it can be mailed and kept.

A few lines of script filter it. Whatever comes from a repository (names, subjects, parameters) is text, never markup.
"""

from __future__ import annotations

import datetime as dt
import itertools
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from flopwatch.asv.changes import CaseChange, Direction
from flopwatch.report.escape import html as escape
from flopwatch.report.wording import count

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

#: The page has so many changes at most, the newest; changes.json has all. So many are 2.4 MB of HTML (of that change
#: which the tests render, 2026-11-22).
LARGEST_PAGE = 3000
_COLUMNS = ("Case", "Metric", "Effect", "Before → after", "Suspected cause")
_ARROWS = {Direction.WORSE: "▲ worse", Direction.BETTER: "▼ better", Direction.OTHER: "• other"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Commit:
    """A commit's day, YYYY-MM-DD, and the first line of its message."""

    date: str = ""
    subject: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """Where the page belongs.

    Attributes:
        project: its name.
        commit_url: what leads to a commit when its hash is appended; empty for no links.
        commits: what is known of them, by hash.
        built: when.
    """

    project: str
    commit_url: str
    commits: Mapping[str, Commit]
    built: dt.datetime


def render_changes(changes: Sequence[CaseChange], place: Place) -> str:
    """Write the page."""
    shown = changes[:LARGEST_PAGE]
    body = "\n".join(
        _commit(list(group), place)
        for _, group in itertools.groupby(shown, key=lambda change: (change.last, change.first))
    )
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>What changed: {escape(place.project)}</title>
<link rel="icon" href="swallow.ico">
<link rel="stylesheet" href="changes.css">
<script src="changes.js" defer></script>
</head>
<body>
<a class="skip" href="#changes">Skip to the changes</a>
<header>
<nav aria-label="Pages">
<a href="index.html#/">Benchmark grid</a>
<a href="index.html#/summarylist">Benchmark list</a>
<a href="changes.html" aria-current="page">Changes</a>
<a href="index.html#/regressions">Regressions</a>
</nav>
<h1>What changed, and when: {escape(place.project)}</h1>
<p id="summary">{escape(_summary(changes))}</p>
{_left_out(len(changes) - len(shown))}
<form id="filters" hidden>
{_filters(shown)}
<label>Search <input type="search" name="text" placeholder="case, commit or cause"></label>
<output id="matches" aria-live="polite"></output>
</form>
</header>
<main id="changes" tabindex="-1">
{body}
</main>
<footer><p>Built {place.built:%Y-%m-%d}. Effects are in percent of the level before, with 95 % intervals.</p></footer>
</body>
</html>
"""


def _summary(changes: Sequence[CaseChange]) -> str:
    """Say in one sentence how many changes there are.

    >>> _summary([])
    'No case has changed its level.'
    """
    if not changes:
        return "No case has changed its level."
    commits = len({change.first for change in changes})
    found = Counter(change.direction for change in changes)
    parts = ", ".join(f"{found[direction]} {direction}" for direction in Direction if found[direction])
    return f"{count(len(changes), 'change')} at {count(commits, 'commit')}: {parts}. The newest first."


def _left_out(number: int) -> str:
    if number <= 0:
        return ""
    return f'<p>The {number} oldest are left out here; <a href="changes.json">changes.json</a> has all.</p>'


def _filters(changes: Sequence[CaseChange]) -> str:
    """Write a selector for each property in which the changes differ."""
    offered: dict[str, Iterable[str]] = {
        "direction": [direction for direction in Direction if any(change.direction == direction for change in changes)],
        "metric": dict.fromkeys(change.metric for change in changes),
    }
    for name in dict.fromkeys(name for change in changes for name in change.axes):
        offered[name] = sorted({change.axes.get(name, "") for change in changes})
    return "\n".join(_filter(name, list(values)) for name, values in offered.items())


def _filter(name: str, values: Sequence[str]) -> str:
    options = "".join(f'<option value="{escape(value)}">{escape(value)}</option>' for value in values)
    return (
        f'<label>{escape(name)} <select name="{escape(name)}"><option value="">all</option>{options}</select></label>'
    )


def _commit(changes: Sequence[CaseChange], place: Place) -> str:
    """Write what changed at one commit, or somewhere in a range of commits."""
    first = changes[0]
    commit = place.commits.get(first.first, Commit())
    where = _commit_link(first.first, place)
    if first.commits > 1:
        where = f"one of {first.commits} commits after {_commit_link(first.last, place)}, up to {where}"
    rows = "\n".join(map(_row, changes))
    name = escape(f"commit-{first.first}-{first.last}")
    return f"""<section aria-labelledby="{name}">
<h2 id="{name}"><time>{escape(commit.date)}</time> {where} <span>{escape(commit.subject)}</span></h2>
<table>
<thead><tr>{"".join(f'<th scope="col">{column}</th>' for column in _COLUMNS)}</tr></thead>
<tbody>
{rows}
</tbody>
</table>
</section>"""


def _row(change: CaseChange) -> str:
    properties = {"direction": change.direction, "metric": change.metric, **change.axes}
    data = "&#10;".join(escape(f"{name}={value}") for name, value in properties.items())  # a line each
    levels = "<br>".join(
        escape(f"{level.name.replace('_', ' ')} {level.before} → {level.after}") for level in change.levels
    )
    where = "".join(f"<small>{escape(f'{name} {value}')}</small>" for name, value in change.axes.items())
    suspects = "<br>".join(map(escape, change.suspects)) or "not known"
    cells = (
        f'<a href="{escape(change.link)}">{escape(change.case)}</a>{where}',
        escape(change.metric.replace("_", " ")),
        f"<strong>{_ARROWS[change.direction]} {_effect(change)}</strong>{_doubt(change)}",
        levels,
        suspects,
    )
    # Small screens show each cell with the name of its column.
    written = "".join(
        f'<td data-label="{label}"><div>{cell}</div></td>' for label, cell in zip(_COLUMNS, cells, strict=True)
    )
    return f'<tr class="{change.direction}" data-is="{data}">{written}</tr>'


def _effect(change: CaseChange) -> str:
    return "from zero" if change.effect is None else f"{change.effect:+.2f} %"


def _doubt(change: CaseChange) -> str:
    """Write what a test says of the effect; what repeats exactly has no doubt."""
    said = []
    if change.p is not None and change.lower is not None and change.upper is not None:
        said.append(f"{change.lower:+.2f} to {change.upper:+.2f} %")
    if change.p is not None:
        said.append(f"p = {change.p:.0e}")
    if not change.settled:
        said.append("the place may still move")
    return f"<small>{escape(', '.join(said))}</small>" if said else ""


def _commit_link(commit: str, place: Place) -> str:
    """Link a commit, where it can be linked: nothing but the web is a link."""
    short = f"<code>{escape(commit[:8])}</code>"
    if not place.commit_url.startswith(("https://", "http://")):
        return short
    return f'<a href="{escape(place.commit_url + commit)}">{short}</a>'

from __future__ import annotations

import io
import math
import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from rich.console import Console

from flopwatch.history import Change, History, Point, Series
from flopwatch.report.history import MAX_CHANGES, MAX_SERIES, plot, print_history
from flopwatch.report.history_page import page, svg

GOLDEN = Path(__file__).parent / "golden"
SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = "</title></svg><script>alert(1)</script>[red]x\x1b[2J"


def point(place: int, value: float | None) -> Point:
    return Point(commit=f"{place:04x}" * 10, date=f"2026-11-{1 + place % 30:02}", value=value)


STEPPED = Series(
    case="Matmul[4096x4096x4096,float16,flopwatch]",
    labels={"gpu": "NVIDIA H200", "machine": "h200", "python": "3.12", "triton": "3.6.0"},
    points=tuple(
        point(place, None if place == 7 else (231e-6 if place < 14 else 240e-6) * (1 + 2e-3 * math.sin(5 * place)))
        for place in range(24)
    ),
    changes=(
        Change(
            commit=point(14, 0).commit,
            before=point(13, 0).commit,
            from_value=231e-6,
            to_value=240e-6,
            effect=0.0382,
            lower=0.0371,
            upper=0.0393,
            settled=False,
        ),
    ),
)
TIMES = History(
    metric="time", unit="seconds", series=(STEPPED,), notes=("results of 2 commits left out: recorded with others",)
)
REGISTERS = History(
    metric="registers",
    unit="registers",
    series=(
        Series(
            case="Scale[1000,flopwatch]",
            labels={"machine": "none"},
            points=(point(0, 168.0), point(1, 168.0), point(2, 255.0)),
            changes=(Change(commit=point(2, 0).commit, before=point(1, 0).commit, from_value=168.0, to_value=255.0),),
        ),
        Series(case="Scale[2000,flopwatch]", labels={"machine": "none"}, points=(point(0, 40.0), point(1, 40.0))),
        Series(case="Scale[4000,flopwatch]", labels={"machine": "none"}, points=(point(0, 40.0),)),
    ),
)


def rendered(history: History, width: int = 100) -> str:
    console = Console(file=io.StringIO(), width=width, color_system=None, force_terminal=False)
    print_history(history, console)
    output = console.file
    assert isinstance(output, io.StringIO)
    return "\n".join(line.rstrip() for line in output.getvalue().splitlines()) + "\n"


@pytest.mark.parametrize(
    ("name", "history", "width"), [("times", TIMES, 100), ("narrow", TIMES, 24), ("registers", REGISTERS, 100)]
)
def test_the_output_is_the_golden_file(name: str, history: History, width: int) -> None:
    # To accept a change: write rendered(...) into the file, and read the diff as a user would.
    assert rendered(history, width) == (GOLDEN / f"history-{name}.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize("width", [20, 40, 80, 200])
@pytest.mark.parametrize("commits", [1, 2, 30, 5000])
def test_a_plot_is_no_wider_than_the_terminal_and_ends_at_both_sides(width: int, commits: int) -> None:
    series = replace(
        STEPPED, points=tuple(point(place, 1e-3 * (1 + place / commits)) for place in range(commits)), changes=()
    )
    lines = plot(series, "seconds", width)
    assert max(map(len, lines)) <= width
    if commits > 1:
        assert lines[-2].partition("┤")[2].startswith(("•", "┊"))
        assert len(lines[0]) == len(lines[-1])


def test_a_column_of_many_commits_shows_their_median_and_their_range() -> None:
    values = [1.0] * 60 + [2.0] * 30 + [1.5] * 60
    series = replace(STEPPED, points=tuple(point(place, value) for place, value in enumerate(values)), changes=())
    lines = plot(series, "seconds", len("1.000 s ┤") + 3)
    # 23 commits take 1 s, 30 take 2 s and 22 take 1.5 s.
    assert "".join(line[len("1.000 s ┤") + 1] for line in lines[:-1]) == "┊┊┊┊•┊┊┊┊"


def test_a_commit_that_failed_is_marked_below_its_place() -> None:
    floor = plot(STEPPED, "seconds", 200)[-1].partition("└")[2]
    assert floor.index("×") == 7 * 6  # noqa: RUF001 - the mark
    assert floor.index("▲") == 14 * 6


def test_many_series_and_changes_are_counted() -> None:
    many = replace(TIMES, series=(replace(STEPPED, changes=STEPPED.changes * (MAX_CHANGES + 2)),) * (MAX_SERIES + 3))
    text = rendered(many)
    assert "and 2 changes before" in text
    assert "and 3 more series" in text


def test_where_all_commits_shown_failed_that_is_told() -> None:
    history = replace(TIMES, series=(replace(STEPPED, points=(point(0, None), point(1, None)), changes=()),))
    assert "failed at 2 commits of 2" in rendered(history)
    assert "failed at every commit shown" in svg(history)


@pytest.mark.parametrize("history", [TIMES, REGISTERS])
def test_the_svg_has_a_title_a_description_and_a_word_for_every_point(history: History) -> None:
    root = ET.fromstring(svg(history))  # noqa: S314 - our own
    assert root.get("role") == "img"
    assert root.find(f"{SVG}title") is not None
    description = root.find(f"{SVG}desc")
    assert description is not None
    assert description.text is not None
    assert all(series.case in description.text for series in history.series)
    marks = [*root.iter(f"{SVG}circle"), *root.iter(f"{SVG}path"), *root.iter(f"{SVG}line")]
    told = [title.text or "" for mark in marks if (title := mark.find(f"{SVG}title")) is not None]
    points = sum(len(series.points) for series in history.series)
    changes = sum(len(series.changes) for series in history.series)
    assert len(told) == points + changes
    assert all(re.match(r"[0-9a-f]{12} 2026-11-\d\d: ", text) for text in told)


def test_the_line_is_broken_where_the_case_failed() -> None:
    root = ET.fromstring(svg(TIMES))  # noqa: S314 - our own
    lines = [line.get("points", "").split() for line in root.iter(f"{SVG}polyline")]
    assert [len(line) for line in lines] == [7, 16]


@pytest.mark.parametrize("draw", [svg, page])
def test_the_files_need_nothing_else(draw: object) -> None:
    assert callable(draw)
    text = re.sub(r'xmlns="[^"]*"', "", draw(TIMES))
    assert not re.search(r"https?:|<script|<link|<img|url\(|@import|\bsrc=|\bhref=", text)


@pytest.mark.parametrize("draw", [svg, page])
def test_what_others_wrote_stays_text(draw: object) -> None:
    assert callable(draw)
    hostile = replace(
        TIMES,
        unit=HOSTILE,
        metric=HOSTILE,
        series=(
            replace(
                STEPPED,
                case=HOSTILE,
                labels={HOSTILE: HOSTILE},
                points=(Point(commit=HOSTILE, date=HOSTILE, value=1.0), Point(commit="b", date="c", value=2.0)),
                changes=(),
            ),
        ),
        notes=(HOSTILE,),
    )
    text = draw(hostile)
    assert "<script" not in text
    assert "\x1b" not in text
    assert "\x1b" not in rendered(hostile)


def test_the_page_has_the_values_in_a_table_that_the_keyboard_reaches() -> None:
    text = page(TIMES)
    assert text.count("<tr>") == 1 + len(STEPPED.points)
    assert 'tabindex="0" role="region"' in text
    assert "<td>failed</td>" in text
    assert "231.0 µs -&gt; 240.0 µs, 3.89 % slower (3.78 % to 4.01 %); the place may still move" in text
    assert TIMES.notes[0] in text

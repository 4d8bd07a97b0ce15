from __future__ import annotations

import datetime as dt
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from flopwatch.asv import changes_page
from flopwatch.asv.changes import CaseChange, Direction, Level
from flopwatch.asv.changes_page import Commit, Place, render_changes

FIRST, LAST = "a1" * 20, "b2" * 20
#: Of eight characters, for hashes are cut.
HOSTILE = ["<script>", '"onload=', "</h2><b>", "'&lt;b&g", "<!--<!--"]
CHANGE = CaseChange(
    case="Scale[64,flopwatch]",
    metric="time",
    direction=Direction.WORSE,
    axes={"gpu": "NVIDIA H200"},
    last=LAST,
    first=FIRST,
    commits=1,
    effect=30.04,
    lower=29.5,
    upper=30.6,
    p=2e-9,
    settled=True,
    levels=(Level(name="time", before="1.000 ms", after="1.300 ms"), Level(name="tflops", before="1000", after="769")),
    suspects=("registers 128 → 168",),
    link="index.html#scale.Scale.track_time?gpu=NVIDIA+H200&commits=a1",
)
PLACE = Place(
    project="toy",
    commit_url="https://github.com/made/up/commit/",
    commits={FIRST: Commit(date="2026-11-21", subject="More warps")},
    built=dt.datetime(2026, 11, 22, tzinfo=dt.UTC),
)


class Tags(HTMLParser):
    """The tags, the addresses of links and the text of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.links: list[str] = []
        self.words: list[str] = []
        self.attributes: set[str] = set()
        self.feed(page)
        self.text = re.sub(r"\s+", " ", " ".join(self.words))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes.update(name for name, _ in attrs)
        self.links += [value or "" for name, value in attrs if name == "href" and tag == "a"]

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def rendered(*changes: CaseChange, place: Place = PLACE) -> Tags:
    return Tags(render_changes(changes, place))


def test_a_change_is_told_with_everything_that_is_known_of_it() -> None:
    text = rendered(CHANGE).text

    for words in (
        "1 change at 1 commit: 1 worse.",
        "2026-11-21 a1a1a1a1 More warps",
        "Scale[64,flopwatch] gpu NVIDIA H200",
        "▲ worse +30.04 % +29.50 to +30.60 %, p = 2e-09",
        "time 1.000 ms → 1.300 ms",
        "tflops 1000 → 769",
        "registers 128 → 168",
        "Built 2026-11-22.",
    ):
        assert words in text


def test_a_commit_and_a_case_are_links() -> None:
    links = rendered(CHANGE).links

    assert f"https://github.com/made/up/commit/{FIRST}" in links
    assert CHANGE.link in links


def test_a_range_of_commits_names_both_ends() -> None:
    page = rendered(replace(CHANGE, commits=6))

    assert "one of 6 commits after b2b2b2b2 , up to a1a1a1a1" in page.text
    assert f"https://github.com/made/up/commit/{LAST}" in page.links


def test_changes_of_one_commit_stand_together() -> None:
    page = rendered(CHANGE, replace(CHANGE, case="Scale[128,flopwatch]"), replace(CHANGE, first=LAST, last=FIRST))

    assert page.tags.count("section") == 2
    assert "3 changes at 2 commits: 3 worse." in page.text


def test_what_repeats_exactly_has_no_interval_and_what_comes_from_zero_no_percentage() -> None:
    text = rendered(replace(CHANGE, effect=None, lower=None, upper=None, p=None)).text

    assert "▲ worse from zero time" in text


def test_a_place_that_may_move_says_so() -> None:
    assert "the place may still move" in rendered(replace(CHANGE, settled=False)).text


def test_without_changes_the_page_says_that_there_are_none() -> None:
    assert "No case has changed its level." in rendered().text


def test_no_cause_is_made_up() -> None:
    assert "not known" in rendered(replace(CHANGE, suspects=())).text


@pytest.mark.parametrize("text", HOSTILE)
def test_what_comes_from_a_repository_is_text(text: str) -> None:
    page, clean = full_of(text), full_of("plain")

    assert page.tags == clean.tags
    assert page.attributes == clean.attributes
    assert page.text == clean.text.replace("plain", text)


def full_of(text: str) -> Tags:
    """Render a page whose every word comes from a repository."""
    change = replace(
        CHANGE,
        case=text,
        metric=text,
        axes={text: text},
        first=text,
        last=text,
        levels=(Level(name=text, before=text, after=text),),
        suspects=(text,),
        link=text,
    )
    commits = {text: Commit(date=text, subject=text)}
    return rendered(change, place=replace(PLACE, project=text, commit_url="https://" + text, commits=commits))


@pytest.mark.parametrize("url", ["javascript:alert(1)//", "#", "", "file:///etc/"])
def test_only_the_web_is_linked(url: str) -> None:
    assert [link for link in rendered(CHANGE, place=replace(PLACE, commit_url=url)).links if FIRST in link] == []


def test_a_page_too_long_says_what_it_leaves_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes_page, "LARGEST_PAGE", 2)

    page = rendered(*[replace(CHANGE, case=f"case {number}") for number in range(5)])

    assert "The 3 oldest are left out here; changes.json has all." in page.text
    assert [number for number in range(5) if f"case {number}" in page.text] == [0, 1]
    assert "5 changes at 1 commit" in page.text


def test_the_page_loads_nothing_but_its_neighbours() -> None:
    page = render_changes([CHANGE], PLACE)

    loaded = re.findall(r'<(?:link|script|img)\b[^>]*\b(?:src|href)="([^"]+)"', page)
    assert loaded == ["swallow.ico", "changes.css", "changes.js"]

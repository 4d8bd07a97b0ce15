"""The dashboard as people meet it: in a browser, without a network."""

from __future__ import annotations

import contextlib
import functools
import http.server
import json
import re
import shutil
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from tests.asv.browser import CHROMIUM, DESKTOP, PHONE, Browser, opened
from tests.asv.conftest import Recorded, succeed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="needs chromium, chromium-browser or google-chrome on PATH"),
]

#: Each page, and what is true of it once its scripts have run.
PAGES = {
    "index.html#/": "document.querySelectorAll('.flot-base').length > 2",
    "index.html#/summarylist": "document.querySelectorAll('#summarylist-body tbody tr').length > 2",
    "index.html#/regressions": "document.querySelectorAll('#regressions-body tbody tr').length > 0",
    "index.html#scale.Scale.tflops": "document.querySelectorAll('.flot-base').length == 2",
    "changes.html": "document.getElementById('matches').textContent",
}
#: Of a history with gaps: graphs that some machines have and others lack, and what is true of a page once it has
#: asked for all that it wants.
GAPS = {
    "index.html#/": "document.querySelectorAll('.benchmark-plot').length > 12",
    "index.html#/summarylist": PAGES["index.html#/summarylist"],
    "index.html#scale.Scale.track_time": PAGES["index.html#scale.Scale.tflops"],
    "index.html#scale.Scale.roofline": PAGES["index.html#scale.Scale.tflops"],
    "index.html#other.Other.track_time": PAGES["index.html#scale.Scale.tflops"],
    "index.html#other.Other.tflops": PAGES["index.html#scale.Scale.tflops"],
}
CHANGES = "changes.html"
B200 = "?machine=second&gpu=NVIDIA%20B200"


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Keep requests out of the tests' output."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Site:
    """The dashboard, served, and a browser that looks at it."""

    browser: Browser
    address: str

    def open(self, page: str, size: tuple[int, int] = DESKTOP) -> None:
        until = {**GAPS, **PAGES}[page.partition("?")[0]]
        self.browser.open(self.address + page, size, until=until)

    def dom(self, page: str) -> str:
        self.open(page)
        found: str = self.browser.run("document.documentElement.outerHTML")
        return found

    def settle(self) -> None:
        """Wait until what the page had in mind is done; sorting a table makes asv draw it again."""
        self.do("setTimeout(() => { window.settled = true; }, 200)")
        self.browser.wait("window.settled")

    def do(self, statement: str) -> None:
        self.browser.do(statement)

    def run(self, expression: str) -> Any:  # noqa: ANN401 - whatever JavaScript gives
        return self.browser.run(expression)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with opened(tmp_path_factory.mktemp("profile")) as browser:
        yield browser


@pytest.fixture(scope="module")
def site(history: Recorded, browser: Browser) -> Iterator[Site]:
    with served(history.root / "html", browser) as site:
        yield site


@pytest.fixture(scope="module")
def gaps(history: Recorded, browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """The same with two more suites: one that the second machine never ran, and one that nobody did."""
    folder = tmp_path_factory.mktemp("gaps")
    patchy = Recorded(root=folder / "toy", home=history.home)
    shutil.copytree(history.root, patchy.root, ignore=shutil.ignore_patterns("html", ".asv"))
    described = patchy.root / "results" / "benchmarks.json"
    benchmarks = json.loads(described.read_bytes())
    for name, benchmark in list(benchmarks.items()):
        for suite in ("other.Other", "never.Never"):
            if name.startswith("scale.Scale."):
                renamed = name.replace("scale.Scale", suite)
                benchmarks[renamed] = {**benchmark, "name": renamed}
    described.write_text(json.dumps(benchmarks), encoding="utf-8")
    for path in patchy.root.glob("results/*/*-*.json"):
        if path.parent.name != "second":
            stored = json.loads(path.read_bytes())
            stored["results"] |= {
                name.replace("scale.Scale", "other.Other"): row for name, row in stored["results"].items()
            }
            path.write_text(json.dumps(stored), encoding="utf-8")
    succeed(patchy.asv("publish", "--no-pull"))
    with served(patchy.root / "html", browser) as site:
        yield site


@contextlib.contextmanager
def served(html: Path, browser: Browser) -> Iterator[Site]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(html)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield Site(browser=browser, address=f"http://127.0.0.1:{server.server_address[1]}/")
    server.shutdown()
    server.server_close()
    thread.join()


def rows(dom: str, case: str = "1000000") -> dict[str, str]:
    """Return the rows of the list view that are about a case of our own kernel, by the name of the benchmark."""
    found = re.findall(r"<tr[^>]*>(.*?)</tr>", dom, re.DOTALL)
    return {text(row).split()[0]: row for row in found if f"('{case}', 'flopwatch')" in text(row)}


def text(html: str) -> str:
    return re.sub(r"<[^>]+>", " ", html)


@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
@pytest.mark.parametrize("page", PAGES)
def test_a_page_opens_without_complaints_and_without_a_network(page: str, size: tuple[int, int], site: Site) -> None:
    site.open(page, size)

    assert site.browser.complaints == []
    assert [url for url in site.browser.requests if not url.startswith((site.address, "data:", "about:"))] == []


@pytest.mark.parametrize("page", GAPS)
def test_what_was_never_run_is_neither_asked_for_nor_drawn(page: str, gaps: Site) -> None:
    gaps.open(page)
    gaps.do("window.scrollTo(0, document.body.scrollHeight)")
    gaps.settle()

    assert gaps.browser.complaints == []
    assert gaps.run("document.body.innerText.includes('Never')") is False
    assert (
        gaps.run("[...document.querySelectorAll('.benchmark-plot')].filter(tile => !tile.children.length).length") == 0
    )


def test_the_graph_of_a_machine_that_never_ran_it_says_so_and_the_others_are_drawn(gaps: Site) -> None:
    gaps.open("index.html#other.Other.track_time")
    labels = "[...document.querySelectorAll('.legendLabel')].map(label => label.innerText)"
    assert gaps.run(f"{labels}.length") > 0

    gaps.do("location.hash = '#other.Other.track_time?machine=second'")
    gaps.browser.wait("document.getElementById('main-graph').innerText.includes('No graphs to load')")

    assert gaps.browser.complaints == []
    gaps.do("location.hash = '#scale.Scale.track_time?machine=second'")
    gaps.browser.wait(f"{labels}.length > 0")


def test_a_page_that_complains_is_noticed(site: Site) -> None:
    site.open(CHANGES)
    site.do("console.error('planted'); setTimeout(() => { throw new Error('planted too'); })")
    site.do("fetch('https://example.org/')")
    site.settle()

    assert len(site.browser.complaints) >= 2
    assert "https://example.org/" in site.browser.requests


@pytest.mark.parametrize("page", PAGES)
def test_a_phone_does_not_scroll_sideways(page: str, site: Site) -> None:
    site.open(page, PHONE)

    assert site.run("[document.documentElement.scrollWidth, window.innerWidth]") == [360, 360]


@pytest.mark.parametrize("table", ["summarylist", "regressions"])
def test_a_phone_shows_names_and_values_of_a_table_side_by_side(table: str, site: Site) -> None:
    site.open(f"index.html#/{table}", PHONE)
    site.settle()
    cells = f"[...document.querySelectorAll('#{table}-body tbody td:nth-child(2)')]"

    assert 0 < max(site.run(f"{cells}.map(cell => cell.getBoundingClientRect().right)")) <= PHONE[0]


def test_the_list_shows_tflops_bandwidth_and_the_roofline(site: Site) -> None:
    shown = rows(site.dom(f"index.html#/summarylist{B200}"))

    assert "769 TFLOPS" in text(shown["scale.Scale.tflops"])
    assert "3.08 GB/s" in text(shown["scale.Scale.bandwidth"])
    assert "34.2 percent" in text(shown["scale.Scale.roofline"])  # of 2250 TFLOPS


def test_a_drop_in_tflops_is_red_and_a_rise_in_seconds_too(site: Site) -> None:
    shown = rows(site.dom("index.html#/summarylist"))

    # asv's class of red is called positive-change.
    assert "change positive-change" in shown["scale.Scale.tflops"]
    assert "change positive-change" in shown["scale.Scale.track_time"]


def test_a_rise_in_tflops_is_green_and_a_drop_in_seconds_too(site: Site) -> None:
    shown = rows(site.dom("index.html#/summarylist"), case="improved")

    assert "change negative-change" in shown["scale.Scale.tflops"]
    assert "change negative-change" in shown["scale.Scale.track_time"]


def test_the_graph_of_tflops_is_drawn(site: Site) -> None:
    dom = site.dom("index.html#scale.Scale.tflops")

    # The scale of the axis is that of the values: from 769 TFLOPS to 1300.
    assert {"800", "900", "1000", "1100", "1200"} <= set(re.findall(r"flot-tick-label[^>]*>([\d.]+)<", dom))


def test_the_grid_draws_every_benchmark(site: Site) -> None:
    site.open("index.html#/")

    site.browser.wait("$('.benchmark-plot').length == 12 && $('.benchmark-plot .flot-base').length == 12")


def test_the_gpus_can_be_chosen(site: Site) -> None:
    site.open("index.html#/summarylist")

    # Of the one that is not there, nobody knows the peaks.
    for gpu, has_roofline in [("B200", True), ("none (static", False), ("B200", True)]:
        site.do(f"$('#summarylist-navigation a:contains({json.dumps(gpu)})').trigger('click')")
        shown = "$('#summarylist-body table:visible').text()"
        site.browser.wait(f"{shown}.includes('tflops') && {shown}.includes('roofline') == {json.dumps(has_roofline)}")


def test_the_regression_is_listed_with_its_commit(site: Site, history: Recorded) -> None:
    slow = history.git("rev-parse", "HEAD~7")

    shown = text(site.dom("index.html#/regressions"))

    assert "scale.Scale.track_time('1000000', 'flopwatch')" in shown
    assert slow[:8] in shown
    assert "improved" not in shown


def test_the_change_is_told_with_its_commit_and_its_effect(site: Site, history: Recorded) -> None:
    slow = history.git("rev-parse", "HEAD~7")

    site.open(CHANGES)
    told = site.run("document.querySelector('tr.worse').closest('section').innerText")

    assert slow[:8] in told
    assert "a call takes 0.0013 s" in told
    assert "Scale[1000000,flopwatch]" in told
    assert "+30.00 %" in told
    assert "769" in told
    assert site.run("document.querySelector('tr.worse a').getAttribute('href')").startswith("index.html#scale.")
    assert slow in site.run("document.querySelector('h2 a').href")


def test_a_change_is_red_or_green_by_its_direction(site: Site) -> None:
    site.open(CHANGES)
    colours = site.run(
        "['worse', 'better'].map(mark => "
        "getComputedStyle(document.querySelector(`tr.${mark} td:nth-child(3)`)).backgroundColor)"
    )

    assert colours == ["rgb(255, 221, 221)", "rgb(221, 255, 221)"]
    assert "improved" in site.run("document.querySelector('tr.better').innerText")


def test_changes_are_filtered_by_gpu_and_the_filter_is_in_the_address(site: Site) -> None:
    site.open(CHANGES)
    whole = site.run("document.querySelectorAll('tr[data-is]:not([hidden])').length")
    site.do(
        "document.querySelector('select[name=gpu]').value = 'NVIDIA B200';"
        "document.querySelector('form').dispatchEvent(new Event('input'))"
    )

    shown = site.run("[...document.querySelectorAll('tr[data-is]:not([hidden])')].map(row => row.innerText)")
    assert len(shown) == whole / 2
    assert all("NVIDIA B200" in row for row in shown)
    assert site.run("location.search") == "?gpu=NVIDIA+B200"
    site.open(f"{CHANGES}?gpu=NVIDIA+B200&text=improved")
    assert site.run("document.getElementById('matches').textContent") == f"{len(shown) // 2} of {whole} shown"


def test_the_changes_can_be_read_without_scripts(site: Site, history: Recorded) -> None:
    site.open(CHANGES)
    page = (history.root / "html" / CHANGES).read_text(encoding="utf-8")

    assert json.loads((history.root / "html" / "changes.json").read_bytes())["schema"] == 1
    assert page.count("<tr class=") == site.run("document.querySelectorAll('tr[data-is]').length")
    assert '<form id="filters" hidden>' in page


@pytest.mark.parametrize(
    ("page", "controls"),
    [
        ("index.html#/summarylist", "a[role=button], #summarylist-body th[data-sort], #nav li a"),
        ("index.html#scale.Scale.tflops", "#graphdisplay-navigation a[role=button], #nav li a"),
        ("index.html#/regressions", "#regressions-body th[data-sort], #regressions-body button, #nav li a"),
        ("index.html#/", "a.benchmark-container, #nav li a"),
        (CHANGES, "a[href], select, input"),
    ],
)
def test_the_keyboard_reaches_every_control(page: str, controls: str, site: Site) -> None:
    site.open(page)
    site.settle()
    site.do(f"""
        window.wanted = [...document.querySelectorAll({json.dumps(controls)})].filter(e => e.offsetParent !== null);
        window.reached = new Set();
        document.addEventListener('focusin', event => reached.add(event.target));
    """)
    wanted = site.run("wanted.length")
    assert wanted > 3

    for _ in range(site.run("document.querySelectorAll('*').length")):
        site.browser.press("Tab")
        if site.run("wanted.every(element => reached.has(element))"):
            break

    assert site.run("wanted.filter(element => !reached.has(element)).map(element => element.outerHTML)") == []


@pytest.mark.parametrize("key", ["Enter", " "])
def test_the_keyboard_chooses_a_gpu(key: str, site: Site) -> None:
    site.open("index.html#/summarylist")
    site.do("$('#summarylist-navigation a:contains(B200)').focus()")

    site.browser.press(key)

    site.browser.wait("location.hash.includes('B200')")

from __future__ import annotations

import functools
import http.server
import re
import shutil
import subprocess
import threading
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.asv.conftest import Recorded

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
#: Headless, quiet, and cut off from every host but this one: the dashboard must bring all that it loads.
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
    "--window-size=1400,900",
    "--virtual-time-budget=20000",
)

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="needs chromium, chromium-browser or google-chrome on PATH"),
]


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Keep requests out of the tests' output."""


@pytest.fixture
def render(history: Recorded, tmp_path: Path) -> Iterator[Callable[[str], str]]:
    """Return a function that opens a page of the dashboard and gives the DOM once its scripts have run."""
    server = http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(Quiet, directory=str(history.root / "html"))
    )
    thread = threading.Thread(target=server.serve_forever)
    thread.start()

    def open_page(page: str) -> str:
        assert CHROMIUM is not None
        url = f"http://127.0.0.1:{server.server_address[1]}/index.html#{page}"
        profile = f"--user-data-dir={tmp_path / 'profile'}"
        command = [CHROMIUM, *FLAGS, profile, "--dump-dom", url]
        return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout

    yield open_page
    server.shutdown()
    server.server_close()
    thread.join()


def rows(dom: str, case: str = "1000000") -> dict[str, str]:
    """Return the rows of the list view that are about a case of our own kernel, by the name of the benchmark."""
    found = re.findall(r"<tr[^>]*>(.*?)</tr>", dom, re.DOTALL)
    return {text(row).split()[0]: row for row in found if f"('{case}', 'flopwatch')" in text(row)}


def text(html: str) -> str:
    return re.sub(r"<[^>]+>", " ", html)


def test_the_list_shows_tflops_and_bandwidth(render: Callable[[str], str]) -> None:
    shown = rows(render("/summarylist"))

    assert "769 TFLOPS" in text(shown["scale.Scale.tflops"])
    assert "3.08 GB/s" in text(shown["scale.Scale.bandwidth"])


def test_a_drop_in_tflops_is_red_and_a_rise_in_seconds_too(render: Callable[[str], str]) -> None:
    shown = rows(render("/summarylist"))

    # asv's class of red is called positive-change.
    assert "change positive-change" in shown["scale.Scale.tflops"]
    assert "change positive-change" in shown["scale.Scale.track_time"]


def test_a_rise_in_tflops_is_green_and_a_drop_in_seconds_too(render: Callable[[str], str]) -> None:
    shown = rows(render("/summarylist"), case="improved")

    assert "change negative-change" in shown["scale.Scale.tflops"]
    assert "change negative-change" in shown["scale.Scale.track_time"]


def test_the_graph_of_tflops_is_drawn(render: Callable[[str], str]) -> None:
    dom = render("scale.Scale.tflops")

    assert dom.count('class="flot-base"') == 2  # the graph and its overview
    # The scale of the axis is that of the values: from 769 TFLOPS to 1300.
    assert {"800", "900", "1000", "1100", "1200"} <= set(re.findall(r"flot-tick-label[^>]*>([\d.]+)<", dom))


def test_the_grid_draws_every_benchmark(render: Callable[[str], str]) -> None:
    dom = render("/")

    assert dom.count('class="flot-base"') == dom.count('class="benchmark-plot"') == 11


def test_the_gpus_can_be_chosen(render: Callable[[str], str]) -> None:
    dom = text(render("scale.Scale.tflops"))

    assert "NVIDIA B200" in dom
    assert "none (static h200)" in dom or dom.count("NVIDIA") > 1


def test_the_regression_is_listed(render: Callable[[str], str]) -> None:
    assert "scale.Scale.track_time" in text(render("/regressions"))

"""The pages that `flopwatch report` and `flopwatch history` write, as people meet them: opened from a file."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from tests.asv.browser import CHROMIUM, DESKTOP, PHONE, Browser, opened
from tests.report.conftest import SLOWER
from tests.report.test_history import REGISTERS, TIMES
from tests.report.test_page import with_samples

from flopwatch.report import history_page
from flopwatch.report.page import page
from flopwatch.report.reported import Origin, Reported

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="needs chromium, chromium-browser or google-chrome on PATH"),
]

PAGES = {
    "report": lambda: page([Reported(result=with_samples(SLOWER), origin=Origin())]),
    "times": lambda: history_page.page(TIMES),
    "registers": lambda: history_page.page(REGISTERS),
}
#: What somebody without a mouse has to get at: folds, links, and what scrolls by itself.
CONTROLS = "summary, a[href], [tabindex='0']"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with opened(tmp_path_factory.mktemp("profile")) as browser:
        yield browser


def show(text: str, browser: Browser, folder: Path, size: tuple[int, int] = DESKTOP) -> str:
    """Open a page, and return its address."""
    path = folder / "page.html"
    path.write_text(text, encoding="utf-8")
    browser.open(path.as_uri(), size, until="document.readyState == 'complete'")
    return path.as_uri()


def fits(browser: Browser) -> bool:
    """Tell whether nobody has to scroll sideways."""
    return bool(browser.run("document.documentElement.scrollWidth <= window.innerWidth"))


def unreached(browser: Browser) -> list[str]:
    """Return the controls that the tabulator does not come to, in a page whose folds Enter opens on the way."""
    browser.do(f"""
        window.reached = new Set();
        window.controls = () => [...document.querySelectorAll({json.dumps(CONTROLS)})]
            .filter(control => control.checkVisibility());
        document.addEventListener('focusin', event => reached.add(event.target));
        document.querySelectorAll('details').forEach(fold => {{ fold.open = false; }});
    """)
    for _ in range(100):
        browser.press("Tab")
        if browser.run("document.activeElement.matches('summary') && !document.activeElement.parentElement.open"):
            browser.press("Enter")
        if browser.run("controls().every(control => reached.has(control))"):
            break
    left: list[str] = browser.run(
        "controls().filter(control => !reached.has(control)).map(control => control.outerHTML)"
    )
    return left


@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
@pytest.mark.parametrize("name", PAGES)
def test_a_page_opens_without_complaints_loads_nothing_and_does_not_scroll_sideways(
    name: str, size: tuple[int, int], browser: Browser, tmp_path: Path
) -> None:
    address = show(PAGES[name](), browser, tmp_path, size)

    assert (browser.complaints, browser.requests) == ([], [address])
    assert browser.run("window.innerWidth") == size[0]
    assert browser.run("document.querySelectorAll('svg').length") > 0
    assert fits(browser)


@pytest.mark.parametrize("name", PAGES)
def test_the_keyboard_reaches_every_control_and_opens_every_fold(name: str, browser: Browser, tmp_path: Path) -> None:
    show(PAGES[name](), browser, tmp_path)

    assert unreached(browser) == []
    assert browser.run("controls().length") > 0
    assert browser.run("[...document.querySelectorAll('details')].every(fold => fold.open)")


def test_a_page_that_is_too_wide_and_a_fold_that_no_key_reaches_are_noticed(browser: Browser, tmp_path: Path) -> None:
    text = PAGES["registers"]()
    assert text.count("<summary>") > 1
    # In a window of 1400; a phone would zoom out.
    wide = '<p style="width: 2000px">wide</p>'
    show(
        text.replace("<summary>", '<summary tabindex="-1">', 1).replace("</body>", f"{wide}</body>"), browser, tmp_path
    )

    assert not fits(browser)
    assert [control[:7] for control in unreached(browser)] == ["<summar"]

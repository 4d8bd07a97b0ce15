from __future__ import annotations

import base64
import hashlib
import os
import re
import shutil
from importlib import resources
from pathlib import Path

import asv
import pytest
from tests.asv.browser import CHROMIUM

from flopwatch.asv.pages import EDITS, STATIC, VENDORED, Edit, improve_pages

WWW = Path(asv.__file__).parent / "www"
#: Not in the authors' packages as asv loads them: flot is minified there, and stupidtable older.
OTHER_FILES = {
    "jquery.flot.js",
    "jquery.flot.time.js",
    "jquery.flot.selection.js",
    "jquery.flot.categories.js",
    "stupidtable.min.js",
}
LARGEST_BYTES = 400 * 1024


@pytest.fixture
def html(tmp_path: Path) -> Path:
    """The pages as asv copies them."""
    return Path(shutil.copytree(WWW, tmp_path / "html"))


def vendored(file: str) -> bytes:
    return (resources.files("flopwatch.asv") / "vendor" / file).read_bytes()


def integrity(data: bytes, algorithm: str) -> str:
    return f"{algorithm}-{base64.b64encode(hashlib.new(algorithm, data).digest()).decode()}"


def test_the_dashboard_loads_nothing_from_elsewhere(html: Path) -> None:
    assert improve_pages(html) == []

    index = (html / "index.html").read_text(encoding="utf-8")
    loaded = re.findall(r'<(?:script|link)\b[^>]*?(?:src|href)="([^"]+)"', index, re.DOTALL)
    assert [name for name in loaded if "//" in name] == []
    assert {f"vendor/{file}" for file in VENDORED.values()} <= set(loaded)
    assert [name for name in loaded if name.startswith("vendor/") and not (html / name).is_file()] == []


@pytest.mark.skipif(os.environ.get("GITHUB_ACTIONS") != "true", reason="is about GitHub's machines")
def test_where_our_workflows_run_the_tests_of_the_browser_do_too() -> None:
    assert CHROMIUM is not None


def test_our_own_files_are_all_there(html: Path) -> None:
    improve_pages(html)

    files = {path.name for path in (resources.files("flopwatch.asv") / "static").iterdir()}
    assert files == set(STATIC)
    assert [name for name in STATIC if not (html / name).is_file()] == []


@pytest.mark.parametrize("url", [url for url, file in VENDORED.items() if file not in OTHER_FILES])
def test_a_vendored_file_is_the_one_that_asv_names_by_its_hash(url: str) -> None:
    (expected,) = re.findall(f'"{re.escape(url)}" integrity="([^"]+)"', (WWW / "index.html").read_text("utf-8"))
    data = vendored(VENDORED[url])
    if VENDORED[url] == "jquery.flot.orderBars.js":
        data = data.replace(b"\n", b"\r\n")  # our files end their lines with a line feed

    assert integrity(data, expected.partition("-")[0]) == expected


def test_flot_is_the_version_that_asv_names() -> None:
    assert b"version 0.8.3." in vendored("jquery.flot.js")[:100]


def test_the_vendored_files_have_licences_and_are_small() -> None:
    licences = vendored("LICENSES.txt").decode()
    files = list((resources.files("flopwatch.asv") / "vendor").iterdir())

    assert [
        name for name in ("jquery", "bootstrap", "flot", "orderBars", "stupidtable", "md5") if name not in licences
    ] == []
    assert {path.name for path in files} == {*VENDORED.values(), "LICENSES.txt"}
    assert sum(len(path.read_bytes()) for path in files) < LARGEST_BYTES


def test_an_unknown_script_stays_and_is_named(html: Path) -> None:
    index = html / "index.html"
    index.write_text(index.read_text("utf-8").replace("jquery-3.3.1.min", "jquery-4.0.0.min"), encoding="utf-8")

    (problem,) = improve_pages(html)

    assert "https://code.jquery.com/jquery-4.0.0.min.js" in problem
    assert "https://code.jquery.com/jquery-4.0.0.min.js" in index.read_text("utf-8")


@pytest.mark.parametrize("edit", EDITS, ids=lambda edit: edit.file)
@pytest.mark.parametrize("occurrences", [0, 2])
def test_a_page_whose_anchor_is_not_unique_is_left_alone(html: Path, edit: Edit, occurrences: int) -> None:
    page = html / edit.file
    anchor = edit.anchors[-1][0]
    changed = page.read_text("utf-8").replace(anchor, anchor * occurrences)
    page.write_text(changed, encoding="utf-8")

    (problem,) = improve_pages(html)

    assert edit.purpose in problem
    assert [text for _, text in edit.anchors if text in page.read_text("utf-8")] == []

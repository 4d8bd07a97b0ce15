"""The pages as asv copies them: made to work on a closed network, by keyboard and on a small screen.

They also learn which direction is better, and that there is a page of changes.

asv offers no hook for any of this, so its files are edited where they were copied to, each edit at an anchor that must
occur exactly once. Where an anchor is gone, another asv than the tested one is installed: the page stays as it was, and
a warning says so.
"""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from importlib import resources
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

#: What asv loads from elsewhere -> our copy. Versions and licences: vendor/LICENSES.txt.
VENDORED = {
    "https://code.jquery.com/jquery-3.3.1.min.js": "jquery.min.js",
    "https://cdnjs.cloudflare.com/ajax/libs/flot/0.8.3/jquery.flot.min.js": "jquery.flot.js",
    "https://cdnjs.cloudflare.com/ajax/libs/flot/0.8.3/jquery.flot.time.min.js": "jquery.flot.time.js",
    "https://cdnjs.cloudflare.com/ajax/libs/flot/0.8.3/jquery.flot.selection.min.js": "jquery.flot.selection.js",
    "https://cdnjs.cloudflare.com/ajax/libs/flot/0.8.3/jquery.flot.categories.min.js": "jquery.flot.categories.js",
    "https://cdn.jsdelivr.net/npm/flot-orderbars@1.0.0/js/jquery.flot.orderBars.js": "jquery.flot.orderBars.js",
    "https://cdnjs.cloudflare.com/ajax/libs/stupidtable/1.0.1/stupidtable.min.js": "stupidtable.min.js",
    "https://cdnjs.cloudflare.com/ajax/libs/blueimp-md5/2.19.0/js/md5.min.js": "md5.min.js",
    "https://cdn.jsdelivr.net/npm/bootstrap@3.1.1/dist/js/bootstrap.min.js": "bootstrap.min.js",
    "https://cdn.jsdelivr.net/npm/bootstrap@3.1.1/dist/css/bootstrap.min.css": "bootstrap.min.css",
}
_LICENSES = "LICENSES.txt"
#: Our own files, beside asv's.
STATIC = ("changes.css", "changes.js", "pages.css", "pages.js")
#: Of a benchmark in index.json: the files that its graph page would load in vain.
ABSENT_GRAPHS = "absent_graphs"
_FOREIGN = re.compile(r'<(?:script|link)\b[^>]*\b(?:src|href)="(https?://[^"]+)"[^>]*>')


@dataclass(frozen=True, kw_only=True, slots=True)
class Edit:
    """Replace every `anchors` key by its value in one file: all of them, or none."""

    file: str
    purpose: str
    anchors: tuple[tuple[str, str], ...]


EDITS = (
    Edit(
        file="summarylist.js",
        purpose="colours of what is better when higher",
        anchors=(
            (
                "if (change > 5) {",
                "if ($.asv.main_json.benchmarks[row.name].higher_is_better ? change < -5 : change > 5) {",
            ),
            (
                "else if (change < -5) {",
                "else if ($.asv.main_json.benchmarks[row.name].higher_is_better ? change > 5 : change < -5) {",
            ),
        ),
    ),
    Edit(
        file="asv.js",
        purpose="4120 GB/s instead of 4.12e+3 GB/s",
        anchors=(
            (
                "return '' + x.toPrecision(3) + ' ' + unit;",
                "return '' + (Math.abs(x) >= 1000 ? x.toFixed(0) : x.toPrecision(3)) + ' ' + unit;",
            ),
        ),
    ),
    Edit(
        file="graphdisplay.js",
        purpose="4120 instead of 4.12e+3 at the axis",
        anchors=(
            (
                "return (v / multiplier).toPrecision(3);",
                "var x = v / multiplier; return Math.abs(x) >= 1000 ? x.toFixed(0) : x.toPrecision(3);",
            ),
        ),
    ),
    Edit(
        file="graphdisplay.js",
        purpose="no requests for graphs of machines that never ran a benchmark",
        anchors=(
            (
                "var ok = true;",
                (
                    f"var ok = !$.asv.main_json.benchmarks[current_benchmark].{ABSENT_GRAPHS}.includes("
                    "decodeURIComponent($.asv.graph_to_path(current_benchmark, params)));"
                ),
            ),
        ),
    ),
    Edit(
        file="summarygrid.js",
        purpose="a dot in the grid where there is one commit, and so no line",
        anchors=(("[{data: data}], options);", "[{data: data, points: {show: data.length == 1}}], options);"),),
    ),
    Edit(
        file="index.html",
        purpose="a link to the page of changes; the keyboard and small screens",
        anchors=(
            ("<html>", '<html lang="en">'),
            ("<head>", '<head>\n    <meta name="viewport" content="width=device-width, initial-scale=1">'),
            ("</head>", '  <link href="pages.css" rel="stylesheet">\n    <script src="pages.js"></script>\n  </head>'),
            (
                '<li id="nav-li-regressions">',
                '<li id="nav-li-changes"><a href="changes.html">Changes</a></li>\n\t<li id="nav-li-regressions">',
            ),
        ),
    ),
)


def improve_pages(html: Path) -> list[str]:
    """Edit the pages under `html`; return what could not be done."""
    for file in STATIC:
        _copy("static", file, html)
    return [*_bring_scripts_home(html), *(problem for edit in EDITS for problem in _apply(edit, html))]


def _bring_scripts_home(html: Path) -> Iterator[str]:
    """Copy the vendored files, and point the page to them."""
    index = html / "index.html"
    text = index.read_text(encoding="utf-8")
    (html / "vendor").mkdir(exist_ok=True)
    for file in {*VENDORED.values(), _LICENSES}:
        _copy("vendor", file, html / "vendor")
    index.write_text(_FOREIGN.sub(_home, text), encoding="utf-8")
    for url in _FOREIGN.findall(index.read_text(encoding="utf-8")):
        yield f"the dashboard loads {url}; on a closed network it will not work"


def _copy(folder: str, file: str, to: Path) -> None:
    with resources.as_file(resources.files("flopwatch.asv") / folder / file) as path:
        shutil.copyfile(path, to / file)


def _home(tag: re.Match[str]) -> str:
    """Return the tag with our copy; a tag that loads something unknown stays."""
    file = VENDORED.get(tag[1])
    if file is None:
        return tag[0]
    if file.endswith(".css"):
        return f'<link rel="stylesheet" href="vendor/{file}">'
    return f'<script src="vendor/{file}" onerror="js_load_failure()">'


def _apply(edit: Edit, html: Path) -> Iterator[str]:
    path = html / edit.file
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    missing = [anchor for anchor, _ in edit.anchors if text.count(anchor) != 1]
    if missing:
        yield f"{edit.file} of this asv has no unique {missing[0]!r}; not done: {edit.purpose}"
        return
    for anchor, replacement in edit.anchors:
        text = text.replace(anchor, replacement)
    path.write_text(text, encoding="utf-8")

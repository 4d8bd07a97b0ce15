"""Files that anybody may have written: what is forged is refused, and what is text stays text, in every format."""

from __future__ import annotations

import html.parser
import json
import re
import time
import unicodedata
from dataclasses import replace
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import pytest
from markdown_it import MarkdownIt

from flopwatch.errors import ExitCode
from flopwatch.model import to_json
from flopwatch.report.annotations import MAX_OF_A_KIND, annotate
from flopwatch.report.junit import junit
from flopwatch.report.markdown import COMMENT_BYTES, SUMMARY_BYTES, comment, job_summary
from flopwatch.report.page import page
from flopwatch.report.reported import Origin, Reported, report_on, worst_first
from flopwatch.report.svg import WIDTH

if TYPE_CHECKING:
    from pathlib import Path

    from flopwatch.gate import GateResult

RENDERERS = {
    "markdown": comment,
    "summary": job_summary,
    "annotations": lambda reports: annotate(reports, {"Matmul": ("benchmarks/matmul.py", 7)}),
    "junit": junit,
    "html": page,
}
#: Of the processor, for the longest file; most take a hundredth.
MAX_SECONDS = 10.0
MARKDOWN = MarkdownIt("commonmark").enable("table")
#: What our own Markdown is made of, after parsing.
TOKENS = {
    *("heading_open", "heading_close", "paragraph_open", "paragraph_close", "inline", "fence", "html_block"),
    *("table_open", "table_close", "thead_open", "thead_close", "tbody_open", "tbody_close"),
    *("tr_open", "tr_close", "th_open", "th_close", "td_open", "td_close"),
    *("text", "code_inline", "softbreak", "strong_open", "strong_close"),
}
OWN_HTML = re.compile(r"<!-- flopwatch:gate -->|<details><summary>[A-Z][A-Za-z, ]+</summary>|</details>")
COMMAND = re.compile(r"::(error|warning|notice) (file=[\w.+/-]+,line=(?P<line>[1-9]\d*),)?title=flopwatch::")
#: What GitHub makes a link of, or a notification, outside of code.
LINKED = re.compile(r"@|#\d|://|www\.|\bGH-|\b[0-9a-f]{40}\b")
TAGS = {
    *("html", "head", "meta", "title", "style", "body", "main", "section", "h1", "h2", "p", "pre", "code", "div", "br"),
    *("details", "summary", "table", "caption", "thead", "tbody", "tr", "th", "td", "span", "figure", "figcaption"),
    *("svg", "g", "text", "line", "circle", "rect"),
}
ATTRIBUTES = {
    *("lang", "charset", "name", "content", "http-equiv", "class", "scope", "tabindex", "role", "aria-label", "open"),
    *("xmlns", "viewbox", "x", "y", "x1", "x2", "y1", "y2", "cx", "cy", "r", "width", "height", "text-anchor"),
}


class Page(html.parser.HTMLParser):
    """What a browser would make of a page: its tags, and the attributes of each."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.depth = 0
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        self.depth += tag not in {"meta", "br"}

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.depth -= 1

    def handle_endtag(self, _tag: str) -> None:
        self.depth -= 1


@pytest.fixture(scope="module")
def gate_json(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One file for all, as a folder each takes longer than the tests."""
    return tmp_path_factory.mktemp("results") / "gate.json"


def file(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def check(reports: list[Reported]) -> None:
    """Hold every format of a report against what it may contain."""
    for name, render in RENDERERS.items():
        text = render(reports)
        wrong = {character for character in text if unicodedata.category(character) in {"Cc", "Cf", "Cs", "Co", "Cn"}}
        assert wrong <= {"\n"}, name
        assert "##[" not in text, name
        commands = [line for line in text.splitlines() if line.strip().startswith("::")]
        assert len(commands) == (text.count("\n") if name == "annotations" else 0), name
    check_markdown(comment(reports), COMMENT_BYTES)
    check_markdown(job_summary(reports), SUMMARY_BYTES)
    lines = RENDERERS["annotations"](reports).splitlines()
    sanitized = [each for report in reports if report.sanitized is not None for each in report.sanitized.reports]
    told = {None, "7", *(str(finding.line) for each in sanitized for finding in each.findings)}
    assert all(command is not None and command["line"] in told for command in map(COMMAND.match, lines))
    assert len(lines) <= 3 * MAX_OF_A_KIND
    tree = ET.fromstring(junit(reports))  # noqa: S314 - our own text
    assert {node.tag for node in tree.iter()} <= {"testsuites", "testsuite", "testcase", "failure", "error", "skipped"}
    seen = Page(page(reports))
    assert (seen.tags - TAGS, seen.attributes - ATTRIBUTES, seen.depth) == (set(), set(), 0)


def check_markdown(text: str, size: int) -> None:
    assert len(text.encode()) <= size
    for token in MARKDOWN.parse(text):
        assert token.type in TOKENS
        if token.type == "html_block":
            assert all(OWN_HTML.fullmatch(line) for line in token.content.split("\n") if line)
        for child in token.children or ():
            assert child.type in TOKENS
            if child.type == "text":
                assert not LINKED.search(child.content)


def test_the_corpus_is_as_large_as_it_should_be(request: pytest.FixtureRequest) -> None:
    names = [item.name for item in request.session.items if item.path == request.path]
    assert sum("[forged" in name or "[evil_text" in name for name in names) >= 200 or len(names) == 1


def test_what_is_forged_is_refused_and_decides_nothing(forged: bytes, gate_json: Path) -> None:
    start = time.process_time()
    report = report_on(file(gate_json, forged), origin=Origin())
    assert report.result is None
    assert report.refusal
    assert report.exit_code is ExitCode.UNDECIDED
    check_markdown(comment([report]), COMMENT_BYTES)
    assert time.process_time() - start < MAX_SECONDS


def test_text_stays_text(evil_text: bytes, gate_json: Path) -> None:
    start = time.process_time()
    report = report_on(file(gate_json, evil_text), origin=Origin(pull_request=7))
    assert report.refusal == ""
    check([report])
    assert time.process_time() - start < MAX_SECONDS


@pytest.mark.parametrize("flops", [0, 5e-324, 1.0, 1e24])
@pytest.mark.parametrize("moved", [0, 5e-324, 1.0, 1e24])
@pytest.mark.parametrize("seconds", [5e-324, 1.0, 1e9])
def test_a_roofline_of_the_absurd_stays_within_its_page(
    flops: float, moved: float, seconds: float, honest: GateResult, gate_json: Path
) -> None:
    table = json.loads(to_json(honest))
    table["verdicts"][0] |= {"flops": flops, "bytes_moved": moved}
    table["verdicts"][0]["head"]["seconds"] = seconds
    report = report_on(file(gate_json, json.dumps(table).encode()), origin=Origin())
    assert report.refusal == ""
    text = page([report])
    seen = Page(text)
    assert (seen.tags - TAGS, seen.attributes - ATTRIBUTES, seen.depth) == (set(), set(), 0)
    plot = text.partition("<h2>Roofline</h2>")[2].partition("</svg>")[0]
    places = re.findall(r'\b(?:x|y|cx|cy|x1|x2|y1|y2)="([^"]*)"', plot)
    assert len(places) > 40
    assert all(0 <= float(place) <= WIDTH for place in places)
    assert not re.search(r"\b(nan|inf)\b", text)


def test_the_checks_catch_what_they_are_for(honest: GateResult) -> None:
    text = comment([Reported(result=honest)])
    check_markdown(text, COMMENT_BYTES)
    for evil in ("\n<script>x</script>\n", "[a](b)", "@octocat", "<b>x</b>", "see www.evil.example", "\n- [x] done\n"):
        with pytest.raises(AssertionError):
            check_markdown(text + evil, COMMENT_BYTES)
    assert Page("<p onclick=x><script></p>").tags - TAGS == {"script"}
    assert Page("<p onclick=x></p>").attributes - ATTRIBUTES == {"onclick"}


def test_the_largest_result_is_read_and_shown_in_bounded_time(honest: GateResult, gate_json: Path) -> None:
    # No setting of the tuner's tells the kernel's configurations apart: each is held against each.
    table = json.loads(to_json(honest).replace(b"BLOCK_M: 64, num_warps: 4", b"unknown: 1"))
    (broken,) = (verdict for verdict in table["verdicts"] if verdict["mark"] == "broken")
    table["verdicts"] += [
        broken | {"case": {"suite": "Large", "values": [f"{number}x{'1' * 60}"] * 8}, "reason": "| `@all` " * 20}
        for number in range(1600)
    ]
    fact = table["facts"][0] | {"failure": None}
    for side, stages in (("facts", 1), ("base_facts", 2)):
        table[side] = [
            fact | {"config": f"BLOCK_M={number},num_stages={stages}", "variant": f"*fp16:{number // 250}"}
            for number in range(1250)
        ]
    table["kernels"] = [entry | {key: list(range(1250)) for key in ("base", "head")} for entry in table["kernels"]]
    data = json.dumps(table).encode()
    assert 3 << 20 < len(data) <= 4 << 20
    start = time.process_time()
    report = report_on(file(gate_json, data), origin=Origin())
    assert report.refusal == ""
    sizes = {name: len(render([report]).encode()) for name, render in RENDERERS.items()}
    assert time.process_time() - start < MAX_SECONDS
    assert sizes["markdown"] <= COMMENT_BYTES
    assert sizes["summary"] <= SUMMARY_BYTES
    assert sizes["html"] < 8 << 20
    assert comment([report]).splitlines()[1].startswith("### Regressed: 1601 cases broken; ")


def test_many_results_leave_each_its_verdict(honest: GateResult) -> None:
    text = comment([Reported(result=honest)] * 16)
    check_markdown(text, COMMENT_BYTES)
    assert text.count("### Regressed: ") == 16
    assert text.count("**Next:** ") == 16


def test_the_worst_comes_first_and_a_refused_one_before_what_is_fine(honest: GateResult) -> None:
    fine = Reported(result=replace(honest, verdicts=honest.verdicts[-1:], pairs=(), suite=None))
    refused = Reported(result=None, refusal="$: no JSON")
    assert [report.exit_code for report in worst_first([fine, refused, Reported(result=honest)])] == [1, 3, 0]

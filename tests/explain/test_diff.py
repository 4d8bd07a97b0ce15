from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from flopwatch.errors import GitError
from flopwatch.explain.diff import hunks, unified
from flopwatch.explain.listing import Line

if TYPE_CHECKING:
    from pathlib import Path


def ptx(*texts: str) -> list[Line]:
    return [Line(text=text, file="kernels.py", line=number) for number, text in enumerate(texts, start=1)]


BODY = [f"add.s32 %r{number}, %r{number - 1}, {number};" for number in range(1, 30)]


def shown(base: list[Line], head: list[Line]) -> list[str]:
    return unified(hunks("ptx", base, head), base="a", head="b").splitlines()


def test_equal_listings_have_no_difference() -> None:
    assert hunks("ptx", ptx(*BODY), ptx(*BODY)) == []
    assert unified([], base="a", head="b") == ""


def test_a_changed_constant_is_found_with_its_context_and_its_source() -> None:
    changed = [*BODY[:10], "add.s32 %r11, %r10, 99;", *BODY[11:]]
    (hunk,) = hunks("ptx", ptx(*BODY), ptx(*changed))
    assert [(entry.sign, entry.line.line) for entry in hunk.lines] == [
        *((" ", number) for number in (8, 9, 10)),
        ("-", 11),
        ("+", 11),
        *((" ", number) for number in (12, 13, 14)),
    ]
    assert shown(ptx(*BODY), ptx(*changed))[:3] == ["--- a", "+++ b", "@@ -8,7 +8,7 @@"]


def test_one_more_instruction_does_not_make_all_that_follow_differ() -> None:
    later = [f"add.s32 %r{number + 1}, %r{number}, {number};" for number in range(1, 30)]
    lines = shown(ptx(*BODY), ptx("mov.u32 %r1, 7;", *later))
    assert [line for line in lines[2:] if line[0] in "+-"] == ["+mov.u32 %r1, 7;"]


def test_registers_that_differ_and_nothing_else_are_told() -> None:
    swapped = [*BODY[:5], "add.s32 %r6, %r4, 6;", *BODY[6:]]
    lines = shown(ptx(*BODY), ptx(*swapped))
    assert [line for line in lines[2:] if line[0] in "+-"] == ["-add.s32 %r6, %r5, 6;", "+add.s32 %r6, %r4, 6;"]


@pytest.mark.parametrize("texts", [("-- a", "++ b"), ("+x", "-x", " x"), ("@@ -1 +1 @@", "\\ No newline")])
def test_lines_that_look_like_a_diff_are_lines(texts: tuple[str, ...]) -> None:
    (hunk,) = hunks("ptx", ptx("one"), ptx("one", *texts))
    assert [entry.line.text for entry in hunk.lines if entry.sign == "+"] == list(texts)


def test_all_of_a_side_that_has_no_lines_differs() -> None:
    (hunk,) = hunks("ptx", [], ptx("one", "two"))
    assert [(entry.sign, entry.line.text) for entry in hunk.lines] == [("+", "one"), ("+", "two")]
    (hunk,) = hunks("ptx", ptx("one", "two"), [])
    assert [(entry.sign, entry.line.text) for entry in hunk.lines] == [("-", "one"), ("-", "two")]


def test_several_places_are_several_hunks() -> None:
    changed = ["mov.u32 %r0, 1;", *BODY[1:-1], "ret;"]
    assert [hunk.header for hunk in hunks("ptx", ptx(*BODY), ptx(*changed))] == ["@@ -1,4 +1,4 @@", "@@ -26,4 +26,4 @@"]


def test_places_are_numbered_on_each_side() -> None:
    changed = [*BODY[1:15], "mov.u32 %r99, 1;", *BODY[15:-1], "ret;"]
    found = hunks("ptx", ptx(*BODY), ptx(*changed))
    assert [hunk.header for hunk in found] == ["@@ -1,4 +1,3 @@", "@@ -13,6 +12,7 @@", "@@ -26,4 +26,4 @@"]
    assert [(entry.sign, entry.line.line) for entry in found[1].lines if entry.sign != " "] == [("+", 15)]


@pytest.mark.parametrize("break_", ["\x0b", "\x0c", "\x85", "\u2028"])
def test_what_ends_a_line_elsewhere_ends_none_of_a_listing(break_: str) -> None:
    (hunk,) = hunks("ptx", ptx(f"// a{break_}b", "one", "two"), ptx(f"// a{break_}b", "one", "three"))
    assert [(entry.sign, entry.line.text) for entry in hunk.lines] == [
        (" ", f"// a{break_}b"),
        (" ", "one"),
        ("-", "two"),
        ("+", "three"),
    ]


def test_listings_that_are_equal_need_no_git(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert hunks("ptx", ptx(*BODY), ptx(*BODY)) == []


def test_a_git_that_cannot_compare_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "git").write_text("#!/bin/sh\necho no such option >&2\nexit 129\n", encoding="utf-8")
    (tmp_path / "git").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(GitError, match="git diff failed") as caught:
        hunks("ptx", ptx("one"), ptx("two"))
    assert caught.value.why == "no such option"


def test_without_git_the_error_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(GitError, match="git is not installed"):
        hunks("ptx", ptx("one"), ptx("two"))

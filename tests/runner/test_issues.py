from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from runner import issues

if TYPE_CHECKING:
    from pathlib import Path

LAST, FIRST, LATER, OTHER = (letter * 40 for letter in "abcd")
Calls = list[tuple[str, str, Any]]


def change(case: str = "Matmul[64,float16]", **differs: object) -> dict[str, Any]:
    return {
        "case": case,
        "metric": "time",
        "direction": "worse",
        "axes": {},
        "last": LAST,
        "first": FIRST,
        "commits": 1,
        "effect": 12.5,
        "lower": 11.0,
        "upper": 14.0,
        "p": 0.001,
        "settled": True,
        "levels": [{"name": "time", "before": "1.000 ms", "after": "1.125 ms"}],
        "suspects": ["registers 168 → 255"],
        "link": "index.html#x",
    } | differs


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Return the issues that GitHub has; what is done to them is done to this list."""
    present: list[dict[str, Any]] = []

    def api(path: str, *, method: str = "GET", body: Any = None, pages: bool = False) -> Any:  # noqa: ANN401 - any JSON
        if pages:
            assert path.startswith("repos/owner/name/issues?labels=performance&state=all")
            return present
        if method == "POST":
            present.append({"number": len(present) + 1, "state": "open", **body})
            return present[-1]
        [issue] = [entry for entry in present if path == f"repos/owner/name/issues/{entry['number']}"]
        issue.update(body)
        return issue

    monkeypatch.setattr(issues, "api", api)
    return present


def update(*changes: dict[str, Any]) -> list[str]:
    return issues.update(changes, repository="owner/name", pages="https://pages/")


def test_the_cases_of_a_commit_share_an_issue(known: list[dict[str, Any]]) -> None:
    assert update(change(), change("Attention[512]", effect=30.0)) == ["opened #1"]
    assert known[0]["title"] == f"Attention&#91;512&#93;: time +30 % and 1 more, since {FIRST[:8]}"
    assert known[0]["labels"] == ["performance"]
    assert [line.split(" | ")[0] for line in known[0]["body"].splitlines() if " ms |" in line] == [
        "| Attention&#91;512&#93;",
        "| Matmul&#91;64,float16&#93;",
    ]


def test_a_second_night_opens_nothing_again(known: list[dict[str, Any]]) -> None:
    update(change())

    assert (update(change()), len(known)) == ([], 1)


def test_a_new_commit_is_a_new_issue(known: list[dict[str, Any]]) -> None:
    update(change())

    assert update(change(last=FIRST, first=LATER), change()) == ["opened #2"]
    assert len(known) == 2


def test_numbers_that_changed_are_written_again(known: list[dict[str, Any]]) -> None:
    update(change())

    assert update(change(effect=14.0, last=LATER)) == ["updated #1"]
    assert "+14 %" in known[0]["body"]


def test_a_closed_issue_is_left_alone(known: list[dict[str, Any]]) -> None:
    update(change())
    known[0]["state"] = "closed"

    assert update(change(effect=14.0)) == []


def test_the_issue_of_a_young_change_goes_where_later_commits_move_it(known: list[dict[str, Any]]) -> None:
    update(change(settled=False))

    assert update(change("Add[1]", first=OTHER), change(first=LATER)) == ["opened #2", "updated #1"]
    assert known[0]["title"].endswith(LATER[:8])
    assert issues.MAY_MOVE not in known[0]["body"]
    assert update(change("Add[1]", first=OTHER), change(first=LATER)) == []


@pytest.mark.parametrize("other", [{"case": "Add[1]"}, {"metric": "spills"}, {"axes": {"gpu": "NVIDIA B200"}}])
def test_another_change_does_not_take_the_issue_of_a_young_one(
    other: dict[str, Any], known: list[dict[str, Any]]
) -> None:
    update(change(settled=False))

    assert update(change(**{"first": LATER, **other})) == ["opened #2"]
    assert known[0]["title"].endswith(FIRST[:8])


def test_the_issue_of_a_settled_change_stays_where_it_is(known: list[dict[str, Any]]) -> None:
    update(change())

    assert update(change(first=LATER)) == ["opened #2"]
    assert known[0]["title"].endswith(FIRST[:8])


def test_what_got_better_is_no_issue(known: list[dict[str, Any]]) -> None:
    assert update(change(direction="better"), change(direction="other")) == []
    assert known == []


def test_a_flood_is_cut(known: list[dict[str, Any]]) -> None:
    update(*(change(first=f"{number:040x}") for number in range(issues.MOST_ISSUES + 5)))

    assert len(known) == issues.MOST_ISSUES


def test_names_are_text_and_nothing_else(known: list[dict[str, Any]]) -> None:
    hostile = "x` | ![a](https://evil) @org/team #1 <b> www.evil.example\n\n# head"
    update(change(hostile, metric=hostile, suspects=[hostile], first=FIRST))
    row = next(line for line in known[0]["body"].splitlines() if "1.000 ms" in line)

    for markup in ("`", "![", "](", "@org", "<b>", "https://", "www."):
        assert markup not in row
    assert row.count("|") == 7


def test_hashes_that_are_none_are_left_out(known: list[dict[str, Any]]) -> None:
    assert update(change(first="main", last=LAST), change(last="x](y")) == []
    assert known == []


def test_a_file_of_another_form_is_an_error(
    tmp_path: Path, known: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REPOSITORY", "owner/name")
    path = tmp_path / "changes.json"
    codes = []
    for text in ("", "[]", "{}", '{"changes": [{}]}'):
        path.write_text(text)
        codes.append(issues.main([str(path)]))
    path.write_text(json.dumps({"schema": 1, "changes": [change()]}))

    assert (codes, issues.main([str(path)]), len(known)) == ([2, 2, 2, 2], 0, 1)

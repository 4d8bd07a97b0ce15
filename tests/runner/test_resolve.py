from __future__ import annotations

from typing import Any

import pytest
from runner import resolve
from runner.resolve import Stale

SHA, OTHER = "a" * 40, "b" * 40
ASKED = {"REPOSITORY": "owner/name", "PR": "7", "SHA": SHA, "BASE": "", "SUITES": "base"}


@pytest.fixture
def github(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Return what GitHub answers, by path."""
    answers: dict[str, Any] = {
        "repos/owner/name/pulls/7": {"state": "open", "head": {"sha": SHA}},
        "repos/owner/name/git/matching-refs/heads/gh-readonly-queue/": [{"object": {"sha": SHA}}],
    }
    monkeypatch.setattr(resolve, "api", lambda path, **_: answers[path])
    return answers


@pytest.mark.usefixtures("github")
def test_the_reviewed_head_of_an_open_pull_request_is_measured() -> None:
    assert resolve.resolve(ASKED) == {"head": SHA, "base": "", "suites": "base"}


def test_what_was_pushed_since_is_refused(github: dict[str, Any]) -> None:
    github["repos/owner/name/pulls/7"]["head"]["sha"] = OTHER

    with pytest.raises(Stale, match=f"is at {OTHER} by now"):
        resolve.resolve(ASKED)


def test_a_closed_pull_request_is_refused(github: dict[str, Any]) -> None:
    github["repos/owner/name/pulls/7"]["state"] = "closed"

    with pytest.raises(Stale, match="#7 is closed"):
        resolve.resolve(ASKED)


@pytest.mark.usefixtures("github")
def test_a_queued_commit_is_compared_with_what_it_follows() -> None:
    asked = ASKED | {"PR": "", "BASE": OTHER, "SUITES": "base"}

    assert resolve.resolve(asked) == {"head": SHA, "base": OTHER, "suites": "head"}


def test_a_commit_that_is_not_queued_is_refused(github: dict[str, Any]) -> None:
    github["repos/owner/name/git/matching-refs/heads/gh-readonly-queue/"] = []

    with pytest.raises(Stale, match="not in the merge queue"):
        resolve.resolve(ASKED | {"PR": ""})


@pytest.mark.usefixtures("github")
@pytest.mark.parametrize(
    "wrong",
    [
        {"SHA": "a" * 39},
        {"SHA": "main"},
        {"SHA": SHA + "\nhead=x"},
        {"SHA": SHA.upper()},
        {"PR": "7/../8"},
        {"PR": "0"},
        {"PR": "7\n"},
        {"BASE": "main"},
        {"SUITES": "mine"},
        {"REPOSITORY": "owner"},
        {"REPOSITORY": "owner/name/../other"},
        {"BASE": OTHER},
    ],
)
def test_any_other_form_is_refused(wrong: dict[str, str]) -> None:
    with pytest.raises(Stale):
        resolve.resolve(ASKED | wrong)


@pytest.mark.usefixtures("github")
def test_a_refusal_writes_no_output(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: ANN401 - a Path
    for name, value in (ASKED | {"SHA": OTHER, "GITHUB_OUTPUT": str(tmp_path / "output")}).items():
        monkeypatch.setenv(name, value)

    assert (resolve.main(), (tmp_path / "output").exists()) == (1, False)
    monkeypatch.setenv("SHA", SHA)
    assert (resolve.main(), (tmp_path / "output").read_text()) == (0, f"head={SHA}\nbase=\nsuites=base\n")

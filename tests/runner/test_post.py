from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from runner import post
from runner.post import MARKER, Report, Target

SHA = "a" * 40
TARGET = Target(
    repository="owner/name", pr="7", sha=SHA, url="https://github.com/owner/name/actions/runs/1", judged="0"
)
Calls = list[tuple[str, str, Any]]


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    """Return what is asked of GitHub, which has two comments: one by a person that quotes ours, and another bot's."""
    made: Calls = []
    comments = [
        {"id": 1, "user": {"login": "somebody"}, "body": f"> {MARKER}"},
        {"id": 2, "user": {"login": post.AUTHOR}, "body": "coverage"},
    ]

    def api(path: str, *, method: str = "GET", body: Any = None, pages: bool = False) -> Any:  # noqa: ANN401 - any JSON
        made.append((method, path, body))
        return comments if pages else None

    monkeypatch.setattr(post, "api", api)
    return made


def renders(monkeypatch: pytest.MonkeyPatch, code: int, text: str | None) -> None:
    def render(_result: Path, _settings: Path, form: str, out: Path, _target: Target) -> int:
        if text is not None:
            out.write_text(f"{form}: {text}", encoding="utf-8")
        return code

    monkeypatch.setattr(post, "_render", render)


def reported(tmp_path: Path, judged: str = "0") -> Report:
    result = tmp_path / "result.json"
    result.write_text("{}")
    return post.make_report(result, tmp_path, replace(TARGET, judged=judged), summary=tmp_path / "summary")


@pytest.mark.parametrize(
    ("code", "state"), [(0, "success"), (1, "failure"), (2, "error"), (3, "error"), (4, "error"), (-9, "error")]
)
def test_only_a_report_that_exits_with_0_is_green(
    code: int, state: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    renders(monkeypatch, code, "text")
    report = reported(tmp_path, str(code))

    assert (report.state, report.comment) == (state, f"{MARKER}\nmarkdown: text")
    assert (tmp_path / "summary").read_text() == "summary: text"


@pytest.mark.parametrize("judged", ["", "1", "3"])
def test_a_verdict_that_comes_out_otherwise_when_decided_again_is_not_green(
    judged: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    renders(monkeypatch, 0, "text")
    report = reported(tmp_path, judged)

    assert (report.state, "decided again" in report.description) == ("error", True)


def test_a_result_without_a_gpu_is_not_green(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    renders(monkeypatch, 0, "text")
    report = reported(tmp_path, "4")

    assert (report.state, report.description) == post.STATES[4]


def test_an_expired_waiver_is_called_that(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    renders(monkeypatch, 2, "text")
    report = reported(tmp_path, "2")

    assert (report.state, report.description) == ("error", "a waiver has expired")


@pytest.mark.parametrize("code", [0, 1])
def test_a_report_that_wrote_nothing_says_neither_good_nor_bad(
    code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    renders(monkeypatch, code, None)
    report = reported(tmp_path, str(code))

    assert (report.state, report.description) == ("error", "the report failed")


def test_a_result_of_another_form_is_undecided_by_the_report_itself(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[tool.flopwatch]\npackages = ["mine"]\n')
    report = reported(tmp_path, "3")

    assert (report.state, report.description) == post.STATES[3]
    assert report.comment.count(MARKER) == 1
    assert "Refused" in report.comment
    assert "Refused" in (tmp_path / "summary").read_text()


def test_a_missing_result_is_told_and_never_green(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(Path("/etc/hostname"))

    for name in ("absent", "link", "."):
        report = post.make_report(tmp_path / name, tmp_path, TARGET, summary=None)
        assert (report.state, "no result" in report.comment) == ("error", True)


def test_a_huge_result_is_not_even_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    renders(monkeypatch, 0, "text")
    with (tmp_path / "result.json").open("wb") as file:
        file.truncate(post.RESULT_BYTES + 1)

    report = post.make_report(tmp_path / "result.json", tmp_path, TARGET, summary=None)

    assert (report.state, report.description) == ("error", "the result cannot be read")


def test_a_comment_that_github_would_refuse_becomes_a_notice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    renders(monkeypatch, 1, "x" * post.COMMENT_CHARACTERS)
    report = reported(tmp_path, "1")

    assert (report.state, "too long to show" in report.comment, len(report.comment) < 500) == ("failure", True, True)


def test_the_first_verdict_is_a_new_comment(calls: Calls) -> None:
    post.post(Report(state="success", description="fine", comment="text"), TARGET)

    assert [call for call in calls if call[0] != "GET"] == [
        (
            "POST",
            f"repos/owner/name/statuses/{SHA}",
            {"state": "success", "context": "flopwatch/gate", "description": "fine", "target_url": TARGET.url},
        ),
        ("POST", "repos/owner/name/issues/7/comments", {"body": "text"}),
    ]


def test_the_next_verdict_writes_over_it(calls: Calls, monkeypatch: pytest.MonkeyPatch) -> None:
    own = [{"id": 9, "user": {"login": post.AUTHOR}, "body": f"{MARKER}\nold"}]

    def api(path: str, *, method: str = "GET", **_: object) -> Any:  # noqa: ANN401 - any JSON
        calls.append((method, path, None))
        return own

    monkeypatch.setattr(post, "api", api)

    post.post(Report(state="success", description="fine", comment="text"), TARGET)

    assert calls[-1][:2] == ("PATCH", "repos/owner/name/issues/comments/9")


def test_a_queued_commit_gets_a_state_and_no_comment(calls: Calls) -> None:
    target = Target(repository="owner/name", pr="", sha=SHA, url="", judged="0")

    post.post(Report(state="success", description="fine", comment="text"), target)

    assert [call[1] for call in calls] == [f"repos/owner/name/statuses/{SHA}"]


@pytest.mark.parametrize(
    "wrong", [{"PR": "7#"}, {"SHA": "main"}, {"REPOSITORY": "a/b/c"}, {"RUN": "x"}, {"JUDGED": "00"}, {"SHA": ""}]
)
def test_the_target_is_the_workflows_and_of_its_form(wrong: dict[str, str]) -> None:
    right = {"REPOSITORY": "owner/name", "PR": "7", "SHA": SHA, "RUN": "1", "JUDGED": "0"}

    assert post.target_of(right) == TARGET
    with pytest.raises(ValueError, match="has not the form"):
        post.target_of(right | wrong)


def test_the_reader_of_a_result_has_no_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, Any] = {}

    def run(command: list[str], *, env: dict[str, str], **_: object) -> Any:  # noqa: ANN401 - a finished process
        seen.update(command=command, env=env)
        return type("Done", (), {"returncode": 0})

    monkeypatch.setattr("runner.post.subprocess.run", run)
    monkeypatch.setenv("GH_TOKEN", "secret")
    monkeypatch.setenv("ACTIONS_RUNTIME_TOKEN", "secret")

    post._render(tmp_path / "result.json", tmp_path, "markdown", tmp_path / "out.md", TARGET)

    assert "secret" not in seen["env"].values()
    assert seen["env"]["PATH"] == os.environ["PATH"]
    assert seen["command"][-4:] == ["--sha", SHA, "--pr", "7"]

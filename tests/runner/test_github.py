from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from runner.github import GitHubError, api

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def gh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put a `gh` on the path that prints its own arguments and input as JSON, or what `answer` has; returns that."""
    program = tmp_path / "gh"
    program.write_text(
        '#!/bin/sh\nif [ -e "$0.answer" ]; then . "$0.answer"; exit; fi\n'
        'body=; for word in "$@"; do [ "$word" = --input ] && body=$(cat); done\n'
        'printf \'{"arguments": "%s", "body": %s}\' "$*" "${body:-null}"\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    return tmp_path / "gh.answer"


@pytest.mark.usefixtures("gh")
def test_a_body_is_sent_as_json_and_the_answer_read() -> None:
    assert api("repos/a/b", method="POST", body={"x": "$(id)"}) == {
        "arguments": "api --method POST repos/a/b --input -",
        "body": {"x": "$(id)"},
    }


def test_pages_are_joined(gh: Path) -> None:
    gh.write_text("echo '[[1, 2], [3]]'")

    assert api("repos/a/b", pages=True) == [1, 2, 3]


def test_an_empty_answer_is_none(gh: Path) -> None:
    gh.write_text("true")

    assert api("repos/a/b", method="DELETE") is None


@pytest.mark.parametrize("answer", ["echo no >&2; exit 1", "echo '<html>'"])
def test_a_refusal_is_an_error(gh: Path, answer: str) -> None:
    gh.write_text(answer)

    with pytest.raises(GitHubError, match="GET repos/a/b: "):
        api("repos/a/b")

"""What the workflows ask of GitHub, through its own command line, which the hosted machines have."""

from __future__ import annotations

import json
import subprocess
from typing import Any


class GitHubError(Exception):
    """GitHub, or its command line, says no."""


def api(path: str, *, method: str = "GET", body: dict[str, Any] | None = None, pages: bool = False) -> Any:  # noqa: ANN401 - any JSON
    """Ask GitHub's REST interface, and return the answer; None where it is empty.

    Args:
        path: below the root, as in "repos/OWNER/REPO/issues".
        method: of HTTP.
        body: sent as JSON.
        pages: the answer is a list of many pages; they are joined.

    Raises:
        GitHubError: the request failed, or the answer is no JSON.
    """
    command = ["gh", "api", "--method", method, path]
    command += ["--paginate", "--slurp"] if pages else []
    command += ["--input", "-"] if body is not None else []
    text = None if body is None else json.dumps(body)
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)  # noqa: S603 - no shell; every part of a path is checked before
    if done.returncode:
        raise GitHubError(f"{method} {path}: {done.stderr.strip()}")
    try:
        answer = json.loads(done.stdout) if done.stdout.strip() else None
    except json.JSONDecodeError as error:
        raise GitHubError(f"{method} {path}: {error}") from None
    return [entry for page in answer or [] for entry in page] if pages else answer

"""Check that a commit is the one that was reviewed: ``python -m runner.resolve``, before anything else of the gate.

A pull request must be open and its head must still be the commit that the maintainer named: what was pushed since was
not reviewed. Without a number, the commit must be in the merge queue.
"""

# ruff: noqa: T201 - a job's log is what it prints

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from runner.github import GitHubError, api

if TYPE_CHECKING:
    from collections.abc import Mapping

_FORMS = {
    "REPOSITORY": r"[A-Za-z0-9_.-]+/[A-Za-z0-9_.-]+",
    "PR": r"([1-9][0-9]{0,9})?",
    "SHA": r"[0-9a-f]{40}",
    "BASE": r"([0-9a-f]{40})?",
    "SUITES": r"base|head",
}


class Stale(Exception):  # noqa: N818 - what is wrong is the request
    """The commit is not what may be measured."""


def resolve(asked: Mapping[str, str]) -> dict[str, str]:
    """Return the outputs of the job: what to compare with what, and by whose suites.

    Args:
        asked: the job's variables: REPOSITORY, PR, SHA, BASE and SUITES.

    Raises:
        Stale: it is not the reviewed commit.
        GitHubError: GitHub did not answer.
    """
    wrong = [name for name, form in _FORMS.items() if not re.fullmatch(form, asked.get(name, ""))]
    if wrong:
        raise Stale(f"{', '.join(wrong)} has not the form that it must have")
    repository, pr, sha = asked["REPOSITORY"], asked["PR"], asked["SHA"]
    if pr:
        if asked["BASE"]:
            raise Stale("a pull request is compared with its merge base; BASE is for the merge queue")
        pull = api(f"repos/{repository}/pulls/{pr}")
        if pull["state"] != "open":
            raise Stale(f"#{pr} is {pull['state']}")
        if pull["head"]["sha"] != sha:
            raise Stale(f"#{pr} is at {pull['head']['sha']} by now, not at {sha}; review that, and name it")
        return {"head": sha, "base": "", "suites": asked["SUITES"]}
    queued = api(f"repos/{repository}/git/matching-refs/heads/gh-readonly-queue/", pages=True)
    if sha not in [ref["object"]["sha"] for ref in queued]:
        raise Stale(f"{sha} is not in the merge queue; name its pull request")
    return {"head": sha, "base": asked["BASE"], "suites": "head"}


def main() -> int:
    """Write the outputs, or say why not."""
    try:
        outputs = resolve(os.environ)
    except (Stale, GitHubError) as error:
        print(f"::error::{error}")
        return 1
    with Path(os.environ["GITHUB_OUTPUT"]).open("a", encoding="utf-8") as file:
        file.writelines(f"{name}={value}\n" for name, value in outputs.items())
    return 0


if __name__ == "__main__":
    sys.exit(main())

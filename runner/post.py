"""Post the verdict on a commit: ``python -m runner.post RESULT SETTINGS``, from main's checkout, with a write token.

The result is hostile data. ``flopwatch report`` reads and renders it; here it is never opened. The number of the pull
request and the commit come from the workflow, the margins and waivers from the settings that were packed. What another
job, without a token, made of the pairs by deciding again must come out the same.
"""

# ruff: noqa: T201 - a job's log is what it prints

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from runner.github import GitHubError, api

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

#: What makes the comment ours; the next run writes over it.
MARKER = "<!-- flopwatch:gate -->"
CONTEXT = "flopwatch/gate"
AUTHOR = "github-actions[bot]"
#: GitHub refuses longer ones.
COMMENT_CHARACTERS = 65_536
#: What the sandbox lets out at most, and the report reads.
RESULT_BYTES = 4 * 2**20

#: State of the commit and its words, by the exit code of the report: only 0 is green.
STATES = {
    0: ("success", "nothing regressed"),
    1: ("failure", "something regressed"),
    2: ("error", "a waiver has expired"),
    3: ("error", "undecided: not everything could be measured or proved"),
    4: ("error", "the machine was unfit to measure"),
}
_UNREADABLE = ("error", "the result cannot be read")
_UNKNOWN = ("error", "the report failed")
_DISAGREES = ("error", "decided again by its pairs, the result is another, or could not be")
_MISSING = ("error", "no result: the measuring job failed, was cancelled or was refused")


@dataclass(frozen=True, kw_only=True, slots=True)
class Target:
    """Where the verdict belongs.

    Attributes:
        repository: OWNER/NAME.
        pr: number of the pull request; "" in the merge queue.
        sha: the commit.
        url: of the run.
        judged: the exit code of deciding again; "" where that job failed.
    """

    repository: str
    pr: str
    sha: str
    url: str
    judged: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Report:
    """What is posted: a state of the commit, its description, and a comment in Markdown."""

    state: str
    description: str
    comment: str


def target_of(variables: Mapping[str, str]) -> Target:
    """Read the target from the job's variables.

    Raises:
        ValueError: one has not the form that it must have.
    """
    forms = {"REPOSITORY": r"[\w.-]+/[\w.-]+", "PR": r"([1-9][0-9]{0,9})?", "SHA": r"[0-9a-f]{40}", "RUN": r"[0-9]+"}
    forms["JUDGED"] = r"[0-9]?"
    wrong = [name for name, form in forms.items() if not re.fullmatch(form, variables.get(name, ""), re.ASCII)]
    if wrong:
        raise ValueError(f"{', '.join(wrong)} has not the form that it must have")
    repository = variables["REPOSITORY"]
    server = variables.get("GITHUB_SERVER_URL", "https://github.com")
    url = f"{server}/{repository}/actions/runs/{variables['RUN']}"
    return Target(repository=repository, pr=variables["PR"], sha=variables["SHA"], url=url, judged=variables["JUDGED"])


def make_report(result: Path, settings: Path, target: Target, *, summary: Path | None) -> Report:
    """Render a result, if there is a plain file of a sane size."""
    if result.is_symlink() or not result.is_file():
        return _without(_MISSING, target)
    if result.stat().st_size > RESULT_BYTES:
        return _without(_UNREADABLE, target)
    with tempfile.TemporaryDirectory(prefix="flopwatch-") as folder:
        comment = Path(folder) / "comment.md"
        code = _render(result, settings, "markdown", comment, target)
        if not comment.is_file():  # a program of Python that crashes exits with 1, as one does that found a regression
            return _without(_UNKNOWN, target)
        state, description = _state(code, target.judged)
        text = comment.read_text(encoding="utf-8")
        if summary is not None:
            part = Path(folder) / "summary.md"
            _render(result, settings, "summary", part, target)
            with summary.open("a", encoding="utf-8") as file:
                file.write(part.read_text(encoding="utf-8") if part.is_file() else text)
    if MARKER not in text:
        text = f"{MARKER}\n{text}"
    if len(text) > COMMENT_CHARACTERS:  # cutting it could open what was escaped
        return Report(state=state, description=description, comment=_notice(f"{description}; too long to show", target))
    return Report(state=state, description=description, comment=text)


def post(report: Report, target: Target) -> None:
    """Set the commit's status, and write or write over the comment.

    Raises:
        GitHubError: GitHub says no.
    """
    api(
        f"repos/{target.repository}/statuses/{target.sha}",
        method="POST",
        body={
            "state": report.state,
            "context": CONTEXT,
            "description": report.description,
            "target_url": target.url,
        },
    )
    if not target.pr:
        return
    comments = api(f"repos/{target.repository}/issues/{target.pr}/comments?per_page=100", pages=True)
    own = [entry["id"] for entry in comments if entry["user"]["login"] == AUTHOR and MARKER in entry["body"]]
    if own:
        path, method = f"repos/{target.repository}/issues/comments/{own[0]}", "PATCH"
    else:
        path, method = f"repos/{target.repository}/issues/{target.pr}/comments", "POST"
    api(path, method=method, body={"body": report.comment})


def _state(code: int, judged: str) -> tuple[str, str]:
    """Return what is said of the commit, by this job's report and by what the job before it made of the pairs."""
    if judged == "4":  # which also looks for the GPU
        return STATES[4]
    return STATES.get(code, _UNKNOWN) if judged == str(code) else _DISAGREES


def _render(result: Path, settings: Path, form: str, out: Path, target: Target) -> int:
    """Run ``flopwatch report``, which exits with the code of the gate; 3 where it refuses the result."""
    command = [sys.executable, "-P", "-m", "flopwatch", "report", str(result), "--format", form, "--out", str(out)]
    command += ["--policy", str(settings), "--sha", target.sha, *(["--pr", target.pr] if target.pr else [])]
    # A token is nothing that a reader of hostile data needs.
    environment = {name: value for name, value in os.environ.items() if "TOKEN" not in name}
    done = subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=False)  # noqa: S603 - no shell
    return done.returncode


def _without(state: tuple[str, str], target: Target) -> Report:
    return Report(state=state[0], description=state[1], comment=_notice(state[1], target))


def _notice(what: str, target: Target) -> str:
    return f"{MARKER}\n### flopwatch: {what}\n\n`{target.sha[:12]}` · [the run and its log]({target.url})\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Report one result; fails where it is not green, so that the run shows it too."""
    result, settings = map(Path, sys.argv[1:] if arguments is None else arguments)
    summary = os.environ.get("GITHUB_STEP_SUMMARY")
    try:
        target = target_of(os.environ)
        report = make_report(result, settings, target, summary=Path(summary) if summary else None)
        post(report, target)
    except (ValueError, GitHubError) as error:
        print(f"::error::{error}")
        return 2
    print(f"{CONTEXT}: {report.state}, {report.description}")
    return 0 if report.state == "success" else 1


if __name__ == "__main__":
    sys.exit(main())

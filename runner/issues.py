"""Open one issue for each commit that made something worse: ``python -m runner.issues changes.json``.

Forty cases that a commit slows down are one thing to look at, so the change points of a commit share an issue. Each is
opened once: the issue of a commit whose numbers have changed since is written again, and one that somebody has closed
is left alone. While later commits may still move the place of a change, its issue goes along.
"""

# ruff: noqa: T201 - a job's log is what it prints

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runner.github import GitHubError, api

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

LABEL = "performance"
#: A night that finds more has a sick machine, or a new detector.
MOST_ISSUES = 10
MOST_ROWS = 50
#: In the issue of a change that is young.
MAY_MOVE = "The change is young: later commits may show that it came in some commits before or after."
_COMMIT = re.compile(r"[0-9a-f]{40}")
#: Of anything else, GitHub would make markup, links or mentions.
_PLAIN = re.compile(r"[^A-Za-z0-9 .,:;%()/+=→-]")


def by_commit(changes: Iterable[Mapping[str, Any]]) -> dict[tuple[str, str], list[Mapping[str, Any]]]:
    """Group what got worse by the commits it came with, (last good, first bad), in the order of the changes."""
    groups: dict[tuple[str, str], list[Mapping[str, Any]]] = defaultdict(list)
    for change in changes:
        if change["direction"] == "worse":
            groups[change["last"], change["first"]].append(change)
    return {commits: group for commits, group in groups.items() if all(map(_COMMIT.fullmatch, commits))}


def marker(commits: tuple[str, str]) -> str:
    """Return the hidden line by which the issue is found again.

    It is by the first commit at the new level alone: what was measured before it may be filled in later.
    """
    return f"<!-- flopwatch:change {hashlib.sha256(commits[1].encode()).hexdigest()[:16]} -->"


def title(commits: tuple[str, str], group: Sequence[Mapping[str, Any]]) -> str:
    """Say in one line what happened, worst first."""
    worst = max(group, key=lambda change: change["effect"] or 0.0)
    others = f" and {len(group) - 1} more" if len(group) > 1 else ""
    effect = f" +{worst['effect']:.3g} %" if worst["effect"] is not None else ""
    return f"{plain(worst['case'])}: {plain(worst['metric'])}{effect}{others}, since {commits[1][:8]}"


def body(commits: tuple[str, str], group: Sequence[Mapping[str, Any]], *, repository: str, pages: str) -> str:
    """Write the issue.

    Args:
        commits: the last one at the old level and the first one at the new.
        group: the changes.
        repository: OWNER/NAME.
        pages: address of the dashboard, ending in a slash.
    """
    last, first = commits
    between = max(int(change["commits"]) for change in group)
    one = f"by {first}" if between == 1 else f"by one of {between} commits up to {first}"
    lines = [
        marker(commits),
        f"Made worse {one} ([compare](https://github.com/{repository}/compare/{last}...{first})).",
        "",
        "| Case | Metric | Before | After | Change | Suspected cause |",
        "|:--|:--|--:|--:|--:|:--|",
    ]
    for change in sorted(group, key=lambda change: -(change["effect"] or 0.0))[:MOST_ROWS]:
        level = change["levels"][0]
        effect = "" if change["effect"] is None else f"+{change['effect']:.3g} %"
        cells = [level["before"], level["after"], effect, "; ".join(change["suspects"])]
        lines.append(f"{subject(change)} {' | '.join(plain(cell) for cell in cells)} |")
    if len(group) > MOST_ROWS:
        lines += ["", f"and {len(group) - MOST_ROWS} more."]
    lines += [
        *(["", MAY_MOVE] if not all(change["settled"] for change in group) else []),
        "",
        f"All of it, with graphs: [what changed]({pages}changes.html).",
        f"To make sure: `flopwatch gate {last[:12]} {first[:12]}`.",
        "Close this when it is fixed or accepted; it is not opened again.",
    ]
    return "\n".join(lines)


def subject(change: Mapping[str, Any]) -> str:
    """Return how a row begins: what the change is of, wherever it came in.

    >>> subject({"case": "Add[64]", "metric": "time", "axes": {"gpu": "NVIDIA H200"}})
    '| Add&#91;64&#93; (NVIDIA H200) | time |'
    """
    where = f" ({', '.join(change['axes'].values())})" if change["axes"] else ""
    return f"| {plain(change['case'] + where)} | {plain(change['metric'])} |"


def plain(text: str) -> str:
    """Return a cell that is read as text.

    >>> plain("Matmul[64,float16] | @everyone ![x](http://a)")
    'Matmul&#91;64,float16&#93; &#124; &#64;everyone &#33;&#91;x&#93;(http:&#47;&#47;a)'
    """
    escaped = _PLAIN.sub(lambda match: f"&#{ord(match[0])};", text[:300].replace("\n", " "))
    return escaped.replace("//", "&#47;&#47;").replace("www.", "www&#46;")


def update(changes: Iterable[Mapping[str, Any]], *, repository: str, pages: str) -> list[str]:
    """Open what is new and write again what has changed; returns what was done, in words.

    Raises:
        GitHubError: GitHub says no.
    """
    path = f"repos/{repository}/issues"
    known = api(f"{path}?labels={LABEL}&state=all&per_page=100", pages=True)
    groups = by_commit(changes)
    there = {commits: issue for commits in groups if (issue := _with(known, marker(commits)))}
    # Young changes that are not where they were: one of those that are new may be the same.
    moved = [
        issue
        for issue in known
        if issue["state"] == "open" and MAY_MOVE in (issue["body"] or "") and issue not in there.values()
    ]
    done = []
    opened = 0
    for commits, group in groups.items():
        text = body(commits, group, repository=repository, pages=pages)
        issue = there.get(commits) or _with(moved, *map(subject, group))
        if issue is not None and issue in moved:
            moved.remove(issue)
        if issue is None and opened < MOST_ISSUES:
            opened += 1
            made = api(path, method="POST", body={"title": title(commits, group), "body": text, "labels": [LABEL]})
            done.append(f"opened #{made['number']}")
        elif issue is not None and issue["state"] == "open" and issue["body"].replace("\r\n", "\n") != text:
            api(f"{path}/{issue['number']}", method="PATCH", body={"title": title(commits, group), "body": text})
            done.append(f"updated #{issue['number']}")
    return done


def _with(issues: Iterable[dict[str, Any]], *texts: str) -> dict[str, Any] | None:
    """Return the first issue that has one of some texts."""
    return next((issue for issue in issues if any(text in (issue["body"] or "") for text in texts)), None)


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the dashboard's changes, and open issues."""
    [path] = sys.argv[1:] if arguments is None else arguments
    repository = os.environ["REPOSITORY"]
    owner, _, name = repository.partition("/")
    pages = os.environ.get("PAGES") or f"https://{owner}.github.io/{name}/"
    try:
        changes = json.loads(Path(path).read_text(encoding="utf-8"))["changes"]
        done = update(changes, repository=repository, pages=pages)
    except (OSError, ValueError, KeyError, TypeError, GitHubError) as error:
        print(f"::error::no issue was opened: {error!r:.500}")
        return 2
    print("\n".join(done) or "nothing new")
    return 0


if __name__ == "__main__":
    sys.exit(main())

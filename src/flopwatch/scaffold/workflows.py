"""The workflows: one that needs no GPU and, where a machine with one is named, two that run on it."""

from __future__ import annotations

import json
import re
import shlex
from importlib import resources
from typing import TYPE_CHECKING

from flopwatch.scaffold.files import Action, PlannedFile, plan_file
from flopwatch.scaffold.requirement import requirement

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from flopwatch.scaffold.layout import Layout

_FOLDER = ".github/workflows"
HOSTED = f"{_FOLDER}/flopwatch.yml"
ON_GPU = f"{_FOLDER}/flopwatch-gpu.yml"
NIGHTLY = f"{_FOLDER}/flopwatch-nightly.yml"
#: actionlint knows labels of one's own from here.
_LABELS = (".github/actionlint.yaml", ".github/actionlint.yml")
#: GitHub allows blanks in a label, too; this one is also the name of recordings, which is that of a folder.
_LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


def is_label(text: str) -> bool:
    """Tell whether a runner's label can be put into a workflow and into a path.

    >>> is_label("h200"), is_label("two words"), is_label("..")
    (True, False, False)
    """
    return _LABEL.fullmatch(text) is not None


def plan_workflows(
    root: Path, layout: Layout, *, suites: str, results: str, pages: str, gpu_runner: str
) -> list[PlannedFile]:
    """Plan the workflows.

    Args:
        root: the repository.
        layout: of it.
        suites: the folder of the suites, at which annotations stand.
        results: asv's folder of recordings.
        pages: its folder of web pages.
        gpu_runner: the label of the machine with a GPU; without one, no workflow of it is planned.
    """
    values = {
        '"@MAIN@"': json.dumps(layout.main),
        "@REQUIREMENTS@": (". " if layout.installable else "") + shlex.quote(requirement()),
        "@SUITES@": shlex.quote(suites),
        "@RESULTS@": results,
        "@PAGES@": pages,
        "@LABEL@": gpu_runner,
    }
    files = []
    for path in (HOSTED, ON_GPU, NIGHTLY) if gpu_runner else (HOSTED,):
        text = template(path.rpartition("/")[2])
        for name, value in values.items():
            text = text.replace(name, value)
        files.append(plan_file(root, path, text, by_hand=text))
    for path in _LABELS if gpu_runner else ():
        if (root / path).exists():
            labels = f"self-hosted-runner:\n  labels: [{gpu_runner}]\n"
            files.append(plan_file(root, path, labels, by_hand=labels, known_by=gpu_runner))
    return files


def template(name: str) -> str:
    """Return the text of a template; what it leaves open stands between two @."""
    return resources.files("flopwatch.scaffold").joinpath("templates", name).read_text(encoding="utf-8")


def workflow_todo(files: Collection[PlannedFile], layout: Layout, gpu_runner: str) -> list[str]:
    """Say what the workflows that are created leave to somebody."""
    created = {file.path for file in files if file.action is Action.CREATE}
    todo = []
    if HOSTED in created:
        todo.append('Require the check "Gate without a GPU" for the main branch, in the repository\'s settings.')
        if not gpu_runner:
            todo.append(
                "Times are compared on a GPU alone: run flopwatch gate on a machine with one. For a private repository"
                " whose authors are trusted with that machine, flopwatch init --gpu-runner LABEL writes workflows that"
                " do so at each push and record each night; for a public one, see docs/runners.md of flopwatch."
            )
    if {ON_GPU, NIGHTLY} & created:
        itself = " ." if layout.installable else "    # and what the kernels import"
        todo.append(
            f"Make a machine with a GPU this repository's runner, with the label {gpu_runner}, and install flopwatch"
            " there: sudo python3 -m venv /opt/flopwatch && sudo /opt/flopwatch/bin/python -m pip install"
            f" {shlex.quote(requirement('history'))}{itself}"
        )
        todo.append(
            "Switch the workflows of the GPU on: gh variable set FLOPWATCH_TRUSTED_AUTHORS --body true. From then on,"
            " whoever can push runs programs on that machine."
        )
    return todo

from __future__ import annotations

import os
import re
import shlex
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.scaffold.conftest import ADD

from flopwatch.scaffold import Action, Scaffold, plan_scaffold, write_files
from flopwatch.scaffold.requirement import requirement
from flopwatch.scaffold.trial import Outcome
from flopwatch.scaffold.workflows import HOSTED, NIGHTLY, ON_GPU

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.scaffold.conftest import Stranger

    Make = Callable[[Mapping[str, str]], Stranger]

TEMPLATES = {
    path.name: path.read_text(encoding="utf-8")
    for path in sorted(Path(__file__).parents[2].glob("src/flopwatch/scaffold/templates/*.yml"))
}
OURS = Path(__file__).parents[2] / ".github" / "workflows"
USES = re.compile(r"\buses: (.*)")

#: What stands for flopwatch on the machine with the GPU: it tells what it was asked, and records one file.
RECORDER = """\
#!/bin/sh
echo "$@" >> "$ASKED"
ls .asv/results >> "$ASKED"
mkdir -p .asv/results/h200
echo "$*" > ".asv/results/h200/$(git rev-parse HEAD).json"
"""


@pytest.fixture(autouse=True)
def _untried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave the trials out: they take seconds, and no workflow depends on them."""
    monkeypatch.setattr("flopwatch.scaffold.plan.find_suite", lambda *_arguments, **_options: Outcome(reasons=("no",)))


def workflows(scaffold: Scaffold) -> dict[str, str]:
    return {file.path: file.text for file in scaffold.files if file.path.startswith(".github/workflows/")}


def script(workflow: str, job: str, having: str) -> str:
    """Return the command of the one step of a job that has some words."""
    body = workflow.partition(f"\n  {job}:\n")[2]
    commands = re.findall(r"^( +)(?:- )?run: \|\n((?:\1 +.*\n)+)", re.split(r"\n  [a-z]+:\n", body)[0], re.MULTILINE)
    (found,) = [lines for _, lines in commands if having in lines]
    return re.sub(r"(?m)^ {10}", "", found)


def test_a_repository_without_a_gpu_runner_gets_the_hosted_workflow_and_is_told_of_the_others(stranger: Make) -> None:
    scaffold = plan_scaffold(stranger({"mk.py": ADD}).root)

    assert set(workflows(scaffold)) == {HOSTED}
    assert [line for line in scaffold.todo if "--gpu-runner LABEL" in line and "docs/runners.md" in line] != []


def test_the_workflows_of_a_gpu_name_its_runner_the_main_branch_and_asvs_folders(stranger: Make) -> None:
    repository = stranger({"mk.py": ADD, "pyproject.toml": "[project]\nname = 'mk'\nversion = '1'\n"})
    repository.git("branch", "-m", "trunk")
    scaffold = plan_scaffold(repository.root, gpu_runner="h200")

    texts = workflows(scaffold)
    assert set(texts) == {HOSTED, ON_GPU, NIGHTLY}
    assert not re.search(r"@[A-Z]+@", "".join(texts.values()))
    for path in (ON_GPU, NIGHTLY):
        assert texts[path].count('runs-on: [self-hosted, linux, "h200"]\n') == 1
        assert "vars.FLOPWATCH_TRUSTED_AUTHORS == 'true'" in texts[path]
    assert 'branches-ignore: ["trunk", "gh-readonly-queue/**"]\n' in texts[ON_GPU]
    assert "if: github.event.repository.private && " in texts[ON_GPU]
    assert '          ref: "trunk"\n' in texts[NIGHTLY]
    assert re.findall(r'^ +path: "(.*)"$', texts[NIGHTLY], re.MULTILINE) == [".asv/results", ".asv/html"]
    asked_for = f"pip install {shlex.quote(requirement('history'))} ."
    assert any("label h200" in line and asked_for in line for line in scaffold.todo)
    assert any("gh variable set FLOPWATCH_TRUSTED_AUTHORS" in line for line in scaffold.todo)
    assert not any("--gpu-runner" in line for line in scaffold.todo)


def test_they_can_be_added_later_and_then_change_nothing_else(stranger: Make) -> None:
    repository = stranger({"mk.py": ADD, "setup.py": ""})
    first = plan_scaffold(repository.root)
    write_files(first.root, first.files)

    later = plan_scaffold(repository.root, gpu_runner="h200")
    assert {file.path for file in later.files if file.action is not Action.KEEP} == {ON_GPU, NIGHTLY}
    assert any(line.startswith(f"git add {ON_GPU} {NIGHTLY} ") for line in later.todo)
    write_files(later.root, later.files)

    again = plan_scaffold(repository.root, gpu_runner="h200")
    assert {file.action for file in again.files} == {Action.KEEP}
    assert again.todo == ()


def test_folders_of_a_history_that_is_there_are_used(stranger: Make) -> None:
    settings = '{\n  "version": 1,\n  // "results_dir": "old",\n  "results_dir": "perf/results",\n}\n'
    repository = stranger({"mk.py": ADD, "asv.conf.json": settings})
    text = workflows(plan_scaffold(repository.root, gpu_runner="h200"))[NIGHTLY]

    assert "mkdir -p perf/results\n" in text
    assert re.findall(r'^ +path: "(.*)"$', text, re.MULTILINE) == ["perf/results", "html"]


@pytest.mark.parametrize(("present", "by_hand"), [("[mine]", True), ("[mine, h200]", False)])
def test_where_actionlint_is_set_up_it_is_to_know_the_label(present: str, by_hand: bool, stranger: Make) -> None:
    files = {"mk.py": ADD, ".github/actionlint.yaml": f"self-hosted-runner:\n  labels: {present}\n"}
    scaffold = plan_scaffold(stranger(files).root, gpu_runner="h200")

    (settings,) = [file for file in scaffold.files if "actionlint" in file.path]
    assert settings.action is Action.KEEP
    assert ("h200" in settings.by_hand) is by_hand


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_workflow_has_pinned_actions_and_no_right_without_a_reason(name: str) -> None:
    text = TEMPLATES[name]
    ours = "".join(path.read_text(encoding="utf-8") for path in OURS.glob("*.yml"))
    scopes = re.findall(r"^      [a-z-]+: (?:read|write)\b.*$", text, re.MULTILINE)

    assert re.findall(r"^permissions:.*$", text, re.MULTILINE) == ["permissions: {}"]
    assert USES.findall(text) != []
    assert set(USES.findall(text)) <= set(USES.findall(ours))  # whose pins are renewed, and tested for their form
    assert text.count("actions/checkout@") == text.count("persist-credentials: false")
    assert scopes != []
    assert [scope for scope in scopes if " # " not in scope] == []
    assert not re.search(r"pull_request_target|workflow_run|issue_comment|secrets\.", text)


@pytest.mark.parametrize("name", TEMPLATES)
def test_where_kernels_run_is_no_right_to_write(name: str) -> None:
    jobs = re.split(r"^  [a-z]+:\n", TEMPLATES[name].partition("\njobs:\n")[2], flags=re.MULTILINE)[1:]

    for job in jobs:
        assert not ("flopwatch gate" in job or "flopwatch record" in job) or ": write" not in job
        assert ": write" not in job or "self-hosted" not in job


def test_the_nights_recordings_come_together_on_their_branch(tmp_path: Path, stranger: Make) -> None:
    repository = stranger({"mk.py": ADD})
    text = workflows(plan_scaffold(repository.root, gpu_runner="h200"))[NIGHTLY]
    origin = tmp_path / "origin.git"
    repository.git("clone", "-q", "--bare", ".", str(origin))
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, body in (("flopwatch", RECORDER), ("gh", "#!/bin/sh\n")):
        (programs / name).write_text(body, encoding="utf-8")
        (programs / name).chmod(0o755)
    record = script(text, "record", "flopwatch record").replace("/opt/flopwatch/bin/python -P -m ", "")
    keep = script(text, "keep", "git push")
    asked = tmp_path / "asked"

    def night(number: int) -> None:
        machine, hosted, artifact = (tmp_path / f"{name}{number}" for name in ("machine", "hosted", "artifact"))
        variables = {**os.environ, "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}", "ASKED": str(asked)}
        variables |= {"RUNNER_TEMP": str(artifact), "GIT_CONFIG_GLOBAL": os.devnull}
        repository.git("clone", "-q", str(origin), str(machine))
        subprocess.run(["bash", "-e", "-c", record], cwd=machine, env=variables, check=True)
        artifact.mkdir()
        (machine / ".asv/results").rename(artifact / "recorded")
        settings = artifact / "recorded/.git/config"  # of somebody who wants to run commands beside the token
        settings.parent.mkdir()
        settings.write_text(f"[core]\n\tfsmonitor = touch {tmp_path}/owned;false\n", encoding="utf-8")
        repository.git("clone", "-q", "--depth=1", f"file://{origin}", str(hosted))
        subprocess.run(["bash", "-e", "-c", keep], cwd=hosted, env=variables, check=True)

    def files() -> list[str]:
        return repository.git("-C", str(origin), "ls-tree", "-r", "--name-only", "flopwatch-results").split()

    first = repository.git("rev-parse", "HEAD").strip()
    night(1)
    assert files() == [f"h200/{first}.json"]

    repository.git("commit", "-q", "--allow-empty", "-m", "second")
    repository.git("push", "-q", str(origin), "main")
    second = repository.git("rev-parse", "HEAD").strip()
    night(2)
    assert files() == sorted([f"h200/{first}.json", f"h200/{second}.json"])
    assert asked.read_text().splitlines() == ["record HEAD^! --machine h200", "record NEW --machine h200", "h200"]

    # A night to which nothing came adds no commit, and is no failure.
    night(3)
    log = repository.git("-C", str(origin), "log", "--format=%s", "flopwatch-results").splitlines()
    assert log == ["Record the night", "Record the night"]
    assert not (tmp_path / "owned").exists()

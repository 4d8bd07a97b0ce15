from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from tests.report.conftest import GONE, SPILLING, small

from flopwatch.model import Mark, to_json
from flopwatch.verdict import Side

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / ".github" / "workflows"
WORKFLOWS = {path.name: path.read_text(encoding="utf-8") for path in sorted(FOLDER.glob("*.yml"))}
#: Longer ones belong into a script, which has a test.
LONGEST_RUN = 4


def jobs(text: str) -> dict[str, str]:
    """Return the text of each job by its key: the second level of indentation below `jobs:`."""
    body = text.partition("\njobs:\n")[2]
    parts = re.split(r"^  ([a-z][a-z-]*):\n", body, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def without_comments(text: str) -> str:
    return re.sub(r"(?m)(^|\s)#.*$", "", text)


TEMPLATE = (ROOT / "src/flopwatch/scaffold/templates/flopwatch.yml").read_text(encoding="utf-8")
ALL_JOBS = [(name, key, text) for name, workflow in WORKFLOWS.items() for key, text in jobs(workflow).items()]
ON_OUR_MACHINE = {(name, key): text for name, key, text in ALL_JOBS if "self-hosted" in text}
SANDBOXED = {where: text for where, text in ON_OUR_MACHINE.items() if where[0] != "gpu-branch.yml"}


def test_these_jobs_run_on_our_machine() -> None:
    assert sorted(ON_OUR_MACHINE) == [
        ("gpu-branch.yml", "gate"),
        ("gpu-gate.yml", "measure"),
        ("nightly.yml", "record"),
    ]


@pytest.mark.parametrize("name", WORKFLOWS)
def test_a_workflow_grants_nothing_to_all_its_jobs(name: str) -> None:
    assert re.findall(r"^permissions:.*$", WORKFLOWS[name], re.MULTILINE) == ["permissions: {}"]


@pytest.mark.parametrize("name", WORKFLOWS)
def test_no_workflow_starts_with_rights_that_a_pull_request_could_use(name: str) -> None:
    assert not re.search(r"pull_request_target|workflow_run|issue_comment|secrets\.", without_comments(WORKFLOWS[name]))


@pytest.mark.parametrize(("name", "key", "text"), ALL_JOBS)
def test_each_scope_has_its_reason(name: str, key: str, text: str) -> None:
    scopes = re.findall(r"^      [a-z-]+: (?:read|write)\b.*$", text, re.MULTILINE)

    assert [scope for scope in scopes if " # " not in scope] == [], (name, key)


@pytest.mark.parametrize("name", WORKFLOWS)
def test_actions_are_pinned_by_hash_with_their_version(name: str) -> None:
    uses = re.findall(r"\buses: (.*)", WORKFLOWS[name])

    assert [use for use in uses if not re.fullmatch(r"actions/[a-z-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", use)] == []


def test_an_action_has_one_version_everywhere() -> None:
    uses = {use for text in WORKFLOWS.values() for use in re.findall(r"\buses: (\S+)@(\S+)", text)}

    assert len(uses) == len(dict(uses))


@pytest.mark.parametrize(("name", "key", "text"), ALL_JOBS)
def test_no_expression_is_pasted_into_a_shell(name: str, key: str, text: str) -> None:
    for command in re.findall(r"^ +(?:- )?run: (.*(?:\n {10,}.*)*)", text, re.MULTILINE):
        assert "${{" not in command, (name, key)
        assert command.count("\n") < LONGEST_RUN, (name, key)


@pytest.mark.parametrize("where", SANDBOXED, ids=str)
def test_where_unreviewed_code_runs_is_no_token_no_checkout_and_no_secret(where: tuple[str, str]) -> None:
    text = without_comments(SANDBOXED[where])

    assert "    permissions: {}\n" in text
    assert "environment: gpu" in text
    assert re.findall(r"actions/([a-z-]+)@", text) == ["download-artifact", "upload-artifact"]
    assert [line.split()[2] for line in text.splitlines() if "run:" in line] == ["flopwatch-sandbox"]
    assert not re.search(r"github\.token|GITHUB_TOKEN|secrets|env:", text)


@pytest.mark.parametrize(("name", "key", "text"), ALL_JOBS)
def test_what_can_write_installs_nothing_and_checks_out_main_alone(name: str, key: str, text: str) -> None:
    if not re.search(r"^      [a-z-]+: write\b", text, re.MULTILINE):
        return
    assert not re.search(r"pip install|nox|setup-python|^ +ref:", text, re.MULTILINE), (name, key)


def test_the_number_and_the_commit_of_a_report_are_the_workflows() -> None:
    report = jobs(WORKFLOWS["gpu-gate.yml"])["report"]

    assert "PR: ${{ inputs.pr }}" in report
    assert "SHA: ${{ needs.resolve.outputs.head }}" in report


def test_the_gate_of_a_branch_needs_a_private_repository_that_says_so() -> None:
    condition = "github.event.repository.private && vars.FLOPWATCH_TRUSTED_AUTHORS == 'true'"

    assert f"if: {condition}" in jobs(WORKFLOWS["gpu-branch.yml"])["gate"]


def test_ci_needs_no_gpu_and_builds_the_dashboard() -> None:
    ci = WORKFLOWS["ci.yml"]

    assert "self-hosted" not in ci
    assert {"lint", "types", "docs", "tests", "gate", "dashboard"} <= set(re.findall(r"session: ([a-z]+)", ci))


@pytest.mark.parametrize(
    "workflow", [WORKFLOWS["ci.yml"], TEMPLATE.replace("@SUITES@", "benchmarks")], ids=["ours", "init"]
)
def test_a_red_mark_without_a_gpu_comes_with_its_report(workflow: str, tmp_path: Path) -> None:
    (step,) = [step for step in re.split(r"(?m)^      - ", workflow) if "flopwatch report" in step]
    commands = re.sub(r"(?m)^ {10}", "", step.partition("run: |\n")[2].partition("\n\n")[0])
    verdict = replace(small("1x1x1", reason="it fails"), mark=Mark.BROKEN, head=Side(failure=GONE))
    flopwatch = tmp_path / "flopwatch"
    flopwatch.write_text(f'#!/bin/sh\nexec {sys.executable} -m flopwatch "$@"\n', encoding="utf-8")
    flopwatch.chmod(0o755)
    summary = tmp_path / "summary.md"
    variables = {
        "PATH": f"{tmp_path}{os.pathsep}{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT / "src"),
        "RUNNER_TEMP": str(tmp_path),
        "GITHUB_STEP_SUMMARY": str(summary),
    }

    def report() -> str:
        shell = ["bash", "-e", "-c", commands]
        done = subprocess.run(shell, cwd=ROOT, env=variables, capture_output=True, text=True, check=True)
        return done.stdout

    assert re.match(r"if: .*!cancelled\(\)", step)
    assert '--json "$RUNNER_TEMP/gate.json"' in workflow.partition("flopwatch report")[0]
    # A gate that was refused its command line, say, leaves no result: that is no second failure.
    assert report() == ""
    assert not summary.exists()

    (tmp_path / "gate.json").write_bytes(to_json(replace(SPILLING, verdicts=(verdict,))))
    printed = report()
    assert printed.startswith("::error title=flopwatch::Regressed: 1 case broken.\n")
    assert "Matmul[1x1x1,float16,flopwatch]: broken: it fails" in printed
    assert "### Regressed: 1 case broken." in summary.read_text(encoding="utf-8")

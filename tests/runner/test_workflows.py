from __future__ import annotations

import re
from pathlib import Path

import pytest

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

from __future__ import annotations

import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    Commit = Callable[[dict[str, str | None]], str]

ROOT = Path(__file__).parents[2]
RUNNER = ROOT / "runner"
GATE = "owner/name/.github/workflows/gpu-gate.yml@refs/heads/main"
PULL = "owner/name/.github/workflows/gpu-gate.yml@refs/pull/7/merge"


def run(script: str, *arguments: str, cwd: Path = ROOT, **variables: str) -> subprocess.CompletedProcess[str]:
    # As the runner does: the Python that runs these tests is the one that the scripts find.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    return subprocess.run(
        ["bash", "-e", str(RUNNER / script), *arguments],
        cwd=cwd,
        env={"PATH": path, "HOME": os.environ.get("HOME", "/"), **variables},
        capture_output=True,
        text=True,
        check=False,
    )


def started(jobs: Path, event: str, workflow: str) -> int:
    return run("job-started.sh", str(jobs), GITHUB_EVENT_NAME=event, GITHUB_WORKFLOW_REF=workflow).returncode


@pytest.fixture
def jobs(tmp_path: Path) -> Path:
    path = tmp_path / "jobs"
    path.write_text(
        f"# event workflow\n\nworkflow_dispatch  {GATE}\npush owner/own/.github/workflows/b.yml@refs/heads/*"
    )
    return path


def test_a_listed_job_may_start(jobs: Path) -> None:
    assert started(jobs, "workflow_dispatch", GATE) == 0
    assert started(jobs, "push", "owner/own/.github/workflows/b.yml@refs/heads/topic") == 0


@pytest.mark.parametrize(
    ("event", "workflow"),
    [
        ("pull_request", GATE),
        ("pull_request_target", GATE),
        ("workflow_dispatch", PULL),
        ("workflow_dispatch", GATE.replace("main", "topic")),
        ("workflow_dispatch", GATE.replace("main", "main2")),
        ("workflow_dispatch", GATE.replace("gpu-gate", "other")),
        ("workflow_dispatch", GATE.replace("owner", "fork")),
        ("workflow_dispatch", f"x{GATE}"),
        ("push", "owner/own/.github/workflows/b.yml@refs/tags/v1"),
        ("push", GATE),
        ("#", "event"),
        ("", ""),
        ("workflow_dispatch", ""),
        ("", GATE),
        ("workflow_dispatch", "*"),
        ("workflow_dispatch", f"{GATE} {GATE}"),
        (f"push\nworkflow_dispatch {GATE}", GATE),
    ],
)
def test_any_other_job_ends_before_it_starts(jobs: Path, event: str, workflow: str) -> None:
    assert started(jobs, event, workflow) == 1


def test_without_a_proper_list_no_job_starts(tmp_path: Path, jobs: Path) -> None:
    (tmp_path / "link").symlink_to(jobs)
    (tmp_path / "three").write_text(f"workflow_dispatch {GATE} extra\n")
    (tmp_path / "one").write_text("workflow_dispatch\n")
    (tmp_path / "empty").write_text("")

    for name in ("link", "three", "one", "empty", "absent"):
        assert started(tmp_path / name, "workflow_dispatch", GATE) == 1


def test_a_completed_job_leaves_its_workspace_empty(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").touch()
    workspace = tmp_path / "_work" / "name" / "name"
    (workspace / "deep").mkdir(parents=True)
    (workspace / ".hidden").touch()
    (workspace / "link").symlink_to(outside)

    done = run("job-completed.sh", GITHUB_WORKSPACE=str(workspace))

    assert (done.returncode, list(workspace.iterdir()), (outside / "kept").exists()) == (0, [], True)


def test_what_is_no_workspace_is_never_emptied(tmp_path: Path) -> None:
    (tmp_path / "kept").touch()
    (tmp_path / "_work" / "a").mkdir(parents=True)
    (tmp_path / "_work" / "a" / "link").symlink_to(tmp_path)

    for folder in (str(tmp_path), f"{tmp_path}/_work/a/../..", f"{tmp_path}/_work/a/link", "", f"{tmp_path}/absent"):
        assert run("job-completed.sh", GITHUB_WORKSPACE=folder).returncode == 0
    assert (tmp_path / "kept").exists()


def test_the_installer_lists_the_workflows_of_main_and_keeps_settings(tmp_path: Path) -> None:
    first = run("install.sh", "owner/name", DESTDIR=str(tmp_path))
    settings = tmp_path / "etc" / "flopwatch"
    (settings / "sandbox.toml").write_text("gpu = 1\n")
    second = run("install.sh", "owner/name", DESTDIR=str(tmp_path))

    assert (first.returncode, second.returncode) == (0, 0)
    assert (settings / "sandbox.toml").read_text() == "gpu = 1\n"
    assert started(settings / "jobs", "workflow_dispatch", GATE) == 0
    assert started(settings / "jobs", "schedule", GATE.replace("gpu-gate", "nightly")) == 0
    assert started(settings / "jobs", "pull_request", GATE) == 1
    library = tmp_path / "usr" / "local" / "lib" / "flopwatch"
    assert {path.name: oct(path.stat().st_mode & 0o777) for path in library.iterdir()} == {
        "sandbox.py": "0o755",
        "trial.py": "0o644",
        "limits.conf": "0o644",
        "job-started.sh": "0o755",
        "job-completed.sh": "0o755",
    }
    assert (tmp_path / "usr/local/bin/flopwatch-sandbox").readlink() == Path("/usr/local/lib/flopwatch/sandbox.py")


def test_a_runner_is_set_up_in_ten_commands_that_name_what_is_installed(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "runners.md").read_text(encoding="utf-8").partition("\n## A runner in ten commands\n")[2]
    typed = page.partition("```console\n")[2].partition("```")[0].splitlines()
    run("install.sh", "owner/name", DESTDIR=str(tmp_path))
    named = re.findall(r"/usr/local/lib/flopwatch/[a-z.-]+", "\n".join(typed))

    assert len(typed) == 10
    assert all(line.startswith("$ sudo ") for line in typed)
    syntax = subprocess.run(["bash", "-n"], input="\n".join(line[2:] for line in typed), text=True, check=False)
    assert syntax.returncode == 0
    assert len(named) == 3
    assert [name for name in named if not list(tmp_path.glob(f"{name[1:]}*"))] == []


@pytest.mark.parametrize("arguments", [(), ("name",), ("owner/name", "x"), ("owner/name$(id)",)])
def test_the_installer_refuses_what_is_no_repository(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    assert (run("install.sh", *arguments, DESTDIR=str(tmp_path)).returncode, list(tmp_path.iterdir())) == (2, [])


def git(*arguments: str, cwd: Path) -> str:
    return subprocess.run(["git", *arguments], cwd=cwd, capture_output=True, text=True, check=True).stdout.strip()


def recorded(tmp_path: Path, name: str, last: str, **others: str) -> Path:
    """Make the archive of a night, with a result and the last commit that is complete."""
    path = tmp_path / "results.tar"
    with tarfile.open(path, "w") as archive:
        for member_name, content in (("recorded", last.encode()), (name, b"{}"), *_encoded(others)):
            member = tarfile.TarInfo(member_name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return path


def _encoded(others: dict[str, str]) -> list[tuple[str, bytes]]:
    return [(name.replace("_", "-"), text.encode()) for name, text in others.items()]


def push(tmp_path: Path, archive: Path, head: str, clone: str = "repository") -> subprocess.CompletedProcess[str]:
    """Run the script in a clone of main, as it is at the commit."""
    variables = {"REMOTE": (tmp_path / "remote").as_uri(), "HEAD": head, "GH_TOKEN": "secret"}
    return run("push-results.sh", str(archive), cwd=tmp_path / clone, **variables)


@pytest.fixture
def line(tmp_path: Path, commit: Commit) -> list[str]:
    """Return four commits of main, which has the scripts."""
    shutil.copytree(RUNNER, tmp_path / "repository" / "runner", ignore=shutil.ignore_patterns("__pycache__"))
    return [commit({"n": str(number)}) for number in range(4)]


@pytest.fixture
def remote(tmp_path: Path, line: list[str]) -> Path:
    """Return the remote repository, which has them all."""
    assert line
    folder = tmp_path / "remote"
    git("clone", "--quiet", "--bare", str(tmp_path / "repository"), str(folder), cwd=tmp_path)
    return folder


def test_each_night_adds_a_commit_to_the_branch_of_recordings(tmp_path: Path, line: list[str], remote: Path) -> None:
    first = push(tmp_path, recorded(tmp_path, "results/h200/aaaaaaaa-env.json", line[1]), line[1])
    second = push(tmp_path, recorded(tmp_path, "results/h200/bbbbbbbb-env.json", line[3]), line[3])

    assert (first.returncode, second.returncode) == (0, 0), first.stderr + second.stderr
    assert "::warning::" not in first.stdout + second.stdout
    assert git("log", "--format=%s", "flopwatch-results", cwd=remote).splitlines() == [
        f"Record up to {line[3]}",
        f"Record up to {line[1]}",
    ]
    assert git("ls-tree", "-r", "--name-only", "flopwatch-results", cwd=remote).splitlines() == [
        "recorded",
        "results/h200/aaaaaaaa-env.json",
        "results/h200/bbbbbbbb-env.json",
    ]
    assert git("show", "flopwatch-results:recorded", cwd=remote) == line[3]


def test_a_night_that_ended_early_is_kept_as_far_as_it_came(tmp_path: Path, line: list[str], remote: Path) -> None:
    done = push(tmp_path, recorded(tmp_path, "results/h200/aaaaaaaa-env.json", line[1]), line[3])

    assert done.returncode == 0, done.stderr
    assert f"::warning::recorded up to {line[1]}, not up to {line[3]}" in done.stdout
    assert git("show", "flopwatch-results:recorded", cwd=remote) == line[1]
    assert git("log", "--format=%s", "flopwatch-results", cwd=remote) == f"Record up to {line[1]}"


def test_a_commit_that_takes_more_than_a_night_is_a_warning_and_the_next_night_goes_on_behind_it(
    tmp_path: Path, line: list[str], remote: Path
) -> None:
    name = "results/h200/aaaaaaaa-env.json"

    done = push(tmp_path, recorded(tmp_path, name, line[1], given_up=line[1]), line[1])

    assert done.returncode == 0, done.stderr
    assert f"::warning::{line[1]} takes more than a night and is given up" in done.stdout
    assert git("show", "flopwatch-results:recorded", cwd=remote) == line[1]


def test_a_checkout_without_the_history_gets_it(tmp_path: Path, line: list[str], remote: Path) -> None:
    git("clone", "--quiet", "--depth=1", remote.as_uri(), "shallow", cwd=tmp_path)

    done = push(tmp_path, recorded(tmp_path, "results/h200/aaaaaaaa-env.json", line[1]), line[3], clone="shallow")

    assert done.returncode == 0, done.stdout + done.stderr
    assert git("show", "flopwatch-results:recorded", cwd=remote) == line[1]


def test_what_is_no_recording_is_not_pushed(tmp_path: Path, line: list[str], remote: Path) -> None:
    other = push(tmp_path, recorded(tmp_path, ".github/workflows/x.yml", line[3]), line[3])
    unknown = push(tmp_path, recorded(tmp_path, "results/h200/aaaaaaaa-env.json", "f" * 40), line[3])

    assert (other.returncode, unknown.returncode) == (2, 2)
    assert git("branch", "--list", "flopwatch-results", cwd=remote) == ""


def test_the_token_is_not_where_other_programs_are_run(tmp_path: Path, line: list[str], remote: Path) -> None:
    assert remote.is_dir()
    store = tmp_path / "repository" / "runner" / "store.py"
    store.write_text("import os, sys\nprint(sorted(os.environ), list(os.environ.values()))\nsys.exit(2)\n")

    shown = push(tmp_path, recorded(tmp_path, "results/h200/aaaaaaaa-env.json", line[1]), line[3]).stdout

    assert "REMOTE" in shown
    assert not [word for word in ("GH_TOKEN", "secret", "AUTHORIZATION", "GIT_CONFIG_COUNT") if word in shown]


def test_a_night_is_packed_from_where_the_last_one_ended(tmp_path: Path, commit: Commit) -> None:
    line = [commit({"n": str(number)}) for number in range(3)]
    repository = tmp_path / "repository"
    shutil.copytree(RUNNER, repository / "runner")
    output = tmp_path / "output"
    variables = {"MAIN": "main", "HEAD": line[2], "GITHUB_OUTPUT": str(output)}

    first = run("pack-night.sh", str(tmp_path / "first.tar"), cwd=repository, **variables)
    git("checkout", "--quiet", "--orphan", "other", cwd=repository)
    last = commit({"recorded": f"{line[1]}\n"})
    git("update-ref", "refs/remotes/origin/flopwatch-results", last, cwd=repository)
    second = run("pack-night.sh", str(tmp_path / "second.tar"), cwd=repository, **variables)

    assert (first.returncode, second.returncode) == (0, 0), first.stderr + second.stderr
    assert output.read_text() == f"base={line[0]}\nbase={line[1]}\n"


def test_a_branch_of_recordings_without_a_commit_is_an_error(tmp_path: Path, commit: Commit) -> None:
    head = commit({"recorded": "$(id)"})
    repository = tmp_path / "repository"
    git("update-ref", "refs/remotes/origin/flopwatch-results", head, cwd=repository)

    assert run("pack-night.sh", str(tmp_path / "x.tar"), cwd=repository, MAIN="main", HEAD=head).returncode == 2

from __future__ import annotations

import subprocess
import tarfile
from typing import TYPE_CHECKING

import pytest
from runner import pack

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Commit = Callable[[dict[str, str | None]], str]

PYPROJECT = '[tool.flopwatch]\npackages = ["mine.kernels", "solo"]\n'
BASE: dict[str, str | None] = {
    "pyproject.toml": PYPROJECT,
    "benchmarks/suite.py": "the ruler",
    "src/mine/__init__.py": "",
    "src/mine/kernels/matmul.py": "base's kernel",
    "src/mine/kernels/old.py": "base's only",
    "src/mine/other.py": "not under test",
    "src/solo.py": "base's module",
}
HEAD: dict[str, str | None] = {
    "pyproject.toml": PYPROJECT + "margin_percent = 1000\n",
    "benchmarks/suite.py": "a bent ruler",
    "benchmarks/conftest.py": "new",
    "src/mine/kernels/matmul.py": "head's kernel",
    "src/mine/kernels/old.py": None,
    "src/mine/kernels/deep/new.py": "head's only",
    "src/mine/other.py": "changed",
    "src/solo.py": "head's module",
    "sitecustomize.py": "anything",
}


def git(*arguments: str, cwd: Path) -> str:
    return subprocess.run(["git", *arguments], cwd=cwd, capture_output=True, text=True, check=True).stdout.strip()


def unpacked(trial: Path) -> Path:
    folder = trial.with_suffix("")
    with tarfile.open(trial) as archive:
        archive.extractall(folder, filter="data")
    return folder


def files(folder: Path, commit: str) -> dict[str, str]:
    names = git("ls-tree", "-r", "--name-only", commit, cwd=folder).splitlines()
    return {name: git("show", f"{commit}:{name}", cwd=folder) for name in names}


def packed(tmp_path: Path, head: str, *, base: str | None = None, suites: str = "base") -> Path:
    repository = tmp_path / "repository"
    git("update-ref", "refs/remotes/origin/main", "main", cwd=repository)
    pack.pack_gate(repository, tmp_path / "trial.tar", head=head, base=base, main="main", suites=suites)
    return unpacked(tmp_path / "trial.tar")


def branch(tmp_path: Path) -> None:
    git("checkout", "--quiet", "-b", "topic", cwd=tmp_path / "repository")


def test_a_pull_request_brings_its_kernels_and_nothing_else(tmp_path: Path, commit: Commit) -> None:
    commit(BASE)
    branch(tmp_path)
    head = commit(HEAD)

    trial = packed(tmp_path, head)

    assert files(trial, "head") == {
        "pyproject.toml": PYPROJECT.strip(),
        "benchmarks/suite.py": "the ruler",
        "src/mine/__init__.py": "",
        "src/mine/kernels/matmul.py": "head's kernel",
        "src/mine/kernels/deep/new.py": "head's only",
        "src/mine/other.py": "not under test",
        "src/solo.py": "head's module",
    }


def test_a_reviewed_commit_brings_its_suites_too(tmp_path: Path, commit: Commit) -> None:
    base = commit(BASE)
    head = commit(HEAD)

    trial = packed(tmp_path, head, base=base, suites="head")

    assert git("rev-parse", "base", "head", cwd=trial).split() == [base, head]
    assert files(trial, "head")["benchmarks/suite.py"] == "a bent ruler"


def test_the_base_is_where_the_branch_left_main(tmp_path: Path, commit: Commit) -> None:
    base = commit(BASE)
    branch(tmp_path)
    head = commit({"src/solo.py": "mine"})
    git("checkout", "--quiet", "main", cwd=tmp_path / "repository")
    commit({"src/solo.py": "meanwhile on main"})

    trial = packed(tmp_path, head)

    assert git("rev-parse", "base", cwd=trial) == base
    assert git("symbolic-ref", "HEAD", cwd=trial) == "refs/heads/head"


@pytest.mark.parametrize(("suites", "settings"), [("base", BASE), ("head", HEAD)])
def test_the_settings_that_count_are_written_for_the_report(
    tmp_path: Path, commit: Commit, suites: str, settings: dict[str, str]
) -> None:
    base = commit(BASE)
    head = commit(HEAD)
    arguments = ["gate", str(tmp_path / "trial.tar"), "--repository", str(tmp_path / "repository"), "--head", head]
    arguments += ["--base", base, "--suites", suites, "--settings", str(tmp_path / "settings")]

    assert pack.main(arguments) == 0
    assert (tmp_path / "settings" / "pyproject.toml").read_text() == settings["pyproject.toml"]


def test_a_module_may_become_a_package(tmp_path: Path, commit: Commit) -> None:
    base = commit(BASE)
    head = commit({"src/solo.py": None, "src/solo/__init__.py": "a package"})

    assert files(packed(tmp_path, head, base=base), "head").keys() & {"src/solo.py", "src/solo/__init__.py"} == {
        "src/solo/__init__.py"
    }


def test_a_trial_runs_nothing_of_the_commits_and_has_no_hooks(tmp_path: Path, commit: Commit) -> None:
    base = commit(BASE)
    head = commit({".gitattributes": "* filter=evil\n", "src/solo.py": "x"})
    hook = tmp_path / "repository" / ".git" / "hooks" / "reference-transaction"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    hook.chmod(0o755)

    # Straight to the function: the helper of these tests would move a reference, and run the hook itself.
    repository = tmp_path / "repository"
    pack.pack_gate(repository, tmp_path / "trial.tar", head=head, base=base, main="main", suites="base")

    assert not (tmp_path / "ran").exists()
    assert not (unpacked(tmp_path / "trial.tar") / ".git" / "hooks").exists()


@pytest.mark.parametrize("name", ["--upload-pack=touch x", "HEAD", "abc", "g" * 40])
def test_only_a_full_hash_is_a_commit(tmp_path: Path, commit: Commit, name: str) -> None:
    base = commit(BASE)

    with pytest.raises(pack.PackError, match="no full hash"):
        packed(tmp_path, name, base=base)


@pytest.mark.parametrize(
    "settings",
    [
        "",
        "[tool.flopwatch]\npackages = []\n",
        '[tool.flopwatch]\npackages = ["../outside"]\n',
        '[tool.flopwatch]\npackages = ["a b"]\n',
        '[tool.flopwatch]\npackages = ["mine"]\nsource = "../elsewhere"\n',
        '[tool.flopwatch]\npackages = ["mine"]\nsource = "/etc"\n',
        "[tool.flopwatch]\npackages = 5\n",
        "not toml at all",
    ],
)
def test_settings_that_name_no_package_are_refused(settings: str) -> None:
    with pytest.raises(pack.PackError, match=r"^base(?: has|'s) "):
        pack.package_paths(settings)


def test_a_night_records_what_came_since_the_last(tmp_path: Path, commit: Commit) -> None:
    line = [commit({"n": str(number)}) for number in range(5)]
    repository = tmp_path / "repository"

    def begins(last: str, most: int = 20) -> str | None:
        return pack.commits_to_record(repository, head=line[-1], last=last, most=most)

    assert begins(line[2]) == line[2]
    assert begins(line[-1]) is None
    assert begins("") == line[0]
    assert begins(line[0], most=2) == line[2]
    assert begins("f" * 40, most=2) == line[2]


def test_a_recording_has_the_history_and_its_range(tmp_path: Path, commit: Commit) -> None:
    line = [commit({"n": str(number)}) for number in range(3)]
    out = tmp_path / "trial.tar"

    code = pack.main(
        ["record", str(out), "--repository", str(tmp_path / "repository"), "--head", line[2], "--base", line[0]]
    )
    trial = unpacked(out)

    assert code == 0
    assert git("rev-list", "base..head", cwd=trial).split() == [line[2], line[1]]
    assert git("symbolic-ref", "HEAD", cwd=trial) == "refs/heads/main"


def test_nothing_new_makes_no_trial_and_says_so(
    tmp_path: Path, commit: Commit, monkeypatch: pytest.MonkeyPatch
) -> None:
    head = commit({"n": "0"})
    monkeypatch.setenv("GITHUB_OUTPUT", str(tmp_path / "output"))
    out = tmp_path / "trial.tar"

    code = pack.main(
        ["record", str(out), "--repository", str(tmp_path / "repository"), "--head", head, f"--base={head}"]
    )

    assert (code, (tmp_path / "output").read_text(), out.exists()) == (0, "base=\n", False)


def packed_night(tmp_path: Path, head: str, base: str) -> Path:
    """Pack a recording of a clone: all branches but main are at `origin`, and its tags are there."""
    clone = tmp_path / "clone"
    git("clone", "--quiet", str(tmp_path / "repository"), str(clone), cwd=tmp_path)
    pack.pack_record(clone, tmp_path / "night.tar", head=head, base=base, main="main")
    return unpacked(tmp_path / "night.tar")


def with_anchor(name: str) -> dict[str, str | None]:
    return {"pyproject.toml": f'[tool.flopwatch]\npackages = ["mine"]\nanchor = "{name}"\n'}


def release(tmp_path: Path, commit: Commit) -> str:
    """Make a commit off main: the tag v1.0, an annotated one, and the branch `release`."""
    repository = tmp_path / "repository"
    git("checkout", "--quiet", "-b", "release", cwd=repository)
    found = commit({"version": "1.0"})
    identity = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "tag.gpgsign=false")
    git(*identity, "tag", "--annotate", "--message", "1.0", "v1.0", cwd=repository)
    git("checkout", "--quiet", "main", cwd=repository)
    return found


@pytest.mark.parametrize("name", ["v1.0", "release", "refs/tags/v1.0", "origin/release", "{hash}", "{short}"])
def test_an_anchor_off_main_means_in_the_trial_what_it_means_in_the_clone(
    tmp_path: Path, commit: Commit, name: str
) -> None:
    base = commit({"n": "0"})
    anchor = release(tmp_path, commit)
    name = name.format(hash=anchor, short=anchor[:12])
    head = commit(with_anchor(name))

    trial = packed_night(tmp_path, head, base)

    assert git("rev-parse", f"{name}^{{commit}}", cwd=trial) == anchor
    assert files(trial, name)["version"] == "1.0"
    assert git("rev-list", "base..head", cwd=trial) == head


@pytest.mark.parametrize("name", ["v0.9", "HEAD~1", "base", "main"])
def test_an_anchor_on_main_keeps_its_name(tmp_path: Path, commit: Commit, name: str) -> None:
    first, base = commit({"n": "0"}), commit({"n": "1"})
    repository = tmp_path / "repository"
    git("tag", "v0.9", first, cwd=repository)
    git("branch", "base", first, cwd=repository)  # a trial has a branch of that name, which is another commit
    head = commit(with_anchor(name))

    trial = packed_night(tmp_path, head, base)

    meant = {"HEAD~1": base, "main": head}.get(name, first)
    assert git("rev-parse", "--verify", f"{name}^{{commit}}", cwd=trial) == meant
    assert git("rev-list", "refs/heads/base..refs/heads/head", cwd=trial) == head


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ('anchor = "v2.0"', "'v2.0', is no commit of the clone"),
        ('anchor = "--all"', "'--all', is no commit of the clone"),
        ('anchor = "v1.0~0"', "'v1.0~0', is no hash, and no name"),
        ("anchor = 1", "an anchor that is no name: 1"),
        ("anchor = ", "cannot be read"),
    ],
)
def test_an_anchor_that_the_trial_could_not_have_stops_the_night_before_the_gpu(
    tmp_path: Path, commit: Commit, settings: str, why: str
) -> None:
    base = commit({"n": "0"})
    release(tmp_path, commit)
    head = commit({"pyproject.toml": f"[tool.flopwatch]\n{settings}\n"})

    with pytest.raises(pack.PackError, match=why):
        packed_night(tmp_path, head, base)

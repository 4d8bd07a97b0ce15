"""Make a trial of two commits, on a hosted machine: ``python -m runner.pack gate --repository DIR --head SHA OUT.tar``.

A trial is the git folder of a small repository: branches `base` and `head`, and HEAD at head. Nothing of the commits is
run, built or even checked out here; git only moves objects.

A pull request is judged by base's suites and settings: its head is base's tree with head's packages under test in it,
so that it cannot change the ruler. A commit in the merge queue was reviewed, and brings its own. The settings that
count are written beside the trial, for the report to hold the result against.
"""

# ruff: noqa: T201 - a job's log is what it prints

from __future__ import annotations

import argparse
import contextlib
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

COMMIT = re.compile(r"[0-9a-f]{40}")
_IDENTITY = {
    f"GIT_{role}_{part}": value
    for role in ("AUTHOR", "COMMITTER")
    for part, value in (("NAME", "flopwatch"), ("EMAIL", "flopwatch@localhost"), ("DATE", "2000-01-01T00:00:00Z"))
}


class PackError(Exception):
    """The commits cannot be made into a trial."""


def git(*arguments: str, cwd: Path, **variables: str) -> str:
    """Run git and return what it prints, without the last newline.

    Raises:
        PackError: git says no.
    """
    command = ["git", "-c", "core.hooksPath=/dev/null", *arguments]
    environment = os.environ | {"GIT_CONFIG_NOSYSTEM": "1"} | variables
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)  # noqa: S603 - no shell; commits are checked to be hashes
    if done.returncode:
        raise PackError(f"git {arguments[0]} failed: {done.stderr.strip()}")
    return done.stdout.removesuffix("\n")


def pack_gate(repository: Path, out: Path, *, head: str, base: str | None, main: str, suites: str) -> str:
    """Write the trial of a gate.

    Args:
        repository: a clone with the history of both.
        out: the new archive.
        head: hash of the commit on trial.
        base: hash of what it is compared with; the merge base with `main` where there is none.
        main: name of the main branch, at `origin`.
        suites: "base" or "head": whose suites and settings.

    Returns:
        The text of the pyproject.toml that counts.

    Raises:
        PackError: a commit is missing, or base's settings cannot be read.
    """
    base = base or git("merge-base", f"refs/remotes/origin/{main}", _hash(head), cwd=repository)
    with tempfile.TemporaryDirectory(prefix="flopwatch-") as folder:
        trial = Path(folder)
        git("init", "--quiet", "--template=", "--initial-branch=head", cwd=trial)
        refs = [f"{_hash(base)}:refs/flopwatch/base", f"{_hash(head)}:refs/flopwatch/head"]
        git("fetch", "--quiet", "--depth=1", "--no-tags", repository.resolve().as_uri(), *refs, cwd=trial)
        tried = head if suites == "head" else _with_packages_of(trial, base=base, head=head)
        if git("rev-parse", f"{base}^{{tree}}", cwd=trial) == git("rev-parse", f"{tried}^{{tree}}", cwd=trial):
            print("the packages under test are the same in both commits", file=sys.stderr)
        for name, commit in (("base", base), ("head", tried)):
            git("update-ref", f"refs/heads/{name}", commit, cwd=trial)
        _archive(trial, out)
        return git("show", f"{tried}:pyproject.toml", cwd=trial) + "\n"


def pack_record(repository: Path, out: Path, *, head: str, base: str, main: str) -> None:
    """Write the trial of a recording: the main branch up to head, with its history, and the anchor of head's settings.

    Raises:
        PackError: a commit is missing, or the settings cannot be read.
    """
    with tempfile.TemporaryDirectory(prefix="flopwatch-") as folder:
        trial = Path(folder)
        git("init", "--quiet", "--template=", f"--initial-branch={main}", cwd=trial)
        git("fetch", "--quiet", "--no-tags", repository.resolve().as_uri(), _hash(head), cwd=trial)
        for name, commit in (("base", _hash(base)), ("head", head), (main, head)):
            git("update-ref", f"refs/heads/{name}", commit, cwd=trial)
        has_settings = git("ls-tree", head, "--", "pyproject.toml", cwd=trial)
        if has_settings and (anchor := anchor_name(git("show", f"{head}:pyproject.toml", cwd=trial))):
            _add_anchor(trial, anchor, repository)
        _archive(trial, out)


def _add_anchor(trial: Path, name: str, repository: Path) -> None:
    """Let the anchor's name mean in the trial what it means in the clone, where branches are at `origin`."""
    found = _commit(repository, name) or _commit(repository, f"refs/remotes/origin/{name}")
    if not found:
        raise PackError(f"the anchor of head's [tool.flopwatch], {name!r}, is no commit of the clone")
    if _commit(trial, name) == found:
        return
    git("fetch", "--quiet", "--no-tags", repository.resolve().as_uri(), found, cwd=trial)
    if _commit(trial, name) != found:  # it is not the hash alone
        with contextlib.suppress(PackError):  # what cannot be the name of a tag is found out below
            git("update-ref", f"refs/tags/{name}", found, cwd=trial)
    if _commit(trial, name) != found:
        raise PackError(f"the anchor of head's [tool.flopwatch], {name!r}, is no hash, and no name of a branch or tag")


def _commit(repository: Path, name: str) -> str:
    """Return the hash of a commit; "" where there is none."""
    try:
        return git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}", cwd=repository)
    except PackError:
        return ""


def commits_to_record(repository: Path, *, head: str, last: str, most: int) -> str | None:
    """Return the commit after which a recording begins; None where nothing is new.

    Args:
        repository: a clone with main's history.
        head: main's newest commit.
        last: the newest commit that was recorded; "" where there is none.
        most: commits of main that a night has time for; of more, the newest are recorded.
    """
    line = git("rev-list", "--first-parent", f"--max-count={most + 1}", _hash(head), cwd=repository).splitlines()
    if last in line:
        return None if last == head else last
    return line[-1] if len(line) > 1 else None


def package_paths(pyproject: str) -> list[PurePosixPath]:
    r"""Return the folders, or modules without their suffix, of the packages under test.

    >>> package_paths('[tool.flopwatch]\npackages = ["mine.kernels"]')
    [PurePosixPath('src/mine/kernels')]

    Raises:
        PackError: the settings name none, or none that is a package.
    """
    try:
        table: dict[str, Any] = tomllib.loads(pyproject)["tool"]["flopwatch"]
        packages, source = table["packages"], PurePosixPath(table.get("source", "src"))
        names = [name.split(".") for name in packages]
    except (tomllib.TOMLDecodeError, KeyError, TypeError, AttributeError) as error:
        raise PackError(f"base has no [tool.flopwatch] with packages: {error!r}") from None
    if not names or source.is_absolute() or ".." in source.parts:
        raise PackError(f"base's [tool.flopwatch] has no packages below {source}")
    if not all(part.isidentifier() for name in names for part in name):
        raise PackError(f"base's [tool.flopwatch] has packages that are no names: {packages}")
    return [source.joinpath(*name) for name in names]


def anchor_name(pyproject: str) -> str:
    r"""Return the name of the commit whose time is the unit of the recorded ratios; "" where there is none.

    >>> anchor_name('[tool.flopwatch]\nanchor = "v1.0"'), anchor_name("")
    ('v1.0', '')

    Raises:
        PackError: the settings cannot be read.
    """
    try:
        name = tomllib.loads(pyproject).get("tool", {}).get("flopwatch", {}).get("anchor", "")
    except (tomllib.TOMLDecodeError, AttributeError) as error:
        raise PackError(f"head's pyproject.toml cannot be read: {error!r}") from None
    if not isinstance(name, str):
        raise PackError(f"head's [tool.flopwatch] has an anchor that is no name: {name!r}")
    return name


def _with_packages_of(trial: Path, *, base: str, head: str) -> str:
    """Commit base's tree with head's packages in it, and return its hash."""
    index = {"GIT_INDEX_FILE": str(trial / ".git" / "flopwatch-index")}
    git("read-tree", base, cwd=trial, **index)
    for path in package_paths(git("show", f"{base}:pyproject.toml", cwd=trial)):
        for name in (str(path), f"{path}.py"):
            git("rm", "--cached", "-r", "--quiet", "--ignore-unmatch", "--", name, cwd=trial, **index)
            if entry := git("ls-tree", head, "--", name, cwd=trial):
                mode, kind, sha = entry.partition("\t")[0].split()
                if kind == "tree":
                    git("read-tree", f"--prefix={name}/", sha, cwd=trial, **index)
                else:
                    git("update-index", "--add", "--cacheinfo", f"{mode},{sha},{name}", cwd=trial, **index)
    tree = git("write-tree", cwd=trial, **index)
    Path(index["GIT_INDEX_FILE"]).unlink()
    message = f"{head} with the suites of {base}"
    return git("commit-tree", tree, "-p", base, "-m", message, cwd=trial, **_IDENTITY)


def _archive(trial: Path, out: Path) -> None:
    def nobody(entry: tarfile.TarInfo) -> tarfile.TarInfo:
        entry.uid = entry.gid = entry.mtime = 0
        entry.uname = entry.gname = ""
        return entry

    with tarfile.open(out, "x") as archive:
        archive.add(trial / ".git", arcname=".git", filter=nobody)


def _hash(text: str) -> str:
    if not COMMIT.fullmatch(text):
        raise PackError(f"{text!r} is no full hash of a commit")
    return text


def main(arguments: Sequence[str] | None = None) -> int:
    """Write a trial; of a recording, say in $GITHUB_OUTPUT whether there is anything to record."""
    parser = argparse.ArgumentParser(prog="python -m runner.pack", description="Make a trial of commits.")
    parser.add_argument("verb", choices=["gate", "record"])
    parser.add_argument("out", type=Path)
    parser.add_argument("--repository", type=Path, default=Path())
    parser.add_argument("--head", required=True, metavar="SHA")
    parser.add_argument("--base", default="", metavar="SHA", help="gate: compared with; record: recorded last")
    parser.add_argument("--main", default="main", metavar="BRANCH")
    parser.add_argument("--suites", choices=["base", "head"], default="base")
    parser.add_argument("--settings", type=Path, metavar="DIR", help="gate: a new folder for the settings that count")
    parser.add_argument("--most", type=int, default=20, metavar="N", help="commits to record")
    asked = parser.parse_args(arguments)
    try:
        if asked.verb == "gate":
            settings = pack_gate(
                asked.repository,
                asked.out,
                head=asked.head,
                base=asked.base or None,
                main=asked.main,
                suites=asked.suites,
            )
            if asked.settings:
                asked.settings.mkdir()
                (asked.settings / "pyproject.toml").write_text(settings, encoding="utf-8")
        else:
            base = commits_to_record(asked.repository, head=asked.head, last=asked.base, most=asked.most) or ""
            if base:
                pack_record(asked.repository, asked.out, head=asked.head, base=base, main=asked.main)
            print(f"base={base}")
            if output := os.environ.get("GITHUB_OUTPUT"):
                with Path(output).open("a", encoding="utf-8") as file:
                    file.write(f"base={base}\n")
    except PackError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())

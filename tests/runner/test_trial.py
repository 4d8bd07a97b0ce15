from __future__ import annotations

import io
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from runner import pack, trial

if TYPE_CHECKING:
    from collections.abc import Callable

    Commit = Callable[[dict[str, str | None]], str]

PYPROJECT = '[tool.flopwatch]\npackages = ["mine"]\n'

#: Stands for flopwatch: it prints, reads both commits by name, and writes what it was asked to.
GATE = """
import pathlib, subprocess, sys
print("progress on stdout")
verb, base, _, out = sys.argv[1:]
say = lambda name: subprocess.run(["git", "show", f"{name}:src/mine.py"], capture_output=True, text=True).stdout
settings = pathlib.Path("pyproject.toml").read_text()
pathlib.Path(out).write_text("|".join([verb, say(base), pathlib.Path("src/mine.py").read_text(), settings]))
sys.exit(1)
"""
RECORD = """
import pathlib, sys
print("progress on stdout")
folder = pathlib.Path("results/h200")
folder.mkdir(exist_ok=True)
(folder / "new.json").write_text(sys.argv[2])
(folder / "old.json").write_text("changed")
(folder / "new.jsonl").write_text("the sidecar")
(folder / "link.json").symlink_to("/etc/hostname")
(folder / "notes.txt").write_text("no result")
"""


def make_trial(tmp_path: Path, verb: str, base: str, head: str) -> Path:
    out = tmp_path / "trial.tar"
    arguments = [verb, str(out), "--repository", str(tmp_path / "repository"), "--head", head, "--base", base]
    assert pack.main(arguments) == 0
    return out


def unpacked(tmp_path: Path, archive: Path) -> Path:
    repository = tmp_path / "inside" / "trial"
    repository.mkdir(parents=True)
    with archive.open("rb") as source:
        trial.unpack(source, repository)
    return repository


@pytest.fixture
def commits(commit: Commit) -> tuple[str, str]:
    results: dict[str, str | None] = {f"results/h200/{name}.json": name for name in ("old", "same")}
    base = commit({"pyproject.toml": PYPROJECT, "src/mine.py": "old code", **results})
    return base, commit({"pyproject.toml": PYPROJECT + "margin_percent = 99\n", "src/mine.py": "new code"})


def test_a_gate_compares_the_packed_commits_by_bases_settings(
    tmp_path: Path, commits: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trial, "FLOPWATCH", (sys.executable, "-c", GATE))
    repository = unpacked(tmp_path, make_trial(tmp_path, "gate", *commits))

    with io.BytesIO() as out:
        code = trial.gate(repository, out)

        assert (code, out.getvalue().decode()) == (1, f"gate|old code|new code|{PYPROJECT}")


def test_a_gate_that_wrote_nothing_sends_nothing(
    tmp_path: Path, commits: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trial, "FLOPWATCH", (sys.executable, "-c", "import sys; sys.exit(4)"))
    repository = unpacked(tmp_path, make_trial(tmp_path, "gate", *commits))

    with io.BytesIO() as out:
        assert (trial.gate(repository, out), out.getvalue()) == (4, b"")


def test_a_recording_sends_what_is_new_or_changed(
    tmp_path: Path, commits: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trial, "FLOPWATCH", (sys.executable, "-c", RECORD))
    repository = unpacked(tmp_path, make_trial(tmp_path, "record", *commits))

    with io.BytesIO() as out:
        assert trial.record(repository, out) == 0
        with tarfile.open(fileobj=io.BytesIO(out.getvalue())) as archive:
            sent = {member.name: archive.extractfile(member) for member in archive}
            read = {name: file.read().decode() for name, file in sent.items() if file is not None}

    assert read == {
        "results/h200/new.json": "refs/heads/base..refs/heads/head",
        "results/h200/new.jsonl": "the sidecar",
        "results/h200/old.json": "changed",
    }


def test_what_the_code_prints_is_no_part_of_the_result(tmp_path: Path, commits: tuple[str, str]) -> None:
    (tmp_path / "inside").mkdir()
    starter = f"import sys; from runner import trial; trial.FLOPWATCH = (sys.executable, '-c', {GATE!r}); trial.main()"
    with make_trial(tmp_path, "gate", *commits).open("rb") as source:
        done = subprocess.run(
            [sys.executable, "-c", starter, "gate"],
            stdin=source,
            capture_output=True,
            text=True,
            cwd=tmp_path / "inside",
            env={"PYTHONPATH": str(Path(__file__).parents[2]), "PATH": "/usr/bin:/bin"},
            check=True,
        )

    assert done.stdout.startswith("gate|old code|new code")
    assert "progress on stdout" in done.stderr


def test_a_trial_that_leads_out_of_its_folder_is_not_unpacked(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "trial.tar", "w") as archive:
        archive.addfile(tarfile.TarInfo("../outside"), io.BytesIO())

    with pytest.raises(tarfile.OutsideDestinationError):
        unpacked(tmp_path, tmp_path / "trial.tar")

from __future__ import annotations

import io
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import pytest
from runner import pack, trial

from flopwatch.model import from_json, to_json
from flopwatch.record import RecordedCommit, Recording
from flopwatch.record.sidecar import Line

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
#: Stands for flopwatch, too: it says that it recorded what `%r` says, and ends with 4.
RECORD = """
import pathlib, sys
print("progress on stdout")
verb, revisions, _, report = sys.argv[1:]
pathlib.Path(report).write_text(%r)
folder = pathlib.Path("results/h200")
folder.mkdir(exist_ok=True)
(folder / "new.json").write_text(f"{verb} {revisions}")
(folder / "old.json").write_text("changed")
(folder / "new.jsonl").write_text("the sidecar")
(folder / "link.json").symlink_to("/etc/hostname")
(folder / "notes.txt").write_text("no result")
sys.exit(4)
"""
#: Stands for a flopwatch that does not end by itself: it says what it did when it is interrupted, as `record` does.
ENDLESS = """
import pathlib, sys, time
try:
    pathlib.Path("results/h200/new.json").write_text("new")
    time.sleep(60)
except KeyboardInterrupt:
    pathlib.Path(sys.argv[4]).write_text(%r)
    sys.exit(3)
"""


def recording(
    *unfit: str, interrupted: bool = False, lost: str = "", path: str = "", gpu: str | None = "NVIDIA H200"
) -> str:
    """Return what `flopwatch record --json` writes, of commits "a", "b", ... and why each is not to be trusted."""
    commits = [RecordedCommit(commit="abc"[n] * 40, path=path, cases=5, unfit=why) for n, why in enumerate(unfit)]
    found = Recording(
        machine="h200", environment="", gpu=gpu, commits=tuple(commits), interrupted=interrupted, unfit=lost
    )
    return to_json(found).decode()


def recorded(repository: Path, program: str, seconds: float = 60.0) -> tuple[int, dict[str, str]]:
    """Return the exit code of a recording, and what it sent."""
    with io.BytesIO() as out, pytest.MonkeyPatch.context() as patch:
        patch.setattr(trial, "FLOPWATCH", (sys.executable, "-c", program))
        code = trial.record(repository, out, time.monotonic() + seconds)
        if not out.getvalue():
            return code, {}
        with tarfile.open(fileobj=io.BytesIO(out.getvalue())) as archive:
            sent = {member.name: archive.extractfile(member) for member in archive}
            return code, {name: file.read().decode() for name, file in sent.items() if file is not None}


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
        code = trial.gate(repository, out, time.monotonic() + 60)

        assert (code, out.getvalue().decode()) == (1, f"gate|old code|new code|{PYPROJECT}")


def test_a_gate_that_wrote_nothing_sends_nothing(
    tmp_path: Path, commits: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trial, "FLOPWATCH", (sys.executable, "-c", "import sys; sys.exit(4)"))
    repository = unpacked(tmp_path, make_trial(tmp_path, "gate", *commits))

    with io.BytesIO() as out:
        assert (trial.gate(repository, out, time.monotonic() + 60), out.getvalue()) == (4, b"")


def test_a_recording_sends_what_is_new_or_changed_and_how_far_it_came(tmp_path: Path, commits: tuple[str, str]) -> None:
    repository = unpacked(tmp_path, make_trial(tmp_path, "record", *commits))

    code, sent = recorded(repository, RECORD % recording("", "", ""))

    assert code == 4
    assert sent == {
        "recorded": "c" * 40,
        "results/h200/new.json": "record refs/heads/base..refs/heads/head",
        "results/h200/new.jsonl": "the sidecar",
        "results/h200/old.json": "changed",
    }


@pytest.mark.parametrize(
    ("report", "last"),
    [
        (recording("", "", lost="the GPU no longer answers"), "a"),
        (recording("", "", "", interrupted=True), "b"),
        (recording("", "beside another process", ""), "a"),
        (recording("", lost="the GPU no longer answers"), ""),
        (recording("hot", "", ""), ""),
        (recording(), ""),
        (None, ""),
    ],
)
def test_the_next_night_begins_after_the_last_commit_before_which_all_are_complete(
    tmp_path: Path, commits: tuple[str, str], report: str | None, last: str
) -> None:
    repository = unpacked(tmp_path, make_trial(tmp_path, "record", *commits))
    program = RECORD % report if report else "import sys; open('results/h200/new.json', 'w').close(); sys.exit(4)"

    code, sent = recorded(repository, program)

    assert (code, sent.get("recorded", "")) == (4, last * 40)
    # Without a single one nothing is sent: the launcher then says that there is no result.
    assert bool(sent) == bool(last)


def test_when_the_time_is_up_what_is_complete_is_sent(tmp_path: Path, commits: tuple[str, str]) -> None:
    repository = unpacked(tmp_path, make_trial(tmp_path, "record", *commits))
    start = time.monotonic()

    code, sent = recorded(repository, ENDLESS % recording("", "", interrupted=True), seconds=2.0)

    assert (code, sent) == (3, {"recorded": "a" * 40, "results/h200/new.json": "new"})
    assert time.monotonic() - start < 30


def test_a_commit_that_takes_all_of_a_night_is_given_up_with_what_is_measured_of_it(
    tmp_path: Path, commits: tuple[str, str]
) -> None:
    repository = unpacked(tmp_path, make_trial(tmp_path, "record", *commits))
    path = str(repository / "results/h200/new.json")

    code, sent = recorded(repository, ENDLESS % recording("", interrupted=True, path=path), seconds=2.0)

    sidecar = sent.pop("results/h200/new.jsonl")
    given_up = from_json(sidecar.encode(), Line).given_up
    assert (code, sent) == (3, {"recorded": "a" * 40, "given-up": "a" * 40, "results/h200/new.json": "new"})
    assert given_up is not None
    assert given_up.reason == "not complete after 2 s, all of a night's time"


@pytest.mark.parametrize(
    "report",
    [
        recording("hot", interrupted=True),
        recording("", interrupted=True, lost="the GPU no longer answers"),
        recording(interrupted=True),
    ],
)
def test_a_commit_that_could_be_measured_in_another_night_is_not_given_up(
    tmp_path: Path, commits: tuple[str, str], report: str
) -> None:
    repository = unpacked(tmp_path, make_trial(tmp_path, "record", *commits))

    assert recorded(repository, ENDLESS % report, seconds=2.0) == (3, {})


def test_without_a_gpu_nothing_is_kept_and_the_next_night_begins_there(
    tmp_path: Path, commits: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    repository = unpacked(tmp_path, make_trial(tmp_path, "record", *commits))

    assert recorded(repository, RECORD % recording("", "", gpu=None)) == (4, {})
    assert "there is no GPU in here" in capsys.readouterr().err


def test_a_recording_that_somebody_interrupts_gives_nothing_up(tmp_path: Path, commits: tuple[str, str]) -> None:
    repository = unpacked(tmp_path, make_trial(tmp_path, "record", *commits))

    assert recorded(repository, RECORD % recording("", interrupted=True)) == (4, {})


def test_the_launcher_says_how_much_time_there_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    given: list[float] = []

    def record(_repository: Path, _out: BinaryIO, until_s: float) -> int:
        given.append(until_s)
        return 4

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["trial.py", "record", "2400"])
    monkeypatch.setattr(trial, "unpack", lambda *_: None)
    monkeypatch.setattr(trial, "record", record)
    monkeypatch.setattr("os.dup2", lambda *_: None)
    monkeypatch.setattr("signal.signal", lambda *_: None)

    assert trial.main() == 4
    assert given == [pytest.approx(time.monotonic() + 2400 - 240, abs=5)]


def test_what_the_code_prints_is_no_part_of_the_result(tmp_path: Path, commits: tuple[str, str]) -> None:
    (tmp_path / "inside").mkdir()
    starter = f"import sys; from runner import trial; trial.FLOPWATCH = (sys.executable, '-c', {GATE!r}); trial.main()"
    with make_trial(tmp_path, "gate", *commits).open("rb") as source:
        done = subprocess.run(
            [sys.executable, "-c", starter, "gate", "60"],
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

"""A repository whose commits say how long a call takes, and a GPU that is not there."""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from asv.benchmarks import Benchmarks
from tests.record import fakes

from flopwatch.model import from_json
from flopwatch.record import Recording, RecordOptions, run_record
from flopwatch.record.sidecar import CaseLog, Line

if TYPE_CHECKING:
    from collections.abc import Callable

ASV_CONF = {
    "version": 1,
    "project": "toy",
    "repo": ".",
    "branches": ["main"],
    "environment_type": "shared",
    "launch_method": "forkserver",
    "plugins": [".flopwatch.asv.plugin"],
    "benchmark_dir": "benchmarks",
    "env_dir": ".asv/env",
    "results_dir": "results",
    "html_dir": "html",
}
TESTS = Path(__file__).parents[1]


@dataclass(frozen=True, kw_only=True, slots=True)
class Repository:
    """A repository with asv.conf.json, and a home folder of its own."""

    root: Path
    home: Path

    def git(self, *arguments: str) -> str:
        identity = ("-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false")
        return subprocess.check_output(["git", *identity, *arguments], cwd=self.root, text=True).strip()

    def write(self, path: str, text: str) -> None:
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text, encoding="utf-8")

    def configure(self, **changes: object) -> None:
        """Change asv.conf.json."""
        self.write("asv.conf.json", json.dumps(ASV_CONF | changes))

    def commit(self, kernel: str | float) -> str:
        """Commit a kernel, or one that takes so many seconds; return the commit."""
        text = kernel if isinstance(kernel, str) else f"SECONDS = {kernel!r}\n"
        self.write("src/toykernels/__init__.py", text)
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", text.splitlines()[0])
        return self.git("rev-parse", "HEAD")

    def asv(self, *arguments: str) -> str:
        """Run asv, which must succeed."""
        process = subprocess.run(
            [sys.executable, "-m", "asv", *arguments],
            cwd=self.root,
            env={**os.environ, "HOME": str(self.home), "COLUMNS": "200"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        assert process.returncode == 0, process.stdout
        return process.stdout

    def start(self, revisions: str, *, hang_at: str) -> subprocess.Popen[str]:
        """Record in a process of its own, with the stand-ins, which hangs at a case; return when it does."""
        path = os.pathsep.join([str(TESTS.parent), *filter(None, [os.environ.get("PYTHONPATH")])])
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.record.fakes", revisions, hang_at],
            cwd=self.root,
            env={**os.environ, "HOME": str(self.home), "PYTHONPATH": path},
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        assert process.stdout.readline() == "hanging\n"
        return process

    def result(self, commit: str) -> dict[str, Any]:
        """Return asv's file of a commit."""
        (path,) = self.root.glob(f"results/*/{commit[:8]}-*.json")
        stored: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return stored

    def row(self, commit: str, metric: str) -> dict[str, Any]:
        """Return what asv stored of one metric, by column."""
        stored = self.result(commit)
        return dict(zip(stored["result_columns"], stored["results"][f"scale.Scale.track_{metric}"], strict=False))

    def lines(self, commit: str) -> list[Line]:
        """Return what is in the sidecar of a commit."""
        (path,) = self.root.glob(f"results/*/{commit[:8]}-*.jsonl")
        return [from_json(line, Line) for line in path.read_bytes().splitlines()]

    def logs(self, commit: str) -> list[CaseLog]:
        """Return the cases in the sidecar of a commit."""
        return [line.case for line in self.lines(commit) if line.case is not None]


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repository:
    """A repository without commits and results."""
    made = Repository(root=tmp_path / "toy", home=tmp_path / "home")
    made.home.mkdir()
    monkeypatch.setenv("HOME", str(made.home))
    made.write("pyproject.toml", '[tool.flopwatch]\npackages = ["toykernels"]\nsource = "src"\n')
    made.configure()
    made.write("benchmarks/__init__.py", "")
    made.write("benchmarks/scale.py", fakes.SUITE)
    made.write(".gitignore", "/.asv/\n/html/\n/results/\n")
    made.git("init", "-q", "-b", "main")
    return made


@pytest.fixture
def board(monkeypatch: pytest.MonkeyPatch) -> fakes.Board:
    """A GPU that is not there, and what it was asked."""
    fresh = fakes.Board()
    monkeypatch.setattr(fakes, "BOARD", fresh)
    for module, name, stand_in in fakes.STAND_INS:
        monkeypatch.setattr(module, name, stand_in)
    return fresh


@pytest.fixture(scope="session")
def discovered() -> dict[str, Any]:
    """What asv has found in a benchmarks folder, by the text of its suite: finding it takes a second and a process."""
    return {}


@pytest.fixture
def _discover_once(monkeypatch: pytest.MonkeyPatch, discovered: dict[str, Any]) -> None:
    original = Benchmarks._disc_benchmarks

    def discover(conf: Any, *arguments: Any) -> Any:  # noqa: ANN401 - asv's signature
        text = Path(conf.benchmark_dir, "scale.py").read_text(encoding="utf-8")
        if text not in discovered:
            discovered[text] = original(conf, *arguments)
        return copy.deepcopy(discovered[text])

    monkeypatch.setattr(Benchmarks, "_disc_benchmarks", discover)


@pytest.fixture
def record(repository: Repository, board: fakes.Board, _discover_once: None) -> Callable[..., Recording]:
    """Record on the GPU that is not there; the coin says tails at first, and then the other side each time."""
    assert not board.asked
    tosses = iter([False, True] * 1000)

    def run(revisions: str = "HEAD^!", machine: str = "lab", **options: Any) -> Recording:  # noqa: ANN401 - of RecordOptions
        asked = RecordOptions(revisions=revisions, machine=machine, **options)
        return run_record(asked, repository.root, toss=lambda: next(tosses))

    return run

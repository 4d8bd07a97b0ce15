"""A repository whose commits say how long a call takes, recorded and published by asv itself."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Stands in for a GPU: the seconds of a case are what the checkout says, with a scatter of 0.1 %.
SUITES_INIT = """\
import math
import os
from contextlib import nullcontext
from types import SimpleNamespace

import flopwatch.asv.recording as recording
from flopwatch.measure.client import CaseFailed
from flopwatch.model import Failure, KernelFacts, Memory, Numbers, Timing


class ToyWorker(nullcontext):
    def __init__(self, mode, code):
        super().__init__(self)
        self.hello = SimpleNamespace(gpu="Toy GPU")

    def time(self, case):
        import toykernels

        if case.values[0] == "broken":
            raise CaseFailed(Failure(kind="OutOfResources", message="planted"))
        seconds = 1e-6 / toykernels.SECONDS if case.values[0] == "improved" else toykernels.SECONDS
        scatter = [1 + 1e-3 * math.sin(3 * launch) for launch in range(40)]
        return Timing(seconds=tuple(seconds * factor for factor in scatter), method="events")

    def numbers(self, case):
        if case.values[0] == "infinite":
            return Numbers(dtype="float32", max_diff=None, max_diff_eps=None, finite=False, bitwise="")
        return Numbers(dtype="float32", max_diff=1e-3, max_diff_eps=2.0, finite=True, bitwise="")

    def memory(self, case):
        return Memory(peak_bytes=4096, growth_bytes=0.0)

    def facts(self, case):
        fact = KernelFacts(kernel="k", device="h200", config="", variant="", chosen=True, registers=64, occupancy=0.25,
                           shared_bytes=1024, spill_store_bytes=0, spill_load_bytes=0)
        return (fact,)


recording.Worker = ToyWorker
os.environ.pop("FLOPWATCH_GPU", None)
"""
SUITE = """\
from flopwatch import Suite
from toykernels import SECONDS


class Scale(Suite):
    params = (["1000000", "improved", "broken", "infinite"],)
    param_names = ("n",)
    providers = {"torch": None}
    skip_params = [("broken", "torch"), ("infinite", "torch")]

    def flops(self, n):
        return 1e12

    def bytes_moved(self, n):
        return 4e6
"""
PROJECT = '[tool.flopwatch]\npackages = ["toykernels"]\nsource = "src"\n'
ASV_CONF: dict[str, object] = {
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
    "regressions_thresholds": {".*": 0.01},
}
FAST, SLOW = 1e-3, 1.3e-3


@dataclass(frozen=True, kw_only=True, slots=True)
class Recorded:
    """A repository with asv.conf.json, and a home folder of its own."""

    root: Path
    home: Path

    def asv(self, *arguments: str, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        """Run asv; both streams are in ``stdout``."""
        variables = {**os.environ, "HOME": str(self.home), "COLUMNS": "200", **(env or {})}
        return subprocess.run(
            [sys.executable, "-m", "asv", *arguments],
            cwd=self.root,
            env=variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )

    def git(self, *arguments: str) -> str:
        identity = ("-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false")
        return subprocess.check_output(["git", *identity, *arguments], cwd=self.root, text=True).strip()

    def write(self, path: str, text: str) -> None:
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text, encoding="utf-8")

    def configure(self, **changes: object) -> None:
        """Change asv.conf.json."""
        self.write("asv.conf.json", json.dumps(ASV_CONF | changes))

    def commit_seconds(self, seconds: float) -> str:
        """Commit a kernel that takes so long, and return the commit."""
        self.write("src/toykernels/__init__.py", f"SECONDS = {seconds!r}\n")
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", f"a call takes {seconds} s")
        return self.git("rev-parse", "HEAD")

    def commit_more(self, count: int) -> list[str]:
        """Add commits that change nothing, and return them, the oldest first."""
        for _ in range(count):
            self.git("commit", "-q", "--allow-empty", "-m", "nothing changes")
        return self.git("rev-list", "--reverse", f"HEAD~{count}..HEAD").split()

    def result_files(self, commit: str = "") -> list[Path]:
        return sorted(path for path in self.root.glob("results/*/*.json") if path.name.startswith(commit[:8] or "?"))

    def results(self, commit: str, metric: str) -> list[Any]:
        """Return what asv stored of a commit, one entry a case, in the order of the suite's parameters."""
        (path,) = (path for path in self.result_files(commit) if path.name != "machine.json")
        stored = json.loads(path.read_text(encoding="utf-8"))
        (row,) = (row for name, row in stored["results"].items() if name.endswith(f".track_{metric}"))
        values: list[Any] = row[stored["result_columns"].index("result")]
        return values

    def page(self, name: str) -> Any:  # noqa: ANN401 - JSON
        return json.loads((self.root / "html" / name).read_text(encoding="utf-8"))


@pytest.fixture
def asv_conf() -> dict[str, object]:
    """An asv.conf.json for any repository whose suites are in benchmarks/."""
    return dict(ASV_CONF)


def new_repository(folder: Path) -> Recorded:
    """Make an empty one."""
    repository = Recorded(root=folder / "toy", home=folder / "home")
    repository.home.mkdir()
    repository.write("pyproject.toml", PROJECT)
    repository.configure()
    repository.write("benchmarks/__init__.py", SUITES_INIT)
    repository.write("benchmarks/scale.py", SUITE)
    repository.write(".gitignore", "/.asv/\n/html/\n/results/\n/.flopwatch/\n")
    repository.git("init", "-q", "-b", "main")
    return repository


def succeed(process: subprocess.CompletedProcess[str], code: int = 0) -> str:
    assert process.returncode == code, process.stdout
    return process.stdout


@pytest.fixture
def repository(tmp_path: Path) -> Recorded:
    """A repository without commits and results."""
    return new_repository(tmp_path)


@pytest.fixture(scope="session")
def history(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """Forty fast commits, then eight slow ones, on two GPUs; recorded and published.

    Fewer cannot prove a change. Two commits are measured; the others have the results of the one or the other.
    """
    repository = new_repository(tmp_path_factory.mktemp("history"))
    repository.configure(show_commit_url="https://github.com/made/up/commit/")
    fast = [repository.commit_seconds(FAST), *repository.commit_more(39)]
    slow = [repository.commit_seconds(SLOW), *repository.commit_more(7)]
    succeed(repository.asv("machine", "--yes"))
    repository.write(".asv/commits", f"{fast[0]}\n{slow[0]}\n")
    # Exit code 2 is asv's for "something failed": the broken case is planted.
    succeed(repository.asv("run", "HASHFILE:.asv/commits"), code=2)
    for commits in (fast, slow):
        _copy_results(repository, commits)
    _pretend_second_gpu(repository)
    succeed(repository.asv("publish"))
    return repository


def _copy_results(repository: Recorded, commits: list[str]) -> None:
    """Give the first commit's results to the others."""
    (measured,) = repository.result_files(commits[0])
    for number, commit in enumerate(commits[1:], start=1):
        stored = json.loads(measured.read_text(encoding="utf-8"))
        stored["commit_hash"] = commit
        stored["date"] += 1000 * number
        path = measured.with_name(measured.name.replace(commits[0][:8], commit[:8]))
        path.write_text(json.dumps(stored), encoding="utf-8")


def _pretend_second_gpu(repository: Recorded) -> None:
    """Copy the results as those of another machine, whose GPU is an NVIDIA B200."""
    (first,) = (path for path in (repository.root / "results").iterdir() if path.is_dir())
    second = first.with_name("second")
    shutil.copytree(first, second)
    for path in second.glob("*.json"):
        stored = json.loads(path.read_text(encoding="utf-8"))
        (stored if path.name == "machine.json" else stored["params"]).update(machine="second", gpu="NVIDIA B200")
        path.write_text(json.dumps(stored), encoding="utf-8")

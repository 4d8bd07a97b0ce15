"""Publish a history of any size, made up: ``python -m tests.asv.scale FOLDER --commits 10000 --cases 10``.

Says how long each part of `asv publish` takes, and how much memory; once more with ``--one-more``, what that costs when
a commit has come since. Nothing of it is kept in the repository.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import re
import resource
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from flopwatch.suite import METRICS

SUITES = ("matmul", "attention", "softmax", "layernorm", "scan")
SHOWN = ("time", "max_diff", "max_diff_eps", "peak_memory", "registers", "spills")
LEVEL = {"time": 1e-3, "max_diff": 1e-3, "max_diff_eps": 0.5, "peak_memory": 2**22, "registers": 128, "spills": 64}
#: From commit to commit; of the others 0.5 %.
SCATTER = {"registers": 0.0, "spills": 0.0}
MACHINE = {"machine": "made-up", "gpu": "NVIDIA H200"}
VERSIONS = {"gpu": "NVIDIA H200", "torch": "2.11.0", "triton": "3.6.0"}
CONF = {
    "version": 1,
    "project": "made-up",
    "show_commit_url": "https://github.com/made/up/commit/",
    "repo": ".",
    "branches": ["main"],
    "environment_type": "shared",
    "plugins": [".flopwatch.asv.plugin"],
    "benchmark_dir": "benchmarks",
    "env_dir": ".asv/env",
    "results_dir": "results",
    "html_dir": "html",
    "regressions_thresholds": {".*": 0.01},
}
_HOUR_S = 3600
_START_S = 1_600_000_000
#: One change in so many commits, in each series on its own.
_COMMITS_A_CHANGE = 500


def make_commits(folder: Path, count: int) -> list[str]:
    """Make a repository whose main branch has so many empty commits; return them, the oldest first."""
    subprocess.run(["git", "init", "-q", "-b", "main", str(folder)], check=True)
    stream = "".join(
        f"commit refs/heads/main\ncommitter a <a@example.org> {_START_S + _HOUR_S * index} +0000\n"
        f"data {len(message)}\n{message}\n"
        for index in range(count)
        for message in [f"change {index}"]
    )
    subprocess.run(["git", "fast-import", "--quiet"], cwd=folder, input=stream, text=True, check=True)
    return subprocess.check_output(["git", "rev-list", "--reverse", "main"], cwd=folder, text=True).split()


def make_series(
    rng: np.random.Generator, commits: int, scatter: float, *, commits_a_change: int = _COMMITS_A_CHANGE
) -> np.ndarray:
    """Return values around 1 with a step of up to 10 % every few hundred commits."""
    changes = rng.random(commits) < 1 / commits_a_change
    levels = np.cumsum(np.where(changes, rng.uniform(-0.1, 0.1, commits), 0.0))
    return np.asarray(np.exp(levels + scatter * rng.standard_normal(commits)))


def write_history(folder: Path, *, commits: int, cases: int, seed: int = 0) -> int:
    """Write a repository with results under `folder`; return the number of recorded series."""
    rng = np.random.default_rng(seed)
    hashes = make_commits(folder, commits)
    names = [f"{suite}.{suite.title()}.track_{metric}" for suite, metric in itertools.product(SUITES, SHOWN)]
    params = [[f"'{index}'" for index in range(cases)], ["'flopwatch'"]]
    series = {
        name: np.array([LEVEL[metric] * make_series(rng, commits, SCATTER.get(metric, 0.005)) for _ in range(cases)])
        for name in names
        for metric in [name.rpartition("track_")[2]]
    }
    machine = folder / "results" / MACHINE["machine"]
    machine.mkdir(parents=True)
    _write(folder / "asv.conf.json", CONF)
    _write(machine / "machine.json", MACHINE | {"version": 1})
    _write(folder / "results" / "benchmarks.json", {"version": 2} | {name: _benchmark(name, params) for name in names})
    columns = ["result", "params", "version", "started_at", "duration", "stats_ci_99_a", "stats_ci_99_b"]
    for index, commit in enumerate(hashes):
        results = {}
        for name in names:
            exact = name.rpartition("track_")[2] in SCATTER
            values = [round(value) if exact else float(f"{value:.7g}") for value in series[name][:, index]]
            results[name] = [values, params, "1", 0, 0.5, [0.99 * v for v in values], [1.01 * v for v in values]]
        stored = {
            "commit_hash": commit,
            "env_name": "shared",
            "date": 1000 * (_START_S + _HOUR_S * index),
            "params": MACHINE | VERSIONS | {"python": "3.12"},
            "python": "3.12",
            "requirements": VERSIONS,
            "env_vars": {},
            "result_columns": columns,
            "results": results,
            "durations": {},
            "version": 2,
        }
        _write(machine / f"{commit[:8]}-shared.json", stored)
    return len(names) * cases


def add_commit(folder: Path, *, seed: int = 1) -> None:
    """Add a commit to a history that `write_history` wrote, with results at the level of the last ones."""
    rng = np.random.default_rng(seed)
    last = _head(folder)
    machine = folder / "results" / MACHINE["machine"]
    stored = json.loads((machine / f"{last[:8]}-shared.json").read_text(encoding="utf-8"))
    stored["date"] += 1000 * _HOUR_S
    date = f"{stored['date'] // 1000} +0000"
    identity = {f"GIT_{who}_{what}": "a" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    dates = {"GIT_AUTHOR_DATE": date, "GIT_COMMITTER_DATE": date}
    command = ["git", "commit", "-q", "--allow-empty", "-m", "one more"]
    subprocess.run(command, cwd=folder, env=os.environ | identity | dates, check=True)
    stored["commit_hash"] = commit = _head(folder)
    for name, row in stored["results"].items():
        scatter = SCATTER.get(name.rpartition("track_")[2], 0.005)
        row[0] = [value * np.exp(scatter * rng.standard_normal()) if scatter else value for value in row[0]]
    _write(machine / f"{commit[:8]}-shared.json", stored)


def _head(folder: Path) -> str:
    return subprocess.check_output(["git", "rev-parse", "main"], cwd=folder, text=True).strip()


def _benchmark(name: str, params: list[list[str]]) -> dict[str, object]:
    metric = name.rpartition("track_")[2]
    cases = len(params[0])
    work = {"flops": [1e11] * cases, "bytes_moved": [1e8] * cases} if metric == "time" else {}
    return {
        "name": name,
        "code": "",
        "type": "track",
        "unit": METRICS[metric],
        "version": "1",
        "param_names": ["case", "provider"],
        "params": params,
        "timeout": 60.0,
        **work,
    }


def _write(path: Path, value: object) -> None:
    path.write_text(json.dumps(value), encoding="utf-8")


def publish(folder: Path) -> str:
    """Publish; return what asv says, each of its steps with the seconds at which it began."""
    environment = {**os.environ, "HOME": str(folder), "COLUMNS": "200"}
    command = [sys.executable, "-u", "-m", "asv", "publish", "--no-pull"]
    began = time.monotonic()
    said = []
    with subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            text = re.sub(r"[.\s]+$", "", line)
            said.append(f"{time.monotonic() - began:8.1f} s  {text}")
    return "\n".join([*said, f"{time.monotonic() - began:8.1f} s  exit status {process.returncode}"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--commits", type=int, default=1000)
    parser.add_argument("--cases", type=int, default=10, help="of each suite; 30 series a case")
    parser.add_argument("--one-more", action="store_true", help="add a commit first; FOLDER is from before")
    options = parser.parse_args()
    if options.one_more:
        add_commit(options.folder)
    elif not options.folder.exists():
        print(write_history(options.folder, commits=options.commits, cases=options.cases), "series")  # noqa: T201 - its output
    print(publish(options.folder))  # noqa: T201 - its output
    peak_mib = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    print(f"at most {peak_mib:.0f} MiB in one process")  # noqa: T201 - its output


if __name__ == "__main__":
    main()

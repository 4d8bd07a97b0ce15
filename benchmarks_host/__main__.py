"""``python -m benchmarks_host``: compare with the baseline; ``record`` it anew; ``noise``: find out what a limit means.

A baseline is of one minor version of Python and of one kind of machine, with a GPU or without: another interpreter runs
the calibration loop faster by another factor than the rest. Where there is none, nothing can be compared.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks_host.limit import LIMITS_PERCENT, NOISE, Noise
from flopwatch.model import to_json

if TYPE_CHECKING:
    from collections.abc import Sequence

HERE = Path(__file__).parent
#: Of so many processes the middle one of each benchmark becomes the baseline, which thus is no outlier.
BASELINE_RUNS = 7
#: Clean runs from which `noise.json` is made.
NOISE_RUNS = 20
#: pytest's exit status, which `pytest.ExitCode` names too.
_NOTHING_SELECTED = 5
#: How pytest's options begin that leave benchmarks out.
_SELECTING = ("-k", "-m", "--deselect", "--ignore", "--lf", "--last-failed")


def main(arguments: Sequence[str]) -> int:
    """Do what is asked for; return pytest's exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks_host", description=__doc__)
    parser.add_argument("what", choices=["compare", "record", "noise"], help="compare, if it is left out")
    parser.add_argument("--runs", type=int, help=f"{BASELINE_RUNS} of record, {NOISE_RUNS} of noise")
    # Options alone are pytest's, whose values would be taken for the word.
    named = arguments if arguments and not arguments[0].startswith("-") else ["compare", *arguments]
    options, others = parser.parse_known_args(named)
    if options.what == "compare":
        return _compare(others)
    runs = (BASELINE_RUNS if options.what == "record" else NOISE_RUNS) if options.runs is None else options.runs
    if runs < 1:
        parser.error(f"--runs must be at least 1, got {runs}")
    if options.what == "record" and (selection := [option for option in others if option.startswith(_SELECTING)]):
        parser.error(f"a baseline has every benchmark: {selection[0]} is for compare and noise")
    made = [_run(others) for _ in range(runs)]
    if options.what == "record":
        path = _baseline()
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(middle(made), indent=1) + "\n", encoding="utf-8")
        for name, percent in unsteady(noise_of(made)).items():
            sys.stderr.write(
                f"{name}: half of its runs differ by {percent:.0f} %, more than its limit: a busy machine?\n"
            )
    else:
        NOISE.write_bytes(to_json(noise_of(made), indent=1) + b"\n")
    return 0


def middle(runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the run that has, of each benchmark, the record with the middle median."""
    names = [record["fullname"] for record in runs[0]["benchmarks"]]
    chosen = []
    for name in names:
        records = [record for run in runs for record in run["benchmarks"] if record["fullname"] == name]
        records.sort(key=lambda record: float(record["stats"]["median"]))
        record = records[len(records) // 2]
        record["extra_info"] = {**record["extra_info"], "medians": [run["stats"]["median"] for run in records]}
        record["stats"].pop("data", None)
        chosen.append(record)
    return {**runs[0], "benchmarks": chosen}


def noise_of(runs: Sequence[dict[str, Any]]) -> Noise:
    """Return the medians of every run, benchmark by benchmark."""
    medians: dict[str, list[float]] = {}
    for run in runs:
        for record in run["benchmarks"]:
            name = record["fullname"].rpartition("/")[2]
            medians.setdefault(name, []).append(record["stats"]["median"])
    return Noise(machine=runs[0]["machine_info"], baseline_runs=BASELINE_RUNS, medians=medians)


def unsteady(noise: Noise) -> dict[str, float]:
    """Return the benchmarks of whose runs the middle half differs by more than fails a change, each with the percents.

    >>> medians = {"bench_launch.py::test_matmul": [2.0, 2.0, 3.0], "bench_launch.py::test_attention": [3.0, 3.1, 3.2]}
    >>> unsteady(Noise(machine={}, baseline_runs=3, medians=medians))
    {'bench_launch.py::test_matmul': 25.0}
    """
    found = {}
    for name, medians in noise.medians.items():
        low, _, high = statistics.quantiles(medians, n=4, method="inclusive") if len(medians) > 1 else medians * 3
        if (percent := 100 * (high / low - 1)) > LIMITS_PERCENT[name.partition("::")[0]]:
            found[name] = percent
    return found


def _compare(others: Sequence[str]) -> int:
    path = _baseline()
    if not path.is_file():
        sys.stderr.write(
            f"there is no baseline for this machine: {path.relative_to(HERE)}\n"
            "  why: ratios depend on the minor version of Python, and on whether there is a GPU\n"
            "  do:  record one at a commit to compare with: nox -s bench -- record\n"
        )
        return 2
    statuses = [
        _pytest(module, f"--benchmark-compare={path}", f"--benchmark-compare-fail=median:{limit}%", *others).returncode
        for module, limit in LIMITS_PERCENT.items()
    ]
    # A module of which nothing was selected does not fail the other; a process that a signal ended is below 0.
    failures = [status for status in statuses if status not in (0, _NOTHING_SELECTED)]
    return failures[0] if failures else min(statuses)


def _run(others: Sequence[str]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.json"
        if status := _pytest("", f"--benchmark-json={path}", *others).returncode:
            sys.exit(status)  # pytest said why
        made: dict[str, Any] = json.loads(path.read_bytes())
        return made


def _pytest(module: str, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    """Run a module's benchmarks, or all, in a process of their own, with kernels compiled and not interpreted."""
    command = [sys.executable, "-m", "pytest", str(HERE / module), "--override-ini=python_files=bench_*.py"]
    command += ["--benchmark-only", "--benchmark-disable-gc", "--benchmark-columns=median,iqr,rounds"]
    command += ["--benchmark-timer=benchmarks_host.interleaved.elapsed_loops", "--benchmark-storage=.flopwatch/host"]
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    return subprocess.run([*command, *arguments], cwd=HERE.parent, env=environment, check=False)  # noqa: S603 - ours


def _baseline() -> Path:
    from torch import cuda  # noqa: PLC0415 - takes seconds

    kind = "gpu" if cuda.is_available() else "cpu"
    return HERE / "baseline" / f"{kind}-python{'.'.join(platform.python_version_tuple()[:2])}.json"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import pytest
from asv.graph import Graph

if TYPE_CHECKING:
    from pathlib import Path

    from tests.asv.conftest import Recorded

#: The cases in asv's order: the parameter, and then the provider (ours, torch).
FIRST, PEER, IMPROVED, _, BROKEN, SKIPPED, INFINITE = range(7)
ONLY_TIME = ("--bench", "track_time")
TFLOPS = "scale.Scale.tflops"
TIME = "scale.Scale.track_time"

DECOY_FINDER = '''\
"""What an editable install puts into sys.meta_path."""
import sys
from importlib.machinery import PathFinder


class Editable:
    def find_spec(self, name, path=None, target=None):
        return PathFinder.find_spec(name, [{folder!r}]) if name == "toykernels" else None


sys.meta_path.insert(0, Editable())
'''


def commits(repository: Recorded) -> list[str]:
    """Return the commits of main, the oldest first."""
    return repository.git("rev-list", "--reverse", "main").split()


def planted(repository: Recorded, *seconds: float) -> list[str]:
    shas = [repository.commit_seconds(value) for value in seconds]
    machine = repository.asv("machine", "--yes")
    assert machine.returncode == 0, machine.stdout
    return shas


def verdict(process: subprocess.CompletedProcess[str], case: str) -> str:
    """Return the mark of a case in a table of `asv compare`."""
    (line,) = (line for line in process.stdout.splitlines() if case in line)
    return line.split("|")[1].strip()


def test_what_is_stored_is_seconds(history: Recorded) -> None:
    oldest, *_, newest = commits(history)
    paths = [path for path in history.result_files(oldest) if path.parent.name == "second"]

    stored = json.loads(paths[0].read_text(encoding="utf-8"))
    row = dict(zip(stored["result_columns"], stored["results"][TIME], strict=False))

    assert row["result"][FIRST] == pytest.approx(1e-3, rel=1e-3)
    assert (row["stats_number"][FIRST], row["stats_repeat"][FIRST]) == (1, 40)
    assert newest != oldest


def test_failed_is_null_and_skipped_is_nan(history: Recorded) -> None:
    (path, _) = history.result_files(commits(history)[0])
    stored = json.loads(path.read_text(encoding="utf-8"))
    times = stored["results"][TIME][0]
    differences = stored["results"]["scale.Scale.track_max_diff"][0]

    assert times[BROKEN] is None
    assert math.isnan(times[SKIPPED])
    assert differences[INFINITE] is None
    assert "Infinity" not in path.read_text(encoding="utf-8")


def test_the_cause_of_a_failure_is_kept(history: Recorded) -> None:
    lines = (history.root / ".flopwatch" / "failures" / f"{commits(history)[0]}.jsonl").read_text().splitlines()
    failures = [json.loads(line) for line in lines]

    assert {(failure["case"], *failure["metrics"], failure["failure"]["message"]) for failure in failures} >= {
        ("Scale[broken,flopwatch]", "time", "planted")
    }


def test_static_facts_are_those_of_our_own_kernel_only(history: Recorded) -> None:
    (path, _) = history.result_files(commits(history)[0])
    registers = json.loads(path.read_text(encoding="utf-8"))["results"]["scale.Scale.track_registers"][0]

    assert registers[FIRST] == 64
    assert math.isnan(registers[PEER])


def test_the_dashboard_shows_tflops_derived_from_seconds(history: Recorded) -> None:
    benchmark = history.page("index.json")["benchmarks"][TFLOPS]
    summary = {row["idx"]: row for row in history.page(summary_page(history)) if row["name"] == TFLOPS}

    assert benchmark["unit"] == "TFLOPS"
    # 1e12 operations in 1.3 ms, before in 1 ms.
    assert summary[FIRST]["last_value"] == pytest.approx(769, rel=1e-2)
    assert summary[FIRST]["prev_value"] == pytest.approx(1000, rel=1e-2)


def test_what_people_look_for_comes_first(history: Recorded) -> None:
    names = list(history.page("index.json")["benchmarks"])

    assert names[:4] == [TFLOPS, *(f"scale.Scale.{name}" for name in ("bandwidth", "roofline", "occupancy"))]


def test_the_dashboard_shows_bandwidth_and_occupancy(history: Recorded) -> None:
    rows = {row["name"]: row for row in history.page(summary_page(history)) if row["idx"] == FIRST}

    assert rows["scale.Scale.bandwidth"]["last_value"] == pytest.approx(4e6 / 1.3e-3 / 1e9, rel=1e-2)
    assert rows["scale.Scale.occupancy"]["last_value"] == 25


def test_the_gpu_is_an_axis(history: Recorded) -> None:
    first, second = sorted(history.page("index.json")["params"]["gpu"])

    assert first == "NVIDIA B200"
    assert second != first


def test_a_drop_in_tflops_is_a_regression_in_publish(history: Recorded) -> None:
    regressions = history.page("regressions.json")["regressions"]

    assert f"{TIME}('1000000', 'flopwatch')" in {entry[0] for entry in regressions}
    # Only what is stored is watched, and only where the last value is above the best one.
    assert {(entry[0].partition("(")[0], entry[4] > entry[5]) for entry in regressions} == {(TIME, True)}


def test_a_rise_in_tflops_is_no_regression(history: Recorded) -> None:
    summary = {row["idx"]: row for row in history.page(summary_page(history)) if row["name"] == TFLOPS}
    regressions = history.page("regressions.json")["regressions"]

    assert summary[IMPROVED]["last_value"] > summary[IMPROVED]["prev_value"]
    assert [entry[0] for entry in regressions if "improved" in entry[0]] == []


def test_the_feed_has_the_regression_with_its_commit_and_its_size(history: Recorded) -> None:
    slow = history.git("rev-parse", "HEAD~7")

    told = [text for text in feed(history) if f"{TIME}('1000000', 'flopwatch')" in text]

    assert len(told) == 2  # one a GPU
    assert all(text.startswith("30.00% ") for text in told)
    assert all(f"commit/{slow}" in text for text in told)


def test_the_feed_has_no_rise_in_tflops(history: Recorded) -> None:
    told = feed(history)

    # Where seconds rise TFLOPS fall: the rise would be that of the improved case, and the fall a rise to asv.
    assert [text for text in told if "improved" in text or "tflops" in text] == []
    assert {text.split()[1].partition("(")[0] for text in told} == {TIME}


def test_a_benchmark_names_the_graphs_that_it_lacks_and_no_others(history: Recorded) -> None:
    index = history.page("index.json")

    wanted = {
        f"{Graph.get_file_path(params, name)}.json": name
        for params in index["graph_param_list"]
        for name in index["benchmarks"]
    }
    missing = {path for path in wanted if not (history.root / "html" / path).is_file()}

    assert missing == {path for benchmark in index["benchmarks"].values() for path in benchmark["absent_graphs"]}
    # Of the GPU that is not there, nobody knows the peaks.
    assert {wanted[path] for path in missing} == {"scale.Scale.roofline"}


def test_compare_marks_a_drop_in_tflops_as_worse(history: Recorded) -> None:
    fast, *_, slow = commits(history)

    worse = history.asv("compare", "--machine", "second", fast, slow)
    better = history.asv("compare", "--machine", "second", slow, fast)

    assert verdict(worse, "track_time('1000000', 'flopwatch')") == "+"
    assert verdict(better, "track_time('1000000', 'flopwatch')") == "-"


def test_continuous_exits_1_on_a_drop_in_tflops_only(repository: Recorded) -> None:
    repository.write("benchmarks/scale.py", suite_without_planted_failures(repository))
    fast, slow = planted(repository, 1e-3, 1.3e-3)

    worse = repository.asv("continuous", *ONLY_TIME, fast, slow)
    better = repository.asv("continuous", *ONLY_TIME, slow, fast)

    assert (worse.returncode, better.returncode) == (1, 0)
    assert "PERFORMANCE DECREASED" in worse.stdout
    assert "PERFORMANCE INCREASED" in better.stdout


def test_find_names_the_commit_that_lost_tflops(repository: Recorded) -> None:
    repository.write("benchmarks/scale.py", suite_without_planted_failures(repository))
    shas = planted(repository, 1e-3, 1e-3, 1.3e-3, 1.3e-3)

    found = repository.asv("find", f"{shas[0]}..{shas[3]}", r"track_time\('1000000', 'flopwatch'\)")

    assert f"Greatest regression found: {shas[2][:8]}" in found.stdout


def test_what_is_measured_is_the_checkout_and_not_an_install(repository: Recorded, tmp_path: Path) -> None:
    repository.write("benchmarks/scale.py", suite_without_planted_failures(repository))
    old, new = planted(repository, 1e-3, 2e-3)
    repository.write("src/toykernels/__init__.py", "SECONDS = 77.0  # not committed\n")
    decoy = tmp_path / "decoy"
    (decoy / "toykernels").mkdir(parents=True)
    (decoy / "toykernels" / "__init__.py").write_text("SECONDS = 99.0\n", encoding="utf-8")
    (decoy / "sitecustomize.py").write_text(DECOY_FINDER.format(folder=str(decoy)), encoding="utf-8")
    path = {"PYTHONPATH": os.pathsep.join([str(decoy), *filter(None, [os.environ.get("PYTHONPATH")])])}
    installed = [sys.executable, "-c", "import toykernels; print(toykernels.SECONDS)"]

    run = repository.asv("run", *ONLY_TIME, "ALL", env=path)

    assert subprocess.check_output(installed, env={**os.environ, **path}, text=True) == "99.0\n"
    assert run.returncode == 0, run.stdout
    assert repository.results(old, "time")[FIRST] == pytest.approx(1e-3, rel=1e-3)
    assert repository.results(new, "time")[FIRST] == pytest.approx(2e-3, rel=1e-3)


def test_a_checkout_that_somebody_edited_is_not_measured(repository: Recorded) -> None:
    repository.write("benchmarks/scale.py", suite_without_planted_failures(repository))
    (sha,) = planted(repository, 1e-3)
    assert repository.asv("run", *ONLY_TIME, "ALL").returncode == 0
    (kernel,) = repository.root.glob(".asv/env/*/project/src/toykernels/__init__.py")
    kernel.write_text("SECONDS = 55.0\n", encoding="utf-8")

    assert repository.asv("run", *ONLY_TIME, "ALL").returncode == 0

    assert repository.results(sha, "time")[FIRST] == pytest.approx(1e-3, rel=1e-3)


def test_a_commit_that_cannot_be_imported_is_a_failure_with_its_cause(repository: Recorded) -> None:
    repository.write("benchmarks/scale.py", suite_without_planted_failures(repository))
    (good,) = planted(repository, 1e-3)
    repository.write("src/toykernels/__init__.py", "raise RuntimeError('planted at import')\n")
    repository.git("commit", "-qam", "broken")
    broken = repository.git("rev-parse", "HEAD")

    run = repository.asv("run", *ONLY_TIME, "ALL")

    assert run.returncode == 2
    assert repository.results(good, "time")[FIRST] == pytest.approx(1e-3, rel=1e-3)
    assert repository.results(broken, "time") is None  # how asv writes that there is none
    kept = (repository.root / ".flopwatch" / "failures" / f"{broken}.jsonl").read_text(encoding="utf-8")
    assert "planted at import" in kept
    assert repository.asv("publish").returncode == 0


def test_a_benchmark_that_only_ever_failed_stays_in_the_dashboard(repository: Recorded) -> None:
    repository.write("benchmarks/scale.py", suite_without_planted_failures(repository).replace("1000000", "broken"))
    planted(repository, 1e-3)
    repository.asv("run", *ONLY_TIME, "ALL")

    assert repository.asv("publish").returncode == 0
    assert TIME in repository.page("index.json")["benchmarks"]


def feed(repository: Recorded) -> list[str]:
    """Return the title of each entry of the feed of regressions, and what it says."""
    root = ET.parse(repository.root / "html" / "regressions.xml").getroot()  # noqa: S314 - published by this test
    atom = "{http://www.w3.org/2005/Atom}"
    return [
        f"{entry.findtext(atom + 'title')}\n{entry.findtext(atom + 'content')}" for entry in root.iter(f"{atom}entry")
    ]


def summary_page(repository: Recorded) -> str:
    """Return the file of the list view of the second GPU."""
    (path,) = (
        path.relative_to(repository.root / "html")
        for path in (repository.root / "html" / "graphs").rglob("summary.json")
        if "gpu-NVIDIA B200" in str(path)
    )
    return str(path)


def suite_without_planted_failures(repository: Recorded) -> str:
    text = (repository.root / "benchmarks" / "scale.py").read_text(encoding="utf-8")
    old = ', "improved", "broken", "infinite"'
    assert old in text
    return text.replace(old, "").replace("skip_params = [", "skip_params = []  # [")

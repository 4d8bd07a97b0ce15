from __future__ import annotations

import datetime as dt
import json
import multiprocessing
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from asv.benchmarks import Benchmarks
from asv.results import Results

from flopwatch.config import load_config
from flopwatch.errors import UsageError
from flopwatch.model import Case
from flopwatch.record.lock import locked
from flopwatch.record.sidecar import CaseLog, read_cases
from flopwatch.record.store import CommitFile, Store, open_store, series_of
from flopwatch.suite import METRICS

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.synchronize import Barrier

    from tests.record.conftest import Repository

    from flopwatch.record import Recording


def opened(repository: Repository, machine: str | None = "lab") -> Store:
    return open_store(repository.root, load_config(repository.root), machine=machine)


def benchmarks(suite: str, *, metrics: tuple[str, ...] = tuple(METRICS)) -> dict[str, dict[str, object]]:
    """Return what asv says of a suite."""
    params = [["'small'", "'large'"], ["'ours'", "'torch'"]]
    names = [f"folder.module.{suite}.track_{metric}" for metric in metrics]
    return {name: {"name": name, "version": "3", "params": params} for name in names}


def commit_file(folder: Path) -> CommitFile:
    results = Results({"machine": "lab"}, {}, "c0ffee" * 6 + "c0ff", 0, "3.11", "env", {})
    results.load_data(folder)
    return CommitFile(results, folder / "lab" / "c0ffeec0-env.json")


def save(file: CommitFile, suite: str, index: int) -> None:
    """Save one of the four cases of a suite; its time is 1, 2, 3 or 4 seconds."""
    series = series_of(benchmarks(suite))[suite]
    case = series.cases[index]
    log = CaseLog(case=case.id, version="3", at=dt.datetime(2026, 11, 21, tzinfo=dt.UTC), seconds=0.1)
    file.save(series, case, {"time": index + 1.0}, log, samples=False)


def times(folder: Path, suite: str) -> list[float]:
    """Return what asv's file has of a suite."""
    stored = json.loads((folder / "lab" / "c0ffeec0-env.json").read_text(encoding="utf-8"))
    found: list[float] = stored["results"][f"folder.module.{suite}.track_time"][0]
    return found


def save_a_suite(folder: str, suite: str, barrier: Barrier) -> None:
    """Open the file, wait until the other process has it open, too, and save each case once."""
    file = commit_file(Path(folder))
    barrier.wait(30)
    for number in range(60):
        save(file, f"{suite}{number // 4}", number % 4)


def test_a_suite_is_a_benchmark_for_each_metric() -> None:
    (series,) = series_of(benchmarks("Scale")).values()

    assert (series.name, series.module, series.version, series.own_provider) == ("Scale", "folder.module", "3", "ours")
    assert series.cases[1] == Case(suite="Scale", values=("small", "torch"))
    assert list(series.benchmarks) == list(METRICS)


def test_other_benchmarks_of_asv_are_no_suites() -> None:
    assert series_of(benchmarks("Scale", metrics=("time", "max_diff"))) == {}
    assert series_of({"m.time_scale": {"name": "m.time_scale", "params": []}}) == {}


@pytest.mark.usefixtures("board")
def test_an_unknown_machine_is_told_to_asv_with_what_changes_by_itself_pinned(repository: Repository) -> None:
    repository.commit(1e-3)

    store = opened(repository)

    known = json.loads((repository.home / ".asv-machine.json").read_text(encoding="utf-8"))["lab"]
    recorded = json.loads((repository.root / "results" / "lab" / "machine.json").read_text(encoding="utf-8"))
    assert known == store.machine
    assert recorded == store.machine | {"version": 1}
    assert (store.machine["gpu"], store.machine["os"]) == ("NVIDIA H200", "Linux")
    assert store.machine["ram"].endswith(" GiB")


@pytest.mark.usefixtures("board")
def test_a_fresh_container_goes_on_with_the_fields_of_the_results(repository: Repository) -> None:
    repository.commit(1e-3)
    fields = {"machine": "lab", "cpu": "by hand", "version": 1}
    repository.write("results/lab/machine.json", json.dumps(fields))

    assert opened(repository).machine == {"machine": "lab", "cpu": "by hand", "gpu": "NVIDIA H200"}


@pytest.mark.usefixtures("board")
@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"environment_type": "virtualenv"}, "the environment type 'virtualenv'"),
        ({"benchmark_dir": "elsewhere"}, "asv looks for suites in elsewhere, flopwatch in benchmarks"),
        ({"repo": "https://example.org/toy.git"}, "asv.conf.json is about https://example.org/toy.git"),
        ({"matrix": {"env_nobuild": {"A": ["1", "2"]}}}, "a matrix of 2 environments"),
    ],
)
def test_what_would_make_another_history_than_asv_run_is_refused(
    repository: Repository, changes: dict[str, object], what: str
) -> None:
    repository.commit(1e-3)
    repository.configure(**changes)

    with pytest.raises(UsageError) as caught:
        opened(repository)

    assert what in caught.value.what


@pytest.mark.usefixtures("board")
def test_without_asv_conf_json_the_error_says_so(repository: Repository) -> None:
    (repository.root / "asv.conf.json").unlink()

    with pytest.raises(UsageError) as caught:
        opened(repository)

    assert caught.value.what == f"no asv.conf.json in {repository.root}"
    assert caught.value.todo == "flopwatch init writes one"


def test_a_result_that_is_none_of_asvs_is_an_error_that_names_the_commit(
    repository: Repository, record: Callable[..., Recording]
) -> None:
    commit = repository.commit(1e-3)
    record()
    (path,) = repository.root.glob("results/lab/*-*.json")
    path.write_text('{"cut": ', encoding="utf-8")

    with pytest.raises(UsageError, match=f"the result of {commit[:8]} cannot be read"):
        record()


def test_what_asv_run_has_recorded_counts_as_recorded(repository: Repository, record: Callable[..., Recording]) -> None:
    repository.commit(1e-3)
    record()
    (sidecar,) = repository.root.glob("results/lab/*.jsonl")
    sidecar.unlink()

    assert record().commits[0].cases == 0
    assert record(anchor="HEAD").commits[0].cases == 3


def test_a_new_version_of_a_suite_is_measured_again(repository: Repository, record: Callable[..., Recording]) -> None:
    repository.commit(1e-3)
    record()
    suite = repository.root / "benchmarks" / "scale.py"
    text = suite.read_text(encoding="utf-8")
    suite.write_text(text.replace("class Scale(Suite):", 'class Scale(Suite):\n    version = "2"'), encoding="utf-8")

    assert record().commits[0].cases == 5
    assert record().commits[0].cases == 0


def test_two_recorders_that_take_turns_at_a_commit_keep_what_the_other_has_saved(tmp_path: Path) -> None:
    one, other = commit_file(tmp_path), commit_file(tmp_path)

    for index in range(4):
        save(one, "Scale", index)
        save(other, "Shift", index)

    assert times(tmp_path, "Scale") == times(tmp_path, "Shift") == [1.0, 2.0, 3.0, 4.0]
    assert len(read_cases(one.sidecar)) == 8


def test_two_processes_that_save_into_a_commit_at_once_lose_nothing(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(2)
    processes = [
        context.Process(target=save_a_suite, args=(str(tmp_path), suite, barrier)) for suite in ("Scale", "Shift")
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)

    assert [process.exitcode for process in processes] == [0, 0]
    saved = {name: times(tmp_path, name) for suite in ("Scale", "Shift") for name in (f"{suite}{n}" for n in range(15))}
    assert [name for name, values in saved.items() if values != [1.0, 2.0, 3.0, 4.0]] == []
    assert len(read_cases(commit_file(tmp_path).sidecar)) == 120
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["c0ffeec0-env.json", "c0ffeec0-env.jsonl", "lab"]


@pytest.mark.usefixtures("board")
def test_benchmarks_json_is_not_written_while_another_recorder_does(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = repository.commit(1e-3)
    store = opened(repository)
    found: list[Any] = []
    monkeypatch.setattr(Benchmarks, "discover", lambda *_: Benchmarks(store.conf, []))
    discovering = threading.Thread(target=lambda: found.append(store.discover([commit])))

    with locked(repository.root / "results"):
        discovering.start()
        discovering.join(0.2)
        before = (repository.root / "results" / "benchmarks.json").exists(), list(found)
    discovering.join(10)

    assert before == (False, [])
    assert ((repository.root / "results" / "benchmarks.json").exists(), found) == (True, [{}])

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from flopwatch.config import load_config
from flopwatch.errors import UsageError
from flopwatch.model import Case
from flopwatch.record.store import Store, open_store, series_of
from flopwatch.suite import METRICS

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.record.conftest import Repository

    from flopwatch.record import Recording


def opened(repository: Repository, machine: str | None = "lab") -> Store:
    return open_store(repository.root, load_config(repository.root), machine=machine)


def benchmarks(suite: str, *, metrics: tuple[str, ...] = tuple(METRICS)) -> dict[str, dict[str, object]]:
    """Return what asv says of a suite."""
    params = [["'small'", "'large'"], ["'ours'", "'torch'"]]
    names = [f"folder.module.{suite}.track_{metric}" for metric in metrics]
    return {name: {"name": name, "version": "3", "params": params} for name in names}


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

    assert caught.value.what == "asv is not set up here"
    assert "asv.conf" in caught.value.why


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

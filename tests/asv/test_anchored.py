from __future__ import annotations

import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from asv.benchmarks import Benchmarks

from flopwatch import history
from flopwatch.asv import anchored
from flopwatch.asv.anchored import extend_benchmarks, ratio_benchmark

if TYPE_CHECKING:
    from pathlib import Path

TIME = {"name": "add.Add.track_time", "type": "track", "version": "1", "params": [["'16'"]], "param_names": ["n"]}
RATIO = "add.Add.track_ratio_to_anchor"


@pytest.fixture
def conf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Settings of asv, with the extension installed for one test."""
    monkeypatch.setattr(Benchmarks, "save", Benchmarks.save)
    extend_benchmarks()
    return SimpleNamespace(results_dir=str(tmp_path), benchmark_dir="benchmarks")


def saved(conf: SimpleNamespace, *benchmarks: dict[str, Any]) -> dict[str, Any]:
    """Save these and return what is in benchmarks.json."""
    Benchmarks(conf, benchmarks).save()
    with open(Benchmarks.get_benchmark_file_path(conf.results_dir), encoding="utf-8") as file:  # noqa: PTH123 - asv's path
        found: dict[str, Any] = json.load(file)
    return found


def test_the_ratios_survive_what_asv_run_writes(conf: SimpleNamespace) -> None:
    ratio = ratio_benchmark(TIME, "c0ffee")
    saved(conf, TIME, ratio)

    assert saved(conf, TIME)[RATIO] == ratio


def test_ratios_follow_the_parameters_of_their_suite(conf: SimpleNamespace) -> None:
    saved(conf, TIME, ratio_benchmark(TIME, "c0ffee"))
    changed = TIME | {"params": [["'16'", "'32'"]], "version": "2"}

    assert saved(conf, changed)[RATIO] == ratio_benchmark(changed, "c0ffee")


def test_ratios_to_a_new_anchor_replace_those_to_the_old_one(conf: SimpleNamespace) -> None:
    saved(conf, TIME, ratio_benchmark(TIME, "c0ffee"))

    assert saved(conf, TIME, ratio_benchmark(TIME, "dec0de"))[RATIO]["anchor"] == "dec0de"


def test_the_ratios_of_a_suite_that_is_gone_go_with_it(conf: SimpleNamespace) -> None:
    saved(conf, TIME, ratio_benchmark(TIME, "c0ffee"))

    assert set(saved(conf)) == {"version"}


def test_the_ratios_are_not_among_what_asv_runs(conf: SimpleNamespace) -> None:
    saved(conf, TIME, ratio_benchmark(TIME, "c0ffee"))
    benchmarks = Benchmarks(conf, [TIME])
    benchmarks.save()

    assert list(benchmarks) == [TIME["name"]]


def test_benchmarks_are_extended_once(conf: SimpleNamespace) -> None:
    once = Benchmarks.save
    extend_benchmarks()

    assert Benchmarks.save is once
    assert conf.results_dir


def test_the_history_knows_ratios_by_the_same_name() -> None:
    assert history.RATIO == anchored.RATIO

"""A history in which one machine got another driver and one commit on another machine got slower: who is accused."""

from __future__ import annotations

import json
import math
import shutil
from typing import TYPE_CHECKING, Any

import pytest
from tests.asv.conftest import FAST, SLOW, Recorded, succeed
from tests.asv.test_history import FIRST, INFINITE, TIME

from flopwatch.asv.anchored import ratio_benchmark

if TYPE_CHECKING:
    from collections.abc import Mapping

    from _pytest.tmpdir import TempPathFactory

TFLOPS, RATIO = "scale.Scale.tflops", "scale.Scale.track_ratio_to_anchor"
ENTRY = "('1000000', 'flopwatch')"
ANCHOR = "c0ffee" * 6
#: The machine whose ratios follow the seconds; those of the other stay where they are.
CODE = "second"


@pytest.fixture(scope="module")
def anchored(history: Recorded, tmp_path_factory: TempPathFactory) -> Recorded:
    """The history of all these tests, with ratios to an anchor beside its seconds."""
    folder = tmp_path_factory.mktemp("anchored")
    copy = Recorded(root=folder / "toy", home=history.home)
    shutil.copytree(history.root, copy.root, ignore=shutil.ignore_patterns("html", ".asv", ".flopwatch"))
    described = copy.root / "results" / "benchmarks.json"
    benchmarks = json.loads(described.read_bytes())
    ratio = benchmarks[RATIO] = ratio_benchmark(benchmarks[TIME], ANCHOR)
    described.write_text(json.dumps(benchmarks), encoding="utf-8")
    for number, path in enumerate(sorted(copy.root.glob("results/*/*-*.json"))):
        stored = json.loads(path.read_bytes())
        stored["results"][RATIO] = ratio_row(stored, path.parent.name, ratio["version"], number)
        path.write_text(json.dumps(stored), encoding="utf-8")
    succeed(copy.asv("publish", "--no-pull"))
    return copy


def ratio_row(stored: Mapping[str, Any], machine: str, version: str, number: int) -> list[Any]:
    """Return the ratios of a commit, as asv stores them, with a scatter: of those of our own cases that got slower."""
    seconds, params, *_ = stored["results"][TIME]
    ratio = seconds[FIRST] / FAST if machine == CODE else 1.0
    values = [ratio * (1 + 1e-3 * math.sin(number)) if case in (FIRST, INFINITE) else math.nan for case in range(8)]
    return [values[: len(seconds)], params, version]


def machine_of(path: str) -> str:
    """Return the machine of a graph."""
    return CODE if f"machine-{CODE}" in path else "first"


def test_the_regressions_accuse_code_and_no_machine(anchored: Recorded) -> None:
    accused = {(entry[0], machine_of(entry[1])) for entry in anchored.page("regressions.json")["regressions"]}

    cases = (ENTRY, "('infinite', 'flopwatch')")
    assert accused == {(f"{name}{case}", CODE) for name in (TIME, RATIO) for case in cases}


def test_the_feed_accuses_no_machine_either(anchored: Recorded) -> None:
    feed = (anchored.root / "html" / "regressions.xml").read_text(encoding="utf-8")

    assert feed.count("<entry>") == 4


def test_the_list_has_no_change_where_the_machine_made_it(anchored: Recorded) -> None:
    lists = {path.parent: json.loads(path.read_bytes()) for path in anchored.root.glob("html/graphs/**/summary.json")}
    changes = {
        (row["name"], machine_of(str(folder))): row["prev_value"] is not None
        for folder, rows in lists.items()
        for row in rows
        if row["pretty_name"] in (f"{TIME}{ENTRY}", f"{TFLOPS}{ENTRY}")
    }

    assert changes == {(TIME, CODE): True, (TFLOPS, CODE): True, (TIME, "first"): False, (TFLOPS, "first"): False}


def test_the_page_tells_of_both_and_accuses_the_machine_of_its_own(anchored: Recorded) -> None:
    told = {
        (change["metric"], machine_of(f"machine-{change['axes']['machine']}")): change
        for change in anchored.page("changes.json")["changes"]
        if change["case"] == "Scale[1000000,flopwatch]"
    }

    directions = {place: change["direction"] for place, change in told.items()}
    assert directions == {("time", CODE): "worse", ("ratio_to_anchor", CODE): "worse", ("time", "first"): "other"}
    change = told["time", "first"]
    assert change["effect"] == pytest.approx(100 * (SLOW / FAST - 1), abs=0.1)
    assert change["suspects"][0].startswith("the machine: beside the anchor the case is 0.0")


def test_a_case_without_ratios_is_accused_by_its_seconds(anchored: Recorded) -> None:
    directions = [
        change["direction"]
        for change in anchored.page("changes.json")["changes"]
        if change["case"] == "Scale[improved,flopwatch]"
    ]

    assert set(directions) == {"better"}


def test_a_peer_is_no_regression_and_its_change_nobodys_fault(anchored: Recorded) -> None:
    directions = [
        change["direction"]
        for change in anchored.page("changes.json")["changes"]
        if change["case"] == "Scale[1000000,torch]"
    ]

    assert directions == ["other"] * 2  # one a machine

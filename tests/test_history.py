from __future__ import annotations

import json
import math
import random
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from tests.conftest import ToyRepository

from flopwatch.errors import ExitCode, UndecidedError, UsageError
from flopwatch.history import BRANCH, RATIO, History, Point, find_changes, read_history
from flopwatch.model import from_json, to_json

if TYPE_CHECKING:
    from pathlib import Path


TIME, REGISTERS = "scale.Scale.track_time", "scale.Scale.track_registers"
CASE = "Scale[1000,flopwatch]"
COLUMNS = ["result", "params", "version", "started_at", "duration", "stats_ci_99_a", "stats_ci_99_b"]
PARAMS = [["'1000'"], ["'flopwatch'", "'torch'"]]


@dataclass(kw_only=True)
class Store:
    """Results as asv writes them."""

    toy: ToyRepository
    version: str = "1"
    written: list[str] = field(default_factory=list)

    def commit(self, seconds: list[float | None], *, registers: float = 40.0, **options: str) -> str:
        """Commit, and record what the kernel under test and its peer take."""
        commit = self.toy.commit(f"commit {len(self.written)}")
        self.record(commit, seconds, registers=registers, **options)
        return commit

    def record(
        self,
        commit: str,
        seconds: list[float | None],
        *,
        registers: float = 40.0,
        gpu: str = "H200",
        version: str = "1",
    ) -> None:
        bounds = [[None if value is None else value * share for value in seconds] for share in (0.99, 1.01)]
        found = {
            "version": 2,
            "commit_hash": commit,
            "env_name": "shared",
            "date": 1795221487000,
            "params": {"gpu": f"NVIDIA {gpu}", "machine": gpu.lower(), "triton": "3.6.0"},
            "python": "3.12",
            "requirements": {"triton": "3.6.0"},
            "env_vars": {},
            "result_columns": COLUMNS,
            "results": {
                TIME: [seconds, PARAMS, version, 0, 0.1, *bounds],
                REGISTERS: [[registers, math.nan], PARAMS, version, 0, 0.1],
            },
        }
        folder = self.folder / gpu.lower()
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "machine.json").write_text(json.dumps({"machine": gpu.lower(), "version": 1}), encoding="utf-8")
        (folder / f"{commit[:8]}-shared.json").write_text(json.dumps(found), encoding="utf-8")
        self.written.append(commit)

    @property
    def folder(self) -> Path:
        return self.toy.root.parent / "kept"

    def read(self, case: str = CASE, **options: Any) -> History:  # noqa: ANN401 - passed on
        return read_history(self.toy.root, case, **options)


@pytest.fixture
def store(toy: ToyRepository) -> Store:
    store = Store(toy=toy)
    store.folder.mkdir()
    units = {name: {"unit": unit, "version": "1"} for name, unit in ((TIME, "seconds"), (REGISTERS, "registers"))}
    (store.folder / "benchmarks.json").write_text(json.dumps({"version": 2, **units}), encoding="utf-8")
    # asv reads comments too.
    text = '{"version": 1, "repo": ".", "branches": ["main"], "results_dir": "../kept"} // kept elsewhere'
    (toy.root / "asv.conf.json").write_text(text, encoding="utf-8")
    return store


def test_the_points_of_a_case_are_in_the_order_of_the_commits(store: Store) -> None:
    commits = [store.toy.commit(f"commit {number}") for number in range(3)]
    for commit, seconds in reversed(list(zip(commits, (1e-3, 2e-3, 3e-3), strict=True))):
        store.record(commit, [seconds, 9e-3])
    found = store.read()
    (series,) = found.series
    assert series.case == CASE
    assert series.labels == {"gpu": "NVIDIA H200", "machine": "h200", "triton": "3.6.0"}
    assert [(point.commit, point.value) for point in series.points] == list(
        zip(commits, (1e-3, 2e-3, 3e-3), strict=True)
    )
    assert series.points[0].date == "2026-11-21"
    assert series.points[0].lower == pytest.approx(0.99e-3)
    assert (found.metric, found.unit, found.notes) == ("time", "seconds", ())
    assert from_json(to_json(found), History) == found


def test_a_part_of_the_name_finds_all_that_have_it_and_the_whole_name_one(store: Store) -> None:
    store.commit([1e-3, 2e-3])
    assert [series.case for series in store.read("scale").series] == [CASE, "Scale[1000,torch]"]
    assert [series.case for series in store.read("SCALE[1000,torch]").series] == ["Scale[1000,torch]"]


def test_machines_are_series_of_their_own(store: Store) -> None:
    commit = store.commit([1e-3, 2e-3])
    store.record(commit, [3e-3, 4e-3], gpu="B200")
    found = store.read().series
    assert [(series.labels["machine"], series.points[0].value) for series in found] == [("b200", 3e-3), ("h200", 1e-3)]


def test_what_was_recorded_of_a_pull_request_is_not_in_the_line_that_it_was_merged_into(store: Store) -> None:
    first = store.commit([1e-3, None])
    store.toy.git("checkout", "-q", "-b", "topic")
    store.commit([2e-3, None])
    store.toy.git("checkout", "-q", "main")
    store.toy.git("merge", "-q", "--no-ff", "-m", "merge", "topic")
    merge = store.toy.git("rev-parse", "HEAD").strip()
    store.record(merge, [3e-3, None])
    found = store.read()
    assert [[point.commit for point in series.points] for series in found.series] == [[first, merge]]
    assert found.notes == ("1 commit with results left out: in the line of neither HEAD nor asv's branches",)


def test_a_branch_that_is_checked_out_is_drawn_apart(store: Store) -> None:
    kept = [store.commit([1e-3, None]) for _ in range(40)]
    store.toy.git("checkout", "-q", "-b", "topic")
    own = [store.commit([2e-3, None]) for _ in range(8)]
    main, topic = store.read().series
    assert [point.commit for point in main.points] == kept
    assert [point.commit for point in topic.points] == own
    assert BRANCH not in main.labels
    assert topic.labels == main.labels | {BRANCH: "topic"}
    # One line of both would have a change that nobody has merged.
    assert [change.commit for change in find_changes((*main.points, *topic.points), "time")] == own[:1]
    assert (main.changes, topic.changes) == ((), ())


def test_a_commit_that_is_on_no_branch_is_drawn_apart(store: Store) -> None:
    store.commit([1e-3, None])
    store.toy.git("checkout", "-q", "--detach")
    own = store.commit([2e-3, None])
    _, detached = store.read().series
    assert ([point.commit for point in detached.points], detached.labels[BRANCH]) == ([own], "HEAD")


def test_main_that_was_merged_into_the_branch_is_not_drawn_twice(store: Store) -> None:
    first = store.commit([1e-3, None])
    store.toy.git("checkout", "-q", "-b", "topic")
    own = store.commit([2e-3, None])
    store.toy.git("checkout", "-q", "main")
    second = store.commit([1e-3, None])
    store.toy.git("checkout", "-q", "topic")
    store.toy.git("merge", "-q", "-m", "merge", "main")
    main, topic = store.read().series
    assert [point.commit for point in main.points] == [first, second]
    assert [point.commit for point in topic.points] == [own]


def test_each_of_several_branches_of_asv_has_a_line(store: Store) -> None:
    common = store.commit([1e-3, None])
    store.toy.git("checkout", "-q", "-b", "stable")
    fixed = store.commit([2e-3, None])
    store.toy.git("checkout", "-q", "main")
    text = '{"version": 1, "repo": ".", "branches": ["main", "stable"], "results_dir": "../kept"}'
    (store.toy.root / "asv.conf.json").write_text(text, encoding="utf-8")
    lines = {series.labels[BRANCH]: [point.commit for point in series.points] for series in store.read().series}
    assert lines == {"main": [common], "stable": [common, fixed]}


@pytest.mark.parametrize(("default", "lines"), [("main", 2), ("trunk", 1)])
def test_where_asv_names_no_branch_it_is_the_default_one_or_else_head(
    default: str, lines: int, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("asv.util.git_default_branch", lambda: default)
    store.commit([1e-3, None])
    store.toy.git("checkout", "-q", "-b", "topic")
    store.commit([2e-3, None])
    text = '{"version": 1, "repo": ".", "branches": [null], "results_dir": "../kept"}'
    (store.toy.root / "asv.conf.json").write_text(text, encoding="utf-8")
    found = store.read().series
    assert [series.labels.get(BRANCH) for series in found] == [None, "topic"][:lines]
    assert [len(series.points) for series in found] == {1: [2], 2: [1, 1]}[lines]


def test_commits_of_other_branches_are_counted_and_left_out(store: Store) -> None:
    kept = store.commit([1e-3, 2e-3])
    store.toy.git("checkout", "-q", "-b", "topic")
    store.commit([5e-3, 2e-3])
    store.toy.git("checkout", "-q", "main")
    found = store.read()
    assert [point.commit for point in found.series[0].points] == [kept]
    assert found.notes == ("1 commit with results left out: in the line of neither HEAD nor asv's branches",)


def test_values_of_another_version_of_the_suite_are_left_out(store: Store) -> None:
    store.commit([9e-3, 2e-3], version="0")
    kept = store.commit([1e-3, 2e-3])
    found = store.read()
    assert [point.commit for point in found.series[0].points] == [kept]
    assert found.notes == ("results of 1 commit left out: recorded with another version of the suite",)


def test_a_failure_is_a_point_without_a_value_and_what_does_not_apply_is_none(store: Store) -> None:
    store.commit([1e-3, 2e-3])
    store.commit([None, 2e-3])
    assert [point.value for point in store.read().series[0].points] == [1e-3, None]
    assert [series.case for series in store.read("Scale", metric="registers").series] == [CASE]


def test_a_case_that_always_failed_is_told(store: Store) -> None:
    store.commit([None, 2e-3])
    with pytest.raises(UndecidedError, match="no time of 'Scale") as caught:
        store.read()
    assert caught.value.why == "it failed at 1 commit, and was measured at no other"
    assert "failures" in caught.value.todo


def test_a_case_that_failed_once_and_was_never_timed_has_other_metrics_to_look_at(store: Store) -> None:
    for seconds in (math.nan, None, math.nan):  # as without a GPU, with a commit that cannot be imported
        store.commit([seconds, seconds])
    with pytest.raises(UndecidedError) as caught:
        store.read()
    assert caught.value.why == "it failed at 1 commit, and was measured at no other"
    assert caught.value.todo.startswith("choose a --metric that was: registers; ")


def test_times_that_nobody_could_measure_are_not_among_what_was_recorded(store: Store) -> None:
    store.commit([math.nan, math.nan])
    with pytest.raises(UndecidedError, match="time was recorded of no case") as caught:
        store.read()
    assert "need a GPU" in caught.value.why
    assert caught.value.todo == "choose a --metric that was: registers"


def test_a_file_that_is_broken_is_noted_and_the_others_are_read(store: Store) -> None:
    store.commit([1e-3, 2e-3])
    (store.folder / "h200" / "0badbad0-shared.json").write_text("{", encoding="utf-8")
    found = store.read()
    assert len(found.series[0].points) == 1
    assert "0badbad0" in found.notes[0]


def test_the_last_points_are_kept_and_changes_are_found_in_all(store: Store) -> None:
    for number in range(30):
        store.commit([1e-3 if number < 20 else 1.2e-3, 2e-3], registers=40.0 if number < 29 else 64.0)
    (series,) = store.read(last=12).series
    assert len(series.points) == 12
    (change,) = series.changes
    assert change.commit == store.written[20]
    assert change.before == store.written[19]
    assert change.effect == pytest.approx(math.log(1.2))
    assert store.read(last=3).series[0].changes == ()
    assert [change.to_value for change in store.read(metric="registers").series[0].changes] == [64.0]


def test_noise_has_no_change_and_a_step_has_one() -> None:
    source = random.Random(20261121)
    values = [source.gauss(1.0, 0.003) for _ in range(200)]
    points = [Point(commit=str(place), date="", value=value) for place, value in enumerate(values)]
    assert find_changes(points, "time") == ()
    stepped = [
        Point(commit=point.commit, date="", value=value * (1.02 if place >= 120 else 1))
        for place, (point, value) in enumerate(zip(points, values, strict=True))
    ]
    (change,) = find_changes(stepped, "time")
    assert (change.before, change.commit) == ("119", "120")
    assert change.from_value == pytest.approx(1.0, rel=0.002)
    assert change.to_value == pytest.approx(1.02, rel=0.002)
    assert change.effect is not None
    assert change.effect == pytest.approx(math.log(1.02), abs=0.002)


def test_failures_move_no_change() -> None:
    values = [40.0, None, 40.0, None, 64.0]
    points = [Point(commit=str(place), date="", value=value) for place, value in enumerate(values)]
    (change,) = find_changes(points, "registers")
    assert (change.before, change.commit, change.from_value, change.to_value) == ("2", "4", 40.0, 64.0)
    assert find_changes([points[1]], "time") == ()


def test_differences_of_zero_are_levels_without_a_ratio() -> None:
    points = [Point(commit=str(place), date="", value=1e-6 * (place % 3) if place < 40 else 1.0) for place in range(60)]
    (change,) = find_changes(points, "max_diff")
    assert (change.commit, change.effect) == ("40", None)


def test_what_was_not_recorded_is_told_with_what_was(store: Store) -> None:
    with pytest.raises(UndecidedError, match="no results in") as caught:
        store.read()
    assert "flopwatch record" in caught.value.todo
    store.commit([1e-3, 2e-3])
    with pytest.raises(UndecidedError, match="no recorded case matches 'Softmax'") as caught:
        store.read("Softmax")
    assert caught.value.why == "there are Scale[1000,flopwatch], Scale[1000,torch]"
    with pytest.raises(UndecidedError, match="spills was recorded of no case") as caught:
        store.read(metric="spills")
    assert caught.value.todo == "choose a --metric that was: registers, time"


def test_ratios_have_the_name_that_they_are_published_by() -> None:
    pytest.importorskip("asv")
    from flopwatch.asv import anchored  # noqa: PLC0415 - imports asv

    assert anchored.RATIO == RATIO


def test_ratios_to_an_anchor_are_a_metric_and_the_seconds_say_where_there_are_any(store: Store) -> None:
    commit = store.commit([1e-3, 2e-3])
    assert store.read().notes == ()
    path = store.folder / "h200" / f"{commit[:8]}-shared.json"
    stored = json.loads(path.read_bytes())
    stored["results"][f"scale.Scale.track_{RATIO}"] = [[1.5, math.nan], PARAMS, "1 to c0ffee"]
    path.write_text(json.dumps(stored), encoding="utf-8")

    (note,) = store.read().notes
    assert note.endswith(f"--metric {RATIO}")
    (series,) = store.read(metric=RATIO).series
    assert [point.value for point in series.points] == [1.5]
    assert store.read(metric=RATIO).notes == ()


def test_without_asv_the_line_that_installs_it_is_given(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "asv.config", None)
    with pytest.raises(UsageError) as caught:
        store.read()
    assert caught.value.what == "flopwatch history needs asv, which keeps the results"
    assert caught.value.todo == "python -m pip install 'flopwatch[history]'"
    assert caught.value.exit_code is ExitCode.USAGE


@pytest.mark.parametrize("text", ["{", '{"version": 1}', '{"version": 9, "repo": "."}', "[]"])
def test_a_configuration_that_cannot_be_read_is_told(text: str, store: Store) -> None:
    (store.toy.root / "asv.conf.json").write_text(text, encoding="utf-8")
    with pytest.raises(UsageError, match=r"asv\.conf\.json cannot be read"):
        store.read()


def test_no_configuration_is_told(store: Store) -> None:
    (store.toy.root / "asv.conf.json").unlink()
    with pytest.raises(UsageError, match=r"no asv\.conf\.json in"):
        store.read()

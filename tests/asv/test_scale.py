"""What it costs to find changes when a history grows; `tests.asv.scale` is the same at 10,000 commits, from outside."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pytest
from tests.asv.scale import make_series, write_history

from flopwatch.asv.graphs import ArrayGraphs
from flopwatch.stats import changepoints, ranksum

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from pytest_benchmark.fixture import BenchmarkFixture

pytest.importorskip("pytest_benchmark")

COMMITS, SERIES = 500, 20
SCATTER = 0.005
#: One change in so many commits: ten in the longest history here.
COMMITS_A_CHANGE = 100
#: A history as long as a dashboard should bear, and what publishing it may take: 3 minutes of two cores, and 1 GiB.
LONG, MOST_CPU_S, MOST_MIB = 10_000, 2 * 180.0, 1024.0
#: Runs a command and prints what it took. A child counts as its own what its parent had when it forked, and a worker
#: of the tests may have more than 1 GiB: the parent is this small one.
METER = """\
import json, resource, subprocess, sys
subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, check=True)
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(json.dumps({"cpu_s": used.ru_utime + used.ru_stime, "mib": used.ru_maxrss / 1024}))
"""
ENVIRONMENT: dict[str, str | None] = {"gpu": "NVIDIA H200"}


@dataclass(kw_only=True)
class Work:
    """What was done.

    Attributes:
        values: that were split off and judged.
        effects: that were taken of a change.
    """

    values: int = 0
    effects: int = 0


@pytest.fixture(scope="module")
def values() -> np.ndarray:
    """A row a commit, a column a series."""
    rng = np.random.default_rng(20261121)
    return np.column_stack(
        [make_series(rng, 2 * COMMITS, SCATTER, commits_a_change=COMMITS_A_CHANGE) for _ in range(SERIES)]
    )


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> Work:
    """Counted while the changes are found."""
    done = Work()
    judge, effect = changepoints._first_alarm, ranksum.shift

    def judged(window: np.ndarray, seen: int, level: float) -> int | None:
        done.values += len(window)
        return judge(window, seen, level)

    def taken(before: np.ndarray, after: np.ndarray, *, alpha: float) -> object:
        done.effects += 1
        return effect(before, after, alpha=alpha)

    monkeypatch.setattr(changepoints, "_first_alarm", judged)
    monkeypatch.setattr(changepoints, "shift", taken)
    return done


def told(values: np.ndarray, cache: Path) -> ArrayGraphs:
    """Return graphs that have these values, as `asv publish` makes them."""
    graphs = ArrayGraphs(cache)
    graph = graphs.get_graph("scale.Scale.track_time", ENVIRONMENT)
    for revision, row in enumerate(values.tolist()):
        graph.add_data_point(revision, row)
    return graphs


def found(graphs: ArrayGraphs) -> list[list[int]]:
    graphs.detect_steps()
    return [[change.index for change in changes] for _, graph in graphs for changes in graph.changes]


def one_more(values: np.ndarray, count: int, cache: Path) -> Callable[[], tuple[tuple[ArrayGraphs], dict[str, object]]]:
    """Return what makes graphs of so many commits, all but the last of which were published before."""
    told(values[: count - 1], cache).detect_steps()
    known = cache.read_bytes()

    def prepare() -> tuple[tuple[ArrayGraphs], dict[str, object]]:
        cache.write_bytes(known)
        return (told(values[:count], cache),), {}

    return prepare


def test_one_more_commit(benchmark: BenchmarkFixture, values: np.ndarray, tmp_path: Path) -> None:
    prepare = one_more(values, COMMITS, tmp_path / "changes.json")

    changes = benchmark.pedantic(found, setup=prepare, rounds=10)  # type: ignore[no-untyped-call] # has no annotations

    assert changes == found(told(values[:COMMITS], tmp_path / "anew.json"))
    assert sum(map(len, changes)) > SERIES


def test_a_whole_history(benchmark: BenchmarkFixture, values: np.ndarray, tmp_path: Path) -> None:
    caches = (tmp_path / f"{number}.json" for number in itertools.count())

    def prepare() -> tuple[tuple[ArrayGraphs], dict[str, object]]:
        return (told(values[:COMMITS], next(caches)),), {}

    changes = benchmark.pedantic(found, setup=prepare, rounds=3)  # type: ignore[no-untyped-call] # likewise

    assert sum(map(len, changes)) > SERIES


def test_the_work_for_one_more_commit_does_not_grow_with_the_history(
    values: np.ndarray, tmp_path: Path, work: Work
) -> None:
    for count in (COMMITS // 2, COMMITS, 2 * COMMITS):
        (graphs,), _ = one_more(values, count, tmp_path / f"{count}.json")()
        work.values = work.effects = 0

        found(graphs)

        assert 0 < work.values <= SERIES * changepoints.WINDOW
        # Of the last change, which may still move, and of the one before, which it ends.
        assert work.effects <= 2 * SERIES


def test_the_work_for_a_whole_history_does_grow(values: np.ndarray, tmp_path: Path, work: Work) -> None:
    """Else the test above would count nothing."""
    done = []
    for count in (COMMITS // 2, COMMITS, 2 * COMMITS):
        work.values = work.effects = 0
        found(told(values[:count], tmp_path / f"{count}.json"))
        done.append((work.values, work.effects))

    (_, short), _, (judged, effects) = done
    assert judged > 5 * SERIES * changepoints.WINDOW
    assert effects > 2 * short
    assert effects > 4 * SERIES


@dataclass(frozen=True, kw_only=True, slots=True)
class Cost:
    """What publishing a history takes: of the processor, all cores together, and of memory, in the largest process."""

    cpu_s: float
    mib: float

    def fits(self) -> bool:
        return self.cpu_s < MOST_CPU_S and self.mib < MOST_MIB


def extrapolated(costs: Mapping[int, Cost], commits: int) -> Cost:
    """Draw a line through the costs of two histories."""
    (short, less), (longer, more) = costs.items()
    factor = (commits - short) / (longer - short)
    return Cost(cpu_s=less.cpu_s + factor * (more.cpu_s - less.cpu_s), mib=less.mib + factor * (more.mib - less.mib))


def cost_of(command: Sequence[str], *, cwd: Path, env: Mapping[str, str]) -> Cost:
    """Run the command, whose output is dropped; raise `subprocess.CalledProcessError` where it fails."""
    measured = subprocess.run(
        [sys.executable, "-c", METER, *command], cwd=cwd, env=env, capture_output=True, check=True
    )
    return Cost(**json.loads(measured.stdout))


def test_the_cost_of_a_command_is_not_that_of_who_asks_for_it(tmp_path: Path) -> None:
    held = bytearray(b"\1" * 2**28)

    cost = cost_of([sys.executable, "-c", "x = bytearray(b'1' * 2**26)"], cwd=tmp_path, env=os.environ)

    assert 2**26 / 2**20 < cost.mib < len(held) / 2**20
    assert cost.cpu_s > 0
    with pytest.raises(subprocess.CalledProcessError):
        cost_of([sys.executable, "-c", "raise SystemExit(3)"], cwd=tmp_path, env=os.environ)


def test_a_long_history_of_300_series_is_published_in_3_minutes_and_1_gib(tmp_path: Path) -> None:
    costs = {}
    for commits in (150, 600):
        folder = tmp_path / str(commits)
        assert write_history(folder, commits=commits, cases=10) == 300
        command = [sys.executable, "-m", "asv", "publish", "--no-pull"]
        costs[commits] = cost_of(command, cwd=folder, env={**os.environ, "HOME": str(folder)})

    assert extrapolated(costs, LONG).fits(), (costs, extrapolated(costs, LONG))


@pytest.mark.parametrize("longer", [Cost(cpu_s=22.0, mib=64.0), Cost(cpu_s=5.0, mib=120.0)])
def test_a_publish_that_would_take_too_long_or_too_much_is_caught(longer: Cost) -> None:
    short = Cost(cpu_s=2.0, mib=55.0)

    assert extrapolated({150: short, 600: Cost(cpu_s=5.0, mib=64.0)}, LONG).fits()
    assert not extrapolated({150: short, 600: longer}, LONG).fits()

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING

import numpy as np
import pytest
from asv import graph as asv_graph

from flopwatch.asv import graphs as module
from flopwatch.asv.graphs import ArrayGraph, ArrayGraphs
from flopwatch.asv.steps import noisy_changes

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from flopwatch.stats.changepoints import Changes

PARAMS: dict[str, str | None] = {"gpu": "NVIDIA H200", "machine": "a", "branch": "main"}


@pytest.fixture
def graphs(tmp_path: Path) -> ArrayGraphs:
    return ArrayGraphs(tmp_path / "changes.json")


def random_rows(seed: int) -> Iterator[tuple[int, list[float | None]]]:
    """Yield revisions in no order, some twice, of three cases with values missing in all ways."""
    rng = np.random.default_rng(seed)
    for revision in rng.integers(0, 60, 50).tolist():
        row: list[float | None] = rng.lognormal(size=3).tolist()
        for case, kind in enumerate(rng.integers(0, 6, 3)):
            if kind < 2 or (case == 2 and revision % 20 < 10):
                row[case] = None if kind else math.nan
        yield revision, row


def filled(graph: ArrayGraph, seed: int) -> ArrayGraph:
    for revision, row in random_rows(seed):
        graph.add_data_point(revision, row, [None] * 3)
    return graph


def plain(value: object) -> object:
    """Turn NaN into None: the pages know one kind of missing."""
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return None if isinstance(value, float) and math.isnan(value) else value


@pytest.mark.parametrize("seed", range(5))
def test_the_data_are_those_of_asv(seed: int) -> None:
    ours = filled(ArrayGraph("b", PARAMS), seed).get_data()
    theirs = filled(asv_graph.Graph("b", PARAMS), seed).get_data()

    assert [revision for revision, *_ in ours] == [revision for revision, *_ in theirs]
    for (_, one, _), (_, other, _) in zip(ours, theirs, strict=True):
        assert one == [pytest.approx(value) if value is not None else None for value in other]


@pytest.mark.parametrize("seed", range(5))
def test_the_summary_of_a_benchmark_is_that_of_asv(seed: int, graphs: ArrayGraphs) -> None:
    theirs = []
    for gpu in ("one", "other"):
        params = PARAMS | {"gpu": gpu}
        filled(graphs.get_graph("b", params), seed + ord(gpu[1]))
        theirs.append(filled(asv_graph.Graph("b", params), seed + ord(gpu[1])))

    (ours,) = graphs.get_summary_graphs()
    expected = asv_graph.make_summary_graph(theirs).get_data()

    assert [row[0] for row in ours.get_data()] == [row[0] for row in expected]
    assert [row[1] for row in ours.get_data()] == [
        pytest.approx(row[1]) if row[1] is not None else None for row in expected
    ]


def test_a_benchmark_without_parameters_is_a_plain_series() -> None:
    graph = ArrayGraph("b", PARAMS)
    for revision, value in [(3, 3.0), (1, None), (2, 2.0), (4, None)]:
        graph.add_data_point(revision, value)

    assert graph.get_data() == [(2, 2.0, None), (3, 3.0, None)]
    assert graph.has_failed


def test_a_graph_without_values_is_empty_and_has_one_series() -> None:
    graph = ArrayGraph("b", PARAMS)
    graph.add_data_point(1, math.nan)

    assert (graph.get_data(), graph.n_series, graph.has_failed) == ([], 1, False)


def test_rows_of_different_lengths_are_refused() -> None:
    graph = ArrayGraph("b", PARAMS)
    graph.add_data_point(1, [1.0, 2.0])

    with pytest.raises(ValueError, match="has 3 cases at revision 2, not 2"):
        graph.add_data_point(2, [1.0, 2.0, 3.0])


def test_the_path_is_the_one_that_the_pages_ask_for(graphs: ArrayGraphs) -> None:
    graph = graphs.get_graph("b", PARAMS)

    assert graph.path == asv_graph.Graph("b", PARAMS).path
    assert graphs.get_graph("b", dict(PARAMS)) is graph


def test_the_steps_of_each_case_are_at_its_own_revisions(graphs: ArrayGraphs) -> None:
    graph = graphs.get_graph("b", PARAMS)
    for revision in range(80):
        missing = None if revision % 2 else 1.0 + (revision >= 41)
        graph.add_data_point(revision, [missing, 5.0])

    graphs.detect_steps()

    first, second = graph.get_steps()
    assert [step[:3] for step in first] == [(0, 41, 1.0), (42, 79, 2.0)]
    assert [step[:3] for step in second] == [(0, 80, 5.0)]
    assert [[change.index for change in changes] for changes in graph.changes] == [[21], []]


def test_what_a_compiler_makes_changes_at_once(graphs: ArrayGraphs) -> None:
    for name in ("a.A.track_spills", "a.A.track_time"):
        for revision in range(9):
            graphs.get_graph(name, PARAMS).add_data_point(revision, [48.0 if revision == 8 else 0.0])

    graphs.detect_steps()

    steps = {name: graphs.get_graph(name, PARAMS).get_steps()[0] for name in ("a.A.track_spills", "a.A.track_time")}
    assert [step[:3] for step in steps["a.A.track_spills"]] == [(0, 8, 0.0), (8, 9, 48.0)]
    assert len(steps["a.A.track_time"]) == 1


def test_of_a_series_that_has_grown_only_the_end_is_looked_at(
    graphs: ArrayGraphs, monkeypatch: pytest.MonkeyPatch
) -> None:
    known: list[int] = []

    def watched(values: np.ndarray, earlier: Changes | None) -> Changes:
        known.append(0 if earlier is None else earlier.count)
        return noisy_changes(values, earlier)

    monkeypatch.setattr(module, "noisy_changes", watched)
    rows = np.repeat([[1.0, 1.0, 1.0], [1.5, 1.0, 0.5]], 40, axis=0) * np.random.default_rng(0).lognormal(
        0, 0.01, (80, 3)
    )

    def build(count: int, cache: Path) -> ArrayGraph:
        again = ArrayGraphs(cache)
        graph = again.get_graph("b", PARAMS)
        for revision, row in enumerate(rows[:count].tolist()):
            graph.add_data_point(revision, row)
        again.detect_steps()
        return graph

    build(70, graphs._cache)
    grown = build(80, graphs._cache)
    at_once = build(80, graphs._cache.with_name("other.json"))

    assert known == [0, 0, 0, 70, 70, 70, 0, 0, 0]
    assert grown.get_steps() == at_once.get_steps()
    assert [[change.index for change in changes] for changes in grown.changes] == [[40], [], [40]]


def test_a_value_is_found_by_its_revision() -> None:
    graph = ArrayGraph("b", PARAMS)
    for revision, row in [(2, [1.0, 2.0]), (5, [3.0, None])]:
        graph.add_data_point(revision, row)

    assert [graph.value(*place) for place in itertools.product((2, 3, 5, 9), (0, 1))] == [
        *(1.0, 2.0),
        *(None, None),
        *(3.0, None),
        *(None, None),
    ]

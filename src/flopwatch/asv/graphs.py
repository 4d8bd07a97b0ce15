"""asv's graphs, kept as arrays: a long history in a fraction of the memory, fitted by our search for changes.

asv keeps each value in a list of its own, takes their mean again whenever it looks at them, and fits every series anew
at each `asv publish`, which is 73 % of its time (asv 0.6.6, 3000 commits, 300 series, 2 cores, 2026-11-20).
"""

from __future__ import annotations

import bisect
import functools
import itertools
import math
from array import array
from typing import TYPE_CHECKING, Any

import numpy as np
from asv.graph import Graph, GraphSet, resample_data

from flopwatch.asv.cleared import clears, join_steps, ratio_of
from flopwatch.asv.steps import Change, KnownChanges, exact_changes, fit_steps, is_exact, noisy_changes, relate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from flopwatch.asv.derived import Step
    from flopwatch.stats.changepoints import Changes
    from flopwatch.stats.ranksum import Shift

    Floats = NDArray[np.float64]

#: Of all values that there are: asv draws a line over gaps up to this, in the summary of a benchmark.
_LARGEST_GAP = 0.1


class ArrayGraph(Graph):  # type: ignore[misc] # asv ships no types
    """The values of one benchmark in one environment: a row a commit, a column a case; NaN where there is none."""

    def __init__(self, benchmark_name: str, params: dict[str, str | None]) -> None:
        super().__init__(benchmark_name, params)
        self.n_series: int | None = None
        self.scalar_series = True
        self._revisions = array("q")
        self._values = array("d")
        self._table: tuple[list[int], Floats] | None = None
        #: Whether a case has failed, which asv stores as null, unlike one that does not apply.
        self.has_failed = False
        #: Of each case; their indexes are those of its measured revisions.
        self.changes: list[tuple[Change, ...]] = []
        #: Of each case the changes that the machine made, by their place in `changes`, and how the ratio moved there.
        self.cleared: list[dict[int, Shift]] = []

    def add_data_point(self, revision: int, value: Any, weight: object = None) -> None:  # noqa: ANN401, ARG002 - asv's signature
        """Add what was measured of one commit; more than one such is averaged."""
        row = value if isinstance(value, list) else [value]
        self.scalar_series = self.scalar_series and not isinstance(value, list)
        if self.n_series is None:
            self.n_series = len(row)
        elif len(row) != self.n_series:
            raise ValueError(f"{self.benchmark_name} has {len(row)} cases at revision {revision}, not {self.n_series}")
        self.has_failed = self.has_failed or None in row
        self._revisions.append(revision)
        self._values.extend([math.nan if number is None else number for number in row])
        self._table = None

    def table(self) -> tuple[list[int], Floats]:
        """Return the revisions in their order, and their values; without those at either end that have none."""
        if self._table is None:
            self._table = self._sorted()
        return self._table

    def _sorted(self) -> tuple[list[int], Floats]:
        columns = self.n_series = self.n_series or 1
        values = np.array(self._values, dtype=np.float64).reshape(-1, columns)
        revisions, row_of = np.unique(np.array(self._revisions, dtype=np.int64), return_inverse=True)
        if len(revisions) == len(values):
            table = values[np.argsort(row_of)]
        else:
            there = ~np.isnan(values)
            sums, counts = np.zeros((len(revisions), columns)), np.zeros((len(revisions), columns))
            np.add.at(sums, row_of, np.where(there, values, 0.0))
            np.add.at(counts, row_of, there)
            table = np.divide(sums, counts, out=np.full_like(sums, math.nan), where=counts > 0)
        measured = np.flatnonzero(~np.isnan(table).all(axis=1))
        inside = slice(measured[0], measured[-1] + 1) if len(measured) else slice(0, 0)
        return revisions[inside].tolist(), table[inside]

    def get_data(self) -> list[tuple[int, Any, Any]]:
        """Return the table as asv has it: (revision, value or values, no weights), null where there is no value."""
        revisions, values = self.table()
        rows = [[None if math.isnan(value) else value for value in row] for row in values.tolist()]
        return [
            (revision, row[0] if self.scalar_series else row, None)
            for revision, row in zip(revisions, rows, strict=True)
        ]

    def value(self, revision: int, column: int) -> float | None:
        """Return what was measured of a case at a revision."""
        revisions, values = self.table()
        row = bisect.bisect_left(revisions, revision)
        if row == len(revisions) or revisions[row] != revision or math.isnan(values[row, column]):
            return None
        return float(values[row, column])

    def series(self) -> Iterator[tuple[list[int], Floats]]:
        """Yield the revisions and values of each case that has been measured."""
        revisions, values = self.table()
        for column in values.T:
            there = np.flatnonzero(~np.isnan(column))
            yield [revisions[row] for row in there], column[there]

    def take(self, revisions: list[int], values: Floats, *, scalar: bool) -> None:
        """Take a table that was derived from another graph's."""
        self.n_series, self.scalar_series = values.shape[1], scalar
        self._table = revisions, values

    def fit(self, found: Sequence[tuple[Change, ...]]) -> None:
        """Take the changes of each case, and describe the stretches between them."""
        self.changes = list(found)
        self.cleared = [{} for _ in found]
        self.take_steps(
            [
                fit_steps(revisions, values, changes)
                for (revisions, values), changes in zip(self.series(), found, strict=True)
            ]
        )

    def clear(self, ratios: ArrayGraph) -> None:
        """Find which changes of seconds the machine made, by the ratios to an anchor of the same cases."""
        if (self.n_series or 0) != (ratios.n_series or 0):
            return
        every = [ratios.stretches(column, steps) for column, steps in enumerate(self.all_steps)]
        self.cleared = [
            {
                place: moved
                for place, (change, sides) in enumerate(zip(changes, itertools.pairwise(stretches), strict=True))
                if (moved := clears(change, *sides)) is not None
            }
            for changes, stretches in zip(self.changes, every, strict=True)
        ]
        self.take_steps(self.all_steps, told=list(map(join_steps, self.all_steps, self.cleared)))

    def stretches(self, column: int, steps: Sequence[Step]) -> list[Floats]:
        """Return the values of a case in each of some stretches, without those that are missing."""
        revisions, values = self.table()
        ends = [(bisect.bisect_left(revisions, step[0]), bisect.bisect_left(revisions, step[1])) for step in steps]
        parts = (values[first:end, column] for first, end in ends)
        return [part[~np.isnan(part)] for part in parts]

    def take_steps(self, steps: list[list[Step]], *, told: list[list[Step]] | None = None) -> None:
        """Take the stretches of each case, and those that asv is told: in the list, the regressions and the feed."""
        self._all_steps = steps
        self._steps = steps if told is None else told  # which `get_steps` returns

    @property
    def all_steps(self) -> list[list[Step]]:
        """The stretches of each case, also of a benchmark without parameters."""
        return self._all_steps

    @property
    def told_steps(self) -> list[list[Step]]:
        """The same without the changes that the machine made."""
        return self._steps


class ArrayGraphs(GraphSet):  # type: ignore[misc] # asv ships no types
    """All graphs; what was found in a series is remembered in a file until the series changes."""

    def __init__(self, cache: Path) -> None:
        super().__init__()
        self._cache = cache

    def get_graph(self, benchmark_name: str, params: dict[str, str | None]) -> ArrayGraph:
        """Return the graph of a benchmark in one environment, a new one where there is none."""
        path = Graph.get_file_path(params, benchmark_name)
        graph: ArrayGraph | None = self._graphs.get(path)
        if graph is None:
            graph = self._graphs[path] = ArrayGraph(benchmark_name, params)
            self._groups.setdefault(benchmark_name, []).append(graph)
        return graph

    def detect_steps(self, pool: Any = None, dots: Callable[[], None] | None = None) -> None:  # noqa: ANN401 - asv's signature
        """Find the changes of every series, on all cores; of one that has grown, those in its last values."""
        known, found = KnownChanges(self._cache), {}
        series = {path: [values for _, values in graph.series()] for path, graph in self._graphs.items()}
        noisy = {
            f"{path}:{case}": values
            for path, graph in self._graphs.items()
            for case, values in enumerate(series[path])
            if not is_exact(graph.benchmark_name, values)
        }
        find = map if pool is None else functools.partial(pool.imap, chunksize=8)
        jobs = [(values, known.get(name)) for name, values in noisy.items()]
        for name, changes in zip(noisy, find(_find, jobs), strict=True):
            found[name] = changes
            if dots is not None:
                dots()
        for path, graph in self._graphs.items():
            graph.fit(
                [
                    relate(values, found[name]) if name in found else exact_changes(values)
                    for case, values in enumerate(series[path])
                    for name in [f"{path}:{case}"]
                ]
            )
        for graph in self._graphs.values():
            ratios = self._graphs.get(Graph.get_file_path(graph.params, ratio_of(graph.benchmark_name)))
            if ratios is not None:
                graph.clear(ratios)
        known.replace(found)

    def get_summary_graphs(self, dots: Callable[[], None] | None = None) -> Iterator[Graph]:
        """Yield what the grid draws: for each benchmark the geometric mean over all its cases and environments."""
        for name, graphs in self._groups.items():
            summary = Graph(name, {"summary": ""})
            for revision, value in resample_data(summarize([graph.table() for graph in graphs])):
                summary.add_data_point(revision, value)
            yield summary
            if dots is not None:
                dots()


def _find(job: tuple[Floats, Changes | None]) -> Changes:
    return noisy_changes(*job)


def summarize(tables: Sequence[tuple[list[int], Floats]]) -> list[tuple[int, float | None]]:
    """Take the geometric mean over all columns, small gaps interpolated; None where all are missing.

    >>> summarize([([1, 2], np.array([[1.0, 1.0], [np.nan, np.nan]])), ([2, 4], np.array([[0.0], [np.nan]]))])
    [(1, 1.0), (2, 0.0), (4, None)]
    """
    revisions = sorted({revision for table, _ in tables for revision in table})
    row_of = {revision: row for row, revision in enumerate(revisions)}
    columns = []
    for table, values in tables:
        whole = np.full((len(revisions), values.shape[1]), math.nan)
        whole[[row_of[revision] for revision in table]] = values
        columns.append(whole)
    everything = np.concatenate(columns, axis=1) if columns else np.empty((0, 0))
    missing = np.atleast_1d(np.isnan(everything).all(axis=1)).tolist()
    filled = np.apply_along_axis(_fill_gaps, 0, everything) if everything.size else everything
    there = ~np.isnan(filled)
    counts = there.sum(axis=1)
    with np.errstate(divide="ignore"):  # the mean of a series with a zero is zero
        logs = np.where(there, np.log(np.abs(np.where(there, filled, 1.0))), 0.0).sum(axis=1)
    signs = np.where(np.where(there, filled, 0.0).sum(axis=1) >= 0, 1.0, -1.0)
    means: list[float] = (signs * np.exp(logs / np.maximum(counts, 1))).tolist()
    return [(revision, None if gap else mean) for revision, gap, mean in zip(revisions, missing, means, strict=True)]


def _fill_gaps(column: Floats) -> Floats:
    """Draw a line over gaps of up to a tenth of all values."""
    there = np.flatnonzero(~np.isnan(column))
    if len(there) in (0, len(column)):
        return column
    rows = np.arange(len(column))
    after = np.searchsorted(there, rows)
    inner = (after > 0) & (after < len(there))
    gap = np.full(len(column), math.inf)
    gap[inner] = there[after[inner]] - there[after[inner] - 1] - 1
    fill = np.isnan(column) & (gap <= math.ceil(_LARGEST_GAP * len(there)))
    return np.where(fill, np.interp(rows, there, column[there]), column)

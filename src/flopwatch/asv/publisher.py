"""What `asv publish` adds: derived quantities, their direction, the page of changes, and all scripts that they load."""

from __future__ import annotations

import datetime as dt
import math
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from asv.console import log
from asv.graph import Graph
from asv.plugins.git import Git
from asv.publishing import OutputPublisher

from flopwatch.asv.changes import History, collect_changes
from flopwatch.asv.changes_page import Commit, Place, render_changes
from flopwatch.asv.configurations import Configurations
from flopwatch.asv.derived import DERIVATIONS, WORKS, Derivation
from flopwatch.asv.pages import ABSENT_GRAPHS, improve_pages
from flopwatch.git import git
from flopwatch.model import to_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from flopwatch.asv.derived import Step
    from flopwatch.asv.graphs import ArrayGraph, ArrayGraphs

#: Of changes.json.
CHANGES_SCHEMA = 1


class DerivedQuantities(OutputPublisher):  # type: ignore[misc] # asv ships no types
    """Add TFLOPS, GB/s, % of the roofline and occupancy as benchmarks of their own."""

    name = "flopwatch"
    button_label = "Derived quantities"
    description = "TFLOPS, GB/s, % of the roofline and occupancy"
    #: Before the grid (0) and the list (1), which then show what is added here.
    order: ClassVar[float] = -1

    @classmethod
    def publish(
        cls,
        conf: Any,  # noqa: ANN401 - asv's Config, untyped
        repo: Any,  # noqa: ANN401, ARG003 - asv's signature
        benchmarks: dict[str, dict[str, Any]],
        graphs: ArrayGraphs,
        revisions: Mapping[str, int],  # noqa: ARG003 - asv's signature
    ) -> None:
        """Derive, and finish the pages that asv has copied to ``html_dir``."""
        stored = dict(benchmarks)
        conf.regressions_first_commits.update(dict.fromkeys(_peers(stored.values())))
        benchmarks.clear()  # the pages keep the order of this dict: what people look for comes first
        for derivation in DERIVATIONS:
            for name, benchmark in stored.items():
                if not name.endswith(f".track_{derivation.metric}"):
                    continue
                derived = name.removesuffix(f"track_{derivation.metric}") + derivation.name
                if not _derive(conf, graphs, benchmark, derived, derivation):
                    continue
                benchmarks[derived] = _describe(benchmark, derived, derivation)
                # asv's detector calls every rise a regression; the stored metric is watched instead.
                conf.regressions_first_commits[rf"{re.escape(derived)}(\(|@|$)"] = None
        benchmarks.update(
            (name, benchmark) for name, benchmark in stored.items() if not _never_applies(graphs.get_graph_group(name))
        )
        every = list({graph.path.rpartition("/")[0]: graph.params for _, graph in graphs}.values())
        for name, benchmark in benchmarks.items():
            for work in WORKS:
                benchmark.pop(work, None)
            benchmark[ABSENT_GRAPHS] = _absent_graphs(name, graphs.get_graph_group(name), every)
        for problem in improve_pages(Path(conf.html_dir)):
            log.warning(f"flopwatch: {problem}")


class Changes(OutputPublisher):  # type: ignore[misc] # asv ships no types
    """Write ``changes.html``, what changed and when, and the same as ``changes.json``."""

    name = "changes"
    button_label = "Changes"
    description = "What changed, and when"
    #: After asv's own, of which the regressions (3) are the last.
    order: ClassVar[float] = 4

    @classmethod
    def publish(
        cls,
        conf: Any,  # noqa: ANN401 - asv's Config, untyped
        repo: Any,  # noqa: ANN401 - asv's Repo, untyped
        benchmarks: dict[str, dict[str, Any]],
        graphs: ArrayGraphs,
        revisions: Mapping[str, int],
    ) -> None:
        """Collect the changes that were found when the graphs were made."""
        changes = collect_changes(
            History(
                benchmarks=benchmarks,
                graphs=graphs,
                hashes={revision: commit for commit, revision in revisions.items()},
                ignored=[name for name, commit in conf.regressions_first_commits.items() if commit is None],
                ran_in=Configurations(Path(conf.results_dir)),
            )
        )
        commits = commits_of({change.first for change in changes}, repo)
        place = Place(
            project=conf.project,
            commit_url=conf.show_commit_url,
            commits=commits,
            built=dt.datetime.now(dt.UTC),
        )
        html = Path(conf.html_dir)
        (html / "changes.json").write_bytes(to_json({"schema": CHANGES_SCHEMA, "changes": changes}))
        (html / "changes.html").write_text(render_changes(changes, place), encoding="utf-8")


def commits_of(hashes: Iterable[str], repo: Any) -> dict[str, Commit]:  # noqa: ANN401 - asv's Repo, untyped
    """Ask git for the dates and subjects of commits; there are none where the repository is not one of git."""
    names = sorted(hashes)
    if not names or not isinstance(repo, Git):
        return {}
    lines = git("log", "--no-walk=unsorted", "--format=%H %cs %s", *names, "--", cwd=Path(repo._path))  # noqa: SLF001 - asv has no name for it
    found = (line.split(" ", 2) for line in lines.splitlines())
    return {commit: Commit(date=date, subject=subject) for commit, date, subject in found}


def _describe(benchmark: dict[str, Any], name: str, derivation: Derivation) -> dict[str, Any]:
    return benchmark | {"name": name, "unit": derivation.unit, "higher_is_better": True, "pretty_name": None}


def _derive(
    conf: Any,  # noqa: ANN401 - asv's Config, untyped
    graphs: ArrayGraphs,
    benchmark: dict[str, Any],
    derived: str,
    derivation: Derivation,
) -> bool:
    """Add and save the derived graphs; return False, and add none, where they would all be empty."""
    cases = math.prod(len(values) for values in benchmark["params"])
    found = []
    for stored in graphs.get_graph_group(benchmark["name"]):
        works = derivation.works(benchmark, stored.params.get("gpu") or "") if derivation.work else [0.0] * cases
        revisions, values = stored.table()
        if len(works) == values.shape[1]:
            found.append((stored, works, revisions, derivation.values(values, works)))
    if all(np.isnan(values).all() for *_, values in found):
        return False
    for stored, works, revisions, values in found:
        graph = graphs.get_graph(derived, stored.params)
        graph.take(revisions, values, scalar=stored.scalar_series)
        # The steps are those of the stored metric: detecting them anew would take time, and could tell another story.
        told = _derive_steps(derivation, stored.told_steps, works)
        graph.take_steps(_derive_steps(derivation, stored.all_steps, works), told=told)
        graph.save(conf.html_dir)
    return True


def _derive_steps(derivation: Derivation, every: Sequence[Sequence[Step]], works: Sequence[float]) -> list[list[Step]]:
    return [
        [step for fit in series if (step := derivation.step(fit, work)) is not None]
        for series, work in zip(every, works, strict=True)
    ]


def _absent_graphs(name: str, graphs: Sequence[ArrayGraph], every: Sequence[Mapping[str, str | None]]) -> list[str]:
    """Return which files a benchmark lacks of those that the graph page would load, one for each environment."""
    there = {graph.path for graph in graphs}
    paths = (Graph.get_file_path(params, name) for params in every)
    return [f"{path}.json" for path in paths if path not in there]


def _peers(benchmarks: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    r"""Yield patterns of the cases of peers, as the regressions name them: no commit of ours changes their code.

    There is one for all suites with the same peers: asv tries every pattern on every case, and Python compiles again
    what is not among the last 512.

    >>> suites = [{"name": f"{name}.track_time", "param_names": ["n", "provider"]} for name in ("a.A", "b.B")]
    >>> print(*_peers({**suite, "params": [["8"], ["'us'", "'torch'"]]} for suite in suites))
    (?:a\.A|b\.B)\.track_\w+\(.*, (?:'torch')\)(@|$)
    """
    suites: dict[tuple[str, ...], dict[str, None]] = {}
    for benchmark in benchmarks:
        suite, _, metric = benchmark["name"].rpartition(".track_")
        if metric and benchmark.get("param_names", [])[-1:] == ["provider"]:
            peers = tuple(benchmark["params"][-1][1:])  # the first is the suite's own
            suites.setdefault(peers, {})[suite] = None
    for peers, names in suites.items():
        if peers:
            yield rf"(?:{_either(names)})\.track_\w+\(.*, (?:{_either(peers)})\)(@|$)"


def _either(texts: Iterable[str]) -> str:
    return "|".join(map(re.escape, texts))


def _never_applies(graphs: Sequence[ArrayGraph]) -> bool:
    """Tell whether no case of a benchmark has ever had a value, nor failed.

    That is throughput where there never was a GPU, and any metric of a suite that was never run.
    """
    return not any(graph.has_failed or len(graph.table()[0]) for graph in graphs)

"""What `asv publish` adds to its pages: the derived quantities, their direction, and all scripts that they load."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from asv.console import log
from asv.publishing import OutputPublisher

from flopwatch.asv.derived import DERIVATIONS, Derivation
from flopwatch.asv.pages import improve_pages

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class DerivedQuantities(OutputPublisher):  # type: ignore[misc] # asv ships no types
    """Add TFLOPS, GB/s and occupancy as benchmarks of their own."""

    name = "flopwatch"
    button_label = "Derived quantities"
    description = "TFLOPS, GB/s and occupancy"
    #: Before the grid (0) and the list (1), which then show what is added here.
    order: ClassVar[float] = -1

    @classmethod
    def publish(
        cls,
        conf: Any,  # noqa: ANN401 - asv's Config, untyped
        repo: Any,  # noqa: ANN401, ARG003 - asv's signature
        benchmarks: dict[str, dict[str, Any]],
        graphs: Any,  # noqa: ANN401 - asv's GraphSet, untyped
        revisions: Mapping[str, int],  # noqa: ARG003 - asv's signature
    ) -> None:
        """Derive, and finish the pages that asv has copied to ``html_dir``."""
        stored = dict(benchmarks)
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
        for benchmark in benchmarks.values():
            for derivation in DERIVATIONS:
                benchmark.pop(derivation.work, None)
        for problem in improve_pages(Path(conf.html_dir)):
            log.warning(f"flopwatch: {problem}")


def _describe(benchmark: dict[str, Any], name: str, derivation: Derivation) -> dict[str, Any]:
    return benchmark | {"name": name, "unit": derivation.unit, "higher_is_better": True, "pretty_name": None}


def _derive(
    conf: Any,  # noqa: ANN401 - asv's Config, untyped
    graphs: Any,  # noqa: ANN401 - asv's GraphSet, untyped
    benchmark: dict[str, Any],
    derived: str,
    derivation: Derivation,
) -> bool:
    """Add and save the derived graphs; return False, and add none, where they would all be empty."""
    cases = math.prod(len(values) for values in benchmark["params"])
    works = benchmark.get(derivation.work, []) if derivation.work else [0.0] * cases
    if len(works) != cases:
        return False
    points = [
        (graph, [(revision, _values(graph, values, works, derivation)) for revision, values, _ in graph.get_data()])
        for graph in graphs.get_graph_group(benchmark["name"])
    ]
    if not any(value is not None for _, rows in points for _, values in rows for value in values):
        return False
    for stored, rows in points:
        graph = graphs.get_graph(derived, stored.params)
        for revision, values in rows:
            graph.add_data_point(revision, values[0] if stored.scalar_series else values)
        graph.get_data()  # sets the number of series, also of a graph without points
        # The steps are those of the stored metric: detecting them anew takes most of the time of `asv publish`, and
        # could tell another story.
        fits = [stored.get_steps()] if stored.scalar_series else stored.get_steps()
        graph._steps = [  # noqa: SLF001 - asv 0.6 has no other way to give steps
            [step for fit in series if (step := derivation.step(fit, work)) is not None]
            for series, work in zip(fits, works, strict=False)
        ]
        graph.save(conf.html_dir)
    return True


def _never_applies(graphs: Sequence[Any]) -> bool:
    """Tell whether no case of a benchmark has ever had a value, nor failed: throughput where there never was a GPU."""
    return bool(graphs) and not any(
        value is None or not math.isnan(value)
        for graph in graphs
        for points in graph.data_points.values()
        for row in points
        for value in row
    )


def _values(graph: Any, values: Any, works: list[float], derivation: Derivation) -> list[float | None]:  # noqa: ANN401 - untyped asv
    row = [values] if graph.scalar_series else values
    return [derivation.value(value, work) for value, work in zip(row, works, strict=False)]

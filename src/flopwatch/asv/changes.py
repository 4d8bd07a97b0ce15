"""What changed and when: the change points of all series, each with its size, its commits and what else changed there.

The order of revisions is asv's. A case is called slower or faster by what is stored, which is "lower is better"; the
throughput that goes with it is told as well.
"""

from __future__ import annotations

import enum
import itertools
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import numpy as np

from flopwatch.asv.configurations import RanIn, moves
from flopwatch.asv.derived import DERIVATIONS, Step
from flopwatch.asv.graphs import ArrayGraph, ArrayGraphs
from flopwatch.asv.steps import COMPILED, Change, exact_changes, fit_steps, is_exact, meeting_change
from flopwatch.report import wording
from flopwatch.stats.ranksum import Shift
from flopwatch.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

#: Parameters of a graph that say what the code ran on. A new version starts a new series; where it begins, the two are
#: compared, which is how an upgrade shows.
VERSIONS = ("torch", "triton", "python")
#: From which the numbers are seen to have changed: inputs are seeded, and a kernel without atomics repeats exactly.
NUMBERS = "max_diff"


class Direction(enum.StrEnum):
    """What a change means."""

    WORSE = "worse"
    BETTER = "better"
    OTHER = "other"


@dataclass(frozen=True, kw_only=True, slots=True)
class Level:
    """One quantity before and after, as people read it."""

    name: str
    before: str
    after: str


@dataclass(frozen=True, kw_only=True, slots=True)
class CaseChange:
    """One case of one metric that is at another level from a commit on.

    Attributes:
        case: as reports call it.
        metric: what changed.
        direction: whether that is good.
        axes: GPU, versions and the like, where the history has more than one.
        last: the last commit at the old level that was measured.
        first: the first one at the new level.
        commits: how many commits came after `last`, up to `first`: any of them may be the cause.
        effect: in percent of the old level; None where that is zero.
        lower: the smallest effect that agrees with the values (95 %); None where there are too few.
        upper: the largest, likewise.
        p: of the test at this place; None for what repeats exactly.
        settled: later commits will not move the place.
        levels: the metric itself, and what is derived from it.
        suspects: what else changed between the two commits, or that nothing did.
        link: the graph with the commit marked, from the folder of the pages.
    """

    case: str
    metric: str
    direction: Direction
    axes: dict[str, str]
    last: str
    first: str
    commits: int
    effect: float | None
    lower: float | None
    upper: float | None
    p: float | None
    settled: bool
    levels: tuple[Level, ...]
    suspects: tuple[str, ...]
    link: str


@dataclass(frozen=True, kw_only=True, slots=True)
class History:
    """What asv has when it publishes.

    Attributes:
        benchmarks: by name, those to be shown.
        graphs: the values.
        hashes: the commit of a revision.
        ignored: patterns of what is shown but never called worse or better.
        ran_in: tells what a case ran in at a commit.
    """

    benchmarks: Mapping[str, Mapping[str, Any]]
    graphs: ArrayGraphs
    hashes: Mapping[int, str]
    ignored: Sequence[str] = ()
    ran_in: RanIn = lambda *_: ()


def collect_changes(history: History) -> list[CaseChange]:
    """Return all changes, the newest commit first, and there what got worse most."""
    axes = {name: values for name, values in history.graphs.get_params().items() if len(values) > 1}
    found: list[tuple[int, CaseChange]] = []
    for name, benchmark in history.benchmarks.items():
        if benchmark.get("higher_is_better"):
            continue  # derived: told with what it is derived from
        group = history.graphs.get_graph_group(name)
        jumps = itertools.chain(_within(group), _across_versions(group))
        found.extend((jump.first, _describe(jump, benchmark, axes, history)) for jump in jumps)
    order = list(Direction)
    found.sort(key=lambda entry: (-entry[0], order.index(entry[1].direction), -abs(entry[1].effect or math.inf)))
    return [change for _, change in found]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Jump:
    """One change in the terms of the graphs: the revisions on both sides, and the stretches.

    `old` is the graph of the level before, another than `graph` where a version changed. `ratio` is how the ratio to
    the anchor moved where that clears the code: the machine made the change.
    """

    old: ArrayGraph
    graph: ArrayGraph
    column: int
    last: int
    first: int
    change: Change
    before: Step
    after: Step
    ratio: Shift | None = None


def _within(group: Sequence[ArrayGraph]) -> Iterator[_Jump]:
    """Yield the changes of each series."""
    for graph in group:
        for column, (changes, steps) in enumerate(zip(graph.changes, graph.all_steps, strict=True)):
            for place, (change, (before, after)) in enumerate(zip(changes, itertools.pairwise(steps), strict=True)):
                yield _Jump(
                    old=graph,
                    graph=graph,
                    column=column,
                    last=before[1] - 1,
                    first=after[0],
                    change=change,
                    before=before,
                    after=after,
                    ratio=graph.cleared[column].get(place),
                )


def _across_versions(group: Sequence[ArrayGraph]) -> Iterator[_Jump]:
    """Yield the changes that came with another version: where one series ends and the next one begins.

    Series that overlap are none's successor: the same commits were measured with both versions.
    """
    by_rest: dict[object, list[ArrayGraph]] = {}
    for graph in group:
        if len(graph.table()[0]):
            rest = tuple(sorted((name, value) for name, value in graph.params.items() if name not in VERSIONS))
            by_rest.setdefault(rest, []).append(graph)
    for graphs in by_rest.values():
        graphs.sort(key=lambda graph: graph.table()[0][0])
        for old, new in itertools.pairwise(graphs):
            if old.table()[0][-1] < new.table()[0][0]:
                yield from _between(old, new)


def _between(old: ArrayGraph, new: ArrayGraph) -> Iterator[_Jump]:
    for column, (ending, beginning) in enumerate(zip(_ends(old, -1), _ends(new, 0), strict=True)):
        if ending is None or beginning is None:
            continue
        change = _meeting(old.benchmark_name, ending[1], beginning[1])
        if change is not None:
            (before,) = fit_steps(*ending, [])
            (after,) = fit_steps(*beginning, [])
            yield _Jump(
                old=old,
                graph=new,
                column=column,
                last=before[1] - 1,
                first=after[0],
                change=change,
                before=before,
                after=after,
            )


def _meeting(benchmark: str, before: NDArray[np.float64], after: NDArray[np.float64]) -> Change | None:
    if not is_exact(benchmark, np.concatenate([before, after])):
        return meeting_change(before, after)
    return next(iter(exact_changes(np.array([before[-1], after[0]]))), None)


def _ends(graph: ArrayGraph, which: int) -> Iterator[tuple[list[int], NDArray[np.float64]] | None]:
    """Yield of each case the last (-1) or the first (0) stretch; None where there is none."""
    for (revisions, values), steps in zip(graph.series(), graph.all_steps, strict=True):
        if not steps:
            yield None
            continue
        first, end = revisions.index(steps[which][0]), revisions.index(steps[which][1] - 1) + 1
        yield revisions[first:end], values[first:end]


def _describe(jump: _Jump, benchmark: Mapping[str, Any], axes: Mapping[str, object], history: History) -> CaseChange:
    name, unit = benchmark["name"], benchmark.get("unit", "")
    change, hashes = jump.change, history.hashes
    values = _case_values(benchmark, jump.column)
    entry = f"{name}({', '.join(values)})" if values else name
    shown = [
        Level(
            name=name.rpartition("track_")[2], before=_format(jump.before[2], unit), after=_format(jump.after[2], unit)
        )
    ]
    return CaseChange(
        case=_case_id(name, values),
        metric=shown[0].name,
        direction=_direction(entry, jump, history.ignored),
        axes={name: str(jump.graph.params.get(name)) for name in axes},
        last=hashes[jump.last],
        first=hashes[jump.first],
        commits=jump.first - jump.last,
        effect=_percent(change.effect),
        lower=_percent(change.lower),
        upper=_percent(change.upper),
        p=change.p,
        settled=change.settled,
        levels=(*shown, *_derived_levels(name, jump, history)),
        suspects=tuple(_suspects(name, _case_id(name, values), jump, history)),
        link=_link(benchmark, jump, axes, values, hashes[jump.first]),
    )


def _direction(entry: str, jump: _Jump, ignored: Sequence[str]) -> Direction:
    branch = jump.graph.params.get("branch")
    named = f"{entry}@{branch}" if branch else entry
    if jump.ratio is not None or any(re.match(pattern, named) for pattern in ignored):
        return Direction.OTHER
    effect = jump.after[2] - jump.before[2] if jump.change.effect is None else jump.change.effect
    return Direction.WORSE if effect > 0 else Direction.BETTER


def _percent(effect: float | None) -> float | None:
    return None if effect is None else 100 * effect


def _derived_levels(name: str, jump: _Jump, history: History) -> Iterator[Level]:
    for derivation in DERIVATIONS:
        if not name.endswith(f".track_{derivation.metric}"):
            continue
        benchmark = name.removesuffix(f"track_{derivation.metric}") + derivation.name
        for graph in history.graphs.get_graph_group(benchmark):
            if graph.params == jump.graph.params and benchmark in history.benchmarks:
                before, after = (_value_at(graph, jump.column, revision) for revision in (jump.last, jump.first))
                if before is not None and after is not None:
                    yield Level(
                        name=derivation.name,
                        before=_format(before, derivation.unit),
                        after=_format(after, derivation.unit),
                    )


def _value_at(graph: ArrayGraph, column: int, revision: int) -> float | None:
    """Return the level of a case at a revision; None where it was not measured."""
    steps = graph.all_steps[column]
    return next((step[2] for step in steps if step[0] <= revision < step[1]), None)


def _suspects(name: str, case: str, jump: _Jump, history: History) -> Iterator[str]:
    """Say which versions, configurations, compiled facts and numbers differ between both sides, or that none do.

    Where the ratio to the anchor did not move, none of them matters.
    """
    if jump.ratio is not None:
        moved = wording.effect(jump.ratio.estimate, jump.ratio.lower, jump.ratio.upper)
        yield f"the machine: beside the anchor the case is {moved}"
        return
    prefix, _, metric = name.rpartition("track_")
    sides = ((jump.old.params, jump.last), (jump.graph.params, jump.first))
    before, after = (history.ran_in(params, history.hashes[revision], case, metric) for params, revision in sides)
    is_known = bool(before and after)
    by_hand = [*_versions(jump), *(moves(before, after) if is_known else ())]
    yield from by_hand
    if metric in COMPILED and is_known and not by_hand:
        yield "the kernel's code: its configuration is the same"
    facts = dict(_facts(prefix, jump, history))
    changed = {fact for fact, (old, new) in facts.items() if old != new}
    for fact, (old, new) in facts.items():
        if fact in changed and fact != metric:
            yield f"{fact.replace('_', ' ')} {old} → {new}"
    if metric in (*COMPILED, NUMBERS) or by_hand or changed & set(COMPILED) or not facts.keys() >= set(COMPILED):
        return
    if is_known:
        yield "neither what was compiled nor the configuration changed: the host code, or the machine"
    else:
        yield "nothing that was compiled changed: the host code, the choice of a configuration, or the machine"


def _versions(jump: _Jump) -> Iterator[str]:
    for name in VERSIONS:
        old, new = jump.old.params.get(name), jump.graph.params.get(name)
        if old != new:
            yield f"{name} {old} → {new}"


def _facts(prefix: str, jump: _Jump, history: History) -> Iterator[tuple[str, tuple[str, str]]]:
    """Yield what the compiler made of the case, and its numbers, on both sides, as people read them."""
    for fact in (*COMPILED, NUMBERS):
        benchmark = f"{prefix}track_{fact}"
        unit = history.benchmarks.get(benchmark, {}).get("unit", "")
        group = history.graphs.get_graph_group(benchmark)
        sides = [
            graph.value(revision, jump.column)
            for params, revision in ((jump.old.params, jump.last), (jump.graph.params, jump.first))
            for graph in group
            if graph.params == params and jump.column < (graph.n_series or 0)
        ]
        match sides:
            case [float() as before, float() as after]:
                yield fact, (_format(before, unit), _format(after, unit))


def _case_values(benchmark: Mapping[str, Any], column: int) -> tuple[str, ...]:
    """Return the values of a case as asv keeps them, which is as Python writes them."""
    if not benchmark.get("params"):
        return ()
    return next(itertools.islice(itertools.product(*benchmark["params"]), column, None))


def _case_id(name: str, values: Sequence[str]) -> str:
    """Name a case as the reports do.

    >>> _case_id("matmul.Matmul.track_time", ["'64x64x64'", "'float16'"]), _case_id("plain.time_it", [])
    ('Matmul[64x64x64,float16]', 'plain.time_it')
    """
    if not values:
        return name
    suite = name.rpartition(".track_")[0].rpartition(".")[2] or name
    return f"{suite}[{','.join(value.strip(chr(39)) for value in values)}]"


def _link(
    benchmark: Mapping[str, Any], jump: _Jump, axes: Mapping[str, object], values: Sequence[str], commit: str
) -> str:
    """Return where asv's page shows the graph of this case alone, the commit marked."""
    chosen = {name: jump.graph.params.get(name) or "" for name in axes}
    chosen |= {f"p-{name}": value for name, value in zip(benchmark.get("param_names", []), values, strict=False)}
    return f"index.html#{benchmark['name']}?{urlencode(chosen | {'commits': commit})}"


def _format(value: float, unit: str) -> str:
    """Write a value with its unit.

    >>> _format(1.3e-3, "seconds"), _format(0, "bytes"), _format(62.5, "percent"), _format(168, "registers")
    ('1.300 ms', '0 B', '62.5 %', '168')
    """
    match unit:
        case "seconds":
            return format_seconds(value)
        case "bytes":
            return format_bytes(round(value))
        case "percent":
            return f"{value:.3g} %"
        case "TFLOPS" | "GB/s":
            return f"{value:.4g} {unit}"
        case _:
            return f"{value:.4g}"

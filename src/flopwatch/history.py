"""What asv's results say of a case, commit by commit: a series for each machine and toolchain, with its changes."""

from __future__ import annotations

import ast
import contextlib
import datetime as dt
import itertools
import math
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from flopwatch import git
from flopwatch.errors import FlopwatchError, GitError, UndecidedError, UsageError
from flopwatch.model import SCHEMA_VERSION
from flopwatch.stats.changepoints import change_points
from flopwatch.suite import METRICS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

#: What a compiler makes of a kernel repeats exactly: any difference is a change. The rest has noise.
EXACT = frozenset({"registers", "spills", "shared_memory", "idle_warp_slots"})
_CONFIG_FILES = ("asv.conf.json", "asv.conf.jsonc")
#: Where it is kept why a case has no value.
_CAUSES = "the .jsonl beside asv's result, or after asv run .flopwatch/failures, says why it failed"
#: Of several machines with many cases each, so many names are listed where none matches.
_MAX_LISTED = 5
#: Seconds over those of an anchor, as `flopwatch.asv.anchored` names them, which only asv can import.
RATIO = "ratio_to_anchor"
#: The label by which lines of commits are told apart, as in asv's dashboard.
BRANCH = "branch"


@dataclass(frozen=True, kw_only=True, slots=True)
class Point:
    """One commit.

    Attributes:
        commit: its hash.
        date: on which it was written.
        value: None where the case failed.
        lower: of asv's 99 % interval of the median inside one run; None where it has none.
        upper: likewise.
    """

    commit: str
    date: str
    value: float | None
    lower: float | None = None
    upper: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """A change of level.

    Attributes:
        commit: the first recorded one at the new level.
        before: the last recorded one at the old level. What lies between was not recorded.
        from_value: the old level: the median between the changes.
        to_value: the new one, likewise.
        effect: log(new / old) by `flopwatch.stats.changepoints`; None of what repeats exactly.
        lower: of its 95 % interval, the place given; None where there are too few values.
        upper: likewise.
        settled: later commits do not move the place.
    """

    commit: str
    before: str
    from_value: float
    to_value: float
    effect: float | None = None
    lower: float | None = None
    upper: float | None = None
    settled: bool = True


@dataclass(frozen=True, kw_only=True, slots=True)
class Series:
    """One case on one machine with one toolchain.

    Attributes:
        case: its name.
        labels: what asv tells series apart by: the machine, its GPU, versions; and the branch, of all lines but that of
            asv's only one.
        points: the oldest first.
        changes: likewise.
    """

    case: str
    labels: dict[str, str]
    points: tuple[Point, ...]
    changes: tuple[Change, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class History:
    """What was recorded.

    Attributes:
        metric: what of the cases: "time", "registers" and so on.
        unit: of the values.
        series: by case, then by labels.
        notes: what else is worth knowing.
    """

    metric: str
    unit: str
    series: tuple[Series, ...]
    notes: tuple[str, ...] = ()
    schema_version: int = SCHEMA_VERSION


@dataclass(kw_only=True)
class _Found:
    """What the result files have: (case, labels) -> commit -> point, and what was passed over."""

    points: dict[tuple[str, tuple[tuple[str, str], ...]], dict[str, Point]] = field(default_factory=dict)
    metrics: set[str] = field(default_factory=set)
    cases: dict[str, None] = field(default_factory=dict)
    outdated: set[str] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)


def read_history(root: Path, case: str, *, metric: str = "time", last: int | None = None) -> History:
    """Read a case's history from asv's results.

    Args:
        root: the repository, whose asv.conf.json says where the results are.
        case: a case's name, or a part of the names of several, in capital letters or not.
        metric: what of it.
        last: points of each series, at most; changes are found in all of them.

    Raises:
        UsageError: asv is missing, or its configuration is.
        UndecidedError: nothing was recorded of such a case.
    """
    config = _load_config(root)
    folder = root / config.results_dir
    found = _read_results(folder, metric)
    known = [name for name, _ in found.points]
    exact = [name for name in known if name.lower() == case.lower()]
    chosen = set(exact or [name for name in known if case.lower() in name.lower()])
    if not chosen:
        raise _nothing(case, metric, found, folder)
    lines = list(_lines(root, config.branches or ()))
    known_commits = frozenset(itertools.chain.from_iterable(order for _, order in lines))
    series = []
    elsewhere: set[str] = set()
    failed: set[str] = set()
    for (name, labels), points in sorted(found.points.items()):
        if name not in chosen:
            continue
        elsewhere |= points.keys() - known_commits
        for label, order in lines:
            kept = [points[commit] for commit in sorted(points.keys() & order.keys(), key=order.__getitem__)]
            failed |= {point.commit for point in kept if point.value is None}
            if any(point.value is not None for point in kept):
                changes = find_changes(kept, metric)
                whole = Series(case=name, labels=dict(labels) | label, points=tuple(kept), changes=changes)
                series.append(_last(whole, last))
    if not series and failed:
        raise UndecidedError(
            f"no {metric} of {case!r} was recorded",
            why=f"it failed at {_count(failed)}, and was measured at no other",
            todo="; ".join([*_other_metrics(found, metric), _CAUSES]),
        )
    if not series:
        raise UndecidedError(
            f"the {len(elsewhere)} commits with results of {case!r} are in the line of neither HEAD nor asv's branches",
            todo="check out the branch that was recorded, or name it in the branches of asv.conf.json",
        )
    return History(
        metric=metric,
        unit=_unit(folder, metric),
        series=tuple(series),
        notes=(*found.notes, *_passed_over(found, elsewhere), *_anchored(found, metric)),
    )


def find_changes(points: Sequence[Point], metric: str) -> tuple[Change, ...]:
    """Find where the level of a series changes; commits at which the case failed have none.

    >>> points = [Point(commit=str(place), date="", value=value) for place, value in enumerate((40.0, 40.0, 64.0))]
    >>> [(change.before, change.commit, change.to_value) for change in find_changes(points, "registers")]
    [('1', '2', 64.0)]
    """
    valid = [(point, point.value) for point in points if point.value is not None]
    values = np.array([value for _, value in valid])
    found: list[tuple[int, dict[str, Any]]]
    if metric in EXACT:
        found = [(place, {}) for place in (np.flatnonzero(np.diff(values)) + 1).tolist()]
    elif (values > 0).all():
        found = [
            (one.index, {"effect": one.effect, "lower": one.lower, "upper": one.upper, "settled": one.settled})
            for one in change_points(np.log(values)).points
        ]
    else:  # effects are differences then, and no ratios
        found = [(one.index, {"settled": one.settled}) for one in change_points(values).points]
    ends = [0, *(place for place, _ in found), len(values)]
    levels = [float(np.median(values[begin:end])) for begin, end in itertools.pairwise(ends) if end > begin]
    return tuple(
        Change(
            commit=valid[place][0].commit,
            before=valid[place - 1][0].commit,
            from_value=levels[number],
            to_value=levels[number + 1],
            **details,
        )
        for number, (place, details) in enumerate(found)
    )


def _load_config(root: Path) -> Any:  # noqa: ANN401 - asv's Config, untyped
    """Read asv's configuration.

    Raises:
        UsageError: asv is not installed, or there is none.
    """
    try:
        from asv.config import Config  # noqa: PLC0415 - an optional extra
        from asv.util import UserError  # noqa: PLC0415 - likewise
    except ModuleNotFoundError as error:
        raise UsageError(
            "flopwatch history needs asv, which keeps the results",
            why=str(error),
            todo="python -m pip install 'flopwatch[history]'",
        ) from None
    path = next((path for name in _CONFIG_FILES if (path := root / name).is_file()), None)
    if path is None:
        raise UsageError(
            f"no {_CONFIG_FILES[0]} in {root}",
            why="it says where asv keeps the results",
            todo="flopwatch init writes one",
        )
    try:
        return Config.load(str(path))
    except (UserError, ValueError) as error:  # of json5, which reads it
        raise UsageError(f"{path} cannot be read", why=str(error)) from None


def _read_results(folder: Path, metric: str) -> _Found:
    from asv.results import Results, iter_results_paths  # noqa: PLC0415 - an optional extra
    from asv.util import UserError  # noqa: PLC0415 - likewise

    found = _Found()
    versions = {name: entry.get("version") for name, entry in _benchmarks(folder).items()}
    for place, name, machine in iter_results_paths(str(folder)):
        try:
            results = Results.load(str(Path(place, name)), machine_name=machine)
        except UserError as error:
            found.notes.append(f"left out: {error}")
            continue
        for benchmark in results.get_all_result_keys():
            suite, _, kind = benchmark.rpartition(".track_")
            if not suite:
                continue
            if kind not in found.metrics and _has_values(results, benchmark):
                found.metrics.add(kind)
            if kind != metric:
                continue
            recorded = results.benchmark_version.get(benchmark)
            if recorded is not None and recorded != versions.get(benchmark, recorded):
                found.outdated.add(results.commit_hash)
                continue
            _add(found, results, benchmark, suite.rpartition(".")[2])
    return found


def _has_values(results: Any, benchmark: str) -> bool:  # noqa: ANN401 - asv's Results, untyped
    """Tell whether anything was measured: where there is no GPU, asv keeps times too, none of which is a number."""
    values = results.get_result_value(benchmark, results.get_result_params(benchmark)) or ()
    return any(value is not None and not math.isnan(value) for value in values)


def _add(found: _Found, results: Any, benchmark: str, suite: str) -> None:  # noqa: ANN401 - asv's Results, untyped
    """Add the points of one benchmark in one file: one for each case to which it applies."""
    params = results.get_result_params(benchmark)
    labels = {str(name): str(value) for name, value in results.params.items() if value}
    labels |= {f"env-{name}": str(value) for name, value in results.env_vars.items() if value}
    combinations = list(itertools.product(*params))
    values = results.get_result_value(benchmark, params) or [None] * len(combinations)
    stats = results.get_result_stats(benchmark, params) or [None] * len(combinations)
    date = dt.datetime.fromtimestamp(results.date / 1000, tz=dt.UTC).date().isoformat()
    for combination, value, spread in zip(combinations, values, stats, strict=False):
        if value is not None and math.isnan(value):
            continue  # does not apply
        case = f"{suite}[{','.join(map(_plain, combination))}]"
        bounds = spread or {}
        point = Point(
            commit=results.commit_hash,
            date=date,
            value=value,
            lower=_finite(bounds.get("ci_99_a")),
            upper=_finite(bounds.get("ci_99_b")),
        )
        found.points.setdefault((case, tuple(sorted(labels.items()))), {})[results.commit_hash] = point


def _plain(parameter: str) -> str:
    """Return a parameter, of which asv keeps the repr, as a case has it.

    >>> _plain("'float16'"), _plain("1024"), _plain("<object>")
    ('float16', '1024', '<object>')
    """
    with contextlib.suppress(ValueError, SyntaxError):
        return str(ast.literal_eval(parameter))
    return parameter


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _lines(root: Path, branches: Sequence[str | None]) -> Iterator[tuple[dict[str, str], dict[str, int]]]:
    """Yield lines of commits, each with its label and the places of its commits: asv's branches, then HEAD.

    Of merges the first parent is followed, as asv does, so that what was recorded of a pull request is not in the line
    that it was merged into. HEAD's line has what is on no branch of asv; where there is none here, it is the only one.
    """
    from asv.util import git_default_branch  # noqa: PLC0415 - an optional extra

    names = [name or git_default_branch() for name in branches]
    named = {name: tip for name in names if (tip := _tip(root, name))}
    taken: set[str] = set()
    for name, tip in named.items():
        commits = _first_parents(root, tip)
        taken |= commits.keys()
        yield ({BRANCH: name} if len(named) > 1 else {}), commits
    if head := _tip(root, "HEAD"):
        own = _first_parents(root, head, *(f"^{tip}" for tip in named.values()))
        label = {BRANCH: git.git("rev-parse", "--abbrev-ref", "HEAD", cwd=root)} if named else {}
        yield label, {commit: place for commit, place in own.items() if commit not in taken}


def _tip(root: Path, name: str) -> str:
    """Return the commit of a branch, or of its remote where there is none here; "" where that has none either."""
    for place in (name, f"origin/{name}"):
        with contextlib.suppress(GitError):
            return git.resolve(place, cwd=root)
    return ""


def _first_parents(root: Path, *revisions: str) -> dict[str, int]:
    found = git.git("rev-list", "--first-parent", "--reverse", *revisions, "--", cwd=root).split()
    return {commit: place for place, commit in enumerate(found)}


def _last(series: Series, number: int | None) -> Series:
    """Keep the last points, and the changes that are among them."""
    if number is None:
        return series
    points = series.points[-number:]
    commits = {point.commit for point in points}
    return replace(
        series, points=points, changes=tuple(change for change in series.changes if change.commit in commits)
    )


def _benchmarks(folder: Path) -> Mapping[str, Any]:
    """Return asv's descriptions of the benchmarks; none where there is no such file."""
    from asv.benchmarks import Benchmarks  # noqa: PLC0415 - an optional extra
    from asv.util import UserError, load_json  # noqa: PLC0415 - likewise

    try:
        found: Mapping[str, Any] = load_json(str(folder / "benchmarks.json"), Benchmarks.api_version)
    except (OSError, UserError):
        return {}
    return found


def _unit(folder: Path, metric: str) -> str:
    units = [entry.get("unit") for name, entry in _benchmarks(folder).items() if name.endswith(f".track_{metric}")]
    return next((unit for unit in units if unit), METRICS.get(metric, ""))


def _passed_over(found: _Found, elsewhere: set[str]) -> Iterator[str]:
    if elsewhere:
        yield f"{_count(elsewhere)} with results left out: in the line of neither HEAD nor asv's branches"
    if found.outdated:
        yield f"results of {_count(found.outdated)} left out: recorded with another version of the suite"


def _anchored(found: _Found, metric: str) -> Iterator[str]:
    if metric == "time" and RATIO in found.metrics:
        yield f"another driver, clock or board shows here as code does; it does not in --metric {RATIO}"


def _other_metrics(found: _Found, metric: str) -> Iterator[str]:
    """Yield a line that says what else can be asked for, where there is something."""
    if names := sorted(found.metrics - {metric}):
        yield f"choose a --metric that was: {', '.join(names)}"


def _count(commits: set[str]) -> str:
    return f"{len(commits)} commit{'s' if len(commits) > 1 else ''}"


def _nothing(case: str, metric: str, found: _Found, folder: Path) -> FlopwatchError:
    known = sorted({name for name, _ in found.points})
    if known:
        more = f" and {len(known) - _MAX_LISTED} more" if known[_MAX_LISTED:] else ""
        return UndecidedError(
            f"no recorded case matches {case!r}",
            why=f"there are {', '.join(known[:_MAX_LISTED])}{more}",
            todo="give a part of one of these names",
        )
    if found.metrics:
        return UndecidedError(
            f"{metric} was recorded of no case",
            why="times, memory and numbers at full size need a GPU" if metric in METRICS.keys() - EXACT else "",
            todo="".join(_other_metrics(found, metric)),
        )
    return UndecidedError(f"no results in {folder}", todo="flopwatch record, or asv run, records commits")

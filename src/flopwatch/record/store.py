"""asv's side of a recording: its settings, its benchmarks, and the file of results of each commit."""

from __future__ import annotations

import ast
import contextlib
import datetime as dt
import itertools
import logging
import math
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from asv import util
from asv.benchmarks import Benchmarks
from asv.config import Config as AsvConfig
from asv.console import log
from asv.environment import get_environments
from asv.machine import Machine, MachineCollection
from asv.repo import get_repo
from asv.results import Results, get_filename
from asv.runner import BenchmarkResult

from flopwatch.asv import plugin
from flopwatch.asv.anchored import RATIO, extend_benchmarks, ratio_benchmark
from flopwatch.asv.environment import SharedEnvironment
from flopwatch.asv.interpreter import find_interpreter, probe_interpreter
from flopwatch.errors import UsageError
from flopwatch.model import Case, Failure
from flopwatch.record.lock import locked
from flopwatch.record.sidecar import Line, append, read_cases
from flopwatch.suite import METRICS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from flopwatch.config import Config
    from flopwatch.record.sidecar import CaseLog

#: Metric -> a number, asv's samples, or why there is neither; what does not apply is absent.
Values = dict[str, object]


@dataclass(frozen=True, kw_only=True, slots=True)
class Series:
    """One suite as asv knows it: a benchmark for each metric, all over the same cases.

    Attributes:
        name: of the suite.
        module: in which it is, without the benchmarks folder.
        cases: every combination of its parameters, in asv's order; those that do not exist included.
        own_provider: what the kernel under test is called in them.
        benchmarks: asv's description of each metric.
    """

    name: str
    module: str
    cases: tuple[Case, ...]
    own_provider: str
    benchmarks: dict[str, dict[str, Any]]

    @property
    def version(self) -> str:
        """The suite's own."""
        return str(self.benchmarks["time"]["version"])


def series_of(benchmarks: Mapping[str, dict[str, Any]]) -> dict[str, Series]:
    """Find the suites among the benchmarks of a folder, by name; asv's other benchmarks are left to `asv run`."""
    found = {}
    for name, benchmark in benchmarks.items():
        prefix = name.removesuffix("track_time")
        metrics = {metric: benchmarks.get(f"{prefix}track_{metric}") for metric in METRICS}
        if prefix == name or any(described is None for described in metrics.values()):
            continue
        module, _, suite = prefix.removesuffix(".").rpartition(".")
        values = [[str(ast.literal_eval(value)) for value in values] for values in benchmark["params"]]
        found[suite] = Series(
            name=suite,
            module=module,
            cases=tuple(Case(suite=suite, values=combination) for combination in itertools.product(*values)),
            own_provider=values[-1][0],
            benchmarks={metric: described for metric, described in metrics.items() if described is not None},
        )
    return found


@dataclass(kw_only=True)
class Store:
    """Where the results of one machine and one interpreter go.

    Attributes:
        conf: asv.conf.json, with absolute paths.
        repo: the repository, as asv reads it.
        machine: the fields of the machine, the GPU among them.
        environment: the interpreter, as asv names it.
        gpu: the GPU by which results are labelled; None without one.
        python: the interpreter that measures; None is the one that runs now.
    """

    conf: Any
    repo: Any
    machine: dict[str, str]
    environment: Any
    gpu: str | None
    python: Path | None

    @property
    def results(self) -> Path:
        """The folder of all results."""
        return Path(self.conf.results_dir)

    def discover(self, commits: Sequence[str]) -> dict[str, Series]:
        """Let asv find the benchmarks, in the first commit in which they can be imported, and write benchmarks.json.

        Raises:
            UsageError: there is no such commit, and no benchmarks.json from before.
        """
        with _quiet(), _asvs_errors("the suites cannot be imported at any of these commits"):
            try:
                found = Benchmarks.discover(self.conf, self.repo, [self.environment], list(commits))
                with locked(self.results):
                    found.save()
            except util.UserError:
                if not Path(Benchmarks.get_benchmark_file_path(self.conf.results_dir)).is_file():
                    raise
                with locked(self.results):
                    found = Benchmarks.load(self.conf)
        return series_of(found)

    def add_ratios(self, series: Mapping[str, Series], anchor: str) -> None:
        """Add the ratios to the anchor to what asv knows of each suite."""
        with _quiet(), _asvs_errors("benchmarks.json cannot be written"), locked(self.results):
            described = {
                name: benchmark
                for name, benchmark in Benchmarks.load(self.conf).items()
                if not name.endswith(f".track_{RATIO}")
            }
            for suite in series.values():
                ratio = suite.benchmarks[RATIO] = ratio_benchmark(suite.benchmarks["time"], anchor)
                described[ratio["name"]] = ratio
            Benchmarks(self.conf, described.values()).save()

    def path(self, commit: str) -> Path:
        """Return where asv keeps the result of a commit."""
        return Path(self.results, get_filename(self.machine["machine"], commit, self.environment.name))

    def commit(self, commit: str) -> CommitFile:
        """Open the result of a commit.

        Raises:
            UsageError: the file that is there is none of asv's.
        """
        environment = self.environment
        params = {**self.machine, "python": environment.python, **environment.requirements}
        with _quiet(), _asvs_errors(f"the result of {commit[:8]} cannot be read"):
            results = Results(
                params,
                environment.requirements,
                commit,
                self.repo.get_date(commit),
                environment.python,
                environment.name,
                environment.env_vars,
            )
            results.load_data(self.conf.results_dir)
        return CommitFile(results=results, path=self.path(commit))


class CommitFile:
    """The result of one commit, and the sidecar beside it.

    Args:
        results: asv's, with what the file had.
        path: asv's file.
    """

    def __init__(self, results: Any, path: Path) -> None:  # noqa: ANN401 - asv's Results, untyped
        self._results = results
        self.path = path
        self.sidecar = path.with_suffix(".jsonl")
        self._logs = {(log.case, log.version): log for log in read_cases(self.sidecar)} if path.is_file() else {}

    def has(self, series: Series, case: Case, anchor: str) -> bool:
        """Tell whether a case was recorded, in units of the anchor where there is one.

        A result without a sidecar was written by `asv run`, which saves a commit when all of it is measured.
        """
        paired = bool(anchor) and case.provider == series.own_provider
        if self._logs:
            log = self._logs.get((case.id, series.version))
            return log is not None and (not paired or log.anchor == anchor)
        return not paired and self._asv_has(series, case)

    def save(self, series: Series, case: Case, values: Values, line: CaseLog, *, samples: bool) -> None:
        """Put a case into asv's file, which is at any time complete, and then into the sidecar.

        Another recorder may be at work on the same commit, with other cases: what it has saved is read, and stays.

        Raises:
            UsageError: the file that is there now is none of asv's.
        """
        results = self.path.parents[1]
        with locked(results):
            with _quiet(), _asvs_errors(f"{self.path} cannot be read"):
                self._results.load_data(results)
            for metric, benchmark in series.benchmarks.items():
                if metric == RATIO and not line.anchor:
                    continue
                self._add(benchmark, series.cases.index(case), values.get(metric, math.nan), samples=samples)
            with tempfile.TemporaryDirectory() as folder:
                self._results.save(folder)
                _replace(self.path, Path(folder, *self.path.parts[-2:]).read_bytes())
            append(self.sidecar, Line(case=line))
        self._logs[case.id, series.version] = line

    def _add(self, benchmark: dict[str, Any], index: int, value: object, *, samples: bool) -> None:
        """Let asv merge one value into what it has; NaN is asv's word for what was not measured, null for a failure."""
        count = math.prod(len(values) for values in benchmark["params"])
        results: list[object] = [math.nan] * count
        taken: list[object] = [None] * count
        numbers: list[object] = [None] * count
        if isinstance(value, dict):
            results[index], taken[index], numbers[index] = True, value["samples"], value["number"]
        else:
            results[index] = None if isinstance(value, Failure) else value
        self._results.add_result(
            benchmark,
            BenchmarkResult(
                result=results,
                samples=taken,
                number=numbers,
                errcode=int(results[index] is None),
                stderr="",
                profile=None,
            ),
            started_at=dt.datetime.now(tz=dt.UTC),
            record_samples=samples,
            selected_idx={index},
        )

    def _asv_has(self, series: Series, case: Case) -> bool:
        benchmark = series.benchmarks["time"]
        name = benchmark["name"]
        if self._results.benchmark_version.get(name) != benchmark["version"]:
            return False
        params = self._results.get_result_params(name)
        return tuple(map(repr, case.values)) in set(itertools.product(*params))


def open_store(root: Path, config: Config, *, machine: str | None = None) -> Store:
    """Read asv.conf.json, and tell asv about this machine where it does not know it.

    Args:
        root: the repository, in which asv.conf.json is.
        config: of it.
        machine: the name under which results are kept; None is this machine's.

    Raises:
        UsageError: asv is not set up for this repository.
    """
    if not any(root.joinpath(name).is_file() for name in ("asv.conf.json", "asv.conf.jsonc")):
        raise UsageError(
            f"no asv.conf.json in {root}", why="it says where asv keeps the results", todo="flopwatch init writes one"
        )
    plugin.setup()
    extend_benchmarks()
    # asv takes relative paths, and the plugin asv.conf.json itself, from the working directory.
    with contextlib.chdir(root), _quiet(), _asvs_errors("asv is not set up here"):
        conf = AsvConfig.load()
        _check(conf, root, config)
        for key in ("repo", "benchmark_dir", "env_dir", "results_dir", "html_dir"):
            setattr(conf, key, str(Path(getattr(conf, key)).resolve()))
        environments = list(get_environments(conf, []))
        if len(environments) != 1 or environments[0].env_vars:
            raise UsageError(
                f"asv.conf.json has a matrix of {len(environments)} environments",
                why="flopwatch record measures in the shared interpreter as it is",
                todo='remove "matrix" and "include" from asv.conf.json, or record with asv run',
            )
        repo = get_repo(conf)
        with locked(Path(conf.results_dir)):
            loaded = _load_machine(machine, Path(conf.results_dir))
            loaded.save(conf.results_dir)
    python = find_interpreter(getattr(conf, "shared_python", None))
    return Store(
        conf=conf,
        repo=repo,
        machine=vars(loaded),
        environment=environments[0],
        gpu=probe_interpreter(python).gpu,
        python=Path(python) if getattr(conf, "shared_python", None) else None,
    )


def _check(conf: Any, root: Path, config: Config) -> None:  # noqa: ANN401 - asv's Config, untyped
    """Refuse what would make another history than that of `asv run`."""
    if conf.environment_type != SharedEnvironment.tool_name:
        raise UsageError(
            f"asv.conf.json has the environment type {conf.environment_type!r}",
            why="flopwatch record measures every commit in one interpreter, and so must asv, or the lines break",
            todo='set "environment_type": "shared" and "plugins": [".flopwatch.asv.plugin"]',
        )
    if Path(conf.repo).resolve() != root.resolve():
        raise UsageError(
            f"asv.conf.json is about {conf.repo}",
            why="flopwatch record takes the commits of the repository it runs in",
            todo='set "repo": "."',
        )
    if Path(conf.benchmark_dir).resolve() != (root / config.benchmarks).resolve():
        raise UsageError(
            f"asv looks for suites in {conf.benchmark_dir}, flopwatch in {config.benchmarks}",
            todo='let "benchmark_dir" of asv.conf.json and [tool.flopwatch] benchmarks name the same folder',
        )


def _load_machine(name: str | None, results: Path) -> Any:  # noqa: ANN401 - asv's Machine, untyped
    """Return what asv knows of the machine.

    Where it knows nothing, the fields are those of earlier results, which a fresh container would not find out again,
    or else asv's own: the plugin pins those of them that an update changes.
    """
    name = name or Machine.get_unique_machine_name()
    try:
        fields = MachineCollection.load(name)
    except util.UserError:
        recorded = results / name / "machine.json"
        earlier = util.load_json(str(recorded), Machine.api_version) if recorded.is_file() else None
        fields = earlier or Machine.get_defaults() | {"machine": name}
    return Machine.load(machine_name=name, **fields)


def _replace(path: Path, data: bytes) -> None:
    """Put a complete file in the place of one that may be there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        beside.write_bytes(data)
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep asv's own progress, which goes to stdout, to itself."""
    with log.set_level(logging.CRITICAL):
        yield


@contextlib.contextmanager
def _asvs_errors(what: str) -> Iterator[None]:
    """Turn asv's errors into ours; an interrupt, which asv makes one of them, stays one."""
    try:
        yield
    except util.UserError as error:
        if str(error) == "Interrupted.":
            raise KeyboardInterrupt from None
        raise UsageError(what, why=str(error), todo="asv run says more") from None
    except util.ProcessError as error:
        raise UsageError(what, why=(error.stderr or str(error)).strip(), todo="asv run says more") from None

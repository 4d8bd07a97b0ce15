"""The one declaration: a suite says once what a kernel computes; everything else reads it.

A suite is an asv benchmark class, so that ``asv run`` works on it with nothing but flopwatch installed.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import itertools
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from flopwatch.errors import SuiteError
from flopwatch.model import Case

if TYPE_CHECKING:
    import types
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    import torch

#: The metrics that asv records of each case: name of the `track_` method -> its unit.
#: All are "lower is better", which is the only direction asv knows; TFLOPS, GB/s and occupancy are derived from them
#: when the dashboard is published.
METRICS: dict[str, str] = {
    "time": "seconds",
    "max_diff": "abs",
    "max_diff_eps": "eps",
    "peak_memory": "bytes",
    "registers": "registers",
    "spills": "bytes",
    "shared_memory": "bytes",
    "idle_warp_slots": "percent",
}


class Suite:
    """A kernel's parameters, inputs, call, reference, FLOPs and bytes.

    Subclasses set the class attributes below and define `inputs`, `run`, `reference`, `flops` and `bytes_moved`. The
    provider (`own_provider` and the keys of `providers`) is added as the last parameter.

    Attributes:
        params: for each parameter its values, strings, the same on every machine.
        param_names: their names.
        small: values that replace those of `params` where the case is run by Triton's interpreter.
        providers: peers of the kernel; each is called with the inputs of `run`.
        own_provider: what the kernel under test is called in the provider parameter.
        skip_params: combinations, the provider included, that do not exist.
        max_diff_eps: a result further than this from the reference is BROKEN, in units of the result dtype's epsilon
            relative to the largest magnitude of the reference; None takes the repository's setting.
        version: change it when old results of this suite can no longer be compared with new ones.
        recorded: asv keeps its history.
    """

    params: ClassVar[Sequence[Sequence[str]]] = ()
    param_names: ClassVar[Sequence[str]] = ()
    small: ClassVar[Mapping[str, str]] = {}
    providers: ClassVar[Mapping[str, Callable[..., torch.Tensor]]] = {}
    own_provider: ClassVar[str] = "flopwatch"
    skip_params: ClassVar[Sequence[tuple[str, ...]]] = ()
    max_diff_eps: ClassVar[float | None] = None
    version: ClassVar[str] = "1"
    recorded: ClassVar[bool] = True
    #: asv's limit for one reading of the cache; the measuring itself has its own deadlines.
    timeout: ClassVar[float] = 60.0

    def inputs(self, *values: str, seed: int) -> tuple[Any, ...]:
        """Make the arguments of `run`: a pure function of the parameters (without the provider) and the seed."""
        raise NotImplementedError

    def run(self, *inputs: Any) -> torch.Tensor:  # noqa: ANN401 - whatever `inputs` makes
        """Call the kernel under test."""
        raise NotImplementedError

    def reference(self, *inputs: Any) -> torch.Tensor:  # noqa: ANN401 - whatever `inputs` makes
        """Compute the same in float64."""
        raise NotImplementedError

    def flops(self, *values: str) -> float:
        """Return the floating-point operations of one call."""
        raise NotImplementedError

    def bytes_moved(self, *values: str) -> float:
        """Return the bytes that one call must move: each input read once, each output written once."""
        raise NotImplementedError

    def call(self, provider: str) -> Callable[..., torch.Tensor]:
        """Return what computes the case: `run`, or a peer."""
        return self.run if provider == self.own_provider else self.providers[provider]

    def __init_subclass__(cls, **kwargs: Any) -> None:  # noqa: ANN401 - passed on
        super().__init_subclass__(**kwargs)
        # What is inherited from another suite ends with that one's providers.
        params = cls.params if "params" in vars(cls) else cls.params[:-1]
        names = cls.param_names if "param_names" in vars(cls) else cls.param_names[:-1]
        if len(params) != len(names):
            raise SuiteError(
                f"suite {cls.__name__}: {len(params)} lists in params, {len(names)} in param_names",
                todo="give each parameter one name and one list of values",
            )
        cls.params = [*map(list, params), [cls.own_provider, *cls.providers]]
        cls.param_names = [*names, "provider"]
        unknown = set(cls.small) - set(cls.param_names)
        if unknown:
            raise SuiteError(f"suite {cls.__name__}: small names no parameter: {', '.join(sorted(unknown))}")
        if cls.recorded:
            _add_tracks(cls)

    @classmethod
    def cases(cls) -> Iterator[Case]:
        """Yield every case that exists, in the order of `params`."""
        skipped = {tuple(values) for values in cls.skip_params}
        for values in itertools.product(*cls.params):
            if values not in skipped:
                yield Case(suite=cls.__name__, values=values)

    @classmethod
    def small_case(cls, case: Case) -> Case:
        """Return the case at the size that the interpreter can run."""
        values = (cls.small.get(name, value) for name, value in zip(cls.param_names, case.values, strict=True))
        return Case(suite=case.suite, values=tuple(values))


def _add_tracks(cls: type[Suite]) -> None:
    """Give the suite its asv benchmarks: one `track_` method a metric, all reading one cache.

    asv identifies a cache by the module and line of its function, so each suite needs one in its own module; it
    measures every suite of that module at once.
    """

    def setup_cache(self: Suite) -> dict[str, dict[str, object]]:
        recording = importlib.import_module("flopwatch.asv.recording")
        module = sys.modules[type(self).__module__]
        suites = [suite for suite in vars(module).values() if _is_suite(suite, module)]
        measured: dict[str, dict[str, object]] = recording.measure(suites)
        return measured

    setup_cache.__module__ = cls.__module__
    setup_cache.timeout = 3600.0  # type: ignore[attr-defined] # asv reads it from the function
    cls.setup_cache = setup_cache  # type: ignore[attr-defined] # asv finds it by name
    work = {"flops": _for_each_combination(cls, cls.flops), "bytes_moved": _for_each_combination(cls, cls.bytes_moved)}
    for metric, unit in METRICS.items():

        def track(self: Suite, cache: dict[str, dict[str, object]], *values: str, metric: str = metric) -> object:
            recording = importlib.import_module("flopwatch.asv.recording")
            return recording.read(cache, Case(suite=type(self).__name__, values=values), metric)

        track.__name__ = track.__qualname__ = f"track_{metric}"
        track.unit = unit  # type: ignore[attr-defined] # asv reads these from the function
        if metric == "time":
            track.__dict__.update(work)
        setattr(cls, track.__name__, track)


def _for_each_combination(cls: type[Suite], count: Callable[..., float]) -> list[float]:
    suite = cls()
    return [float(count(suite, *values[:-1])) for values in itertools.product(*cls.params)]


def _is_suite(value: object, module: types.ModuleType) -> bool:
    """Tell whether asv, too, takes it for a suite: a class of this module without a leading underscore."""
    if not isinstance(value, type) or not issubclass(value, Suite) or value.__name__.startswith("_"):
        return False
    return value.__module__ == module.__name__


@dataclass(frozen=True, kw_only=True, slots=True)
class Discovery:
    """The suites of a folder by name, and the modules that could not be imported with their errors."""

    suites: dict[str, type[Suite]]
    failures: dict[str, Exception]


def discover(folder: Path) -> Discovery:
    """Import every module of a benchmarks folder, as a package under the folder's name, which is what asv does.

    A module that cannot be imported is a finding: the checkout under test may be older than the suite.

    Raises:
        SuiteError: there is no such folder, or a name occurs twice.
    """
    if not folder.is_dir():
        raise SuiteError(
            f"no suites in {folder}", why="the folder does not exist", todo="set [tool.flopwatch] benchmarks"
        )
    sys.path.insert(0, str(folder.parent))
    if not (folder / "__init__.py").exists():
        _claim_name(folder)
    suites: dict[str, type[Suite]] = {}
    failures: dict[str, Exception] = {}
    for path in sorted(folder.glob("*.py")):
        name = folder.name if path.stem == "__init__" else f"{folder.name}.{path.stem}"
        try:
            module = importlib.import_module(name)
        except Exception as error:  # noqa: BLE001 - whatever a module raises at import
            failures[name] = error
            continue
        for suite in vars(module).values():
            if not _is_suite(suite, module):
                continue
            if suite.__name__ in suites:
                raise SuiteError(f"two suites are called {suite.__name__}", todo="suite names are unique in a folder")
            suites[suite.__name__] = suite
    return Discovery(suites=suites, failures=failures)


def _claim_name(folder: Path) -> None:
    """Make the folder the package of its name: one with an ``__init__.py``, anywhere on the path, would go before it.

    Distributions that install their own ``benchmarks`` by mistake are not rare, and PYTHONPATH may name a repository.
    """
    if folder.name not in sys.modules:
        spec = importlib.machinery.PathFinder.find_spec(folder.name, [str(folder.parent)])
        assert spec is not None  # noqa: S101 - the folder is there
        sys.modules[folder.name] = importlib.util.module_from_spec(spec)

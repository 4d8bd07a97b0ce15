"""A session in which a configuration is a provider: "flopwatch@BLOCK: 128, num_warps: 4" runs the kernel in that one.

So whatever times, checks or compiles a case does so with one of its configurations, and two of them take turns in one
process as a kernel and its peer do (`flopwatch.measure.rivals`). The configuration need not be of the kernel's list.
"""

from __future__ import annotations

import ast
import copy
import functools
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from flopwatch.measure.protocol import Mode
from flopwatch.measure.session import Session
from flopwatch.static.recorder import Autotune
from flopwatch.tune.client import AT, Declared, Tunable, TuneOp
from flopwatch.tune.space import LAUNCH_SETTINGS, settings_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from flopwatch.model import Case
    from flopwatch.suite import Suite


class LeftOut(Exception):  # noqa: N818 - a finding about a configuration, not an error
    """The kernel's own rule prunes a configuration."""


class TuneSession(Session):
    """A session that knows configurations as providers, and tells what a case can be tuned over."""

    def __init__(self, mode: Mode, benchmarks: Path, device: str) -> None:
        super().__init__(mode, benchmarks, device)
        self._wanted = ""
        self._configs: dict[tuple[Any, str], Any] = {}
        self._tunables: dict[Any, Tunable] = {}  # by the kernel's function: different ones may share a name
        self._install()
        self._answers[TuneOp.DECLARE] = lambda case, _request: self.declare(case)
        self._answers[TuneOp.TUNABLES] = lambda case, _request: self.tunables(case)

    def suite(self, case: Case) -> Suite:
        """Return an instance of the suite, whose own provider runs in the configuration that the case names."""
        suite = super().suite(case)
        if case.provider in {suite.own_provider, *suite.providers}:
            return suite
        provider, _, config = case.provider.partition(AT)
        vars(suite).update(own_provider=case.provider, run=self._in(config, suite.call(provider)))
        return suite

    def declare(self, case: Case) -> Declared:
        """Say what the suite makes of a case, which need not be one of those that it lists."""
        suite = self.suite(case)
        values = case.values[:-1]
        return Declared(
            names=tuple(suite.param_names[:-1]),
            flops=float(suite.flops(*values)),
            bytes_moved=float(suite.bytes_moved(*values)),
            max_diff_eps=suite.max_diff_eps,
            space={name: tuple(map(str, given)) for name, given in getattr(suite, "tuning_space", {}).items()},
        )

    def tunables(self, case: Case) -> tuple[Tunable, ...]:
        """Say which autotuned kernels the case launches, and what their tuners choose from."""
        self._tunables = {}
        self.keep(case, Autotune.FIRST)
        del self._kept[case]
        return tuple(self._tunables.values())

    def _in(self, config: str, call: Callable[..., Any]) -> Callable[..., Any]:
        """Return the call, during which autotuned kernels run in one configuration."""

        @functools.wraps(call)
        def configured(*inputs: Any) -> Any:  # noqa: ANN401 - the suite's own
            self._wanted = config
            try:
                return call(*inputs)
            finally:
                self._wanted = ""

        return configured

    def _install(self) -> None:
        """Stand before Triton's tuner, and before whatever else watches it in this process."""
        from triton.runtime.autotuner import Autotuner  # noqa: PLC0415 - after the suites, which may choose a Triton

        original = Autotuner.run

        @functools.wraps(original)
        def run(tuner: Any, *arguments: Any, **options: Any) -> Any:  # noqa: ANN401 - Triton's own
            own, name = tuner.configs, tuner.base_fn.__name__
            if not self._wanted:
                self._tunables.setdefault(tuner.base_fn, Tunable(kernel=name, configs=tuple(map(_text, own))))
                result = original(tuner, *arguments, **options)
                self._tunables[tuner.base_fn] = replace(self._tunables[tuner.base_fn], first=_text(tuner.best_config))
                return result
            key = (tuner, self._wanted)  # found once: a launch that is timed from the host has no time for texts
            config = self._configs[key] = self._configs.get(key) or configured(own, self._wanted)
            if self.mode is Mode.STATIC:
                _require_kept(tuner, config, arguments, options)
            tuner.configs = [config]  # with a single one nothing is tuned, and no key is kept
            try:
                return original(tuner, *arguments, **options)
            finally:
                tuner.configs = own

        Autotuner.run = run


def _text(config: Any) -> str:  # noqa: ANN401 - Triton's configuration
    from flopwatch.measure.tuning import config_text  # noqa: PLC0415 - it loads torch

    return config_text(config)


def configured(own: Sequence[Any], wanted: str) -> Any:  # noqa: ANN401 - Triton's configuration
    """Return the configuration of that text: of the kernel's list, or like the nearest of it.

    What a text cannot carry, such as a hook that runs before the launch, is that of the nearest.
    """
    listed = next((config for config in own if _text(config) == wanted), None)
    if listed is not None:
        return listed
    wants = settings_of(wanted)
    known = [settings_of(_text(config)) for config in own]
    nearest = max(range(len(own)), key=lambda place: sum(known[place].get(name) == wants[name] for name in wants))
    config = copy.copy(own[nearest])
    config.kwargs = dict(config.kwargs)
    for name, text in wants.items():
        if known[nearest].get(name) == text:
            continue
        if name in LAUNCH_SETTINGS:
            setattr(config, name, _value(text))
        else:
            config.kwargs[name] = _value(text)
    return config


def _value(text: str) -> object:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def _require_kept(tuner: Any, config: Any, arguments: Sequence[Any], options: dict[str, Any]) -> None:  # noqa: ANN401 - Triton's
    """Ask the kernel's own rule, which may keep everything where it would leave nothing: so beside its own list."""
    if getattr(tuner, "early_config_prune", None) is None:
        return
    given = dict(zip(tuner.arg_names, arguments, strict=False))
    kept = tuner.early_config_prune([*tuner.configs, config], given, **options)
    if not any(str(one) == str(config) for one in kept):
        raise LeftOut("the kernel's own rule, its early_config_prune, leaves it out")

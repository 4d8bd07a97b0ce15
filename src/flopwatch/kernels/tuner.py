"""The autotuner of the bundled kernels: Triton's, which times what a table and a prediction leave of its list.

What is left out of the list is left out of a call alone. The list itself stays as it is: a gate can pin all of it,
``flopwatch tune`` searches all of it, and so does every call where ``FLOPWATCH_AUTOTUNE=all`` is in the environment.
"""

from __future__ import annotations

import contextlib
import functools
import os
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import torch
import triton
from triton import knobs
from triton.runtime.autotuner import Autotuner
from triton.runtime.driver import driver

from flopwatch.kernels.known import key_text, known_choices
from flopwatch.kernels.launcher import build_beside
from flopwatch.kernels.prediction import PREDICTED_TARGETS, TOP_K

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from flopwatch.kernels.configs import AttentionConfig, MatmulConfig

#: In the environment: "all" has calls time every candidate that can run.
VARIABLE = "FLOPWATCH_AUTOTUNE"
#: The part of a key that `Tuner` adds.
KIND = "kind"
#: Candidates as close as this to the fastest, as a ratio, are as fast, and the first of them in the list is taken: the
#: gate, too, takes no notice of less (`flopwatch.gate.choices.TIE`).
TIE = 0.004
#: Tables are read once, when a kernel is first tuned.
_choices_of = functools.cache(known_choices)


def triton_configs(configs: Iterable[MatmulConfig | AttentionConfig]) -> list[triton.Config]:
    """Write configurations as Triton's autotuner takes them.

    >>> from flopwatch.kernels.configs import MATMUL_AUTOTUNE
    >>> str(triton_configs(MATMUL_AUTOTUNE)[0])[:27]
    'BLOCK_M: 128, BLOCK_N: 256,'
    """
    return [
        triton.Config(config.constants(), num_warps=config.num_warps, num_stages=config.num_stages)
        for config in configs
    ]


class Tuner(Autotuner):  # type: ignore[misc] # Triton ships no types
    """Tunes a kernel at its first call with each key, over as few candidates as are worth timing.

    A choice that was measured before (`flopwatch.kernels.known`) is taken as it is. Otherwise the candidates that can
    run are timed, those that are predicted to be fast where there is a prediction for the GPU, and what they took is
    kept in Triton's cache, by the kernel's source, the compiler, the candidates, the key, the GPU and the timer. Where
    another timer than Triton's is at work, as in the gate, nothing is kept unless ``TRITON_CACHE_AUTOTUNING`` asks.
    What is to be timed is compiled beforehand, side by side.

    Args:
        fn: the kernel, with its heuristics.
        configs: the list, the likeliest first.
        key: names of the arguments that have a choice of their own.
        kind: says of the arguments what else the fastest configuration depends on, which is part of the key where it
            says anything.
        rule: leaves out what cannot run, as Triton's ``early_config_prune``.
        model: predicts the time of a configuration, as Triton's ``perf_model``.
    """

    def __init__(
        self,
        fn: Any,
        configs: list[triton.Config],
        key: list[str],
        *,
        kind: Callable[[Mapping[str, Any]], str] | None = None,
        rule: Callable[..., list[triton.Config]] | None = None,
        model: Callable[..., float] | None = None,
    ) -> None:
        names, keys = [*fn.arg_names, KIND], [*key, KIND]
        by = {"early_config_prune": rule, "perf_model": model, "top_k": TOP_K}
        super().__init__(fn, names, configs, keys, None, None, prune_configs_by=by, cache_results=True)
        build_beside(fn)
        self.kind = kind
        self._options: dict[str, Any] = {}  # of the call that is tuned now: what is no argument by place

    @property
    def nargs(self) -> dict[str, Any] | None:
        """The arguments of a launch by name, and the kind of call that they make: of these Triton makes the key."""
        named: dict[str, Any] | None = self.__dict__.get("nargs")
        return named

    @nargs.setter
    def nargs(self, named: dict[str, Any] | None) -> None:
        kind = self.kind(named) if named and self.kind else ""
        # Under Triton's own name, by which `flopwatch.static.reached` knows what a tuner remembers of its calls.
        self.__dict__["nargs"] = {**named, KIND: kind} if named and kind else named

    def prune_configs(self, kwargs: dict[str, Any]) -> list[triton.Config]:
        """Return what is timed, in order; a single one is not."""
        if self.cache_results:  # then `check_disk_cache` comes next
            self._options = kwargs
        able: list[triton.Config] = (
            self.early_config_prune(self.configs, self.nargs, **kwargs) if self.early_config_prune else self.configs
        )
        if os.environ.get(VARIABLE) == "all":
            return able
        wanted = self._known_config(kwargs)
        known = [config for config in able if str(config).startswith(wanted)] if wanted else []
        if known:
            return known[:1]
        target = driver.active.get_current_target()
        if (target.backend, target.arch) not in PREDICTED_TARGETS:
            return able
        predicted: list[triton.Config] = super().prune_configs(kwargs)
        return predicted

    def check_disk_cache(
        self, tuning_key: tuple[Any, ...], configs: Sequence[triton.Config], bench_fn: Callable[[], None]
    ) -> bool:
        """Choose for a key, and tell whether that took no timing."""
        options, self._options = self._options, {}
        if len(configs) == 1:
            self.cache[tuning_key] = configs[0]
            return True

        def compiled_and_timed() -> None:
            self._compile(configs, options)
            bench_fn()

        if self._do_bench is not None and not knobs.autotuning.cache:
            compiled_and_timed()
            found = False
        else:
            place = (*tuning_key, torch.cuda.get_device_name(), getattr(self._do_bench, "__name__", ""))
            found = super().check_disk_cache(place, configs, compiled_and_timed)
            self.cache.pop(place, None)
        self.cache[tuning_key] = self._first_of_the_fastest()
        return found

    def _compile(self, configs: Sequence[triton.Config], options: Mapping[str, Any]) -> None:
        """Compile for the present call, side by side; what does not compile fails again when it is timed."""
        args = [value for name, value in (self.nargs or {}).items() if name != KIND]
        with (
            contextlib.suppress(RuntimeError),  # such as that another mode is active: then each when it is timed
            ThreadPoolExecutor(min(len(configs), os.cpu_count() or 1)) as executor,
            triton.AsyncCompileMode(executor, ignore_errors=True),
        ):
            for config in configs:
                self.fn.run(*args, **{**options, "warmup": True}, **config.all_kwargs())

    def _known_config(self, kwargs: dict[str, Any]) -> str:
        """Return the configuration that the tables have for a call, without what later Tritons add; "" for none."""
        known = _choices_of(self.base_fn.__name__)
        if not known:
            return ""
        given = {**(self.nargs or {}), **kwargs}
        types = [
            str(value.dtype) for name, value in given.items() if name in self.arg_names and hasattr(value, "dtype")
        ]
        key = key_text([*(given[name] for name in self.keys if name in given), *types])
        return known.get((torch.cuda.get_device_name(), key), "")

    def _first_of_the_fastest(self) -> triton.Config:
        """Return the first in declared order of those that are as fast as the fastest."""
        times = {
            config: time[0] if isinstance(time, list | tuple) else time for config, time in self.configs_timings.items()
        }
        limit = min(times.values()) * (1 + TIE)
        return next(config for config in self.configs if config in times and times[config] <= limit)

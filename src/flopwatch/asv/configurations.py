"""What the kernels of a case ran in at a commit, as `flopwatch record` kept it, and how that differs from another one.

A result of `asv run`, or of a recorder from before this was kept, has no such record: then nothing is known.
"""

from __future__ import annotations

import itertools
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from asv.environment import get_env_name
from asv.results import get_filename

from flopwatch.asv.environment import SharedEnvironment
from flopwatch.asv.steps import COMPILED
from flopwatch.model import Choice
from flopwatch.record.sidecar import read_cases

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    #: What was compiled, and what the tuners chose.
    _Log: TypeAlias = tuple[tuple[Choice, ...], tuple[Choice, ...] | None]

#: The parameters of a graph, a commit, a case and a metric -> the configurations; empty where they are not known.
RanIn: TypeAlias = Callable[[Mapping[str, str | None], str, str, str], Sequence[Choice]]

#: By which asv tells apart the interpreters of one machine.
_REQUIREMENTS = ("gpu", "torch", "triton")
#: What a tuner names always, and `KernelFacts.config` only where it is another.
_USUAL = {("num_ctas", "1"), ("maxnreg", "None")}
_NONE = "none"


class Configurations:
    """Reads the sidecars beside asv's results, each of them once.

    Args:
        results: asv's folder of results.
    """

    def __init__(self, results: Path) -> None:
        self._results = results
        self._known: dict[Path, dict[str, _Log]] = {}
        # Most commits of a long history change no configuration: what is equal is kept once.
        self._same: dict[object, tuple[Choice, ...]] = {}

    def __call__(self, params: Mapping[str, str | None], commit: str, case: str, metric: str) -> Sequence[Choice]:
        """Return what a metric of a case was measured in: of a compiled fact, what was compiled.

        Of everything else what ran on the GPU: autotuned kernels as their tuners chose, the others as compiled.
        """
        compiled, choices = self._logs(params, commit).get(case, ((), None))
        if metric in COMPILED:
            return compiled
        if choices is None:
            return ()
        tuned = {choice.kernel for choice in choices}
        return (*choices, *(one for one in compiled if one.kernel not in tuned))

    def _logs(self, params: Mapping[str, str | None], commit: str) -> dict[str, _Log]:
        requirements = {name: params.get(name) for name in _REQUIREMENTS}
        environment = get_env_name(SharedEnvironment.tool_name, params.get("python"), requirements, {})
        path = self._results / get_filename(params.get("machine") or "", commit, environment)
        path = path.with_suffix(".jsonl")
        if path not in self._known:
            self._known[path] = {  # what was measured again comes last
                sys.intern(log.case): (
                    self._once(log.compiled),
                    None if log.choices is None else self._once(log.choices),
                )
                for log in read_cases(path)
            }
        return self._known[path]

    def _once(self, choices: tuple[Choice, ...]) -> tuple[Choice, ...]:
        return self._same.setdefault(tuple((one.kernel, one.key, one.config) for one in choices), choices)


def moves(before: Sequence[Choice], after: Sequence[Choice]) -> Iterator[str]:
    """Say in which settings the kernels of a case ran differently; of one of several kernels, of which.

    >>> from flopwatch.model import Choice
    >>> old, new = (Choice(kernel="k", config=f"BLOCK=64,num_warps={warps}") for warps in (4, 8))
    >>> list(moves([old], [new])), list(moves([old], [old]))
    (['num_warps 4 → 8'], [])
    """
    old, new = _by_kernel(before), _by_kernel(after)
    several = len(old.keys() | new.keys()) > 1
    for kernel in sorted(old.keys() | new.keys()):
        if kernel not in new:
            yield f"{kernel} is no longer launched"
        elif kernel not in old:
            yield f"{kernel} is launched too"
        else:
            text = "; ".join(dict.fromkeys(_launch_moves(old[kernel], new[kernel])))
            if text:
                yield f"{kernel}: {text}" if several else text


def _by_kernel(choices: Sequence[Choice]) -> dict[str, dict[str, list[str]]]:
    """Return the configurations of each kernel, by the key of the launch."""
    found: dict[str, dict[str, list[str]]] = {}
    for choice in choices:
        found.setdefault(choice.kernel, defaultdict(list))[choice.key].append(choice.config)
    return found


def _launch_moves(old: dict[str, list[str]], new: dict[str, list[str]]) -> Iterator[str]:
    """Compare the launches of one kernel: those of the same key; all of them at once where the keys are others."""
    pairs = [(old[key], new[key]) for key in old] if old.keys() == new.keys() else [(_all(old), _all(new))]
    for before, after in pairs:
        gone, come = (
            list((Counter(before) - Counter(after)).elements()),
            list((Counter(after) - Counter(before)).elements()),
        )
        if len(gone) != len(come):
            yield f"launches {len(before)} → {len(after)}"
        elif len(gone) == 1:
            yield from _setting_moves(gone[0], come[0])
        elif gone:
            yield f"{len(gone)} of {len(before)} configurations differ"


def _all(by_key: dict[str, list[str]]) -> list[str]:
    return list(itertools.chain.from_iterable(by_key.values()))


def _setting_moves(old: str, new: str) -> Iterator[str]:
    """Compare two configurations; where only one of them is a tuner's, only in what both name."""
    before, after = _settings(old), _settings(new)
    names = dict.fromkeys([*before, *after]) if _is_tuners(old) == _is_tuners(new) else before.keys() & after.keys()
    for name in sorted(names):
        if before.get(name) != after.get(name):
            yield f"{name} {before.get(name, _NONE)} → {after.get(name, _NONE)}"


def _settings(config: str) -> dict[str, str]:
    """Read a configuration, as a tuner writes it or as compiled.

    >>> _settings("BLOCK: 64, num_warps: 4, num_ctas: 1, maxnreg: None"), _settings("BLOCK=64,num_warps=4")
    ({'BLOCK': '64', 'num_warps': '4'}, {'BLOCK': '64', 'num_warps': '4'})
    """
    between, within = (", ", ": ") if _is_tuners(config) else (",", "=")
    items = (item.partition(within) for item in config.split(between) if item)
    return {name: value for name, _, value in items if (name, value) not in _USUAL}


def _is_tuners(config: str) -> bool:
    return ": " in config

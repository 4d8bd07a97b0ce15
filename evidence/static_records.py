"""What is kept of the calibration: facts that were compiled, slowdowns that were measured, and what follows of both."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from evidence.planted import PLANTED
from flopwatch.measure.machine import Machine
from flopwatch.model import KernelFacts
from flopwatch.static.comparison import FactChange, Severity, compare_facts
from flopwatch.static.launches import Launched, compare_launches
from flopwatch.static.traffic import Traffic
from flopwatch.stats import PRIOR, interval

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

T = TypeVar("T")
#: Of each end of an interval: with five pairs the least that there is.
ALPHA = 1 / 32
#: The slowdown that the gate accepts by default.
MARGIN = 0.005


@dataclass(frozen=True, kw_only=True, slots=True)
class Compilation:
    """Facts of the planted cases on one device, and the traffic of their launches, at HEAD and with each change.

    Attributes:
        commit: that was edited.
        kernels: git's name of its folder of kernels.
        device: that was compiled for.
        versions: of Python, torch, Triton and ptxas.
        date: of the last change that was compiled.
        facts: each once.
        base: positions in them, by case.
        heads: likewise, by name of what is planted and case.
        launches: the traffic of each different launch once; none in files that were compiled before it was kept.
        base_launches: positions in them, by case.
        head_launches: likewise, by name of what is planted and case.
    """

    commit: str
    kernels: str
    device: str
    versions: dict[str, str]
    date: str
    facts: tuple[KernelFacts, ...] = ()
    base: dict[str, tuple[int, ...]] = field(default_factory=dict)
    heads: dict[str, dict[str, tuple[int, ...]]] = field(default_factory=dict)
    launches: tuple[Traffic, ...] = ()
    base_launches: dict[str, tuple[int, ...]] = field(default_factory=dict)
    head_launches: dict[str, dict[str, tuple[int, ...]]] = field(default_factory=dict)

    @property
    def origin(self) -> tuple[object, ...]:
        """What must agree for facts to stand in one file."""
        return (self.kernels, self.device, *sorted(self.versions.items()))

    def added(
        self,
        name: str,
        compiled: Mapping[str, Sequence[KernelFacts]],
        launched: Mapping[str, Sequence[Traffic]] | None = None,
    ) -> Compilation:
        """Add the facts of a change by case, and the traffic where it is known; those at HEAD are of no name."""
        facts, places = _gathered(self.facts, compiled)
        launches, launch_places = _gathered(self.launches, launched or {})
        found = replace(self, facts=facts, launches=launches)
        if not name:
            return replace(found, base=self.base | places, base_launches=self.base_launches | launch_places)
        heads = {place: entries for place, entries in self.head_launches.items() if place != name}
        return replace(
            found,
            heads=self.heads | {name: places},
            head_launches=heads | ({name: launch_places} if launch_places else {}),
        )

    def compact(self) -> Compilation:
        """Leave out what nobody refers to any more, and order the rest alike each time."""
        compact = replace(self, facts=(), base={}, heads={}, launches=(), base_launches={}, head_launches={})
        for name in ("", *(name for name in PLANTED if name in self.heads)):
            places = self.heads[name] if name else dict(sorted(self.base.items()))
            launches = self.head_launches.get(name, {}) if name else dict(sorted(self.base_launches.items()))
            compact = compact.added(
                name,
                {case: self._at(found) for case, found in places.items()},
                {case: self._launches_at(found) for case, found in launches.items()},
            )
        return compact

    def changes(self, name: str) -> tuple[FactChange, ...]:
        """Return what the rules say of a change."""
        of_facts = (
            change
            for case, places in self.heads[name].items()
            for change in compare_facts(self._at(self.base[case]), self._at(places))
        )
        of_launches = (
            change
            for case, places in self.head_launches.get(name, {}).items()
            if case in self.base_launches
            for change in compare_launches(
                Launched(facts=tuple(self._at(self.base[case])), traffic=self._launches_at(self.base_launches[case])),
                Launched(facts=tuple(self._at(self.heads[name][case])), traffic=self._launches_at(places)),
            )
        )
        return (*of_facts, *of_launches)

    def findings(self, name: str) -> tuple[FactChange, ...]:
        """Return what of it warns or fails."""
        return tuple(change for change in self.changes(name) if change.severity is not Severity.NOTE)

    def chosen(self, name: str) -> set[str]:
        """Return the configurations that were launched outside the tuner's trials, with a change and without."""
        places = [(self.base[case], places) for case, places in self.heads[name].items()]
        return {fact.config for both in places for side in both for fact in self._at(side) if fact.chosen}

    def _at(self, places: Sequence[int]) -> list[KernelFacts]:
        return [self.facts[place] for place in places]

    def _launches_at(self, places: Sequence[int]) -> tuple[Traffic, ...]:
        return tuple(self.launches[place] for place in places)


def _gathered(known: Sequence[T], found: Mapping[str, Sequence[T]]) -> tuple[tuple[T, ...], dict[str, tuple[int, ...]]]:
    """Add what is new to what is known, and return the places of what was found by case."""
    entries = list(known)
    places = {}
    for case, each in found.items():
        entries += [entry for place, entry in enumerate(each) if entry not in entries and entry not in each[:place]]
        places[case] = tuple(entries.index(entry) for entry in each)
    return tuple(entries), places


@dataclass(frozen=True, kw_only=True, slots=True)
class Slowdown:
    """What a change costs.

    Attributes:
        name: of what is planted.
        case: that was measured.
        base_seconds: of a call, without the change; None where nothing was measured.
        head_seconds: likewise with it.
        log_ratios: of pairs, log(head / base).
        base_choices: the configurations that the tuner chose.
        head_choices: likewise with the change.
        max_diff_eps: how far the result is from its float64 reference.
        clocks: of the two sides, where they differ.
        failure: why the change does not run.
        unfit: why this is worth nothing.
        seconds: that measuring took.
    """

    name: str
    case: str
    base_seconds: float | None = None
    head_seconds: float | None = None
    log_ratios: tuple[float, ...] = ()
    base_choices: tuple[str, ...] = ()
    head_choices: tuple[str, ...] = ()
    max_diff_eps: float | None = None
    clocks: str = ""
    failure: str = ""
    unfit: str = ""
    seconds: float = 0.0

    @property
    def bounds(self) -> tuple[float, float, float]:
        """The slowdown as a share of base's time, from its lower bound over the estimate to the upper one."""
        found = interval(np.array([self.log_ratios]), PRIOR, alpha=ALPHA)
        low, middle, high = (math.expm1(end[0]) for end in (found.lower, found.estimate, found.upper))
        return low, middle, high

    @property
    def is_slower(self) -> bool | None:
        """Whether it is slower by more than the gate's margin; None where that was not measured."""
        if self.failure and not self.log_ratios:
            return True
        return None if self.unfit or not self.log_ratios else self.bounds[0] > MARGIN

    @property
    def text(self) -> str:
        """One line for a person."""
        if not self.log_ratios:
            return f"does not run: {self.failure}" if self.failure else "not measured"
        low, middle, high = (f"{100 * bound:+.1f}" for bound in self.bounds)
        return f"{middle} % ({low} to {high} %)"


@dataclass(frozen=True, kw_only=True, slots=True)
class Measurement:
    """What changes cost on one machine.

    Attributes:
        commit: that was edited last.
        kernels: git's name of its folder of kernels.
        date: of the last change that was measured.
        machine: on which.
        commands: that measured.
        slowdowns: in the order of `evidence.planted`.
    """

    commit: str
    kernels: str
    date: str
    machine: Machine
    commands: tuple[str, ...] = ()
    slowdowns: tuple[Slowdown, ...] = ()

    @staticmethod
    def origin_of(kernels: str, machine: Machine) -> tuple[object, ...]:
        """Return what must agree for slowdowns to stand in one file; two GPUs of one kind do."""
        gpu = (machine.gpu.name, machine.gpu.driver) if machine.gpu else ()
        return (kernels, *gpu, *sorted(machine.versions.items()))

    @property
    def origin(self) -> tuple[object, ...]:
        """What `origin_of` says of this."""
        return self.origin_of(self.kernels, self.machine)

    def added(self, slowdown: Slowdown, *, command: str, commit: str, date: str) -> Measurement:
        """Add a slowdown, in the place of one of its name."""
        found = {each.name: each for each in (*self.slowdowns, slowdown)}
        return replace(
            self,
            commit=commit,
            date=date,
            commands=tuple(dict.fromkeys((*self.commands, command))),
            slowdowns=tuple(found[name] for name in PLANTED if name in found),
        )

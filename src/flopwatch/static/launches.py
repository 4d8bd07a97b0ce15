"""What changed between the launches of two sides, case by case, by what they compute and move."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

from flopwatch.model import KernelFacts
from flopwatch.static.comparison import FactChange, Severity
from flopwatch.static.devices import DEVICES
from flopwatch.static.matching import match_kernels, match_variants
from flopwatch.static.names import function_name, numbered_name
from flopwatch.static.traffic.findings import LAUNCHES, OUT_OF_BOUNDS, traffic_findings
from flopwatch.static.traffic.result import Traffic

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from flopwatch.model import Case

    #: A kernel and the types of its arguments.
    Called: TypeAlias = tuple[str, str]


@dataclass(frozen=True, kw_only=True, slots=True)
class Launched:
    """What a case launches on one side and device: the facts of its kernels, and the traffic of its launches."""

    facts: tuple[KernelFacts, ...] = ()
    traffic: tuple[Traffic, ...] = ()


def name_apart(*sides: Mapping[Case, Launched]) -> tuple[dict[Case, Launched], ...]:
    """Give kernels of one name that different cases launch, and that are not the same one, names of their own.

    Who compiles a case numbers its kernels (`flopwatch.static.names`), and knows of no other case. Here they are
    numbered through all cases, in order, and on every side alike: what two cases call the same is one kernel unless, on
    one side, the same arguments and configuration come to other facts.
    """
    known: list[dict[tuple[str, ...], KernelFacts]] = [{} for _ in sides]
    names: dict[Case, dict[str, str]] = {}
    for case in dict.fromkeys(case for side in sides for case in side):
        given = names[case] = {}
        facts = [side.get(case, Launched()).facts for side in sides]
        for kernel in sorted(
            {fact.kernel for of_side in facts for fact in of_side}, key=lambda name: (len(name), name)
        ):
            own = [[fact for fact in of_side if fact.kernel == kernel] for of_side in facts]
            name = next(
                name
                for name in (numbered_name(function_name(kernel), number) for number in itertools.count(1))
                if name not in given.values()
                and not any(
                    _is_other(before.get((name, *fact.key[1:]), fact), fact)
                    for before, of_side in zip(known, own, strict=True)
                    for fact in of_side
                )
            )
            given[kernel] = name
            for before, of_side in zip(known, own, strict=True):
                before.update({(name, *fact.key[1:]): fact for fact in of_side})
    return tuple({case: _renamed(launched, names[case]) for case, launched in side.items()} for side in sides)


def _is_other(one: KernelFacts, other: KernelFacts) -> bool:
    """Tell whether facts of the same arguments and configuration cannot be of one function."""
    if one.failure is not None and other.failure is not None:
        return one.failure.kind != other.failure.kind  # messages name addresses
    device = DEVICES.get(one.device)
    repeats = device is None or device.repeats_code
    counted = [
        replace(fact, kernel="", chosen=False, uncounted="", code_fingerprint=fact.code_fingerprint if repeats else "")
        for fact in (one, other)
    ]
    return counted[0] != counted[1]


def _renamed(launched: Launched, names: Mapping[str, str]) -> Launched:
    if all(name == kernel for kernel, name in names.items()):
        return launched
    return Launched(
        facts=tuple(replace(fact, kernel=names[fact.kernel]) for fact in launched.facts),
        traffic=tuple(replace(one, kernel=names.get(one.kernel, one.kernel)) for one in launched.traffic),
    )


def compare_launches(base: Launched, head: Launched) -> tuple[FactChange, ...]:
    """Return what the launches of a case show for the worse.

    A launch of head is held against that of base which calls the same kernel, whatever its name is now, on arguments of
    the same types: the one of the same grid and configuration, in order, and of what is left over the one in its place
    where both sides have as many. Addresses out of bounds fail wherever none of base's launches of the kernel has them,
    and all that these do is known; everything else warns.

    >>> compare_launches(Launched(), Launched())
    ()
    """
    partners = _partners(base.facts, head.facts)
    old = _by_call(base.traffic)
    return tuple(
        change
        for called, launches in _by_call(head.traffic).items()
        for change in _compare(old.get(partners.get(called, called), []), launches)
    )


def compare_cases(
    base: Mapping[Case, Launched], head: Mapping[Case, Launched]
) -> tuple[tuple[FactChange, tuple[Case, ...]], ...]:
    """Return what the launches of all cases show, each finding once, with the cases that show it.

    Its numbers are those of the first of them, which it names.
    """
    first: dict[tuple[object, ...], FactChange] = {}
    cases: dict[tuple[object, ...], list[Case]] = {}
    for case, launched in head.items():
        for change in compare_launches(base.get(case, Launched()), launched):
            key = (change.kernel, change.device, change.variant, change.config, change.fact, _place(change))
            first.setdefault(key, change)
            if case not in cases.setdefault(key, []):
                cases[key].append(case)
    return tuple(
        (replace(change, head=change.head + _where(cases[key])), tuple(cases[key])) for key, change in first.items()
    )


def _partners(base: Sequence[KernelFacts], head: Sequence[KernelFacts]) -> dict[Called, Called]:
    """Return what base's side calls each kernel and variant of head's."""
    return {
        (after[0].kernel, after[0].variant): (before[0].kernel, before[0].variant)
        for old, new in match_kernels(base, head)
        for before, after in match_variants(old, new)
        if before and after
    }


def _by_call(traffic: Iterable[Traffic]) -> dict[Called, list[Traffic]]:
    groups: dict[Called, list[Traffic]] = {}
    for launch in traffic:
        groups.setdefault((launch.kernel, launch.variant), []).append(launch)
    return groups


def _compare(base: Sequence[Traffic], head: Sequence[Traffic]) -> Iterator[FactChange]:
    known = tuple(stray for launch in base for stray in launch.out_of_bounds)
    covered = not any(launch.uncovered or launch.data_dependent for launch in base)  # else it may be no news
    if base and len(head) > len(base):
        yield _change(head[0], LAUNCHES, str(len(base)), str(len(head)), Severity.WARN)
    for before, after in _paired(base, head):
        # A launch without a partner is held against itself: only what it leaves its memory by is new.
        old = replace(after if before is None else before, out_of_bounds=known)
        for finding in traffic_findings(old, after):
            severity = Severity.FAIL if finding.name == OUT_OF_BOUNDS and covered else Severity.WARN
            yield _change(after, finding.name, finding.base, finding.head, severity)


def _change(launch: Traffic, fact: str, base: str, head: str, severity: Severity) -> FactChange:
    return FactChange(
        kernel=launch.kernel,
        device=launch.device,
        variant=launch.variant,
        config=launch.config,
        fact=fact,
        base=base,
        head=head,
        severity=severity,
    )


def _paired(base: Sequence[Traffic], head: Sequence[Traffic]) -> list[tuple[Traffic | None, Traffic]]:
    """Give each launch of head that of base which is in its place."""
    left = list(base)
    partners: list[Traffic | None] = []
    for launch in head:
        alike = next((old for old in left if (old.grid, old.config) == (launch.grid, launch.config)), None)
        partners.append(alike)
        if alike is not None:
            left.remove(alike)
    if partners.count(None) == len(left):
        rest = iter(left)
        partners = [next(rest) if partner is None else partner for partner in partners]
    return list(zip(partners, head, strict=True))


def _place(change: FactChange) -> str:
    """Return the operation and line that an address out of bounds is told by; "" of everything else.

    How far it is differs between cases, and how many programs do it.
    """
    return " ".join(change.head.split(" ")[:3]) if change.fact == OUT_OF_BOUNDS else ""


def _where(cases: Sequence[Case]) -> str:
    more = f" and {len(cases) - 1} more" if cases[1:] else ""
    return f", in {cases[0].id}{more}"

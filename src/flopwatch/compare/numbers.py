"""What each side returns: only those that give the reference's numbers are worth timing."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from flopwatch.compare.result import ComparedCase, Contender, Kind
from flopwatch.gate.numbers import SEEDS, UNSTABLE, changed_choices, configs_of, with_choices_of
from flopwatch.gate.sides import Arm, Sides
from flopwatch.measure.client import CaseFailed, Mode, Worker
from flopwatch.verdict import Side, eps_of, worst_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from flopwatch.model import Case


def check_contenders(sides: Sides, cases: Sequence[ComparedCase], kind: Kind) -> tuple[ComparedCase, ...]:
    """Tune every case, run it on several seeds, and hold it against its reference; one side at a time.

    Of one kernel on both sides, head keeps base's choice where either side's tuner chooses otherwise the second time.
    """
    bases = _asked(sides, Arm.BASE, _tuned, [case.base for case in cases])
    heads = _asked(sides, Arm.HEAD, _tuned, [case.head for case in cases])
    unstable: set[Case] = set()
    if kind is not Kind.PROVIDERS:  # these are different kernels, whose configurations have nothing to agree on
        unstable = _unstable(sides, bases, heads)
        heads = [
            _with_choices_of(base, head) if head.case in unstable else head
            for base, head in zip(bases, heads, strict=True)
        ]
    bases, heads = _asked(sides, Arm.BASE, _run, bases), _asked(sides, Arm.HEAD, _run, heads)
    return tuple(
        _judged(replace(case, base=base, head=head, notes=(UNSTABLE,) if head.case in unstable else ()), kind)
        for case, base, head in zip(cases, bases, heads, strict=True)
    )


def _asked(
    sides: Sides, arm: Arm, ask: Callable[[Worker, Contender], Contender], contenders: Sequence[Contender]
) -> list[Contender]:
    with sides.worker(Mode.GPU, arm) as worker:
        return [contender if contender.failure else ask(worker, contender) for contender in contenders]


def _tuned(worker: Worker, contender: Contender) -> Contender:
    try:
        return replace(contender, choices=worker.tune(contender.case))
    except CaseFailed as error:
        return replace(contender, failure=error.failure)


def _run(worker: Worker, contender: Contender) -> Contender:
    try:
        found = [worker.numbers(contender.case, seed=seed, pins=contender.choices) for seed in SEEDS]
    except CaseFailed as error:
        return replace(contender, failure=error.failure)
    return replace(contender, numbers=worst_of(found))


def _unstable(sides: Sides, bases: Sequence[Contender], heads: Sequence[Contender]) -> set[Case]:
    """Tune once more where the sides chose differently; return the cases of which either now chooses otherwise."""
    differing = [
        pair
        for pair in zip(bases, heads, strict=True)
        if not (pair[0].failure or pair[1].failure) and configs_of(pair[0].choices) != configs_of(pair[1].choices)
    ]
    found = set()
    for arm, before in zip(Arm, zip(*differing, strict=True), strict=False):  # none, where nothing differs
        again = _asked(sides, arm, _tuned, before)
        found |= {
            old.case
            for old, new in zip(before, again, strict=True)
            if configs_of(old.choices) != configs_of(new.choices)
        }
    return found


def _with_choices_of(base: Contender, head: Contender) -> Contender:
    return replace(head, choices=with_choices_of(Side(choices=base.choices), Side(choices=head.choices)).choices)


def _judged(case: ComparedCase, kind: Kind) -> ComparedCase:
    """Say why a case cannot be compared, and what its sides run differently."""
    names = (case.base.case.provider, case.head.case.provider) if kind is Kind.PROVIDERS else ("base", "head")
    reasons = [
        f"{name} {reason}"
        for name, contender in zip(names, (case.base, case.head), strict=True)
        if (reason := _unusable(contender, case.ceiling_eps))
    ]
    changed: Iterable[str] = () if kind is Kind.PROVIDERS else changed_choices(case.base.choices, case.head.choices)
    return replace(case, reason="; ".join(reasons), notes=(*case.notes, *changed))


def _unusable(contender: Contender, ceiling_eps: float) -> str:
    if contender.failure is not None:
        return f"fails ({contender.failure.kind}: {contender.failure.message.splitlines()[0]})"
    numbers = contender.numbers
    assert numbers is not None  # noqa: S101 - it ran, or failed
    if not numbers.finite:
        return "returns NaN or infinity"
    if eps_of(numbers) > ceiling_eps:
        return f"is wrong: error {eps_of(numbers):.3g} eps, ceiling {ceiling_eps:g}"
    return ""

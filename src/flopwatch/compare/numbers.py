"""What each side returns: only those that give the reference's numbers are worth timing."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from flopwatch.compare.result import ComparedCase, Contender, Kind
from flopwatch.gate.choices import Settled, changed_choices, settle
from flopwatch.gate.numbers import SEEDS
from flopwatch.gate.sides import Arm, Sides
from flopwatch.measure.client import CaseFailed, Mode, Worker
from flopwatch.model import eps_of, worst_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from flopwatch.model import Case


def check_contenders(sides: Sides, cases: Sequence[ComparedCase], kind: Kind) -> tuple[ComparedCase, ...]:
    """Tune every case, run it on several seeds, and hold it against its reference; one side at a time.

    Of one kernel on both sides, what the tuners chose differently takes turns, and each side runs what is faster there.
    """
    bases = _asked(sides, Arm.BASE, _tuned, [case.base for case in cases])
    heads = _asked(sides, Arm.HEAD, _tuned, [case.head for case in cases])
    settled: dict[Case, Settled] = {}
    if kind is not Kind.PROVIDERS:  # these are different kernels, whose configurations have nothing to agree on
        settled = settle(
            sides, *({each.case: each.choices for each in side if not each.failure} for side in (bases, heads))
        )
        bases = [replace(each, choices=settled[each.case].base) if each.case in settled else each for each in bases]
        heads = [replace(each, choices=settled[each.case].head) if each.case in settled else each for each in heads]
    bases, heads = _asked(sides, Arm.BASE, _run, bases), _asked(sides, Arm.HEAD, _run, heads)
    return tuple(
        _judged(
            replace(case, base=base, head=head, notes=settled[head.case].notes if head.case in settled else ()), kind
        )
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

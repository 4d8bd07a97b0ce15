"""The second step: what each case returns, on both sides, and what its autotuned kernels run in."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING

from flopwatch.gate.result import CaseVerdict
from flopwatch.gate.sides import Arm, Sides
from flopwatch.measure.client import CaseFailed, Mode, Worker, side_by_side
from flopwatch.model import Case, Choice, Mark
from flopwatch.verdict import Side, judge_memory, judge_numbers, worst_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from flopwatch.measure.protocol import DeclaredCase

#: Fresh inputs on which the results are compared.
SEEDS = (0, 1, 2)
#: Failures that a busy machine can bring about; the case is tried once more.
PERHAPS_BY_ACCIDENT = frozenset({"WorkerDied", "OutOfMemoryError"})
UNSTABLE = "unstable tuning: the choice flips from process to process; both sides run base's"


def check_small(sides: Sides, declared: Sequence[DeclaredCase], *, both: bool) -> tuple[CaseVerdict, ...]:
    """Compare every case's small version with its reference, through the interpreter; on head alone unless `both`."""
    ceilings = {entry.small: _ceiling(sides, entry) for entry in declared}
    with contextlib.ExitStack() as stack:
        workers = (
            sides.both(Mode.INTERPRET, stack) if both else [stack.enter_context(sides.worker(Mode.INTERPRET, Arm.HEAD))]
        )
        found = side_by_side(lambda worker: [_with_numbers(worker, case, Side()) for case in ceilings], workers)
    return tuple(
        _judged(CaseVerdict(case=case, base=base, head=head), ceiling)
        for (case, ceiling), base, head in zip(ceilings.items(), found[0], found[-1], strict=True)
    )


def check_on_gpu(
    sides: Sides, declared: Sequence[DeclaredCase], identical: frozenset[Case], pins: dict[Case, tuple[Choice, ...]]
) -> tuple[CaseVerdict, ...]:
    """Tune, run and compare every case at its full size, one side at a time; those that are identical need not run.

    Results that are equal bit by bit on all seeds need no reference. Where they differ, both are held against it.
    """
    running = [entry for entry in declared if entry.case not in identical]
    cases = [entry.case for entry in running]
    tuned = {arm: _tune(sides, arm, cases, pins) for arm in Arm}  # one GPU: one side at a time
    unstable = _settle(sides, tuned, pins)
    ran: dict[Arm, dict[Case, Side]] = {}
    for arm in Arm:
        with sides.worker(Mode.GPU, arm) as worker:
            ran[arm] = {case: _run(worker, case, side) for case, side in tuned[arm].items()}
    differing = [case for case in cases if not _equal(ran[Arm.BASE][case], ran[Arm.HEAD][case])]
    for arm in Arm:
        with sides.worker(Mode.GPU, arm) as worker:
            ran[arm] |= {case: _with_numbers(worker, case, ran[arm][case]) for case in differing}
    found = {
        entry.case: _judged(
            CaseVerdict(
                case=entry.case,
                base=ran[Arm.BASE][entry.case],
                head=ran[Arm.HEAD][entry.case],
                notes=(UNSTABLE,) if entry.case in unstable else (),
            ),
            _ceiling(sides, entry),
        )
        for entry in running
    }
    return tuple(
        found.get(entry.case) or CaseVerdict(case=entry.case, mark=Mark.SAME, identical=True) for entry in declared
    )


def _settle(sides: Sides, tuned: dict[Arm, dict[Case, Side]], pins: dict[Case, tuple[Choice, ...]]) -> set[Case]:
    """Tune once more where the sides chose differently; where a side then chooses otherwise, give head base's choice.

    Returns:
        The cases whose tuning is unstable: near ties, which are no change of the code.
    """
    base, head = tuned[Arm.BASE], tuned[Arm.HEAD]
    differing = [case for case in base if _configs(base[case]) != _configs(head[case])]
    if not differing:
        return set()
    again = {arm: _tune(sides, arm, differing, pins) for arm in (Arm.HEAD, Arm.BASE)}
    unstable = {
        case for case in differing if any(_configs(again[arm][case]) != _configs(tuned[arm][case]) for arm in Arm)
    }
    head.update({case: with_choices_of(base[case], head[case]) for case in unstable})
    return unstable


def with_choices_of(base: Side, head: Side) -> Side:
    """Return head with base's choices, as far as they are among its candidates.

    >>> tuned = Side(choices=(Choice(kernel="k", config="wide", timings_us={"wide": 10.0, "tall": 10.1}),))
    >>> with_choices_of(Side(choices=(Choice(kernel="k", config="tall"),)), tuned).choices[0].config
    'tall'
    """
    before = dict(_configs(base))
    return replace(
        head,
        choices=tuple(
            replace(choice, config=before[choice.kernel]) if before.get(choice.kernel) in choice.timings_us else choice
            for choice in head.choices
        ),
    )


def _configs(side: Side) -> list[tuple[str, str]]:
    return [(choice.kernel, choice.config) for choice in side.choices]


def _tune(sides: Sides, arm: Arm, cases: Sequence[Case], pins: dict[Case, tuple[Choice, ...]]) -> dict[Case, Side]:
    """Tune every case in a fresh process."""
    with sides.worker(Mode.GPU, arm) as worker:
        return {case: _tuned(worker, case, pins.get(case, ())) for case in cases}


def _ceiling(sides: Sides, entry: DeclaredCase) -> float:
    return sides.config.max_diff_eps if entry.max_diff_eps is None else entry.max_diff_eps


def _tuned(worker: Worker, case: Case, pins: Sequence[Choice]) -> Side:
    try:
        return Side(choices=worker.tune(case, pins))
    except CaseFailed as error:
        return Side(failure=error.failure)


def _run(worker: Worker, case: Case, side: Side) -> Side:
    """Run the case on every seed; once more where a busy machine may have been the cause of a failure."""
    if side.failure is not None and side.failure.kind not in PERHAPS_BY_ACCIDENT:
        return side
    for attempt in range(2):
        try:
            bits = tuple(worker.bits(case, seed=seed, pins=side.choices) for seed in SEEDS)
            return replace(side, bits=bits, memory=worker.memory(case, side.choices), failure=None)
        except CaseFailed as error:
            side = replace(side, failure=error.failure)
            if attempt or error.failure.kind not in PERHAPS_BY_ACCIDENT:
                break
    return side


def _equal(base: Side, head: Side) -> bool:
    return bool(head.bits) and head.bits == base.bits


def _with_numbers(worker: Worker, case: Case, side: Side) -> Side:
    if side.failure is not None:
        return side
    for attempt in range(2):
        try:
            return replace(
                side, numbers=worst_of([worker.numbers(case, seed=seed, pins=side.choices) for seed in SEEDS])
            )
        except CaseFailed as error:
            if attempt or error.failure.kind not in PERHAPS_BY_ACCIDENT:
                return replace(side, failure=error.failure)
    raise AssertionError  # the second attempt returned


def _judged(verdict: CaseVerdict, ceiling: float) -> CaseVerdict:
    """Judge by results and memory, and note a configuration that changed."""
    mark, reason = judge_numbers(verdict.base, verdict.head, ceiling_eps=ceiling)
    memory_mark, memory_reason = judge_memory(verdict.base, verdict.head)
    notes = (*verdict.notes, *changed_choices(verdict.base.choices, verdict.head.choices))
    if memory_mark is None and memory_reason:
        notes = (*notes, memory_reason)
    if mark is None and memory_mark is not None:
        mark, reason = memory_mark, memory_reason
    return replace(verdict, mark=mark, reason=reason, notes=notes)


def changed_choices(base: Iterable[Choice], head: Iterable[Choice]) -> Iterable[str]:
    """Say which kernels run in another configuration than before."""
    before = {choice.kernel: choice.config for choice in base}
    for choice in head:
        old = before.get(choice.kernel)
        if old is not None and old != choice.config:
            yield f"configuration changed: {choice.kernel} from {_brief(old, choice.config)}"


def _brief(old: str, new: str) -> str:
    """Show only the settings that differ.

    >>> _brief("BLOCK: 64, num_warps: 4, num_ctas: 1", "BLOCK: 128, num_warps: 4, num_ctas: 1")
    'BLOCK: 64 to BLOCK: 128'
    """
    before, after = old.split(", "), new.split(", ")
    gone = ", ".join(item for item in before if item not in after)
    come = ", ".join(item for item in after if item not in before)
    return f"{gone} to {come}"

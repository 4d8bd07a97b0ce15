"""The second step: what each case returns, on both sides, and what its autotuned kernels run in."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from flopwatch.gate.choices import changed_choices, off_pins, settle
from flopwatch.gate.result import CaseVerdict
from flopwatch.gate.sides import Arm, Sides
from flopwatch.measure.client import CaseFailed, Mode, Worker, side_by_side
from flopwatch.model import Case, Choice, Failure, Mark, worst_of
from flopwatch.static.not_covered import NotCovered
from flopwatch.verdict import Side, judge_memory, judge_numbers

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from flopwatch.measure.protocol import DeclaredCase

#: Fresh inputs on which the results are compared.
SEEDS = (0, 1, 2)
#: Failures that a busy machine can bring about; the case is tried once more, with the machine to itself.
PERHAPS_BY_ACCIDENT = frozenset({"WorkerDied", "OutOfMemoryError"})
#: Likewise, in the words of CUDA and its libraries, whose errors are of no class of their own.
_NO_MEMORY = ("out of memory", "ALLOC_FAILED")

#: What is known of each case, on each side that is asked.
Found: TypeAlias = "dict[Arm, dict[Case, Side]]"
#: One question about one case; raises `CaseFailed`.
Ask: TypeAlias = "Callable[[Worker, Case, Side], Side]"


def check_small(sides: Sides, declared: Sequence[DeclaredCase], *, both: bool) -> tuple[CaseVerdict, ...]:
    """Compare every case's small version with its reference, through the interpreter; on head alone unless `both`."""
    ceilings = {entry.small: _ceiling(sides, entry) for entry in declared}
    before: Found = {arm: dict.fromkeys(ceilings, Side()) for arm in (Arm if both else (Arm.HEAD,))}
    with contextlib.ExitStack() as stack:
        workers = (
            sides.both(Mode.INTERPRET, stack) if both else [stack.enter_context(sides.worker(Mode.INTERPRET, Arm.HEAD))]
        )
        found = _asked(workers, _numbers, before)
    _ask_again(sides, Mode.INTERPRET, _numbers, before, found)
    head = found[Arm.HEAD]
    base = found.get(Arm.BASE, head)
    return tuple(
        _judged_small(CaseVerdict(case=case, base=base[case], head=head[case]), ceiling)
        for case, ceiling in ceilings.items()
    )


def check_on_gpu(
    sides: Sides,
    declared: Sequence[DeclaredCase],
    identical: frozenset[Case],
    pins: dict[Case, tuple[Choice, ...]],
    *,
    untuned: frozenset[Case] = frozenset(),
) -> tuple[CaseVerdict, ...]:
    """Tune, run and compare every case at its full size; those that are identical need not run.

    `untuned` cases have nothing to tune. Those in `pins` are told of where they do not run in what these name.

    Tuning has the GPU to itself, one side at a time. Results and memory are the same beside another process: there both
    sides are asked at once. Results that are equal bit by bit on all seeds need no reference. Where they differ, both
    are held against it.
    """
    running = [entry for entry in declared if entry.case not in identical]
    cases = [entry.case for entry in running]
    tuning = [case for case in cases if case not in untuned]
    tuned = {arm: dict.fromkeys(cases, Side()) | _tune(sides, arm, tuning, pins) for arm in Arm}
    of_pins = {
        case: tuple(off_pins(pins[case], tuned[Arm.BASE][case].choices, tuned[Arm.HEAD][case].choices))
        for case in tuning
        if case in pins
    }
    notes = _settle(sides, tuned, pinned=frozenset(case for case in cases if pins.get(case)))
    ran = _ask_all(sides, _results, tuned)
    differing = [case for case in cases if not _equal(ran[Arm.BASE][case], ran[Arm.HEAD][case])]
    compared = _ask_all(sides, _numbers, {arm: {case: ran[arm][case] for case in differing} for arm in Arm})
    base, head = (ran[arm] | compared[arm] for arm in Arm)
    found = {
        entry.case: _judged(
            CaseVerdict(
                case=entry.case,
                base=base[entry.case],
                head=head[entry.case],
                notes=(*of_pins.get(entry.case, ()), *notes.get(entry.case, ())),
            ),
            _ceiling(sides, entry),
        )
        for entry in running
    }
    return tuple(
        replace(
            found.get(entry.case) or CaseVerdict(case=entry.case, mark=Mark.SAME, identical=True),
            flops=entry.flops,
            bytes_moved=entry.bytes_moved,
        )
        for entry in declared
    )


def _ask_all(sides: Sides, ask: Ask, before: Found) -> Found:
    """Ask the sides at the same time, on the GPU; then, one at a time, again about what failed by accident."""
    with contextlib.ExitStack() as stack:
        found = _asked([stack.enter_context(sides.worker(Mode.GPU, arm)) for arm in before], ask, before)
    _ask_again(sides, Mode.GPU, ask, before, found)
    return found


def _asked(workers: Sequence[Worker], ask: Ask, before: Found) -> Found:
    """Ask the workers of the sides at the same time, each about one case after the other."""
    known = dict(zip(workers, before.values(), strict=True))
    answers = side_by_side(
        lambda worker: {case: _answer(worker, ask, case, side) for case, side in known[worker].items()}, workers
    )
    return dict(zip(before, answers, strict=True))


def _ask_again(sides: Sides, mode: Mode, ask: Ask, before: Found, found: Found) -> None:
    """Ask a fresh process that is alone about what the other side, or a neighbour, may have made fail.

    Two working sets that do not fit into the GPU's memory together may fit one after the other.
    """
    for arm, known in before.items():
        accidents = [
            case
            for case, side in known.items()
            if side.failure is None and _perhaps_by_accident(found[arm][case].failure)
        ]
        if accidents:
            with sides.worker(mode, arm) as worker:
                found[arm] |= {case: _answer(worker, ask, case, known[case]) for case in accidents}


def _answer(worker: Worker, ask: Ask, case: Case, side: Side) -> Side:
    """Ask, unless the case has failed; keep why it fails."""
    if side.failure is not None:
        return side
    try:
        return ask(worker, case, side)
    except CaseFailed as error:
        return replace(side, failure=error.failure)


def _perhaps_by_accident(failure: Failure | None) -> bool:
    """Tell whether a busy machine may be why a case failed.

    >>> _perhaps_by_accident(Failure(kind="RuntimeError", message="Triton Error [CUDA]: out of memory"))
    True
    >>> _perhaps_by_accident(Failure(kind="RuntimeError", message="no scale today"))
    False
    """
    if failure is None:
        return False
    return failure.kind in PERHAPS_BY_ACCIDENT or any(words in failure.message for words in _NO_MEMORY)


def _settle(sides: Sides, tuned: Found, *, pinned: frozenset[Case]) -> dict[Case, tuple[str, ...]]:
    """Let both sides run what is faster there where their tuners chose differently; return what is to be noted.

    What is pinned is not asked about: a side that cannot run in it must not take the other one along.
    """
    chosen = {
        arm: {case: side.choices for case, side in known.items() if side.failure is None and case not in pinned}
        for arm, known in tuned.items()
    }
    settled = settle(sides, chosen[Arm.BASE], chosen[Arm.HEAD])
    for case, found in settled.items():
        for arm, choices in ((Arm.BASE, found.base), (Arm.HEAD, found.head)):
            tuned[arm][case] = replace(tuned[arm][case], choices=choices)
    return {case: found.notes for case, found in settled.items()}


def _tune(sides: Sides, arm: Arm, cases: Sequence[Case], pins: dict[Case, tuple[Choice, ...]]) -> dict[Case, Side]:
    """Tune every case in a fresh process."""
    return _ask_all(
        sides,
        lambda worker, case, side: replace(side, choices=worker.tune(case, pins.get(case, ()))),
        {arm: dict.fromkeys(cases, Side())},
    )[arm]


def _ceiling(sides: Sides, entry: DeclaredCase) -> float:
    return sides.config.max_diff_eps if entry.max_diff_eps is None else entry.max_diff_eps


def _results(worker: Worker, case: Case, side: Side) -> Side:
    bits = tuple(worker.bits(case, seed=seed, pins=side.choices) for seed in SEEDS)
    return replace(side, bits=bits, memory=worker.memory(case, side.choices))


def _numbers(worker: Worker, case: Case, side: Side) -> Side:
    return replace(side, numbers=worst_of([worker.numbers(case, seed=seed, pins=side.choices) for seed in SEEDS]))


def _equal(base: Side, head: Side) -> bool:
    return bool(head.bits) and head.bits == base.bits


def _judged_small(verdict: CaseVerdict, ceiling: float) -> CaseVerdict:
    """Judge what the interpreter computed; what it cannot do is neither right nor wrong."""
    base, head = _uncovered(verdict.base), _uncovered(verdict.head)
    if head and not base and verdict.base.ran:
        return replace(verdict, mark=Mark.UNSURE, reason=f"no longer covered without a GPU: {head}")
    if head:
        return replace(verdict, reason=f"not covered without a GPU: {head}")
    judged = _judged(verdict, ceiling)
    if base and judged.mark is Mark.UNSURE:
        return replace(judged, mark=None, reason=f"not compared: base is not covered without a GPU: {base}")
    return judged


def _uncovered(side: Side) -> str:
    """Return what the interpreter cannot do of a case; "" where that is not why it has no result.

    >>> _uncovered(Side(failure=Failure(kind="NotCovered", message="inline_asm")))
    'inline_asm'
    """
    return side.failure.message if side.failure is not None and side.failure.kind == NotCovered.__name__ else ""


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

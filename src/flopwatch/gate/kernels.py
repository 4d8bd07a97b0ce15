"""Which of the facts of a run are of which case."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flopwatch.gate.result import CaseKernels
from flopwatch.static.launches import Launched

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from flopwatch.gate.result import GateResult
    from flopwatch.gate.static import CompiledSide
    from flopwatch.model import Case, KernelFacts
    from flopwatch.static.comparison import FactChange

_NOTHING = Launched()


def case_kernels(
    cases: Iterable[Case], base: CompiledSide, head: CompiledSide, changes: Mapping[Case, tuple[int, ...]] | None = None
) -> tuple[CaseKernels, ...]:
    """Say of each case where its facts are among those of its side; cases that neither side compiled are left out.

    Args:
        cases: which.
        base: what was compiled of base.
        head: likewise.
        changes: where the changes of a case's own launches are among those of the run.
    """
    places = [{fact.key: index for index, fact in enumerate(side.facts)} for side in (base, head)]
    found = []
    for case in cases:
        of_base, of_head = (
            _positions(side.launched.get(case, _NOTHING).facts, place)
            for side, place in zip((base, head), places, strict=True)
        )
        entry = CaseKernels(
            case=case,
            base=of_base[0],
            head=of_head[0],
            base_trials=of_base[1],
            head_trials=of_head[1],
            changes=(changes or {}).get(case, ()),
        )
        if entry != CaseKernels(case=case):
            found.append(entry)
    return tuple(found)


def facts_of(
    result: GateResult, case: Case
) -> tuple[tuple[list[KernelFacts], list[KernelFacts]], tuple[list[KernelFacts], list[KernelFacts]]]:
    """Return the facts of a case, base's and head's, each as what is launched and what was only tried."""
    entry = next((entry for entry in result.kernels if entry.case == case), CaseKernels(case=case))
    of_base = [[result.base_facts[index] for index in indices] for indices in (entry.base, entry.base_trials)]
    of_head = [[result.facts[index] for index in indices] for indices in (entry.head, entry.head_trials)]
    return (of_base[0], of_base[1]), (of_head[0], of_head[1])


def launch_changes(result: GateResult, case: Case) -> list[FactChange]:
    """Return what the launches of a case show for the worse by what they compute and move."""
    entry = next((entry for entry in result.kernels if entry.case == case), CaseKernels(case=case))
    return [result.fact_changes[index] for index in entry.changes]


def _positions(
    facts: Iterable[KernelFacts], places: dict[tuple[str, str, str, str], int]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return where the facts of what is launched are, and those of what was only tried."""
    chosen = {places[fact.key]: fact.chosen for fact in facts}
    launched = tuple(sorted(index for index, is_chosen in chosen.items() if is_chosen))
    return launched, tuple(sorted(index for index, is_chosen in chosen.items() if not is_chosen))

"""What the compiler did differently where a case got slower: a likely cause, by the facts of the kernels it runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flopwatch.explain.pairing import running
from flopwatch.explain.ranking import CODE, briefs
from flopwatch.gate.kernels import facts_of, launch_changes
from flopwatch.static.comparison import compare_facts

if TYPE_CHECKING:
    from flopwatch.gate import CaseVerdict, GateResult
    from flopwatch.model import KernelFacts
    from flopwatch.static.comparison import FactChange

__all__ = ["CODE", "MAX_CHANGES", "likely_causes"]

#: Changes beyond this many are no cause but a rewrite.
MAX_CHANGES = 5


def likely_causes(result: GateResult, verdict: CaseVerdict) -> tuple[str, ...]:
    """Say what changed in the kernels that a case runs, a line each; empty where that is not known.

    Which kernels and configurations these are is known of every case that was compiled; of autotuned kernels the
    configuration is the one that the GPU chose.
    """
    of_base, of_head = facts_of(result, verdict.case)
    base = _by_kernel(running(*of_base, verdict.base.choices))
    head = _by_kernel(running(*of_head, verdict.head.choices))
    launches = launch_changes(result, verdict.case)
    lines = [
        _line(kernel, base[kernel], head[kernel], [change for change in launches if change.kernel == kernel])
        for kernel in sorted(base.keys() & head.keys())
    ]
    before, after = ({fact.kernel for facts in side for fact in facts} for side in (of_base, of_head))
    if before and after:
        lines += [f"{kernel} is launched, as it is not on base" for kernel in sorted(after - before)]
        lines += [f"{kernel} is no longer launched" for kernel in sorted(before - after)]
    return tuple(lines)


def _line(kernel: str, base: list[KernelFacts], head: list[KernelFacts], launches: list[FactChange]) -> str:
    changes = [*compare_facts(base, head), *launches]
    told = briefs(changes)
    if told:
        more = f"; and {len(told) - MAX_CHANGES} more" if len(told) > MAX_CHANGES else ""
        return f"{kernel}: {'; '.join(told[:MAX_CHANGES])}{more}"
    if changes:
        return f"{kernel}: other code, of equal registers, spills and shared memory"
    return f"{kernel} is compiled to the same code: look at how it is launched, and at the host's code"


def _by_kernel(facts: list[KernelFacts]) -> dict[str, list[KernelFacts]]:
    """Gather the facts of what compiles by kernel."""
    found: dict[str, list[KernelFacts]] = {}
    for fact in facts:
        if fact.failure is None:
            found.setdefault(fact.kernel, []).append(fact)
    return found

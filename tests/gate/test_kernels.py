from __future__ import annotations

from dataclasses import replace

from flopwatch.gate import CaseKernels, GateResult
from flopwatch.gate.kernels import case_kernels, facts_of
from flopwatch.gate.static import CompiledSide
from flopwatch.model import Case, KernelFacts
from flopwatch.static.comparison import merge_facts
from flopwatch.static.launches import Launched

CASES = [Case(suite="VectorAddSizes", values=(str(size), "flopwatch")) for size in (16, 32, 64)]


def fact(config: str, *, chosen: bool = True) -> KernelFacts:
    return KernelFacts(kernel="k", device="h200", config=config, variant="*fp16", chosen=chosen)


def side(*facts: tuple[KernelFacts, ...]) -> CompiledSide:
    """Compile the first cases to these facts."""
    return CompiledSide(
        facts=tuple(merge_facts(fact for of_case in facts for fact in of_case)),
        launched={case: Launched(facts=of_case) for case, of_case in zip(CASES, facts, strict=False)},
    )


def result(base: CompiledSide, head: CompiledSide) -> GateResult:
    return GateResult(
        base="a1b2c3d",
        head="working tree",
        gpu=None,
        device="h200",
        versions={},
        facts=head.facts,
        base_facts=base.facts,
        fact_changes=(),
        verdicts=(),
        kernels=case_kernels(CASES, base, head),
    )


BASE = side((fact("B=1"), fact("B=2", chosen=False)), (fact("B=1", chosen=False), fact("B=2")))
HEAD = side((fact("B=1"),))


def test_each_case_has_its_own_though_facts_are_shared() -> None:
    assert case_kernels(CASES, BASE, HEAD) == (
        CaseKernels(case=CASES[0], base=(0,), head=(0,), base_trials=(1,)),
        CaseKernels(case=CASES[1], base=(1,), base_trials=(0,)),
    )


def test_the_facts_of_a_case_are_found_again() -> None:
    (launched, trials), of_head = facts_of(result(BASE, HEAD), CASES[1])
    assert ([entry.config for entry in launched], [entry.config for entry in trials]) == (["B=2"], ["B=1"])
    assert of_head == ([], [])


def test_a_case_that_nobody_compiled_has_none() -> None:
    assert facts_of(result(BASE, HEAD), CASES[2]) == (([], []), ([], []))
    assert facts_of(replace(result(BASE, HEAD), kernels=()), CASES[0]) == (([], []), ([], []))

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from flopwatch.report.causes import MAX_CHANGES, likely_causes
from flopwatch.static.comparison import Severity

if TYPE_CHECKING:
    from tests.report.conftest import Gates

    from flopwatch.gate import CaseVerdict, GateResult


def untuned(verdict: CaseVerdict) -> CaseVerdict:
    return replace(verdict, base=replace(verdict.base, choices=()), head=replace(verdict.head, choices=()))


def test_the_facts_of_the_chosen_configurations_are_compared(gates: Gates) -> None:
    assert likely_causes(gates.slower, gates.slower.verdicts[1]) == (
        "matmul_kernel: num_stages=3 -> num_stages=1; spills 0 B -> 192 B; registers 168 -> 255",
    )


def test_every_launch_of_a_kernel_is_looked_at(gates: Gates) -> None:
    verdict = gates.slower.verdicts[1]
    (choice,) = verdict.base.choices
    twice = replace(verdict, head=replace(verdict.head, choices=(replace(choice, key="16"), *verdict.head.choices)))
    assert "spills 0 B -> 192 B" in likely_causes(gates.slower, twice)[0]


def test_what_the_launches_of_the_case_do_is_a_cause(gates: Gates) -> None:
    verdict = gates.slower.verdicts[3]
    (entry,) = (entry for entry in gates.slower.kernels if entry.case == verdict.case)
    lost = replace(
        gates.slower.fact_changes[0],
        kernel="matmul_kernel",
        fact="wave reuse",
        base="9.4x",
        head="5.7x",
        severity=Severity.WARN,
    )
    changes = (*gates.slower.fact_changes, lost)
    others = tuple(other for other in gates.slower.kernels if other.case != verdict.case)
    kernels = (*others, replace(entry, changes=(len(changes) - 1,)))
    result = replace(gates.slower, fact_changes=changes, kernels=kernels)
    assert likely_causes(result, verdict) == ("matmul_kernel: shares less in the L2 cache: 9.4x -> 5.7x",)
    assert "L2" not in likely_causes(result, gates.slower.verdicts[1])[0]


def test_facts_of_other_cases_are_no_cause(gates: Gates) -> None:
    assert likely_causes(gates.slower, gates.slower.verdicts[3]) == (
        "matmul_kernel is compiled to the same code: look at how it is launched, and at the host's code",
    )


def test_a_kernel_without_a_tuner_is_known_by_the_case_whatever_its_suite_is_called(gates: Gates) -> None:
    verdict = untuned(gates.slower.verdicts[1])
    renamed = replace(verdict, case=replace(verdict.case, suite="MatmulSizes"))
    result = replace(gates.slower, verdicts=(renamed,))
    assert likely_causes(result, renamed) == ()
    (of_the_case,) = (entry for entry in gates.slower.kernels if entry.case == verdict.case)
    result = replace(result, kernels=(replace(of_the_case, case=renamed.case),))
    assert likely_causes(result, renamed)[0].startswith("matmul_kernel: num_stages=3 -> num_stages=1")


def test_of_what_a_tuner_tried_the_choice_of_the_gpu_is_the_cause(gates: Gates) -> None:
    verdict = gates.slower.verdicts[1]
    (launched, *others) = gates.slower.kernels[1:2]
    tried = replace(launched, base=(), head=(), base_trials=(0,), head_trials=(0,))
    result = replace(gates.slower, kernels=(tried, *others))
    assert likely_causes(result, verdict) == likely_causes(gates.slower, verdict)
    assert likely_causes(result, untuned(verdict)) == ()


def test_kernels_that_are_launched_on_one_side_only_are_named(gates: Gates) -> None:
    verdict = untuned(gates.slower.verdicts[1])
    other = replace(gates.slower.facts[0], kernel="cast_kernel")
    entry = replace(gates.slower.kernels[1], head=(0, 2))
    result = replace(gates.slower, facts=(*gates.slower.facts, other), kernels=(entry,))
    assert likely_causes(result, verdict)[1:] == ("cast_kernel is launched, as it is not on base",)
    turned = replace(
        result,
        facts=result.base_facts,
        base_facts=result.facts,
        kernels=(replace(entry, base=entry.head, head=entry.base),),
    )
    assert likely_causes(turned, verdict)[1:] == ("cast_kernel is no longer launched",)


def test_nothing_is_guessed_where_no_fact_is_known(gates: Gates) -> None:
    assert likely_causes(replace(gates.slower, kernels=()), gates.slower.verdicts[1]) == ()


def test_code_that_differs_in_no_number_is_said_to(gates: Gates) -> None:
    def with_code(result: GateResult, code: str) -> GateResult:
        return replace(result, facts=tuple(replace(fact, code_fingerprint=code) for fact in result.base_facts))

    verdict = gates.slower.verdicts[0]
    assert likely_causes(with_code(gates.slower, "new"), verdict) == (
        "matmul_kernel: other code, of equal registers, spills and shared memory",
    )


def test_a_rewrite_is_cut_short(gates: Gates) -> None:
    verdict = gates.slower.verdicts[1]
    (head, *others) = gates.slower.facts
    rewritten = replace(head, occupancy=0.5, shared_bytes=1, stack_bytes=8, registers=32)
    (cause,) = likely_causes(replace(gates.slower, facts=(rewritten, *others)), verdict)
    assert cause.endswith("; and 1 more")
    assert cause.count(";") == MAX_CHANGES


def test_what_tells_most_goes_first(gates: Gates) -> None:
    verdict = gates.slower.verdicts[1]
    counted = {"HGMMA.64x128x16.F32": 4, "LDGSTS.128": 24, "all": 500}
    base = tuple(replace(fact, instructions=counted) for fact in gates.slower.base_facts)
    facts = tuple(replace(fact, instructions={"FFMA": 4096, "all": 5000}, occupancy=0.1) for fact in gates.slower.facts)
    (cause,) = likely_causes(replace(gates.slower, base_facts=base, facts=facts), verdict)
    assert cause.split("; ")[:5] == [
        "matmul_kernel: num_stages=3 -> num_stages=1",
        "lost its tensor cores: 4 HGMMA -> none, 4096 FFMA",
        "lost its pipelining: 24 LDGSTS -> none",
        "spills 0 B -> 192 B",
        "occupancy 12.5% -> 10.0%",
    ]


def test_instructions_of_any_name_and_number_are_read(gates: Gates) -> None:
    """A result that somebody else wrote may have any."""
    verdict = gates.slower.verdicts[1]
    names = ("LDG", "LDG.", "LDG.0", "LDG.x", "STG." + "9" * 70, "MMA", "XMMA.1", "UTCMMA", "LDGSTS.128", "BAR", "all")
    some = {name: index for index, name in enumerate(names)}
    for old, new in ((some, {"all": 0}), ({"FFMA": 1}, some), (some, dict.fromkeys(names, 10**18))):
        base = tuple(replace(fact, instructions=old, loop_instructions=new) for fact in gates.slower.base_facts)
        facts = tuple(replace(fact, instructions=new, loop_instructions=old) for fact in gates.slower.facts)
        assert likely_causes(replace(gates.slower, base_facts=base, facts=facts), verdict)


def test_of_two_kernels_of_one_name_the_one_that_changed_is_the_cause(gates: Gates) -> None:
    numbered = "matmul_kernel (2)"
    verdict = gates.slower.verdicts[1]
    others = tuple(replace(fact, kernel=numbered) for fact in gates.slower.base_facts)
    changed = tuple(replace(fact, kernel=numbered) for fact in gates.slower.facts)
    places = range(len(others))
    both = replace(
        gates.slower,
        base_facts=(*gates.slower.base_facts, *others),
        facts=(*gates.slower.base_facts, *changed),
        kernels=tuple(
            replace(
                entry,
                base=(*entry.base, *(len(places) + place for place in entry.base)),
                head=(*entry.base, *(len(places) + place for place in entry.head)),
            )
            for entry in gates.slower.kernels
        ),
    )
    same, cause = likely_causes(both, verdict)
    assert same.startswith("matmul_kernel is compiled to the same code")
    assert cause.startswith("matmul_kernel (2): num_stages=3 -> num_stages=1")

from __future__ import annotations

from dataclasses import replace

from flopwatch.model import Case, Failure, KernelFacts
from flopwatch.static.comparison import Severity
from flopwatch.static.launches import Launched, compare_cases, compare_launches, name_apart
from flopwatch.static.traffic import OutOfBounds, Traffic

CASES = [Case(suite="Scale", values=(str(size), "flopwatch")) for size in (10, 20, 30)]
FACT = KernelFacts(kernel="k", device="h200", config="B=1", variant="*fp16:16,i32", chosen=True, code_fingerprint="a")
LAUNCH = Traffic(
    kernel="k",
    device="h200",
    config="B=1",
    variant="*fp16:16,i32",
    grid=(4,),
    programs=4,
    evaluated=4,
    dot_flops={"f16": 1000},
    compulsory_bytes=64,
)
MORE = replace(LAUNCH, dot_flops={"f16": 1880})
STRAY = OutOfBounds(
    operation="tt.load",
    where="kernel.py:7",
    argument="x",
    programs=1,
    first_program=(3, 0, 0),
    before_bytes=0,
    past_bytes=48,
    allocation_bytes=2048,
)
ASTRAY = replace(LAUNCH, out_of_bounds=(STRAY,))


def launched(*traffic: Traffic, fact: KernelFacts = FACT) -> Launched:
    return Launched(facts=(fact,), traffic=traffic)


def found(base: Launched, head: Launched) -> list[tuple[str, Severity]]:
    return [(change.fact, change.severity) for change in compare_launches(base, head)]


def test_more_work_warns_and_what_leaves_its_tensors_fails() -> None:
    head = replace(MORE, out_of_bounds=(STRAY,))
    assert [("out of bounds", Severity.FAIL), ("dot flops", Severity.WARN)] == found(launched(LAUNCH), launched(head))


def test_what_base_does_as_well_in_any_launch_of_the_kernel_does_not_fail() -> None:
    other = replace(ASTRAY, grid=(8,))
    assert [] == found(launched(ASTRAY), launched(replace(ASTRAY, out_of_bounds=(replace(STRAY, past_bytes=96),))))
    assert [] == found(launched(other, LAUNCH), launched(ASTRAY))


def test_a_launch_that_base_does_not_have_fails_where_it_leaves_its_tensors_and_says_nothing_else() -> None:
    assert [("out of bounds", Severity.FAIL)] == found(Launched(), launched(replace(MORE, out_of_bounds=(STRAY,))))
    assert [] == found(Launched(), launched(MORE))


def test_a_renamed_kernel_is_held_against_what_it_was() -> None:
    renamed = launched(replace(MORE, kernel="new"), fact=replace(FACT, kernel="new"))
    assert [("dot flops", Severity.WARN)] == found(launched(LAUNCH), renamed)


def test_other_arguments_of_the_same_types_are_held_against_what_they_were() -> None:
    swapped = launched(replace(MORE, variant="i32,*fp16:16"), fact=replace(FACT, variant="i32,*fp16:16"))
    assert [("dot flops", Severity.WARN)] == found(launched(LAUNCH), swapped)


def test_launches_are_paired_by_grid_and_configuration_before_their_order() -> None:
    small, large = replace(LAUNCH, grid=(2,), dot_flops={"f16": 10}), LAUNCH
    assert [] == found(launched(small, large), launched(large, small))
    other = replace(MORE, grid=(5,))
    assert [("dot flops", Severity.WARN)] == found(launched(small, large), launched(small, other))


def test_what_is_left_over_is_compared_only_where_both_sides_have_as_many() -> None:
    two = launched(replace(MORE, grid=(2,)), replace(MORE, grid=(3,)))
    assert [("launches", Severity.WARN)] == found(launched(LAUNCH), two)
    assert [] == found(two, launched(LAUNCH))


def test_what_base_may_do_as_well_warns() -> None:
    for unknown in (replace(LAUNCH, uncovered=("tt.new",)), replace(LAUNCH, data_dependent=("a loop",))):
        assert [("out of bounds", Severity.WARN)] == found(launched(unknown), launched(ASTRAY))


def test_a_finding_of_several_cases_is_told_once_and_names_the_first() -> None:
    base = dict.fromkeys(CASES, launched(LAUNCH))
    further = replace(ASTRAY, out_of_bounds=(replace(STRAY, past_bytes=96, programs=5),))
    head = {CASES[0]: launched(LAUNCH), CASES[1]: launched(ASTRAY), CASES[2]: launched(further)}
    ((change, cases),) = compare_cases(base, head)

    text = "load at kernel.py:7 ends 48 B past x (2 KiB), in 1 program, first (3, 0, 0)"
    assert f"{text}, in Scale[20,flopwatch] and 1 more" == change.head
    assert f"k on h200 [B=1]: leaves its tensors: {change.head}" == change.text
    assert (CASES[1], CASES[2]) == cases


OTHER = replace(FACT, code_fingerprint="b", registers=200)


def names(side: dict[Case, Launched]) -> list[list[tuple[str, str]]]:
    return [[(fact.kernel, fact.code_fingerprint) for fact in launched.facts] for launched in side.values()]


def cases(*facts: tuple[KernelFacts, ...]) -> dict[Case, Launched]:
    return {case: Launched(facts=of_case) for case, of_case in zip(CASES, facts, strict=False)}


def test_kernels_of_one_name_in_different_cases_are_one_unless_their_facts_say_otherwise() -> None:
    elsewhere = replace(OTHER, variant="*fp32:16,i32")
    (side,) = name_apart(cases((FACT,), (elsewhere,), (replace(FACT, chosen=False),)))
    assert names(side) == [[("k", "a")], [("k", "b")], [("k", "a")]]
    (side,) = name_apart(cases((FACT,), (OTHER,), (FACT,)))
    assert names(side) == [[("k", "a")], [("k (2)", "b")], [("k", "a")]]


def test_what_a_case_numbered_itself_gets_its_number_through_all_cases() -> None:
    (side,) = name_apart(
        cases((FACT, replace(OTHER, kernel="k (2)")), (OTHER, replace(FACT, kernel="k (2)")), (OTHER,))
    )
    assert names(side) == [[("k", "a"), ("k (2)", "b")], [("k (2)", "b"), ("k", "a")], [("k (2)", "b")]]


def test_sides_have_the_same_names_though_only_one_tells_them_apart() -> None:
    moved = replace(FACT, config="B=2")
    base, head = name_apart(cases((FACT,), (OTHER,)), cases((moved,), (OTHER,)))
    assert names(base) == [[("k", "a")], [("k (2)", "b")]]
    assert names(head) == [[("k", "a")], [("k (2)", "b")]]


def test_launches_are_renamed_with_their_kernel() -> None:
    (side,) = name_apart({CASES[0]: launched(LAUNCH), CASES[1]: launched(LAUNCH, fact=OTHER)})
    assert [[one.kernel for one in of_case.traffic] for of_case in side.values()] == [["k"], ["k (2)"]]


def test_code_that_ptxas_does_not_repeat_is_no_other_kernel() -> None:
    first, second = (replace(FACT, device="b200", code_fingerprint=code) for code in "ab")
    (side,) = name_apart(cases((first,), (second,), (replace(second, registers=200),)))
    assert [[name for name, _ in of_case] for of_case in names(side)] == [["k"], ["k"], ["k (2)"]]


def test_a_failure_is_of_the_same_kernel_where_it_is_of_the_same_kind() -> None:
    failed = [
        replace(FACT, failure=Failure(kind=kind, message=message))
        for kind, message in (
            ("OutOfResources", "at 0x1"),
            ("OutOfResources", "at 0x2"),
            ("CompilationError", "at 0x1"),
        )
    ]
    (side,) = name_apart(cases(*((fact,) for fact in failed)))
    assert [[name for name, _ in of_case] for of_case in names(side)] == [["k"], ["k"], ["k (2)"]]

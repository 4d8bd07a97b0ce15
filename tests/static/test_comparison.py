from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from flopwatch.model import Failure, KernelFacts, from_json, to_json
from flopwatch.static.comparison import FactChange, Severity, compare_facts

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Facts = dict[str, tuple[KernelFacts, ...]]

BASE = KernelFacts(
    kernel="matmul",
    device="h200",
    config="BLOCK_M=64,num_stages=3,num_warps=4",
    variant="*fp16:16,i32",
    chosen=True,
    registers=168,
    spill_store_bytes=0,
    spill_load_bytes=0,
    stack_bytes=0,
    shared_bytes=49152,
    num_warps=4,
    num_stages=3,
    occupancy=0.25,
    occupancy_limit="shared memory",
    code_fingerprint="a",
)
LOST = replace(
    BASE,
    registers=None,
    spill_store_bytes=None,
    spill_load_bytes=None,
    shared_bytes=None,
    occupancy=None,
    code_fingerprint="",
    failure=Failure(kind="OutOfResources", message="out of resource: shared memory\nmore"),
)


def seen(changes: tuple[FactChange, ...]) -> list[tuple[str, str, str, Severity]]:
    return [(change.fact, change.base, change.head, change.severity) for change in changes]


def test_equal_fingerprints_are_unchanged_whatever_else_differs() -> None:
    assert compare_facts([BASE], [replace(BASE, occupancy_limit="registers", registers=1)]) == ()


def test_new_spills_are_a_warning() -> None:
    head = replace(BASE, spill_store_bytes=40, spill_load_bytes=56, code_fingerprint="b")
    (change,) = compare_facts([BASE], [head])
    assert change.severity is Severity.WARN
    assert change.text == "matmul on h200 [BLOCK_M=64,num_stages=3,num_warps=4]: spills 0 B -> 96 B"


def test_fewer_spills_are_a_note() -> None:
    base = replace(BASE, spill_store_bytes=40, spill_load_bytes=56)
    changes = compare_facts([base], [replace(BASE, code_fingerprint="b")])
    assert seen(changes) == [("spills", "96 B", "0 B", Severity.NOTE)]


def test_an_occupancy_step_down_is_a_warning_and_up_a_note() -> None:
    head = replace(BASE, occupancy=0.125, registers=255, code_fingerprint="b")
    assert seen(compare_facts([BASE], [head])) == [
        ("occupancy", "25.0%", "12.5%", Severity.WARN),
        ("registers", "168", "255", Severity.NOTE),
    ]
    assert seen(compare_facts([head], [BASE]))[0] == ("occupancy", "12.5%", "25.0%", Severity.NOTE)


def test_the_occupancy_of_another_tile_is_its_own() -> None:
    one, several = "BLOCK_M=64,num_stages=4,num_warps=4", "BLOCK_M=128,num_stages=4,num_warps=4"
    head = replace(BASE, occupancy=0.125, spill_store_bytes=8, code_fingerprint="b")
    changes = [compare_facts([BASE], [replace(head, config=config)]) for config in (one, several)]
    assert [[change.fact for change in found if change.severity is Severity.WARN] for found in changes] == [
        ["spills", "occupancy"],
        ["spills"],
    ]


def test_changed_code_with_equal_numbers_is_a_note() -> None:
    changes = compare_facts([BASE], [replace(BASE, code_fingerprint="b")])
    assert seen(changes) == [("code", "a", "b", Severity.NOTE)]


def test_changed_code_says_nothing_where_the_compiler_does_not_repeat_itself() -> None:
    base = replace(BASE, device="b200")
    assert compare_facts([base], [replace(base, code_fingerprint="b")]) == ()
    assert len(compare_facts([base], [replace(base, code_fingerprint="b", registers=255)])) == 1


def test_what_no_longer_fits_is_a_failure() -> None:
    (change,) = compare_facts([BASE], [LOST])
    assert change.severity is Severity.FAIL
    assert change.text.endswith("compiles and fits yes -> no (OutOfResources: out of resource: shared memory)")


def test_what_fits_again_is_a_note() -> None:
    assert [change.severity for change in compare_facts([LOST], [BASE])] == [Severity.NOTE]


def test_what_never_fitted_is_nothing() -> None:
    assert compare_facts([LOST], [LOST]) == ()


def test_configurations_that_come_and_go_are_notes() -> None:
    other = replace(BASE, config="BLOCK_M=128,num_stages=3,num_warps=8", chosen=False)
    assert seen(compare_facts([BASE], [BASE, other])) == [("configuration", "", other.config, Severity.NOTE)]
    assert seen(compare_facts([BASE, other], [BASE])) == [("configuration", other.config, "", Severity.NOTE)]


def test_a_new_configuration_that_does_not_fit_is_a_warning() -> None:
    other = replace(LOST, config="BLOCK_M=512,num_stages=3,num_warps=8", chosen=False)
    assert Severity.WARN in {change.severity for change in compare_facts([BASE], [BASE, other])}


def test_a_changed_choice_is_compared_with_what_was_chosen_before() -> None:
    head = replace(
        BASE,
        config="BLOCK_M=64,num_stages=3,num_warps=1",
        num_warps=1,
        registers=255,
        spill_store_bytes=96,
        code_fingerprint="b",
    )
    changes = compare_facts([BASE], [head])
    assert changes[0].text == "matmul on h200: configuration changed: num_warps=4 -> num_warps=1"
    assert seen(changes)[1:] == [
        ("spills", "0 B", "96 B", Severity.WARN),
        ("registers", "168", "255", Severity.NOTE),
        ("warps", "4", "1", Severity.NOTE),
    ]


def test_changed_choices_are_paired_with_the_most_similar() -> None:
    base = [replace(BASE, config=f"D={d},num_stages=3", code_fingerprint=str(d)) for d in (32, 64)]
    head = [replace(BASE, config=f"D={d},num_stages=1", code_fingerprint=f"{d}'") for d in (32, 64)]
    pairs = [(change.base, change.head) for change in compare_facts(base, head) if change.fact == "configuration"]
    assert pairs == [("D=32,num_stages=3", "D=32,num_stages=1"), ("D=64,num_stages=3", "D=64,num_stages=1")]


def test_a_kernel_with_new_arguments_is_compared_all_the_same() -> None:
    head = replace(BASE, variant="*fp16:16,i32,i32", spill_store_bytes=8, code_fingerprint="b")
    changes = compare_facts([BASE], [head])
    assert seen(changes) == [
        ("arguments", "*fp16:16,i32", "*fp16:16,i32,i32", Severity.NOTE),
        ("spills", "0 B", "8 B", Severity.WARN),
    ]
    assert changes[0].text == "matmul on h200: arguments *fp16:16,i32 -> *fp16:16,i32,i32"


def test_a_configuration_that_two_cases_share_is_compared_once() -> None:
    head = replace(BASE, registers=170, code_fingerprint="b")
    assert len(compare_facts([BASE, replace(BASE, chosen=False)], [head, head])) == 1


SPILLING = replace(BASE, spill_store_bytes=8, code_fingerprint="b")


def test_a_renamed_kernel_of_equal_code_is_no_change() -> None:
    assert compare_facts([BASE], [replace(BASE, kernel="product")]) == ()


def test_a_renamed_kernel_of_other_code_is_compared_with_what_it_was_called() -> None:
    changes = compare_facts([BASE], [replace(SPILLING, kernel="product")])
    assert seen(changes) == [("kernel", "matmul", "product", Severity.NOTE), ("spills", "0 B", "8 B", Severity.WARN)]
    assert changes[0].text == "product on h200: was called matmul"


def test_a_fingerprint_has_the_name_of_its_kernel_which_is_no_change_of_code() -> None:
    assert compare_facts([BASE], [replace(BASE, kernel="product", code_fingerprint="b")]) == ()


def test_a_kernel_instead_of_another_one_is_not_compared_with_it() -> None:
    head = replace(SPILLING, kernel="softmax", variant="*fp32:16", config="BLOCK=1024")
    assert [change.severity for change in compare_facts([BASE], [head])] == [Severity.NOTE] * 2


def test_equal_code_under_another_configuration_and_other_arguments_is_no_change() -> None:
    head = replace(BASE, config="BLOCK_M=64,SPLIT=1,num_stages=3,num_warps=4", variant="i32,*fp16:16")
    assert compare_facts([BASE], [head]) == ()


def test_a_configuration_of_the_tuners_that_differs_in_one_setting_is_compared() -> None:
    base = [replace(BASE, config=f"D={d},num_stages=3", chosen=False, code_fingerprint=f"{d}") for d in (32, 64)]
    head = [replace(SPILLING, config=f"D={d},num_stages=1", chosen=False) for d in (32, 64)]
    changes = compare_facts(base, head)
    assert [change.brief for change in changes] == [
        "configuration D=32,num_stages=3 -> D=32,num_stages=1",
        "spills 0 B -> 8 B",
        "configuration D=64,num_stages=3 -> D=64,num_stages=1",
        "spills 0 B -> 8 B",
    ]


def test_a_configuration_of_the_tuners_instead_of_another_one_is_not_compared_with_it() -> None:
    head = replace(SPILLING, config="BLOCK_M=128,num_stages=1,num_warps=8", chosen=False)
    changes = compare_facts([replace(BASE, chosen=False)], [head])
    assert [change.fact for change in changes] == ["configuration", "configuration"]


def test_a_tuner_that_has_the_same_configurations_in_another_order_is_no_change() -> None:
    other = replace(BASE, config="BLOCK_M=128,num_stages=1,num_warps=8", registers=32, code_fingerprint="b")
    assert compare_facts([BASE, replace(other, chosen=False)], [replace(BASE, chosen=False), other]) == ()


def test_another_setting_that_does_not_fit_is_a_failure_only_where_nothing_else_does() -> None:
    old = [replace(BASE, config=f"D={d},num_stages=3", chosen=False, code_fingerprint=f"{d}") for d in (32, 64)]
    lost = [replace(LOST, config=f"D={d},num_stages=9", chosen=False) for d in (32, 64)]
    fits = replace(old[1], config="D=64,num_stages=9")
    some, none = compare_facts(old, [lost[0], fits]), compare_facts(old, lost)
    assert [change.severity for change in some if change.fact == "compiles and fits"] == [Severity.WARN]
    assert [change.severity for change in none if change.fact == "compiles and fits"] == [Severity.FAIL] * 2


def test_spills_fail_together_with_lost_tensor_cores_and_neither_fails_alone() -> None:
    base = replace(BASE, instructions={"HGMMA.64x128x16.F32": 4, "all": 500})
    slow = replace(base, instructions={"FFMA": 4096, "all": 5000}, code_fingerprint="b")
    both = replace(slow, spill_store_bytes=96)
    assert [change.severity for change in compare_facts([base], [slow])] == [Severity.WARN]
    assert seen(compare_facts([base], [both])) == [
        ("tensor cores", "4 HGMMA", "none, 4096 FFMA", Severity.FAIL),
        ("spills", "0 B", "96 B", Severity.FAIL),
    ]


def test_changes_survive_json() -> None:
    changes = compare_facts([BASE], [LOST])
    assert from_json(to_json(changes), tuple[FactChange, ...]) == changes


def test_a_planted_spill_is_found(edits: Facts) -> None:
    changes = compare_facts(edits["base"], edits["spill"])
    (spills,) = [change for change in changes if change.fact == "spills"]
    assert spills.severity is Severity.WARN
    assert spills.base == "0 B"
    assert spills.head != "0 B"


def test_one_stage_instead_of_three_is_a_changed_configuration_and_less_shared_memory(edits: Facts) -> None:
    changes = compare_facts(edits["base"], edits["stages"])
    assert changes[0].text == "matmul on h200: configuration changed: num_stages=3 -> num_stages=1"
    assert ("shared memory", "48 KiB", "16 KiB", Severity.NOTE) in seen(changes)


def test_a_comment_is_no_change(edits: Facts) -> None:
    assert compare_facts(edits["base"], edits["comment"]) == ()


def test_a_changed_immediate_is_a_change(edits: Facts) -> None:
    assert compare_facts(edits["base"], edits["literal"]) != ()


DOT = """tl.dot(tl.load(a, mask=k[None, :] < K - start, other=0.0),
                       tl.load(b, mask=k[:, None] < K - start, other=0.0), total)"""
FLOAT32 = DOT.replace("other=0.0)", "other=0.0).to(tl.float32)")
TILE = "BLOCK_M=64, BLOCK_N=64, BLOCK_K=64, GROUP_M=8, num_warps=4, num_stages=3"
BIG = "BLOCK_M=128, BLOCK_N=128, BLOCK_K=64, GROUP_M=8, num_warps=8, num_stages=3"
#: Edits of the matmul in tiles of 128 x 128: what is replaced, and by what.
PLANTED = {
    "base": ("", ""),
    "stages": ("num_stages=3", "num_stages=1"),
    "ieee": (DOT, FLOAT32.replace(", total)", ', total, input_precision="ieee")')),
    "float32": (DOT, FLOAT32),
    "strides": ("@triton.jit", "@triton.jit(do_not_specialize=['stride_am', 'stride_ak', 'stride_bk', 'stride_bn'])"),
    "uncoalesced": ("b, c = torch.empty_like(a),", "b, c = torch.cat([a, a], dim=1)[:, ::2],"),
    "block": ("BLOCK_K=64, GROUP_M", "BLOCK_K=16, GROUP_M"),
    "warps": ("num_warps=8", "num_warps=4"),
    "renamed": ("total", "summed"),
    "in place": (f"total = {DOT}", f"total += {DOT.replace(', total)', ')')}"),
}


@pytest.fixture(scope="module")
def planted(compile_sources: Callable[[Mapping[str, str]], Facts], matmul_source: str) -> Facts:
    sources = {}
    for name, (old, new) in PLANTED.items():
        source = matmul_source.replace(TILE, BIG)
        assert old in source
        sources[name.replace(" ", "_")] = source.replace(old, new) if old else source
    return compile_sources(sources)


def warnings(planted: Facts, name: str) -> list[str]:
    changes = compare_facts(planted["base"], planted[name])
    return [change.brief for change in changes if change.severity is Severity.WARN]


def test_one_stage_instead_of_three_is_lost_pipelining(planted: Facts) -> None:
    assert warnings(planted, "stages") == ["lost its pipelining: 24 LDGSTS -> none"]


def test_a_dot_of_full_precision_has_lost_its_tensor_cores(planted: Facts) -> None:
    assert warnings(planted, "ieee")[0] == "lost its tensor cores: 4 HGMMA -> none, 4096 FFMA"


def test_a_dot_of_float32_has_slower_tensor_cores(planted: Facts) -> None:
    (first, *_) = warnings(planted, "float32")
    assert first == "slower tensor cores: 4 HGMMA.64x128x16.F32 -> 8 HGMMA.64x128x8.F32.TF32"


def test_strides_that_are_not_specialised_are_narrower_loads_that_are_not_pipelined(planted: Facts) -> None:
    assert warnings(planted, "strides")[:2] == [
        "lost its pipelining: 24 LDGSTS -> none",
        "narrower loads: 8 of 128 bits -> 64 of 16 bits",
    ]


def test_an_operand_that_is_not_contiguous_is_narrower_loads(planted: Facts) -> None:
    (first, *_) = warnings(planted, "uncoalesced")
    assert first == "narrower loads: 8 of 128 bits -> 4 of 128 bits, 32 of 16 bits"


def test_steps_of_a_quarter_of_the_depth_are_longer_loops(planted: Facts) -> None:
    (longer,) = warnings(planted, "block")
    assert re.fullmatch(r"longer loops: 1\d\d instructions -> 2\d\d for the same work", longer)


def test_another_number_of_warps_loses_nothing(planted: Facts) -> None:
    assert [text for text in warnings(planted, "warps") if not text.startswith(("occupancy", "spills"))] == []


@pytest.mark.parametrize("name", ["renamed", "in_place"])
def test_a_refactoring_is_no_change(planted: Facts, name: str) -> None:
    assert compare_facts(planted["base"], planted[name]) == ()

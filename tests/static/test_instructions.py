from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tests.static.test_comparison import BASE, seen

from flopwatch.static.comparison import Severity, compare_facts

if TYPE_CHECKING:
    from flopwatch.model import KernelFacts

COUNTED = replace(
    BASE,
    code_bytes=10400,
    instructions={"HGMMA.64x128x16.F32": 4, "LDGSTS.128": 24, "STG.128": 8, "BAR": 5, "all": 650},
    loop_instructions={"HGMMA.64x128x16.F32": 4, "LDGSTS.128": 8, "BAR": 2, "all": 109},
)


def found(
    whole: dict[str, int], loops: dict[str, int] | None = None, *, base: KernelFacts = COUNTED, **changed: object
) -> list[str]:
    """Compare with a head that has these instructions too; 0 is none."""
    head = replace(
        base,
        code_fingerprint="b",
        instructions={name: count for name, count in {**base.instructions, **whole}.items() if count},
        loop_instructions={name: count for name, count in {**base.loop_instructions, **(loops or {})}.items() if count},
        **changed,  # type: ignore[arg-type] # of the facts
    )
    return [f"{change.severity.value}: {change.brief}" for change in compare_facts([base], [head])]


def other_code(findings: list[str]) -> bool:
    return findings == ["note: code a -> b"]


def test_lost_tensor_cores_are_named_with_what_is_there_instead() -> None:
    assert found({"HGMMA.64x128x16.F32": 0, "FFMA": 4096}) == [
        "warn: lost its tensor cores: 4 HGMMA -> none, 4096 FFMA"
    ]


def test_tensor_cores_that_are_new_are_a_note() -> None:
    base = replace(COUNTED, instructions={"all": 650})
    assert found({"HMMA.16816.F32": 64}, base=base) == ["note: tensor cores none -> 64 HMMA"]


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        ("HGMMA.64x128x16.F32", "HMMA.16816.F32", "4 HGMMA -> 4 HMMA"),
        ("UTCHMMA", "HGMMA.64x128x16.F32", "4 UTCHMMA -> 4 HGMMA"),
        ("HMMA.16816.F32", "HMMA.1688.F32.TF32", "4 HMMA.16816.F32 -> 4 HMMA.1688.F32.TF32"),
        (
            "QGMMA.64x128x32.F32.E4M3.E4M3",
            "HGMMA.64x128x16.F32",
            "4 QGMMA.64x128x32.F32.E4M3.E4M3 -> 4 HGMMA.64x128x16.F32",
        ),
        ("HMMA.16816.F32", "DMMA.8x8x4", "4 HMMA.16816.F32 -> 4 DMMA.8x8x4"),
    ],
)
def test_a_fallback_to_slower_tensor_cores_is_a_warning_and_the_way_back_is_none(old: str, new: str, text: str) -> None:
    base = replace(COUNTED, instructions={old: 4, "all": 650})
    assert found({old: 0, new: 4}, base=base) == [f"warn: slower tensor cores: {text}"]
    back = replace(COUNTED, instructions={new: 4, "all": 650})
    assert found({new: 0, old: 4}, base=back)[0].startswith("note: tensor core format")


def test_other_shapes_and_numbers_of_the_same_tensor_cores_are_nothing() -> None:
    assert other_code(found({"HGMMA.64x128x16.F32": 0, "HGMMA.64x64x16.F32.BF16": 16}))


def test_lost_asynchronous_copies_are_lost_pipelining() -> None:
    assert found({"LDGSTS.128": 0, "LDG.128": 8}, {"LDGSTS.128": 0, "LDG.128": 8}) == [
        "warn: lost its pipelining: 24 LDGSTS -> none"
    ]


def test_tma_that_no_longer_runs_ahead_is_lost_pipelining() -> None:
    base = replace(COUNTED, instructions={"UTMALDG": 6, "all": 300}, loop_instructions={"UTMALDG": 2, "all": 100})
    assert found({"UTMALDG": 2}, base=base) == ["warn: lost its pipelining: 4 copies ahead of the loop -> none"]
    assert other_code(found({"UTMALDG": 4}, base=base))


def test_lost_tma_is_named() -> None:
    base = replace(COUNTED, instructions={"UTMALDG": 6, "UTMASTG": 1, "all": 300}, loop_instructions={})
    assert found({"UTMALDG": 0, "UTMASTG": 0, "LDGSTS.128": 24}, base=base) == [
        "warn: lost its TMA loads: 6 UTMALDG -> 24 LDGSTS",
        "warn: lost its TMA stores: 1 UTMASTG -> none",
    ]


def test_narrower_accesses_are_named() -> None:
    assert found({"STG.128": 0, "STG.16": 64}) == ["warn: narrower stores: 8 of 128 bits -> 64 of 16 bits"]
    assert found({"LDGSTS.128": 12, "LDG.16": 32}, {"LDGSTS.128": 4, "LDG.16": 32}) == [
        "warn: narrower loads: 8 of 128 bits -> 4 of 128 bits, 32 of 16 bits"
    ]


def test_scalars_that_are_read_besides_are_no_narrower_accesses() -> None:
    base = replace(COUNTED, instructions={"LDG.128": 1, "all": 50}, loop_instructions={})
    assert other_code(found({"LDG.32": 5}, base=base))


def test_fewer_accesses_of_a_smaller_tile_are_not_narrower() -> None:
    assert other_code(found({"LDGSTS.128": 6, "LDG.32": 1}, {"LDGSTS.128": 2}))


def test_local_memory_in_a_loop_is_named_beside_spills() -> None:
    assert found({"LDL.32": 9, "STL.64": 3}, {"LDL.32": 2}, spill_store_bytes=24, spill_load_bytes=36) == [
        "warn: new local memory: none -> 2 LDL in loops",
        "warn: spills 0 B -> 60 B",
    ]


def test_local_memory_outside_of_loops_is_named_only_where_it_is_no_spill() -> None:
    assert found({"LDL.32": 2}) == ["warn: new local memory: none -> 2 LDL"]
    assert found({"LDL.32": 2}, spill_store_bytes=8, spill_load_bytes=8) == ["warn: spills 0 B -> 16 B"]


def test_double_precision_is_named() -> None:
    assert found({"DMUL": 64}) == ["warn: new double precision: none -> 64 DMUL"]


def test_longer_loops_are_named_with_what_they_have_more_of() -> None:
    assert found({}, {"all": 158, "INT64": 40}) == ["warn: longer loops: 109 instructions -> 158, 40 more INT64"]
    assert found({}, {"all": 158}) == ["warn: longer loops: 109 instructions -> 158"]


def test_slightly_longer_loops_are_other_code() -> None:
    assert other_code(found({}, {"all": 130}))
    short = replace(COUNTED, loop_instructions={"all": 10})
    assert other_code(found({}, {"all": 25}, base=short))


def test_an_unrolled_loop_is_not_longer_for_what_it_multiplies() -> None:
    assert other_code(found({}, {"HGMMA.64x128x16.F32": 16, "BAR": 8, "all": 400}))
    assert found({}, {"HGMMA.64x128x16.F32": 1, "all": 50}) == [
        "warn: longer loops: 109 instructions -> 200 for the same work"
    ]


def test_an_unrolled_loop_is_not_longer_for_what_it_reads() -> None:
    base = replace(COUNTED, instructions={"LDG.128": 1, "all": 90}, loop_instructions={"LDG.128": 1, "all": 30})
    assert other_code(found({"LDG.128": 4}, {"LDG.128": 4, "all": 110}, base=base))
    assert found({"LDG.128": 4}, {"LDG.128": 4, "all": 200}, base=base) == [
        "warn: longer loops: 30 instructions -> 50 for the same work"
    ]


def test_loops_that_lost_their_tensor_cores_are_not_told_of_twice() -> None:
    assert found({"HGMMA.64x128x16.F32": 0, "FFMA": 4096}, {"HGMMA.64x128x16.F32": 0, "FFMA": 4096, "all": 5000}) == [
        "warn: lost its tensor cores: 4 HGMMA -> none, 4096 FFMA"
    ]


def test_tensor_cores_of_unknown_shape_leave_the_length_of_the_loop() -> None:
    base = replace(COUNTED, instructions={"UTCHMMA": 4, "all": 300}, loop_instructions={"UTCHMMA": 4, "all": 100})
    assert found({}, {"all": 158}, base=base) == ["warn: longer loops: 100 instructions -> 158"]


def test_barriers_say_nothing_by_themselves() -> None:
    assert other_code(found({}, {"BAR": 3}))


def test_new_atomics_are_named() -> None:
    assert found({"RED": 8, "ATOMS": 1}) == ["warn: new atomics: none -> 8 RED"]
    assert other_code(found({"ATOMG": 2}, base=replace(COUNTED, instructions={**COUNTED.instructions, "RED": 1})))


def test_code_of_twice_the_size_is_named_unless_it_is_small() -> None:
    assert found({}, code_bytes=20800) == ["warn: larger code: 10.16 KiB -> 20.31 KiB"]
    assert other_code(found({}, base=replace(COUNTED, code_bytes=512), code_bytes=1024))


def warned(loops: dict[str, int], config: str) -> list[str]:
    findings = found({}, loops, code_bytes=90000, config=config)
    return [finding for finding in findings if finding.startswith("warn")]


def test_where_a_setting_differs_loops_are_longer_from_three_quarters_more_and_code_may_be_of_any_size() -> None:
    assert warned({"all": 190}, "BLOCK_M=128,num_stages=3,num_warps=4") == []
    assert warned({"all": 191}, "BLOCK_M=128,num_stages=3,num_warps=4") == [
        "warn: longer loops: 109 instructions -> 191"
    ]


def test_lengths_are_not_compared_where_more_differs() -> None:
    assert warned({"all": 500}, "BLOCK_M=128,num_stages=4,num_warps=4") == []


AMD = replace(
    BASE,
    device="mi300x",
    instructions={"v_mfma_f32_32x32x8_f16": 48, "buffer_load.128": 8, "buffer_store.64": 8, "all": 993},
    loop_instructions={"v_mfma_f32_32x32x8_f16": 16, "buffer_load.128": 4, "all": 113},
)


@pytest.mark.parametrize(
    ("whole", "loops", "text"),
    [
        ({"v_mfma_f32_32x32x8_f16": 0}, {"v_mfma_f32_32x32x8_f16": 0}, "lost its tensor cores: 48 v_mfma"),
        (
            {"v_mfma_f32_32x32x8_f16": 0, "v_mfma_f32_32x32x4_xf32": 96},
            {},
            "slower tensor cores: 48 v_mfma_f32_32x32x8_f16 -> 96 v_mfma_f32_32x32x4_xf32",
        ),
        ({}, {"buffer_load.128": 0, "buffer_load.16": 32}, "narrower loads: 4 of 128 bits -> 32 of 16 bits"),
        ({"buffer_store.64": 0, "buffer_store.16": 32}, {}, "narrower stores: 8 of 64 bits -> 32 of 16 bits"),
        ({"scratch_load.32": 4}, {}, "new local memory: none -> 4 scratch_load"),
        ({"v_fma_f64": 4}, {}, "new double precision: none -> 4 v_fma_f64"),
        ({"global_atomic": 4}, {}, "new atomics: none -> 4 global_atomic"),
        ({}, {"v_mfma_f32_32x32x8_f16": 4, "all": 58}, "longer loops: 113 instructions -> 232 for the same work"),
    ],
)
def test_amd_instructions_are_judged_alike(whole: dict[str, int], loops: dict[str, int], text: str) -> None:
    (finding,) = found(whole, loops, base=AMD)
    assert finding.startswith(f"warn: {text}")


def test_nothing_is_said_where_a_side_was_not_counted() -> None:
    assert other_code(found({}, {}, base=BASE))
    head = replace(COUNTED, code_fingerprint="b")
    assert seen(compare_facts([BASE], [head])) == [("code", "a", "b", Severity.NOTE)]

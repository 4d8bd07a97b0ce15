from __future__ import annotations

import json
from dataclasses import fields, replace
from typing import TYPE_CHECKING, get_type_hints

import pytest

from flopwatch.errors import UsageError
from flopwatch.model import Failure, KernelFacts
from flopwatch.survey.baseline import (
    COUNTS,
    FACTS,
    FORMAT,
    Baseline,
    _Row,
    baseline_of,
    drifts,
    other_compiler,
    read_baseline,
    write_text,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

VERSIONS = {"python": "3.12.3", "triton": "3.7.1", "ptxas": "12.8.93"}


def held(*facts: KernelFacts, devices: Sequence[str] = ("h200",)) -> Baseline:
    return baseline_of(facts, versions=VERSIONS, autotune="all", devices=devices)


def texts(old: Baseline, new: Baseline, *, partial: bool = False) -> list[str]:
    return [drift.text for drift in drifts(old, new, partial=partial)]


def test_what_is_written_is_read_again(fact: KernelFacts, tmp_path: Path) -> None:
    failed = replace(
        fact, config="BLOCK_M=999", failure=Failure(kind="OutOfResources", message="shared memory at 0x7f")
    )
    baseline = held(fact, failed, devices=("h200", "a100"))
    path = tmp_path / "facts.json"
    path.write_text(write_text(baseline), encoding="utf-8")
    assert read_baseline(path) == baseline


def test_the_order_of_facts_and_counts_is_not_that_of_the_compiler(fact: KernelFacts) -> None:
    other = replace(fact, kernel="a_kernel")
    turned = replace(fact, instructions=dict(reversed(fact.instructions.items())))
    assert write_text(held(fact, other, devices=("b", "a"))) == write_text(held(other, turned, devices=("a", "b")))


def test_a_change_of_one_configuration_changes_one_line(fact: KernelFacts) -> None:
    facts = [replace(fact, config=f"BLOCK_M={number}") for number in range(5)]
    before = write_text(held(*facts)).splitlines()
    facts[2] = replace(facts[2], registers=170, occupancy=0.25)
    after = write_text(held(*facts)).splitlines()
    assert sum(old != new for old, new in zip(before, after, strict=True)) == 1
    assert json.loads("\n".join(after))["triton"] == "3.7.1"


def test_every_fact_is_held_or_left_out_on_purpose() -> None:
    # What follows from others, hangs on the machine or on the cases that were selected, or is no fact of the kernel.
    left_out = {"chosen", "occupancy_limit", "code_fingerprint", "uncounted", "failure", "compile_seconds"}
    key = {"kernel", "device", "variant", "config"}
    assert {field.name for field in fields(KernelFacts)} == {*FACTS, *COUNTS} | left_out | key


def test_equal_facts_do_not_drift_whatever_the_fingerprint(fact: KernelFacts) -> None:
    assert texts(held(fact), held(replace(fact, code_fingerprint="4567", chosen=False))) == []


@pytest.mark.parametrize("name", FACTS)
def test_each_fact_that_moves_is_a_drift(name: str, fact: KernelFacts) -> None:
    moved = replace(fact, **{name: 7})  # type: ignore[arg-type] # every one of them is a number
    (drift,) = drifts(held(fact), held(moved), partial=False)
    assert (drift.fact, drift.found) == (name, "7")


def test_counts_drift_class_by_class(fact: KernelFacts) -> None:
    moved = replace(fact, instructions={"all": 300, "FFMA": 48}, loop_instructions={})
    assert [drift.brief for drift in drifts(held(fact), held(moved), partial=False)] == [
        "instructions FFMA 0 -> 48",
        "instructions HGMMA.64x128x16.F32 4 -> 0",
        "instructions all 256 -> 300",
        "loop_instructions all 64 -> 0",
    ]


def test_a_configuration_that_no_longer_fits_drifts(fact: KernelFacts) -> None:
    failed = replace(fact, failure=Failure(kind="OutOfResources", message="shared memory"))
    found = [drift.brief for drift in drifts(held(fact), held(failed), partial=False)]
    assert "failure none -> OutOfResources" in found
    assert "registers 168 -> none" in found


def test_new_and_gone_configurations_drift(fact: KernelFacts) -> None:
    other = replace(fact, config="BLOCK_M=64")
    assert texts(held(fact), held(other)) == [
        "matmul_kernel on h200 [BLOCK_M=128,num_stages=3,num_warps=8] (*fp16:16,i32): gone",
        "matmul_kernel on h200 [BLOCK_M=64] (*fp16:16,i32): new",
    ]


def test_what_was_not_compiled_is_not_gone(fact: KernelFacts) -> None:
    other = replace(fact, kernel="attention_kernel")
    elsewhere = replace(fact, device="a100")
    assert texts(held(fact, other), held(fact), partial=True) == []
    assert texts(held(fact, elsewhere, devices=("h200", "a100")), held(fact)) == []


def test_of_some_cases_a_kernel_may_have_the_number_of_another_that_is_called_alike(fact: KernelFacts) -> None:
    second = replace(fact, kernel="matmul_kernel (2)", registers=200)
    alone = replace(second, kernel="matmul_kernel")
    assert texts(held(fact, second), held(alone), partial=True) == []
    assert len(texts(held(fact, second), held(alone))) == 2  # gone, and another number of registers
    assert len(texts(held(fact, second), held(replace(alone, registers=201)), partial=True)) == 1


def test_of_some_cases_the_same_facts_elsewhere_are_no_answer(fact: KernelFacts) -> None:
    old = replace(fact, registers=201)
    for elsewhere in (replace(fact, kernel="another_kernel"), replace(fact, config="BLOCK_M=999")):
        assert len(texts(held(old, elsewhere), held(fact), partial=True)) == 1


def test_a_fact_that_is_gone_leaves_its_configuration(fact: KernelFacts) -> None:
    (drift,) = drifts(held(fact), held(replace(fact, registers=None)), partial=False)
    assert (drift.found, drift.is_gone) == ("none", False)


def test_counts_that_one_side_does_not_have_at_all_are_none_of_each(fact: KernelFacts) -> None:
    bare, counted = replace(fact, instructions={}), replace(fact, instructions={"FFMA": 8})
    assert "instructions" not in held(bare).rows[bare.key]
    assert [drift.brief for drift in drifts(held(bare), held(counted), partial=False)] == ["instructions FFMA 0 -> 8"]
    assert [drift.brief for drift in drifts(held(counted), held(bare), partial=False)] == ["instructions FFMA 8 -> 0"]
    more = replace(fact, instructions={"FFMA": 8, "MUFU": 2})
    assert [drift.brief for drift in drifts(held(counted), held(more), partial=False)] == ["instructions MUFU 0 -> 2"]


def test_a_compiler_of_which_nothing_is_known_is_not_written(fact: KernelFacts, tmp_path: Path) -> None:
    baseline = baseline_of([fact], versions={"triton": "3.7.1"}, autotune="all", devices=["h200"])
    path = tmp_path / "facts.json"
    path.write_text(write_text(baseline), encoding="utf-8")
    assert read_baseline(path).versions == {"triton": "3.7.1"}


def test_a_folder_is_no_baseline(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read") as caught:
        read_baseline(tmp_path)
    assert caught.value.why == "Is a directory"


def test_another_ptxas_is_another_compiler_and_another_python_is_none(fact: KernelFacts) -> None:
    found = held(fact)
    assert other_compiler(replace(found, versions={**found.versions, "ptxas": "12.9.86"}), found) == (
        "it is of ptxas 12.9.86, and this is ptxas 12.8.93"
    )
    assert "python" not in found.versions
    assert other_compiler(found, found) == ""


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{",
        "7",
        "{}",
        '{"flopwatch_static": 1}',
        '{"flopwatch_static": 1, "autotune": "all", "devices": ["h200"], "facts": [7]}',
        '{"flopwatch_static": 1, "autotune": "all", "devices": ["h200"], "facts": [{"kernel": "k"}]}',
        f'{{"flopwatch_static": {FORMAT + 1}, "autotune": "all", "devices": [], "facts": []}}',
        "\xff",
    ],
)
def test_a_file_that_is_no_baseline_is_refused_with_what_to_do(text: str, tmp_path: Path) -> None:
    path = tmp_path / "facts.json"
    path.write_text(text, encoding="latin-1")
    with pytest.raises(UsageError, match=r"facts\.json is ") as caught:
        read_baseline(path)
    assert "--write" in caught.value.todo


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("flopwatch_static", "1"),
        ("triton", 3.7),
        ("ptxas", None),
        ("autotune", "bogus"),
        ("autotune", None),
        ("devices", "h200"),
        ("devices", [7]),
        ("facts", {}),
        *((f"facts[0].{name}", None) for name in ("kernel", "device", "variant", "config", "failure", *FACTS, *COUNTS)),
        *((f"facts[0].{name}", "many") for name in FACTS),
        *((f"facts[0].{name}", 5) for name in COUNTS),
        ("facts[0].instructions[...]", {"all": "many"}),
    ],
)
def test_a_value_of_another_type_is_refused_by_its_key_path(
    path: str, value: object, fact: KernelFacts, tmp_path: Path
) -> None:
    file = tmp_path / "facts.json"
    data = json.loads(write_text(held(fact)))
    key = path.removeprefix("facts[0].").removesuffix("[...]")
    (data if key == path else data["facts"][0])[key] = value
    file.write_text(json.dumps(data), encoding="utf-8")
    with pytest.raises(UsageError) as caught:
        read_baseline(file)
    assert caught.value.what == f"{file} is no baseline"
    assert f"`$.{path}" in caught.value.why
    assert "--write" in caught.value.todo


def test_a_configuration_that_stands_there_twice_is_refused(fact: KernelFacts, tmp_path: Path) -> None:
    file = tmp_path / "facts.json"
    data = json.loads(write_text(held(fact)))
    data["facts"].append(data["facts"][0] | {"registers": 170})
    file.write_text(json.dumps(data), encoding="utf-8")
    with pytest.raises(UsageError, match=r"a configuration twice - at `\$\.facts\[1\]`"):
        read_baseline(file)


def test_a_row_may_have_each_fact_that_is_held() -> None:
    assert set(get_type_hints(_Row)) == {"kernel", "device", "variant", "config", "failure", *FACTS, *COUNTS}


def test_a_baseline_that_is_not_there_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no baseline") as caught:
        read_baseline(tmp_path / "facts.json")
    assert "--write" in caught.value.todo

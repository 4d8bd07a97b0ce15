from __future__ import annotations

import io
from dataclasses import replace
from typing import TYPE_CHECKING

from rich.console import Console

from flopwatch.model import Failure
from flopwatch.report.compiled import MAX_CHANGES, print_compiled
from flopwatch.static.comparison import compare_facts

if TYPE_CHECKING:
    from tests.report.conftest import Gates

    from flopwatch.gate import GateResult


def printed(result: GateResult) -> list[str]:
    console = Console(file=io.StringIO(), width=140, color_system=None)
    print_compiled(result, console, everything=False)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


def test_kernels_are_named_up_to_a_few_and_then_counted(gates: Gates) -> None:
    (fact,) = gates.laptop.facts
    for names, words in (("ab", "a and b"), ("abc", "a, b and c"), ("abcde", "5 kernels")):
        facts = tuple(replace(fact, kernel=name) for name in names)
        result = replace(gates.laptop, facts=facts, base_facts=facts)
        assert printed(result)[0].startswith(f"{len(names)} configurations of {words} compiled for h200; no ")


def test_what_spills_or_does_not_fit_is_counted(gates: Gates) -> None:
    (fact,) = gates.spilling.facts
    failed = replace(fact, config="BLOCK_M=999", failure=Failure(kind="OutOfResources", message="shared memory"))
    assert printed(replace(gates.spilling, facts=(fact, failed)))[0].endswith("; 2 spill; 1 does not fit the device.")


def test_notes_are_cut_and_counted_but_never_a_warning(gates: Gates) -> None:
    base = [replace(gates.laptop.facts[0], config=f"BLOCK_M={number}") for number in range(20)]
    head = [replace(fact, registers=255, code_fingerprint="new") for fact in base]
    result = replace(gates.laptop, facts=tuple(head), base_facts=tuple(base), fact_changes=compare_facts(base, head))
    assert len(printed(result)) == 1 + MAX_CHANGES + 1
    assert printed(result)[-1] == "and 8 more notes; --json has all."
    spilling = [replace(fact, spill_store_bytes=8) for fact in head]
    warned = printed(replace(result, fact_changes=compare_facts(base, spilling)))
    assert sum(line.startswith("warn: ") for line in warned) == 20


def test_a_new_kernel_is_a_line_and_not_a_list_of_its_configurations(gates: Gates) -> None:
    (fact,) = gates.laptop.facts
    facts = (fact, replace(fact, kernel="fresh_kernel"), replace(fact, kernel="fresh_kernel", config="BLOCK_M=64"))
    result = replace(gates.laptop, facts=facts, fact_changes=compare_facts(gates.laptop.base_facts, facts))
    assert printed(result)[1:] == ["new: fresh_kernel, 2 configurations"]


def test_code_that_differs_in_no_number_is_a_line_a_kernel(gates: Gates) -> None:
    base = [replace(gates.laptop.facts[0], config=f"BLOCK_M={number}") for number in range(20)]
    head = [replace(fact, code_fingerprint="new") for fact in base]
    result = replace(gates.laptop, facts=tuple(head), base_facts=tuple(base), fact_changes=compare_facts(base, head))
    assert printed(result)[1:] == [
        "note: matmul_kernel: other code in 20 configurations, of equal registers, spills and memory"
    ]

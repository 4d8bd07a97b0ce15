from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from flopwatch.model import KernelFacts

    Facts = dict[str, tuple[KernelFacts, ...]]


def test_facts_name_the_launch(edits: Facts) -> None:
    (facts,) = edits["base"]
    assert facts.kernel == "matmul"
    assert facts.device == "h200"
    assert facts.config == "BLOCK_K=64,BLOCK_M=64,BLOCK_N=64,GROUP_M=8,num_stages=3,num_warps=4"
    assert facts.variant == "*fp16:16,*fp16:16,*fp16:16,i32:16,i32:16,i32:16,i32:16,1,i32:16,1,i32:16,1"
    assert facts.chosen


def test_facts_are_those_of_the_compiler(edits: Facts) -> None:
    (facts,) = edits["base"]
    assert facts.registers is not None
    assert 32 < facts.registers <= 255
    assert facts.spill_bytes == 0
    assert facts.stack_bytes == 0
    assert facts.shared_bytes == 3 * 2 * 64 * 64 * 2  # stages x operands x tile x bytes
    assert facts.num_warps == 4
    assert facts.num_stages == 3
    assert facts.occupancy == 4 * 4 / 64  # 228 KiB hold four blocks of 49 KiB
    assert facts.occupancy_limit == "shared memory"


def test_facts_are_the_same_in_another_process_folder_and_line(
    edits: Facts, compile_sources: Callable[[Mapping[str, str]], Facts], matmul_source: str
) -> None:
    moved = compile_sources({"moved_elsewhere": "\n\n# moved\n\n" + matmul_source})
    assert edits["base"] == moved["moved_elsewhere"]


def test_a_comment_changes_nothing(edits: Facts) -> None:
    assert edits["base"] == edits["comment"]


def test_a_changed_immediate_changes_the_fingerprint(edits: Facts) -> None:
    (base,) = edits["base"]
    (head,) = edits["literal"]
    assert base.config == head.config
    assert base.code_fingerprint != head.code_fingerprint


def test_a_changed_constant_changes_the_fingerprint(edits: Facts) -> None:
    (base,) = edits["base"]
    (head,) = edits["group"]
    assert base.code_fingerprint != head.code_fingerprint


def test_spills_are_counted(edits: Facts) -> None:
    (facts,) = edits["spill"]
    assert facts.registers == 64
    assert facts.spill_store_bytes is not None
    assert facts.spill_store_bytes > 0
    assert facts.spill_load_bytes is not None
    assert facts.spill_load_bytes > 0
    assert facts.stack_bytes is not None
    assert facts.stack_bytes > 0


def test_a_configuration_that_does_not_fit_is_a_failure_and_the_next_is_chosen(edits: Facts) -> None:
    large, small = edits["tuned"]
    assert "BLOCK_M=2048" in large.config
    assert large.failure is not None
    assert large.failure.kind == "OutOfResources"
    assert not large.chosen
    assert large.registers is None
    assert "BLOCK_M=64" in small.config
    assert small.failure is None
    assert small.chosen

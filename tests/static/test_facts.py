from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
from tests.static.test_sass import BARRIER, EXECUTABLE, EXIT, elf

from flopwatch.static.comparison import compare_facts
from flopwatch.static.devices import find_device
from flopwatch.static.facts import kernel_facts, kernel_occupancy
from flopwatch.static.occupancy import Occupancy
from flopwatch.static.ptxas import METADATA_KEY
from flopwatch.static.recorder import Launch, Recorder

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

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
    assert facts.tensor_memory_columns is None
    assert facts.occupancy == 4 * 4 / 64  # 228 KiB hold four blocks of 49 KiB
    assert facts.occupancy_limit == "shared memory"


def test_sums_lie_in_the_tensor_memory_of_a_device_that_has_one(
    compile_sources: Callable[..., Facts], matmul_source: str
) -> None:
    wide = matmul_source.replace("BLOCK_M=64, BLOCK_N=64,", "BLOCK_M=128, BLOCK_N=64,")
    assert wide != matmul_source
    (facts,) = compile_sources({"wide": wide}, "b200")["wide"]
    assert facts.tensor_memory_columns == 64  # a float32 of each of 128 rows

    changes = compare_facts([facts], [replace(facts, tensor_memory_columns=128, code_fingerprint="another")])
    assert ["tensor memory: 64 columns -> 128 columns"] == [
        f"{change.fact}: {change.base} -> {change.head}" for change in changes
    ]


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


def test_each_stage_of_the_compiler_has_its_time_which_makes_no_difference(edits: Facts) -> None:
    (facts,) = edits["base"]
    assert list(facts.compile_seconds) == ["ttir", "ttgir", "llir", "ptx", "cubin"]
    assert all(seconds > 0 for seconds in facts.compile_seconds.values())
    assert replace(facts, compile_seconds={}) == facts


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


def test_instructions_are_counted(edits: Facts) -> None:
    (facts,) = edits["base"]
    assert facts.uncounted == ""
    assert facts.instructions["HGMMA.64x64x16.F32"] == 4  # a tile of 64 along K in steps of 16
    assert facts.instructions["LDGSTS.128"] == 3 * 8  # stages x 2 tiles of 8 KiB in pieces of 16 B by 128 threads
    assert facts.loop_instructions["LDGSTS.128"] == 8
    assert facts.loop_instructions["all"] < facts.instructions["all"]
    assert facts.code_bytes == 16 * facts.instructions["all"]


def test_facts_for_amd_are_those_of_llvm(amd_edits: Facts) -> None:
    (facts,) = amd_edits["base"]
    assert facts.device == "mi300x"
    assert facts.registers is not None
    assert 32 < facts.registers <= 512
    assert facts.accumulator_registers in {0, 16}  # of them, by LLVM of triton 3.7 and of 3.6
    assert facts.scalar_registers is not None
    assert 16 < facts.scalar_registers <= 100
    assert facts.spill_bytes == facts.stack_bytes == 0
    assert facts.shared_bytes == 2 * 2 * 64 * 64 * 2  # two tiles in flight, of three the last is in registers
    assert facts.occupancy == 2 * 4 / 32  # 64 KiB hold two blocks of four waves
    assert facts.occupancy_limit == "shared memory"


def test_instructions_for_amd_are_counted(amd_edits: Facts) -> None:
    (facts,) = amd_edits["base"]
    assert facts.uncounted == ""
    # A tile of 64x64 along K in steps of 8 by 4 waves, each with a quarter of 32x32; three times, as it is pipelined.
    assert facts.loop_instructions["v_mfma_f32_32x32x8_f16"] == 8
    assert facts.instructions["v_mfma_f32_32x32x8_f16"] == 3 * 8
    assert facts.loop_instructions["buffer_load.128"] == 4  # 2 tiles of 8 KiB in pieces of 16 B by 256 threads
    assert facts.loop_instructions["s_barrier"] >= 1
    assert facts.loop_instructions["all"] < facts.instructions["all"]
    assert facts.code_bytes is not None
    assert 4 * facts.instructions["all"] <= facts.code_bytes <= 12 * facts.instructions["all"]


def test_facts_for_amd_are_the_same_on_another_line(amd_edits: Facts) -> None:
    assert amd_edits["base"] == amd_edits["moved"]


def test_a_changed_constant_changes_the_fingerprint_for_amd(amd_edits: Facts) -> None:
    (base,) = amd_edits["base"]
    (head,) = amd_edits["group"]
    assert base.code_fingerprint != head.code_fingerprint


def test_spills_for_amd_are_counted(amd_edits: Facts) -> None:
    (facts,) = amd_edits["large"]
    assert (facts.registers, facts.accumulator_registers) == (512, 256)
    stored = sum(
        int(name.partition(".")[2]) // 8 * count
        for name, count in facts.instructions.items()
        if name.startswith("scratch_store.")
    )
    assert facts.spill_store_bytes == stored > 0
    assert facts.spill_load_bytes is not None
    assert facts.spill_load_bytes > 0
    assert facts.stack_bytes is not None
    assert facts.stack_bytes > 0
    assert facts.occupancy_limit == "registers"


def test_what_does_not_fit_a_compute_unit_is_a_failure(amd_edits: Facts) -> None:
    large, small = amd_edits["tuned"]
    assert large.failure is not None
    assert large.failure.kind == "OutOfResources"
    assert "Hardware limit: 65536" in large.failure.message
    assert small.failure is None
    assert small.chosen


def test_what_moved_for_amd_is_told(amd_edits: Facts) -> None:
    changes = compare_facts(amd_edits["base"], amd_edits["large"])
    found = {change.fact for change in changes}
    assert {"configuration", "spills", "occupancy", "registers"} <= found


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Recorder:
    """What a launch of a kernel of three instructions leaves behind, with an empty cache."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))
    ptxas = {"registers": 8, "spill_store_bytes": 0, "spill_load_bytes": 0, "stack_bytes": 0}
    metadata = SimpleNamespace(shared=0, num_warps=4, num_stages=1, **{METADATA_KEY: ptxas})
    launch = Launch(kernel="kernel", grid=(1,), config="", variant="", tuning=False, binary_hash="1")
    binary = elf((EXECUTABLE, BARRIER * 2 + EXIT))
    compiled = {"1": SimpleNamespace(metadata=metadata, asm={"cubin": binary})}
    return Recorder(device=find_device("h200"), launches=[launch], compiled=compiled)


def test_counts_are_kept_beside_tritons_cache(recorded: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    (counted,) = kernel_facts(recorded)
    assert counted.instructions == {"BAR": 2, "all": 3}
    monkeypatch.setenv("TRITON_NVDISASM_PATH", "/nowhere")
    assert kernel_facts(recorded) == (counted,)


def test_without_a_disassembler_the_other_facts_are_there_and_the_reason(
    recorded: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRITON_NVDISASM_PATH", "/nowhere")
    (facts,) = kernel_facts(recorded)
    assert facts.registers == 8
    assert facts.instructions == {}
    assert facts.code_bytes is None
    assert facts.uncounted.startswith("Triton has no nvdisasm")


def test_of_a_kernel_whose_registers_nobody_was_told_there_is_the_rest(recorded: Recorder) -> None:
    (kernel,) = recorded.compiled.values()
    delattr(kernel.metadata, METADATA_KEY)
    (facts,) = kernel_facts(recorded)
    assert (facts.registers, facts.spill_bytes, facts.occupancy, facts.occupancy_limit) == (None, None, None, "")
    assert facts.instructions == {"BAR": 2, "all": 3}


def test_a_kernels_occupancy_is_of_what_the_compiler_told_of_it(recorded: Recorder) -> None:
    (kernel,) = recorded.compiled.values()
    assert kernel_occupancy(kernel, recorded.device) == Occupancy(blocks_per_sm=16, share=1.0, limit="warps")
    kernel.metadata.tmem_size = 256
    assert kernel_occupancy(kernel, recorded.device) == Occupancy(blocks_per_sm=2, share=0.125, limit="tensor memory")

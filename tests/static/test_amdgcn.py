from __future__ import annotations

import pytest

from flopwatch.errors import UnsupportedTritonError
from flopwatch.static.amdgcn import AmdResources, amd_instruction_class, amd_resources, count_amd_instructions

# What LLVM writes of a kernel with a loop in a loop, cut to what is read and what must not be.
KERNEL = """\
	.amdgcn_target "amdgcn-amd-amdhsa--gfx942"
	.text
	.globl	kernel                          ; -- Begin function kernel
	.p2align	8
	.type	kernel,@function
kernel:                                 ; @kernel
.Lfunc_begin0:
	.file	1 "/home/me" "kernel.py"
	.loc	1 7 0 prologue_end              ; kernel.py:7:0
	s_load_dwordx8 s[4:11], s[0:1], 0x8
	s_cbranch_scc1 .LBB0_3
; %bb.1:
	v_mov_b32_e32 v1, 0
.LBB0_2:                                ; =>This Inner Loop Header: Depth=1
	s_waitcnt lgkmcnt(0)
	buffer_load_dwordx4 v1, s[4:7], 0 offen lds
	global_load_dwordx4 v[22:25], v[38:39], off
	s_and_saveexec_b64 s[4:5], vcc
	s_cbranch_execz .LBB0_4
.LBB0_5:                                ;   in Loop: Header=BB0_2 Depth=1
	scratch_store_dwordx2 off, v[1:2], off offset:64 ; 8-byte Folded Spill
	v_mfma_f32_32x32x8_f16 a[0:15], v[0:1], v[2:3], a[0:15]
	scratch_load_dword v1, off, off         ; 4-byte Folded Reload
	;;#ASMSTART
	v_exp_f32_e32 v1, v1
	;;#ASMEND
	s_cbranch_scc0 .LBB0_2
.LBB0_3:
	s_barrier
	ds_write2st64_b64 v1, v[2:3], v[4:5] offset1:1
	s_endpgm
.LBB0_4:                                ;   in Loop: Header=BB0_2 Depth=1
	s_nop 0
	s_branch .LBB0_5
	.section	.rodata,"a",@progbits
	.p2align	6, 0x0
	.amdhsa_kernel kernel
		.amdhsa_next_free_vgpr 104
	.end_amdhsa_kernel
	.text
.Lfunc_end0:
	.size	kernel, .Lfunc_end0-kernel
; codeLenInByte = 152
	.section	.debug_info,"",@progbits
.Ldebug_info_start0:
	.byte	1
	.amdgpu_metadata
---
amdhsa.kernels:
  - .agpr_count:     16
    .args:
      - .address_space:  global
        .offset:         0
    .name:           kernel
    .private_segment_fixed_size: 516
    .sgpr_count:     33
    .sgpr_spill_count: 7
    .vgpr_count:     104
    .vgpr_spill_count: 2
...
	.end_amdgpu_metadata
"""
# A function that was not inlined, with a loop of its own.
CALLED = """\
	.type	callee,@function
callee:                                 ; @callee
.LBB1_1:
	v_rcp_f32_e32 v1, v1
	s_cbranch_scc1 .LBB1_1
	s_setpc_b64 s[30:31]
.Lfunc_end1:
; codeLenInByte = 12
"""


def test_resources_are_those_of_the_metadata_and_the_spills_those_of_the_code() -> None:
    assert amd_resources(KERNEL) == AmdResources(
        registers=104,
        accumulator_registers=16,
        scalar_registers=33,
        stack_bytes=516,
        spill_store_bytes=8,
        spill_load_bytes=4,
    )


@pytest.mark.parametrize("name", ["agpr_count", "vgpr_count", "sgpr_count", "private_segment_fixed_size"])
def test_an_assembly_that_does_not_tell_is_refused(name: str) -> None:
    with pytest.raises(UnsupportedTritonError, match=f"the assembly for AMD has no .{name}"):
        amd_resources(KERNEL.replace(f".{name}:", ".renamed:"))


def test_instructions_are_counted_and_nothing_else() -> None:
    counts = count_amd_instructions(KERNEL)
    assert counts.instructions == {
        "all": 18,
        "buffer_load_lds.128": 1,
        "ds_write.128": 1,
        "global_load.128": 1,
        "s_barrier": 1,
        "s_load.256": 1,
        "scratch_load.32": 1,
        "scratch_store.64": 1,
        "v_exp": 1,
        "v_mfma_f32_32x32x8_f16": 1,
    }
    assert counts.code_bytes == 152


def test_a_loop_is_what_jumps_lead_back_to_wherever_it_lies() -> None:
    counts = count_amd_instructions(KERNEL)
    # From .LBB0_2 to its last jump, and .LBB0_4 behind the end; neither what is ahead of the loop nor behind it.
    assert counts.loop_instructions == {
        "all": 12,
        "buffer_load_lds.128": 1,
        "global_load.128": 1,
        "scratch_load.32": 1,
        "scratch_store.64": 1,
        "v_exp": 1,
        "v_mfma_f32_32x32x8_f16": 1,
    }


def test_a_function_that_is_called_counts_outside_of_loops() -> None:
    alone, both = count_amd_instructions(KERNEL), count_amd_instructions(KERNEL + CALLED)
    assert both.instructions["all"] == alone.instructions["all"] + 3
    assert both.instructions["v_rcp"] == 1
    assert both.loop_instructions == alone.loop_instructions
    assert both.code_bytes == alone.code_bytes + 12


def test_loops_are_not_known_where_a_jump_goes_to_a_computed_address() -> None:
    counts = count_amd_instructions(KERNEL.replace("s_nop 0", "s_setpc_b64 s[4:5]"))
    assert counts.loop_instructions == {}
    assert counts.instructions["all"] == 18


def test_a_text_without_a_function_has_no_instructions() -> None:
    assert count_amd_instructions("").instructions == {}


@pytest.mark.parametrize(
    ("opcode", "name"),
    [
        ("v_mfma_f32_32x32x16_bf16", "v_mfma_f32_32x32x16_bf16"),
        ("v_mfma_scale_f32_16x16x128_f8f6f4", "v_mfma_scale_f32_16x16x128_f8f6f4"),
        ("v_smfmac_f32_16x16x32_f16", "v_smfmac_f32_16x16x32_f16"),
        ("buffer_load_ubyte", "buffer_load.8"),
        ("buffer_store_short_d16_hi", "buffer_store.16"),
        ("global_load_lds_dwordx4", "global_load_lds.128"),
        ("global_store_dwordx3", "global_store.96"),
        ("s_buffer_load_dwordx4", "s_buffer_load.128"),
        ("ds_read_u16_d16", "ds_read.16"),
        ("ds_read_b64_tr_b16", "ds_read.64"),
        ("ds_read2_b32", "ds_read.64"),
        ("global_atomic_add_f32", "global_atomic"),
        ("ds_add_rtn_u32", "ds_atomic"),
        ("ds_bpermute_b32", "exchange"),
        ("v_mov_b32_dpp", "exchange"),
        ("v_accvgpr_read_b32", "v_accvgpr"),
        ("v_cvt_pk_f16_f32", "v_cvt"),
        ("v_rcp_iflag_f32_e32", "v_rcp"),
        ("v_pk_fma_f32", "v_fma_f32"),
        ("v_fmac_f32_e32", "v_fmac_f32"),
        ("v_fma_f64", "v_fma_f64"),
        ("v_mad_u64_u32", "INT64"),
        ("v_addc_co_u32_e32", "INT64"),
        ("s_addc_u32", "INT64"),
        ("s_and_b64", ""),
        ("v_add_u32_e32", ""),
        ("s_endpgm", ""),
    ],
)
def test_instructions_of_interest_have_a_class(opcode: str, name: str) -> None:
    assert amd_instruction_class(opcode) == name

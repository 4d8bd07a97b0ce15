"""Facts, made by hand."""

from __future__ import annotations

import pytest

from flopwatch.model import KernelFacts


@pytest.fixture
def fact() -> KernelFacts:
    return KernelFacts(
        kernel="matmul_kernel",
        device="h200",
        config="BLOCK_M=128,num_stages=3,num_warps=8",
        variant="*fp16:16,i32",
        chosen=True,
        registers=168,
        spill_store_bytes=0,
        spill_load_bytes=0,
        stack_bytes=0,
        shared_bytes=147456,
        num_warps=8,
        num_stages=3,
        occupancy=0.125,
        occupancy_limit="registers",
        code_fingerprint="0123",
        code_bytes=4096,
        instructions={"all": 256, "HGMMA.64x128x16.F32": 4},
        loop_instructions={"all": 64},
    )

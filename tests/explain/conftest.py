"""Facts of a kernel as a compiler might give them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from flopwatch.model import KernelFacts

if TYPE_CHECKING:
    from collections.abc import Callable

MMA = {"HGMMA.64x256x16.F32": 8}


def kernel_facts(*, stages: int = 3, warps: int = 8, kernel: str = "matmul_kernel", **changed: object) -> KernelFacts:
    given: dict[str, object] = {
        "kernel": kernel,
        "device": "h200",
        "config": f"BLOCK_M=128,num_stages={stages},num_warps={warps}",
        "variant": "*fp16:16,i32:16",
        "chosen": True,
        "registers": 168,
        "spill_store_bytes": 0,
        "spill_load_bytes": 0,
        "stack_bytes": 0,
        "shared_bytes": 147456,
        "num_warps": warps,
        "num_stages": stages,
        "occupancy": 0.125,
        "code_fingerprint": f"{kernel}-{stages}-{warps}-{sorted(changed.items())}",
        "instructions": {**MMA, "all": 600} | ({"LDGSTS.128": 36} if stages > 1 else {}),
        "loop_instructions": {**MMA, "all": 100},
    }
    return KernelFacts(**given | changed)  # type: ignore[arg-type] # each is of its field's type


@pytest.fixture
def facts() -> Callable[..., KernelFacts]:
    return kernel_facts

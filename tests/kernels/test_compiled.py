"""The kernels as the compiler sees them; everything else here runs them."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from flopwatch.kernels.configs import ATTENTION_AUTOTUNE, MATMUL_AUTOTUNE
from flopwatch.model import KernelFacts, from_json

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Runs in a process of its own, in which kernels are compiled and not interpreted. Prints one line of facts a case.
COMPILE = """
import sys
import torch
from flopwatch.kernels import flash_attention, triton_matmul, vector_add
from flopwatch.kernels.vector_add import vector_add_debug
from flopwatch.model import to_json
from flopwatch.static import kernel_facts, pretend_gpu

def empty(*shape, dtype=torch.float16):
    return torch.empty(shape, device="cuda", dtype=dtype)

def attend(*head_dims, causal=False, seq_lens=None):
    for head_dim in head_dims:
        x = empty(2, 2, 1024, head_dim)
        flash_attention(x, x, x, causal=causal, seq_lens=seq_lens)

def attend_to_more(*head_dims):
    for head_dim in head_dims:
        q, k = (empty(2, heads, S, head_dim, dtype=torch.bfloat16) for heads, S in ((4, 1024), (2, 1536)))
        flash_attention(q, k, k, causal=True, out_dtype=torch.bfloat16)

def refuse():
    try:
        triton_matmul(empty(512, 512), empty(512, 512), 16, 256, 512)
    except ValueError as error:
        sys.stderr.write(str(error))
    else:
        raise AssertionError

CASES = {
    "matmul": lambda: triton_matmul(empty(4096, 4096), empty(4096, 4096)),
    "matmul of odd rows": lambda: triton_matmul(empty(1001, 1001), empty(1001, 1001)),
    "large matmul of odd rows": lambda: triton_matmul(empty(1501, 1503), empty(1503, 1505), use_autotune=False),
    "matmul of rows of eights": lambda: triton_matmul(empty(1001, 1000), empty(1000, 1000)),
    "matmul of columns of eights": lambda: triton_matmul(
        empty(1000, 1000).T, empty(1000, 1000).T, use_autotune=False
    ),
    "attention": lambda: attend(64, 128),
    "causal attention": lambda: attend(16, 32, 64, causal=True),
    "attention with lengths": lambda: attend(16, seq_lens=empty(2, dtype=torch.int32)),
    "attention in two parts": lambda: attend(96, 192, 256, causal=True),
    "attention of shared heads to more keys": lambda: attend_to_more(64, 256),
    "attention of one position": lambda: flash_attention(*[empty(1, 1, 16)] * 3, causal=True),
    "attention of one position or none": lambda: flash_attention(
        *[empty(1, 1, 16)] * 3, seq_lens=empty(1, dtype=torch.int32)
    ),
    "attention to one key or none": lambda: flash_attention(empty(1, 4, 9, 16), *[empty(1, 2, 1, 16)] * 2, causal=True),
    "addition": lambda: (vector_add(empty(5000), empty(5000)), vector_add_debug(empty(5000), empty(5000))),
    "too large": refuse,
}
_, device, *cases = sys.argv
for case in cases:
    with pretend_gpu(device, tensors="meta") as recorder:
        CASES[case]()
        print("facts", to_json(kernel_facts(recorder)).decode())
"""
CASES = {
    "h200": (
        "matmul",
        "matmul of odd rows",
        "large matmul of odd rows",
        "matmul of rows of eights",
        "matmul of columns of eights",
        "attention",
        "causal attention",
        "attention with lengths",
        "attention in two parts",
        "attention of shared heads to more keys",
        "attention of one position",
        "attention of one position or none",
        "attention to one key or none",
        "too large",
    ),
    "a100": ("matmul", "causal attention", "attention in two parts", "addition"),
}


class Compilation:
    """One process that compiles all cases of a device."""

    def __init__(self, device: str) -> None:
        self.cases = CASES[device]
        self._process = subprocess.Popen(
            [sys.executable, "-c", COMPILE, device, *self.cases],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            # All of the plain kernels' lists, and not what tables have for a shape.
            env={name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
            | {"FLOPWATCH_AUTOTUNE": "all"},
        )
        self._said: tuple[str, str] | None = None

    def stop(self) -> None:
        self._process.kill()
        self._process.communicate()

    @property
    def said(self) -> tuple[str, str]:
        if self._said is None:
            self._said = self._process.communicate()
        assert self._process.returncode == 0, self._said[1]
        return self._said

    def facts(self, case: str) -> list[KernelFacts]:
        lines = [line.removeprefix("facts ") for line in self.said[0].splitlines() if line.startswith("facts ")]
        return from_json(lines[self.cases.index(case)], list[KernelFacts])


@pytest.fixture(scope="module")
def compilations() -> Iterator[dict[str, Compilation]]:
    """Both devices at once: compiling is what takes the time here."""
    started = {device: Compilation(device) for device in CASES}
    yield started
    for compilation in started.values():
        compilation.stop()


@pytest.mark.parametrize(
    ("case", "configurations"),
    [
        ("matmul", len(MATMUL_AUTOTUNE)),
        ("matmul of odd rows", 3),
        ("matmul of rows of eights", len(MATMUL_AUTOTUNE)),
        ("matmul of columns of eights", 1),
        ("attention", sum(len(ATTENTION_AUTOTUNE[head_dim]) for head_dim in (64, 128))),
        ("causal attention", sum(len(ATTENTION_AUTOTUNE[head_dim]) for head_dim in (16, 32, 64))),
        ("attention with lengths", len(ATTENTION_AUTOTUNE[16])),
        ("attention in two parts", sum(len(ATTENTION_AUTOTUNE[head_dim]) for head_dim in (96, 192, 256))),
        ("attention of shared heads to more keys", sum(len(ATTENTION_AUTOTUNE[head_dim]) for head_dim in (64, 256))),
        ("attention of one position", len(ATTENTION_AUTOTUNE[16])),
        ("attention of one position or none", len(ATTENTION_AUTOTUNE[16])),
        ("attention to one key or none", len(ATTENTION_AUTOTUNE[16])),
    ],
)
def test_no_configuration_spills_on_hopper(
    compilations: dict[str, Compilation], case: str, configurations: int
) -> None:
    facts = compilations["h200"].facts(case)

    assert len(facts) == configurations
    assert [(fact.config, fact.failure, fact.spill_bytes) for fact in facts if fact.failure or fact.spill_bytes] == []


@pytest.mark.parametrize("case", CASES["a100"])
def test_the_kernels_compile_and_fit_on_ampere(compilations: dict[str, Compilation], case: str) -> None:
    facts = compilations["a100"].facts(case)

    assert facts
    assert [(fact.config, fact.failure) for fact in facts if fact.failure and fact.chosen] == []


@pytest.mark.parametrize("head_dim", [96, 192, 256])
def test_a_head_dimension_of_two_parts_has_a_configuration_for_small_gpus(
    compilations: dict[str, Compilation], head_dim: int
) -> None:
    facts = [fact for fact in compilations["a100"].facts("attention in two parts") if fact.shared_bytes is not None]

    assert [
        fact.config
        for fact in facts
        if f"HEAD_DIM={head_dim}," in fact.config and not fact.spill_bytes and (fact.shared_bytes or 0) <= 65_536
    ]


def test_lengths_are_compiled_though_they_have_no_values(compilations: dict[str, Compilation]) -> None:
    facts = compilations["h200"].facts("attention with lengths")

    assert {"HAS_SEQ_LENS=True" in fact.config for fact in facts} == {True}


@pytest.mark.parametrize(
    ("case", "wide"),
    [
        ("matmul", True),
        ("matmul of odd rows", False),
        ("large matmul of odd rows", True),
        ("matmul of rows of eights", True),
        ("matmul of columns of eights", True),
    ],
)
def test_a_matmul_reads_rows_of_eights_and_if_large_odd_ones_16_bytes_at_a_time_too(
    compilations: dict[str, Compilation], case: str, wide: bool
) -> None:
    facts = [fact for fact in compilations["h200"].facts(case) if fact.kernel == "matmul_kernel"]

    assert {"LDGSTS.128" in (fact.instructions or {}) for fact in facts} == {wide}
    assert {any("LDG.16" in name for name in fact.instructions or {}) for fact in facts} == {not wide}


def test_blocks_that_exceed_shared_memory_are_refused_by_their_sizes(compilations: dict[str, Compilation]) -> None:
    _, errors = compilations["h200"].said

    assert "the block sizes block_m=16, block_n=256, block_k=512 do not fit the GPU" in errors
    assert "shared memory" in errors

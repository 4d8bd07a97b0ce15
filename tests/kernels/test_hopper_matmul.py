"""What the compiler makes of the kernel for Hopper, everywhere; its numbers, on a GPU of that architecture.

A mistake in its barriers would hang the GPU's queue, and with it whoever waits. So the numbers are computed in
processes that have a minute each.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
import torch

from flopwatch.kernels.hopper_matmul import TILES, HopperConfig, can_multiply
from flopwatch.kernels.stream_k import Balance
from flopwatch.model import KernelFacts, from_json

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Normal = Callable[..., torch.Tensor]

SHARED_BYTES = 232448
REGISTERS = 65536
#: A hang costs this. A process imports, compiles two or three kernels and computes small products in about 20 s.
DEADLINE_S = 60.0
#: Runs in a process of its own, in which kernels are compiled and not interpreted. Prints one line of facts, and then
#: how often ptxas says that it had to serialise the tensor cores' instructions.
COMPILE = """
import sys
from dataclasses import replace
import torch
from flopwatch.kernels.hopper_matmul import TILES, Balance, hopper_matmul
from flopwatch.model import to_json
from flopwatch.static import kernel_facts, pretend_gpu
from tests.kernels.assembled import serialised

with pretend_gpu("h200") as recorder:
    for place, balance, dtype in (line.split() for line in sys.argv[1:]):
        a = torch.empty(1536, 1536, device="cuda", dtype=getattr(torch, dtype))
        hopper_matmul(a, a, replace(TILES[int(place)], balance=Balance(balance)))
print("facts", to_json(kernel_facts(recorder)).decode())
for kernel in recorder.compiled.values():
    print("serialised", *serialised(kernel))
"""
#: Tiles and how they are shared: one consumer, two programs on a multiprocessor, three consumers.
COMPILED = ("8 split float16", "5 whole bfloat16", "2 wave float16")
#: Draws operands, multiplies with poisoned outputs, prints the largest error of each product.
PROGRAM = """
import sys
from dataclasses import replace
import torch
from flopwatch.kernels.hopper_matmul import TILES, Balance, hopper_matmul
from flopwatch.kernels.reference import matmul_reference
from flopwatch.kernels.stream_k import Schedule
from flopwatch.kernels.workspace import Workspace
from flopwatch.measure.numbers import difference
from flopwatch.poison import PoisonedAllocations

config = TILES[int(sys.argv[1])]

def draw(M, N, K, dtype=torch.float16):
    return tuple(torch.randn(shape, device="cuda").to(dtype) for shape in ((M, K), (K, N)))

def check(name, a, b, c):
    torch.cuda.synchronize()
    error = difference(c, matmul_reference(a, b)).max_diff_eps
    print(name, "inf" if error is None else error, flush=True)

def multiply(a, b, balance, **named):
    with PoisonedAllocations():
        return hopper_matmul(a, b, replace(config, balance=balance), **named)
"""
SHAPES = """
waves = (8 * config.block_m + 8, 40 * config.block_n - 8, 520)
for balance in Balance:
    for shape in [(8, 8, 8), (64, 64, 64), (200, 328, 1000), (1000, 1000, 1000), (1536, 1536, 1536), waves]:
        a, b = draw(*shape)
        check(f"{balance.value} {shape}", a, b, multiply(a, b, balance))
a, b = draw(328, 200, 1000, torch.bfloat16)
check("bfloat16", a, b, multiply(a, b, Balance.WAVE))
a, b = draw(328, 200, 1000)
check("by columns", a, b.T.contiguous().T, multiply(a, b.T.contiguous().T, Balance.WAVE))
"""
REUSE = """
a, b = draw(1536, 1536, 1536)
first = multiply(a, b, Balance.WAVE)
for call in range(100):
    c = multiply(a, b, Balance.WAVE)
    if not torch.equal(first, c):
        print("call", call, "inf")
check("the last of 100 calls", a, b, c)
"""
GRAPH = """
a, b = draw(1536, 1536, 1536)
multiply(a, b, Balance.WAVE)
stream = torch.cuda.Stream()
with torch.cuda.stream(stream):
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        results = [hopper_matmul(a, b, replace(config, balance=Balance.WAVE)) for _ in range(4)]
for replay in range(20):
    for c in results:
        c.fill_(float("nan"))
    a.copy_(torch.randn_like(a))
    graph.replay()
for c in results:
    check("replayed", a, b, c)
"""
STREAMS = """
operands = [draw(1536, 1536, 1536) for _ in range(2)]
for a, b in operands:
    multiply(a, b, Balance.WAVE)
torch.cuda.synchronize()
streams = [torch.cuda.Stream() for _ in operands]
results = [[], []]
for _ in range(50):
    for stream, kept, (a, b) in zip(streams, results, operands):
        with torch.cuda.stream(stream):
            kept.append(hopper_matmul(a, b, replace(config, balance=Balance.WAVE)))
torch.cuda.synchronize()
for kept, (a, b) in zip(results, operands):
    if not all(torch.equal(kept[0], c) for c in kept):
        print("on two streams inf")
    check("on two streams", a, b, kept[-1])
"""


@pytest.fixture(scope="module")
def compiled() -> list[str]:
    return run(COMPILE, *COMPILED, deadline_s=280.0)


def run(program: str, *arguments: str, deadline_s: float) -> list[str]:
    """Run a program in a process of its own; return the lines that it prints."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    try:
        process = subprocess.run(
            [sys.executable, "-c", program, *arguments],
            capture_output=True,
            text=True,
            env=environment,
            timeout=deadline_s,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        done = (error.stdout or b"").decode()  # bytes whatever `text` says
        pytest.fail(f"hung for {deadline_s:g} s after it had printed:\n{done}")
    assert process.returncode == 0, process.stdout + process.stderr
    return process.stdout.splitlines()


def test_configurations_compile_for_hopper_without_spills(compiled: Sequence[str]) -> None:
    (line,) = (line.removeprefix("facts ") for line in compiled if line.startswith("facts "))
    facts = from_json(line.encode(), list[KernelFacts])

    assert len(facts) == len(COMPILED)
    assert [(fact.config, fact.failure, fact.spill_bytes) for fact in facts if fact.failure or fact.spill_bytes] == []


def test_what_hangs_tells_how_far_it_came() -> None:
    with pytest.raises(pytest.fail.Exception, match="printed:\nwhole"):
        run("import time; print('whole', flush=True); time.sleep(60)", deadline_s=2.0)


def test_every_product_is_the_tensor_cores_of_hopper(compiled: Sequence[str]) -> None:
    (line,) = (line.removeprefix("facts ") for line in compiled if line.startswith("facts "))
    facts = from_json(line.encode(), list[KernelFacts])

    names = [{name for name in fact.instructions if "MMA" in name} for fact in facts]
    assert sorted(names, key=str) == [
        {"HGMMA.64x128x16.F32"},
        {"HGMMA.64x128x16.F32.BF16"},
        {"HGMMA.64x64x16.F32"},
    ]


def test_ptxas_serialises_none_of_them(compiled: Sequence[str]) -> None:
    assert [line for line in compiled if line.startswith("serialised")] == ["serialised"] * len(COMPILED)


@pytest.mark.parametrize("config", TILES, ids=str)
def test_a_configuration_fits_a_multiprocessor(config: HopperConfig) -> None:
    """Shared memory but for barriers, and registers as `setmaxnreg` deals them out."""
    stage_bytes = (config.block_m + config.block_n) * config.block_k * 2
    c_bytes = config.block_m * config.block_n // config.slices * config.c_buffers * 2
    at_start = config.max_registers or min(REGISTERS // (config.warpgroups * 128) // 8 * 8, 248)

    assert config.per_processor * (config.stages * stage_bytes + c_bytes + 1024) <= SHARED_BYTES
    assert config.consumers * config.consumer_registers + 40 <= at_start * config.warpgroups
    assert config.consumer_registers >= config.rows * config.block_n // 128 + 64
    assert config.slices % config.c_buffers == 0


def test_configurations_have_names_of_their_own() -> None:
    names = {str(replace(config, balance=balance)) for config in TILES for balance in Balance}

    assert len(names) == len(TILES) * len(Balance)


@pytest.mark.parametrize(
    ("a", "b", "takes"),
    [
        ((64, 64), (64, 64), True),
        ((64, 72), (72, 8), True),
        ((64, 65), (65, 64), False),
        ((64, 64), (64, 65), False),
        ((64, 64), (72, 64), False),
        ((0, 64), (64, 64), False),
    ],
    ids=str,
)
def test_rows_must_start_at_multiples_of_16_bytes(
    normal: Normal, a: tuple[int, int], b: tuple[int, int], takes: bool
) -> None:
    assert can_multiply(normal(*a), normal(*b)) is takes


def test_b_may_lie_by_columns_and_a_may_not(normal: Normal) -> None:
    x, y = normal(64, 64), normal(128, 128)[1:65, 1:65]

    assert can_multiply(x, x.T)
    assert not can_multiply(x.T, x)
    assert not can_multiply(x, y)


@pytest.mark.gpu
@pytest.mark.skipif(
    torch.cuda.is_available() and torch.cuda.get_device_capability() != (9, 0), reason="is for Hopper alone"
)
@pytest.mark.parametrize("program", [SHAPES, REUSE, GRAPH, STREAMS], ids=["shapes", "reuse", "graph", "streams"])
@pytest.mark.parametrize("place", range(len(TILES)), ids=[str(config) for config in TILES])
def test_every_configuration_is_right(place: int, program: str) -> None:
    lines = run(PROGRAM + program, str(place), deadline_s=DEADLINE_S)

    assert lines
    assert [line for line in lines if float(line.split()[-1]) > 1.0] == []

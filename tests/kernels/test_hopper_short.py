"""What the compiler makes of the kernel for short products, everywhere; its numbers, on a GPU of that architecture.

A mistake in its barriers would hang the GPU's queue, as `test_hopper_matmul` says; so here, too, numbers are computed
in processes of their own, which have two minutes each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from tests.kernels.test_hopper_matmul import REGISTERS, run

from flopwatch.kernels.hopper_short import (
    ALL_TILES,
    SHORT,
    ShortConfig,
    can_multiply_short,
    can_step,
    prepare_short,
)
from flopwatch.model import KernelFacts, from_json

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Normal = Callable[..., torch.Tensor]

#: Of a multiprocessor of an H200, and what each program takes of it beside its own.
SHARED_BYTES, RESERVED_BYTES = 233472, 1024
#: A hang costs this. A process imports, compiles six kernels at 1 to 2 s, and computes small products.
DEADLINE_S = 120.0
#: Runs in a process of its own, in which kernels are compiled and not interpreted. Prints one line of facts, how often
#: ptxas says that it had to serialise the tensor cores' instructions, and shared memory.
COMPILE = """
import re, sys
import torch
from flopwatch.kernels.hopper_short import SHORT, hopper_short_matmul
from flopwatch.model import to_json
from flopwatch.static import kernel_facts, pretend_gpu
from tests.kernels.assembled import serialised

with pretend_gpu("h200") as recorder:
    for name, dtype, layout in (line.split("/") for line in sys.argv[1:]):
        a = torch.empty(1536, 1536, device="cuda", dtype=getattr(torch, dtype))
        hopper_short_matmul(a, a.T if layout == "columns" else a, SHORT[name])
print("facts", to_json(kernel_facts(recorder)).decode())
for kernel in recorder.compiled.values():
    print("serialised", *serialised(kernel))
    print("shared", kernel.metadata.shared)
    touching = r"wgmma\\.wait_group|bar\\.sync|cp\\.async\\.bulk\\.tensor|stmatrix|st\\.shared"
    found = re.findall(touching, kernel.asm["ptx"])
    after = [after for one, after in zip(found, found[1:]) if one == "wgmma.wait_group"]
    print("after", *after)
"""
#: Four warps and eight, beside and below each other; rows and columns of one and of two powers of two; both layouts of
#: B.
COMPILED = (
    "short 64x32x128 s8 w4 x1 tma/float16/columns",
    "short 64x128x64 s9 w8 x1 tma/bfloat16/rows",
    "short 128x192x64 s5 w8 x1 tma/float16/rows",
    "short 128x64x64 s5 w4 x1 r8 tma pdl/bfloat16/columns",
    "short 144x128x64 s4 w4 x1 turned tma pdl/float16/rows",
    "short 96x64x64 s5 w4 x2 turned tma pdl/bfloat16/columns",
)
#: What a program begins with that has `product` and a `config`: draws operands, multiplies with poisoned outputs, and
#: prints the largest error of each product. Of shapes there are one step that is not whole, fewer steps than stages,
#: as many, one more, and several laps, with edges of all kinds. Then what a race between refills and products would
#: break now and then, and rows of C that are not neighbours.
CHECKS = """
import sys
from dataclasses import replace
import torch
from flopwatch.kernels.reference import matmul_reference
from flopwatch.measure.numbers import difference
from flopwatch.poison import PoisonedAllocations

def draw(M, N, K, dtype=torch.float16):
    return tuple(torch.randn(shape, device="cuda").to(dtype) for shape in ((M, K), (K, N)))

def check(name, a, b, c):
    torch.cuda.synchronize()
    error = difference(c, matmul_reference(a, b)).max_diff_eps
    print(config, name, "inf" if error is None else error, flush=True)

def multiply(a, b):
    with PoisonedAllocations():
        return product(a, b, config)

def shapes():
    lap = config.stages * config.block_k
    for shape in [
        *((8, 8, 8), (64, 64, 64), (64, 64, lap), (72, 136, lap + 8), (200, 328, 1000), (520, 776, 1032)),
        *((1000, 1000, 1000), (1536, 1536, 1536), (768, 512, 3 * lap - 8)),
    ]:
        for dtype in (torch.float16, torch.bfloat16):
            a, b = draw(*shape, dtype)
            check(f"{shape} {dtype}", a, b, multiply(a, b))
        a, b = draw(*shape)
        check(f"{shape} by columns", a, b, multiply(a, b.T.contiguous().T))

def reuse():
    a, b = draw(1024, 1024, 2048)
    first = multiply(a, b)
    for call in range(200):
        c = multiply(a, b)
        if not torch.equal(first, c):
            print(config, "call", call, "inf")
    check("the last of 200 calls", a, b, c)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = [product(a, b, config) for _ in range(4)]
    for replay in range(20):
        for c in results:
            c.fill_(float("nan"))
        a.copy_(torch.randn_like(a))
        graph.replay()
    for c in results:
        check("replayed", a, b, c)
    wide = torch.full((1024, 1040), float("nan"), device="cuda", dtype=torch.float16)
    product(a, b, config, out=wide[:, 8:1032])
    check("in a wider matrix", a, b, wide[:, 8:1032])
    beside = torch.cat((wide[:, :8], wide[:, 1032:]), 1)
    print(config, "beside it", 0.0 if beside.isnan().all() else "inf")
"""
#: Rows eight apart: an infinity stays in its row, and zeros before the first element are not multiplied by one.
APART = f"""
{CHECKS}
from flopwatch.kernels.hopper_short import ALL_TILES, hopper_short_matmul as product

(config,) = (tile for tile in ALL_TILES if tile.row_step == 8)
a, b = draw(1000, 1000, 1000)
for row, column in ((0, 0), (3, 999), (505, 7), (999, 500)):
    a[row, column] = float("inf")
    c = multiply(a, b)
    others = [other for other in range(1000) if other != row]
    print(config, row, 0.0 if bool(c[others].isfinite().all()) and not bool(c[row].isfinite().any()) else "inf")
    a[row, column] = 1.0
"""
#: Lines that the checks of one configuration print.
CHECKED = 9 * 3 + 7
#: Of one tile, as it comes after the launch before and earlier.
PROGRAM = f"""
{CHECKS}
from flopwatch.kernels.hopper_short import ALL_TILES, hopper_short_matmul as product

tile = ALL_TILES[int(sys.argv[1])]
for config in (tile, replace(tile, dependent=True)):
    shapes()
    reuse()
"""


@pytest.fixture(scope="module")
def compiled() -> list[str]:
    return run(COMPILE, *COMPILED, deadline_s=280.0)


def facts_of(compiled: Sequence[str]) -> list[KernelFacts]:
    (line,) = (line.removeprefix("facts ") for line in compiled if line.startswith("facts "))
    return from_json(line.encode(), list[KernelFacts])


def test_configurations_compile_for_hopper_without_spills(compiled: Sequence[str]) -> None:
    facts = facts_of(compiled)

    assert len(facts) == len(COMPILED)
    assert [(fact.config, fact.failure, fact.spill_bytes) for fact in facts if fact.failure or fact.spill_bytes] == []


def test_every_product_is_the_tensor_cores_of_hopper(compiled: Sequence[str]) -> None:
    names = [{name for name in fact.instructions if "MMA" in name} for fact in facts_of(compiled)]

    assert sorted(sorted(each) for each in names) == [
        ["HGMMA.64x128x16.F32", "HGMMA.64x16x16.F32"],
        ["HGMMA.64x128x16.F32", "HGMMA.64x64x16.F32"],
        ["HGMMA.64x32x16.F32"],
        ["HGMMA.64x32x16.F32.BF16", "HGMMA.64x64x16.F32.BF16"],
        ["HGMMA.64x64x16.F32.BF16"],
        ["HGMMA.64x64x16.F32.BF16"],
    ]


def test_ptxas_serialises_none_of_them(compiled: Sequence[str]) -> None:
    assert [line for line in compiled if line.startswith("serialised")] == ["serialised"] * len(COMPILED)


def test_a_tile_of_c_lies_where_the_ring_was(compiled: Sequence[str]) -> None:
    configs = [SHORT[line.partition("/")[0]] for line in COMPILED]
    shared = [int(line.split()[1]) for line in compiled if line.startswith("shared")]

    for config, taken in zip(configs, shared, strict=True):
        assert 0 <= taken - ring_bytes(config) <= 16 * config.stages


def test_all_warps_have_waited_for_their_products_before_anything_is_put_where_these_were_read(
    compiled: Sequence[str],
) -> None:
    """After the first step, in the loop, and after the last one; in the first, each part of a tile is waited for."""
    after = [line.split()[1:] for line in compiled if line.startswith("after")]
    parts = [2 if SHORT[line.partition("/")[0]].more else 1 for line in COMPILED]

    assert [len(each) for each in after] == [count + 2 for count in parts]
    assert [each[-3:] for each in after] == [["bar.sync"] * 3] * len(COMPILED)


def ring_bytes(config: ShortConfig) -> int:
    return config.stages * (config.rows + config.columns) * config.block_k * 2


@pytest.mark.parametrize("config", ALL_TILES, ids=str)
def test_as_many_programs_fit_a_multiprocessor_as_it_says(config: ShortConfig) -> None:
    """Shared memory with barriers of up to 16 bytes, and registers: an accumulator, and 40 for what else there is."""
    taken = ring_bytes(config) + 16 * config.stages + RESERVED_BYTES
    registers = config.rows * config.columns // (config.warps * 32) + 40

    assert config.per_processor * taken <= SHARED_BYTES
    assert config.per_processor * registers * config.warps * 32 <= REGISTERS
    assert config.rows * config.columns * 2 <= ring_bytes(config)


@pytest.mark.parametrize("config", ALL_TILES, ids=str)
def test_warps_share_a_tile_as_instructions_have_it(config: ShortConfig) -> None:
    """A warpgroup has 64 rows and a multiple of eight columns, of which an instruction takes 256."""
    high, wide = (config.block_n, config.block_m) if config.turned else (config.block_m, config.block_n)
    beside = max(1, config.warps * 16 // high)

    assert config.warps % 4 == 0
    assert high % 64 == 0
    for part in (wide, config.more):
        assert part % (8 * beside) == 0
        assert part // beside <= 256
    assert config.row_step == 1 or not config.more


def test_rows_that_no_step_divides_are_refused() -> None:
    (apart,) = (tile for tile in ALL_TILES if tile.row_step > 1)
    a = torch.empty(1004, 1000, dtype=torch.float16)

    assert can_step(1000, apart)
    assert not can_step(1004, apart)
    with pytest.raises(ValueError, match=r"1004 rows.*\n.*every 8th row"):
        prepare_short(a, a.T, torch.empty(1004, 1004, dtype=torch.float16), apart)


def test_rows_that_are_apart_have_no_more_beside_a_power_of_two() -> None:
    for turned in (False, True):
        with pytest.raises(ValueError, match=r"8 apart.*\n.*the 16 beside"):
            ShortConfig(block_m=128, block_n=64, more=16, stages=4, row_step=8, turned=turned)


def test_configurations_have_names_of_their_own() -> None:
    assert len(SHORT) == 2 * len(ALL_TILES)


def test_float8_is_for_another_kernel(normal: Normal) -> None:
    half = normal(64, 64)

    assert can_multiply_short(half, half)
    assert not can_multiply_short(half.to(torch.float8_e4m3fn), half.to(torch.float8_e4m3fn).T)
    assert not can_multiply_short(normal(64, 65), normal(65, 64))


@pytest.mark.gpu
@pytest.mark.skipif(
    torch.cuda.is_available() and torch.cuda.get_device_capability() != (9, 0), reason="is for Hopper alone"
)
@pytest.mark.parametrize("place", range(len(ALL_TILES)), ids=[str(config) for config in ALL_TILES])
def test_every_configuration_is_right(place: int) -> None:
    lines = run(PROGRAM, str(place), deadline_s=DEADLINE_S)

    assert len(lines) == 2 * CHECKED
    assert [line for line in lines if float(line.split()[-1]) > 1.0] == []


@pytest.mark.gpu
@pytest.mark.skipif(
    torch.cuda.is_available() and torch.cuda.get_device_capability() != (9, 0), reason="is for Hopper alone"
)
def test_an_infinity_stays_in_its_row_where_rows_are_eight_apart() -> None:
    lines = run(APART, deadline_s=DEADLINE_S)

    assert [float(line.split()[-1]) for line in lines] == [0.0] * 4

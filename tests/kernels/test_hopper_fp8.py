"""What the compiler makes of the float8 products for Hopper, everywhere; their numbers, on a GPU of that architecture.

As in `test_hopper_matmul`, whose deadlines say why numbers are computed in processes of their own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from benchmarks_host.stand_in import compiler
from tests.conftest import HAS_GPU
from tests.kernels.test_hopper_matmul import DEADLINE_S, REGISTERS, run
from tests.kernels.test_routes import write_table

from flopwatch.kernels.hopper_fp8 import FP8_CONFIGS, FP8_PROMOTED_TILES, FP8_TILES, can_multiply_fp8
from flopwatch.model import KernelFacts, from_json

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from flopwatch.kernels.hopper_matmul import HopperConfig

    Normal = Callable[..., torch.Tensor]

#: Of one program, at most; and what the driver reserves of a multiprocessor's 228 KiB for each of them.
SHARED_BYTES, RESERVED_BYTES = 232448, 1024
for_hopper = pytest.mark.skipif(
    torch.cuda.is_available() and torch.cuda.get_device_capability() != (9, 0), reason="is for Hopper alone"
)
#: Runs in a process of its own, in which kernels are compiled and not interpreted. Prints of each configuration what
#: else it is compiled for, a line of facts, and how often ptxas says that it had to serialise the tensor cores'
#: instructions.
COMPILE = """
import sys
from dataclasses import replace
import torch
from flopwatch.kernels.hopper_fp8 import FP8_PROMOTED_TILES, FP8_TILES, prepare_hopper_fp8
from flopwatch.kernels.stream_k import Balance
from flopwatch.model import to_json
from flopwatch.static import kernel_facts, pretend_gpu
from tests.kernels.assembled import serialised

def empty(*shape, dtype=torch.float32):
    return torch.empty(shape, device="cuda", dtype=dtype)

for case in sys.argv[1:]:
    place, sums, scales, balance = case.split()
    tile = (FP8_PROMOTED_TILES if sums == "promoted" else FP8_TILES)[int(place)]
    with pretend_gpu("h200") as recorder:
        a, b = (empty(rows, 1040, dtype=torch.float8_e4m3fn) for rows in (520, 776))
        one = [empty(size if scales == "row" else 1) for size in (520, 776)]
        config = replace(tile, balance=Balance(balance))
        c = empty(520, 776, dtype=torch.bfloat16 if scales == "row" else torch.float16)
        prepare_hopper_fp8(a, b.T, c, *one, config, promotes=sums == "promoted").launch()
        print("facts", to_json(kernel_facts(recorder)).decode())
    (kernel,) = recorder.compiled.values()
    print("serialised", *serialised(kernel))
    print("shared", kernel.metadata.shared)
"""
#: Each tile as it needs the most registers: with scales of rows and columns, and shared. The first two also without.
COMPILED = (
    *(f"{place} fast row rest" for place in range(len(FP8_TILES))),
    *(f"{place} promoted row rest" for place in range(len(FP8_PROMOTED_TILES))),
    *(f"{place} {sums} tensor whole" for place in (0, 1) for sums in ("fast", "promoted")),
)
#: Draws operands, multiplies with poisoned outputs, prints the largest error of each product.
PROGRAM = """
import sys
from dataclasses import replace
import torch
from flopwatch.kernels.hopper_fp8 import FP8_PROMOTED_TILES, FP8_TILES, prepare_hopper_fp8
from flopwatch.kernels.stream_k import Balance
from flopwatch.kernels.reference import matmul_reference
from flopwatch.measure.numbers import difference
from flopwatch.poison import PoisonedAllocations

promotes = sys.argv[2] == "promoted"
config = (FP8_PROMOTED_TILES if promotes else FP8_TILES)[int(sys.argv[1])]

def check(balance, shape, per_row, per_column, dtype=torch.bfloat16):
    M, N, K = shape
    a, b = (torch.randn(rows, K, device="cuda").to(torch.float8_e4m3fn) for rows in (M, N))
    scale_a = torch.rand(M if per_row else 1, device="cuda") + 0.5
    scale_b = torch.rand(N if per_column else 1, device="cuda") + 0.5
    with PoisonedAllocations():
        c = torch.empty(M, N, device="cuda", dtype=dtype)
        prepared = prepare_hopper_fp8(a, b.T, c, scale_a, scale_b, replace(config, balance=balance), promotes=promotes)
        prepared.launch()
    torch.cuda.synchronize()
    error = difference(c, matmul_reference(a, b.T) * scale_a.double()[:, None] * scale_b.double()).max_diff_eps
    print(balance.value, shape, per_row, per_column, dtype, "inf" if error is None else error, flush=True)

waves = (8 * config.block_m + 8, 40 * config.block_n - 8, 528)
for balance in Balance:
    for shape in [(1, 16, 16), (8, 8, 16), (64, 64, 64), (200, 328, 1008), (1536, 1536, 1536), waves]:
        check(balance, shape, True, True)
    check(balance, (328, 200, 1040), False, False)
check(Balance.WHOLE, (328, 200, 1040), True, False)
check(Balance.WHOLE, (328, 200, 1040), False, True)
check(Balance.WHOLE, (328, 200, 1040), True, True, torch.float16)
"""
#: In units of the result's epsilon relative to the largest element: rounding costs half of one. As in
#: `test_matmul_fp8`, of float16 the 14 bits of a sum cost as much again; fast sums keep no more along K = 1536.
CEILING_EPS = {("bfloat16", "promoted"): 1.0, ("bfloat16", "fast"): 2.0, ("float16", "promoted"): 2.0}
CEILING_EPS["float16", "fast"] = 8.0


@pytest.fixture(scope="module")
def compiled() -> list[str]:
    return run(COMPILE, *COMPILED, deadline_s=280.0)


def facts_of(lines: list[str]) -> list[KernelFacts]:
    found = [from_json(line.removeprefix("facts ").encode(), list[KernelFacts]) for line in lines if "facts" in line]
    return [fact for (fact,) in found]


def test_configurations_compile_for_hopper_without_spills(compiled: list[str]) -> None:
    facts = facts_of(compiled)

    assert len(facts) == len(COMPILED)
    assert [(fact.config, fact.failure, fact.spill_bytes) for fact in facts if fact.failure or fact.spill_bytes] == []


def test_every_product_is_that_of_float8_on_the_tensor_cores_of_hopper(compiled: list[str]) -> None:
    for case, fact in zip(COMPILED, facts_of(compiled), strict=True):
        names = {name for name in fact.instructions or () if "MMA" in name}
        assert {name.partition(".")[0] for name in names} == {"QGMMA"}, case


def test_sums_of_steps_are_added_in_float32_if_promoted(compiled: list[str]) -> None:
    by_case = dict(zip(COMPILED, facts_of(compiled), strict=True))

    for place in (0, 1):
        fast, promoted = (by_case[f"{place} {sums} tensor whole"].instructions or {} for sums in ("fast", "promoted"))
        tile = FP8_PROMOTED_TILES[place]
        assert "FADD" not in fast
        assert promoted["FADD"] == tile.rows * tile.block_n // 128


def test_ptxas_serialises_none_of_them(compiled: list[str]) -> None:
    assert [line for line in compiled if line.startswith("serialised")] == ["serialised"] * len(COMPILED)


def test_their_shared_memory_fits_a_multiprocessor(compiled: list[str]) -> None:
    used = [int(line.split()[1]) for line in compiled if line.startswith("shared")]

    for case, shared_bytes in zip(COMPILED, used, strict=True):
        place, sums, *_ = case.split()
        tile = (FP8_PROMOTED_TILES if sums == "promoted" else FP8_TILES)[int(place)]
        assert tile.per_processor * (shared_bytes + RESERVED_BYTES) <= SHARED_BYTES + RESERVED_BYTES, case


@pytest.mark.parametrize("tile", FP8_PROMOTED_TILES, ids=str)
def test_a_consumer_has_registers_for_what_it_sums_twice(tile: HopperConfig) -> None:
    at_start = tile.max_registers or min(REGISTERS // (tile.warpgroups * 128) // 8 * 8, 248)

    assert tile.consumer_registers >= 2 * tile.rows * tile.block_n // 128 + 24
    assert tile.consumers * tile.consumer_registers + 40 <= at_start * tile.warpgroups


def test_a_configuration_may_be_chosen_by_its_name_if_it_fits_the_sums() -> None:
    assert set(FP8_CONFIGS[True]) < set(FP8_CONFIGS[False])
    assert {str(tile) for tile in FP8_TILES} < set(FP8_CONFIGS[False])


@pytest.mark.parametrize(
    ("dtype", "out_dtype", "columns", "takes"),
    [
        (torch.float8_e4m3fn, torch.bfloat16, 72, True),
        (torch.float8_e4m3fn, torch.float16, 72, True),
        (torch.float8_e4m3fn, torch.float32, 72, False),
        (torch.float8_e4m3fn, torch.bfloat16, 68, False),
        (torch.float16, torch.float16, 72, False),
    ],
    ids=str,
)
def test_what_tensor_maps_and_the_kernel_take(
    normal: Normal, dtype: torch.dtype, out_dtype: torch.dtype, columns: int, takes: bool
) -> None:
    a, b = normal(64, 48, dtype=dtype), normal(columns, 48, dtype=dtype).T

    assert can_multiply_fp8(a, b, normal(64, columns, dtype=out_dtype)) is takes
    assert not can_multiply_fp8(a, b.contiguous(), normal(64, columns, dtype=out_dtype)) or dtype == torch.float16


KEY = "256, 512, 384, True, True, True, float8_e4m3fn, float8_e4m3fn, bfloat16"
CHOICES = (
    ("hopper_matmul_kernel", str(FP8_PROMOTED_TILES[0]), KEY),
    (
        "hopper_matmul_kernel",
        str(FP8_TILES[0]),
        "512, 512, 384, True, True, True, float8_e4m3fn, float8_e4m3fn, bfloat16",
    ),
    ("plain", "", "2048, 2048, 4096, True, True, True, float8_e4m3fn, float8_e4m3fn, bfloat16"),
)
#: Runs in a process of its own, in which kernels are not interpreted: prints the kernels that calls would launch.
PRETENDED = """
import sys
from pathlib import Path
import torch
from triton.runtime.autotuner import Autotuner
from triton.runtime.jit import JITFunction
from flopwatch.kernels import routes, triton_matmul_fp8
from flopwatch.static import pretend_gpu

routes.FOLDER = Path(sys.argv[1])

def multiply(M=256, N=512, K=384, *, rows=None, by_columns=True, **named):
    a, b = (torch.empty(size, device="cuda", dtype=torch.float8_e4m3fn) for size in ((M, K), (N, K)))
    scale_a = torch.empty(rows or M, device="cuda")
    triton_matmul_fp8(a, b.T if by_columns else b.T.contiguous(), scale_a, torch.empty(1, N, device="cuda"), **named)

CALLS = {
    "known": lambda: multiply(),
    "fast": lambda: multiply(use_fast_accum=True),
    "one scale": lambda: multiply(rows=1),
    "float16": lambda: multiply(out_dtype=torch.float16),
    "by rows": lambda: multiply(by_columns=False),
    "another size": lambda: multiply(264),
    "a tile that has no registers to promote": lambda: multiply(512),
    "ruled": lambda: multiply(2048, 2048, 2048),
    "ruled, fast": lambda: multiply(2048, 2048, 2048, use_fast_accum=True),
    "of which a table has the plain kernel": lambda: multiply(2048, 2048, 4096),
    "ruled, few rows": lambda: multiply(16, 4096, 4096),
    "ruled, of float32": lambda: multiply(2048, 2048, 2048, out_dtype=torch.float32),
    "ruled, copied along K": lambda: multiply(2048, 2048, 2048, by_columns=False),
    "ruled, copied to longer rows": lambda: multiply(2048, 2048, 2056),
}
JITFunction.run = lambda self, *_, **__: launched.append(self.__name__)
Autotuner.run = lambda self, *_, **__: launched.append(self.base_fn.__name__)
for name, call in CALLS.items():
    with pretend_gpu(sys.argv[2]):
        launched = []
        call()
    print(name, *launched, sep="|")
"""


@pytest.mark.skipif(HAS_GPU, reason="torch asks the real GPU")
@pytest.mark.parametrize("device", ["h200", "h100", "l40s"])
def test_what_a_table_knows_or_the_rule_has_takes_the_kernel_for_hopper(tmp_path: Path, device: str) -> None:
    """The table is an H200's, and an L40S has other tensor cores."""
    plain, hopper, thin = "matmul_fp8_kernel", "hopper_matmul_kernel", "thin_matmul_kernel"
    ruled, ruled_thin = (plain, plain) if device == "l40s" else (hopper, thin)
    lines = run(PRETENDED, str(write_table(tmp_path, CHOICES)), device, deadline_s=DEADLINE_S)

    found = dict(line.split("|") for line in lines)
    assert found.pop("known") == (hopper if device == "h200" else plain)
    assert found.pop("of which a table has the plain kernel") == (plain if device == "h200" else ruled)
    for name in ("ruled", "ruled, fast", "ruled, copied along K", "ruled, copied to longer rows"):
        assert found.pop(name) == ruled
    assert found.pop("ruled, few rows") == ruled_thin
    assert set(found.values()) == {plain}
    assert len(found) == 7


#: Calls twice through Triton's dispatch, and again past it; prints whether maps were encoded, how many launches are
#: kept, and whether the kernel is handed the same.
KEPT = """
import ctypes, sys
from pathlib import Path
import torch
from benchmarks_host import stand_in
from flopwatch.kernels import launch as launch_module, routes, triton_matmul_fp8

routes.FOLDER = Path(sys.argv[1])
matmul_fp8 = sys.modules["flopwatch.kernels.matmul_fp8"]
with stand_in.stand_in_gpu() as library:
    count, encoded = (ctypes.c_int.in_dll(library, name) for name in ("stand_in_count", "stand_in_encoded"))
    values = (ctypes.c_ulonglong * 64).in_dll(library, "stand_in_values")
    sizes = (ctypes.c_int * 64).in_dll(library, "stand_in_bytes")
    made = {}  # what a call allocates lies where it lay before
    empty = torch.empty
    def empty_there(*shape, device=None, dtype=None):
        sizes = shape[0] if isinstance(shape[0], tuple) else shape
        return made.setdefault((tuple(sizes), dtype), empty(*shape, device=device, dtype=dtype))
    torch.empty = empty_there
    launch_module.empty_on_gpu = lambda shape, _strides, dtype: empty_there(shape, device="cuda", dtype=dtype)
    a, b = (stand_in.tensor(rows, 384, dtype=torch.float8_e4m3fn) for rows in (256, 512))
    scale_a, scale_b = (stand_in.tensor(rows, dtype=torch.float32) for rows in (256, 512))
    given = [8, 4, 4, 8, 8] * 3 + [8] * 4  # bytes: three maps, each with two sizes and two strides, and the rest
    b = b.T.as_subclass(stand_in.StandInTensor)
    call = lambda: triton_matmul_fp8(a, b, scale_a, scale_b)
    call()
    seen = []
    for step in ("alone", "kept", "again"):
        if step == "alone":
            matmul_fp8._launches.forget()
        before, count.value, sizes[: len(given)] = encoded.value, len(given), given
        call()
        count.value = 0
        seen.append(tuple(values[: len(given)]))
        print(step, encoded.value > before, len(matmul_fp8._launches), seen[-1] == seen[0])
    assert seen[0][-2:] == (scale_a.data_ptr(), scale_b.data_ptr())
    print(next(iter(matmul_fp8._launches._kept.values())).function.__name__)
"""


@pytest.mark.skipif(HAS_GPU, reason="the stand-in for libcuda cannot lie beside the real one")
@pytest.mark.skipif(compiler() is None, reason="no C compiler to build the stand-in for libcuda")
def test_a_later_call_hands_over_the_same_with_its_scales_and_encodes_nothing(tmp_path: Path) -> None:
    lines = run(KEPT, str(write_table(tmp_path, CHOICES, gpu="stand-in")), deadline_s=DEADLINE_S)

    assert lines == ["alone True 1 True", "kept True 1 True", "again False 1 True", "hopper_matmul_kernel"]


@pytest.mark.gpu
@for_hopper
@pytest.mark.parametrize(
    ("sums", "place"),
    [
        pytest.param(sums, place, id=f"{sums}-{tile}")
        for sums, tiles in (("fast", FP8_TILES), ("promoted", FP8_PROMOTED_TILES))
        for place, tile in enumerate(tiles)
    ],
)
def test_every_configuration_is_right(sums: str, place: int) -> None:
    lines = run(PROGRAM, str(place), sums, deadline_s=2 * DEADLINE_S)

    assert lines
    for line in lines:
        *_, dtype, error = line.split()
        assert float(error) <= CEILING_EPS[dtype.removeprefix("torch."), sums], line


#: Prints the kernel of a call, the errors of its first result and of one past Triton's dispatch, both into poisoned
#: memory, how many were past it, and whether a captured one has the same bits.
ROUTED = """
import sys
from pathlib import Path
import torch
from flopwatch.kernels import launch, routes, triton_matmul_fp8
from flopwatch.kernels.launch import Launches
from flopwatch.kernels.reference import matmul_reference
from flopwatch.measure.numbers import difference
from flopwatch.poison import PoisonedAllocations

routes.FOLDER = Path(sys.argv[1])
matmul_fp8 = sys.modules["flopwatch.kernels.matmul_fp8"]
a, b = (torch.randn(rows, 384, device="cuda").to(torch.float8_e4m3fn) for rows in (256, 512))
scale_a, scale_b = (torch.rand(rows, device="cuda") + 0.5 for rows in (256, 512))
call = lambda: triton_matmul_fp8(a, b.T, scale_a, scale_b)
expected = matmul_reference(a, b.T) * scale_a.double()[:, None] * scale_b.double()
with PoisonedAllocations():
    first = call()
call()  # kept, which it is not inside a mode of torch
(kept,) = matmul_fp8._launches._kept.values()
past, empty, launch_again = [], launch.empty_on_gpu, Launches.again
launch.empty_on_gpu = lambda *asked: empty(*asked).fill_(float("nan"))
Launches.again = lambda *asked: past.append(launch_again(*asked)) or past[-1]
again = call()
launch.empty_on_gpu = empty
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    captured = call()
captured.fill_(float("nan"))
graph.replay()
errors = [difference(result, expected).max_diff_eps for result in (first, again)]
same = torch.equal(first, again) and torch.equal(first, captured)
print(kept.function.__name__, *errors, sum(one is not None for one in past), same)
"""


@pytest.mark.gpu
@for_hopper
def test_a_routed_product_is_right_and_past_tritons_dispatch_too(tmp_path: Path) -> None:
    folder = write_table(tmp_path, CHOICES, gpu=torch.cuda.get_device_name())
    (line,) = run(ROUTED, str(folder), deadline_s=DEADLINE_S)

    kernel, first, again, past, same = line.split()
    assert (kernel, past, same) == ("hopper_matmul_kernel", "2", "True")
    assert max(float(first), float(again)) <= CEILING_EPS["bfloat16", "promoted"]

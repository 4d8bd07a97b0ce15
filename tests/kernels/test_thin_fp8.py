"""Numbers, interpreted without a GPU and compiled on one, and what the compiler makes of it for Hopper, everywhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from benchmarks_host.stand_in import compiler
from tests.conftest import HAS_GPU
from tests.kernels.test_hopper_fp8 import ROUTED
from tests.kernels.test_hopper_matmul import DEADLINE_S, run
from tests.kernels.test_routes import write_table

from flopwatch.kernels.reference import matmul_reference
from flopwatch.kernels.stream_k import Schedule
from flopwatch.kernels.thin_fp8 import CANDIDATES, MOST_FP8_ROWS, THIN_FP8, WIDE, prepare_thin_fp8
from flopwatch.kernels.thin_matmul import MOST_ROWS, ThinConfig
from flopwatch.kernels.workspace import Workspace
from flopwatch.measure.numbers import difference
from flopwatch.model import KernelFacts, from_json
from flopwatch.poison import PoisonedAllocations

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Normal = Callable[..., torch.Tensor]
    Operands = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]

E4M3 = torch.float8_e4m3fn
SPLIT = ThinConfig(block_n=64, block_k=32, splits=3, num_stages=2)
UPRIGHT = ThinConfig(block_n=32, block_k=64, splits=2, num_stages=2, upright=True)
BOTH = pytest.mark.parametrize("config", [SPLIT, UPRIGHT], ids=str)
COLUMNS, DEPTH = (4096, 4096) if HAS_GPU else (192, 1040)
#: As of `test_matmul_fp8`.
CEILING_EPS = {
    torch.bfloat16: 1.0,
    torch.float16: 2.0 if HAS_GPU else 1.0,
    torch.float32: 2.0**13 if HAS_GPU else 8.0,
}


def operands(normal: Normal, rows: int, columns: int, depth: int, scales: str = "row") -> Operands:
    """A by rows, B by columns; scales near 1 that differ, or one for each matrix."""
    sizes = ((rows,), (columns,)) if scales == "row" else ((1,), (1,))
    scale_a, scale_b = (normal(*size, dtype=torch.float32).abs() + 0.5 for size in sizes)
    return normal(rows, depth, dtype=E4M3), normal(columns, depth, dtype=E4M3).T, scale_a, scale_b


def error_eps(
    given: Operands,
    config: ThinConfig,
    *,
    promotes: bool = True,
    out_dtype: torch.dtype = torch.bfloat16,
    workspace: Workspace | None = None,
) -> float:
    """Multiply into poisoned memory; an element that is never written gives an infinite error."""
    a, b, scale_a, scale_b = given
    with PoisonedAllocations():
        c = torch.empty((a.shape[0], b.shape[1]), device=a.device, dtype=out_dtype)
        prepare_thin_fp8(a, b, c, scale_a, scale_b, config, promotes=promotes, workspace=workspace).launch()
    expected = matmul_reference(a, b) * scale_a.double()[:, None] * scale_b.double()
    error = difference(c, expected).max_diff_eps
    return float("inf") if error is None else error


@BOTH
@pytest.mark.parametrize("promotes", [False, True])
@pytest.mark.parametrize("scales", ["tensor", "row"])
@pytest.mark.parametrize("rows", [1, 7, 16, 33, 64, 90, 128])
def test_a_product_of_few_rows_is_as_exact_as_its_dtype(
    normal: Normal, rows: int, scales: str, promotes: bool, config: ThinConfig
) -> None:
    assert error_eps(operands(normal, rows, 80, 208, scales), config, promotes=promotes) <= 1.0


@BOTH
@pytest.mark.parametrize("out_dtype", CEILING_EPS, ids=str)
def test_a_product_is_written_in_the_dtype_of_its_output(
    normal: Normal, out_dtype: torch.dtype, config: ThinConfig
) -> None:
    assert error_eps(operands(normal, 9, 96, 160), config, out_dtype=out_dtype) <= CEILING_EPS[out_dtype]


@pytest.mark.parametrize("per_row", [False, True])
def test_one_operand_may_have_one_scale_and_the_other_many(normal: Normal, per_row: bool) -> None:
    a, b, by_row, by_column = operands(normal, 5, 48, 64)
    scales = (by_row, by_column[:1]) if per_row else (by_row[:1], by_column)

    assert max(error_eps((a, b, *scales), config) for config in (SPLIT, UPRIGHT)) <= 1.0


@pytest.mark.parametrize(
    ("name", "promotes"),
    [
        (name, promotes)
        for promotes in THIN_FP8
        for name, config in THIN_FP8[promotes].items()
        if HAS_GPU or not config.dependent  # which is nothing to the interpreter
    ],
)
def test_every_configuration_that_may_win_is_right(normal: Normal, name: str, promotes: bool) -> None:
    given = operands(normal, 5, COLUMNS, DEPTH)

    # All of K = 4096 in sums of 14 bits, as `test_matmul_fp8` reckons.
    limit = 4.0 if HAS_GPU and not promotes else 1.0
    assert error_eps(given, THIN_FP8[promotes][name], promotes=promotes) <= limit


@BOTH
@pytest.mark.parametrize(("columns", "depth"), [(64, 96), (65, 96), (64, 97), (1, 1), (200, 31)])
def test_ragged_columns_and_depths_are_right(normal: Normal, columns: int, depth: int, config: ThinConfig) -> None:
    assert error_eps(operands(normal, 3, columns, depth), config) <= 1.0


@BOTH
def test_b_may_lie_by_rows(normal: Normal, config: ThinConfig) -> None:
    a, b, scale_a, scale_b = operands(normal, 3, 64, 96)

    assert error_eps((a, b.contiguous(), scale_a, scale_b), config) <= 1.0


@BOTH
def test_the_check_notices_one_wrong_scale(normal: Normal, config: ThinConfig) -> None:
    a, b, scale_a, scale_b = operands(normal, 5, 64, 96)
    wrong = scale_b.clone()
    wrong[-1] *= 8
    c = torch.empty(5, 64, device=a.device, dtype=torch.bfloat16)

    prepare_thin_fp8(a, b, c, scale_a, wrong, config, promotes=True).launch()

    error = difference(c, matmul_reference(a, b) * scale_a.double()[:, None] * scale_b.double()).max_diff_eps
    assert error is not None
    assert error > 2.0


@BOTH
def test_a_workspace_is_as_it_was_after_each_launch_and_the_bits_are_the_same(
    normal: Normal, config: ThinConfig
) -> None:
    a, b, scale_a, scale_b = operands(normal, 4, 130, 208)
    workspace = Workspace.of(Schedule(programs=5 * 3, shared=5), MOST_ROWS * 64, device=a.device)
    workspace.parts.fill_(float("nan"))
    results = [torch.empty(4, 130, device=a.device, dtype=torch.bfloat16) for _ in range(3)]

    for c in results:
        prepare_thin_fp8(a, b, c, scale_a, scale_b, config, promotes=True, workspace=workspace).launch()

    assert workspace.flags.count_nonzero() == 0
    assert all(torch.equal(results[0], result) for result in results)


def test_what_may_be_promoted_takes_no_deeper_steps_than_the_public_function_says() -> None:
    assert [config for config in THIN_FP8[False].values() if not config.dependent] == [*CANDIDATES, *WIDE]
    assert {config.block_k for config in THIN_FP8[True].values()} == {128}


#: Runs in a process of its own, in which kernels are compiled and not interpreted. Prints of each configuration a line
#: of facts, how often ptxas says that it had to serialise the tensor cores' instructions, and shared memory.
COMPILE = """
from dataclasses import replace
import torch
from flopwatch.kernels.thin_fp8 import THIN_FP8, WIDE, prepare_thin_fp8
from flopwatch.model import to_json
from flopwatch.static import kernel_facts, pretend_gpu
from tests.kernels.assembled import serialised

def empty(*shape, dtype=torch.float32):
    return torch.empty(shape, device="cuda", dtype=dtype)

for promotes in (False, True):
    for config in THIN_FP8[promotes].values():
        with pretend_gpu("h200", tensors="meta") as recorder:
            M = 128 if replace(config, dependent=False) in WIDE else 64
            a, b = (empty(rows, 4096, dtype=torch.float8_e4m3fn) for rows in (M, 4096))
            c = empty(M, 4096, dtype=torch.bfloat16)
            prepare_thin_fp8(a, b.T, c, empty(M), empty(4096), config, promotes=promotes).launch()
            print("facts", to_json(kernel_facts(recorder)).decode())
        (kernel,) = recorder.compiled.values()
        print("serialised", *serialised(kernel))
        print("shared", kernel.metadata.shared)
"""
#: Of one program, at most.
SHARED_BYTES = 232448


@pytest.fixture(scope="module")
def compiled() -> list[str]:
    """Lines of all configurations at as many rows as they are raced with, where each needs the most."""
    return run(COMPILE, deadline_s=280.0)


@pytest.fixture(scope="module")
def facts(compiled: list[str]) -> list[KernelFacts]:
    found = [from_json(line.removeprefix("facts ").encode(), list[KernelFacts]) for line in compiled if "facts" in line]
    return [fact for (fact,) in found]


def test_configurations_compile_for_hopper_without_spills(facts: list[KernelFacts]) -> None:
    assert len(facts) == sum(map(len, THIN_FP8.values()))
    assert [(fact.config, fact.failure, fact.spill_bytes) for fact in facts if fact.failure or fact.spill_bytes] == []


def test_every_product_is_that_of_float8_on_the_tensor_cores_of_hopper(facts: list[KernelFacts]) -> None:
    for fact in facts:
        names = {name for name in fact.instructions or () if "MMA" in name}
        assert {name.partition(".")[0] for name in names} == {"QGMMA"}, fact.config


def test_b_is_copied_16_bytes_at_a_time_past_the_registers(facts: list[KernelFacts]) -> None:
    for fact in facts:
        assert {name for name in fact.instructions or () if name.startswith("LDGSTS")} == {"LDGSTS.128"}, fact.config


def test_the_tensor_cores_are_not_serialised_and_all_fits(compiled: list[str]) -> None:
    assert {line for line in compiled if line.startswith("serialised")} == {"serialised"}
    assert max(int(line.removeprefix("shared ")) for line in compiled if line.startswith("shared")) <= SHARED_BYTES


NAMES = {
    promotes: next(name for name, config in THIN_FP8[promotes].items() if config.splits > 1) for promotes in THIN_FP8
}
CHOICES = tuple(
    (
        "thin_matmul_kernel",
        name,
        f"{M}, 512, 1024, {promotes}, True, {by_column}" + ", float8_e4m3fn" * 2 + f", {dtype}",
    )
    for M, promotes, by_column, dtype, name in (
        (16, True, True, "bfloat16", NAMES[True]),
        (16, False, False, "float32", NAMES[False]),
        (24, True, True, "bfloat16", NAMES[False]),
        (MOST_FP8_ROWS + 8, True, True, "bfloat16", NAMES[True]),
    )
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

def multiply(M=16, *, columns=512, by_columns=True, **named):
    a, b = (torch.empty(rows, 1024, device="cuda", dtype=torch.float8_e4m3fn) for rows in (M, 512))
    scales = torch.empty(M, device="cuda"), torch.empty(columns, device="cuda")
    triton_matmul_fp8(a, b.T if by_columns else b.T.contiguous(), *scales, **named)

CALLS = {
    "known": lambda: multiply(),
    "known, fast, float32": lambda: multiply(columns=1, out_dtype=torch.float32, use_fast_accum=True),
    "fast": lambda: multiply(use_fast_accum=True),
    "by rows": lambda: multiply(by_columns=False),
    "a step too deep to promote": lambda: multiply(24),
    "too many rows": lambda: multiply(136),
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
@pytest.mark.parametrize(("device", "kernel"), [("h200", "thin_matmul_kernel"), ("h100", "matmul_fp8_kernel")])
def test_what_a_table_knows_takes_the_kernel_for_few_rows(tmp_path: Path, device: str, kernel: str) -> None:
    lines = run(PRETENDED, str(write_table(tmp_path, CHOICES)), device, deadline_s=DEADLINE_S)

    found = dict(line.split("|") for line in lines)
    assert {found.pop("known"), found.pop("known, fast, float32")} == {kernel}
    assert set(found.values()) == {"matmul_fp8_kernel"}
    assert len(found) == 4


#: Calls twice through Triton's dispatch, and again past it; prints how many launches are kept, and whether the kernel
#: is handed the same.
KEPT = """
import ctypes, sys
from pathlib import Path
import torch
from benchmarks_host import stand_in
from flopwatch.kernels import launch as launch_module, routes, triton_matmul_fp8

routes.FOLDER = Path(sys.argv[1])
matmul_fp8 = sys.modules["flopwatch.kernels.matmul_fp8"]
with stand_in.stand_in_gpu() as library:
    count = ctypes.c_int.in_dll(library, "stand_in_count")
    values = (ctypes.c_ulonglong * 64).in_dll(library, "stand_in_values")
    sizes = (ctypes.c_int * 64).in_dll(library, "stand_in_bytes")
    made = {}  # what a call allocates lies where it lay before
    empty = torch.empty
    def empty_there(*shape, device=None, dtype=None):
        sizes = shape[0] if isinstance(shape[0], tuple) else shape
        return made.setdefault((tuple(sizes), dtype), empty(*shape, device=device, dtype=dtype))
    torch.empty = empty_there
    launch_module.empty_on_gpu = lambda shape, _strides, dtype: empty_there(shape, device="cuda", dtype=dtype)
    a, b = (stand_in.tensor(rows, 1024, dtype=torch.float8_e4m3fn) for rows in (16, 512))
    scale_a, scale_b = (stand_in.tensor(rows, dtype=torch.float32) for rows in (16, 512))
    given = [8] * 7 + [4] * 3
    b = b.T.as_subclass(stand_in.StandInTensor)
    call = lambda: triton_matmul_fp8(a, b, scale_a, scale_b)
    call()
    seen = []
    for step in ("alone", "kept", "again"):
        if step == "alone":
            matmul_fp8._launches.forget()
        count.value, sizes[: len(given)] = len(given), given
        call()
        count.value = 0
        seen.append(tuple(values[: len(given)]))
        print(step, len(matmul_fp8._launches), seen[-1] == seen[0])
    assert seen[0][:2] == (a.data_ptr(), b.data_ptr())
    assert seen[0][5:] == (scale_a.data_ptr(), scale_b.data_ptr(), 16, 512, 1024)
    print(next(iter(matmul_fp8._launches._kept.values())).function.__name__)
"""


@pytest.mark.skipif(HAS_GPU, reason="the stand-in for libcuda cannot lie beside the real one")
@pytest.mark.skipif(compiler() is None, reason="no C compiler to build the stand-in for libcuda")
def test_a_later_call_hands_over_the_same_with_its_scales(tmp_path: Path) -> None:
    lines = run(KEPT, str(write_table(tmp_path, CHOICES, gpu="stand-in")), deadline_s=DEADLINE_S)

    assert lines == ["alone 1 True", "kept 1 True", "again 1 True", "thin_matmul_kernel"]


@pytest.mark.gpu
@pytest.mark.parametrize("promotes", [False, True])
@pytest.mark.parametrize("rows", [1, 16, 64, 128])
def test_large_products_on_a_gpu_are_as_exact_as_their_sums(normal: Normal, rows: int, promotes: bool) -> None:
    given = operands(normal, rows, 14336, 8192)
    limit = 1.0 if promotes else 4.0  # as in `test_matmul_fp8`

    for config in WIDE if rows > MOST_ROWS else CANDIDATES:
        if str(config) not in THIN_FP8[promotes]:
            continue
        assert error_eps(given, config, promotes=promotes) <= limit, config


@pytest.mark.gpu
def test_a_routed_product_is_right_and_past_tritons_dispatch_too(tmp_path: Path) -> None:
    folder = write_table(tmp_path, CHOICES, gpu=torch.cuda.get_device_name())
    program = ROUTED.replace("(256, 512)", "(16, 512)").replace("384", "1024")
    (line,) = run(program, str(folder), deadline_s=DEADLINE_S)

    kernel, first, again, past, same = line.split()
    assert (kernel, past, same) == ("thin_matmul_kernel", "2", "True")
    assert max(float(first), float(again)) <= CEILING_EPS[torch.bfloat16]

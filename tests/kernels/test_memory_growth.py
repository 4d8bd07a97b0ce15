"""No public function keeps anything of its calls: 10,000 of them leave memory as it was."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch
from benchmarks_host.stand_in import compiler
from tests.conftest import HAS_GPU
from tests.kernels.calls import ON_GPU

from flopwatch import kernels

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parents[2]
CALLS = 10_000
#: Of a fault that is planted.
FEW = 500
#: What a process may come and go by: 1 was seen of each (triton 3.7.1, Python 3.11, 2026-11-26).
MOST_BLOCKS = 20
#: Those that launch something.
LAUNCHING = ("flash_attention", "triton_matmul", "triton_matmul_fp8", "triton_matmul_fp32", "vector_add")
#: Those that launch nothing, or one of the others.
OTHERS = (
    "AdaptiveKernelSelector",
    "check_hopper_features",
    "get_attention_config",
    "get_matmul_config",
    "get_optimal_attention",
    "get_optimal_matmul",
    "supports_fp8",
)

#: Runs in a process of its own, over a driver that does nothing, with a compiler that makes nothing: what is left is
#: what a call costs the host, and may keep. Each call has tensors of its own.
PROGRAM = r'''
import gc, itertools, sys
import torch
from triton.runtime.jit import JITFunction
from benchmarks_host import stand_in
from flopwatch.kernels import (
    flash_attention, launch, triton_matmul, triton_matmul_fp8, triton_matmul_fp32, vector_add
)
from flopwatch.static import pretend_gpu

matmul = sys.modules["flopwatch.kernels.matmul"]
addition = sys.modules["flopwatch.kernels.vector_add"]
with pretend_gpu("h200"):
    gpu = matmul.detect_gpu()
for module in [module for name, module in sys.modules.items() if name.startswith("flopwatch.kernels.")]:
    if hasattr(module, "detect_gpu"):
        module.detect_gpu = lambda *_: gpu
handles = itertools.count(1)

class Launcher:
    global_scratch_size = profile_scratch_size = 0

    def launch(self, *_):
        pass

    def __call__(self, *arguments):
        self.launch(*arguments)

class Kernel:
    packed_metadata, metadata, hash, name = "packed", None, "", "kernel"
    run = Launcher()

    def __init__(self, source):
        self.src, self.function = source, next(handles)

    def launch_metadata(self, *_):
        return None

def product(dtype, *, padded=False):
    a, b = stand_in.tensor(48, 32 + padded, dtype=dtype), stand_in.tensor(32, 64, dtype=dtype)
    return a[:, :32].as_subclass(stand_in.StandInTensor), b

def product_fp8(scales_a, scales_b):
    a, b = (stand_in.tensor(rows, 32, dtype=torch.float8_e4m3fn) for rows in (48, 64))
    return a, b.T.as_subclass(stand_in.StandInTensor), stand_in.tensor(*scales_a, dtype=SINGLE), stand_in.tensor(
        *scales_b, dtype=SINGLE
    )

def attended(dtype, *, lengths=False):
    q = stand_in.tensor(2, 3, 32, 64, dtype=dtype)
    seq_lens = torch.tensor([32, 16], dtype=torch.int32).as_subclass(stand_in.StandInTensor)
    return (q, q, q, True, 0.5, *([seq_lens] if lengths else []))

HALF, SINGLE, BRAIN = torch.float16, torch.float32, torch.bfloat16
TURNS = {
    "vector_add": (
        lambda: vector_add(stand_in.tensor(300), stand_in.tensor(300)),
        lambda: vector_add(stand_in.tensor(600)[::2].as_subclass(stand_in.StandInTensor), stand_in.tensor(300)),
    ),
    "triton_matmul": (
        lambda: triton_matmul(*product(HALF)),
        lambda: triton_matmul(*product(BRAIN, padded=True)),
        lambda: triton_matmul(*product(SINGLE)),
        lambda: triton_matmul(*product(HALF), 16, 32, 16),
        lambda: triton_matmul(*product(HALF), use_autotune=False),
    ),
    "triton_matmul_fp8": (
        lambda: triton_matmul_fp8(*product_fp8((), ())),
        lambda: triton_matmul_fp8(*product_fp8((48, 1), (1, 64)), HALF, True),
    ),
    "triton_matmul_fp32": (lambda: triton_matmul_fp32(*product(SINGLE)),),
    "flash_attention": (
        lambda: flash_attention(*attended(HALF)),
        lambda: flash_attention(*attended(SINGLE)),
        lambda: flash_attention(*attended(HALF, lengths=True)),
    ),
}

def blocks_held():
    """Return how many blocks of Python's memory are held, those of Python's own cache of attributes' names aside.

    That one holds each string by which torch looked up an attribute, and torch makes a new one for each look-up: by
    where they happen to lie, hundreds were held.
    """
    gc.collect()
    sys._clear_type_cache() if sys.version_info < (3, 13) else sys._clear_internal_caches()
    return sys.getallocatedblocks()

def measured(call, calls):
    """Return how many blocks of Python's memory `calls` calls leave."""
    for _ in range(calls // 20):
        call()
    before = blocks_held()
    for _ in range(calls):
        call()
    return blocks_held() - before

with stand_in.stand_in_gpu():
    for function in [each for each in gc.get_objects() if issubclass(type(each), JITFunction)]:
        function.device_caches[0]
        function.compile = lambda source, **_: Kernel(source)
    for name, turns in TURNS.items():
        each = itertools.cycle(turns)
        print(name, measured(lambda: next(each)(), CALLS))
    # Sizes that never come again: as many launches are kept as may be, and no more.
    launch.CAPACITY = CALLS // 10
    addition._launches.forget()
    sizes = itertools.count(1000)  # small integers have no memory of their own
    print("sizes", measured(lambda: vector_add(*[stand_in.tensor(next(sizes))] * 2), CALLS))
    print("kept", len(addition._launches))
    print("capacity", launch.CAPACITY)
    # Faults: every launch is kept, or an operand of every call.
    for_ever, key_of = [], addition.key_of
    launch.Launches.keep = lambda self, key, launched, out: for_ever.append((key, launched))
    addition._launches.forget()
    print("keeps_launches", measured(TURNS["vector_add"][0], FEW))
    addition.key_of = lambda *tensors: for_ever.append(tensors[0]) or key_of(*tensors)
    print("keeps_tensors", measured(TURNS["vector_add"][1], FEW))
'''


@pytest.fixture(scope="module")
def growth(tmp_path_factory: pytest.TempPathFactory) -> dict[str, int]:
    """Blocks of Python's memory that calls leave, by what is called; and how many launches are kept, and may be.

    Every object of Python's has a block at least; tracemalloc, which tells bytes, takes three times as long.
    """
    if HAS_GPU:
        pytest.skip("the stand-in for libcuda cannot lie beside the real one")
    if compiler() is None:
        pytest.skip("no C compiler to build the stand-in for libcuda")
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment["TRITON_CACHE_DIR"] = str(tmp_path_factory.mktemp("cache"))  # nobody else is to find these kernels
    program = f"CALLS, FEW = {CALLS}, {FEW}\n{PROGRAM}"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return {name: int(count) for name, count in (line.split() for line in done.stdout.splitlines())}


def test_every_public_function_is_either_called_here_or_launches_nothing_of_its_own() -> None:
    assert sorted((*LAUNCHING, *OTHERS)) == sorted(kernels.__all__)


@pytest.mark.parametrize("name", LAUNCHING)
def test_calls_leave_the_hosts_memory_as_it_was(growth: dict[str, int], name: str) -> None:
    assert growth[name] < MOST_BLOCKS


def test_launches_of_ever_new_sizes_are_kept_up_to_a_bound(growth: dict[str, int]) -> None:
    assert 0 < growth["kept"] <= growth["capacity"]
    assert growth["sizes"] < MOST_BLOCKS


@pytest.mark.parametrize("name", ["keeps_launches", "keeps_tensors"])
def test_what_is_kept_of_each_call_shows(growth: dict[str, int], name: str) -> None:
    assert growth[name] >= FEW > MOST_BLOCKS


def test_every_function_that_launches_is_called_on_a_gpu() -> None:
    assert {name.partition(",")[0] for name in ON_GPU} == set(LAUNCHING)


LAUNCHED = """
from itertools import groupby
from tests.kernels.calls import ON_GPU
from flopwatch.static import pretend_gpu

for name, (make, _kernel) in ON_GPU.items():
    with pretend_gpu("h100") as recorder:
        make()()
    print(name, " ".join(kernel for kernel, _ in groupby(launch.kernel for launch in recorder.launches)), sep="|")
"""


def test_what_is_called_on_a_hopper_are_the_kernels_that_are_named() -> None:
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    printed = subprocess.check_output(
        [sys.executable, "-c", LAUNCHED], cwd=ROOT, env=environment | {"PYTHONPATH": path}, text=True
    )

    assert dict(line.split("|") for line in printed.splitlines()) == {name: each[1] for name, each in ON_GPU.items()}


def growth_on_gpu(call: Callable[[], object], calls: int) -> int:
    """Return how many bytes of the GPU's memory `calls` calls leave, after some that may leave a workspace."""
    for _ in range(10):
        call()
    torch.cuda.synchronize()
    gc.collect()  # of tests before this one
    before = torch.cuda.memory_allocated()
    for _ in range(calls):
        call()
    torch.cuda.synchronize()
    return torch.cuda.memory_allocated() - before


@pytest.mark.gpu
@pytest.mark.parametrize("name", ON_GPU)
def test_calls_leave_the_gpus_memory_as_it_was(name: str) -> None:
    assert growth_on_gpu(ON_GPU[name][0](), CALLS) == 0


@pytest.mark.gpu
def test_what_is_kept_of_each_call_shows_on_a_gpu() -> None:
    call, for_ever = ON_GPU["vector_add"][0](), []

    assert growth_on_gpu(lambda: for_ever.append(call()), FEW) >= FEW * for_ever[0].nbytes

"""What is launched again is what Triton's own dispatch would launch, for any arguments: real dispatch, no compiler."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks_host.stand_in import compiler
from tests.conftest import HAS_GPU

pytestmark = [
    pytest.mark.skipif(HAS_GPU, reason="the stand-in for libcuda cannot lie beside the real one"),
    pytest.mark.skipif(compiler() is None, reason="no C compiler to build the stand-in for libcuda"),
]

ROOT = Path(__file__).parents[2]
#: Runs in a process of its own, in which kernels are compiled and not interpreted. Calls the public functions with
#: random arguments; the same arguments then go through Triton's dispatch, with everything forgotten. The compiler is
#: replaced: it makes a new handle for each specialisation that the dispatch asks for, which tells two of them apart.
PROGRAM = r'''
import itertools, sys
import torch
from hypothesis import HealthCheck, given, settings, strategies as st
from benchmarks_host import stand_in
from flopwatch.kernels import flash_attention, launch, triton_matmul, vector_add
from flopwatch.static import pretend_gpu

# The functions hide the modules of their names.
NAMES = ("matmul", "vector_add", "attention")
matmul, addition, attention = (sys.modules[f"flopwatch.kernels.{name}"] for name in NAMES)
with pretend_gpu("h200"):
    gpu = matmul.detect_gpu()
matmul.detect_gpu = lambda _index: gpu
handles = itertools.count(1)
launches = []

class Launcher:
    global_scratch_size = profile_scratch_size = 0

    def __init__(self, handle):
        self.handle = handle

    def launch(self, x, y, z, stream, function, packed, metadata, enter, leave, *arguments):
        kept = isinstance(arguments[0], int)
        values = [value.data_ptr() if hasattr(value, "data_ptr") else value for value in arguments]
        launches.append((kept, (self.handle, function, packed, (x, y, z), stream), values))

    def __call__(self, *arguments):
        self.launch(*arguments)

class Kernel:
    packed_metadata, metadata, hash, name = "packed", None, "", "kernel"

    def __init__(self, source):
        self.src, self.function = source, next(handles)
        self.run = Launcher(self.function)

    def launch_metadata(self, *_):
        return None

def compile(source, target=None, options=None, **_):
    return Kernel(source)

def last(call):
    launches.clear()
    call()
    return launches[-1]

def agree(call, constants, pointers, copies=False):
    """Launch twice and then by Triton's dispatch alone; both must launch the same."""
    call()
    again = last(call)
    for module in (matmul, addition, attention):
        module._launches.forget()
    alone = last(call)
    assert not alone[0]
    counted[again[0]] += 1
    assert again[1] == alone[1], (again, alone)
    for place, (mine, theirs) in enumerate(zip(again[2], alone[2], strict=True)):
        if place == OUT[pointers] or (place < pointers and copies):  # of memory that each call takes anew
            assert mine % 16 == theirs % 16
        elif place < len(alone[2]) - constants:
            assert repr(mine) == repr(theirs), (place, mine, theirs)  # types and NaN included

def matrix(rows, columns, kind, offset, dtype):
    base = torch.zeros(70000, dtype=dtype)
    strides = {
        "rows": (columns, 1), "columns": (1, rows), "padded": (columns + 5, 1),
        "aligned": (-(-columns // 16) * 16, 1),
        "every other": (2 * columns, 2), "expanded": (0, 1), "far": (2**33 if rows == 1 else columns, 1),
    }[kind]
    return torch.as_strided(base, (rows, columns), strides, offset).as_subclass(stand_in.StandInTensor)

sizes = st.sampled_from([1, 2, 15, 16, 17, 32, 48, 64, 100])
kinds = st.sampled_from(["rows", "columns", "padded", "aligned", "every other", "expanded", "far"])
offsets = st.sampled_from([0, 0, 1, 4, 8])
dtypes = st.sampled_from([torch.float16, torch.bfloat16, torch.float32])
blocks = st.sampled_from([(), (16, 16, 16), (None, 32, None)])
OUT = {3: 2, 5: 3}
counted = {True: 0, False: 0}
run = settings(
    max_examples=EXAMPLES, deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck)
)

@run
@given(sizes, sizes, sizes, kinds, kinds, offsets, offsets, dtypes, blocks, st.booleans())
def products(M, N, K, a_kind, b_kind, a_offset, b_offset, dtype, sides, tuned):
    a, b = matrix(M, K, a_kind, a_offset, dtype), matrix(K, N, b_kind, b_offset, dtype)
    others = dict(zip(("block_m", "block_n", "block_k"), sides)) | {"use_autotune": tuned}
    agree(lambda: triton_matmul(a, b, **others), 8, 3, dtype == torch.float32)

@run
@given(st.sampled_from([1, 16, 100, 1024, 4096]), offsets, offsets, st.sampled_from([1, 2]), dtypes)
def sums(n, x_offset, y_offset, step, dtype):
    x, y = (torch.zeros(10000, dtype=dtype)[offset:][: n * step : step] for offset in (x_offset, y_offset))
    x, y = (tensor.as_subclass(stand_in.StandInTensor) for tensor in (x, y))
    agree(lambda: vector_add(x, y), 1, 3, step > 1)

@run
@given(
    st.integers(1, 3), st.integers(1, 3), st.sampled_from([1, 16, 17, 64]), st.sampled_from([16, 32, 64, 96]),
    st.permutations(range(3)), offsets, dtypes, st.booleans(),
    st.sampled_from([None, 0.5, -0.5, 0, 1, float("nan")]), st.booleans(),
    st.sampled_from([None, 1, 16, 20]), st.sampled_from([None, torch.bfloat16, torch.float32]),
    st.sampled_from([None, (0, 1), (1, 1), (4, 1), (0, 2)]),
)
def attended(B, H, S, D, order, offset, dtype, causal, scale, three, S_KV, out_dtype, lengths):
    shape = (B, H, S)
    storage = torch.zeros(B * H * S * D + 8, dtype=dtype)[offset:][: B * H * S * D]
    q = storage.view(*(shape[axis] for axis in order), D).permute(*(order.index(axis) for axis in range(3)), 3)
    q = (q[:, 0] if three else q).as_subclass(stand_in.StandInTensor)
    k = q  # or one head for all, of another length
    if S_KV:
        k = torch.zeros(*(B, S_KV, D) if three else (B, 1, S_KV, D), dtype=dtype).as_subclass(stand_in.StandInTensor)
    seq_lens = None
    if lengths and not S_KV:
        first, step = lengths
        seq_lens = torch.zeros(100, dtype=torch.int32)[first:][: q.shape[0] * step : step]
        seq_lens = seq_lens.as_subclass(stand_in.StandInTensor)
    copies = dtype != torch.float16 and (dtype, out_dtype) != (torch.bfloat16, torch.bfloat16)
    copies = copies or (seq_lens is not None and not seq_lens.is_contiguous())
    agree(lambda: flash_attention(q, k, k, causal, scale, seq_lens, out_dtype=out_dtype), 7, 5, copies)

if PLANTED == "alignment":
    left = lambda x: (x.shape, x.stride(), x.dtype)
if PLANTED == "strides":
    left = lambda x: (x.shape, x.dtype, x.data_ptr() % 16)
if PLANTED in ("alignment", "strides"):
    matmul.key_of = lambda a, b, others: ((*others, left(a), left(b)), (a.data_ptr(), b.data_ptr()))
    # Nothing is forgotten, so that another example's launch may be taken for this one's.
    def agree(call, constants, pointers, copies=False):
        again = last(call)
        kept = {module: dict(module._launches._kept) for module in (matmul, addition, attention)}
        for module in kept:
            module._launches.forget()
        alone = last(call)
        for module, before in kept.items():
            module._launches._kept.update(before)
        assert again[1] == alone[1] and again[2][pointers:-constants] == alone[2][pointers:-constants]

def pinned():
    """Call as a worker of the gate does: watched while kernels are tuned, then not, in what is pinned."""
    from flopwatch.kernels.configs import ATTENTION_AUTOTUNE, MATMUL_AUTOTUNE
    from flopwatch.kernels.tuner import triton_configs
    from flopwatch.measure.tuning import TunerLog, config_text
    from flopwatch.model import Choice

    a, q = stand_in.tensor(128, 128), stand_in.tensor(1, 1, 256, 64)  # so small that no rule has another kernel
    cases = (
        ("matmul_kernel", MATMUL_AUTOTUNE, lambda: triton_matmul(a, a)),
        ("attention_kernel", ATTENTION_AUTOTUNE[64], lambda: flash_attention(q, q, q)),
    )
    log, seen = TunerLog(), set()
    log.install()
    for place in (1, 0, 1, 2):
        for name, configs, call in cases:
            (pin,) = triton_configs(configs[place : place + 1])
            log.start([Choice(kernel=name, config=config_text(pin))])
            watched = last(call)
            assert not watched[0] and log.choices[0].config == config_text(pin)
            log.step_aside()
            if PLANTED != "answers":
                assert not last(call)[0]
            again = last(call)
            counted[again[0]] += 1
            assert again[1] == watched[1], (again, watched)
            seen.add(again[1])
    assert len(seen) == 6

if PLANTED == "answers":
    again = launch.Launches.again
    def any_answers(self, *asked):
        for kept in self._kept.values():
            object.__setattr__(kept, "tuner", None)
        return again(self, *asked)
    launch.Launches.again = any_answers

with stand_in.stand_in_gpu():
    for function in (matmul.matmul_kernel, addition.vector_add_kernel.fn, attention.attention_kernel):
        function.device_caches[0]
        function.compile = compile
    for examples in {"": (products, sums, attended), "pins": (pinned,), "answers": (pinned,)}.get(PLANTED, (products,)):
        examples()
print(*counted.values())
'''


def run(examples: int, planted: str = "") -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    program = f"EXAMPLES, PLANTED = {examples}, {planted!r}\n{PROGRAM}"
    return subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )


def test_a_launch_that_was_kept_is_the_one_that_triton_would_make() -> None:
    done = run(150)

    assert done.returncode == 0, done.stderr[-3000:]
    kept, dispatched = map(int, done.stdout.split())
    # Those that copy first end in a launch of the copies, which is not kept.
    assert kept > dispatched > 0


@pytest.mark.parametrize("part", ["alignment", "strides"])
def test_a_key_that_leaves_something_out_is_caught(part: str) -> None:
    done = run(150, part)

    assert done.returncode == 1
    assert "AssertionError" in done.stderr


#: The same by Triton's own launcher, down to what the driver is given: three pointers and the number of elements.
LAUNCHER = r"""
import ctypes, sys
import torch
from benchmarks_host import stand_in
from flopwatch.kernels import vector_add

addition = sys.modules["flopwatch.kernels.vector_add"]
with stand_in.stand_in_gpu() as library:
    count, values, launch = (
        kind.in_dll(library, name)
        for kind, name in (
            (ctypes.c_int, "stand_in_count"),
            (ctypes.c_ulonglong * 64, "stand_in_values"),
            (ctypes.c_ulonglong * 8, "stand_in_launch"),
        )
    )
    (ctypes.c_int * 64).in_dll(library, "stand_in_bytes")[:4] = (8, 8, 8, 4)
    x, y = stand_in.tensor(5000), stand_in.tensor(5000)
    vector_add(x, y)
    count.value = 4
    given = []
    for forget in (True, False):
        if forget:
            addition._launches.forget()
        out = vector_add(x, y)
        assert tuple(values[:4]) == (x.data_ptr(), y.data_ptr(), out.data_ptr(), 5000), tuple(values[:4])
        given.append(tuple(launch)[1:])
    assert launch[0] == 2
    assert given[0] == given[1], given
    print(*given[0][1:5])
"""


def test_what_is_launched_again_is_what_was_pinned_last() -> None:
    done = run(1, "pins")

    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.split() == ["8", "0"]


def test_a_launch_in_what_was_pinned_before_is_caught() -> None:
    done = run(1, "answers")

    assert done.returncode == 1
    assert "AssertionError" in done.stderr


def test_the_driver_is_given_the_same() -> None:
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    printed = subprocess.check_output([sys.executable, "-c", LAUNCHER], cwd=ROOT, env=environment, text=True)

    assert printed == "20 1 1 128\n"


#: Hashes every function that Triton compiles, and again as if compiled after all that it calls: then it has what they
#: have of their modules, which Triton's dispatch compares in each launch. Prints how many there are and which have any.
CONSTANTS = """
import importlib, pkgutil
from triton.runtime.jit import JITCallable
import flopwatch.kernels as kernels

names = [module.name for module in pkgutil.iter_modules(kernels.__path__)]
modules = [importlib.import_module(f"flopwatch.kernels.{name}") for name in names]
functions = {
    f"{module.__name__}.{name}": function
    for module in modules
    for name, function in vars(module).items()
    if isinstance(function, JITCallable)
}
for _ in range(2):
    for function in functions.values():
        function.hash = None
        function.cache_key
print(len(functions), *[name for name, function in functions.items() if function.used_global_vals])
"""


def test_no_kernel_has_constants_of_a_module() -> None:
    """What has any is never launched past Triton's dispatch, and what was compiled before may decide whether it has."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    number, *with_constants = subprocess.check_output(
        [sys.executable, "-c", CONSTANTS], cwd=ROOT, env=environment, text=True
    ).split()

    assert int(number) > 100
    assert with_constants == []

# mypy: disable-error-code="no-untyped-def,untyped-decorator"
# ruff: noqa: ANN001, ANN202, N803 - a kernel's arguments are Triton's own types, checked by its compiler

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
import torch
import triton
import triton.language as tl
from triton.runtime.autotuner import Autotuner
from triton.runtime.driver import driver
from triton.runtime.interpreter import InterpretedFunction
from triton.runtime.jit import JITFunction

from flopwatch.errors import UsageError
from flopwatch.static import pretend_gpu

if TYPE_CHECKING:
    from collections.abc import Callable

interpreted = pytest.mark.skipif(
    os.environ.get("TRITON_INTERPRET") != "1", reason="kernels are not interpreted where there is a GPU"
)


@triton.autotune([triton.Config({"BLOCK": size}) for size in (16, 32, 64)], key=["n"], reset_to_zero=["out"])
@triton.heuristics({"EVEN": lambda arguments: arguments["n"] % arguments["BLOCK"] == 0})
@triton.jit
def _count(out, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(out + i, BLOCK + EVEN, mask=i < n)


@triton.jit
def _copy(x, out, SIZE: tl.constexpr):
    i = tl.arange(0, SIZE)
    tl.store(out + i, tl.load(x + i))


def patched() -> dict[str, object]:
    """Return everything that pretending replaces."""
    cuda = {name: getattr(torch.cuda, name) for name in dir(torch.cuda) if not name.startswith("__")}
    return cuda | {
        "driver": vars(driver).copy(),
        "version": (torch.version.cuda, torch.version.hip),
        "generator": torch.Generator,
        "runs": (JITFunction.run, InterpretedFunction.run, Autotuner.run),
        "backward": torch.autograd.function.BackwardCFunction.apply,
        "cache": triton.knobs.cache.dir,
        "modes": torch._C._len_torch_function_stack(),
        "tuner": vars(_count).copy(),
        "tuned": _count.cache.copy(),
    }


def test_queries_answer_for_the_pretended_device() -> None:
    with pretend_gpu("a100"):
        properties = torch.cuda.get_device_properties(0)
        assert torch.cuda.is_available()
        assert torch.cuda.device_count() == 1
        assert torch.cuda.current_device() == 0
        assert torch.cuda.get_device_capability() == (8, 0)
        assert torch.cuda.get_device_name(0) == "NVIDIA A100-SXM4-80GB"
        assert properties.multi_processor_count == 108
        assert properties.shared_memory_per_multiprocessor == 164 * 1024
        assert vars(properties)["max_shared_memory_per_multiprocessor"] == 164 * 1024
        assert torch.cuda.current_stream().cuda_stream == 0
        assert torch.version.cuda is not None
        torch.cuda.synchronize()


def test_everything_is_restored() -> None:
    before = patched()
    with pretend_gpu("h200", tensors="cpu"):
        assert patched() != before
        if triton.knobs.runtime.interpret:
            _count[(1,)](torch.zeros(16, device="cuda", dtype=torch.int32), 16)
    assert patched() == before


def test_everything_is_restored_after_an_exception() -> None:
    before = patched()
    with pytest.raises(ZeroDivisionError), pretend_gpu("h200"):
        _ = 1 / 0
    assert patched() == before


def test_one_gpu_is_pretended_at_a_time() -> None:
    with pretend_gpu("h200"):
        before = patched()
        with pytest.raises(UsageError, match="already pretended"), pretend_gpu("a100"):
            pass
        assert patched() == before
    with pretend_gpu("a100"):
        assert torch.cuda.get_device_capability() == (8, 0)


@interpreted
def test_interpreted_kernels_compute_on_cuda_tensors(cuda: str) -> None:
    x = torch.arange(16, device=cuda)
    out = torch.full_like(x, -1)
    _copy[(1,)](x, out, SIZE=16)
    assert torch.equal(out, x)
    assert out.is_cuda


@interpreted
def test_the_autotuner_runs_the_first_configuration_once_and_no_other() -> None:
    with pretend_gpu("h200", tensors="cpu") as recorder:
        out = torch.zeros(40, device="cuda", dtype=torch.int32)
        _count[lambda meta: (triton.cdiv(40, meta["BLOCK"]),)](out, 40)
        assert out.unique().tolist() == [16]
    assert [(launch.kernel, launch.grid, launch.tuning) for launch in recorder.launches] == [("_count", (3,), False)]


@interpreted
def test_tensors_of_the_host_are_refused_as_the_device_refuses_them(cuda: str) -> None:
    with pytest.raises(ValueError, match=r"Pointer argument \(at 1\) cannot be accessed from Triton"):
        _copy[(1,)](torch.ones(16, device=cuda), torch.ones(16), SIZE=16)


@interpreted
def test_interpreted_kernels_refuse_meta_tensors() -> None:
    with pretend_gpu("h200", tensors="meta"), pytest.raises(UsageError, match="_copy is interpreted"):
        _copy[(1,)](torch.ones(16, device="cuda"), torch.ones(16, device="cuda"), SIZE=16)


def test_two_devices_share_neither_kernels_nor_limits(child: Callable[..., str], matmul_source: str) -> None:
    printed = child(
        matmul_source
        + """
from flopwatch.static import kernel_facts, pretend_gpu
for device in ("a100", "h200", "a100"):
    with pretend_gpu(device) as recorder:
        try:
            matmul[(32,)](*arguments(), BLOCK_M=128, BLOCK_N=256, BLOCK_K=32, GROUP_M=8, num_warps=8, num_stages=8)
        except triton.OutOfResources:
            pass
        launch()
    archs = {kernel.metadata.target.arch for kernel in recorder.compiled.values()}
    print(device, archs, [(facts.device, facts.failure is None) for facts in kernel_facts(recorder)])
print(len(matmul.device_caches))
"""
    )
    # A stage takes 24 KiB; sm_80 keeps seven of them, 168 KiB of 163, and sm_90 eight, 192 KiB of 227.
    assert printed.splitlines() == [
        "a100 {80} [('a100', False), ('a100', True)]",
        "h200 {90} [('h200', True), ('h200', True)]",
        "a100 {80} [('a100', False), ('a100', True)]",
        "0",
    ]


def test_launch_code_runs_unmodified(child: Callable[..., str]) -> None:
    printed = child(
        """
import torch, triton, triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor
from flopwatch.static import kernel_facts, pretend_gpu

@triton.jit
def by_host_descriptor(x, out, BLOCK: tl.constexpr):
    out.store([0, 0], x.load([0, 0]) * 2)

@triton.jit
def by_device_descriptor(x, out, N, BLOCK: tl.constexpr):
    a = tl.make_tensor_descriptor(x, [N, N], [N, 1], [BLOCK, BLOCK])
    b = tl.make_tensor_descriptor(out, [N, N], [N, 1], [BLOCK, BLOCK])
    b.store([0, 0], a.load([0, 0]))

@triton.heuristics({"EVEN": lambda arguments: arguments["n"] % 16 == 0})
@triton.jit
def by_heuristics(x, n, EVEN: tl.constexpr):
    tl.store(x, n if EVEN else 0)

@triton.jit
def wrong(x):
    tl.store(x, undefined)

with pretend_gpu("h200") as recorder:
    x = torch.ones(64, 64, device="cuda", dtype=torch.float16)
    out = torch.empty_like(x)
    block = [32, 32]
    by_host_descriptor[(1,)](TensorDescriptor.from_tensor(x, block), TensorDescriptor.from_tensor(out, block), 32)
    triton.set_allocator(lambda size, alignment, stream: torch.empty(size, device="cuda", dtype=torch.int8))
    by_device_descriptor[(2, 2)](x, out, 64, BLOCK=32)
    by_heuristics[lambda meta: (1 + meta["EVEN"],)](torch.empty(1, device="cuda"), 31)
    try:
        wrong[(1,)](x)
    except triton.CompilationError:
        pass
for launch in recorder.launches:
    print(launch.kernel, launch.grid, launch.config)
for facts in kernel_facts(recorder):
    print(facts.kernel, facts.variant, facts.registers and facts.registers > 0, facts.failure and facts.failure.kind)
"""
    )
    assert printed.splitlines() == [
        "by_host_descriptor (1,) BLOCK=32,num_stages=3,num_warps=4,out=32x32,x=32x32",
        "by_device_descriptor (2, 2) BLOCK=32,num_stages=3,num_warps=4",
        "by_heuristics (1,) EVEN=False,num_stages=3,num_warps=4",
        "by_device_descriptor *fp16:16,*fp16:16,i32:16 True None",
        "by_heuristics *fp32:16,i32 True None",
        "by_host_descriptor tensordesc<fp16>,tensordesc<fp16> True None",
        "wrong *fp16:16 None CompilationError",
    ]

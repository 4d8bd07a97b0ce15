# mypy: disable-error-code="no-untyped-def,untyped-decorator"
# ruff: noqa: ANN001, ANN202, N803 - a kernel's arguments are Triton's own types, checked by its compiler

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Literal

import pytest
import torch
import triton
import triton.language as tl
from triton.compiler.compiler import CompiledKernel
from triton.runtime.autotuner import Autotuner
from triton.runtime.driver import driver
from triton.runtime.interpreter import InterpretedFunction
from triton.runtime.jit import JITFunction

from flopwatch.errors import UsageError
from flopwatch.static import pretend_gpu
from flopwatch.static.devices import DEVICES

if TYPE_CHECKING:
    from collections.abc import Callable

interpreted = pytest.mark.skipif(
    os.environ.get("TRITON_INTERPRET") != "1", reason="kernels are not interpreted where there is a GPU"
)


_TORCH_CUDA = "flopwatch.static.torch_cuda"


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
        "compile": torch.compile,
        "accelerator": {name: getattr(torch.accelerator, name) for name in torch.accelerator.__all__},
        "runs": (JITFunction.run, InterpretedFunction.run, Autotuner.run),
        "handles": tuple(vars(CompiledKernel)[name] for name in ("__init__", "__getitem__", "_init_handles", "run")),
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


@pytest.mark.parametrize(("key", "arch", "capability"), [("mi300x", "gfx942", (9, 4)), ("mi350x", "gfx950", (9, 5))])
def test_queries_answer_as_a_build_of_torch_for_amd(key: str, arch: str, capability: tuple[int, int]) -> None:
    with pretend_gpu(key):
        properties = torch.cuda.get_device_properties(0)
        assert torch.version.hip is not None
        assert torch.version.cuda is None
        assert torch.cuda.get_device_capability() == capability
        assert vars(properties)["gcnArchName"].split(":")[0] == arch
        assert properties.warp_size == 64
        assert properties.max_threads_per_multi_processor == 2048
        assert torch.cuda.get_arch_list() == [arch]
        target = driver.active.get_current_target()
        assert (target.backend, target.arch, target.warp_size) == ("hip", arch, 64)
        assert driver.active.map_python_to_cpp_type("*fp16") == "hipDeviceptr_t"
        assert torch.ones(3, device="cuda").is_cuda


def test_every_answer_is_a_function_of_its_own() -> None:
    with pretend_gpu("h200"):
        answers = [
            value
            for name, value in vars(torch.cuda).items()
            if getattr(value, "__module__", "") == _TORCH_CUDA and name != "ExternalStream"  # a class, as Stream is
        ]
        assert len(answers) > 30
        assert len(answers) == len(set(map(id, answers)))


def test_torch_dynamo_is_imported_while_a_gpu_is_pretended(child: Callable[..., str]) -> None:
    printed = child(
        """
import torch
from flopwatch.static import pretend_gpu

with pretend_gpu("h200"):
    @torch.compiler.disable
    def double(x):
        return x * 2

    torch.compile(double)
    print(double(torch.ones(3, device="cuda")).device)
"""
    )
    assert printed == "cuda:0\n"


def test_functions_to_be_compiled_run_as_they_are_written() -> None:
    with pretend_gpu("h200"):

        @torch.compile
        def plain(x: torch.Tensor) -> torch.Tensor:
            return x * 2

        @torch.compile(fullgraph=True, mode="max-autotune")
        def with_options(x: torch.Tensor) -> torch.Tensor:
            return plain(x) + 1

        module = torch.nn.Linear(3, 3, device="cuda")
        module.compile()
        assert module(with_options(torch.ones(3, device="cuda"))).is_cuda
    assert torch.compile.__module__ == "torch"


def test_functions_that_were_compiled_before_run_as_they_are_written(child: Callable[..., str]) -> None:
    printed = child(
        """
import torch
from flopwatch.static import pretend_gpu

seen = []

@torch.compile
def double(x):
    seen.append(x.device)
    return x * 2

with pretend_gpu("h200"):
    double(torch.ones(3, device="cuda"))
print(seen)
"""
    )
    assert printed == "[device(type='cuda', index=0)]\n"


@pytest.mark.parametrize("kind", ["meta", "cpu"])
def test_the_default_device_may_be_the_gpu(kind: Literal["meta", "cpu"]) -> None:
    with pretend_gpu("h200", tensors=kind):
        with torch.device("cuda"):
            assert torch.ones(3).is_cuda
            assert not torch.ones(3, device="cpu").is_cuda
        assert not torch.ones(3).is_cuda
        torch.set_default_device("cuda")
        assert torch.ones(3).is_cuda
        assert torch.nn.Linear(3, 3).weight.is_cuda
    assert torch.ones(3).device == torch.device("cpu")
    with pretend_gpu("h200", tensors=kind):
        assert torch.ones(3).is_cuda
        torch.set_default_device(None)
    with pretend_gpu("h200", tensors=kind):
        assert not torch.ones(3).is_cuda


def test_the_gpu_is_the_accelerator() -> None:
    with pretend_gpu("h200"):
        assert torch.accelerator.is_available()
        assert torch.accelerator.current_accelerator() == torch.device("cuda")
        assert torch.accelerator.device_count() == 1
        torch.accelerator.synchronize()


def test_nothing_is_allocated_on_the_gpu() -> None:
    with pretend_gpu("h200"):
        torch.cuda.reset_peak_memory_stats()
        torch.ones(3, device="cuda")
        assert torch.cuda.max_memory_allocated() == 0


def test_streams_events_and_graphs_do_nothing() -> None:
    with pretend_gpu("h200"):
        side, start, end = torch.cuda.Stream(), torch.cuda.Event(enable_timing=True), torch.cuda.Event()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            start.record()
        end.record(side)
        side.synchronize()
        assert start.elapsed_time(end) > 0
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=side):
            x = torch.ones(3, device="cuda")
        graph.replay()
        assert x.is_cuda
        assert isinstance(torch.cuda.current_stream(), torch.cuda.Stream)
        assert torch.cuda.mem_get_info() == (DEVICES["h200"].memory_bytes,) * 2


def test_a_timer_calls_a_few_times_and_stops() -> None:
    calls: list[int] = []
    with pretend_gpu("h200"):
        triton.testing.do_bench(lambda: calls.append(1))
    assert 0 < len(calls) < 10


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


def test_gluon_kept_grids_and_heuristics_below_the_autotuner_run_unmodified(child: Callable[..., str]) -> None:
    printed = child(
        """
import torch, triton, triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from flopwatch.static import kernel_facts, pretend_gpu

@gluon.jit
def by_gluon(x, out, n, BLOCK: gl.constexpr):
    layout: gl.constexpr = gl.BlockedLayout([1], [32], [4], [0])
    i = gl.program_id(0) * BLOCK + gl.arange(0, BLOCK, layout=layout)
    gl.store(out + i, gl.load(x + i, mask=i < n), mask=i < n)

@triton.autotune([triton.Config({"BLOCK": size}, num_warps=w) for size in (256, 512) for w in (2, 4)], key=["n"])
@triton.heuristics({"EVEN": lambda arguments: arguments["n"] % arguments["BLOCK"] == 0})
@triton.jit
def by_both(x, out, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=EVEN or i < n), mask=EVEN or i < n)

@triton.jit
def by_kept_grid(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n), mask=i < n)

with pretend_gpu("h200") as recorder:
    x = torch.empty(768, device="cuda")
    by_gluon[(6,)](x, torch.empty_like(x), 768, 128)
    by_both[lambda meta: (triton.cdiv(768, meta["BLOCK"]),)](x, torch.empty_like(x), 768)
    launch = by_kept_grid[(3,)]
    for n in (767, 768):
        launch(x, torch.empty_like(x), n, BLOCK=256)
for launch in recorder.launches:
    if not launch.tuning:
        print(launch.kernel, launch.grid)
for facts in kernel_facts(recorder):
    print(facts.kernel, facts.config, facts.variant, facts.chosen, facts.failure)
"""
    )
    assert printed.splitlines() == [
        "by_gluon (6,)",
        "by_both (3,)",
        "by_kept_grid (3,)",
        "by_kept_grid (3,)",
        "by_both BLOCK=256,EVEN=True,num_stages=3,num_warps=2 *fp32:16,*fp32:16,i32:16 True None",
        "by_both BLOCK=256,EVEN=True,num_stages=3,num_warps=4 *fp32:16,*fp32:16,i32:16 False None",
        "by_both BLOCK=512,EVEN=False,num_stages=3,num_warps=2 *fp32:16,*fp32:16,i32:16 False None",
        "by_both BLOCK=512,EVEN=False,num_stages=3,num_warps=4 *fp32:16,*fp32:16,i32:16 False None",
        "by_gluon BLOCK=128,num_stages=3,num_warps=4 *fp32:16,*fp32:16,i32:16 True None",
        "by_kept_grid BLOCK=256,num_stages=3,num_warps=4 *fp32:16,*fp32:16,i32 True None",
        "by_kept_grid BLOCK=256,num_stages=3,num_warps=4 *fp32:16,*fp32:16,i32:16 True None",
    ]


def test_what_a_model_of_the_kernels_own_leaves_out_is_compiled_last_or_not_at_all(child: Callable[..., str]) -> None:
    printed = child(
        """
import torch, triton, triton.language as tl
from flopwatch.static import pretend_gpu
from flopwatch.static.recorder import Autotune

def able(configs, named_args, **kwargs):
    return [config for config in configs if config.kwargs["BLOCK"] <= 8 * named_args["n"]]

@triton.autotune(
    [triton.Config({"BLOCK": size}) for size in (16, 32, 64, 128, 256)],
    key=["n"],
    prune_configs_by={"early_config_prune": able, "perf_model": lambda n, BLOCK, **_: abs(BLOCK - 2 * n), "top_k": 2},
)
@triton.jit
def fill(x, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + i, 1.0, mask=i < n)

before = vars(fill).copy()
for autotune in Autotune:
    with pretend_gpu("h200", autotune=autotune) as recorder:
        fill[(1,)](torch.empty(16, device="cuda"), 16)
    print(autotune.value, *(("tries" if seen.tuning else "takes") + seen.config[5:9] for seen in recorder.launches))
assert vars(fill) == before
"""
    )
    assert printed.splitlines() == [
        "all tries=32, tries=16, tries=64, tries=128 takes=32,",
        "predicted tries=32, tries=16, takes=32,",
        "first tries=32, takes=32,",
    ]


def test_a_tuner_that_keeps_its_times_in_a_file_reads_and_writes_none_of_them(child: Callable[..., str]) -> None:
    printed = child(
        """
import torch, triton, triton.language as tl
from triton.runtime.autotuner import Autotuner
from flopwatch.static import pretend_gpu
from flopwatch.static.recorder import Autotune

def tuner():
    class Keeping(Autotuner):
        file = {}  # as good as one

        def run(self, *args, **kwargs):
            self.nargs = dict(zip(self.arg_names, args))
            for config in self.prune_configs(kwargs):
                if str(config) not in self.file:
                    self.file[str(config)] = self._bench(*args, config=config, **kwargs)
            best = min(self.configs, key=lambda config: self.file[str(config)])
            return self.fn.run(*args, **kwargs, **best.all_kwargs())

    class Renamed(Keeping):
        pass

    return Keeping, Renamed

def function(kind):
    @triton.jit
    def fill(x, n, BLOCK: tl.constexpr):
        i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(x + i, 1.0, mask=i < n)

    configs = [triton.Config({"BLOCK": size}) for size in (16, 32, 64)]
    return kind(fill, fill.arg_names, configs, ["n"], None, None)

before, _ = tuner()
own = before.run
early = function(before)
for autotune in (Autotune.ALL, Autotune.ALL, Autotune.FIRST):
    with pretend_gpu("h200", autotune=autotune) as recorder:
        during, renamed = tuner()
        for fill in (early, function(during), function(renamed)):
            fill[(1,)](torch.empty(16, device="cuda"), 16)
    tried = sum(seen.tuning for seen in recorder.launches)
    print(autotune.value, tried, len(recorder.launches) - tried, before.file, during.file)
    assert before.run is own
    assert during.run.__qualname__ == renamed.run.__qualname__ == own.__qualname__
"""
    )
    assert printed.splitlines() == ["all 9 3 {} {}", "all 9 3 {} {}", "first 3 3 {} {}"]

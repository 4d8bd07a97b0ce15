from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

KERNELS = """
import torch, triton, triton.language as tl
from triton.compiler import ASTSource
from triton.tools.tensor_descriptor import TensorDescriptor
from flopwatch.static import case_identity, kernel_facts, pretend_gpu

@triton.jit
def double(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) * 2, mask=i < n)

@triton.jit
def several(x, sizes, factor, one, nothing, KIND: tl.constexpr, FLAG: tl.constexpr):
    tl.store(x, (sizes[0] * factor + one).to(KIND))

@triton.jit
def descriptors(x, out, BLOCK: tl.constexpr):
    out.store([0, 0], x.load([0, 0]) * 2)
"""


def test_a_launch_by_a_handle_is_described_like_a_launch_of_its_function(child: Callable[..., str]) -> None:
    printed = child(
        KERNELS
        + """
with pretend_gpu("h200") as recorder:
    x = torch.ones(64, 64, device="cuda", dtype=torch.float16)
    host = [TensorDescriptor.from_tensor(x, [32, 16]) for _ in range(2)]
    for kernel, arguments, options in (
        (double, (x, x[1:], 4096, 256), {"num_warps": 8}),
        (double, (x, x.view(-1)[1:], 31, 128), {"maxnreg": 64}),
        (several, (x, (5, 16), 0.5, 1, None, tl.float16, True), {"num_stages": 2}),
        (several, (x, (1, 1 << 40), 2, 7, None, tl.int8, 0), {"enable_fp_fusion": False}),
        (descriptors, (*host, 32), {}),
    ):
        kernel[(4, 1, 1)](*arguments, **options)
        kernel.warmup(*arguments, grid=(1,), **options)[(4, 1, 1)](*arguments)
        launch, handle = recorder.launches[-2:]
        print(launch.kernel, launch.config, launch.variant)
        for name in ("kernel", "config", "variant", "grid", "binary_hash"):
            assert getattr(launch, name) == getattr(handle, name), (name, launch, handle)
        assert set(handle.arguments) <= set(launch.arguments), (launch, handle)
        assert len(handle.arguments) == len(arguments)
print(len(recorder.kernels), len(recorder.launches))
"""
    )
    assert printed.splitlines() == [
        "double BLOCK=256,num_stages=3,num_warps=8 *fp16:16,*fp16:16,i32:16",
        "double BLOCK=128,maxnreg=64,num_stages=3,num_warps=4 *fp16:16,*fp16,i32",
        "several FLAG=True,KIND=fp16,num_stages=2,num_warps=4 *fp16:16,(i32,i32:16),fp32,1,None",
        "several FLAG=0,KIND=int8,enable_fp_fusion=False,num_stages=3,num_warps=4 *fp16:16,(1,i64:16),i32,i32,None",
        "descriptors BLOCK=32,num_stages=3,num_warps=4,out=32x16,x=32x16 tensordesc<fp16>,tensordesc<fp16>",
        "3 10",
    ]


def test_a_handle_that_outlives_its_pretence_tells_the_next(child: Callable[..., str]) -> None:
    printed = child(
        KERNELS
        + """
with pretend_gpu("h200") as first:
    x = torch.empty(999, device="cuda")
    kept = double.warmup(x, x, 999, BLOCK=256, grid=(1,))
    kept[(4, 1, 1)](x, x, 999, 256)
with pretend_gpu("h200") as second:
    x = torch.empty(999, device="cuda")
    kept[(4, 1, 1)](x, x, 999, 256)
print(len(first.launches), len(second.launches), [kernel.__name__ for kernel in second.kernels])
print(kernel_facts(first) == kernel_facts(second), len(kernel_facts(second)))
"""
    )
    assert printed.splitlines() == ["1 1 ['double']", "True 1"]


def test_what_is_compiled_without_a_launch_is_recorded_and_its_launch_too(child: Callable[..., str]) -> None:
    printed = child(
        KERNELS
        + """
with pretend_gpu("h200") as recorder:
    signature = {"x": "*fp32", "out": "*fp32", "n": "i32", "BLOCK": "constexpr"}
    kernel = triton.compile(ASTSource(double, signature, {"BLOCK": 256}))
    print(len(recorder.compiled), len(recorder.launches))
    x = torch.empty(999, device="cuda")
    kernel.run(4, 1, 1, 0, kernel.function, kernel.packed_metadata, None, None, None, x, x, 999, 256)
print(len(recorder.compiled), *[(launch.kernel, launch.config, launch.variant) for launch in recorder.launches])
"""
    )
    assert printed.splitlines() == [
        "1 0",
        "1 ('double', 'BLOCK=256,num_stages=3,num_warps=4', '*fp32,*fp32,i32')",
    ]


def test_a_handle_tells_its_registers_and_refuses_what_does_not_fit(
    child: Callable[..., str], matmul_source: str
) -> None:
    printed = child(
        matmul_source
        + """
from flopwatch.static import kernel_facts, pretend_gpu

blocks = {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 64, "GROUP_M": 8}
with pretend_gpu("h200") as recorder:
    for options in ({"num_stages": 3}, {"num_stages": 3, "maxnreg": 64}, {"num_stages": 20}):
        given = arguments()
        handle = matmul.warmup(*given, **blocks, **options, grid=(1,))
        try:
            handle._init_handles()
        except triton.OutOfResources as error:
            print(error.name, error.required, error.limit)
            continue
        handle[(32, 1, 1)](*given, *blocks.values())
        facts = next(facts for facts in kernel_facts(recorder) if ("maxnreg" in facts.config) == ("maxnreg" in options))
        print(handle.n_regs == facts.registers > 32, handle.n_spills == facts.stack_bytes // 4, handle.n_spills > 0)
(facts,) = [facts for facts in kernel_facts(recorder) if facts.failure]
print(facts.config, facts.failure.kind, facts.chosen)
"""
    )
    assert printed.splitlines() == [
        "True True False",
        "True True True",
        "shared memory 327680 232448",
        "BLOCK_K=64,BLOCK_M=64,BLOCK_N=64,GROUP_M=8,num_stages=20,num_warps=4 OutOfResources True",
    ]


def test_a_handle_for_amd_is_what_its_function_launches(child: Callable[..., str], matmul_source: str) -> None:
    printed = child(
        matmul_source
        + """
from flopwatch.static import kernel_facts, pretend_gpu

blocks = {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 64, "GROUP_M": 8}
with pretend_gpu("mi300x") as recorder:
    given = arguments()
    matmul[(32,)](*given, **blocks, waves_per_eu=1)
    handle = matmul.warmup(*given, **blocks, waves_per_eu=1, grid=(1,))
    handle._init_handles()
    handle[(32, 1, 1)](*given, *blocks.values())
(facts,) = kernel_facts(recorder)
print(facts.config)
print(len(recorder.launches), handle.n_regs == facts.registers > 32, facts.num_stages)
"""
    )
    assert printed.splitlines() == [
        "BLOCK_K=64,BLOCK_M=64,BLOCK_N=64,GROUP_M=8,num_stages=2,num_warps=4,waves_per_eu=1",
        "2 True 2",
    ]


def test_tensors_of_the_host_are_refused_by_a_handle_too(child: Callable[..., str]) -> None:
    printed = child(
        KERNELS
        + """
with pretend_gpu("h200") as recorder:
    x = torch.empty(999, device="cuda")
    try:
        double.warmup(x, x, 999, BLOCK=256, grid=(1,))[(4, 1, 1)](x, torch.empty(999), 999, 256)
    except ValueError as error:
        print(error, len(recorder.launches), len(recorder.failures))
"""
    )
    assert printed == "Pointer argument (at 1) cannot be accessed from Triton (cpu tensor?) 0 1\n"

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

# The matmul of `MATMUL`, with 3 stages, which fit every device, and with more. Of a device there is its key, how many
# times more shared memory it has, and how many stages are too many for it without.
_LAUNCHES = """
import dataclasses

from triton._C.libtriton import llvm

from flopwatch.static import find_device, kernel_facts, pretend_gpu

optimize, optimized = llvm.optimize_module, []


def counted(*arguments, **named):
    optimized.append(arguments)
    optimize(*arguments, **named)


llvm.optimize_module = counted
blocks = {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 64, "GROUP_M": 8}
for key, times, most_stages in DEVICES:
    device = find_device(key)
    device = dataclasses.replace(device, max_shared_bytes_per_block=times * device.max_shared_bytes_per_block)
    for stages in (3, most_stages):
        optimized.clear()
        with pretend_gpu(device) as recorder:
            handle = matmul.warmup(*arguments(), **blocks, num_stages=stages, grid=(1,))
            try:
                matmul[(1,)](*arguments(), **blocks, num_stages=stages)
            except triton.OutOfResources as error:
                print(key, error.name, error.required > error.limit, handle.name, end=" ")
            facts = kernel_facts(recorder)
        texts = {name: bool(handle.asm[name]) for name in handle.asm if name not in {"source", "ttir", "ttgir", "llir"}}
        print(texts, len(optimized), [fact.failure is None for fact in facts])
    assert llvm.optimize_module is counted
"""


def test_what_does_not_fit_is_not_compiled_to_its_end(child: Callable[..., str], matmul_source: str) -> None:
    printed = child(matmul_source + _LAUNCHES.replace("DEVICES", '[("h200", 1, 20), ("mi300x", 1, 7)]'))
    assert printed.splitlines() == [
        "{'ptx': True, 'cubin': True} 1 [True]",
        "h200 shared memory True matmul {'ptx': False, 'cubin': False} 0 [False]",
        "{'amdgcn': True, 'hsaco': True} 1 [True]",
        "mi300x shared memory True matmul {'amdgcn': False, 'hsaco': False} 0 [False]",
    ]


def test_what_does_not_fit_one_device_is_compiled_for_another_of_its_target(
    child: Callable[..., str], matmul_source: str
) -> None:
    printed = child(matmul_source + _LAUNCHES.replace("DEVICES", '[("h200", 1, 20), ("h200", 2, 20)]'))
    assert printed.splitlines()[1:] == [
        "h200 shared memory True matmul {'ptx': False, 'cubin': False} 0 [False]",
        "{'ptx': True, 'cubin': True} 1 [True]",
        "{'ptx': True, 'cubin': True} 1 [True]",
    ]

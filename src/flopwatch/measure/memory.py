"""What a call takes from the GPU's memory, and what it does not give back."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

import torch

from flopwatch.measure.inputs import make_inputs
from flopwatch.model import Memory

if TYPE_CHECKING:
    from collections.abc import Callable

    from flopwatch.model import Case
    from flopwatch.suite import Suite

#: Calls before the count, which may fill caches, and calls that are counted.
WARM_UP_CALLS = 3
CALLS = 8


def measure_memory(suite: Suite, case: Case, *, tuned: Callable[[], object] = lambda: None) -> Memory:
    """Call the case repeatedly, dropping each result; after the first call, which tunes its kernels, `tuned` is told.

    Counted are the bytes requested of torch's allocator, not the blocks of 512 bytes that it hands out, so that a leak
    of one byte a call shows. What a kernel takes from CUDA directly is not seen.
    """
    call, inputs = suite.call(case.provider), make_inputs(suite, case, seed=0)
    for _ in range(WARM_UP_CALLS):
        call(*inputs)
        tuned()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = _requested("current")
    call(*inputs)
    peak = _requested("peak")
    between = _requested("current")
    for _ in range(CALLS):
        call(*inputs)
    return Memory(peak_bytes=peak - before, growth_bytes=(_requested("current") - between) / CALLS)


def _requested(which: str) -> int:
    gc.collect()  # what a call leaves in a cycle waits for the collector: that is no leak
    torch.cuda.synchronize()
    return int(torch.cuda.memory_stats()[f"requested_bytes.all.{which}"])

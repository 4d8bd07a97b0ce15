"""How long a product of matrices takes in a configuration, predicted from its shape: which ones are worth timing.

The programs of a grid run in waves, as many at once on each multiprocessor as its shared memory and registers hold. A
step along K of one program reads its panels of A and B from the L2 cache and multiplies them. Programs side by side
share the tensor cores and the way to the L2 cache; each by itself waits for its loads, of which the pipeline has all
stages but one in flight. A wave begins with loads that nothing hides, and ends with the store of its tiles; the last
one may leave multiprocessors idle. What memory must move at least comes on top, as far as it is not hidden.

It knows nothing of operands that cannot be read 16 bytes at a time, nor of the clock that power leaves a large product.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flopwatch.kernels.configs import MatmulConfig

#: What Triton compiles for on GPUs whose multiprocessors the rates below are of; no list is shortened for others.
PREDICTED_TARGETS = frozenset({("cuda", 90)})
#: Configurations that are timed of those that can run. In all that was recorded the fastest is among the first two
#: (H200, 2026-11-21 and 22; ``python -m evidence.prediction``); the third is for shapes that were not.
TOP_K = 3

_THREADS_PER_WARP = 32
_WARPS_PER_SM = 64
_REGISTERS_PER_SM = 65536
#: Of a thread beside its share of the accumulator (sm_90, triton 3.6.0, aligned operands: 32 to 75).
_OTHER_REGISTERS = 56
_RESERVED_SHARED_BYTES = 1024
#: Rows of a tile from which on Hopper multiplies in warpgroups.
_WARPGROUP_ROWS = 64
_MICROSECONDS = 1e6


@dataclass(frozen=True, kw_only=True, slots=True)
class Rates:
    """What a GPU's multiprocessors reach in this kernel.

    Attributes:
        dot_flops: of one multiprocessor's tensor cores, a second.
        narrow: the share of these that tiles of fewer than 64 rows reach, which are not multiplied in warpgroups.
        cache_bytes: that one multiprocessor reads from the L2 cache, a second.
        memory_bytes: that the chip's memory moves, a second.
        latency_us: of a load, as a step of the loop sees it.
        start_us: of a wave, before its first product.
        launch_us: of an empty kernel.
        blend: 1 adds the time of memory to that of the multiprocessors, large values take the longer of both.
    """

    dot_flops: float
    narrow: float
    cache_bytes: float
    memory_bytes: float
    latency_us: float
    start_us: float
    launch_us: float
    blend: float


#: Fitted to what 94 tunings of 32 shapes timed on an H200 (torch 2.11.0, triton 3.6.0, 2026-11-21 and 22); ``python -m
#: evidence.prediction fit`` derives them again. The memory's is what a sum of vectors moved in the same gates.
HOPPER = Rates(
    dot_flops=5.9e12,
    narrow=0.185,
    cache_bytes=112e9,
    memory_bytes=4.3e12,
    latency_us=0.92,
    start_us=1.4,
    launch_us=3.6,
    blend=1.38,
)


def matmul_us(
    M: int,
    N: int,
    K: int,
    config: MatmulConfig,
    *,
    sms: int,
    shared_bytes: int,
    element_bytes: int = 2,
    rates: Rates = HOPPER,
) -> float:
    """Predict how long C (M, N) = A (M, K) B (K, N) takes, in microseconds.

    Args:
        M: rows of A.
        N: columns of B.
        K: columns of A.
        config: what the kernel is compiled with.
        sms: multiprocessors of the GPU.
        shared_bytes: shared memory of each.
        element_bytes: of the operands.
        rates: what the multiprocessors reach.

    >>> from flopwatch.kernels.configs import MATMUL_AUTOTUNE
    >>> wide, *_, narrow = MATMUL_AUTOTUNE
    >>> [round(matmul_us(4096, 4096, 4096, config, sms=132, shared_bytes=233472)) for config in (wide, narrow)]
    [201, 1061]
    >>> [round(matmul_us(16, 4096, 4096, config, sms=132, shared_bytes=233472)) for config in (wide, narrow)]
    [54, 19]
    """
    programs = -(-M // config.block_m) * -(-N // config.block_n)
    steps = -(-K // config.block_k)
    resident = _resident(config, shared_bytes=shared_bytes, element_bytes=element_bytes)

    dot_rate = rates.dot_flops * (1 if config.block_m >= _WARPGROUP_ROWS else rates.narrow)
    dot_us = 2 * config.block_m * config.block_n * config.block_k / dot_rate * _MICROSECONDS
    panel_bytes = (min(config.block_m, M) + min(config.block_n, N)) * config.block_k * element_bytes
    shared_us = max(dot_us, panel_bytes / rates.cache_bytes * _MICROSECONDS)
    alone_us = rates.latency_us / max(config.num_stages - 1, 1)
    store_us = config.block_m * config.block_n * element_bytes / rates.cache_bytes * _MICROSECONDS

    def wave_us(programs_per_sm: int) -> float:
        return steps * max(programs_per_sm * shared_us, alone_us) + rates.start_us + programs_per_sm * store_us

    full_waves, rest = divmod(programs, sms * resident)
    busy_us = full_waves * wave_us(resident) + (wave_us(-(-rest // sms)) if rest else 0)
    memory_us = (M * K + K * N + M * N) * element_bytes / rates.memory_bytes * _MICROSECONDS
    blended: float = (busy_us**rates.blend + memory_us**rates.blend) ** (1 / rates.blend)
    return rates.launch_us + blended


def _resident(config: MatmulConfig, *, shared_bytes: int, element_bytes: int) -> int:
    """Return how many programs a multiprocessor holds, by their shared memory, warps and estimated registers."""
    stage_bytes = (config.block_m + config.block_n) * config.block_k * element_bytes
    threads = config.num_warps * _THREADS_PER_WARP
    registers = config.block_m * config.block_n + _OTHER_REGISTERS * threads
    limits = (
        shared_bytes // (config.num_stages * stage_bytes + _RESERVED_SHARED_BYTES),
        _WARPS_PER_SM // config.num_warps,
        _REGISTERS_PER_SM // registers,
    )
    return max(min(limits), 1)

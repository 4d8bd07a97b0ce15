"""Which kernel and configuration a product takes on Hopper whose tiles are all there at once, by an estimate of cycles.

What the estimate and the choice are worth: ``python -m evidence.short_tiles judge``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from flopwatch.kernels.hopper_matmul import TILES, HopperConfig
from flopwatch.kernels.hopper_short import SHORT_TILES, ShortConfig, can_step

#: Multiplications from which the short kernel is taken, and below which: 256 cubed is the least that was timed, and at
#: 256x8192x8192 and 4096x1024x8192 it lost 7 and 9 % to the persistent one
#: (``evidence/h100/matmul-held-out-2026-11-25-first.json`` and ``-second.json``).
SHORT_FEWEST, SHORT_MOST = 2**24, 2**34
#: Two tiles a multiprocessor have to take such a part of the places; and so many times as fast as the short kernel the
#: persistent one has to be by its estimate. With these the choice loses 1.7 % to the fastest of what was timed, in the
#: mean (``python -m evidence.short_tiles judge``).
_FULL, _FASTER = 0.6, 1.15
#: Products of fewer rows, with more columns than a wave of the smallest tiles has, wait for memory as the plain kernel
#: does: 80x11008x4096 lost 20 % (``evidence/h100/short-tiles-2026-11-25.json``).
_LOW = 128
#: Rows that are eight apart are worth it where such a part of a tile's are in the matrix: with 0.82, at 840 cubed, they
#: lost 5 % to the fastest tile; with 0.86, at 880x1000x1000, they were 22 % faster than what was taken before.
_WITHIN = 0.85
#: Bytes of a line of memory, and elements of 16 bits in it; columns of the smallest tiles.
_LINE, _ELEMENTS, _NARROW = 128, 64, 64
#: Pairs of 16-bit elements that a multiprocessor multiplies and adds in a cycle (NVIDIA H100 white paper: 989.4 TFLOP/s
#: of 132 multiprocessors at 1830 MHz).
PAIRS = 2048


@dataclass(frozen=True, kw_only=True, slots=True)
class WaveRates:
    """What takes a product's time.

    Attributes:
        launch: cycles a launch.
        round: cycles for each round of tiles that are there at once, beside those of their steps.
        store: cycles for each element of a tile, until C is stored.
        latency: cycles from the order of a load to its arrival.
        port: bytes a cycle that one multiprocessor takes from the L2 cache.
        cache: bytes a cycle that the L2 cache gives all multiprocessors together.
        memory: bytes a cycle that memory gives.
        eight_warps: cycles a step that eight warps take longer than four.
        beyond: how much longer the loads of a tile take that lies outside of the matrices altogether, as a part.
        hidden: the part of the cycles of tiles that counts where memory takes longer than they do.
        roles: cycles that the persistent kernel takes longer to begin and to end.
    """

    launch: float
    round: float
    store: float
    latency: float
    port: float
    cache: float
    memory: float
    eight_warps: float
    beyond: float
    hidden: float
    roles: float


#: Near what ``python -m evidence.short_tiles fit`` finds of an H100 at 1755 MHz (2026-11-25, triton 3.6.0), and with as
#: little error.
WAVE_RATES = WaveRates(
    launch=1600.0,
    round=1400.0,
    store=0.065,
    latency=1280.0,
    port=97.0,
    cache=8000.0,
    memory=1480.0,
    eight_warps=70.0,
    beyond=0.48,
    hidden=0.08,
    roles=1000.0,
)


def wave_config(
    m: int, n: int, k: int, *, processors: int, by_columns: bool = False, packed: bool = True
) -> ShortConfig | HopperConfig | None:
    """Return the configuration for a product whose tiles are all there at once; None for one that has more of them.

    None, too, for the least products, and for few rows by many columns, which the plain kernel is as fast with.

    Arguments are those of `flopwatch.kernels.hopper_choice.product_config`.

    >>> str(wave_config(1000, 1000, 1000, processors=132))
    'short 128x64x64 s5 w4 x1 r8 tma pdl'
    >>> str(wave_config(1728, 1728, 1728, processors=132))
    '192x128x64 s5 w3 c2/1 g8 whole pdl'
    >>> wave_config(4096, 4096, 4096, processors=132)
    """
    if not SHORT_FEWEST <= m * n * k < SHORT_MOST or (m < _LOW and math.ceil(n / _NARROW) > processors):
        return None

    def cycles(config: ShortConfig | HopperConfig) -> float:
        return wave_cycles(config, m, n, k, processors=processors, by_columns=by_columns)

    short = [
        tile
        for tile in SHORT_TILES
        if fits_at_once(tile, m, n, processors=processors)
        and (tile.row_step == 1 or (packed and can_step(m, tile) and _rows_within(tile, m) >= _WITHIN))
    ]
    if not short:
        return None
    chosen = min(short, key=cycles)
    persistent = min(
        (tile for tile in TILES if fits_at_once(tile, m, n, processors=processors)), key=cycles, default=None
    )
    if persistent is not None and cycles(chosen) > _FASTER * cycles(persistent):
        return replace(persistent, dependent=True)
    return replace(chosen, dependent=True)


def wave_cycles(
    config: ShortConfig | HopperConfig,
    m: int,
    n: int,
    k: int,
    *,
    processors: int,
    by_columns: bool = False,
    rates: WaveRates = WAVE_RATES,
) -> float:
    """Estimate how long a product takes, in cycles; loads are what it waits for most.

    They are rows of one line of memory, 128 bytes; of a matrix whose rows begin elsewhere than a line each row asks for
    two. Rows of A that are eight apart are taken from where a line begins.

    Args:
        config: how it is computed.
        m: rows of A.
        n: columns of B.
        k: columns of A.
        processors: of the GPU.
        by_columns: whether B lies by columns.
        rates: what of it takes how long.

    >>> near, apart = (ShortConfig(block_m=128, block_n=64, stages=5, row_step=step) for step in (1, 8))
    >>> cycles = [wave_cycles(config, 1000, 1000, 1000, processors=132) for config in (near, apart)]
    >>> cycles[0] > 1.25 * cycles[1]
    True
    """
    high, wide = config.tiles(m, n)
    row_step, warps = (config.row_step, config.warps) if isinstance(config, ShortConfig) else (1, 4)
    deep_lines = 2 if k % _ELEMENTS else 1
    before = _ELEMENTS - 8 if deep_lines > 1 and row_step > 1 else 0  # the most that a line has of another row
    steps = math.ceil((k + before) / config.block_k)
    rows_a = config.block_m * config.block_k // _ELEMENTS * (deep_lines if row_step == 1 else 1)
    if by_columns:
        rows_b = config.block_n * config.block_k // _ELEMENTS * deep_lines
    else:
        rows_b = config.block_k * math.ceil(config.block_n / _ELEMENTS) * (2 if n % _ELEMENTS else 1)
    within = m * n / (high * config.block_m * wide * config.block_n)
    load = (rows_a + rows_b) * _LINE * (1 + rates.beyond * (1 - within))
    # An instruction of few columns waits for shared memory.
    columns = config.block_n // max(1, warps * 16 // config.block_m)
    multiply = config.block_m * config.block_n * config.block_k / PAIRS * max(1.0, 64 / columns)
    multiply += rates.eight_warps * (warps // 8)
    store = rates.store * config.block_m * config.block_n
    cycles, left = rates.launch + (rates.roles if isinstance(config, HopperConfig) else 0.0), high * wide
    while left > 0:
        now = min(left, processors * config.per_processor)
        each = math.ceil(now / processors)
        under_way = min(config.stages - 1, steps) * load * each
        rate = min(rates.port, rates.cache * each / now, under_way / rates.latency)
        cycles += each * (steps * max(multiply, load / rate) + store) + rates.round
        left -= now
    memory = rates.launch + (m * k + k * n + m * n) * 2 / rates.memory
    return max(cycles, memory) + rates.hidden * cycles


def _rows_within(config: ShortConfig, m: int) -> float:
    """Return which part of its tiles' rows are in the matrix."""
    return m / (config.tiles(m, 1)[0] * config.block_m)


def fits_at_once(config: ShortConfig | HopperConfig, m: int, n: int, *, processors: int) -> bool:
    """Tell whether all tiles of a product of (M, N) are there at once.

    Two a multiprocessor are at most taken to be, and have to leave few places empty.
    """
    tiles, places = math.prod(config.tiles(m, n)), processors * min(config.per_processor, 2)
    return tiles <= processors or _FULL * places <= tiles <= places

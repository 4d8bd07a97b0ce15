"""Which tile a product of one round of tiles or two takes on Hopper, by an estimate of cycles.

What the estimate and the choice are worth: ``python -m evidence.short_tiles judge``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from flopwatch.kernels.hopper_short import SHORT_TILES, ShortConfig, can_step
from flopwatch.kernels.thin_matmul import MOST_ROWS

#: Multiplications from which the short kernel is taken: 256 cubed is the least that was timed.
SHORT_FEWEST = 2**24
#: More tiles than multiprocessors have to fill such a part of two rounds, or of the places that there are at once. With
#: this the choice loses 3 % to the fastest of what was timed, in the mean (``python -m evidence.short_tiles judge``).
_FULL = 0.75
#: Products of few rows, and of more columns than there are in so many a multiprocessor, wait for memory, as the plain
#: kernel does, too: 64x14336x4096 and 64x28672x8192 took 3 and 4 % longer than that
#: (``evidence/h100/short-tiles-2026-11-25.json``).
_NARROW = 64
#: Rows that are eight apart are worth it where such a part of a tile's are in the matrix: with 0.82, at 840 cubed, they
#: lost 6 % to the fastest tile (``evidence/h100/short-tiles-2026-11-25.json``); with 0.86, at 880x1000x1000, they were
#: 8 % faster than what is taken there (``evidence/h100/matmul-held-out-2026-11-25-second.json`` and the last one).
_WITHIN = 0.85
#: Bytes of a line of memory; elements of 16 bits in it, and in a sector of it.
_LINE, _ELEMENTS, _SECTOR = 128, 64, 16


@dataclass(frozen=True, kw_only=True, slots=True)
class WaveRates:
    """What takes a product's time.

    Attributes:
        launch: cycles a launch.
        alone: cycles that it takes longer where no second program fits beside one, so that those of the next launch
            come only once these have ended.
        round: cycles for each round of tiles that are there at once, beside those of their steps.
        store: cycles for each element of a tile, until C is stored.
        latency: cycles from the order of a load to its arrival.
        port: bytes a cycle that one multiprocessor takes from the L2 cache.
        cache: bytes a cycle that the L2 cache gives all multiprocessors together.
        memory: bytes a cycle that memory gives.
        split: what a row of B takes longer that asks for two lines, as a part.
        split_deep: likewise one along K, whose second line the next step asks for again.
        sector: likewise one that begins within a sector of 32 bytes.
        step: cycles a step, beside its loads or its instructions.
        more: cycles a step that other rows or columns take beside.
        eight_warps: cycles a step that eight warps take longer than four.
        beyond: how much longer the loads of a tile take that lies outside of the matrices altogether, as a part.
        hidden: the part of the cycles of tiles that counts where memory takes longer than they do.
        crowded: how much longer loads take, as a part, where rows begin within sectors and a ring leaves no room for
            that of a second program: most such rings have more of them under way.
    """

    launch: float
    alone: float
    round: float
    store: float
    latency: float
    port: float
    cache: float
    memory: float
    split: float
    split_deep: float
    sector: float
    step: float
    more: float
    eight_warps: float
    beyond: float
    hidden: float
    crowded: float


#: Near what ``python -m evidence.short_tiles fit`` finds of an H100 at 1755 MHz (2026-11-25, triton 3.6.0): an error of
#: 10.1 %, where the fit's is 9.9 %.
WAVE_RATES = WaveRates(
    launch=620.0,
    alone=750.0,
    round=1380.0,
    store=0.1,
    latency=1400.0,
    port=121.0,
    cache=7900.0,
    memory=1380.0,
    split=0.62,
    split_deep=0.44,
    sector=0.65,
    step=65.0,
    more=28.0,
    eight_warps=50.0,
    beyond=1.0,
    hidden=0.007,
    crowded=0.1,
)


def wave_config(
    m: int, n: int, k: int, *, processors: int, by_columns: bool = False, packed: bool = True, in_lines: bool = False
) -> ShortConfig | None:
    """Return the configuration for a product of one round of tiles or two; None for one that has more of them.

    None, too, for the least products, and for few rows by many columns.

    Arguments are those of `flopwatch.kernels.hopper_choice.product_config`.

    >>> str(wave_config(1000, 1000, 1000, processors=132))
    'short 128x64x64 s5 w4 x1 r8 tma pdl'
    >>> str(wave_config(1536, 1536, 1536, processors=132))
    'short 144x128x64 s4 w4 x1 turned tma pdl'
    >>> wave_config(4096, 4096, 4096, processors=132)
    """
    if m * n * k < SHORT_FEWEST or (m <= MOST_ROWS and n > _NARROW * processors):
        return None
    tiles = [
        tile
        for tile in tiles_for(m)
        if fills_rounds(tile, m, n, processors=processors)
        and (tile.row_step == 1 or (packed and _rows_within(tile, m) >= _WITHIN))
    ]
    if not tiles:
        return None
    fastest = min(
        tiles,
        key=lambda tile: wave_cycles(tile, m, n, k, processors=processors, by_columns=by_columns, in_lines=in_lines),
    )
    return replace(fastest, dependent=True)


def tiles_for(m: int) -> list[ShortConfig]:
    """Return the tiles that so many rows can take: few rows none of more, which would be nearly empty.

    >>> {tile.rows for tile in tiles_for(16)}, {tile.row_step for tile in tiles_for(1004)}
    ({64}, {1})
    """
    return [tile for tile in SHORT_TILES if can_step(m, tile) and (m > MOST_ROWS or tile.rows <= MOST_ROWS)]


def wave_cycles(
    config: ShortConfig,
    m: int,
    n: int,
    k: int,
    *,
    processors: int,
    by_columns: bool = False,
    in_lines: bool = False,
    rates: WaveRates = WAVE_RATES,
) -> float:
    """Estimate how long a product takes, in cycles; loads are what it waits for most.

    They are rows of one line of memory, 128 bytes; of a matrix whose rows begin elsewhere than a line each row asks for
    two. Rows of A that are eight apart are taken from where a line begins, and of B that lies by rows, columns that are
    no multiple of a line begin elsewhere in most tiles.

    Args:
        config: how it is computed.
        m: rows of A.
        n: columns of B.
        k: columns of A.
        processors: of the GPU.
        by_columns: whether B lies by columns.
        in_lines: whether all rows of A and of B begin with lines.
        rates: what of it takes how long.

    >>> near, apart = (ShortConfig(block_m=128, block_n=64, stages=5, row_step=step) for step in (1, 8))
    >>> cycles = [wave_cycles(config, 1000, 1000, 1000, processors=132) for config in (near, apart)]
    >>> cycles[0] > 1.25 * cycles[1]
    True
    >>> wide, high = (
    ...     ShortConfig(block_m=128, block_n=128, more=16, stages=4, turned=turned) for turned in (False, True)
    ... )
    >>> cycles = [wave_cycles(config, 1536, 1536, 1536, processors=132) for config in (wide, high)]
    >>> cycles[0] > 1.15 * cycles[1]
    True
    """
    tiles_m, tiles_n = config.tiles(m, n)
    tile = config.rows * config.columns
    before = _ELEMENTS - math.gcd(k, _ELEMENTS) if config.row_step > 1 else 0  # the most that a line has of another row
    steps = math.ceil((k + before) / config.block_k)
    within = m * n / (tiles_m * tiles_n * tile)
    widths = (0, 0) if in_lines else (n, k)  # whose multiples are where rows begin
    crowded = config.per_processor == 1 and config.row_step == 1 and math.gcd(*widths, _ELEMENTS) < _SECTOR
    load = _lines(config, *widths, by_columns=by_columns, rates=rates) * _LINE
    load *= (1 + rates.beyond * (1 - within)) * (1 + rates.crowded * crowded)
    multiply = _multiplied(config)
    beside = rates.step + rates.more * (config.more > 0) + rates.eight_warps * (config.warps // 8)
    cycles, left = rates.launch + rates.alone * (config.per_processor == 1), tiles_m * tiles_n
    while left > 0:
        now = min(left, processors * config.per_processor)
        each = math.ceil(now / processors)
        under_way = min(config.stages - 1, steps) * load * each
        rate = min(rates.port, rates.cache * each / now, under_way / rates.latency)
        cycles += each * (steps * (max(multiply, load / rate) + beside) + rates.store * tile) + rates.round
        left -= now
    memory = rates.launch + (m * k + k * n + m * n) * 2 / rates.memory
    return max(cycles, memory) + rates.hidden * cycles


def _lines(config: ShortConfig, n: int, k: int, *, by_columns: bool, rates: WaveRates) -> float:
    """Return how many lines of memory a step asks for; a row's second one counts as a part."""
    along = config.block_k // _ELEMENTS
    of_k = _row(k, rates.split_deep, rates)
    of_a = config.rows * along * (1.0 if config.row_step > 1 else of_k)
    if by_columns:
        return of_a + config.columns * along * of_k
    whole, rest = divmod(config.columns, _ELEMENTS)
    return of_a + config.block_k * (whole * _row(math.gcd(n, config.columns), rates.split, rates) + bool(rest))


def _row(length: int, split: float, rates: WaveRates) -> float:
    """Return how many lines a row of a box asks for, in the mean of rows that begin at multiples of a length."""
    place = math.gcd(length, _ELEMENTS)
    return 1 + split * (1 - place / _ELEMENTS) + rates.sector * (place < _SECTOR)


def _multiplied(config: ShortConfig) -> float:
    """Return how many cycles the instructions of a step take.

    One of 64 rows, a depth of 16 and so many columns multiplies for half as many cycles as it has columns, and reads
    its operands from shared memory, 128 bytes a cycle.
    """
    high, wide = (config.block_n, config.block_m) if config.turned else (config.block_m, config.block_n)
    beside = max(1, config.warps * 16 // high)
    columns = [part / beside for part in (wide, config.more) if part]
    return sum(max(each / 2, 16 + each / 4) for each in columns) * beside * high / 64 * config.block_k / 16


def _rows_within(config: ShortConfig, m: int) -> float:
    """Return which part of its tiles' rows are in the matrix."""
    return m / (config.tiles(m, 1)[0] * config.rows)


def fills_rounds(config: ShortConfig, m: int, n: int, *, processors: int) -> bool:
    """Tell whether there is at most one tile a multiprocessor, or two rounds are nearly full of them.

    Where three fit a multiprocessor, so have their places to be.
    """
    tiles, places = math.prod(config.tiles(m, n)), processors * max(config.per_processor, 2)
    return tiles <= processors or _FULL * places <= tiles <= places

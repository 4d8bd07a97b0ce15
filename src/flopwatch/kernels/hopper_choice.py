"""Which configuration a call takes on Hopper where no table has its sizes.

Products by an estimate of cycles, attention as the nearest sizes that were raced. What is measured of these choices, on
sizes that nothing was fitted to: ``python -m evidence.matmul_candidates OUT.json --held-out``, and those of attention
and of float8.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from flopwatch.kernels.hopper_attention import HOPPER_ATTENTION, ROWS
from flopwatch.kernels.hopper_fp8 import FP8_PROMOTED_TILES
from flopwatch.kernels.hopper_matmul import TILES, HopperConfig
from flopwatch.kernels.known import PLAIN, tabled
from flopwatch.kernels.stream_k import Balance
from flopwatch.kernels.thin_fp8 import MOST_FP8_ROWS, THIN_FP8
from flopwatch.kernels.thin_matmul import MOST_ROWS, THIN, ThinConfig
from flopwatch.kernels.wave_choice import wave_config, wave_cycles

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from flopwatch.kernels.hopper_short import ShortConfig

#: Multiplications from which the persistent kernel is taken. Of the products that were raced, from 1024 cubed on all
#: but one were 2 to 74 % faster than the plain kernel's (1280 cubed in float16 was 2 % slower), and those of 768 cubed
#: and less 1 to 24 % slower (H200, 2026-11-22, ``evidence/h200/matmul-candidates-2026-11-22.json``).
FEWEST = 2**30
#: Of few rows, elements of B from which the kernel for those is taken: 2048 squared is the least that was timed.
THIN_FEWEST = 2**22
#: Rows up to which products of few columns wait for B alone; and how many times as deep as wide those of up to 64 rows
#: are that do, too, where four programs share them: 64x1024x8192 took 0.64 of the fastest short tile's time, and
#: 64x2048x2048 1.26 of it (H100, 2026-11-25, ``evidence/h100/short-tiles-2026-11-25.json``).
_FEW_ROWS, _DEEP = 32, 4
#: Pairs of 16-bit elements that a multiprocessor multiplies and adds in a cycle (NVIDIA H100 white paper: 989.4 TFLOP/s
#: of 132 multiprocessors at 1830 MHz).
_PAIRS = 2048
#: A program's cycles on an H200, roughly: bytes of shared memory filled a cycle and multiprocessor (8192x8192x1024 at
#: 670 TFLOP/s with 128x128 tiles, 2026-11-20), and, guessed, what a tile or a part costs beside.
_FILL, _TILE, _PART = 50.0, 1500.0, 2000.0
#: The part of a GPU's rate that a product has to be predicted to reach, or it is left to the plain kernel, which has
#: smaller tiles: 1024 cubed is predicted 0.42, 100x4096x4096 0.28.
_BUSY = 0.4
#: So many times as fast sharing has to be predicted to be: by 0.5 to 4 % it lost. 4096 cubed with B by columns took
#: 1.10 of cuBLAS's time, and with whole tiles 0.99; 7168 cubed 1.08 and 1.00 (float16, H100, 2026-11-25,
#: ``evidence/h100/matmul-held-out-2026-11-25-third.json`` and the last one).
_SHARED = 1.05
#: Multiplications below which the short kernel is taken: at 256x8192x8192 and 4096x1024x8192 it lost 7 and 9 % to the
#: persistent one (``evidence/h100/matmul-held-out-2026-11-25-first.json`` and ``-second.json``).
_SHORT_MOST = 2**34
#: Of copies larger products take it, too, where it is predicted to take at most so many times as long as the persistent
#: one: with 0.99 to 1.27 it took 0.90 to 1.00 of its time, and with 1.35 and 1.43 1.10 and 1.13 of it (decision 16).
_OF_COPIES = 1.3
#: Deeper products share no tiles: with those of the last wave shared, 4096x4096x16384 and 2048x4096x14336 took 5 to
#: 10 % longer, and were predicted to take 3 % less (128x256 tiles, H200, 2026-11-22 and 23; decision 4).
_DEEPEST = 8192
#: Attention takes the choice of sizes that are at most so many times theirs, or that part of them: as far apart as
#: those are that were raced.
_NEAR = 2.0
#: Of a key of attention (`flopwatch.kernels.routes.attention_key`): where its sequence lengths are, and what of it has
#: to be equal: the head dimension and the mask.
_LENGTHS, _EQUAL = slice(3, 5), slice(5, 7)
_ATTENTION = "hopper_attention_kernel"
#: Attention of sequences with lengths: of each head_dim, causal or not, what is taken where so many positions are the
#: nearest; the plain kernel where it is "". These are about the fastest in races of lengths of up to half of the
#: positions and of an eighth of them in the mean (H100, 2026-11-25 and 26, decision 10).
_OF_LENGTHS: MappingProxyType[tuple[int, bool], Mapping[int, str]] = MappingProxyType(
    {
        (32, True): {512: "128x64 s4 r2", 2048: "128x64 s4 r2", 8192: ""},
        (32, False): {512: "128x64 s4 r2", 2048: "", 8192: "192x128 s3"},
        (64, True): {512: "192x64 s4", 2048: "128x128 s3 q2 h64 pp", 8192: "192x128 s2 q2 pp"},
        (64, False): {512: "192x64 s4", 2048: "128x128 s3 q2 h64 pp", 8192: "192x128 s2"},
        (128, True): {512: "128x64 s4 pp", 2048: "128x128 s2 pp", 8192: "128x128 s2 pp"},
        (128, False): {512: "128x64 s4 pp", 2048: "128x128 s2 q2", 8192: "128x128 s2 q2 pp"},
        (256, True): {512: "128x64 s2 o2 pp", 2048: "128x64 s2 o2", 8192: "128x64 s2 o2"},
        (256, False): {512: "128x64 s2 o2 pp", 2048: "128x64 s2 o2", 8192: "128x64 s2 o2 pp"},
    }
)
#: Elements of Q from which these are taken: of 2**21 the plain kernel was 1.29 times as fast (4x8x1024x64, H100,
#: 2026-11-26, ``results/h100``). Of 512 positions so many times as many, but for the widest head_dim: of 2**22 the
#: plain one was up to 1.15 times as fast as any there, and of 2**24 it was nowhere (decision 10).
_FEWEST_OF_LENGTHS, _TIMES_OF_SHORT, _WIDEST = 2**22, 2, 256
#: Of few rows: four programs that share K, and two; in the same timings the fastest with so many, nearly everywhere.
_THIN = tuple(THIN[name] for name in ("thin 64x128/4 w4 s4 pdl", "thin 64x128/2 w4 s5 pdl"))
#: Of float8: where the tensor cores sum along all of K, and where they do not, what was the fastest of few rows in the
#: mean of an H200's race, or near it, then with half as many programs; and the tiles to choose from, as in 16 bits.
_THIN_FP8 = MappingProxyType(
    {
        False: (THIN_FP8[False]["thin 64x256/1 w4 s7 pdl"],),
        True: (THIN_FP8[True]["thin 64x128/2 w4 s12 pdl"], THIN_FP8[True]["thin 64x128/1 w4 s6 pdl"]),
    }
)
_FP8_TILES = MappingProxyType(
    {False: TILES, True: tuple(tile for tile in TILES if replace(tile, block_k=2 * tile.block_k) in FP8_PROMOTED_TILES)}
)
#: Pairs of products from which these are taken, and the part of the rate that they have to be predicted to reach: 1024
#: cubed, the least that was raced, is predicted 0.37. Up to so many pairs, those of 4096 cubed, but not of up to 128
#: rows, they come before the launch in front of theirs has ended: that took 0.80 to 0.99 of the time, and of 128 rows
#: 0.98 to 1.06 (``evidence/h100/fp8-candidates-2026-11-25.json``, ``evidence/h200/fp8-candidates-2026-11-24.json``).
_FEWEST_FP8, _BUSY_FP8, _DEPENDENT_FP8 = 2**29, 0.35, 2**35
#: Of the plain kernel's speed: what attention has to promise to be taken. What Gluon has to gain in a race, 3 %.
_WORTH = 1.03


@functools.lru_cache(maxsize=4096)
def product_config(
    m: int, n: int, k: int, *, processors: int, by_columns: bool = False, packed: bool = True, in_lines: bool = False
) -> HopperConfig | ShortConfig | ThinConfig | None:
    """Return the configuration for a product of 16-bit elements; None where the plain kernel is taken to be faster.

    Args:
        m: rows of A.
        n: columns of B.
        k: columns of A.
        processors: of the GPU.
        by_columns: whether B lies by columns.
        packed: whether rows of A follow each other without a gap.
        in_lines: whether all rows of A and of B (or columns, where it lies by them) begin with lines of memory.

    >>> str(product_config(1000, 1000, 1000, processors=132))
    'short 128x64x64 s5 w4 x1 r8 tma pdl'
    >>> str(product_config(16, 4096, 4096, processors=132))
    'thin 64x128/2 w4 s5 pdl'
    >>> str(product_config(4096, 4096, 4096, processors=132))
    '128x256x64 s4 w2 c4/2 g8 whole'
    >>> str(product_config(4096, 4096, 16384, processors=132))
    '128x256x64 s4 w2 c4/2 g8 whole'
    >>> product_config(16, 16384, 4096, processors=132)
    """
    thin = _thin_config(n, k, processors, _THIN) if m <= MOST_ROWS else None
    if m <= _FEW_ROWS or (thin is _THIN[0] and k >= _DEEP * n):
        return thin
    of_a_wave = wave_config(m, n, k, processors=processors, by_columns=by_columns, packed=packed, in_lines=in_lines)
    if of_a_wave is not None and m * n * k < _SHORT_MOST:
        return of_a_wave
    persistent = _persistent_config(m, n, k, processors)
    if of_a_wave is None or not in_lines:
        return persistent
    if persistent is None:
        return of_a_wave
    cycles = wave_cycles(of_a_wave, m, n, k, processors=processors, by_columns=by_columns, in_lines=True)
    most = _OF_COPIES * predicted_cycles(persistent, m, n, k, processors=processors)
    return of_a_wave if cycles <= most else persistent


def _thin_config(n: int, k: int, processors: int, configs: Sequence[ThinConfig]) -> ThinConfig | None:
    """Return the configuration for few rows whose programs, as many as there are for a tile, make at most one wave."""
    if n * k < THIN_FEWEST:
        return None
    return next((each for each in configs if math.ceil(n / each.block_n) * each.splits <= processors), None)


@functools.lru_cache(maxsize=4096)
def fp8_product_config(m: int, n: int, k: int, *, processors: int, promotes: bool) -> HopperConfig | ThinConfig | None:
    """Return the configuration for a product of float8 by columns; None where the plain kernel is to be launched.

    Two elements are a pair of 16 bits: read, and multiplied by another pair, in the time of one such element. So the
    estimate is that of 16 bits, with half of K. ``python -m evidence.fp8_candidates ruled RACE.json ...`` tells what
    that is worth: in the two races of `_FEWEST_FP8` 1.03 to 3.51 of the plain kernel's speed, 0.87 of the fastest or
    more.

    Args:
        m: rows of A.
        n: columns of B.
        k: columns of A.
        processors: of the GPU.
        promotes: whether the sum of each step is added in float32.

    >>> str(fp8_product_config(3072, 3072, 3072, processors=132, promotes=True))
    '192x128x128 s5 w3 c2/1 g8 whole pdl'
    >>> str(fp8_product_config(16, 4096, 4096, processors=132, promotes=False))
    'thin 64x256/1 w4 s7 pdl'
    """
    pairs = k // 2
    if m <= MOST_ROWS:
        return _thin_config(n, pairs, processors, _THIN_FP8[promotes])
    config = _persistent_config(m, n, pairs, processors, tiles=_FP8_TILES[promotes], fewest=_FEWEST_FP8, busy=_BUSY_FP8)
    if config is None:
        return None
    early = config.balance is Balance.WHOLE and m > MOST_FP8_ROWS and m * n * pairs <= _DEPENDENT_FP8
    return replace(config, block_k=2 * config.block_k, dependent=early)


def _persistent_config(
    m: int,
    n: int,
    k: int,
    processors: int,
    *,
    tiles: Sequence[HopperConfig] = TILES,
    fewest: int = FEWEST,
    busy: float = _BUSY,
) -> HopperConfig | None:
    if m <= MOST_ROWS or m * n * k < fewest:
        return None
    chosen = min(
        (
            replace(tile, balance=balance)
            for tile in tiles
            for balance in (Balance.WHOLE, Balance.WAVE)  # all of a few tiles shared was slower than any other way
            if balance is Balance.WHOLE or (k <= _DEEPEST and tiles_of(tile, m, n) > processors * tile.per_processor)
        ),
        key=lambda config: (
            predicted_cycles(config, m, n, k, processors=processors)
            * (1.0 if config.balance is Balance.WHOLE else _SHARED)
        ),
    )
    least = m * n * k / (processors * _PAIRS)
    return chosen if least >= busy * predicted_cycles(chosen, m, n, k, processors=processors) else None


def predicted_cycles(config: HopperConfig, m: int, n: int, k: int, *, processors: int) -> float:
    """Estimate how long the busiest multiprocessor works.

    >>> whole, shared = (replace(TILES[4], balance=balance) for balance in (Balance.WHOLE, Balance.WAVE))
    >>> cycles = [predicted_cycles(config, 1536, 1536, 1536, processors=132) for config in (whole, shared)]
    >>> cycles[0] > 1.3 * cycles[1]
    True
    """
    steps, tiles = math.ceil(k / config.block_k), tiles_of(config, m, n)
    try:
        plan = config.schedule(m, n, k, processors=processors)
    except ValueError:  # shares that 32 bits do not count
        return math.inf
    # An instruction of few columns waits for shared memory.
    multiply = config.block_m * config.block_n * config.block_k / _PAIRS * max(1.0, 64 / config.block_n)
    fill = (config.block_m + config.block_n) * config.block_k * 2 / _FILL
    share = math.ceil(plan.shared * steps / plan.programs)
    whole = math.ceil((tiles - plan.shared) / plan.programs)
    cycles = (share + whole * steps) * max(multiply, fill) + (whole + bool(share)) * _TILE
    if plan.shared:
        parts = max(1, math.ceil(plan.programs / plan.shared) - 1)
        cycles += (1 + parts) * (config.block_m * config.block_n * 4 / _FILL) + _PART
    return cycles * math.ceil(plan.programs / processors)


def tiles_of(config: HopperConfig, m: int, n: int) -> int:
    """Return how many tiles a product has."""
    return math.prod(config.tiles(m, n))


@functools.lru_cache(maxsize=4096)
def attention_config(key: str, folder: Path, *, gpu: str, processors: int) -> str:
    """Return the configuration that was the fastest at the nearest lengths; "" where the plain kernel is to be taken.

    Of equally near ones those that were raced on a GPU of that name come first.

    Where so much of the last wave of multiprocessors would be idle as takes back what was won, the next nearest lengths
    may have tiles that fill it: of 12 heads with 2048 positions there are 192 tiles of 128 rows, and 132 of 192. Where
    none do, no lengths are near, or the plain kernel won there, it is taken.

    Args:
        key: of the call.
        folder: of the tables.
        gpu: its name.
        processors: of the GPU.
    """
    wanted = key.split(", ")
    near = [
        (distance, raced.gpu != gpu, raced)
        for raced in _raced(folder)
        if raced.key[_EQUAL] == wanted[_EQUAL] and (distance := _distance(raced.key, wanted)) <= math.log2(_NEAR)
    ]
    batch, heads, length, head_dim = (int(wanted[place]) for place in (0, 1, 3, 5))
    configs = {config.name: config for config in HOPPER_ATTENTION.get(head_dim, ())}
    for _, _, raced in sorted(near):
        if raced.config not in configs:
            break
        config = configs[raced.config]
        waves = batch * heads * math.ceil(length / (ROWS * config.groups)) / (processors * config.resident)
        if raced.speed * waves / math.ceil(waves) >= _WORTH:
            return config.name
    return ""


def lengths_config(shape: Sequence[int], *, causal: bool) -> str:
    """Return the configuration for sequences with lengths; "" where the plain kernel is to be taken.

    Args:
        shape: of Q, (B, H, S, D).
        causal: whether a query sees only the keys up to its own position.

    >>> lengths_config((16, 32, 2048, 64), causal=False), lengths_config((4, 32, 512, 64), causal=False)
    ('128x128 s3 q2 h64 pp', '')
    """
    *_, positions, head_dim = shape
    names = _OF_LENGTHS.get((head_dim, causal), {})
    if not names or positions < min(names):
        return ""
    nearest = min(names, key=lambda raced: (abs(math.log2(positions / raced)), -raced))
    is_short = nearest == min(names) and head_dim < _WIDEST
    fewest = _FEWEST_OF_LENGTHS * (_TIMES_OF_SHORT if is_short else 1)
    return names[nearest] if math.prod(shape) >= fewest else ""


def _distance(known: Sequence[str], wanted: Sequence[str]) -> float:
    lengths = zip(known[_LENGTHS], wanted[_LENGTHS], strict=True)
    return max(abs(math.log2(int(one) / int(other))) for one, other in lengths)


@dataclass(frozen=True, kw_only=True, slots=True, order=True)
class _Raced:
    """What won a race of attention: a configuration, so many times as fast as the plain kernel; none if that won."""

    config: str
    speed: float
    key: list[str]
    gpu: str


@functools.cache
def _raced(folder: Path) -> tuple[_Raced, ...]:
    """Return what won on any GPU: a kernel for Hopper was raced on one."""
    return tuple(
        _Raced(
            config=choice["config"] if choice["kernel"] == _ATTENTION else "",
            speed=math.exp(entry["gain"]["estimate"]) if entry["gain"] else 1.0,
            key=choice["key"].split(", "),
            gpu=entry["gpu"],
        )
        for entry, choice in tabled(folder)
        if choice["kernel"] in {_ATTENTION, PLAIN}
    )

"""Which program computes which tile of an attention, and which keys its rows see: integers alone.

Compiled into the kernel of `flopwatch.kernels.hopper_attention_kernel`, and run as they are by Python: ``f.fn(...)``.
Both divide alike, since nothing here that is divided is negative. Query i sees the keys up to ``i + offset`` where
`offset` is the number of keys less that of queries: the last query sees all of them.
"""

# Triton types what it compiles, and ships no types:
# mypy: disable-error-code="no-untyped-def, untyped-decorator"
# ruff: noqa: PLR0917 - Triton passes a function's arguments by place

from __future__ import annotations

import functools

import numpy as np
from triton.experimental import gluon

#: What a tile costs beside its blocks, in blocks: Q, the first scores, which meet no other product, and the output.
_TILE_COST = 1.0
#: Numbers of heads that are tried.
_TRIED = 24


@gluon.jit
def count_turns(program, programs, tiles):
    """Return how many tiles a program computes; see `find_tile`.

    >>> [count_turns.fn(program, 3, 8) for program in range(3)], [count_turns.fn(program, 3, 5) for program in range(3)]
    ([3, 3, 2], [1, 2, 2])
    """
    full = tiles // programs
    place = program
    if full % 2 == 1:
        place = programs - 1 - program
    return full + (tiles % programs + programs - 1 - place) // programs


@gluon.jit
def find_tile(turn, program, programs, row_tiles, heads, group, CAUSAL):
    """Return the tile of rows and the head that a program computes in a turn.

    Causal tiles differ in length. They are taken `group` heads at a time, whose keys and values the L2 cache holds, the
    longest ones first; every other turn goes through the programs backwards, so that who had the longest of one turn
    has the shortest of the next.

    >>> [find_tile.fn(0, program, 4, 2, 2, 2, True) for program in range(4)]
    [(1, 0), (1, 1), (0, 0), (0, 1)]
    """
    place = program
    if turn % 2 == 1:
        place = programs - 1 - program
    number = turn * programs + place
    row_tile = number % row_tiles
    head = number // row_tiles
    if CAUSAL:
        first = number // (group * row_tiles) * group
        within = number % (group * row_tiles)
        width = min(heads - first, group)
        row_tile = row_tiles - 1 - within // width
        head = first + within % width
    return row_tile, head


@gluon.jit
def count_blocks(first_row, end_row, queries, keys, CAUSAL, BLOCK_N):
    """Return how many blocks of keys the rows of [first_row, end_row) see, from the first key on; at least 1.

    Rows that see nothing are given one block, which is masked as a whole. Rows at or past `queries` are not stored.

    >>> [count_blocks.fn(row, row + 64, 200, 200, True, 64) for row in (0, 64, 128, 192, 256)]
    [1, 2, 3, 4, 1]
    """
    seen = keys
    if CAUSAL:
        seen = min(end_row + keys - queries, keys)
    if first_row >= queries:
        seen = 0
    return max(seen + BLOCK_N - 1, BLOCK_N) // BLOCK_N


@gluon.jit
def count_whole_blocks(first_row, queries, keys, CAUSAL, BLOCK_N):
    """Return how many blocks, from the first key on, all rows from `first_row` on see all of: they need no mask.

    >>> [count_whole_blocks.fn(row, 200, 200, True, 64) for row in (0, 63, 64, 192)]
    [0, 1, 1, 3]
    """
    seen = keys
    if CAUSAL:
        seen = min(max(first_row + keys - queries + 1, 0), keys)
    return seen // BLOCK_N


@functools.lru_cache(maxsize=1024)
def choose_group(row_tiles: int, heads: int, programs: int, limit: int, block_m: int, block_n: int) -> int:
    """Return how many causal heads are taken together, at most `limit`, so that programs have equally much to do.

    One after the other as many as the L2 cache holds, the longest rows of an H200's 132 programs were up to 79 % above
    the mean (head_dim 256, batch x sequence = 16384); of the best of these numbers it is 4 % at most.

    >>> choose_group(128, 16, 132, 2, 128, 128), choose_group(128, 16, 132, 33, 128, 128)
    (1, 16)
    >>> round(imbalance(128, 8, 132, 1, 128, 64), 2), round(imbalance(128, 8, 132, 8, 128, 64), 2)
    (1.79, 1.0)
    """
    limit = min(limit, heads)
    tried = sorted({max(limit * part // _TRIED, 1) for part in range(1, _TRIED + 1)})
    return min(tried, key=lambda group: imbalance(row_tiles, heads, programs, group, block_m, block_n))


def imbalance(row_tiles: int, heads: int, programs: int, group: int, block_m: int, block_n: int) -> float:
    """Return what the program with the most to do has, in units of the mean; of as many keys as queries.

    >>> imbalance(4, 3, 3, 3, 128, 128), round(imbalance(1, 4, 3, 4, 128, 128), 2)
    (1.0, 1.5)
    """
    numbers = np.arange(row_tiles * heads)
    turns, places = numbers // programs, numbers % programs
    first, within = numbers // (group * row_tiles) * group, numbers % (group * row_tiles)
    rows = row_tiles - 1 - within // np.minimum(heads - first, group)
    loads = np.bincount(
        np.where(turns % 2, programs - 1 - places, places),
        weights=-(-(rows + 1) * block_m // block_n) + _TILE_COST,
        minlength=programs,
    )
    return float(loads.max() / loads.mean())

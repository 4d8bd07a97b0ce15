# ruff: noqa: FBT003 - the functions under test take them by place

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import pytest

from flopwatch.kernels.hopper_attention import HOPPER_ATTENTION, ROWS, heads_together, is_aligned
from flopwatch.kernels.hopper_attention_tiles import (
    choose_group,
    count_blocks,
    count_turns,
    count_whole_blocks,
    find_tile,
    imbalance,
)

#: Queries and keys: equal and not, whole tiles and odd ones, more of either, one of either.
LENGTHS = [(1, 1), (64, 64), (200, 200), (384, 384), (130, 389), (389, 130), (1, 300), (300, 1), (256, 192), (127, 129)]
BLOCKS = sorted({(config.block_n, config.groups) for configs in HOPPER_ATTENTION.values() for config in configs})


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("queries", "keys"), LENGTHS)
@pytest.mark.parametrize(("block_n", "groups"), BLOCKS)
def test_each_warpgroup_takes_each_block_that_its_rows_see_and_masks_those_that_some_row_does_not(
    queries: int, keys: int, block_n: int, groups: int, causal: bool
) -> None:
    allowed = np.ones((queries, keys), dtype=bool)
    if causal:
        allowed = np.arange(keys) <= np.arange(queries)[:, None] + keys - queries
    block_m = ROWS * groups
    for tile in range(-(-queries // block_m)):
        row = tile * block_m
        loaded = count_blocks.fn(row, row + block_m, queries, keys, causal, block_n)
        for first in range(row, row + block_m, ROWS):
            blocks = count_blocks.fn(first, first + ROWS, queries, keys, causal, block_n)
            whole = count_whole_blocks.fn(first, queries, keys, causal, block_n)
            rows = allowed[first : first + ROWS]
            assert 1 <= blocks <= loaded
            assert not rows[:, blocks * block_n :].any()
            if first >= queries:
                assert 1 == blocks
                continue
            assert 1 == blocks or rows[:, (blocks - 1) * block_n :].any()
            touched = [
                not rows[:, b * block_n : (b + 1) * block_n].all() or (b + 1) * block_n > keys for b in range(blocks)
            ]
            assert [block >= whole for block in range(blocks)] == touched
            if not causal or is_aligned(queries, keys, block_n):
                assert sum(touched) <= 1


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    ("programs", "row_tiles", "heads", "group"),
    [(132, 4, 1024, 183), (132, 11, 32, 7), (5, 3, 7, 2), (7, 1, 3, 3), (12, 3, 4, 4), (1, 4, 3, 1), (12, 12, 1, 1)],
)
def test_every_tile_of_every_head_is_computed_once(
    programs: int, row_tiles: int, heads: int, group: int, causal: bool
) -> None:
    found = Counter(
        find_tile.fn(turn, program, programs, row_tiles, heads, group, causal)
        for program in range(programs)
        for turn in range(count_turns.fn(program, programs, row_tiles * heads))
    )

    assert dict.fromkeys(itertools.product(range(row_tiles), range(heads)), 1) == found


@pytest.mark.parametrize(("row_tiles", "heads", "group"), [(4, 1024, 100), (11, 32, 7), (3, 7, 2), (6, 5, 5)])
def test_the_imbalance_is_that_of_the_tiles_that_programs_compute(row_tiles: int, heads: int, group: int) -> None:
    programs = 132
    loads = []
    for program in range(programs):
        turns = range(count_turns.fn(program, programs, row_tiles * heads))
        tiles = [find_tile.fn(turn, program, programs, row_tiles, heads, group, True) for turn in turns]
        ends = [(row + 1) * 192 for row, _ in tiles]
        loads.append(sum(count_blocks.fn(end - 192, end, end, end, True, 128) + 1.0 for end in ends))

    assert max(loads) * programs / sum(loads) == pytest.approx(imbalance(row_tiles, heads, programs, group, 192, 128))


@pytest.mark.parametrize("head_dim", [64, 128, 256])
@pytest.mark.parametrize("length", [512, 1024, 2048, 4096, 8192, 16384])
def test_causal_programs_have_about_equally_much_to_do(head_dim: int, length: int) -> None:
    row_tiles, heads = length // 128, 16384 // length * 2048 // head_dim
    together = heads_together(heads, 1, 4 * length * head_dim, 132)

    group = choose_group(row_tiles, heads, 132, together, 128, 128)

    # 4096, 2048 and 1024 tiles are 32, 16 and 8 turns of 132 programs, 3 % more than there are.
    assert imbalance(row_tiles, heads, 132, group, 128, 128) < 1.04


def test_the_longest_rows_of_the_heads_that_are_taken_together_come_first() -> None:
    tiles = [find_tile.fn(0, program, 24, 4, 6, 4, True) for program in range(24)]

    assert [(3, 0), (3, 1), (3, 2), (3, 3), (2, 0)] == tiles[:5]
    assert [(3, 4), (3, 5), (2, 4)] == tiles[16:19]

"""The shares: as integers for all small products, and in a plain kernel, which the interpreter runs."""

from __future__ import annotations

import itertools
from collections import defaultdict
from typing import TYPE_CHECKING

import pytest
import torch
from tests.kernels.plain_stream_k import BLOCK_M, BLOCK_N, multiply

from flopwatch.kernels.reference import matmul_reference
from flopwatch.kernels.stream_k import Balance, Schedule
from flopwatch.kernels.tiles import first_contributor, tile_position, visit, visits
from flopwatch.kernels.workspace import Workspace
from flopwatch.measure.numbers import difference
from flopwatch.poison import PoisonedAllocations

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Normal = Callable[..., torch.Tensor]

#: Tiles, steps and multiprocessors (with one or two programs) of products that were slow for their last wave.
REAL = [
    (64, 8, 132),
    (144, 24, 132),
    (72, 24, 132),
    (96, 24, 264),
    (288, 48, 132),
    (384, 48, 132),
    (12800, 320, 132),
    (133, 2, 132),
    (1, 100, 132),
    (7, 3, 1),
]


def small_products() -> Iterator[tuple[int, int, int]]:
    return itertools.product(range(1, 13), range(1, 6), range(1, 9))


def walk(schedule: Schedule, tiles: int, steps: int) -> dict[int, list[tuple[int, int, int]]]:
    """Every program's visits, in its order: tile, first step, step after the last."""
    return {
        program: [
            visit(index, program, schedule.programs, schedule.shared, steps)
            for index in range(visits(program, schedule.programs, tiles, schedule.shared, steps))
        ]
        for program in range(schedule.programs)
    }


def check(tiles: int, steps: int, slots: int, balance: Balance) -> None:
    """Check all that the kernels rely on."""
    schedule = Schedule.of(tiles, steps, slots=slots, balance=balance)
    walks = walk(schedule, tiles, steps)
    done: dict[int, list[tuple[int, int, int]]] = defaultdict(list)  # by tile
    for program, visited in walks.items():
        assert visited, "every program has work"
        for place, (tile, begin, end) in enumerate(visited):
            assert begin < end <= steps
            done[tile].append((program, begin, end))
            assert end == steps or place == 0, "a part is left before anything is waited for"
    assert sorted(done) == list(range(tiles))
    for tile, parts in done.items():
        # In the order of the programs the parts are the steps in their order: each once, and the last program's last.
        assert [0, *(end for _, _, end in parts)] == [*(begin for _, begin, _ in parts), steps]
        owner = parts[-1][0]
        if len(parts) > 1:
            first = first_contributor(tile, schedule.programs, schedule.shared, steps)
            assert [program for program, *_ in parts] == list(range(first, owner + 1))
    shares = [sum(end - begin for tile, begin, end in visited if tile < schedule.shared) for visited in walks.values()]
    assert max(shares) - min(shares) <= 1
    assert schedule.programs <= max(slots, 1)


@pytest.mark.parametrize("balance", Balance)
def test_every_step_of_every_tile_is_done_once_and_depends_on_lower_programs_only(balance: Balance) -> None:
    for tiles, steps, slots in small_products():
        check(tiles, steps, slots, balance)


@pytest.mark.parametrize("balance", Balance)
@pytest.mark.parametrize(("tiles", "steps", "slots"), REAL)
def test_large_products_are_dealt_out_alike(tiles: int, steps: int, slots: int, balance: Balance) -> None:
    check(tiles, steps, slots, balance)


def test_the_check_notices_a_step_that_is_done_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    original = visit

    def overlapping(*arguments: int) -> tuple[int, int, int]:
        tile, begin, end = original(*arguments)
        return tile, max(begin - 1, 0), end

    monkeypatch.setitem(globals(), "visit", overlapping)

    with pytest.raises(AssertionError):
        check(5, 4, 3, Balance.WAVE)


def test_with_a_wave_shared_no_tile_has_more_than_two_programs() -> None:
    for tiles, steps, slots in small_products():
        schedule = Schedule.of(tiles, steps, slots=slots, balance=Balance.WAVE)
        if tiles >= slots:
            workers = [tile for visited in walk(schedule, tiles, steps).values() for tile, *_ in visited]
            assert max(workers.count(tile) for tile in range(tiles)) <= 2


def test_split_k_gives_every_tile_as_many_programs() -> None:
    schedule = Schedule.of(32, 16, slots=132, balance=Balance.SPLIT)

    workers = [tile for visited in walk(schedule, 32, 16).values() for tile, *_ in visited]

    assert [workers.count(tile) for tile in range(32)] == [4] * 32


@pytest.mark.parametrize(("tiles_m", "tiles_n", "group"), [(1, 1, 8), (7, 3, 2), (16, 5, 8), (3, 9, 4)])
def test_tiles_are_numbered_once_each(tiles_m: int, tiles_n: int, group: int) -> None:
    positions = [tile_position(tile, tiles_m, tiles_n, group) for tile in range(tiles_m * tiles_n)]

    assert sorted(positions) == list(itertools.product(range(tiles_m), range(tiles_n)))


def test_more_steps_than_32_bits_hold_are_refused() -> None:
    with pytest.raises(ValueError, match="too many for 1000 programs"):
        Schedule.of(999, 10**7, slots=1000, balance=Balance.REST)


@pytest.mark.parametrize("balance", Balance)
@pytest.mark.parametrize("processors", [1, 7, 132])
def test_a_product_in_equal_shares_is_right(normal: Normal, balance: Balance, processors: int) -> None:
    a, b = normal(53, 70), normal(70, 90)

    with PoisonedAllocations():
        c = multiply(a, b, processors=processors, balance=balance)

    assert (difference(c, matmul_reference(a, b)).max_diff_eps or 9.0) <= 1.0


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_whole_tiles_are_right_too(normal: Normal, dtype: torch.dtype) -> None:
    a, b = normal(32, 64, dtype=dtype), normal(64, 96, dtype=dtype)

    c = multiply(a, b, processors=5, balance=Balance.WAVE)

    assert c.dtype == dtype
    assert (difference(c, matmul_reference(a, b)).max_diff_eps or 9.0) <= 1.0


def test_a_workspace_is_as_it_was_after_each_launch_and_the_bits_are_the_same(normal: Normal) -> None:
    a, b = normal(24, 60), normal(60, 40)
    schedule = Schedule.of(2 * 2, 4, slots=132, balance=Balance.WAVE)
    workspace = Workspace.of(schedule, BLOCK_M * BLOCK_N, device=a.device)
    workspace.parts.fill_(float("nan"))

    results = [multiply(a, b, processors=132, balance=Balance.WAVE, workspace=workspace) for _ in range(3)]

    assert workspace.flags.count_nonzero() == 0
    assert all(torch.equal(results[0], result) for result in results)


def test_a_workspace_that_is_too_small_is_refused(normal: Normal) -> None:
    a, b = normal(40, 100), normal(100, 70)
    workspace = Workspace.of(Schedule(programs=2, shared=2), BLOCK_M * BLOCK_N, device=a.device)

    with pytest.raises(ValueError, match="workspace is too small"):
        multiply(a, b, processors=132, balance=Balance.WAVE, workspace=workspace)

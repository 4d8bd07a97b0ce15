from __future__ import annotations

import math
from dataclasses import replace

import pytest

from flopwatch.kernels.configs import MATMUL_AUTOTUNE, MatmulConfig
from flopwatch.kernels.prediction import HOPPER, TOP_K, Rates, matmul_us
from flopwatch.static.devices import DEVICES

H200 = DEVICES["h200"]
TILE = MatmulConfig(block_m=128, block_n=128, block_k=64, num_warps=4, num_stages=4)


def predicted(
    M: int,
    N: int,
    K: int,
    config: MatmulConfig = TILE,
    *,
    sms: int = H200.sms,
    rates: Rates = HOPPER,
) -> float:
    return matmul_us(M, N, K, config, sms=sms, shared_bytes=H200.shared_bytes_per_sm, rates=rates)


def waves(programs: int, config: MatmulConfig = TILE) -> float:
    """Return how long one row of tiles takes where memory is no matter, in units of one tile's time."""
    rates = replace(HOPPER, memory_bytes=math.inf, launch_us=0.0)
    one, all_of_them = (predicted(128, 128 * count, 4096, config, rates=rates) for count in (1, programs))
    return all_of_them / one


def test_one_tile_more_than_the_multiprocessors_hold_takes_another_wave() -> None:
    assert [waves(programs) for programs in (132, 133, 264, 265)] == pytest.approx([1, 2, 2, 3])


def test_what_a_multiprocessor_does_not_hold_waits() -> None:
    two_at_once = replace(TILE, num_warps=8, num_stages=3)
    assert waves(264, two_at_once) < waves(264)
    assert waves(264, replace(two_at_once, num_stages=6)) == pytest.approx(2)
    assert waves(264, replace(two_at_once, num_stages=2, block_m=256)) == pytest.approx(2)


def test_half_the_multiprocessors_take_twice_as_long() -> None:
    slow, fast = predicted(8192, 8192, 8192, sms=66), predicted(8192, 8192, 8192)
    assert slow == pytest.approx(2 * fast, rel=0.05)


def test_loads_that_are_not_in_flight_are_waited_for() -> None:
    times = [predicted(128, 128, 8192, replace(TILE, num_stages=stages)) for stages in (1, 2, 4)]
    assert times[0] == times[1] > times[2]


def test_nothing_is_faster_than_its_memory() -> None:
    for config in MATMUL_AUTOTUNE:
        moved = 2 * (16 * 4096 + 4096 * 14336 + 16 * 14336)
        assert predicted(16, 14336, 4096, config) > moved / HOPPER.memory_bytes * 1e6


def test_few_rows_ask_for_a_low_tile_and_many_for_a_large_one() -> None:
    def best(M: int, N: int, K: int) -> tuple[int, int]:
        chosen = min(MATMUL_AUTOTUNE, key=lambda config: predicted(M, N, K, config))
        return chosen.block_m, chosen.block_n

    assert best(16, 4096, 4096) == (16, 64)
    assert best(8192, 8192, 8192) == (128, 256)


def test_the_list_is_longer_than_what_is_timed_of_it() -> None:
    assert len(MATMUL_AUTOTUNE) > TOP_K

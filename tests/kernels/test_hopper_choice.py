"""What a rule chooses for Hopper."""

from __future__ import annotations

from dataclasses import replace

import pytest

from flopwatch.kernels import hopper_choice
from flopwatch.kernels.hopper_attention import HOPPER_ATTENTION
from flopwatch.kernels.hopper_choice import attention_config, predicted_cycles, product_config
from flopwatch.kernels.hopper_matmul import CONFIGS, TILES
from flopwatch.kernels.known import TABLES
from flopwatch.kernels.stream_k import Balance


def attention(
    length: int, *, head_dim: int = 128, causal: bool = True, keys: int | None = None, heads: int = 264
) -> str:
    key = f"1, {heads}, 1, {length}, {keys or length}, {head_dim}, {causal}, bfloat16, float16"
    return attention_config(key, TABLES, processors=132)


@pytest.mark.parametrize("processors", [108, 114, 132])
def test_large_products_of_any_size_have_a_configuration_of_the_list(processors: int) -> None:
    for side in range(1544, 20480, 520):
        assert str(product_config(side, side + 8, side, processors=processors)) in CONFIGS


def test_small_products_and_those_of_few_rows_have_none() -> None:
    assert product_config(1016, 1024, 1024, processors=132) is None
    assert product_config(64, 16384, 16384, processors=132) is None
    assert product_config(100, 4096, 4096, processors=132) is None  # one row of tiles, for half of the GPU


def test_tiles_of_less_than_a_wave_are_not_shared() -> None:
    config = product_config(128, 8192, 8192, processors=132)

    assert config is not None
    assert config.balance is Balance.WHOLE


def test_two_programs_on_a_multiprocessor_are_predicted_to_share_it() -> None:
    one = replace(TILES[5], balance=Balance.WHOLE)
    cycles = [
        predicted_cycles(config, 8192, 8192, 1024, processors=132) for config in (one, replace(one, per_processor=2))
    ]

    assert cycles[0] == pytest.approx(cycles[1], rel=0.1)


@pytest.mark.parametrize("head_dim", [64, 128, 256])
def test_attention_takes_what_was_the_fastest_at_the_nearest_lengths(head_dim: int) -> None:
    names = {config.name for config in HOPPER_ATTENTION[head_dim]}

    assert {attention(length, head_dim=head_dim) for length in range(1024, 32768, 300)} <= names
    assert attention(4000, head_dim=head_dim) == attention(4096, head_dim=head_dim)


def test_attention_far_from_all_that_was_raced_takes_the_plain_kernel() -> None:
    assert attention(255) == ""
    assert attention(32769) == ""
    assert attention(1, keys=4096) == ""
    assert attention(4096, head_dim=96) == ""
    assert attention(4096, keys=8193) in {config.name for config in HOPPER_ATTENTION[128]}


def test_attention_takes_the_plain_kernel_near_where_that_won() -> None:
    assert attention(2000, head_dim=32) == ""


def test_attention_takes_the_plain_kernel_where_much_of_the_gpu_would_wait_for_the_last_tiles() -> None:
    assert attention(2048, head_dim=64, heads=8) == "128x128 s2 q2 pp"  # 128 tiles
    assert attention(2048, head_dim=64, heads=6) == ""  # 96 of 128 rows, 66 of 192


def test_attention_takes_the_tiles_of_lengths_not_quite_as_near_where_they_fill_the_gpu() -> None:
    assert attention(2048, head_dim=64, heads=12) == "192x128 s2 q2 pp"  # 132 tiles, where 128 rows make 192
    assert attention(2048, head_dim=64, heads=13) == ""  # 143, 208


def test_what_is_equally_near_is_chosen_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    names = sorted(config.name for config in HOPPER_ATTENTION[64])[:2]
    raced = [
        hopper_choice._Raced(config=name, speed=2.0, key=["1", "1", "1", str(length), str(length), "64", "True"])
        for length, name in zip((1024, 4096), reversed(names), strict=True)
    ]
    monkeypatch.setattr(hopper_choice, "_raced", lambda _folder: tuple(raced))

    assert attention_config("1, 132, 1, 2048, 2048, 64, True, float16", TABLES, processors=132) == names[0]


def test_products_of_any_depth_have_a_configuration() -> None:
    assert product_config(1024, 1024, 2**20, processors=132) is not None
    assert product_config(2048, 2048, 2**21, processors=132) is not None

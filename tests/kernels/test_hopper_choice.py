"""What a rule chooses for Hopper."""

from __future__ import annotations

from dataclasses import replace

import pytest

from flopwatch.kernels import hopper_choice
from flopwatch.kernels.hopper_attention import HOPPER_ATTENTION
from flopwatch.kernels.hopper_choice import attention_config, predicted_cycles, product_config
from flopwatch.kernels.hopper_matmul import CONFIGS, TILES, HopperConfig
from flopwatch.kernels.hopper_short import SHORT, SHORT_TILES, ShortConfig
from flopwatch.kernels.known import TABLES
from flopwatch.kernels.stream_k import Balance
from flopwatch.kernels.thin_matmul import THIN, ThinConfig
from flopwatch.kernels.wave_choice import fits_at_once, wave_cycles

GPU = "NVIDIA H200"


def attention(
    length: int, *, head_dim: int = 128, causal: bool = True, keys: int | None = None, heads: int = 264
) -> str:
    key = f"1, {heads}, 1, {length}, {keys or length}, {head_dim}, {causal}, bfloat16, float16"
    return attention_config(key, TABLES, gpu=GPU, processors=132)


@pytest.mark.parametrize("processors", [108, 114, 132])
def test_large_products_of_any_size_have_a_configuration_of_the_list(processors: int) -> None:
    for side in range(2584, 20480, 520):
        assert str(product_config(side, side + 8, side, processors=processors)) in CONFIGS


@pytest.mark.parametrize("processors", [108, 114, 132])
@pytest.mark.parametrize("by_columns", [False, True])
def test_products_of_one_wave_have_a_short_configuration_that_comes_early(processors: int, by_columns: bool) -> None:
    for side in range(256, 1032, 4):
        config = product_config(side, side, side, processors=processors, by_columns=by_columns)

        assert isinstance(config, ShortConfig), side
        assert str(config) in SHORT
        assert config.dependent
        assert side % config.row_step == 0


def test_how_b_lies_decides_what_its_loads_cost() -> None:
    """Columns of B begin with lines here, its rows do not: by columns a tile of many columns costs no more."""
    by_rows, by_columns = (
        product_config(512, 1000, 1024, processors=132, by_columns=by_columns) for by_columns in (False, True)
    )

    assert isinstance(by_rows, ShortConfig)
    assert isinstance(by_columns, ShortConfig)
    assert by_rows != by_columns
    assert wave_cycles(by_rows, 512, 1000, 1024, processors=132) > wave_cycles(
        by_rows, 512, 1000, 1024, processors=132, by_columns=True
    )


def test_rows_are_eight_apart_where_they_begin_elsewhere_than_lines_and_fill_their_tiles() -> None:
    def step(m: int, n: int, k: int) -> int:
        config = product_config(m, n, k, processors=132)
        assert isinstance(config, ShortConfig)
        return config.row_step

    assert step(1000, 1000, 1000) == step(920, 920, 920) == 8
    assert step(1004, 1000, 1000) == 1  # no multiple of eight
    assert step(880, 1000, 1000) == 8  # 110 of 128 rows
    assert step(864, 1000, 1000) == 1  # 108
    assert step(1024, 1024, 1024) == 1
    apart, gaps = (product_config(1000, 1000, 1000, processors=132, packed=packed) for packed in (True, False))
    assert isinstance(apart, ShortConfig)
    assert isinstance(gaps, ShortConfig)
    assert (apart.row_step, gaps.row_step) == (8, 1)


def test_a_step_that_begins_before_the_first_element_is_one_more() -> None:
    (apart,) = (tile for tile in SHORT_TILES if tile.row_step > 1)
    cycles = [wave_cycles(apart, 1024, 1024, k, processors=132) for k in (1008, 1016, 1024)]

    assert cycles[0] == cycles[1] > cycles[2]


def test_the_persistent_kernel_is_taken_where_its_tiles_fill_a_wave_that_short_ones_do_not() -> None:
    for shape in ((1728, 1728, 1728), (768, 3072, 768), (384, 7168, 2048), (1344, 2048, 1024)):
        config = product_config(*shape, processors=132)
        assert isinstance(config, HopperConfig), shape
        assert (config.block_m, config.block_n, config.dependent) == (192, 128, True), shape
    for shape in ((1792, 1792, 1792), (1408, 1408, 1408), (512, 4096, 4096)):  # nearly as fast is not enough
        assert isinstance(product_config(*shape, processors=132), ShortConfig), shape


def test_two_tiles_a_multiprocessor_leave_few_places_empty() -> None:
    (two,) = (tile for tile in SHORT_TILES if str(tile) == "short 128x128x64 s3 w4 x2 tma")

    fits = [fits_at_once(two, 128, 128 * tiles, processors=132) for tiles in (1, 132, 133, 158, 159, 264, 265)]

    assert fits == [True, True, False, False, True, True, False]


def test_three_tiles_a_multiprocessor_are_too_many() -> None:
    (three,) = (tile for tile in SHORT_TILES if tile.per_processor == 3)

    fits = [fits_at_once(three, 64, 128 * tiles, processors=132) for tiles in (264, 265, 396)]

    assert fits == [True, False, False]


@pytest.mark.parametrize("config", [*SHORT_TILES, *TILES], ids=str)
def test_tiles_cover_a_product_and_no_fewer_would(config: ShortConfig | HopperConfig) -> None:
    step = config.row_step if isinstance(config, ShortConfig) else 1
    for m, n in ((1000, 1000), (1024, 1024), (8, 8), (2056, 264)):
        high, wide = config.tiles(m, n)

        assert high % step == 0
        assert (high // step - 1) * config.block_m < m / step <= high // step * config.block_m
        assert (wide - 1) * config.block_n < n <= wide * config.block_n


def test_few_rows_share_the_depth_among_programs_of_one_wave() -> None:
    def splits(m: int, n: int, k: int) -> int:
        config = product_config(m, n, k, processors=132)
        assert isinstance(config, ThinConfig)
        assert str(config) in THIN
        return config.splits

    assert splits(1, 2048, 2048) == splits(64, 1024, 8192) == 4
    assert splits(32, 4096, 4096) == 2
    assert splits(64, 2048, 8192) == 4
    assert splits(64, 2112, 8448) == 4  # 33 tiles by four
    for shape in ((33, 4096, 4096), (64, 2048, 8128), (64, 2176, 8704)):  # too shallow, likewise, and 34 tiles by four
        assert isinstance(product_config(*shape, processors=132), ShortConfig), shape


def test_the_least_products_and_few_rows_of_many_columns_have_none() -> None:
    """One less, and what is just enough."""
    for shape, has_one in (
        ((255, 256, 256), False),
        ((256, 256, 256), True),
        ((1, 2047, 2048), False),
        ((1, 2048, 2048), True),
        ((16, 4288, 4096), False),  # 67 tiles by two
        ((16, 4224, 4096), True),
        ((64, 8512, 8192), False),  # 133 of the narrowest tiles
        ((64, 8448, 8192), True),
        ((127, 8512, 2048), False),
        ((128, 8512, 2048), True),
    ):
        assert (product_config(*shape, processors=132) is not None) is has_one, shape


def test_the_largest_products_are_left_to_the_persistent_kernel() -> None:
    assert isinstance(product_config(2048, 2048, 4095, processors=132), ShortConfig)
    assert isinstance(product_config(2048, 2048, 4096, processors=132), HopperConfig)


def test_tiles_of_less_than_a_wave_are_not_shared() -> None:
    config = product_config(100, 16384, 4096, processors=132)

    assert isinstance(config, HopperConfig)
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
        hopper_choice._Raced(
            config=name, speed=2.0, key=["1", "1", "1", str(length), str(length), "64", "True"], gpu=GPU
        )
        for length, name in zip((1024, 4096), reversed(names), strict=True)
    ]
    monkeypatch.setattr(hopper_choice, "_raced", lambda _folder: tuple(raced))

    assert attention_config("1, 132, 1, 2048, 2048, 64, True, float16", TABLES, gpu=GPU, processors=132) == names[0]


def test_of_what_is_equally_near_that_of_the_same_gpu_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    names = sorted(config.name for config in HOPPER_ATTENTION[64])[:2]
    raced = [
        hopper_choice._Raced(config=name, speed=2.0, key=["1", "1", "1", "2048", "2048", "64", "True"], gpu=gpu)
        for gpu, name in zip((GPU, "another"), reversed(names), strict=True)
    ]
    monkeypatch.setattr(hopper_choice, "_raced", lambda _folder: tuple(raced))

    chosen = [
        attention_config("1, 264, 1, 2048, 2048, 64, True, float16", TABLES, gpu=gpu, processors=132)
        for gpu in (GPU, "another")
    ]

    assert chosen == names[::-1]


def test_products_of_any_depth_have_a_configuration() -> None:
    assert product_config(1024, 1024, 2**20, processors=132) is not None
    assert product_config(2048, 2048, 2**21, processors=132) is not None

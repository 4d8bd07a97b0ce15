"""What a rule chooses for Hopper."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from flopwatch.kernels import hopper_choice
from flopwatch.kernels.hopper_attention import HOPPER_ATTENTION
from flopwatch.kernels.hopper_choice import (
    attention_config,
    fp8_product_config,
    lengths_config,
    predicted_cycles,
    product_config,
)
from flopwatch.kernels.hopper_fp8 import FP8_CONFIGS
from flopwatch.kernels.hopper_matmul import CONFIGS, TILES, HopperConfig
from flopwatch.kernels.hopper_short import ALL_TILES, SHORT, SHORT_TILES, ShortConfig
from flopwatch.kernels.known import TABLES
from flopwatch.kernels.stream_k import Balance
from flopwatch.kernels.thin_matmul import THIN, ThinConfig
from flopwatch.kernels.wave_choice import WAVE_RATES, _lines, _multiplied, fills_rounds, wave_cycles

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


def test_large_products_of_copies_take_the_short_kernel_where_the_persistent_one_promises_little_more() -> None:
    def chosen(m: int, n: int, k: int, *, in_lines: bool) -> type:
        return type(product_config(m, n, k, processors=132, in_lines=in_lines))

    assert chosen(300, 16385, 16384, in_lines=True) is ShortConfig
    assert chosen(300, 16385, 16384, in_lines=False) is HopperConfig, "not of what is no copy"
    assert chosen(2047, 2049, 8191, in_lines=True) is HopperConfig
    assert chosen(1025, 4097, 8191, in_lines=True) is ShortConfig, "1.27 of the persistent kernel's time, predicted"
    assert chosen(4095, 1025, 8191, in_lines=True) is HopperConfig, "1.35"
    assert product_config(304, 2049, 32769, processors=132) is None
    assert chosen(304, 2049, 32769, in_lines=True) is ShortConfig, "the persistent one would be idle too much"


def test_columns_that_are_no_multiple_of_a_line_cost_more_where_b_lies_by_rows() -> None:
    """Tiles of 144 columns begin within lines, tiles of 144 rows do not; by columns all rows begin with one."""
    high, wide = (ShortConfig(block_m=128, block_n=128, more=16, stages=4, turned=turned) for turned in (True, False))

    def cycles(config: ShortConfig, side: int, *, by_columns: bool) -> float:
        return wave_cycles(config, side, side, side, processors=132, by_columns=by_columns)

    assert cycles(high, 1536, by_columns=False) < cycles(wide, 1536, by_columns=False)
    assert cycles(high, 1536, by_columns=True) == cycles(wide, 1536, by_columns=True)
    assert cycles(high, 1536, by_columns=False) == cycles(high, 1536, by_columns=True)
    assert cycles(high, 1528, by_columns=False) > 1.1 * cycles(high, 1536, by_columns=False)


@pytest.mark.parametrize("by_columns", [False, True])
def test_rows_that_begin_within_a_sector_cost_more_than_those_that_begin_with_one(by_columns: bool) -> None:
    """Of 1000 elements and 1016, of 1008, and of 1024, which begin with lines."""
    tile = ShortConfig(block_m=64, block_n=64, stages=6)
    sector, whole, line = (
        wave_cycles(tile, 1024, n, k, processors=264, by_columns=by_columns)
        for n, k in ((1016, 1000), (1008, 1008), (1024, 1024))
    )

    assert sector > 1.15 * whole
    assert whole > 1.05 * line


def test_rows_that_begin_within_a_sector_are_eight_apart_before_others() -> None:
    """Those of 1008 elements begin with a sector."""
    assert [step_of(side, side, side) for side in (1000, 1016)] == [8, 8]
    (near, apart) = (ShortConfig(block_m=128, block_n=64, stages=5, row_step=step) for step in (1, 8))
    gains = [
        wave_cycles(near, side, side, side, processors=132) / wave_cycles(apart, side, side, side, processors=132)
        for side in (1000, 1008)
    ]

    assert gains[0] > gains[1] > 1


def step_of(m: int, n: int, k: int) -> int:
    config = product_config(m, n, k, processors=132)
    assert isinstance(config, ShortConfig)
    return config.row_step


def test_rows_are_eight_apart_where_these_fill_their_tiles() -> None:
    assert step_of(1000, 1000, 1000) == step_of(920, 920, 920) == 8
    assert step_of(1004, 1000, 1000) == 1  # no multiple of eight
    assert step_of(872, 520, 840) == 8  # 109 of 128 rows
    assert step_of(864, 520, 840) == 1  # 108
    assert step_of(1152, 1152, 1152) == 1
    apart, gaps = (product_config(1000, 1000, 1000, processors=132, packed=packed) for packed in (True, False))
    assert isinstance(apart, ShortConfig)
    assert isinstance(gaps, ShortConfig)
    assert (apart.row_step, gaps.row_step) == (8, 1)


@pytest.mark.parametrize("k", [960, 968, 976, 992, 1000, 1008, 1016, 1024])
def test_steps_of_rows_that_are_apart_are_as_many_as_the_kernel_makes(k: int) -> None:
    """It begins each of the eight with a line, so many elements before its first one."""
    (apart,) = (tile for tile in SHORT_TILES if tile.row_step > 1)
    steps = max(-(-(k + remainder * k % 64) // 64) for remainder in range(8))
    nothing = dict.fromkeys(("launch", "alone", "round", "store", "hidden", "crowded"), 0.0)
    rates = replace(WAVE_RATES, **nothing, latency=1e-9, memory=1e9)

    cycles, one = (wave_cycles(apart, 1024, 1024, depth, processors=132, rates=rates) for depth in (k, 64))

    assert cycles == pytest.approx(steps * one)


def test_rows_apart_are_taken_where_steps_are_no_more_than_of_others() -> None:
    assert step_of(976, 976, 976) == 8


def test_a_step_has_as_many_lines_and_cycles_as_its_boxes_and_instructions() -> None:
    high, wide = (ShortConfig(block_m=128, block_n=128, more=16, stages=4, turned=turned) for turned in (True, False))
    rates = replace(WAVE_RATES, split=1.0, split_deep=0.5, sector=0.25)

    def lines(config: ShortConfig, n: int, k: int, *, by_columns: bool = False) -> float:
        return _lines(config, n, k, by_columns=by_columns, rates=rates)

    assert lines(high, 1536, 1536) == 144 + 64 * 2
    assert lines(wide, 1536, 1536) == 128 + 64 * (2 * 1.75 + 1)
    assert lines(wide, 1536, 1536, by_columns=True) == lines(high, 1536, 1536, by_columns=True) == 128 + 144
    assert lines(high, 1536, 1528) == 144 * (1 + 0.5 * 7 / 8 + 0.25) + 64 * 2
    assert lines(high, 1528, 1536) == 144 + 64 * 2 * (1 + 7 / 8 + 0.25)
    assert lines(high, 1536, 1520, by_columns=True) == (144 + 128) * (1 + 0.5 * 3 / 4)
    assert _multiplied(high) == _multiplied(wide) == (64 + 20) * 2 * 4
    assert _multiplied(replace(high, block_n=64)) == (64 + 20) * 4
    assert _multiplied(ShortConfig(block_m=64, block_n=32, stages=8)) == 24 * 4
    assert _multiplied(ShortConfig(block_m=64, block_n=128, warps=8, stages=9)) == 2 * 32 * 4


def test_what_takes_a_product_s_time_is_added() -> None:
    """Each rate by itself, where it counts and where it does not."""
    alone, beside = (ShortConfig(block_m=64, block_n=64, stages=6, per_processor=each) for each in (1, 2))
    more, eight = ShortConfig(block_m=64, block_n=64, more=16, stages=6), replace(alone, block_m=128, warps=8)

    def added(config: ShortConfig, rate: str, side: int = 1024) -> float:
        rates = replace(WAVE_RATES, hidden=0.0, memory=1e9)
        changed = replace(rates, **{rate: getattr(rates, rate) + 1.0})
        one, other = (wave_cycles(config, side, side, side, processors=256, rates=each) for each in (rates, changed))
        return other - one

    assert [added(config, "alone") for config in (alone, beside)] == pytest.approx([1.0, 0.0])
    assert [added(config, "more") for config in (alone, more)] == pytest.approx([0.0, 16.0])
    assert [added(config, "eight_warps") for config in (alone, eight)] == pytest.approx([0.0, 16.0])
    assert [added(config, "step") for config in (alone, beside)] == pytest.approx([16.0, 16.0])
    assert added(alone, "store") == pytest.approx(64 * 64)
    assert [added(alone, "round", side) for side in (1024, 1032)] == pytest.approx([1.0, 2.0])
    crowded = [added(config, "crowded", side) for config in (alone, beside) for side in (1024, 1008, 1016)]
    assert [each > 0 for each in crowded] == [False, False, True, False, False, False]
    assert added(replace(alone, row_step=8), "crowded", 1016) == 0.0
    assert added(alone, "beyond") == pytest.approx(0.0)
    assert added(alone, "beyond", 1016) > 0


def test_a_product_takes_at_least_what_memory_does() -> None:
    tile = ShortConfig(block_m=64, block_n=64, stages=6)
    slow = replace(WAVE_RATES, memory=1.0, hidden=0.5)
    tiles = wave_cycles(tile, 1024, 1024, 1024, processors=256, rates=replace(slow, memory=1e9, hidden=0.0))

    expected = slow.launch + 3 * 2 * 1024**2 + 0.5 * tiles
    assert wave_cycles(tile, 1024, 1024, 1024, processors=256, rates=slow) == pytest.approx(expected)


def test_tiles_are_such_as_fill_one_round_or_nearly_two() -> None:
    for shape, tile in (
        ((1536, 1536, 1536), (144, 128)),  # 132
        ((1728, 1728, 1728), (192, 128)),  # 126
        ((384, 7168, 2048), (192, 128)),  # 112
        ((2304, 2304, 2304), (192, 128)),  # 216
    ):
        config = product_config(*shape, processors=132)
        assert isinstance(config, ShortConfig), shape
        assert (config.rows, config.columns, config.dependent) == (*tile, True), shape


def test_few_rows_have_no_tile_of_more() -> None:
    config = product_config(50, 2648, 320, processors=132, by_columns=True)

    assert isinstance(config, ShortConfig)
    assert config.rows == 64


@pytest.mark.parametrize(("per_processor", "most"), [(1, 264), (2, 264), (3, 396)])
def test_more_tiles_than_multiprocessors_leave_few_places_empty(per_processor: int, most: int) -> None:
    tile = ShortConfig(block_m=64, block_n=128, stages=3, per_processor=per_processor)
    least = most * 3 // 4

    fits = [
        fills_rounds(tile, 64, 128 * tiles, processors=132) for tiles in (1, 132, 133, least - 1, least, most, most + 1)
    ]

    assert fits == [True, True, False, False, True, True, False]


@pytest.mark.parametrize("config", [*ALL_TILES, *TILES], ids=str)
def test_tiles_cover_a_product_and_no_fewer_would(config: ShortConfig | HopperConfig) -> None:
    step = config.row_step if isinstance(config, ShortConfig) else 1
    for m, n in ((1000, 1000), (1024, 1024), (8, 8), (2056, 264)):
        high, wide = config.tiles(m, n)

        assert high % step == 0
        rows, columns = sizes_of(config)
        assert (high // step - 1) * rows < m / step <= high // step * rows
        assert (wide - 1) * columns < n <= wide * columns


def sizes_of(config: ShortConfig | HopperConfig) -> tuple[int, int]:
    return (config.rows, config.columns) if isinstance(config, ShortConfig) else (config.block_m, config.block_n)


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


def test_the_least_products_and_the_fewest_rows_of_many_columns_have_none() -> None:
    """One less, and what is just enough."""
    for shape, has_one in (
        ((255, 256, 256), False),
        ((256, 256, 256), True),
        ((1, 2047, 2048), False),
        ((1, 2048, 2048), True),
        ((16, 4288, 4096), False),  # 67 tiles by two
        ((16, 4224, 4096), True),
        ((64, 8456, 8192), False),  # 132 times 64, and 8
        ((64, 8448, 8192), True),
        ((65, 8456, 8192), True),
    ):
        assert (product_config(*shape, processors=132) is not None) is has_one, shape


def test_the_largest_products_are_left_to_the_persistent_kernel() -> None:
    assert isinstance(product_config(2048, 2048, 4095, processors=132), ShortConfig)
    assert isinstance(product_config(2048, 2048, 4096, processors=132), HopperConfig)


def test_a_last_wave_is_shared_where_that_is_predicted_to_be_worth_it() -> None:
    """By 19 %, and not by 0.5, 3 and 4 %; of deep ones never."""
    for shape, balance in (
        ((2560, 2560, 2560), Balance.WAVE),
        ((4096, 4096, 4096), Balance.WHOLE),
        ((8192, 8192, 8192), Balance.WHOLE),
        ((4096, 11008, 4096), Balance.WHOLE),
        ((2560, 2560, 8192), Balance.WAVE),
        ((2560, 2560, 8256), Balance.WHOLE),
    ):
        config = product_config(*shape, processors=132)
        assert isinstance(config, HopperConfig), shape
        assert config.balance is balance, shape


def test_tiles_of_less_than_a_wave_are_not_shared() -> None:
    config = product_config(256, 8192, 8192, processors=132)

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


@pytest.mark.parametrize("gpu", [GPU, "NVIDIA H100 80GB HBM3", "another"])
def test_what_was_raced_before_the_kernel_had_fewer_instructions_is_not_held_against_it(gpu: str) -> None:
    long, short = (
        f"{batch}, 64, 64, {length}, {length}, 32, False, float16, float16" for batch, length in ((4, 4096), (16, 1024))
    )

    assert attention_config(long, TABLES, gpu=gpu, processors=132) == "192x128 s3 q2"
    assert attention_config(short, TABLES, gpu=gpu, processors=132) == ""


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


@pytest.mark.parametrize(("head_dim", "causal"), [*itertools.product((32, 64, 128, 256), (False, True))])
def test_lengths_take_what_was_raced_of_the_nearest_positions(head_dim: int, causal: bool) -> None:
    heads = 2048 // head_dim
    names = {"", *(config.name for config in HOPPER_ATTENTION[head_dim])}
    raced = {
        positions: lengths_config((32768 // positions, heads, positions, head_dim), causal=causal)
        for positions in (512, 2048, 8192)
    }

    assert names >= set(raced.values())
    assert raced[512]
    for positions, nearest in ((513, 512), (1023, 512), (1024, 2048), (4095, 2048), (4096, 8192), (65536, 8192)):
        assert lengths_config((64, heads, positions, head_dim), causal=causal) == raced[nearest]
    assert not lengths_config((64, heads, 511, head_dim), causal=causal)
    assert lengths_config((1, heads, 2048, head_dim), causal=causal) == raced[2048]
    assert lengths_config((2, heads, 1024, head_dim), causal=causal) == raced[2048]
    assert not lengths_config((1, heads, 2047, head_dim), causal=causal)
    assert lengths_config((8, heads, 512, head_dim), causal=causal) == raced[512]
    assert lengths_config((7, heads, 512, head_dim), causal=causal) == (raced[512] if head_dim == 256 else "")


@pytest.mark.parametrize(
    ("shape", "early"),
    [((1024, 1024, 1024), True), ((4096, 4096, 4096), True), ((6144, 6144, 6144), False), ((128, 8192, 8192), False)],
)
def test_products_of_float8_come_early_where_that_was_faster(shape: tuple[int, int, int], early: bool) -> None:
    config = fp8_product_config(*shape, processors=132, promotes=False)

    assert config is not None
    assert config.dependent == early


def test_products_of_float8_with_few_multiplications_take_the_plain_kernel() -> None:
    assert fp8_product_config(1024, 2048, 384, processors=132, promotes=False) is None
    assert fp8_product_config(96, 4096, 4096, processors=132, promotes=False) is None, "much of the GPU would be idle"
    assert fp8_product_config(16, 1024, 4096, processors=132, promotes=False) is None
    assert fp8_product_config(16, 16384, 4096, processors=132, promotes=False) is None


def test_products_of_float8_whose_sums_are_promoted_have_tiles_with_registers_for_that() -> None:
    for m, n, k in itertools.product((65, 128, 700, 4096), (512, 4096, 8192), (1024, 4096, 16384)):
        for promotes in (False, True):
            config = fp8_product_config(m, n, k, processors=132, promotes=promotes)
            assert config is None or str(config) in FP8_CONFIGS[promotes]


def test_lengths_of_other_head_dims_take_the_plain_kernel() -> None:
    assert not any(lengths_config((64, 32, 2048, head_dim), causal=True) for head_dim in (16, 96, 192))


def test_rows_of_copies_are_estimated_as_those_that_begin_with_lines() -> None:
    tile = ShortConfig(block_m=128, block_n=128, stages=5)

    def cycles(side: int, *, in_lines: bool, by_columns: bool) -> float:
        return wave_cycles(tile, 1024, side, side, processors=132, in_lines=in_lines, by_columns=by_columns)

    for by_columns in (False, True):
        assert cycles(1024, in_lines=True, by_columns=by_columns) == cycles(1024, in_lines=False, by_columns=by_columns)
        odd, copied = (cycles(1023, in_lines=in_lines, by_columns=by_columns) for in_lines in (False, True))
        assert odd > 1.1 * copied

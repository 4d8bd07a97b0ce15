from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from evidence.l2_swizzle import PREDICTED, ROOT, Prediction
from evidence.tile_orders import Tiles, grouped, paneled, wave_bytes

from flopwatch.kernels.configs import MATMUL_AUTOTUNE
from flopwatch.model import from_json

SQUARE = Tiles(size=12, block_m=2, block_n=3)


def rasterization_2d_row(block: int, across: int, down: int, panel_width: int) -> tuple[int, int]:
    """Transcribe TileLang 0.1.15's function of that name: the column and the row of a block."""
    panel_size = panel_width * across
    panel_offset, panel = block % panel_size, block // panel_size
    panels = -(-(across * down) // panel_size)
    stride = panel_width if panel + 1 < panels else (across * down - panel * panel_size) // across
    column = across - 1 - panel_offset // stride if panel & 1 else panel_offset // stride
    return column, panel_offset % stride + panel * panel_width


@pytest.mark.parametrize("panel", [1, 2, 4, 10])
def test_panels_are_those_of_tilelang(panel: int) -> None:
    tiles = Tiles(size=70, block_m=10, block_n=14)
    rows, columns = paneled(tiles, panel)
    theirs = [rasterization_2d_row(block, tiles.columns, tiles.rows, panel) for block in range(35)]
    assert list(zip(columns.tolist(), rows.tolist(), strict=True)) == theirs


@pytest.mark.parametrize("group", [1, 2, 4, 5, 20])
@pytest.mark.parametrize("order", [grouped, paneled])
def test_every_tile_is_computed_once(order: object, group: int) -> None:
    rows, columns = order(SQUARE, group)  # type: ignore[operator]
    assert len({*zip(rows.tolist(), columns.tolist(), strict=True)}) == SQUARE.rows * SQUARE.columns == len(rows)


def test_row_by_row_is_groups_of_one() -> None:
    rows, columns = grouped(SQUARE, 1)
    assert (rows * SQUARE.columns + columns).tolist() == list(range(24))


def test_a_wave_of_everything_reads_both_matrices_once() -> None:
    assert wave_bytes(SQUARE, grouped(SQUARE, 4), 24) == [2 * 12 * 12 * 2]


def test_the_traffic_model_says_the_same_of_the_first_wave() -> None:
    config = MATMUL_AUTOTUNE[0]
    tiles = Tiles(size=4096, block_m=config.block_m, block_n=config.block_n)
    orders = {"none": 1, "4": 4, "10": 10}
    expected = [[132, wave_bytes(tiles, grouped(tiles, group), 132)[0]] for group in orders.values()]
    assert expected == compiled("[model(study()().run, 4096, order, 'h200') for order in argv]", *orders)


def compiled(expression: str, *arguments: str) -> object:
    """Evaluate something of `evidence.l2_swizzle` in a process whose kernels are compiled, not interpreted."""
    code = f"import json, sys\nfrom evidence.l2_swizzle import *\nargv = sys.argv[1:]\nprint(json.dumps({expression}))"
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, "-c", code, *arguments]
    return json.loads(subprocess.check_output(command, text=True, cwd=ROOT, env=environment))


def test_what_is_kept_agreed_with_the_traffic_model_at_every_size() -> None:
    kept = from_json(PREDICTED.read_bytes(), Prediction)
    own = [each for each in kept.predicted if each.line.startswith("flopwatch")]
    assert kept.disagreeing == ()
    assert len(own) == 42
    assert all(each.modelled_bytes == each.first_wave_bytes for each in own)


def test_what_is_kept_is_what_is_computed_now() -> None:
    kept = from_json(PREDICTED.read_bytes(), Prediction)
    for each in kept.predicted:
        provider, _, order = each.line.partition(" ")
        number, size = 1 if order == "none" else int(order), int(each.size)
        config = MATMUL_AUTOTUNE[0]
        tiles = Tiles(size=size, block_m=config.block_m, block_n=config.block_n)
        if provider == "tilelang":
            tiles = Tiles(size=size, block_m=128, block_n=128)
        walked = paneled(tiles, number) if provider == "tilelang" and order != "none" else grouped(tiles, number)
        waves = wave_bytes(tiles, walked, kept.programs[provider])
        assert (each.waves, each.all_waves_bytes) == (len(waves), sum(waves))

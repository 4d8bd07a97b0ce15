"""What is timed of tiles for short products, and what is judged and fitted, by what was recorded on an H100."""

from __future__ import annotations

import math
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import torch
from evidence.candidates import Findings
from evidence.matmul_candidates import BY_COLUMNS, HELD_OUT, LAYERS, is_by_columns
from evidence.peer_shapes import MATMUL
from evidence.race import Entry
from evidence.short_tiles import (
    ALSO_BY_COLUMNS,
    BY_ROWS,
    LEAST_ROWS,
    SLOWEST,
    TilesExperiment,
    estimated,
    fitted,
    judged,
    run,
    tile_times,
    timed,
)

from flopwatch.kernels.hopper_choice import product_config
from flopwatch.kernels.hopper_matmul import HopperConfig
from flopwatch.kernels.hopper_short import SHORT_TILES, ShortConfig
from flopwatch.kernels.thin_matmul import ThinConfig
from flopwatch.kernels.wave_choice import WAVE_RATES, tiles_for, wave_cycles
from flopwatch.model import from_json

RECORDED = Path(__file__).parents[2] / "evidence" / "h100" / "short-tiles-2026-11-25.json"
EXPERIMENT = TilesExperiment()


@pytest.fixture(scope="module")
def recorded() -> Findings:
    return from_json(RECORDED.read_bytes(), Findings)


def test_tiles_that_may_be_fast_are_timed_beside_the_persistent_kernel_or_that_for_few_rows() -> None:
    short, few = (EXPERIMENT.candidates(shape).values() for shape in ("1000x1000x1000", "16x4096x14336"))
    cycles = {tile: wave_cycles(tile, 1000, 1000, 1000, processors=132) for tile in SHORT_TILES}

    assert {config for config in short if isinstance(config, ShortConfig)} == {
        replace(tile, dependent=True) for tile, each in cycles.items() if each <= SLOWEST * min(cycles.values())
    }
    assert sum(isinstance(config, HopperConfig) for config in short) >= 2
    assert {config.rows for config in few if isinstance(config, ShortConfig)} == {64}
    assert any(isinstance(config, ThinConfig) for config in few)
    assert {type(config) for config in EXPERIMENT.candidates("7x5120x5120").values()} == {ThinConfig}


def test_what_the_estimate_is_fitted_to_is_held_out_nowhere() -> None:
    names = [point.name for point in EXPERIMENT.points()]

    assert len(set(names)) == len(names)
    by_rows = {shape for group, shapes in HELD_OUT.items() for shape in shapes if group != BY_COLUMNS}
    assert not set(BY_ROWS) & by_rows
    assert not set(ALSO_BY_COLUMNS) & set(HELD_OUT[BY_COLUMNS])


def test_what_was_recorded_is_what_is_timed_with_the_tiles_that_are_estimated_to_be_the_first(
    recorded: Findings,
) -> None:
    """More tiles were timed then, by an estimate before this one."""
    assert [outcome.point for outcome in recorded.outcomes] == EXPERIMENT.points()
    for outcome in recorded.outcomes:
        m, n, k = map(int, str(outcome.point.values[0]).split("x"))
        if m < LEAST_ROWS:
            continue
        first = sorted(
            tiles_for(m),
            key=lambda tile: wave_cycles(tile, m, n, k, processors=132, by_columns=is_by_columns(outcome.point)),
        )[:3]
        assert set(first) <= set(tile_times(outcome)), outcome.point.name


def test_the_rule_takes_what_is_nearly_the_fastest_of_what_was_recorded(recorded: Findings) -> None:
    """Slower than the plain kernel is one whose rows begin within lines; and few are far from the fastest of all.

    Least of all from the fastest of what there was before tiles were turned, or had sides of two powers of two.
    """
    slower: dict[str, float] = {}
    lost: dict[str, float] = {}
    lost_to_former: dict[str, float] = {}
    for outcome in recorded.outcomes:
        shape, seconds = map(int, str(outcome.point.values[0]).split("x")), timed(outcome)
        config = product_config(*shape, processors=132, by_columns=is_by_columns(outcome.point))
        taken = seconds["plain" if config is None else str(config)]
        own = {name: value for name, value in seconds.items() if name != "torch"}
        former = [value for name, value in own.items() if not ("turned" in name or "x144x" in name or "x192x" in name)]
        slower[outcome.point.name] = taken / seconds["plain"]
        lost[outcome.point.name] = taken / min(own.values())
        lost_to_former[outcome.point.name] = taken / min(former)

    assert [name for name, loss in slower.items() if loss > 1.03] == ["1200x1200x1200"]
    assert sum(loss > 1.1 for loss in lost.values()) <= 16
    assert math.prod(lost.values()) ** (1 / len(lost)) < 1.035
    by_rows = {name: loss for name, loss in lost_to_former.items() if not name.endswith(BY_COLUMNS)}
    assert sum(loss > 1.1 for loss in by_rows.values()) <= 8
    assert math.prod(by_rows.values()) ** (1 / len(by_rows)) < 1.025


def test_the_judge_says_how_far_the_estimate_is_off_and_what_it_loses(recorded: Findings) -> None:
    lines = list(judged(recorded.outcomes))

    assert lines[0].startswith("2296 timings of 133 products: the estimate is off by 10.")
    assert "3.0% longer" in lines[0]
    assert lines[1] == "the rule, all, 142 products: 1.032 of torch, 1.298 of plain, 0.970 of the fastest"
    assert lines[-3].startswith("slowest: 1320x1320x1320")


def test_an_estimate_that_is_exact_is_judged_so(recorded: Findings) -> None:
    exact = [
        replace(
            outcome,
            entries=tuple(
                Entry(name=str(replace(tile, dependent=True)), peer=False, seconds=estimated(tile, outcome, WAVE_RATES))
                for tile in times
            ),
        )
        for outcome in recorded.outcomes[:8]
        for times in (tile_times(outcome),)
    ]

    assert "off by 0.0%" in next(iter(judged(exact)))


def test_a_fit_finds_rates_that_were_planted(recorded: Findings) -> None:
    """From 30 % off, in what decides most: the cache, the latency, and the launch with its one round."""
    planted = replace(WAVE_RATES, launch=2100.0, latency=900.0, cache=6000.0)
    outcomes = [
        replace(
            outcome,
            entries=tuple(
                Entry(
                    name=str(replace(tile, dependent=True)),
                    peer=False,
                    seconds=estimated(tile, outcome, planted) / 1.755e9,
                )
                for tile in times
            ),
        )
        for outcome in recorded.outcomes[:40:2]
        for times in (tile_times(outcome),)
    ]

    rates, error = fitted(outcomes, tries=600)

    assert error < 0.03
    for name in ("latency", "cache"):
        assert math.isclose(asdict(rates)[name], asdict(planted)[name], rel_tol=0.15), name
    assert math.isclose(rates.launch + rates.round, planted.launch + planted.round, rel_tol=0.15)


def test_the_command_judges_and_fits_what_was_recorded(capsys: pytest.CaptureFixture[str]) -> None:
    run(["judge", str(RECORDED)])
    run(["fit", str(RECORDED), "--tries", "3"])

    said = capsys.readouterr().out
    assert "2296 timings" in said
    assert "eight_warps" in said
    assert "error" in said


def test_the_times_of_a_size_are_shown_the_fastest_first(capsys: pytest.CaptureFixture[str]) -> None:
    run(["times", str(RECORDED), "1000x1000x1000"])

    _, first, *others = capsys.readouterr().out.splitlines()
    assert first == "1000x1000x1000: short 128x64x64 s5 w4 x1 r8 tma pdl 7.51 us, 1.00 of the fastest short tile's time"
    assert any("torch" in line for line in others)
    with pytest.raises(SystemExit, match="7x7x7: not among what was timed, such as 504x504x504"):
        run(["times", str(RECORDED), "7x7x7"])


def test_what_was_timed_is_printed_without_a_gpu(capsys: pytest.CaptureFixture[str]) -> None:
    run(["race", str(RECORDED), "--table"])

    assert "2026-11-25" in capsys.readouterr().out


def test_no_table_is_chosen_from_sizes_that_were_fitted_to() -> None:
    with pytest.raises(SystemExit, match="fitted to"):
        run(["race", "choose", str(RECORDED)])


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_without_a_gpu_nothing_is_timed() -> None:
    with pytest.raises(SystemExit, match="no GPU here"):
        run(["race", "out.json"])


def test_products_that_are_watched_are_timed_too_only_where_they_say_more() -> None:
    assert set(BY_ROWS) & {*MATMUL, *LAYERS} == {"1000x1000x1000"}

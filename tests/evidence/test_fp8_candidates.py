"""What is raced; the race itself is tested with `evidence.candidates`."""

from __future__ import annotations

import pickle
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import evidence
import pytest
from evidence.candidates import geometric_mean
from evidence.fp8_candidates import (
    _SMALL,
    CEILING_EPS,
    FEW_ROWS,
    Compilation,
    Fp8Experiment,
    candidates,
    drawn,
    multiply,
    ruled,
    told,
)
from evidence.matmul_candidates import PROCESSORS
from evidence.peer_shapes import FP8_FEW, FP8_SUMS, MATMUL_FP8, sizes

from flopwatch.kernels.hopper_choice import fp8_product_config
from flopwatch.kernels.hopper_fp8 import FP8_CONFIGS, FP8_TILES, STORED_OTHERWISE
from flopwatch.kernels.hopper_matmul import HopperConfig
from flopwatch.kernels.reference import matmul_reference
from flopwatch.kernels.stream_k import Balance
from flopwatch.kernels.thin_fp8 import MOST_FP8_ROWS, THIN_FP8, WIDE
from flopwatch.kernels.thin_matmul import MOST_ROWS, ThinConfig
from flopwatch.measure.numbers import difference
from flopwatch.model import Choice

if TYPE_CHECKING:
    from collections.abc import Callable

EXPERIMENT = Fp8Experiment()
RECORDED = Path(evidence.__file__).parent


def test_the_points_are_those_of_the_peers_and_a_few_rows_more() -> None:
    points = EXPERIMENT.points()
    by_group: dict[str, list[object]] = {}
    for point in points:
        by_group.setdefault(point.group, []).append(point.values[0])

    assert by_group.pop("tensor fast") == list(MATMUL_FP8)
    assert by_group.pop("few rows") == list(FEW_ROWS)
    assert set(by_group) == {"row fast", "tensor float32", "row float32"}
    assert all(set(shapes) == set(FP8_FEW) for shapes in by_group.values())
    assert len({point.name for point in points}) == len(points)


def test_what_is_held_out_is_in_no_race_and_has_what_the_rule_takes_as_its_candidate() -> None:
    held_out = Fp8Experiment(held_out=True)
    points = held_out.points()

    assert not {point.name for point in points} & {point.name for point in EXPERIMENT.points()}
    assert len({point.name for point in points}) == len(points)
    assert {point.values[2] for point in points} == set(FP8_SUMS)
    for point in points:
        shape, _scales, sums = map(str, point.values)
        ruled = fp8_product_config(*sizes(shape), processors=PROCESSORS, promotes=sums != "fast")
        raced = list(held_out.raced(shape, sums))
        assert raced[: ruled is not None] == ([] if ruled is None else [str(ruled)])
        others = raced[ruled is not None :]
        assert bool(others) == (sizes(shape)[0] <= MOST_FP8_ROWS)
        assert all(name.startswith("thin") and name.endswith("pdl") and name != str(ruled) for name in others)
        assert len(held_out.compilations(point)) == len(held_out.raced(shape, sums))


@pytest.mark.parametrize(
    ("recording", "plain"),
    [
        ("h100/fp8-candidates-2026-11-25.json", []),
        # More tiles of few rows than multiprocessors.
        ("h200/fp8-candidates-2026-11-24.json", ["16x14336x4096 tensor fast"]),
        ("h200/fp8-held-out-2026-11-26.json", ["96x4096x4096 tensor fast", "96x4096x4096 tensor float32"]),
    ],
)
def test_what_the_rule_takes_was_faster_than_the_plain_kernel_at_all_that_was_raced(
    recording: str, plain: list[str]
) -> None:
    """By medians of rounds; the estimate was fitted to none of these, though its least sizes were to the first two."""
    points = ruled(RECORDED / recording)
    of_plain = [each.of_plain for each in points if each.of_plain is not None]
    of_fastest = [each.of_fastest for each in points if each.of_fastest is not None]

    assert [each.point for each in points if each.of_plain is None] == plain
    assert len(of_plain) == len(of_fastest) > 20
    assert min(of_plain) > 1.02
    assert min(of_fastest) > 0.86
    assert geometric_mean(of_fastest) > 0.96


def test_what_the_rule_takes_is_told_of_each_recording_without_a_gpu() -> None:
    place = RECORDED / "h100" / "fp8-candidates-2026-11-25.json"

    done = subprocess.run(
        [sys.executable, "-m", "evidence.fp8_candidates", "ruled", str(place)],
        cwd=RECORDED.parent,
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout == f"{place}: {told(ruled(place))}\n"
    assert "of the plain kernel" in done.stdout


@pytest.mark.parametrize("sums", FP8_SUMS)
@pytest.mark.parametrize("shape", [*MATMUL_FP8, *FEW_ROWS])
def test_every_shape_has_about_a_dozen_candidates_that_a_table_may_name(shape: str, sums: str) -> None:
    configs, promotes = candidates(shape, sums), sums != "fast"

    late = [config for config in configs.values() if not config.dependent]
    assert 10 <= sum(not is_stored_otherwise(config) for config in late) <= 15
    assert set(configs) <= {*FP8_CONFIGS[promotes], *THIN_FP8[promotes]}


def is_stored_otherwise(config: HopperConfig | ThinConfig) -> bool:
    return isinstance(config, HopperConfig) and replace(config, group_m=8, balance=Balance.WHOLE) in STORED_OTHERWISE


@pytest.mark.parametrize("sums", FP8_SUMS)
@pytest.mark.parametrize("shape", MATMUL_FP8)
def test_each_tile_that_may_store_c_otherwise_is_raced_in_both_ways(shape: str, sums: str) -> None:
    configs = candidates(shape, sums).values()
    ways = [
        {
            (config.block_m, config.group_m, config.balance, config.dependent)
            for config in configs
            if isinstance(config, HopperConfig) and str(config).startswith(tiles)
        }
        for tiles in (
            ("192x128x128 s5 w3 c2/1", "128x128x128 s6 w2 c2/2"),
            ("192x128x128 s4 w3 c2/2", "128x128x128 s6 w2 c1/1"),
        )
    ]

    assert ways[0] == ways[1]
    assert bool(ways[0]) == (int(shape.partition("x")[0]) > MOST_ROWS)


@pytest.mark.parametrize("sums", FP8_SUMS)
def test_few_rows_are_raced_by_the_thin_kernel_and_by_low_tiles(sums: str) -> None:
    configs = candidates("16x4096x4096", sums)
    low = [config for config in configs.values() if isinstance(config, HopperConfig)]

    assert set(configs) - set(map(str, low)) < set(THIN_FP8[sums != "fast"])
    assert str(low[-1]) == list(configs)[-1]
    assert {config.block_m for config in low} == {64}
    assert "64x64x128 s6 w1 c1/1 g8 whole x2" in configs  # the fastest that was timed


@pytest.mark.parametrize("sums", FP8_SUMS)
def test_128_rows_are_raced_by_thin_tiles_of_their_own(sums: str) -> None:
    thin = [config for config in candidates("128x8192x8192", sums).values() if isinstance(config, ThinConfig)]
    late = [config for config in WIDE if sums == "fast" or config.block_k == 128]

    assert thin == [*late, *(replace(config, dependent=True) for config in late)]


def test_kernels_are_compiled_once_for_all_shapes_and_ways_to_share() -> None:
    jobs = {job for point in EXPERIMENT.points() for job in EXPERIMENT.compilations(point)}
    hopper = of_hopper(jobs)

    assert {config.balance for _, config in hopper} == {Balance.REST, Balance.WHOLE}
    assert len({job.shape for job, _ in hopper}) == 1
    assert len(hopper) < 2 * 2 * 3 * (len(FP8_TILES) + 4)
    assert jobs == {pickle.loads(pickle.dumps(job)) for job in jobs}  # noqa: S301 - its own


def test_what_is_compiled_shares_as_what_is_raced() -> None:
    jobs = {job for point in EXPERIMENT.points() for job in EXPERIMENT.compilations(point)}

    for job, config in of_hopper(jobs):
        shares = config.schedule(*_SMALL, processors=PROCESSORS).shared > 0
        assert shares is (config.balance is Balance.REST), job


def of_hopper(jobs: set[Callable[[], object]]) -> list[tuple[Compilation, HopperConfig]]:
    """Return the jobs of Hopper's kernel, with their configurations."""
    compilations = [job for job in jobs if isinstance(job, Compilation)]
    assert len(compilations) == len(jobs)
    return [(job, job.config) for job in compilations if isinstance(job.config, HopperConfig)]


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("16x4096x4096 row fast", "16, 4096, 4096, False, True, True, float8_e4m3fn, float8_e4m3fn, bfloat16"),
        ("1x4096x4096 tensor fast", "1, 4096, 4096, False, False, False, float8_e4m3fn, float8_e4m3fn, bfloat16"),
    ],
)
def test_a_thin_winner_is_chosen_for_the_calls_of_its_point(name: str, key: str) -> None:
    (point,) = (point for point in EXPERIMENT.points() if point.name == name)
    winner = next(iter(candidates("16x4096x4096", "fast")))

    assert EXPERIMENT.route(point, winner) == Choice(kernel="thin_matmul_kernel", config=winner, key=key)


@pytest.mark.parametrize(("shape", "scales", "promotes"), [("5x96x144", "row", True), ("33x80x304", "tensor", False)])
def test_a_thin_candidate_multiplies_what_is_drawn(cuda: str, shape: str, scales: str, promotes: bool) -> None:
    operands = drawn(shape, scales, lambda draw, *size: draw(*size, device=cuda))
    a, b, scale_a, scale_b = operands
    expected = matmul_reference(a, b) * scale_a.double() * scale_b.double()

    for config in [config for config in THIN_FP8[promotes].values() if not config.dependent][:4:3]:
        error = difference(multiply(operands, config, promotes=promotes), expected).max_diff_eps
        assert error is not None
        assert error <= CEILING_EPS["float32"]


def test_a_winner_is_chosen_for_the_calls_of_its_point() -> None:
    (point,) = (point for point in EXPERIMENT.points() if point.name == "2048x2048x2048 tensor float32")
    winner = next(iter(candidates("2048x2048x2048", "float32")))

    choice = EXPERIMENT.route(point, winner)

    assert choice is not None
    assert choice.key == "2048, 2048, 2048, True, False, False, float8_e4m3fn, float8_e4m3fn, bfloat16"
    assert (choice.kernel, choice.config) == ("hopper_matmul_kernel", winner)
    assert EXPERIMENT.route(point, "gone") is None
    assert EXPERIMENT.case(point).values == ("2048x2048x2048", "float8_e4m3fn", "tensor", "float32", "flopwatch")


def test_the_experiment_goes_to_other_processes() -> None:
    assert EXPERIMENT == pickle.loads(pickle.dumps(EXPERIMENT))  # noqa: S301 - its own
    assert len(EXPERIMENT.source) > 16

"""What is raced; the race itself is tested with `evidence.candidates`."""

from __future__ import annotations

import pickle

import pytest
from evidence.fp8_candidates import _SMALL, Compilation, Fp8Experiment, candidates
from evidence.matmul_candidates import PROCESSORS
from evidence.peer_shapes import FP8_FEW, FP8_SUMS, MATMUL_FP8

from flopwatch.kernels.hopper_choice import schedule_of
from flopwatch.kernels.hopper_fp8 import FP8_CONFIGS, FP8_TILES
from flopwatch.kernels.stream_k import Balance

EXPERIMENT = Fp8Experiment()


def test_the_points_are_those_of_the_peers() -> None:
    points = EXPERIMENT.points()

    assert [point.values[0] for point in points if point.group == "tensor fast"] == list(MATMUL_FP8)
    assert {point.values[0] for point in points if point.group != "tensor fast"} == set(FP8_FEW)
    assert {point.group for point in points} == {"tensor fast", "row fast", "tensor float32"}
    assert len({point.name for point in points}) == len(points)


@pytest.mark.parametrize("sums", FP8_SUMS)
@pytest.mark.parametrize("shape", MATMUL_FP8)
def test_every_shape_has_about_a_dozen_candidates_that_a_table_may_name(shape: str, sums: str) -> None:
    configs = candidates(shape, sums)

    assert 10 <= len(configs) <= 14
    assert set(configs) <= set(FP8_CONFIGS[sums != "fast"])


def test_kernels_are_compiled_once_for_all_shapes_and_ways_to_share() -> None:
    jobs = {job for point in EXPERIMENT.points() for job in EXPERIMENT.compilations(point)}

    assert {job.config.balance for job in jobs if isinstance(job, Compilation)} == {Balance.REST, Balance.WHOLE}
    assert len(jobs) < 2 * 3 * (len(FP8_TILES) + 4)
    assert jobs == {pickle.loads(pickle.dumps(job)) for job in jobs}  # noqa: S301 - its own


def test_what_is_compiled_shares_as_what_is_raced() -> None:
    jobs = {job for point in EXPERIMENT.points() for job in EXPERIMENT.compilations(point)}

    for job in jobs:
        assert isinstance(job, Compilation)
        shares = schedule_of(job.config, *_SMALL, processors=PROCESSORS).shared > 0
        assert shares is (job.config.balance is Balance.REST), job


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

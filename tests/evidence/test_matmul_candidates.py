"""What is raced, and that what is wrong is not; the race itself is tested with `evidence.candidates`."""

from __future__ import annotations

import itertools
import pickle
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from benchmarks.matmul import Linear
from evidence import matmul_candidates
from evidence.matmul_candidates import (
    BY_COLUMNS,
    HELD_OUT,
    LAYERS,
    MOST_SHORT,
    ODD,
    ODD_COLUMNS,
    WEIGHTS,
    Compilation,
    MatmulExperiment,
    candidates,
    dealt_out,
    is_by_columns,
    multiply,
    operands,
    promising,
)
from evidence.peer_shapes import MATMUL, MATMUL_DTYPES
from evidence.race import Point

from flopwatch.kernels.hopper_choice import product_config
from flopwatch.kernels.hopper_matmul import TILES, HopperConfig
from flopwatch.kernels.hopper_short import ALL_TILES, ShortConfig
from flopwatch.kernels.routes import prepared_product
from flopwatch.kernels.stream_k import Balance, Schedule
from flopwatch.kernels.thin_matmul import CANDIDATES, ThinConfig
from flopwatch.kernels.workspace import Workspace

EXPERIMENT = MatmulExperiment()


def test_every_shape_is_raced_in_both_dtypes_float16_first() -> None:
    points = EXPERIMENT.points()

    assert [point.values for point in points] == [
        (s, d) for d, s in itertools.product(MATMUL_DTYPES, (*MATMUL, *LAYERS))
    ]
    assert len({point.name for point in points}) == len(points)
    assert {point.name: point.flops for point in points}["1000x1000x1000 float16"] == 2e9


@pytest.mark.parametrize("shape", [*MATMUL, *LAYERS])
def test_every_shape_has_about_a_dozen_candidates_with_names_of_their_own(shape: str) -> None:
    configs = candidates(shape)

    long = [config for config in configs.values() if not isinstance(config, ShortConfig)]
    assert 10 <= sum(not config.dependent for config in long) <= 15
    assert len(set(configs.values())) == len(configs)


def test_of_ways_to_share_that_come_to_the_same_the_first_is_raced() -> None:
    """140 tiles are a wave and eight: WAVE shares all of them, REST the eight, SPLIT and WHOLE none."""
    one = TILES[3]
    ordered = [replace(one, balance=balance) for balance in (Balance.WAVE, Balance.SPLIT, Balance.REST, Balance.WHOLE)]

    dealt = dealt_out(ordered, (140 * one.block_m, one.block_n, 4096))

    assert dealt == ordered[:3]
    assert dealt_out(ordered, (140 * one.block_m, one.block_n, 4096), processors=140) == ordered[:1]
    alike = [one, replace(one, per_processor=2), replace(one, stages=3)]
    assert dealt_out(alike, (64, 64, 4096)) == alike


@pytest.mark.parametrize(("waves", "groups"), [(2, (4, 16)), (1.9, ())])
def test_the_first_two_are_raced_with_other_groups_of_rows_from_two_waves_on(
    waves: float, groups: tuple[int, ...]
) -> None:
    configs = [replace(TILES[4], stages=stages) for stages in range(2, 14)]  # 128x128

    chosen = promising(configs, int(128 * 132 * waves), 128)

    assert chosen[:10] == configs[:10]
    assert chosen[10:] == [replace(config, group_m=group) for config in configs[:2] for group in groups]
    assert promising(configs, 128 * 66 * 2, 128, processors=66)[10:] != []


@pytest.mark.parametrize(("shape", "early"), [("1000x1000x1000", True), ("4096x4096x4096", False)])
def test_short_products_are_raced_as_they_come_before_the_launch_in_front_has_ended(shape: str, early: bool) -> None:
    configs = set(candidates(shape).values())
    late = {config for config in configs if not config.dependent}

    assert configs - late == ({replace(config, dependent=True) for config in late} if early else set())


def test_products_of_a_few_tiles_are_raced_by_the_kernel_that_starts_quickly_too() -> None:
    shapes = ("1024x1024x1024", "16x4096x4096", "8192x8192x128", "4096x4096x4096")
    short = [[each for each in candidates(shape).values() if isinstance(each, ShortConfig)] for shape in shapes]

    few = 2 * sum(tile.rows <= 64 and tile.row_step == 1 for tile in ALL_TILES)
    assert [len(configs) for configs in short] == [2 * MOST_SHORT, few, 0, 0]
    assert {config.turned for config in short[0]} == {True, False}
    assert {config.rows for config in short[1]} == {64}


def test_rows_that_are_eight_apart_are_raced_where_eight_divides_them_and_they_begin_within_lines() -> None:
    shapes = ("1000x1000x1000", "1004x1000x1000", "1536x1536x1536")
    apart = [
        {config.row_step for config in candidates(shape).values() if isinstance(config, ShortConfig)}
        for shape in shapes
    ]

    assert apart == [{1, 8}, {1}, {1}]


def test_few_rows_are_raced_by_the_thin_kernel_and_by_low_tiles() -> None:
    configs = list(candidates("16x4096x4096").values())

    assert configs[: len(CANDIDATES)] == list(CANDIDATES)
    assert all(isinstance(config, ThinConfig) or config.block_m == 64 for config in configs)


def test_a_last_wave_that_is_nearly_empty_brings_shared_tiles_to_the_top() -> None:
    assert "wave" in next(iter(candidates("3072x3072x3072")))
    assert "whole" in next(iter(candidates("2048x2048x2048")))


def test_what_is_held_out_was_not_raced_and_has_one_candidate() -> None:
    shapes = {shape for group, shapes in HELD_OUT.items() for shape in shapes if group != BY_COLUMNS}
    experiment = MatmulExperiment(held_out=True)
    points = experiment.points()

    assert not shapes & set(MATMUL)
    for point in points:
        shape, *_ = map(str, point.values)
        assert len(experiment.candidates(shape, by_columns=is_by_columns(point))) == 1
        in_advance = 0 if point.group.endswith((ODD_COLUMNS, ODD)) else 1
        assert len(list(experiment.compilations(point))) == in_advance
    assert len({point.name for point in points}) == len(points)
    assert points[-1].name == "384x385x384 bfloat16 columns"


def test_named_tiles_are_raced_where_the_estimate_has_none_of_them_and_may_be_chosen() -> None:
    name, shape = "256x128x64 s4 w2 c2/1 g4 whole", "20480x20480x20480"
    experiment = MatmulExperiment(named=(name,))
    point = next(point for point in experiment.points() if point.name == f"{shape} bfloat16")

    assert name not in candidates(shape)
    assert list(experiment.candidates(shape)) == [name]
    for chooses in (experiment, MatmulExperiment()):
        route = chooses.route(point, name)
        assert route is not None
        assert (route.kernel, route.config) == ("hopper_matmul_kernel", name)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (("--named", "64x64"), "no tile is called '64x64'"),
        (("--named", "256x128x64 s4 w2 c2/1 g4 whole, 128x64x64 s8 w2 c1/1 g8 whole"), "say which by --only"),
        (("--named", "128x64x64 s8 w2 c1/1 g8 whole", "--held-out"), "leave out --held-out"),
        (("choose", "--held-out"), "leave out --held-out"),
        (("--columns", "--held-out"), "leave out --held-out or --columns"),
    ],
)
def test_what_would_choose_too_much_or_nothing_is_refused(options: tuple[str, ...], why: str, tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    done = subprocess.run(
        [sys.executable, "-m", "evidence.matmul_candidates", *options, str(out)],
        cwd=Path(matmul_candidates.__file__).parents[1],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 1
    assert why in done.stderr
    assert not out.exists()


@pytest.mark.parametrize("by_columns", [False, True])
def test_operands_lie_as_is_asked(by_columns: bool) -> None:
    a, b = operands((2, 3, 5), torch.empty, by_columns=by_columns)

    assert (a.shape, b.shape) == ((2, 5), (5, 3))
    assert a.is_contiguous()
    assert b.stride() == ((1, 5) if by_columns else (3, 1))


def test_what_is_held_out_by_columns_is_chosen_and_compiled_for_that() -> None:
    experiment = MatmulExperiment(held_out=True)
    points = {point.name: point for point in experiment.points()}
    jobs = {name: set(experiment.compilations(point)) for name, point in points.items()}

    for name, compiled in jobs.items():
        assert all(isinstance(job, Compilation) and job.by_columns is name.endswith(BY_COLUMNS) for job in compiled)
    for layout in (False, True):
        chosen = experiment.candidates("512x1000x1024", by_columns=layout)
        assert list(chosen.values()) == [product_config(512, 1000, 1024, processors=132, by_columns=layout)]
    assert experiment.candidates("512x1000x1024") != experiment.candidates("512x1000x1024", by_columns=True)


def test_weights_of_linear_layers_are_raced_as_their_suite_has_them() -> None:
    experiment = MatmulExperiment(by_columns=True)
    points = experiment.points()

    assert tuple(Linear.params[0]) == WEIGHTS
    assert [point.values for point in points] == [(s, d, BY_COLUMNS) for d in MATMUL_DTYPES for s in WEIGHTS]
    assert all(is_by_columns(point) for point in points)
    jobs = [job for point in points for job in experiment.compilations(point)]
    assert all(isinstance(job, Compilation) and job.by_columns for job in jobs)
    assert list(experiment.candidates(WEIGHTS[0], by_columns=True)) != list(candidates(WEIGHTS[0]))


def test_what_wins_with_b_by_columns_is_chosen_for_calls_like_that() -> None:
    experiment = MatmulExperiment(by_columns=True)
    point = next(point for point in experiment.points() if point.values[:2] == ("128x8192x8192", "bfloat16"))
    choice = experiment.route(point, "short 64x128x64 s8 w4 x1 tma")

    assert choice is not None
    assert choice.kernel == "hopper_short_kernel"
    assert choice.key == "128, 8192, 8192, bfloat16, bfloat16, bfloat16, by columns"
    assert experiment.case(point).id == "Linear[128x8192x8192,bfloat16,flopwatch]"


def test_kernels_of_hopper_are_compiled_once_for_all_shapes_and_ways_to_share() -> None:
    jobs = {job for point in EXPERIMENT.points() for job in EXPERIMENT.compilations(point)}
    hopper = {job for job in jobs if isinstance(job, Compilation) and isinstance(job.config, HopperConfig)}

    assert len({job.shape for job in hopper}) == 1
    assert {job.config.balance for job in hopper if isinstance(job.config, HopperConfig)} == {
        Balance.REST,
        Balance.WHOLE,
    }
    assert len(hopper) < 2 * 2 * len(TILES) * 3
    assert jobs == {pickle.loads(pickle.dumps(job)) for job in jobs}  # noqa: S301 - its own


def test_short_products_are_compiled_once_for_all_shapes() -> None:
    jobs = {job for point in EXPERIMENT.points() for job in EXPERIMENT.compilations(point)}
    short = {job for job in jobs if isinstance(job, Compilation) and isinstance(job.config, ShortConfig)}

    assert len({job.shape for job in short}) == 1
    assert len(short) <= 2 * 2 * len(ALL_TILES)


def test_what_is_compiled_shares_as_what_is_raced() -> None:
    """Sizes of compilations are such that REST shares tiles of every configuration, on an H200."""
    m, n, k = matmul_candidates._SMALL

    for tile in TILES:
        tiles = -(-m // tile.block_m) * -(-n // tile.block_n)
        slots = 132 * tile.per_processor
        assert Schedule.of(tiles, -(-k // 64), slots=slots, balance=Balance.REST).shared > 0


def test_the_experiment_goes_to_other_processes() -> None:
    assert EXPERIMENT == pickle.loads(pickle.dumps(EXPERIMENT))  # noqa: S301 - its own
    assert len(EXPERIMENT.source) > 16


@pytest.mark.parametrize("shape", ["3x66x200", "60x130x100"])
def test_what_is_right_passes_and_what_is_not_does_not(cuda: str, monkeypatch: pytest.MonkeyPatch, shape: str) -> None:
    del cuda
    config = CANDIDATES[0 if shape.startswith("3x") else -1]
    monkeypatch.setattr(matmul_candidates, "candidates", lambda _shape, **_: {"it": config})
    monkeypatch.setattr(matmul_candidates, "MAX_INPUT_SETS", 2)
    contest = EXPERIMENT.contest(Point(name="it", group="it", flops=1.0, values=(shape, "float16")))
    call = contest.candidates["it"]()

    def off(index: int) -> torch.Tensor:
        c = call(index)
        assert isinstance(c, torch.Tensor)
        return c * 1.01

    def unwritten(_index: int) -> torch.Tensor:
        m, n, _k = map(int, shape.split("x"))
        return torch.empty(m, n, device="cuda", dtype=torch.float16)

    assert contest.sets == 2
    assert not contest.wrong(call)
    assert not contest.wrong(contest.peers["torch"]())
    assert not contest.wrong(contest.peers["plain"]())
    assert contest.wrong(off).startswith("is wrong")
    assert contest.wrong(unwritten) == "is wrong: error None eps"


def test_who_leaves_flags_behind_does_not_spoil_who_is_right(cuda: str, monkeypatch: pytest.MonkeyPatch) -> None:
    del cuda
    seen: list[Workspace] = []

    def spoiling(a: torch.Tensor, b: torch.Tensor, _config: object, workspace: Workspace) -> torch.Tensor:
        seen.append(workspace)
        workspace.flags.fill_(1)
        return a @ b

    monkeypatch.setattr(matmul_candidates, "multiply", spoiling)
    monkeypatch.setattr(matmul_candidates, "MAX_INPUT_SETS", 2)
    contest = EXPERIMENT.contest(Point(name="it", group="it", flops=1.0, values=("3x66x200", "float16")))

    contest.wrong(next(iter(contest.candidates.values()))())

    assert seen[-1].flags.count_nonzero() == 0


def test_candidates_take_turns_on_one_workspace(cuda: str) -> None:
    a = torch.randn(3, 200, device=cuda).half()
    b = torch.randn(200, 66, device=cuda).half()
    workspace = Workspace.of(Schedule(programs=64, shared=8), 32 * 64, device=a.device)

    for config in (*CANDIDATES[:3], *CANDIDATES[:1]):
        assert torch.allclose(multiply(a, b, config, workspace), a @ b, atol=0.05)
        assert workspace.flags.count_nonzero() == 0


@pytest.mark.gpu
def test_what_is_compiled_is_what_is_launched() -> None:
    for shape, label in (("1536x1536x1536", "wave"), ("16x4096x4096", "thin")):
        point = next(point for point in EXPERIMENT.points() if point.values == (shape, "float16"))
        config = next(config for name, config in candidates(shape).items() if label in name)
        m, n, k = map(int, shape.split("x"))
        a, b, c = (torch.empty(size, device="cuda", dtype=torch.float16) for size in ((m, k), (k, n), (m, n)))
        kernel = prepared_product(a, b, c, config).kernel
        for job in EXPERIMENT.compilations(point):
            job()
        compiled = len(kernel.device_caches[torch.cuda.current_device()][0])

        prepared_product(a, b, c, config).launch()
        torch.cuda.synchronize()

        assert len(kernel.device_caches[torch.cuda.current_device()][0]) == compiled > 0

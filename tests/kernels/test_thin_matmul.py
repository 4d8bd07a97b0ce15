from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from flopwatch.kernels.reference import matmul_reference
from flopwatch.kernels.stream_k import Schedule
from flopwatch.kernels.thin_matmul import CANDIDATES, ThinConfig, thin_matmul
from flopwatch.kernels.workspace import Workspace
from flopwatch.measure.numbers import difference
from flopwatch.poison import PoisonedAllocations

if TYPE_CHECKING:
    from collections.abc import Callable

    Normal = Callable[..., torch.Tensor]

HAS_GPU = torch.cuda.is_available()
CONFIG = ThinConfig(block_n=64, block_k=32, splits=3, num_stages=2)
COLUMNS, DEPTH = (4096, 4096) if HAS_GPU else (192, 300)


def error_eps(a: torch.Tensor, b: torch.Tensor, config: ThinConfig, workspace: Workspace | None = None) -> float:
    """Multiply into poisoned memory; an element that is never written gives an infinite error."""
    with PoisonedAllocations():
        c = thin_matmul(a, b, config, workspace=workspace)
    error = difference(c, matmul_reference(a, b)).max_diff_eps
    return float("inf") if error is None else error


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("rows", [1, 2, 7, 16, 17, 33, 64])
def test_a_product_of_few_rows_is_as_exact_as_its_dtype(normal: Normal, rows: int, dtype: torch.dtype) -> None:
    assert error_eps(normal(rows, 100, dtype=dtype), normal(100, 130, dtype=dtype), CONFIG) <= 1.0


@pytest.mark.parametrize("config", CANDIDATES, ids=str)
def test_every_configuration_that_may_win_is_right(normal: Normal, config: ThinConfig) -> None:
    assert error_eps(normal(5, DEPTH), normal(DEPTH, COLUMNS), config) <= 1.0


@pytest.mark.parametrize(("columns", "depth"), [(64, 96), (65, 96), (64, 97), (1, 1), (200, 31)])
def test_ragged_columns_and_depths_are_right(normal: Normal, columns: int, depth: int) -> None:
    assert error_eps(normal(3, depth), normal(depth, columns), CONFIG) <= 1.0


def test_any_strides_are_right(normal: Normal) -> None:
    assert error_eps(normal(90, 4).T, normal(70, 90).T, CONFIG) <= 1.0
    assert error_eps(normal(8, 180)[::2, ::2], normal(90, 140)[:, ::2], CONFIG) <= 1.0


@pytest.mark.parametrize("by_columns", [False, True])
def test_rows_and_columns_of_eights_are_right(normal: Normal, by_columns: bool) -> None:
    a, b = (normal(104, 24).T, normal(72, 104).T) if by_columns else (normal(24, 104), normal(104, 72))

    assert error_eps(a, b, CONFIG) <= 1.0


@pytest.mark.parametrize("splits", [1, 2, 5, 64])
def test_any_number_of_splits_is_right(normal: Normal, splits: int) -> None:
    config = ThinConfig(block_n=64, block_k=32, splits=splits, num_stages=2)

    assert error_eps(normal(6, 170), normal(170, 70), config) <= 1.0


def test_a_workspace_is_as_it_was_after_each_launch_and_the_bits_are_the_same(normal: Normal) -> None:
    a, b = normal(4, 200), normal(200, 130)
    workspace = Workspace.of(Schedule(programs=3 * 3, shared=3), 16 * 64, device=a.device)
    workspace.parts.fill_(float("nan"))

    results = [thin_matmul(a, b, CONFIG, workspace=workspace) for _ in range(3)]

    assert workspace.flags.count_nonzero() == 0
    assert all(torch.equal(results[0], result) for result in results)


def test_a_counter_that_was_not_set_back_is_noticed(normal: Normal) -> None:
    a, b = normal(4, 200), normal(200, 130)
    workspace = Workspace.of(Schedule(programs=3 * 3, shared=3), 16 * 64, device=a.device)
    workspace.flags.fill_(3)  # then nobody is the third

    assert error_eps(a, b, CONFIG, workspace) > 1.0


def test_a_workspace_that_is_too_small_is_refused(normal: Normal) -> None:
    workspace = Workspace.of(Schedule(programs=1, shared=1), 16 * 64, device=normal(1).device)

    with pytest.raises(ValueError, match="workspace is too small"):
        thin_matmul(normal(4, 200), normal(200, 130), CONFIG, workspace=workspace)


@pytest.mark.parametrize(("rows", "columns", "depth"), [(65, 64, 64), (0, 64, 64), (4, 0, 64), (4, 64, 0)])
def test_what_is_not_thin_or_empty_is_refused(normal: Normal, rows: int, columns: int, depth: int) -> None:
    with pytest.raises(ValueError, match="1 to 64 rows"):
        thin_matmul(normal(rows, depth), normal(depth, columns), CONFIG)

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from flopwatch.kernels import matmul, scratch
from flopwatch.kernels.matmul import triton_matmul
from flopwatch.kernels.reference import matmul_reference
from flopwatch.kernels.scratch import ALIGNMENT, DEPTH, in_scratch, is_aligned
from flopwatch.measure.numbers import difference
from flopwatch.poison import PoisonedAllocations

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.kernels.conftest import Normal

OPERANDS: dict[str, Callable[[Normal], tuple[torch.Tensor, torch.Tensor]]] = {
    "odd rows": lambda normal: (normal(45, 71), normal(71, 33)),
    "an odd depth alone": lambda normal: (normal(45, 71), normal(71, 64)),
    "odd columns alone": lambda normal: (normal(45, 128), normal(128, 33)),
    "transposed": lambda normal: (normal(128, 45).T, normal(33, 128).T),
    "a corner that starts in the middle of 16 bytes": lambda normal: (normal(64, 128)[3:48, 5:69], normal(64, 64)),
    "every other column": lambda normal: (normal(45, 140)[:, ::2], normal(70, 66)[:, ::2]),
}


def test_what_is_readable_is_not_copied(normal: Normal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matmul, "is_worth_scratch", lambda *_sizes: True)
    monkeypatch.setattr(matmul, "in_scratch", lambda *_operands: pytest.fail("copied"))
    a, b = normal(45, 72), normal(40, 72).T
    error = difference(triton_matmul(a, b, 32, 32, 32), matmul_reference(a, b)).max_diff_eps
    assert error is not None
    assert error <= 1.0


@pytest.fixture
def always_in_scratch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scratch, "SCRATCH_FROM", 0)
    monkeypatch.setattr(scratch, "SCRATCH_INTENSITY", 0)


@pytest.mark.parametrize("name", OPERANDS)
def test_copies_are_aligned_and_end_in_zeros(normal: Normal, name: str) -> None:
    operands = OPERANDS[name](normal)
    assert not all(is_aligned(x.data_ptr(), x.stride()) for x in operands)
    with PoisonedAllocations():
        copies = in_scratch(*operands)
    for x, copy in zip(operands, copies, strict=True):
        rows, columns = x.shape
        assert is_aligned(copy.data_ptr(), copy.stride())
        assert torch.equal(copy[:rows, :columns], x)
        assert copy.count_nonzero() == x.count_nonzero()
    assert copies[0].shape[1] == copies[1].shape[0]
    assert (copies[0].shape[1] % DEPTH, copies[1].shape[1] % ALIGNMENT) == (0, 0)


@pytest.mark.usefixtures("always_in_scratch")
@pytest.mark.parametrize("name", OPERANDS)
def test_a_product_by_way_of_scratch_is_the_same(normal: Normal, name: str) -> None:
    a, b = OPERANDS[name](normal)
    with PoisonedAllocations():
        c = triton_matmul(a, b, 32, 32, 32)
    assert c.is_contiguous()
    error = difference(c, matmul_reference(a, b)).max_diff_eps
    assert error is not None
    assert error <= 1.0


@pytest.mark.usefixtures("always_in_scratch")
@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")  # of the interpreter's NumPy: infinity times 0
def test_infinite_elements_stay_in_their_rows_and_columns(normal: Normal) -> None:
    a, b = normal(45, 71), normal(71, 33)
    b[:, 32] = torch.inf
    c = triton_matmul(a, b, 32, 32, 32)
    assert c[:, :32].isfinite().all()
    assert not c[:, 32].isfinite().any()


@pytest.mark.usefixtures("always_in_scratch")
def test_without_memory_for_copies_the_product_is_computed_all_the_same(
    normal: Normal, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: torch.Tensor) -> None:
        raise torch.OutOfMemoryError

    monkeypatch.setattr(matmul, "in_scratch", full)
    a, b = normal(45, 71), normal(71, 33)
    error = difference(triton_matmul(a, b, 32, 32, 32), matmul_reference(a, b)).max_diff_eps
    assert error is not None
    assert error <= 1.0

from __future__ import annotations

import pytest
import torch

from flopwatch.measure.inputs import copy_inputs, lay_out, placed

X = torch.randn(64, 32)
INPUTS = (
    X,
    X.T[::2],
    X.to(torch.float8_e4m3fn),
    torch.tensor(3.0),
    torch.empty(0, 4),
    X.bool(),
    X.to(torch.complex64),
    torch.randn(5, 6, 7).permute(2, 0, 1),
    torch.randn(1 << 20),
)


def test_copies_have_the_values_and_strides_and_lie_in_one_piece() -> None:
    memory, sets = copy_inputs((*INPUTS, "text"), 3)

    for copies in sets:
        assert copies[-1] == "text"
        for value, copy in zip(INPUTS, copies, strict=False):
            assert (copy.dtype, copy.shape, copy.stride()) == (value.dtype, value.shape, value.stride())
            assert torch.equal(copy, value)
            assert copy.untyped_storage().data_ptr() == memory.data_ptr()


def test_no_copy_lies_upon_another() -> None:
    _, sets = copy_inputs(INPUTS, 2)
    for copies in sets:
        for copy in placed(copies):
            copy.zero_()
            assert not copy.to(torch.complex64).any()
        for copy, value in zip(copies, INPUTS, strict=True):
            copy.copy_(value)
    for copies in sets:
        assert all(map(torch.equal, copies, INPUTS))


@pytest.mark.parametrize(
    "value",
    [
        torch.randn(3, 1).expand(3, 5),
        torch.as_strided(X, (4, 4), (1, 2)),
        torch.as_strided(X, (2, 2, 2), (1, 2, 3)),
        X.clone().requires_grad_(),
    ],
    ids=["expanded", "overlapping", "overlapping in three dimensions", "differentiable"],
)
def test_what_has_elements_in_common_or_a_gradient_is_cloned(value: torch.Tensor) -> None:
    memory, ((first, copy),) = copy_inputs((X, value), 1)

    assert len(placed((X, value))) == 1
    assert torch.equal(copy, value)
    assert copy.untyped_storage().data_ptr() != memory.data_ptr() == first.untyped_storage().data_ptr()


def test_inputs_without_tensors_take_no_memory() -> None:
    memory, sets = copy_inputs((3, "text"), 2)

    assert memory.numel() == 0
    assert sets == [(3, "text")] * 2


def test_another_layout_does_not_fit() -> None:
    memory, _ = copy_inputs((X,), 2)
    with pytest.raises(ValueError, match="2 sets of 16384 bytes do not fill 16384 bytes"):
        lay_out((X, X), 2, memory)

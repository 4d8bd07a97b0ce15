from __future__ import annotations

import gc

import pytest
import torch

from flopwatch.kernels import flash_attention, seq_lens
from flopwatch.kernels.seq_lens import are_checked, check_seq_lens

S = 40


@pytest.fixture(autouse=True)
def nothing_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seq_lens, "_checked", {})


@pytest.fixture
def q(cuda: str) -> torch.Tensor:
    return torch.zeros(3, 1, S, 16, device=cuda, dtype=torch.float16)


def lengths(q: torch.Tensor, *values: int) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int32, device=q.device)


def test_lengths_are_checked_once_and_again_when_torch_has_written_to_them(q: torch.Tensor) -> None:
    given = lengths(q, 7, 40, 0)
    assert not are_checked(given, S)
    flash_attention(q, q, q, seq_lens=given)
    assert are_checked(given, S)
    assert not are_checked(given, S - 1), "40 would be too long"
    assert not are_checked(given.clone(), S)

    given[1] = S + 1

    assert not are_checked(given, S)
    with pytest.raises(ValueError, match="between 0 and 40, got 41"):
        flash_attention(q, q, q, seq_lens=given)
    assert not are_checked(given, S)


def test_a_write_through_a_view_counts(q: torch.Tensor) -> None:
    given = lengths(q, 7, 40, 0)
    view = given[1:]
    check_seq_lens(given, q, q)

    view += 1

    assert not are_checked(given, S)


def test_nothing_is_remembered_of_a_tensor_that_is_gone(q: torch.Tensor) -> None:
    given = lengths(q, 7, 40, 0)
    check_seq_lens(given, q, q)
    assert len(seq_lens._checked) == 1
    del given
    gc.collect()

    assert len(seq_lens._checked) == 0


def test_another_tensor_with_the_id_of_one_that_is_gone_is_not_taken_for_it(q: torch.Tensor) -> None:
    given, other = lengths(q, 7, 40, 0), lengths(q, 41, 41, 41)
    check_seq_lens(given, q, q)
    (entry,) = seq_lens._checked.values()
    seq_lens._checked[id(other)] = entry

    assert not are_checked(other, S)


def test_lengths_of_inference_mode_are_checked_each_time(q: torch.Tensor) -> None:
    with torch.inference_mode():
        given = lengths(q, 7, 40, 0)
        check_seq_lens(given, q, q)
        assert not are_checked(given, S)
        given[0] = -1
        with pytest.raises(ValueError, match="got -1"):
            check_seq_lens(given, q, q)

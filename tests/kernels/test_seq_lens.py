from __future__ import annotations

import gc

import pytest
import torch
from tests.kernels.on_stand_in import printed

from flopwatch.kernels import flash_attention, seq_lens
from flopwatch.kernels.seq_lens import check_seq_lens, were_read

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
    assert not were_read(given, S)
    flash_attention(q, q, q, seq_lens=given)
    assert were_read(given, S)
    assert were_read(given, S + 1)
    assert not were_read(given, S - 1), "40 would be too long"
    assert not were_read(given.clone(), S)
    more, flat, elsewhere = torch.cat((q, q[:1])), q.flatten(), q.to("meta")
    for other, refusal in (
        (more, r"must have length 4 .*got \(3,\)"),
        (flat, "q must be 3D or 4D, got 1D"),
        (elsewhere, "q must be a CUDA tensor"),
    ):
        with pytest.raises(ValueError, match=refusal):
            flash_attention(other, other, other, seq_lens=given)

    given[1] = S + 1

    assert not were_read(given, S)
    with pytest.raises(ValueError, match="between 0 and 40, got 41"):
        flash_attention(q, q, q, seq_lens=given)
    assert not were_read(given, S)


def test_a_write_while_the_values_are_read_counts(q: torch.Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    given, tolist = lengths(q, 7, 40, 0), torch.Tensor.tolist

    def written_behind(tensor: torch.Tensor) -> list[int]:
        values: list[int] = tolist(tensor)
        tensor.fill_(99)
        return values

    monkeypatch.setattr(torch.Tensor, "tolist", written_behind)
    check_seq_lens(given, q, q)

    assert not were_read(given, S)


def test_a_write_through_a_view_counts(q: torch.Tensor) -> None:
    given = lengths(q, 7, 40, 0)
    view = given[1:]
    check_seq_lens(given, q, q)

    view += 1

    assert not were_read(given, S)


def test_what_is_assigned_to_the_data_of_a_tensor_is_another_one(q: torch.Tensor) -> None:
    given = lengths(q, 7, 40, 0)
    check_seq_lens(given, q, q)
    writes = given._version

    before = given.data

    for other, refusal in (
        (lengths(q, 41, 41, 41), "between 0 and 40"),
        (before.view(torch.float32), "must be int32"),
        (before.view(3, 1), "must have length 3"),
        (before[:2], "must have length 3"),
    ):
        given.data = other

        assert given._version == writes, "torch does not count that"
        with pytest.raises((TypeError, ValueError), match=refusal):
            flash_attention(q, q, q, seq_lens=given)

    given.data = before
    assert were_read(given, S)


def test_nothing_is_remembered_of_what_may_not_be_what_it_says(q: torch.Tensor) -> None:
    class Odd(torch.Tensor):
        pass

    given = lengths(q, 7, 40, 0).as_subclass(Odd)
    check_seq_lens(given, q, q)

    assert not were_read(given, S)


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

    assert not were_read(other, S)


def test_lengths_of_inference_mode_are_checked_each_time(q: torch.Tensor) -> None:
    with torch.inference_mode():
        given = lengths(q, 7, 40, 0)
        check_seq_lens(given, q, q)
        assert not were_read(given, S)
        given[0] = -1
        with pytest.raises(ValueError, match="got -1"):
            check_seq_lens(given, q, q)


#: On a stand-in for a GPU, where launches are kept: prints for each call how often lengths were read so far, and
#: whether it was launched past Triton's dispatch, or what was refused.
KEPT = """
import sys
import torch
from benchmarks_host import stand_in
from flopwatch.kernels import flash_attention
from flopwatch.kernels.launch import Launches

reads, past = [], []
again, tolist = Launches.again, torch.Tensor.tolist
Launches.again = lambda *given: past.append(again(*given)) or past[-1]
stand_in.StandInTensor.tolist = lambda tensor: reads.append(1) or tolist(tensor)
with stand_in.stand_in_gpu():
    q = stand_in.tensor(3, 1, 40, 16)

    def call(seq_lens):
        past.clear()
        try:
            flash_attention(q, q, q, seq_lens=seq_lens)
            print(len(reads), any(each is not None for each in past))
        except ValueError as error:
            print(len(reads), str(error).splitlines()[0])

    lengths = torch.tensor([7, 40, 0, 1, 2, 3], dtype=torch.int32)
    given, strided = (each.as_subclass(stand_in.StandInTensor) for each in (lengths[:3], lengths[::2]))
    for _ in range(3):
        call(given)
    lengths[1] = 41
    call(given)
    lengths[1] = 39
    call(given)
    call(given)
    for _ in range(2):
        call(strided)
    other = lengths[3:].clone().as_subclass(stand_in.StandInTensor)
    call(other)
    call(other)
    given.data = strided.data
    call(given)
    call(given)
"""


def test_calls_with_lengths_are_launched_again_while_torch_writes_none() -> None:
    assert printed(KEPT) == [
        *("1 False", "1 True", "1 True"),
        "2 seq_lens must be between 0 and 40, got 41",
        *("3 True", "3 True"),  # read again, and launched as before
        *("4 False", "4 False"),  # those that are not contiguous are copied, and nothing is kept of that
        *("5 True", "5 True"),  # other lengths in the same place of a kernel
        *("5 False", "5 False"),  # what begins where they did, and is not contiguous
    ]

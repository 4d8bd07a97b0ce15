from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

from flopwatch.sanitize.buffers import FIRST_WINDOW, WINDOW_BITS, Buffer, Buffers, Window, bytes_of

if TYPE_CHECKING:
    from collections.abc import Sequence


def window(tensor: torch.Tensor) -> Window:
    return Window(0, "x", tensor, Buffer(tensor.untyped_storage()))


def missed(tensor: torch.Tensor, width: int = 4) -> list[int]:
    """Return at which bytes from the first element, of all in a range, no element begins."""
    places = np.arange(-8, 200, 4, dtype=np.int64)
    bits = window(tensor).misses(places, width)
    return [] if bits is None else places[bits].tolist()


def elements(tensor: torch.Tensor) -> set[int]:
    """Return where each element begins, by its own index."""
    steps = [step * tensor.element_size() for step in tensor.stride()]
    return {int(np.dot(index, steps)) for index in np.ndindex(*tensor.shape)}


@pytest.mark.parametrize(
    "tensor",
    [
        torch.zeros(40),
        torch.zeros(6, 8)[:, :5],
        torch.zeros(6, 8)[::2, 1:7:3],
        torch.zeros(3, 4, 5).permute(2, 0, 1),
        torch.zeros(4, 1, 6)[:, :, :5].transpose(0, 2),
        torch.zeros(7)[3],
        torch.zeros(200).as_strided((1, 3, 10), (2, 16, 1)),
    ],
    ids=str,
)
def test_a_place_is_an_elements_where_some_index_leads_to_it(tensor: torch.Tensor) -> None:
    places = range(-8, 200, 4)

    assert sorted(set(places) - elements(tensor)) == missed(tensor)


def test_an_expanded_tensor_has_one_row() -> None:
    assert missed(torch.zeros(4)[None].expand(5, 4))[:3] == [-8, -4, 16]


def test_overlapping_elements_are_anything_between_the_first_and_the_last() -> None:
    assert missed(torch.zeros(10).as_strided((4, 3), (2, 1)))[:3] == [-8, -4, 36]


def test_a_tensor_that_is_cast_is_judged_by_its_allocation_alone() -> None:
    x = window(torch.zeros(6, 8)[:, :5])

    assert x.misses(np.array([20], dtype=np.int64), 2) is None
    assert x.strays(np.array([0, 188, 190, 192, -2], dtype=np.int64), 4).tolist() == [False, False, True, True, True]


def test_a_window_keeps_the_alignment_of_its_tensor() -> None:
    base = torch.zeros(64)
    for start in range(9):
        part = base[start:]
        assert window(part).base % 64 == part.data_ptr() % 64
        assert window(part).base >> WINDOW_BITS == FIRST_WINDOW


@pytest.mark.parametrize(
    ("place", "words"),
    [
        (-4, "4 bytes before x, float32[2,3]"),
        (12, "12 bytes into x, float32[2,3], between its elements"),
        (28, "the first byte after x, float32[2,3]"),
        (1032, "1,004 bytes after x, float32[2,3]"),
    ],
)
def test_a_place_is_described_by_the_tensor(place: int, words: str) -> None:
    assert window(torch.zeros(2, 4)[:, :3]).describe(place, 4) == words


def test_what_the_host_writes_is_written_and_nothing_else() -> None:
    buffers = Buffers()
    x = torch.empty(1000, dtype=torch.int16)
    buffers.allocated(x)
    x[100:200] = 7
    x[996:] = 0

    assert buffers.never_written(x) == 1000 - 100 - 4
    assert buffers.never_written(x[100:200]) == 0
    assert buffers.never_written(x[:400].reshape(20, 20)[:, 10:]) == 200 - 50


def test_a_tail_shorter_than_a_unit_belongs_to_the_one_before() -> None:
    buffers = Buffers()
    x = torch.empty(19, dtype=torch.uint8)
    buffers.allocated(x)
    x[17] += 1

    assert buffers.never_written(x) == 8


@pytest.mark.parametrize(("length", "values"), [(1, (0, 1, -1)), (9, range(-128, 128))])
def test_whatever_the_host_writes_into_few_bytes_is_written(length: int, values: Sequence[int]) -> None:
    """Of random bytes, one in 256 is what the host writes; of 1,000 tensors some would be said to be unwritten."""
    buffers = Buffers()
    for index in range(1000):
        x = torch.empty(length, dtype=torch.int8)
        buffers.allocated(x)
        x.fill_(values[index % len(values)])
        assert buffers.never_written(x) == 0


def test_a_kernels_writes_are_known_byte_by_byte() -> None:
    buffers = Buffers()
    x = torch.empty(16, dtype=torch.int32)
    buffers.allocated(x)
    buffer = buffers.of(x)
    buffer.begin_launch()
    buffer.write(np.arange(0, 64, 8), 4)
    buffer.contents[np.arange(0, 64, 8)] ^= 255

    assert buffers.never_written(x) == 8
    unwritten = buffer.is_unwritten(np.array([0, 4, 8]), 4)
    assert unwritten is not None
    assert unwritten.tolist() == [False, True, False]


def test_a_tensor_that_was_not_allocated_here_is_written() -> None:
    assert Buffers().never_written(torch.empty(4)) == 0


def test_an_empty_tensor_has_nothing_to_write() -> None:
    buffers = Buffers()
    empty = torch.empty(0)
    buffers.allocated(empty)
    buffer = buffers.of(empty)
    buffer.begin_launch()
    assert (buffer.contents.size, buffer.unwritten, buffers.never_written(empty)) == (0, None, 0)


def test_what_has_no_memory_here_is_left_alone() -> None:
    buffers = Buffers()
    for tensor in (torch.empty(4, device="meta"), torch.empty(0), torch.empty(4, 4, layout=torch.sparse_coo)):
        buffers.allocated(tensor)
        assert buffers.never_written(tensor) == 0


def races(values: list[int], places: list[int], program: int, buffer: Buffer) -> list[bool]:
    found = buffer.write_by(np.array(places), bytes_of(np.array(values, dtype=np.uint8)), program)
    buffer.contents[places] = values
    return [bool(bit) for bit in found]


def test_another_value_of_another_program_races() -> None:
    buffer = Buffer(torch.zeros(8, dtype=torch.uint8).untyped_storage())

    assert races([1, 2], [0, 1], 1, buffer) == [False, False]
    assert races([1, 3], [0, 1], 2, buffer) == [False, True]
    assert races([9, 9], [0, 4], 2, buffer) == [False, False]
    buffer.begin_launch()
    assert races([4, 4], [0, 1], 3, buffer) == [False, False]


def test_two_lanes_of_one_store_race_where_their_values_differ() -> None:
    buffer = Buffer(torch.zeros(8, dtype=torch.uint8).untyped_storage())

    assert sum(races([1, 2, 5, 5, 2], [3, 0, 4, 4, 3], 1, buffer)) == 1


def test_a_write_races_with_what_others_read() -> None:
    buffer = Buffer(torch.zeros(8, dtype=torch.uint8).untyped_storage())
    for program in (1, 2):
        assert not buffer.read_by(np.array([0]), program).any()
    assert not buffer.read_by(np.array([1]), 2).any()

    assert races([1, 1], [0, 1], 2, buffer) == [True, False]
    assert buffer.read_by(np.array([0, 1, 2]), 3).tolist() == [True, True, False]

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from tests.kernels.on_stand_in import printed

from flopwatch.kernels import copies, matmul, routes, scratch
from flopwatch.kernels.matmul import triton_matmul
from flopwatch.kernels.reference import matmul_reference
from flopwatch.kernels.scratch import ALIGNMENT, DEPTH, in_lines, in_scratch, is_aligned, is_worth_lines
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
    monkeypatch.setattr(copies, "is_worth_scratch", lambda *_sizes: True)
    monkeypatch.setattr(copies, "in_scratch", lambda *_operands: pytest.fail("copied"))
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
        copied = in_scratch(*operands)
    for x, copy in zip(operands, copied, strict=True):
        rows, columns = x.shape
        assert is_aligned(copy.data_ptr(), copy.stride())
        assert torch.equal(copy[:rows, :columns], x)
        assert copy.count_nonzero() == x.count_nonzero()
    assert copied[0].shape[1] == copied[1].shape[0]
    assert (copied[0].shape[1] % DEPTH, copied[1].shape[1] % ALIGNMENT) == (0, 0)


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

    monkeypatch.setattr(copies, "in_scratch", full)
    a, b = normal(45, 71), normal(71, 33)
    error = difference(triton_matmul(a, b, 32, 32, 32), matmul_reference(a, b)).max_diff_eps
    assert error is not None
    assert error <= 1.0


def on_hopper(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have products take what the rule has for Hopper."""
    monkeypatch.setattr(routes, "_is_hopper", lambda _tensor: True)
    monkeypatch.setattr(routes, "_processors", lambda _tensor: 132)
    monkeypatch.setattr(routes, "_is_plain", lambda: False)
    monkeypatch.setattr(routes, "_choice", lambda *_: ("", ""))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize(
    "make",
    [lambda b: b, lambda b: b.T.contiguous().T, lambda b: b[:, 8:32], lambda b: b.T[:, 8:].T, lambda b: b[:, 4:28]],
    ids=["rows", "columns", "some columns", "some rows", "not from a multiple of 16 bytes on"],
)
def test_a_copy_in_lines_has_the_same_bits_and_lies_as_its_original_does(
    make: Callable[[torch.Tensor], torch.Tensor], dtype: torch.dtype
) -> None:
    bits = torch.randint(-(2**15), 2**15, (24, 40), dtype=torch.int16, generator=torch.Generator().manual_seed(3))
    b = make(bits.view(dtype))  # numbers that are none, of every kind, among them

    copy = in_lines(b)

    assert torch.equal(copy.view(torch.int16), b.view(torch.int16))
    by_rows = b.stride(1) == 1
    assert copy.stride() == ((64, 1) if by_rows else (1, 64))


def test_b_is_worth_lines_where_its_rows_begin_within_sectors_and_are_read_often() -> None:
    def is_worth(
        rows: int, depth: int, columns: int, *, stride: int = 0, first: int = 0, by_columns: bool = False
    ) -> bool:
        lines, length = (columns, depth) if by_columns else (depth, columns)
        whole = torch.empty(lines, stride or length, dtype=torch.float16, device="meta")
        b = whole[:, first : first + length]
        return is_worth_lines(b.T if by_columns else b, rows)

    assert is_worth(3000, 3000, 3000)
    assert not is_worth(1992, 5000, 5000), "too few rows read what was copied"
    assert not is_worth(2504, 2400, 2488), "too little work"
    assert not is_worth(2048, 4096, 11000), "too few rows read what no cache holds"
    assert is_worth(4096, 4096, 11000)
    assert not is_worth(5008, 5008, 5008), "rows begin with sectors"
    assert is_worth(4104, 4104, 11008, by_columns=True)
    assert not is_worth(4104, 11008, 4104, by_columns=True), "columns begin with lines"
    assert is_worth(5000, 5000, 4096, stride=4104)
    assert not is_worth(5000, 4100, 5000, stride=4104, by_columns=True), "16 bytes end elsewhere"


@pytest.mark.parametrize("by_columns", [False, True])
def test_b_is_copied_alone_where_the_rule_has_the_persistent_kernel(
    by_columns: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_hopper(monkeypatch)
    a = torch.empty(5000, 5000, dtype=torch.float16, device="meta")
    b = a.T if by_columns else a

    make = copies.copies_worth_making(a, b, routed=True)

    assert make is not None
    same, copy = make(a, b)
    assert same is a
    assert copy.stride() == ((1, 5056) if by_columns else (5056, 1))
    assert copies.copies_worth_making(same, copy, routed=True) is None, "and the copy not again"


def test_b_is_not_copied_for_the_plain_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    on_hopper(monkeypatch)
    a = torch.empty(5000, 5000, dtype=torch.float16, device="meta")

    assert copies.copies_worth_making(a, a, routed=False) is None
    monkeypatch.setattr(routes, "_choice", lambda *_: ("plain", "plain"))
    assert copies.copies_worth_making(a, a, routed=True) is None, "a table has it"
    monkeypatch.setattr(routes, "_choice", lambda *_: ("", ""))
    monkeypatch.setattr(routes, "_is_plain", lambda: True)
    assert copies.copies_worth_making(a, a, routed=True) is None, "the plain kernel is asked for"
    monkeypatch.setattr(routes, "_is_plain", lambda: False)
    monkeypatch.setattr(routes, "_is_hopper", lambda _tensor: False)
    assert copies.copies_worth_making(a, a, routed=True) is None


def test_a_product_of_b_in_lines_is_the_same(normal: Normal, monkeypatch: pytest.MonkeyPatch) -> None:
    """With sizes that are interpreted, and the plain kernel in the place of the one for Hopper."""
    monkeypatch.setattr(scratch, "LINES_ROWS", 0)
    monkeypatch.setattr(scratch, "LINES_FROM", 0)
    monkeypatch.setattr(copies, "HopperConfig", object)
    monkeypatch.setattr(matmul, "routed_product", lambda *_: None)
    copied: list[torch.Tensor] = []

    def noted(b: torch.Tensor) -> torch.Tensor:
        copied.append(in_lines(b))
        return copied[-1]

    monkeypatch.setattr(copies, "in_lines", noted)
    a, b = normal(40, 72), normal(72, 24)

    c = triton_matmul(a, b)

    assert [each.stride() for each in copied] == [(64, 1)]
    assert torch.equal(c, triton_matmul(a, copied[0]))
    error = difference(c, matmul_reference(a, b)).max_diff_eps
    assert error is not None
    assert error <= 1.0


#: On a stand-in for a GPU: products by way of copies, of which the second one finds out nothing any more. Prints how
#: many were found out, and for each product how it lies and whether the kernel was launched past Triton's dispatch.
AGAIN = """
import sys
import torch
from benchmarks_host import stand_in
from flopwatch.kernels import scratch, triton_matmul
from flopwatch.kernels.launch import Launches

matmul = sys.modules["flopwatch.kernels.matmul"]
scratch.SCRATCH_FROM = scratch.SCRATCH_INTENSITY = 0
asked, past = [], []
worth, again = matmul.copies_worth_making, Launches.again
matmul.copies_worth_making = lambda a, b, **rest: asked.append(a.shape) or worth(a, b, **rest)
Launches.again = lambda *given: past.append(again(*given)) or past[-1]
with stand_in.stand_in_gpu():
    a, b = stand_in.tensor(45, 71), stand_in.tensor(71, 33)
    pad = scratch.pad
    scratch.pad = lambda x, by: pad(x, by).as_subclass(stand_in.StandInTensor)
    for _ in range(3):
        past.clear()
        c = triton_matmul(a, b)
        print(len(asked), tuple(c.shape), c.is_contiguous(), [each is not None for each in past])
    matmul._launches.forget()
    triton_matmul(a, b)
    print(len(asked))
    # Without memory for copies, once they are kept, and when they are new.
    def full(x, by):
        tried.append(x.shape)
        raise torch.OutOfMemoryError
    tried, scratch.pad = [], full
    for _ in range(2):
        past.clear()
        c = triton_matmul(a, b)
        print(len(asked), len(tried), tuple(c.shape), any(each is not None for each in past))
        tried.clear()
    matmul._launches.forget()
    for _ in range(2):
        past.clear()
        triton_matmul(a, b)
        print(len(tried), any(each is not None for each in past))
        tried.clear()
"""


def test_what_was_computed_of_copies_once_is_so_again_and_launched_past_triton_s_dispatch() -> None:
    assert printed(AGAIN) == [
        "2 (45, 33) True [False, False]",
        *["2 (45, 33) True [False, True]"] * 2,
        "4",
        *["4 1 (45, 33) False"] * 2,  # tried once a call, and what is launched instead is not kept
        *["1 False"] * 2,
    ]

from __future__ import annotations

import os
import subprocess
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
import torch
from tests.kernels.calls import launched_again
from tests.kernels.on_stand_in import printed

from flopwatch.kernels import copies, matmul, routes, scratch
from flopwatch.kernels.copies import Copying
from flopwatch.kernels.copy_kernel import Copies, first_columns, in_scratch, make_copies
from flopwatch.kernels.hopper_choice import product_config
from flopwatch.kernels.hopper_matmul import CONFIGS, HopperConfig
from flopwatch.kernels.hopper_rows import MOST_COLUMNS
from flopwatch.kernels.hopper_short import ShortConfig
from flopwatch.kernels.matmul import triton_matmul
from flopwatch.kernels.prepared import Prepared
from flopwatch.kernels.reference import matmul_reference
from flopwatch.kernels.scratch import (
    ALIGNMENT,
    DEPTH,
    is_aligned,
    is_worth_lines,
    rows_copy,
    scratch_copies,
    width_of,
)
from flopwatch.measure.numbers import difference
from flopwatch.poison import PoisonedAllocations

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.kernels.conftest import Normal

    from flopwatch.kernels.launch import Launched

OPERANDS: dict[str, Callable[[Normal], tuple[torch.Tensor, torch.Tensor]]] = {
    "odd rows": lambda normal: (normal(45, 71), normal(71, 33)),
    "an odd depth alone": lambda normal: (normal(45, 71), normal(71, 64)),
    "odd columns alone": lambda normal: (normal(45, 128), normal(128, 33)),
    "transposed": lambda normal: (normal(128, 45).T, normal(33, 128).T),
    "columns of an odd depth": lambda normal: (normal(45, 71), normal(33, 71).T),
    "one row, one column": lambda normal: (normal(1, 71), normal(71, 1)),
    "the same row for all": lambda normal: (normal(1, 71).expand(45, 71), normal(71, 33)),
    "a corner that starts in the middle of 16 bytes": lambda normal: (normal(64, 128)[3:48, 5:69], normal(64, 64)),
    "every other column": lambda normal: (normal(45, 140)[:, ::2], normal(70, 66)[:, ::2]),
}


def test_what_is_readable_is_not_copied(normal: Normal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copies, "is_worth_scratch", lambda *_sizes, **_launch: True)
    monkeypatch.setattr(copies, "copies_in_scratch", lambda *_operands: pytest.fail("copied"))
    a, b = normal(45, 72), normal(40, 72).T
    error = difference(triton_matmul(a, b, 32, 32, 32), matmul_reference(a, b)).max_diff_eps
    assert error is not None
    assert error <= 1.0


@pytest.fixture
def always_in_scratch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scratch, "SCRATCH_FROM", 0)
    monkeypatch.setattr(scratch, "SCRATCH_INTENSITY", 0)
    monkeypatch.setattr(scratch, "COPYING_INTENSITY", 0)


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
    assert copied[0].stride(1) == 1
    lies_by_columns = operands[1].stride(0) == 1 != operands[1].stride(1)
    assert copied[1].stride(0 if lies_by_columns else 1) == 1


@pytest.mark.parametrize(
    ("make", "height", "pitch", "width"),
    [
        (lambda x: x, 300, 304, 1),  # whole tiles and rest
        (lambda x: x[:, :264], 257, 272, 8),
        (lambda x: x[:, :270], 257, 270, 2),  # rows of the copy are as odd as those of the matrix
        (lambda x: x[:, 1:265], 257, 264, 8),  # begins within 16 bytes
        (lambda x: x.T, 280, 272, 1),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_copy_has_the_same_bits_and_zeros_around_them(
    make: Callable[[torch.Tensor], torch.Tensor], height: int, pitch: int, width: int, dtype: torch.dtype
) -> None:
    columns = 272 if width > 1 else 271
    bits = torch.randint(-(2**15), 2**15, (257, columns), dtype=torch.int16, generator=torch.Generator().manual_seed(3))
    matrix = make(bits.view(dtype))  # numbers that are none, of every kind, among them
    copy = rows_copy(matrix, height, pitch)
    assert width_of(copy.source_strides, copy.columns, copy.pitch) == width

    with PoisonedAllocations():
        copied = make_copies(Copies(a=copy, b=copy), matrix, matrix)

    rows, columns = matrix.shape
    for found in (copied.a.view(torch.int16), copied.b.view(torch.int16)):
        assert torch.equal(found[:rows, :columns], matrix.view(torch.int16))
        assert not found[rows:].any()
        assert not found[:, columns:].any()


@pytest.mark.parametrize("columns", [33, 40, 48])
def test_the_first_columns_are_copied_as_they_are(normal: Normal, columns: int) -> None:
    matrix = normal(45, 48)

    with PoisonedAllocations():
        first, _ = first_columns(matrix, columns)

    assert first.is_contiguous()
    assert torch.equal(first, matrix[:, :columns])


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

    monkeypatch.setattr(matmul, "make_copies", full)
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
    assert not is_worth(2504, 1200, 2488), "too little work"
    assert not is_worth(2048, 4096, 11000), "too few rows read what no cache holds"
    assert is_worth(4096, 4096, 11000)
    assert not is_worth(5008, 5008, 5008), "rows begin with sectors"
    assert is_worth(4104, 4104, 11008, by_columns=True)
    assert not is_worth(4104, 11008, 4104, by_columns=True), "columns begin with lines"
    assert is_worth(5000, 5000, 4096, stride=4104)
    assert not is_worth(5000, 4100, 5000, stride=4104, by_columns=True), "16 bytes end elsewhere"
    assert not is_worth(5000, 5000, 4096, stride=2**22 + 8), "32 bits do not count the bytes of 64 rows"


@pytest.mark.parametrize("by_columns", [False, True])
def test_b_is_copied_alone_where_the_rule_has_the_persistent_kernel(
    by_columns: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_hopper(monkeypatch)
    a, copy = (torch.empty(5000, pitch, dtype=torch.float16, device="meta")[:, :5000] for pitch in (5000, 5056))

    found = copies.copies_worth_making(a, a.T if by_columns else a, routed=True)

    assert isinstance(found, Copying)
    assert found.copies_b
    assert copies.copies_worth_making(a, copy.T if by_columns else copy, routed=True) is None, "and the copy not again"
    assert copies.copies_worth_making(a.T, a, routed=True) is None, "nor where A is read slowly by that kernel"


@pytest.mark.parametrize(
    ("shape", "config"),
    [((4095, 4097, 4099), HopperConfig), ((300, 16385, 16384), ShortConfig), ((777, 1234, 5678), ShortConfig)],
    ids=["persistent", "few rows", "short"],
)
def test_what_is_read_slowly_is_copied_in_one_launch(
    shape: tuple[int, int, int], config: type[HopperConfig | ShortConfig], monkeypatch: pytest.MonkeyPatch
) -> None:
    on_hopper(monkeypatch)
    m, n, k = shape
    a, b = (torch.empty(each, dtype=torch.float16, device="meta") for each in ((m, k), (k, n)))

    found = copies.copies_worth_making(a, b, routed=True)

    assert isinstance(found, Copying)
    assert isinstance(found.config, config)
    assert isinstance(copies.copies_worth_making(a, b, routed=False), Copies), "blocks were given"


def test_a_launch_of_its_own_for_copies_is_worth_it_for_more_rows_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    on_hopper(monkeypatch)

    def found(m: int, *, routed: bool) -> Copying | Copies | None:
        a, b = (torch.empty(each, dtype=torch.float16, device="meta") for each in ((m, 8191), (8191, 8191)))
        return copies.copies_worth_making(a, b, routed=routed)

    assert isinstance(found(160, routed=True), Copying)
    assert found(160, routed=False) is None
    assert found(130, routed=True) is None


def test_what_maps_describe_is_left_to_what_it_took_where_few_rows_read_it(monkeypatch: pytest.MonkeyPatch) -> None:
    on_hopper(monkeypatch)
    a, b = (torch.empty(each, dtype=torch.float16, device="meta") for each in ((200, 4104), (4099, 8192)))

    assert copies.copies_worth_making(a[:, :4099], b, routed=True) is None


def test_a_tile_is_chosen_as_what_is_multiplied_lies(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of copies begin with lines, and those of what is multiplied as it is wherever they do; none are apart."""
    on_hopper(monkeypatch)
    asked: list[tuple[bool, bool]] = []

    def noted(m: int, n: int, k: int, *, packed: bool, in_lines: bool, processors: int, by_columns: bool) -> object:
        asked.append((packed, in_lines))
        return product_config(m, n, k, packed=packed, in_lines=in_lines, processors=processors, by_columns=by_columns)

    monkeypatch.setattr(routes, "product_config", noted)
    for m, n, k in ((777, 1234, 5678), (1000, 1001, 1000)):
        a, weight = (torch.empty(each, dtype=torch.float16, device="meta") for each in ((m, k), (n, k)))
        copies.copies_worth_making(a, weight.T, routed=True)

    assert asked == [(False, True), (False, False)]


def test_what_maps_describe_but_for_c_is_stored_row_by_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is copied then; where the rule has neither kernel for Hopper that does so, the plain one is taken."""
    on_hopper(monkeypatch)

    def found(m: int, n: int, k: int, *, by_columns: bool = True, routed: bool = True) -> Copying | Copies | None:
        a, weight = (torch.empty(each, dtype=torch.float16, device="meta") for each in ((m, k), (n, k)))
        b = weight.T if by_columns else torch.empty(k, n + 8 - n % 8, dtype=torch.float16, device="meta")[:, :n]
        return copies.copies_worth_making(a, b, routed=routed)

    vocabulary = found(4096, 50257, 768)
    assert isinstance(vocabulary, Copying)
    assert isinstance(vocabulary.config, HopperConfig)
    assert not vocabulary.copies_b
    for by_columns in (False, True):
        short = found(1000, 1001, 1000, by_columns=by_columns)
        assert isinstance(short, Copying)
        assert isinstance(short.config, ShortConfig)
        assert short.config.row_step == 1
    assert found(4096, 50264, 768) is None, "maps describe all of it"
    assert found(4096, 50257, 768, routed=False) is None
    assert found(128, 50257, 768) is None, "few rows"
    assert found(50257, 129, 768) is None, "few columns"
    assert isinstance(found(4096, 50257, 770), Copying), "operands are copied, too"
    for m in (300, 4096):  # few rows, too: nothing is copied
        assert isinstance(found(m, 50257, 4096, by_columns=False), Copying), "what the plain kernel reads slowly"


@pytest.mark.parametrize(("more", "in_one_launch"), [(-1, True), (1, False), (8, True)])
def test_what_is_too_wide_to_be_stored_row_by_row_is_copied_first(
    more: int, in_one_launch: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_hopper(monkeypatch)
    shapes = (4095, 4099), (4099, MOST_COLUMNS + more)
    a, b = (torch.empty(each, dtype=torch.float16, device="meta") for each in shapes)

    assert isinstance(copies.copies_worth_making(a, b, routed=True), Copying if in_one_launch else Copies)


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


def test_what_copies_operands_is_launched_with_what_was_decided_and_kept(
    normal: Normal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And where there is no memory for copies, the plain kernel is launched, and that is not kept."""
    decided = Copying(config=CONFIGS["128x128x64 s6 w2 c2/2 g8 whole"], copies_b=True)
    a, b = normal(45, 71), normal(71, 33)
    asked: list[object] = []
    kept: list[torch.Tensor] = []

    def prepare(*given: object, copies_b: bool) -> SimpleNamespace:
        asked.append((*given[:2], given[3], copies_b))
        return SimpleNamespace(launch=lambda: "launched")

    def full(*_given: object, copies_b: bool) -> None:
        asked.append(copies_b)
        raise torch.OutOfMemoryError

    monkeypatch.setattr(matmul, "copies_worth_making", lambda *_, **__: decided)
    monkeypatch.setattr(matmul, "prepare_hopper_copying", prepare)
    monkeypatch.setattr(
        matmul._launches,
        "keep",
        lambda key, launched, out: kept.append(out) if key and launched == "launched" else None,
    )

    c = triton_matmul(a, b, 32, 32, 32)

    assert asked == [(a, b, decided.config, True)]
    assert [each is c for each in kept] == [True]
    monkeypatch.setattr(matmul, "prepare_hopper_copying", full)
    for _ in range(2):
        asked.clear()
        error = difference(triton_matmul(a, b, 32, 32, 32), matmul_reference(a, b)).max_diff_eps
        assert error is not None
        assert error <= 1.0
        assert asked == [True], "tried again by the next call"
    assert len(kept) == 1


@pytest.mark.parametrize("short_of", ["routed_product", "again"])
def test_what_is_launched_without_memory_for_a_workspace_is_not_kept(
    short_of: str, normal: Normal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next call may have it."""
    keys: list[object] = []

    def full(*_given: object) -> None:
        raise torch.OutOfMemoryError

    monkeypatch.setattr(matmul, "routed_product", lambda *_: None)
    monkeypatch.setattr(matmul, "_launch", lambda *_: "launched")
    monkeypatch.setattr(matmul._launches, "keep", lambda key, *_: keys.append(key))
    a, b = normal(32, 64), normal(64, 32)
    triton_matmul(a, b)
    monkeypatch.setattr(matmul if short_of == "routed_product" else matmul._launches, short_of, full)
    triton_matmul(a, b)

    assert [key is None for key in keys] == [False, True]


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("shape", "by_columns", "launches"),
    [
        ((320, 2049, 4099), False, 3),  # in given blocks
        ((320, 2049, 4099), True, 3),
        ((320, 2048, 4099), False, 2),  # with nothing to cut off
        ((320, 2049, 4099), False, 1),
        ((777, 1234, 5678), False, 1),  # which copies, multiplies, and leaves out
        ((777, 1235, 5679), True, 1),
        ((4095, 4097, 515), False, 1),
        ((2504, 2504, 2504), False, 1),  # B alone
        ((4104, 4104, 4104), True, 1),
    ],
)
def test_what_is_launched_again_copies_what_operands_have_then(
    shape: tuple[int, int, int],
    by_columns: bool,
    launches: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if torch.cuda.get_device_capability() != (9, 0) and launches == 1:
        pytest.skip("the kernel for Hopper copies")
    m, n, k = shape
    of_b = (n, k) if by_columns else (k, n)
    a, b = (torch.randn(each, device="cuda").half() for each in ((m, k), of_b))
    b = b.T if by_columns else b
    blocks = (64, 128, 64) if launches > 1 else ()
    triton_matmul(a, b, *blocks)
    for x in (a, b):
        x.normal_()
    again = launched_again(monkeypatch)

    error = difference(triton_matmul(a, b, *blocks), matmul_reference(a, b)).max_diff_eps

    assert error is not None
    assert error <= 1.0
    assert len(again) == launches


#: Compiles what copies for sm_90. Prints of each how wide its loads and stores are, how many neighbours a thread loads,
#: and how many tensors of 32-bit offsets are multiplied.
COMPILED = r"""
import re
import torch
from flopwatch.kernels.copy_kernel import first_columns, in_scratch
from flopwatch.static import pretend_gpu

def empty(*shape):
    return torch.empty(shape, dtype=torch.float16, device="cuda")

for name, call in {
    "odd rows": lambda: in_scratch(empty(777, 5679), empty(5679, 1235)),
    "even rows": lambda: in_scratch(empty(777, 5678), empty(5678, 1234)),
    "rows of fours": lambda: in_scratch(empty(777, 5676), empty(5676, 1236)),
    "rows of eights": lambda: in_scratch(empty(777, 5672), empty(5672, 1240)),
    "columns of eights": lambda: in_scratch(empty(777, 5672), empty(1240, 5672).T),
    "even rows, not from 16 bytes on": lambda: in_scratch(empty(777, 5678)[1:], empty(5678, 1234)[1:-1, 1:-1]),
    "first columns": lambda: first_columns(empty(777, 1248), 1234),
}.items():
    with pretend_gpu("h200", tensors="meta") as recorder:
        call()
    (launch,) = recorder.launches
    asm = recorder.compiled[launch.binary_hash].asm
    loads, stores = (sorted(set(re.findall(rf"{kind}\.global\.([\w.]*b\d+)", asm["ptx"]))) for kind in ("ld", "st"))
    layouts = dict(re.findall(r"(#\w+) = #ttg.blocked<{sizePerThread = \[([\d, ]+)\]", asm["ttgir"]))
    loaded = {layouts[layout] for layout in re.findall(r"tt\.load .*, (#\w+)>", asm["ttgir"])}
    short = re.findall(r"arith\.muli .*tensor<.*xi32>", asm["ttir"])
    print(name, "|", *loads, "|", *stores, "|", *loaded, "|", len(short))
"""


def test_what_copies_loads_and_stores_as_wide_as_it_can() -> None:
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    printed = subprocess.check_output([sys.executable, "-c", COMPILED], env=environment, text=True)

    assert printed.splitlines() == [
        "odd rows | b16 | v4.b32 | 1, 1 | 0",  # threads beside each other load what is beside each other
        "even rows | b32 | v4.b32 | 1, 2 | 0",
        "rows of fours | v2.b32 | v4.b32 | 1, 4 | 0",
        "rows of eights | v4.b32 | v4.b32 | 1, 8 | 0",
        "columns of eights | v4.b32 | v4.b32 | 1, 8 | 0",
        "even rows, not from 16 bytes on | b16 | v4.b32 | 1, 1 | 0",
        "first columns | v4.b32 | b32 | 1, 8 | 0",
    ]


def test_what_is_launched_again_is_handed_what_was_launched(normal: Normal, monkeypatch: pytest.MonkeyPatch) -> None:
    prepared: list[Prepared] = []
    launched_so = Prepared.launch

    def noted(self: Prepared) -> Launched:
        prepared.append(self)
        return launched_so(self)

    monkeypatch.setattr(Prepared, "launch", noted)

    def is_arranged(made: Launched, *addresses: int) -> bool:
        """Tell whether the kernel's pointers are made of these, as those were that it was launched with."""
        given = [each.data_ptr() for each in prepared[-1].arguments if isinstance(each, torch.Tensor)]
        assert made.arrange is not None
        return made.arrange(0, *addresses)[0] == tuple(given)

    a, b = normal(45, 71), normal(71, 33)
    of_a, of_b = scratch_copies(a, b)
    copied = make_copies(Copies(a=of_a, b=of_b), a, b)
    memory = copied.memory.data_ptr()

    assert is_arranged(copied.launched, a.data_ptr(), b.data_ptr(), memory)
    assert copied.a.data_ptr() == memory
    assert copied.b.data_ptr() == memory + copied.b_begins
    assert copied.b_begins == of_a.elements * 2

    first, launched = first_columns(copied.b, 33)

    assert is_arranged(launched, copied.b.data_ptr(), first.data_ptr())


#: On a stand-in for a GPU: products by way of copies, of which the second one finds out nothing any more. Prints how
#: many were found out, how each product lies, what was launched past Triton's dispatch, and how much of it.
AGAIN = """
import sys
from dataclasses import replace
import torch
from benchmarks_host import stand_in
from flopwatch.kernels import launch, scratch, triton_matmul

matmul = sys.modules["flopwatch.kernels.matmul"]
scratch.SCRATCH_FROM = scratch.SCRATCH_INTENSITY = scratch.COPYING_INTENSITY = 0
asked, past, tried = [], [], []
worth, launched, make = matmul.copies_worth_making, launch._launched, matmul.make_copies

def noted(*given):
    past.append(given[0].function.__name__)
    return launched(*given)

def made(*given):
    tried.append("make")
    copied = make(*given)
    a, b = (each.as_subclass(stand_in.StandInTensor) for each in (copied.a, copied.b))
    return replace(copied, a=a, b=b)

def full(*given):
    tried.append("full")
    raise torch.OutOfMemoryError

matmul.copies_worth_making = lambda a, b, **rest: asked.append(a.shape) or worth(a, b, **rest)
matmul.make_copies, launch._launched = made, noted

def multiplied():
    past.clear(), tried.clear(), asked.clear()
    c = triton_matmul(a, b)
    print(len(asked), tuple(c.shape), c.is_contiguous(), *tried, *past)

def chained():  # where the copy of B begins in what is kept last
    chain = list(matmul._launches._chains.values())[-1]
    print(chain.second_begins)

with stand_in.stand_in_gpu():
    for b_columns in (33, 64):  # of 64 there is nothing to cut off
        a, b = stand_in.tensor(45, 71), stand_in.tensor(71, b_columns)
        for _ in range(3):
            multiplied()
        chained()
    matmul._launches.forget()
    multiplied()
    matmul._launches._kept.clear()  # as with too many others
    for _ in range(2):
        multiplied()
    # Without memory for copies, once they are kept, and when they are new.
    matmul.make_copies, launch._launched = full, full
    multiplied()
    launch._launched = noted
    matmul._launches.forget()
    for _ in range(2):
        multiplied()
"""


def test_what_was_computed_of_copies_once_is_so_again_and_launched_past_triton_s_dispatch() -> None:
    def first(columns: int) -> str:
        return f"2 (45, {columns}) True make"

    def again(columns: int, *kernels: str) -> str:
        return " ".join((f"0 (45, {columns}) True copy_kernel matmul_kernel", *kernels))

    assert printed(AGAIN) == [
        first(33),
        *[again(33, "copy_kernel")] * 2,
        str(45 * 128 * 2),
        first(64),
        *[again(64)] * 2,
        str(45 * 128 * 2),
        *[first(64)] * 2,
        again(64),
        "1 (45, 64) True full",  # tried once, and what is launched instead is not kept
        *["1 (45, 64) True full"] * 2,
    ]

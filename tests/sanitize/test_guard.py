# mypy: disable-error-code="no-untyped-def,untyped-decorator"
# ruff: noqa: ANN001, ANN202, N803 - a kernel's arguments are Triton's own types, checked by its compiler


from __future__ import annotations

import inspect
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from flopwatch.sanitize.accesses import _MACHINERY
from flopwatch.sanitize.findings import Access, Kind
from flopwatch.sanitize.guard import guarded
from flopwatch.static.triton_version import supported

if TYPE_CHECKING:
    from collections.abc import Callable

    from flopwatch.sanitize.accesses import Guard

pytestmark = [
    pytest.mark.skipif(
        os.environ.get("TRITON_INTERPRET") != "1", reason="kernels are not interpreted where there is a GPU"
    ),
    pytest.mark.usefixtures("cuda"),
]


@triton.jit
def _copy(x, out, shift, n, SIZE: tl.constexpr):
    i = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    a = tl.load(x + i + shift, mask=i < n)
    tl.store(out + i, a, mask=i < n)


@triton.jit
def _read(x, i):
    return tl.load(x + i)


@triton.jit
def _copy_by_function(x, out, shift, SIZE: tl.constexpr):
    i = tl.arange(0, SIZE)
    tl.store(out + i, _read(x, i + shift))


@triton.jit
def _copy_pair(pair, out, SIZE: tl.constexpr):
    i = tl.arange(0, SIZE)
    tl.store(out + i, tl.load(pair[0] + i) + tl.load(pair[1] + i + 1))


@triton.jit
def _choose(x, y, out, SIZE: tl.constexpr):
    i = tl.arange(0, SIZE)
    half: tl.constexpr = SIZE // 2
    tl.store(out + i, tl.load(tl.where(i < half, x + i, y + (i - half))))


@triton.jit
def _count(x, shift, SIZE: tl.constexpr):
    tl.atomic_add(x + tl.arange(0, SIZE) + shift, 1)


@triton.jit
def _last_of_all(x, total, arrived, SIZE: tl.constexpr):
    i = tl.arange(0, SIZE)
    program = tl.program_id(0)
    tl.store(x + program, program + 1)
    if tl.atomic_add(arrived, 1) == SIZE - 1:
        tl.store(total, tl.sum(tl.load(x + i)))


@triton.jit
def _through_table(table, out, SIZE: tl.constexpr):
    i = tl.arange(0, SIZE)
    x = tl.load(table).to(tl.pointer_type(tl.int32))
    tl.store(out + i, tl.load(x + i))


@triton.jit
def _copy_block(x, out, n, SIZE: tl.constexpr, CHECK: tl.constexpr):
    source = tl.make_block_ptr(x, (n,), (1,), (0,), (SIZE,), (0,))
    target = tl.make_block_ptr(out, (n,), (1,), (0,), (SIZE,), (0,))
    tl.store(target, tl.load(source, boundary_check=CHECK), boundary_check=(0,))


@triton.jit
def _copy_descriptor(x, out, row, SIZE: tl.constexpr):
    i = tl.arange(0, SIZE)
    tl.store(out + i[:, None] * SIZE + i[None, :], x.load([row, 0]))


def numbers(*shape: int) -> torch.Tensor:
    return torch.arange(int(torch.tensor(shape).prod()), dtype=torch.int32, device="cuda").reshape(shape)


def found(guard: Guard) -> list[tuple[Kind, Access | None, str, int]]:
    return [(finding.kind, finding.access, finding.argument, finding.count) for finding in guard.findings]


def line_of(kernel: Callable[..., Any], text: str) -> int:
    lines, first = inspect.getsourcelines(kernel.fn)  # type: ignore[attr-defined] # a kernel of Triton's
    return first + next(number for number, line in enumerate(lines) if text in line)


def test_a_sound_kernel_has_no_fault_and_computes_what_it_does_otherwise() -> None:
    with guarded() as guard:
        x = numbers(100)
        out = torch.empty_like(x)
        _copy[(7,)](x, out, 0, 100, SIZE=16)
        guard.result(out)

    assert torch.equal(out, x)
    assert (found(guard), guard.notes, guard.kernels) == ([], [], ["_copy"])


@pytest.mark.parametrize(("shift", "count"), [(1, 1), (-3, 3), (4000, 100), (-(1 << 28), 100)])
def test_a_stray_read_is_found_however_far_it_goes(shift: int, count: int) -> None:
    with guarded() as guard:
        x = numbers(100)
        _copy[(7,)](x, torch.empty_like(x), shift, 100, SIZE=16)

    (finding,) = guard.findings
    assert found(guard) == [(Kind.OUT_OF_BOUNDS, Access.READ, "x", count)]
    assert (finding.file, finding.line) == (__file__, line_of(_copy, "tl.load"))
    assert finding.element_bytes == 4


def test_a_stray_into_the_memory_of_another_argument_is_the_first_ones() -> None:
    with guarded() as guard:
        base = numbers(2, 100)
        _copy[(7,)](base[0], torch.empty_like(base[0]), 1, 100, SIZE=16)

    assert found(guard) == [(Kind.OUTSIDE_VIEW, Access.READ, "x", 1)]
    assert guard.findings[0].what == "program (6, 0, 0) reads 4 bytes, the first byte after x, int32[100]"


def test_a_stray_write_is_found_and_not_done() -> None:
    with guarded() as guard:
        x, base = numbers(100), torch.zeros(100, dtype=torch.int32, device="cuda")
        _copy[(7,)](x, base[:90], 0, 100, SIZE=16)
        _copy[(7,)](x, base[:90].clone(), 0, 100, SIZE=16)

    assert found(guard) == [
        (Kind.OUTSIDE_VIEW, Access.WRITE, "out", 10),
        (Kind.OUT_OF_BOUNDS, Access.WRITE, "out", 10),
    ]


def test_what_a_mask_leaves_out_may_be_anywhere() -> None:
    with guarded() as guard:
        x = numbers(100)
        _copy[(1000,)](x, torch.empty_like(x), 0, 100, SIZE=16)

    assert found(guard) == []


def test_a_function_that_the_kernel_calls_is_the_place() -> None:
    with guarded() as guard:
        x = numbers(16)
        _copy_by_function[(1,)](x, torch.empty_like(x), 2, SIZE=16)

    (finding,) = guard.findings
    assert (finding.kernel, finding.line) == ("_copy_by_function", line_of(_read, "tl.load"))


def test_a_tensor_of_a_tuple_is_named_by_its_place() -> None:
    with guarded() as guard:
        x = numbers(16)
        _copy_pair[(1,)]((x, x.clone()), torch.empty_like(x), SIZE=16)

    assert found(guard) == [(Kind.OUT_OF_BOUNDS, Access.READ, "pair[1]", 1)]


def test_reading_what_nobody_wrote_is_found() -> None:
    with guarded() as guard:
        x = torch.empty(100, dtype=torch.int32, device="cuda")
        x[:30] = 1
        out = torch.empty_like(x)
        _copy[(7,)](x, out, 0, 100, SIZE=16)

    assert found(guard) == [(Kind.UNINITIALISED, Access.READ, "x", 70)]


def test_what_a_kernel_wrote_the_next_one_may_read() -> None:
    with guarded() as guard:
        x = numbers(100)
        half, out = torch.empty_like(x), torch.empty_like(x)
        _copy[(7,)](x, half, 0, 50, SIZE=16)
        _copy[(7,)](half, out, 0, 60, SIZE=16)

    assert found(guard) == [(Kind.UNINITIALISED, Access.READ, "x", 10)]


def test_counting_from_what_nobody_wrote_is_found() -> None:
    with guarded() as guard:
        _count[(2,)](torch.empty(16, dtype=torch.int32, device="cuda"), 0, SIZE=16)
        counts = torch.zeros(16, dtype=torch.int32, device="cuda")
        _count[(3,)](counts, 0, SIZE=16)
        _count[(1,)](counts, 1, SIZE=16)

    assert found(guard) == [
        (Kind.UNINITIALISED, Access.ATOMIC, "x", 16),
        (Kind.OUT_OF_BOUNDS, Access.ATOMIC, "x", 1),
    ]
    assert counts.tolist() == [3] + [4] * 15


def test_what_a_hook_wrote_before_the_kernel_the_kernel_may_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_count, "pre_run_hooks", [lambda x, **_: x.zero_()])
    with guarded() as guard:
        counts = torch.empty(16, dtype=torch.int32, device="cuda")
        _count[(3,)](counts, shift=0, SIZE=16)

    assert counts.tolist() == [3] * 16
    assert found(guard) == []


def test_a_package_named_like_triton_is_the_users() -> None:
    packages = Path(triton.__file__).parents[1]

    assert str(packages / "triton" / "language" / "core.py").startswith(_MACHINERY)
    assert not str(packages / "triton_kernels" / "matmul.py").startswith(_MACHINERY)


def test_a_result_with_elements_that_nobody_wrote_is_found() -> None:
    with guarded() as guard:
        x = numbers(100)
        out = torch.empty_like(x)
        _copy[(6,)](x, out, 0, 100, SIZE=16)
        guard.result((x, [out]))

    assert found(guard) == [(Kind.NEVER_WRITTEN, None, "", 4)]
    assert guard.findings[0].kernel == "_copy"


def test_programs_that_read_what_others_write_race() -> None:
    with guarded() as guard:
        x = numbers(100)
        _copy[(7,)](x, x, 1, 99, SIZE=16)

    (race,) = guard.findings
    assert (race.kind, race.line) == (Kind.RACE, line_of(_copy, "tl.store"))
    assert race.what.endswith("where another program or lane has read, or written another value, in this launch")


def test_a_program_that_reads_what_another_wrote_is_told_so() -> None:
    with guarded() as guard:
        x = numbers(100)
        _copy[(6,)](x, x, -1, 96, SIZE=16)

    (race,) = [finding for finding in guard.findings if finding.access is Access.READ and finding.kind is Kind.RACE]
    assert race.what.endswith("where another program or lane has written in this launch")


def test_programs_that_atomics_may_order_are_not_said_to_race() -> None:
    with guarded() as guard:
        x, total, arrived = (torch.zeros(8, dtype=torch.int32, device="cuda") for _ in range(3))
        _last_of_all[(8,)](x, total, arrived, SIZE=8)

    assert int(total[0]) == 36
    assert found(guard) == []
    assert guard.notes == ["_last_of_all uses atomics, which may order its programs: races were not looked for"]


def test_atomics_of_a_launch_that_does_not_race_are_no_note() -> None:
    with guarded() as guard:
        _count[(1,)](torch.zeros(8, dtype=torch.int32, device="cuda"), 0, SIZE=8)
    assert (guard.kernels, guard.findings, guard.notes) == (["_count"], (), [])


def test_one_access_may_be_to_several_arguments() -> None:
    x, y = numbers(8), 100 + numbers(8)
    out = torch.zeros(16, dtype=torch.int32, device="cuda")
    with guarded() as guard:
        _choose[(1,)](x, y, out, SIZE=16)
    assert out.tolist() == [*range(8), *range(100, 108)]
    assert guard.findings == ()


def test_a_pointer_from_a_table_is_followed_and_told() -> None:
    with guarded() as guard:
        x, out = numbers(16), torch.empty(16, dtype=torch.int32, device="cuda")
        _through_table[(1,)](torch.tensor([x.data_ptr()], device="cuda"), out, SIZE=16)

    assert torch.equal(out, x)
    assert found(guard) == []
    assert guard.notes == ["_through_table makes pointers of integers: what it accesses through those was not checked"]


@pytest.mark.skipif(supported(triton.__version__) >= (3, 9), reason="Triton 3.9 has no block pointers")
@pytest.mark.filterwarnings("ignore:tl.make_block_ptr is deprecated")
@pytest.mark.parametrize(("check", "count"), [((0,), 0), ((), 6)])
def test_a_block_pointer_without_a_check_strays(check: tuple[int, ...], count: int) -> None:
    with guarded() as guard:
        x = numbers(10)
        _copy_block[(1,)](x, torch.empty_like(x), 10, SIZE=16, CHECK=check)

    assert sum(finding.count for finding in guard.findings) == count


@pytest.mark.parametrize(("rows", "expected"), [(32, []), (64, [(Kind.OUT_OF_BOUNDS, Access.READ, "x", 128)])])
def test_a_descriptor_that_tells_more_rows_than_there_are_strays(rows: int, expected: list[Any]) -> None:
    with guarded() as guard:
        x = numbers(32, 16)
        out = torch.empty(16, 16, dtype=torch.int32, device="cuda")
        _copy_descriptor[(1,)](TensorDescriptor(x, [rows, 16], [16, 1], [16, 16]), out, 24, SIZE=16)

    assert found(guard) == expected


def test_nothing_is_watched_afterwards() -> None:
    x = numbers(100)
    with guarded() as guard:
        pass
    _copy[(7,)](x, torch.zeros_like(x), 1, 100, SIZE=16)

    assert (found(guard), guard.kernels) == ([], [])

from __future__ import annotations

import pytest

from flopwatch.errors import ExitCode
from flopwatch.model import Failure, Mark, Memory, Numbers, worst_of
from flopwatch.verdict import Side, exit_code, judge_memory, judge_numbers

CEILING = 8.0


def side(eps: float | None, *, finite: bool = True, dtype: str = "float16") -> Side:
    diff = None if eps is None else eps * 1e-3
    return Side(numbers=Numbers(dtype=dtype, max_diff=diff, max_diff_eps=eps, finite=finite, bitwise="00"))


FAILED = Side(failure=Failure(kind="CompilationError", message="at 3:4: no\nmore"))
MISSING = Side(failure=Failure(kind="SuiteError", message="no suite 'Matmul'"))


@pytest.mark.parametrize(
    ("base", "head", "mark"),
    [
        (side(0.5), side(0.5), None),
        (side(0.5), side(1.9), None),  # both within rounding
        (side(0.5), side(2.1), Mark.BROKEN),  # planted: twice the floor
        (side(3.0), side(5.9), None),
        (side(3.0), side(6.1), Mark.BROKEN),
        (side(7.9), side(8.1), Mark.BROKEN),  # planted: past the ceiling
        (side(9.0), side(9.0), None),  # wrong already on base: not this change's doing
        (side(0.5), side(None, finite=False), Mark.BROKEN),  # planted: NaN
        (side(None, finite=False), side(None, finite=False), None),
        (side(0.5), FAILED, Mark.BROKEN),
        (FAILED, FAILED, None),
        (MISSING, side(0.5), None),
        (MISSING, side(8.1), Mark.BROKEN),  # a new case must meet the ceiling too
        (MISSING, side(None, finite=False), Mark.BROKEN),
        (FAILED, side(0.5), Mark.UNSURE),  # base failed, perhaps by accident: nothing is proved
        (side(0.5), side(0.5, dtype="bfloat16"), Mark.BROKEN),  # planted: another precision
    ],
)
def test_numbers(base: Side, head: Side, mark: Mark | None) -> None:
    assert judge_numbers(base, head, ceiling_eps=CEILING)[0] is mark


def test_a_broken_case_says_why() -> None:
    assert judge_numbers(side(0.5), FAILED, ceiling_eps=CEILING)[1] == (
        "fails on head, runs on base (CompilationError: at 3:4: no)"
    )


def test_a_case_that_fails_on_base_alone_says_why() -> None:
    assert judge_numbers(FAILED, side(0.5), ceiling_eps=CEILING)[1] == (
        "runs on head, fails on base (CompilationError: at 3:4: no)"
    )


def test_equal_bits_need_no_reference() -> None:
    assert judge_numbers(Side(bits=("a", "b")), Side(bits=("a", "b")), ceiling_eps=CEILING) == (None, "")


def test_other_bits_without_a_reference_are_not_compared() -> None:
    mark, reason = judge_numbers(Side(bits=("a",)), Side(bits=("b",)), ceiling_eps=CEILING)
    assert (mark, reason) == (None, "not compared: numbers not checked")


def test_other_bits_whose_reference_fails_are_unsure() -> None:
    base, head = (Side(bits=(bits,), failure=FAILED.failure) for bits in "ab")
    assert judge_numbers(base, head, ceiling_eps=CEILING)[0] is Mark.UNSURE


def test_the_worst_seed_counts_and_one_that_is_not_finite_is_worst() -> None:
    right, wrong, lost = (found.numbers for found in (side(0.5), side(3.0), side(None, finite=False)))
    assert right is not None
    assert wrong is not None
    assert lost is not None
    assert worst_of([right, wrong, right]) is wrong
    assert worst_of([wrong, lost, right]) is lost


def memory(peak: int, growth: float) -> Side:
    return Side(memory=Memory(peak_bytes=peak, growth_bytes=growth))


@pytest.mark.parametrize(
    ("base", "head", "mark", "reason"),
    [
        (memory(1024, 0), memory(1024, 0), None, ""),
        (memory(1024, 0), memory(1024, 1), Mark.BROKEN, "each call leaves 1 B behind, was 0 B"),  # planted: a leak
        (memory(1024, 0), memory(1024, 0.125), Mark.BROKEN, "each call leaves 0.125 B behind, was 0 B"),
        (memory(1024, 64), memory(1024, 64), None, ""),  # leaks already on base: not this change's doing
        (memory(1024, -64), memory(1024, 0), None, ""),
        (memory(1024, 0), memory(2048, 0), None, "peak memory 2 KiB, was 1 KiB"),
        (memory(2048, 0), memory(1024, 0), None, ""),
        (memory(1024, 0), Side(), None, ""),
    ],
)
def test_memory(base: Side, head: Side, mark: Mark | None, reason: str) -> None:
    assert judge_memory(base, head) == (mark, reason)


@pytest.mark.parametrize(
    ("marks", "broken_code", "undecided_code", "code"),
    [
        ([Mark.SAME, Mark.FASTER, None], 0, 0, ExitCode.OK),
        ([None], 0, 0, ExitCode.OK),
        ([Mark.SAME, Mark.UNSURE], 0, 0, ExitCode.UNDECIDED),
        ([Mark.UNSURE, Mark.SLOWER], 0, 0, ExitCode.REGRESSED),
        ([Mark.BROKEN], 0, 0, ExitCode.REGRESSED),
        ([Mark.SAME], 1, 0, ExitCode.REGRESSED),
        ([Mark.SAME], 0, 1, ExitCode.UNDECIDED),
        ([], 0, 0, ExitCode.UNDECIDED),
    ],
)
def test_exit_codes(marks: list[Mark | None], broken_code: int, undecided_code: int, code: ExitCode) -> None:
    found = exit_code(marks, broken_code=broken_code, undecided_code=undecided_code, compared=bool(marks))
    assert found is code


def test_a_run_in_which_nothing_was_compared_is_undecided() -> None:
    assert exit_code([None], broken_code=0, undecided_code=0, compared=False) is ExitCode.UNDECIDED

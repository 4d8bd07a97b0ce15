from __future__ import annotations

import pytest

from flopwatch.errors import ExitCode
from flopwatch.model import Case, Failure, Mark, Numbers
from flopwatch.stats import estimate
from flopwatch.verdict import CaseVerdict, Side, exit_code, judge_numbers, judge_time, margin_of

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


@pytest.mark.parametrize(
    ("percent", "mark"),
    [(0.0, Mark.SAME), (0.3, Mark.SAME), (0.9, Mark.UNSURE), (5.0, Mark.SLOWER), (-5.0, Mark.FASTER)],
)
def test_time(percent: float, mark: Mark) -> None:
    centre = margin_of(percent)
    ratios = [centre + jitter for jitter in (-0.001, -0.0005, 0.0, 0.0005, 0.001)]
    assert judge_time(estimate(ratios, cases=14, looks=2), margin=margin_of(0.5)) is mark


def test_noise_is_unsure_not_slower() -> None:
    assert judge_time(estimate([0.1, -0.02, 0.08, 0.0, 0.03], cases=14), margin=margin_of(0.5)) is Mark.UNSURE


def verdict(mark: Mark | None, *, compared: bool = True) -> CaseVerdict:
    base = side(0.5) if compared else MISSING
    return CaseVerdict(case=Case(suite="Toy", values=("flopwatch",)), base=base, head=side(0.5), mark=mark)


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
    verdicts = [verdict(mark) for mark in marks]
    assert exit_code(verdicts, broken_code=broken_code, undecided_code=undecided_code) is code


def test_a_run_in_which_nothing_was_compared_is_undecided() -> None:
    assert exit_code([verdict(None, compared=False)], broken_code=0, undecided_code=0) is ExitCode.UNDECIDED
    some = [verdict(None, compared=False), verdict(Mark.SAME)]
    assert exit_code(some, broken_code=0, undecided_code=0) is ExitCode.OK

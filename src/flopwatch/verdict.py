"""From measurements to marks: pure functions, each rule with its reason."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from flopwatch.errors import ExitCode
from flopwatch.model import Case, Failure, Mark, Numbers
from flopwatch.stats import SAME_WITHIN, Effect

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Head's error may be this many times base's before the numbers count as broken, both taken as at least
#: `NUMBERS_FLOOR_EPS` (rounding the result once costs half an epsilon).
NUMBERS_FACTOR = 2.0
NUMBERS_FLOOR_EPS = 1.0
#: Failures which say that base's checkout does not have what the suite calls.
MISSING_ON_BASE = frozenset({"SuiteError", "ImportError", "ModuleNotFoundError", "AttributeError"})


@dataclass(frozen=True, kw_only=True, slots=True)
class Side:
    """What one side of a gate says about a case: numbers, or why there are none; and its time, where measured."""

    numbers: Numbers | None = None
    seconds: float | None = None
    failure: Failure | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class CaseVerdict:
    """The verdict on one case; `mark` is None where head could not be compared with base."""

    case: Case
    base: Side
    head: Side
    mark: Mark | None
    reason: str = ""
    effect: Effect | None = None
    method: str = ""
    log_ratios: tuple[float, ...] = ()

    @property
    def compared(self) -> bool:
        """Whether both sides ran, so that head's numbers, at least, were held against base's."""
        return self.base.numbers is not None and self.head.numbers is not None


def judge_numbers(base: Side, head: Side, *, ceiling_eps: float) -> tuple[Mark | None, str]:
    """Judge a case by whether it runs and by its distance from the reference.

    Args:
        base: the one side.
        head: the other, which is on trial.
        ceiling_eps: the distance past which a result is wrong, in units of epsilon times the reference's magnitude.

    Returns:
        BROKEN or None, and the reason in words.
    """
    if head.failure is not None:
        cause = f"{head.failure.kind}: {head.failure.message.splitlines()[0]}"
        if base.failure is not None:
            return None, f"not compared: runs on neither side ({cause})"
        return Mark.BROKEN, f"fails on head, runs on base ({cause})"
    if head.numbers is None:
        return None, "not compared: numbers not checked"
    head_eps = _eps(head.numbers)
    if base.numbers is None:
        return _judge_new(head.numbers, base, ceiling_eps=ceiling_eps)
    base_eps = _eps(base.numbers)
    if head.numbers.dtype != base.numbers.dtype:
        return Mark.BROKEN, f"returns {head.numbers.dtype}, was {base.numbers.dtype}"
    if not head.numbers.finite and base.numbers.finite:
        return Mark.BROKEN, "NaN or infinity where base has none"
    if head_eps > ceiling_eps >= base_eps:
        return Mark.BROKEN, f"error {head_eps:.3g} eps, was {base_eps:.3g}, ceiling {ceiling_eps:g}"
    if head_eps > NUMBERS_FACTOR * max(base_eps, NUMBERS_FLOOR_EPS):
        return Mark.BROKEN, f"error {head_eps:.3g} eps, was {base_eps:.3g}"
    if head_eps > ceiling_eps:
        return None, f"wrong on both sides: error {head_eps:.3g} eps, ceiling {ceiling_eps:g}"
    return None, ""


def _judge_new(head: Numbers, base: Side, *, ceiling_eps: float) -> tuple[Mark | None, str]:
    """Judge a case that base cannot run: by the ceiling alone, and only where base's failure is that it lacks it."""
    if not head.finite or _eps(head) > ceiling_eps:
        return Mark.BROKEN, f"new, and wrong: error {_eps(head):.3g} eps, ceiling {ceiling_eps:g}"
    kind = base.failure.kind if base.failure is not None else ""
    if kind in MISSING_ON_BASE:
        return None, "not compared: new, base does not have it"
    return Mark.UNSURE, f"runs on head, fails on base ({kind})"


def judge_time(effect: Effect, *, margin: float) -> Mark:
    """Judge a case by its time.

    Args:
        effect: head against base.
        margin: log ratio inside which a proved slowdown is accepted.

    >>> effect = Effect(log_ratio=0.0002, standard_error=0.0005, lower=-0.006, upper=0.006, same_upper=0.0025)
    >>> judge_time(effect, margin=0.005)
    <Mark.SAME: 'same'>
    """
    if effect.lower > margin:
        return Mark.SLOWER
    if effect.upper < -margin:
        return Mark.FASTER
    if effect.same_upper < SAME_WITHIN:
        return Mark.SAME
    return Mark.UNSURE


def margin_of(percent: float) -> float:
    """Return the log ratio of a slowdown given in percent."""
    return math.log1p(percent / 100)


def exit_code(verdicts: Sequence[CaseVerdict], *, broken_code: int, undecided_code: int) -> ExitCode:
    """Choose the exit code of a run: regressed before undecided before fine.

    Args:
        verdicts: one a case.
        broken_code: kernel configurations that compile for the device on base and not on head.
        undecided_code: cases that could be compiled without running on base and not on head.
    """
    marks = {verdict.mark for verdict in verdicts}
    if broken_code or marks & {Mark.SLOWER, Mark.BROKEN}:
        return ExitCode.REGRESSED
    nothing_compared = not any(verdict.compared for verdict in verdicts)
    if undecided_code or nothing_compared or Mark.UNSURE in marks:
        return ExitCode.UNDECIDED
    return ExitCode.OK


def _eps(numbers: Numbers) -> float:
    return math.inf if numbers.max_diff_eps is None else numbers.max_diff_eps

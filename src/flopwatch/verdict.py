"""From measurements to marks: pure functions, each rule with its reason."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from flopwatch.errors import ExitCode
from flopwatch.model import Case, Failure, Mark, Numbers
from flopwatch.stats import SAME_WITHIN, Effect

if TYPE_CHECKING:
    from collections.abc import Iterable

#: Head's error may be this many times base's before the numbers count as broken, both taken as at least
#: `NUMBERS_FLOOR_EPS` (rounding the result once costs half an epsilon).
NUMBERS_FACTOR = 2.0
NUMBERS_FLOOR_EPS = 1.0


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
            return None, f"runs on neither side ({cause})"
        return Mark.BROKEN, f"fails on head, runs on base ({cause})"
    if head.numbers is None:
        return None, "numbers not checked"
    new = base.numbers is None
    if not head.numbers.finite and (base.numbers is None or base.numbers.finite):
        return Mark.BROKEN, "NaN or infinity where the reference has none"
    head_eps = _eps(head.numbers)
    base_eps = _eps(base.numbers) if base.numbers is not None else 0.0
    if head_eps > ceiling_eps >= base_eps:
        return Mark.BROKEN, f"error {head_eps:.3g} eps, ceiling {ceiling_eps:g}" + (" (new case)" if new else "")
    if new:
        return None, "new: base cannot run it"
    if head_eps > NUMBERS_FACTOR * max(base_eps, NUMBERS_FLOOR_EPS):
        return Mark.BROKEN, f"error {head_eps:.3g} eps, was {base_eps:.3g}"
    return None, ""


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


def exit_code(marks: Iterable[Mark | None], *, static_failures: int) -> ExitCode:
    """Choose the exit code of a run: regressed before undecided before fine.

    >>> exit_code([Mark.SAME, Mark.UNSURE], static_failures=0)
    <ExitCode.UNDECIDED: 3>
    """
    seen = set(marks)
    if static_failures or seen & {Mark.SLOWER, Mark.BROKEN}:
        return ExitCode.REGRESSED
    return ExitCode.UNDECIDED if Mark.UNSURE in seen else ExitCode.OK


def _eps(numbers: Numbers) -> float:
    return math.inf if numbers.max_diff_eps is None else numbers.max_diff_eps

"""From measurements to marks: pure functions, each rule with its reason."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from flopwatch.errors import ExitCode
from flopwatch.model import Choice, Failure, Mark, Memory, Numbers, eps_of
from flopwatch.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Head's error may be this many times base's before the numbers count as broken, both taken as at least
#: `NUMBERS_FLOOR_EPS` (rounding the result once costs half an epsilon).
NUMBERS_FACTOR = 2.0
NUMBERS_FLOOR_EPS = 1.0
#: Failures which say that base's checkout does not have what the suite calls. One that cannot be imported for another
#: reason, such as a syntax error, is not among them (`flopwatch.errors.BrokenImportError`).
MISSING_ON_BASE = frozenset({"SuiteError", "ImportError", "ModuleNotFoundError", "AttributeError"})


@dataclass(frozen=True, kw_only=True, slots=True)
class Side:
    """What one side of a gate says about a case.

    Attributes:
        numbers: distance from the reference, the worst of several seeds; None where it failed or was not needed.
        bits: fingerprints of the results, one a seed; equal on both sides, they make the reference needless.
        seconds: per call, where measured.
        launch_seconds: what a call costs the host, where measured.
        memory: what a call takes of the GPU's memory, where measured.
        choices: what its autotuned kernels run in.
        failure: why it could not be run.
    """

    numbers: Numbers | None = None
    bits: tuple[str, ...] = ()
    seconds: float | None = None
    launch_seconds: float | None = None
    memory: Memory | None = None
    choices: tuple[Choice, ...] = ()
    failure: Failure | None = None

    @property
    def ran(self) -> bool:
        """Whether it returned a result."""
        return self.numbers is not None or bool(self.bits)


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
        return _judge_failure(head.failure, base)
    if head.bits and head.bits == base.bits:
        return None, ""
    if head.numbers is None:
        return None, "not compared: numbers not checked"
    head_eps = eps_of(head.numbers)
    if base.numbers is None:
        return _judge_new(head.numbers, base, ceiling_eps=ceiling_eps)
    base_eps = eps_of(base.numbers)
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


def _judge_failure(failure: Failure, base: Side) -> tuple[Mark | None, str]:
    cause = _cause(failure)
    if base.failure is not None and base.bits:
        return Mark.UNSURE, f"results differ, and their reference fails ({cause})"
    if base.failure is not None:
        return None, f"not compared: runs on neither side ({cause})"
    return Mark.BROKEN, f"fails on head, runs on base ({cause})"


def _judge_new(head: Numbers, base: Side, *, ceiling_eps: float) -> tuple[Mark | None, str]:
    """Judge a case that base cannot run: by the ceiling alone, and only where base's failure is that it lacks it."""
    if not head.finite or eps_of(head) > ceiling_eps:
        return Mark.BROKEN, f"new, and wrong: error {eps_of(head):.3g} eps, ceiling {ceiling_eps:g}"
    failure = base.failure
    if failure is not None and failure.kind in MISSING_ON_BASE:
        return None, "not compared: new, base does not have it"
    return Mark.UNSURE, f"runs on head, fails on base ({_cause(failure) if failure else 'not run'})"


def _cause(failure: Failure) -> str:
    return f"{failure.kind}: {failure.message.splitlines()[0]}"


def judge_memory(base: Side, head: Side) -> tuple[Mark | None, str]:
    """Judge a case by what its calls take of the GPU's memory: a leak is broken, a higher peak is told.

    >>> leaking = Side(memory=Memory(peak_bytes=1024, growth_bytes=1.0))
    >>> judge_memory(Side(memory=Memory(peak_bytes=1024, growth_bytes=0.0)), leaking)
    (<Mark.BROKEN: 'broken'>, 'each call leaves 1 B behind, was 0 B')
    """
    if base.memory is None or head.memory is None:
        return None, ""
    before, now = base.memory, head.memory
    if now.growth_bytes > max(before.growth_bytes, 0.0):
        return Mark.BROKEN, f"each call leaves {_bytes(now.growth_bytes)} behind, was {_bytes(before.growth_bytes)}"
    if now.peak_bytes > before.peak_bytes:
        return None, f"peak memory {_bytes(now.peak_bytes)}, was {_bytes(before.peak_bytes)}"
    return None, ""


def margin_of(percent: float) -> float:
    """Return the log ratio of a slowdown given in percent."""
    return math.log1p(percent / 100)


def exit_code(marks: Sequence[Mark | None], *, broken_code: int, undecided_code: int, compared: bool) -> ExitCode:
    """Choose the exit code of a run: regressed before undecided before fine.

    Args:
        marks: one a case.
        broken_code: what else is worse for certain, such as kernels that compile on base and not on head.
        undecided_code: what else could not be decided, such as cases that only base could compile.
        compared: whether any case could be compared.
    """
    if broken_code or {Mark.SLOWER, Mark.BROKEN} & set(marks):
        return ExitCode.REGRESSED
    if undecided_code or not compared or Mark.UNSURE in marks:
        return ExitCode.UNDECIDED
    return ExitCode.OK


def _bytes(number: float) -> str:
    return format_bytes(round(number)) if number >= 1 or not number else f"{number:.3g} B"

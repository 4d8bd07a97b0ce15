"""End a launch that takes the interpreter too long: a grid too large, or a program that waits for another."""

from __future__ import annotations

import functools
import time
from typing import TYPE_CHECKING, Any

from triton.runtime import interpreter

from flopwatch.static.not_covered import NotCovered

if TYPE_CHECKING:
    from collections.abc import Callable

#: Seconds that one launch may take. The slowest of the bundled suites' small cases takes 0.6 s (two cores, triton
#: 3.7.1, 2026-11-22); a stranger's suite whose shapes are too large should still be told so within a minute.
LAUNCH_LIMIT_S = 20.0


class _Clock:
    """Of the launch that runs now."""

    def __init__(self) -> None:
        self.until = float("inf")
        self.program: tuple[int, ...] = ()
        self.grid: tuple[int, ...] = ()

    def check(self) -> None:
        if time.monotonic() > self.until:
            raise NotCovered(
                f"takes longer than {LAUNCH_LIMIT_S:g} s in the interpreter, which was at program {self.program} of "
                f"{self.grid}: a smaller size in the suite's `small` may do"
            )


_clock = _Clock()


def limit_launches() -> None:
    """Let a launch end with `NotCovered` past `LAUNCH_LIMIT_S`.

    The clock is read between programs and when memory is read, which a program that waits for another does forever.
    """
    builder = interpreter.InterpreterBuilder
    builder.set_grid_dim = _starting(builder.set_grid_dim)
    builder.set_grid_idx = _advancing(builder.set_grid_idx)
    for name in ("create_masked_load", "create_atomic_cas", "create_atomic_rmw"):
        setattr(builder, name, _checking(getattr(builder, name)))


def _starting(original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def set_grid_dim(self: object, *sizes: int) -> None:
        _clock.grid, _clock.until = sizes, time.monotonic() + LAUNCH_LIMIT_S
        original(self, *sizes)

    return set_grid_dim


def _advancing(original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def set_grid_idx(self: object, *program: int) -> None:
        _clock.program = program
        _clock.check()
        original(self, *program)

    return set_grid_idx


def _checking(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def operation(self: object, *arguments: Any, **named: Any) -> Any:  # noqa: ANN401 - untyped triton
        _clock.check()
        return original(self, *arguments, **named)

    return operation

"""How far a gate is: a bar with the time left in a terminal, a line now and then elsewhere."""

from __future__ import annotations

import contextlib
import math
import time
from typing import TYPE_CHECKING, Self

from rich.progress import BarColumn, ProgressColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar
from rich.text import Text

from flopwatch.gate.pairs import Observer
from flopwatch.report.foreign import safe

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console
    from rich.progress import Task

#: A log gets a line about pairs no more often than this: a pair of 66 cases takes 16 s, and one of a case 1.3 s (H200,
#: 2026-11-22; `flopwatch.gate.times.START_S` and `CASE_S`).
LOG_EVERY_S = 15.0


class Progress(Observer, contextlib.AbstractContextManager["Progress"]):
    """Shows what a gate does, and how long the pairs or cases of its present stage still take.

    Args:
        console: where; not that of the result.
        clock: seconds, of which only differences matter.
    """

    def __init__(self, console: Console, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._console = console
        self._clock = clock
        self._started_s = 0.0
        self._told_s = -math.inf
        self._bar = Bar(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            _Done(),
            TimeElapsedColumn(),
            _TimeLeft(clock),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._task = self._bar.add_task("starting", total=None, ends_s=None, noun="pairs")

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def step(self, line: str) -> None:
        """Leave a line about what is done next, and head the bar with it."""
        self._console.print(safe(line, "dim"), soft_wrap=True)
        self._bar.reset(self._task, total=None, description=line, ends_s=None)

    def pairs(self, done: int, planned: int) -> None:
        """Move the bar; the pairs of a stage take about as long each."""
        self._move(done, planned, "pairs")

    def cases(self, done: int, planned: int) -> None:
        """Move the bar; so do its cases, in the mean."""
        self._move(done, planned, "cases")

    def _move(self, done: int, planned: int, noun: str) -> None:
        now_s = self._clock()
        if not done:
            self._started_s = self._told_s = now_s
        left_s = (now_s - self._started_s) / done * (planned - done) if done else None
        ends_s = None if left_s is None else now_s + left_s
        self._bar.update(self._task, completed=done, total=planned, ends_s=ends_s, noun=noun)
        if not self._console.is_terminal and left_s and now_s - self._told_s >= LOG_EVERY_S:
            self._told_s = now_s
            self._console.print(f"{done} of {planned} {noun}, {minutes(left_s)} left", soft_wrap=True)


class _Done(ProgressColumn):
    """Counts pairs or cases; empty while nothing is counted."""

    def render(self, task: Task) -> Text:
        return Text("" if task.total is None else f"{task.completed:.0f} of {task.total:.0f} {task.fields['noun']}")


class _TimeLeft(ProgressColumn):
    """Counts down to when the stage ends; empty until its first pair is done."""

    def __init__(self, clock: Callable[[], float]) -> None:
        super().__init__()
        self._clock = clock

    def render(self, task: Task) -> Text:
        ends_s: float | None = task.fields["ends_s"]
        return Text("" if ends_s is None else f"{minutes(ends_s - self._clock())} left", style="cyan")


def minutes(seconds: float) -> str:
    """Write minutes and seconds; a time that is over is none.

    >>> minutes(91.2), minutes(-3)
    ('1:31', '0:00')
    """
    whole = max(round(seconds), 0)
    return f"{whole // 60}:{whole % 60:02}"

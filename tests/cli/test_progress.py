from __future__ import annotations

import io

from rich.console import Console

from flopwatch.cli.progress import Progress


class Clock:
    """Tells the time that a test sets."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def run(console: Console, clock: Clock, seconds_per_pair: float) -> str:
    """Go through a stage of eight pairs; return what was printed."""
    with Progress(console, clock=clock) as progress:
        progress.step("measuring [66] cases :bug: in 8 pairs")
        for done in range(9):
            progress.pairs(done, 8)
            progress._bar.refresh()
            clock.now_s += seconds_per_pair
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_a_log_gets_the_steps_and_now_and_then_the_time_left() -> None:
    assert run(Console(file=io.StringIO(), force_terminal=False), Clock(), 10.0).splitlines() == [
        "measuring [66] cases :bug: in 8 pairs",
        "2 of 8 pairs, 1:00 left",
        "4 of 8 pairs, 0:40 left",
        "6 of 8 pairs, 0:20 left",
    ]


def test_short_pairs_do_not_fill_a_log() -> None:
    assert run(Console(file=io.StringIO(), force_terminal=False), Clock(), 1.5).count("left") == 0


def test_a_terminal_gets_a_bar_that_counts_pairs_and_time() -> None:
    text = run(Console(file=io.StringIO(), force_terminal=True, width=120, color_system=None), Clock(), 10.0)
    assert "measuring [66] cases :bug: in 8 pairs" in text
    assert "3 of 8 pairs" in text
    assert "0:50 left" in text


def test_a_stage_begins_without_the_time_of_the_one_before() -> None:
    clock = Clock()
    console = Console(file=io.StringIO(), force_terminal=False)
    run(console, clock, 10.0)
    assert isinstance(console.file, io.StringIO)
    console.file.truncate(0)
    assert "2 of 8 pairs, 0:48 left" in run(console, clock, 8.0)

"""The gate's result in a terminal: the verdict in a sentence, what changed and why, and how to repeat it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flopwatch.errors import ExitCode
from flopwatch.gate.conclusions import CONCLUSIONS_ALPHA, Outcome
from flopwatch.gate.times import LAUNCH_CONFIRM_ALPHA
from flopwatch.report.compiled import print_compiled
from flopwatch.report.conclusions import in_order, told
from flopwatch.report.explained import explanations
from flopwatch.report.foreign import safe
from flopwatch.report.headline import headline, slower_in_time, slower_to_launch
from flopwatch.report.notes import WITHOUT_GPU, provenance, quiet_notes
from flopwatch.report.numbers import print_numbers
from flopwatch.report.times import print_times
from flopwatch.report.wording import count
from flopwatch.stats import Design
from flopwatch.waivers import WaiverState

if TYPE_CHECKING:
    from rich.console import Console

    from flopwatch.gate import GateResult

#: Of so many runs that change nothing, one at most calls a case slower: by time, stage 1 times stage 2; by launches,
#: stage 2 alone; or a conclusion lost.
RUNS_PER_FALSE_ALARM = round(1 / (Design().false_alarm_rate + LAUNCH_CONFIRM_ALPHA + CONCLUSIONS_ALPHA))
EVIDENCE = "https://github.com/flopwatch/flopwatch/blob/main/docs/evidence.md"
#: Cases that are explained one by one; the table names all of them.
MAX_EXPLAINED = 8
#: Notes of one run.
MAX_NOTES = 12
_STYLES = {ExitCode.OK: "bold green", ExitCode.REGRESSED: "bold red", ExitCode.USAGE: "bold red"}
_CONCLUSION_STYLES = {Outcome.LOST: "red", Outcome.UNSURE: "yellow", Outcome.NEITHER: "yellow"}
_WAIVER_STYLES = {WaiverState.EXPIRED: "red", WaiverState.EXCEEDED: "red", WaiverState.WAIVED: "yellow"}


def print_gate(result: GateResult, console: Console, *, everything: bool = False) -> None:
    """Print a gate's result.

    Args:
        result: what was found out.
        console: where to.
        everything: a row for each case and configuration; else only for those that need a look.
    """
    style = _STYLES.get(ExitCode(result.exit_code), "bold yellow")
    console.print(safe(headline(result), style), soft_wrap=True)
    if result.unfit:
        console.print(safe(f"why: {result.unfit}", indent=2), soft_wrap=True)
        console.print(
            "  do:  flopwatch doctor tells when the machine is fit again; then run the gate again", soft_wrap=True
        )
    for line in provenance(result, f"a false alarm in at most 1 of {RUNS_PER_FALSE_ALARM} runs: {EVIDENCE}"):
        console.print(safe(line, "dim"), soft_wrap=True)
    if result.gpu is not None:
        print_times(result, console, everything=everything)
    _print_explanations(result, console, everything=everything)
    console.print()
    for use in result.waivers:
        console.print(safe(f"waiver: {use.text}", _WAIVER_STYLES.get(use.state, "dim")), soft_wrap=True)
    for found in in_order(result):
        if everything or found.outcome is not Outcome.UNCHANGED:
            console.print(safe(f"conclusion {told(found)}", _CONCLUSION_STYLES.get(found.outcome, "")), soft_wrap=True)
    print_numbers(result, console, everything=everything)
    print_compiled(result, console, everything=everything)
    _print_notes(result, console, everything=everything)
    if result.gpu is None:
        console.print(WITHOUT_GPU, soft_wrap=True)


def _print_explanations(result: GateResult, console: Console, *, everything: bool) -> None:
    told = list(explanations(result))
    room = len(told) if everything else MAX_EXPLAINED
    if told:
        console.print()
    for head, lines in told[:room]:
        console.print(safe(head, "bold"), soft_wrap=True)
        for line in lines:
            console.print(safe(line, indent=2), soft_wrap=True)
    if told[room:]:
        console.print(f"and {len(told[room:])} more to explain; --all does.")
    if slower_in_time(result) or slower_to_launch(result):
        console.print(
            "On purpose? flopwatch waive CASE --reason TEXT --until DATE --limit PERCENT", style="dim", soft_wrap=True
        )


def _print_notes(result: GateResult, console: Console, *, everything: bool) -> None:
    """Print what is worth knowing and accuses nobody."""
    notes = quiet_notes(result)
    room = len(notes) if everything else MAX_NOTES
    for note in notes[:room]:
        console.print(safe(f"note: {note}"), soft_wrap=True)
    if notes[room:]:
        console.print(f"and {count(len(notes[room:]), 'more note')}; --all shows them.")

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from flopwatch.bisect import Bisection, Commit, Effect, Outcome, Step
from flopwatch.gate.result import PairLog
from flopwatch.model import Case
from flopwatch.report.bisect import MAX_CANDIDATES, details, headline, print_bisect

GOLDEN = Path(__file__).parent / "golden"
SLOWER = Effect(estimate=0.0298, lower=0.0287, upper=0.0309, pairs=18)


def commit(letter: str, subject: str) -> Commit:
    return Commit(hash=letter * 40, date="2026-11-21", subject=subject)


GOOD, BAD = commit("a", "Release 1.2"), commit("f", "Bump the version")
CULPRIT, PARENT = commit("c", "Mask every block, not the last one alone"), commit("b", "Name the strides")
BROKEN = commit("d", "Move the kernels [red]away[/red]")
PAIR = PairLog(stage="step", head_slot=1, seconds=1.7, log_ratios={}, launch_log_ratios={}, faults={})
STEPS = (
    Step(commit=BROKEN, outcome=Outcome.SKIPPED, reason="fails (SuiteError: no suite 'Matmul')"),
    Step(commit=CULPRIT, outcome=Outcome.BAD, effect=replace(SLOWER, estimate=0.0301, pairs=8)),
    Step(commit=PARENT, outcome=Outcome.GOOD, effect=Effect(estimate=0.0002, lower=-0.0008, upper=0.001, pairs=20)),
    Step(commit=commit("9", "Write more of the manual"), outcome=Outcome.GOOD, reason=f"the code of {'b' * 12}"),
)
FOUND = Bisection(
    case=Case(suite="Matmul", values=("4096x4096x4096", "float16", "flopwatch")),
    fact="",
    good=GOOD,
    bad=BAD,
    device="NVIDIA H200",
    difference=replace(SLOWER, estimate=0.0305),
    differs=True,
    steps=STEPS,
    candidates=(CULPRIT,),
    parent=PARENT,
    change=SLOWER,
    pairs=(PAIR,) * 77,
    command=f"flopwatch bisect 'Matmul[4096x4096x4096,float16,flopwatch]' {'a' * 12} {'f' * 12}",
    seconds=188.0,
    notes=("workers start anew, 3 s slower: head: CUDA was initialised while the suites were imported",),
)
SEVERAL = replace(
    FOUND, candidates=(CULPRIT, BROKEN), parent=None, change=None, reason="the commits that were skipped leave several"
)
DOUBTED = replace(
    FOUND,
    change=Effect(estimate=0.001, lower=-0.001, upper=0.003, pairs=18),
    reason="held against its parent it does not show the change",
)
SAME = replace(
    FOUND,
    differs=False,
    difference=Effect(estimate=0.004, lower=-0.001, upper=0.009, pairs=18),
    settling_pairs=41,
    steps=(),
    candidates=(),
    parent=None,
    change=None,
    notes=(),
)
INTERRUPTED = replace(SEVERAL, reason="", steps=STEPS[:2], candidates=(CULPRIT, PARENT), interrupted=True)
UNFIT = replace(INTERRUPTED, interrupted=False, unfit="NVIDIA H200 is used by another process (99)")
ELSEWHERE = replace(SAME, differs=True, reason=f"{'e' * 12}, from which both descend, is as bad")
REGISTERS = replace(
    FOUND,
    fact="registers",
    device="h200",
    difference=None,
    good_value=168,
    bad_value=255,
    parent_value=168,
    culprit_value=240,
    change=None,
    pairs=(),
    steps=(replace(STEPS[1], effect=None, value=240), replace(STEPS[2], effect=None, value=168)),
    notes=(),
)


def rendered(found: Bisection) -> str:
    console = Console(file=io.StringIO(), width=120, color_system=None, force_terminal=False)
    print_bisect(found, console)
    output = console.file
    assert isinstance(output, io.StringIO)
    return "\n".join(line.rstrip() for line in output.getvalue().splitlines()) + "\n"


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("found", FOUND),
        ("several", SEVERAL),
        ("doubted", DOUBTED),
        ("same", SAME),
        ("interrupted", INTERRUPTED),
        ("unfit", UNFIT),
        ("elsewhere", ELSEWHERE),
        ("registers", REGISTERS),
    ],
)
def test_the_output_is_the_golden_file(name: str, found: Bisection) -> None:
    # To accept a change: write rendered(...) into the file, and read the diff as a user would.
    assert rendered(found) == (GOLDEN / f"bisect-{name}.txt").read_text(encoding="utf-8")


def test_bytes_have_their_unit() -> None:
    spills = replace(REGISTERS, fact="spills", parent_value=0, culprit_value=96)
    assert headline(spills).endswith("go from 0 B of spills to 96 B of spills")


def test_no_number_of_pairs_settles_what_is_too_small() -> None:
    assert any("too small" in line for line in details(replace(SAME, settling_pairs=None)))


def test_many_candidates_are_counted() -> None:
    lines = list(details(replace(SEVERAL, candidates=(CULPRIT,) * (MAX_CANDIDATES + 3))))
    assert lines[-1] == "and 3 more"


def test_an_interrupt_before_there_is_proof_is_told() -> None:
    assert headline(replace(SAME, interrupted=True)).startswith("Interrupted: it is not yet proved")

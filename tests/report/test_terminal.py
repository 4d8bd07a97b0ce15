from __future__ import annotations

import io
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from rich.console import Console

from flopwatch.model import Choice
from flopwatch.report.terminal import RUNS_PER_FALSE_ALARM, print_gate

if TYPE_CHECKING:
    from tests.report.conftest import Gates

    from flopwatch.gate import GateResult

GOLDEN = Path(__file__).parent / "golden"
NAMES = (
    "laptop",
    "spilling",
    "clean",
    "slower",
    "unsure",
    "broken",
    "unfit",
    "interrupted",
    "identical",
    "concluded",
    "waived",
    "expired",
)


def rendered(result: GateResult, *, everything: bool = False) -> str:
    console = Console(file=io.StringIO(), width=140, color_system=None, force_terminal=False)
    print_gate(result, console, everything=everything)
    output = console.file
    assert isinstance(output, io.StringIO)
    return "\n".join(line.rstrip() for line in output.getvalue().splitlines()) + "\n"


@pytest.mark.parametrize("name", NAMES)
def test_the_output_is_the_golden_file(name: str, gates: Gates) -> None:
    # To accept a change: write rendered(...) into the file, and read the diff as a user would.
    assert rendered(getattr(gates, name)) == (GOLDEN / f"gate-{name}.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["laptop", "broken", "concluded"])
def test_all_of_it_is_the_golden_file(name: str, gates: Gates) -> None:
    text = rendered(getattr(gates, name), everything=True)
    assert text == (GOLDEN / f"gate-{name}-all.txt").read_text(encoding="utf-8")


def test_every_made_up_result_has_a_golden_file(gates: Gates) -> None:
    assert {field.name for field in fields(gates)} == set(NAMES)


def test_nothing_foreign_is_obeyed(gates: Gates) -> None:
    evil = "[red]boo[/red] :bug: \x1b[2J\nRegressed"
    verdict = gates.unsure.verdicts[4]
    case = replace(verdict.case, values=(evil,))
    side = replace(verdict.head, choices=(Choice(kernel=evil, config=evil),))
    hostile = replace(
        gates.unsure,
        head=evil,
        gpu=evil,
        device=evil,
        versions={evil: evil},
        machine=None,
        notes=(evil,),
        facts=tuple(replace(fact, kernel=evil, config=evil, variant=evil) for fact in gates.unsure.facts),
        verdicts=(replace(verdict, case=case, base=side, head=side, reason=evil, notes=(evil,)),),
    )
    for result in (hostile, replace(hostile, unfit=evil)):
        for everything in (False, True):
            text = rendered(result, everything=everything)
            assert "\x1b" not in text
            assert "[red]boo[/red] :bug:" in text
            assert [line for line in text.splitlines() if line.startswith("Regressed")] == []


def test_the_promise_is_what_the_levels_of_the_tests_come_to(gates: Gates) -> None:
    assert RUNS_PER_FALSE_ALARM == 1000
    assert "a false alarm in at most 1 of 1000 runs" in rendered(gates.clean)


def test_what_an_unfit_machine_measured_is_not_shown(gates: Gates) -> None:
    text = rendered(gates.unfit)
    assert "1.01 %" not in text
    assert "1.01 %" in rendered(gates.unfit, everything=True)


def test_a_long_list_of_doubts_is_cut_and_counted(gates: Gates) -> None:
    doubt = gates.unsure.verdicts[1]
    many = tuple(replace(doubt, case=replace(doubt.case, values=(str(number),))) for number in range(40))
    text = rendered(replace(gates.unsure, verdicts=many))
    assert "and 30 more unsure; --all shows every case." in text
    assert "and 32 more to explain; --all does." in text
    assert len(text.splitlines()) < 80
    assert rendered(replace(gates.unsure, verdicts=many), everything=True).count("repeat: ") == 40

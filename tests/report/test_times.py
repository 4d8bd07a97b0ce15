from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from flopwatch.model import Mark
from flopwatch.report.times import MAX_LINES, summary

if TYPE_CHECKING:
    from tests.report.conftest import Gates


def test_the_sixty_cases_that_are_the_same_are_a_handful_of_lines(gates: Gates) -> None:
    same = gates.clean.verdicts[0]
    many = tuple(replace(same, case=replace(same.case, values=(str(number),))) for number in range(66))
    assert list(summary(replace(gates.clean, verdicts=many))) == [
        "66 cases are proved the same.",
        "Such a run finds a slowdown of 0.90 % 95 times in 100.",
        "A call costs the host 9.800 µs in the median case; no case costs it provably more.",
    ]


def test_the_noisiest_case_is_named_beside_the_median_one(gates: Gates) -> None:
    assert (
        "Such a run finds a slowdown of 0.90 % in the median case, of 1.10 % in the hardest"
        " (Matmul[2048x2048x2048,float16,flopwatch]), 95 times in 100."
    ) in list(summary(gates.clean))


def test_slowdowns_within_their_margins_are_notes_and_the_largest_come_first(gates: Gates) -> None:
    inside = gates.clean.verdicts[3]
    assert inside.time is not None
    many = tuple(
        replace(
            inside,
            case=replace(inside.case, values=(str(number),)),
            time=replace(inside.time, estimate=0.0001 * number),
        )
        for number in range(MAX_LINES + 2)
    )
    notes = [line for line in summary(replace(gates.clean, verdicts=many)) if "margin" in line]
    assert notes[0].startswith(f"note: Matmul[{MAX_LINES + 1}] is slower, within its margin of 0.50 %: ")
    assert notes[-1] == "and 2 more within their margins."


def test_a_launch_that_got_cheaper_is_told_too(gates: Gates) -> None:
    verdict = gates.clean.verdicts[0]
    assert verdict.launch is not None
    cheaper = replace(
        verdict, launch=replace(verdict.launch, mark=Mark.FASTER, estimate=-0.2, lower=-0.21, upper=-0.19)
    )
    lines = list(summary(replace(gates.clean, verdicts=(cheaper,))))
    assert lines[-1].endswith("9.800 µs -> 9.800 µs, 18.13 % faster (17.30 % to 18.94 %)")


def test_an_interrupted_run_says_what_its_pairs_are_worth(gates: Gates) -> None:
    assert list(summary(gates.interrupted)) == [
        (
            "What the pairs are worth: estimates with 99 % intervals of 5 cases, which stand; a slowdown of 1.00 % is"
            " ruled out in 4 of them. Nothing else is decided."
        )
    ]
    (wider,) = summary(replace(gates.interrupted, same_within_percent=2.0))
    assert "a slowdown of 2.00 % is ruled out in 5 of them" in wider
    none = tuple(replace(verdict, time=None) for verdict in gates.interrupted.verdicts)
    assert list(summary(replace(gates.interrupted, verdicts=none))) == [
        "Too few pairs for an interval: what was measured says nothing yet."
    ]

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from flopwatch.model import Mark
from flopwatch.report.explained import alone_s, explanations

if TYPE_CHECKING:
    from tests.report.conftest import Gates


def test_every_accused_or_doubtful_case_has_a_line_that_repeats_it(gates: Gates) -> None:
    for result in (gates.slower, gates.unsure):
        needy = [verdict.case.id for verdict in result.verdicts if verdict.mark in (Mark.SLOWER, Mark.UNSURE)]
        lines = [lines[-1] for _, lines in explanations(result)]
        assert len(lines) == len(needy)
        assert all(any(name in line for line in lines) for name in needy)


def test_cases_that_broke_for_one_reason_are_told_of_together(gates: Gates) -> None:
    heads = [head for head, _ in explanations(gates.broken)]
    assert heads[1] == (
        "Matmul[1x1x1,float16,flopwatch] and 1 more: fails on head, runs on base"
        " (CompilationError: no [bold]such[/bold] thing)"
    )


def test_doubt_says_what_would_settle_it(gates: Gates) -> None:
    told = dict(explanations(gates.unsure))
    lines = next(lines for head, lines in told.items() if head.startswith("Matmul[2048x2048x2048"))
    assert lines == [
        "this run finds slowdowns of it from 1.31 %",
        "about 65 pairs of it alone would settle it, 93.17 s of GPU time, if its estimate is right",
        "repeat: flopwatch gate a1b2c3d4e5f6 -k 'Matmul[2048x2048x2048,float16,flopwatch]' --budget 86",
    ]


def test_a_case_that_no_run_settles_is_said_to_be_one(gates: Gates) -> None:
    lines = next(lines for head, lines in explanations(gates.unsure) if head.startswith("Matmul[4096x4096x4096"))
    assert "no affordable number of pairs would settle it, at its estimate" in lines


def test_what_an_unfit_machine_left_open_is_not_explained_case_by_case(gates: Gates) -> None:
    assert list(explanations(gates.unfit)) == []
    assert list(explanations(gates.interrupted)) == []


def test_a_pair_of_one_case_takes_its_share(gates: Gates) -> None:
    assert alone_s(gates.slower) == pytest.approx(1.1 + 1.4 / 5)
    assert alone_s(replace(gates.slower, pairs=())) == pytest.approx(1.32)
    slow = replace(gates.slower, pairs=(replace(gates.slower.pairs[0], seconds=11.5),))
    assert alone_s(slow) == pytest.approx(1.1 + 10.4 / 5)

from __future__ import annotations

from dataclasses import replace
from datetime import date
from typing import TYPE_CHECKING

import pytest

from flopwatch.config import Config
from flopwatch.gate.conclusions import Verdict
from flopwatch.model import Mark
from flopwatch.report.agreement import contradictions
from flopwatch.report.recompute import differences
from flopwatch.waivers import Waiver

if TYPE_CHECKING:
    from collections.abc import Callable

    from flopwatch.gate import GateResult

RUNS = (
    ((0.0,) * 6, ()),
    ((0.02,) * 6, ()),
    ((0.004, 0.006, 0.0, 0.0, 0.0085), ()),
    ((0.0, 0.0, 0.0), (0.0, 0.0, 0.2)),
    ((0.02, 0.0, 0.0), (0.2, 0.0, 0.2)),
)


@pytest.mark.parametrize("run", RUNS)
def test_what_the_gate_decided_comes_out_again(
    run: tuple[tuple[float, ...], tuple[float, ...]], draw: Callable[..., GateResult]
) -> None:
    assert list(differences(draw(*run), Config())) == []


def test_launches_that_were_not_judged_are_missed_where_the_time_does_not_fail_the_run(
    draw: Callable[..., GateResult],
) -> None:
    result = draw((0.02, 0.0, 0.0), (0.2, 0.0, 0.2))
    assert [verdict.launch is None for verdict in result.verdicts[:3]] == [True, False, False]
    verdicts = [replace(verdict, launch=None) for verdict in result.verdicts]
    assert list(differences(replace(result, verdicts=tuple(verdicts)), Config())) != []
    waiver = Waiver(case="Matmul*", reason="known", owner="Ada", until=date(2100, 1, 1), limit_percent=10.0)
    assert list(differences(result, Config(waivers=(waiver,)))) != []


@pytest.mark.parametrize("planned", [8, 10, 20, 30])
@pytest.mark.parametrize("effect", [0.0, 0.006, 0.0085, 0.03])
def test_a_budget_is_no_reason_to_doubt(planned: int, effect: float, draw: Callable[..., GateResult]) -> None:
    for seed in range(5):
        result = draw((effect, 0.0, 0.004, 0.0, 0.0, 0.0), planned=planned, seed=seed)
        assert list(differences(result, Config())) == []


@pytest.mark.parametrize("share", [0.2, 0.5, 1.0])
@pytest.mark.parametrize("effects", RUNS[0][:1] + RUNS[1][:1] + RUNS[2][:1])
def test_pairs_at_different_clocks_are_decided_again(
    effects: tuple[float, ...], share: float, draw: Callable[..., GateResult]
) -> None:
    for seed in range(3):
        result = draw(effects, seed=seed, apart=(share,) * len(effects))
        assert any(log.clock_log_ratios for log in result.pairs)
        assert list(contradictions(result)) == []
        assert list(differences(result, Config())) == []


def test_a_suite_that_is_said_not_to_be_slower_is_found(draw: Callable[..., GateResult]) -> None:
    slower = draw((0.02,) * 6)
    assert slower.suite is not None
    assert slower.suite.mark is Mark.SLOWER
    lie = replace(slower.suite, mark=Mark.SAME)

    assert list(differences(replace(slower, suite=lie), Config())) == ["the suite: same, but its pairs decide slower"]
    assert list(differences(replace(slower, suite=None), Config())) == ["the suite: not judged, though measured"]


def test_pairs_that_pass_for_those_of_another_stage_are_found(honest: GateResult) -> None:
    swapped = [replace(log, stage="confirm" if log.stage == "screen" else "screen") for log in honest.pairs]
    assert next(differences(replace(honest, pairs=tuple(swapped)), Config())) == "its pairs are not those of a gate"


def test_a_mark_that_only_the_decision_can_refute_is_found(honest: GateResult) -> None:
    same = honest.verdicts[0]
    assert same.time is not None
    assert same.mark is Mark.SAME
    lie = replace(same, mark=Mark.UNSURE, time=replace(same.time, mark=Mark.UNSURE))
    result = replace(honest, verdicts=(lie, *honest.verdicts[1:]))
    assert list(contradictions(result)) == []
    assert list(differences(result, Config())) == [f"{same.case.id}: unsure, but its pairs decide same"]


def test_an_interval_that_is_too_narrow_is_found(honest: GateResult) -> None:
    same = honest.verdicts[0]
    assert same.time is not None
    narrow = replace(same, time=replace(same.time, lower=same.time.estimate, upper=same.time.estimate))
    result = replace(honest, verdicts=(narrow, *honest.verdicts[1:]))
    assert list(differences(result, Config())) == [f"{same.case.id}: its interval is not that of its pairs"]


def test_pairs_that_were_left_out_are_missed(honest: GateResult) -> None:
    (problem,) = differences(replace(honest, pairs=honest.pairs[:-1]), Config())
    assert problem == "its pairs are not those of a gate"


def test_a_run_that_judged_no_time_has_nothing_to_decide(honest: GateResult) -> None:
    assert list(differences(replace(honest, interrupted=True), Config())) == []


def test_looks_are_decided_again(watching: GateResult) -> None:
    assert list(differences(watching, Config())) == []
    lost = watching.conclusions[0]
    doubted = (*lost.looks[:3], replace(lost.looks[3], verdict=Verdict.UNSURE))
    lie = replace(watching, conclusions=(replace(lost, looks=doubted), *watching.conclusions[1:]))
    assert list(contradictions(lie)) == []
    assert list(differences(lie, Config())) == [
        "Tiles[flopwatch 8]: unsure on head, but its rounds decide does not hold"
    ]
    assert list(differences(replace(lie, pairs=(), verdicts=()), Config())) != []

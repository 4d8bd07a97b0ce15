from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from flopwatch.gate.conclusions import Outcome, Verdict
from flopwatch.gate.times import LAUNCH_PRIOR
from flopwatch.model import Mark
from flopwatch.report.agreement import CLIP, LAUNCH_CLIP, contradictions, locate
from flopwatch.stats import PRIOR
from flopwatch.stats.interval import locate as locate_all

if TYPE_CHECKING:
    from collections.abc import Callable

    from flopwatch.gate import CaseVerdict, GateResult
    from flopwatch.gate.conclusions import Look

#: Runs of all kinds: clean, slower, faster, mixed, settled, a slower suite, slower launches.
RUNS = (
    ((0.0,) * 6, ()),
    ((0.02,) * 6, ()),
    ((-0.02,) * 7, ()),
    ((0.004, 0.006, 0.0, 0.0, 0.0085), ()),
    ((0.3, 0.0, 0.0, 0.0), ()),
    ((0.0, 0.0, 0.0), (0.0, 0.0, 0.2)),
)


def test_the_scores_are_cut_where_the_gate_cuts_them() -> None:
    assert (CLIP, LAUNCH_CLIP) == pytest.approx((PRIOR.clip, LAUNCH_PRIOR.clip))


def test_the_estimate_is_the_gates() -> None:
    rng = np.random.default_rng(3)
    for _ in range(20):
        values = rng.normal(0.01, 0.003, rng.integers(1, 40))
        values[0] += 0.2
        assert locate(values.tolist(), CLIP) == pytest.approx(locate_all(values[None], PRIOR)[0], abs=1e-12)


@pytest.mark.parametrize("run", RUNS)
def test_what_the_gate_decides_agrees_with_itself(
    run: tuple[tuple[float, ...], tuple[float, ...]], draw: Callable[..., GateResult]
) -> None:
    assert list(contradictions(draw(*run))) == []


def changed(result: GateResult, row: int, **values: object) -> GateResult:
    verdicts = list(result.verdicts)
    verdicts[row] = replace(verdicts[row], **values)  # type: ignore[arg-type] # fields of a verdict
    return replace(result, verdicts=tuple(verdicts))


def forged(verdict: CaseVerdict, mark: Mark) -> dict[str, object]:
    assert verdict.time is not None
    return {"mark": mark, "time": replace(verdict.time, mark=mark)}


def test_a_slower_case_cannot_be_called_the_same(honest: GateResult) -> None:
    assert honest.verdicts[1].mark is Mark.SLOWER
    lie = changed(honest, 1, **forged(honest.verdicts[1], Mark.SAME))
    assert list(contradictions(lie)) == [
        "Matmul[1x64x64,float16,flopwatch]: called the same, though slower by as much as that excludes"
    ]


def test_a_case_that_is_the_same_cannot_be_called_slower_or_faster(honest: GateResult) -> None:
    for mark in (Mark.SLOWER, Mark.FASTER):
        (problem,) = contradictions(changed(honest, 0, **forged(honest.verdicts[0], mark)))
        assert problem.endswith("by no more than its margin")


def test_an_estimate_must_be_that_of_its_pairs(honest: GateResult) -> None:
    time = honest.verdicts[0].time
    assert time is not None
    assert time.estimate is not None
    lie = changed(honest, 0, time=replace(time, estimate=time.estimate + 1e-4))
    assert list(contradictions(lie)) == [
        f"Matmul[0x64x64,float16,flopwatch]: its estimate is not that of its {time.pairs} pairs"
    ]


def test_a_case_of_a_gpu_cannot_be_left_untimed(honest: GateResult) -> None:
    (problem,) = contradictions(changed(honest, 1, mark=None, time=None, launch=None))
    assert problem.endswith("compared on a GPU, and not timed")


def test_a_mark_that_neither_time_nor_launch_bears_out_is_one_too_many(honest: GateResult) -> None:
    assert [problem.rpartition(": ")[2] for problem in contradictions(changed(honest, 0, mark=Mark.SLOWER))] == [
        "slower, but neither its time nor its launch is"
    ]
    assert [problem.rpartition(": ")[2] for problem in contradictions(changed(honest, 1, mark=Mark.UNSURE))] == [
        "unsure, but its time or its launch is slower"
    ]


def test_the_looks_of_a_gate_agree_with_themselves(watching: GateResult) -> None:
    assert [found.outcome for found in watching.conclusions] == [Outcome.LOST, Outcome.HOLDS, Outcome.UNSURE]
    assert list(contradictions(watching)) == []


def with_looks(result: GateResult, looks: tuple[Look, ...]) -> GateResult:
    return replace(result, conclusions=(replace(result.conclusions[0], looks=looks),))


def test_a_loss_cannot_be_hidden_in_looks_that_were_left_out_or_turned(watching: GateResult) -> None:
    looks = watching.conclusions[0].looks
    for fewer in ((), looks[:1], looks[:2], looks[:3], looks[1:], (*looks[:2], looks[3], looks[2])):
        assert list(contradictions(with_looks(watching, fewer))) == [
            "Tiles[flopwatch 8]: its looks are not those of a gate"
        ]
    turned = (*looks[:3], replace(looks[3], verdict=Verdict.HOLDS))
    assert list(contradictions(with_looks(watching, turned))) == [
        "Tiles[flopwatch 8]: holds on head, but its rounds lean the other way"
    ]
    turned = (*looks[:2], replace(looks[2], verdict=Verdict.FAILS), looks[3])
    assert list(contradictions(with_looks(watching, turned))) == [
        "Tiles[flopwatch 8]: does not hold on base, but its rounds lean the other way"
    ]


def test_what_is_identical_or_was_not_judged_has_no_looks(watching: GateResult) -> None:
    same = tuple(replace(found, identical=True) for found in watching.conclusions)
    assert [problem.rpartition(": ")[2] for problem in contradictions(replace(watching, conclusions=same))] == [
        "identical, and yet looked at"
    ] * 3
    assert "conclusions were watched, though no time was judged" in contradictions(replace(watching, gpu=None))

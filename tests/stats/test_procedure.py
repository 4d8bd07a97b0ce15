from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

import numpy as np
import pytest

from flopwatch.model import Mark, from_json, to_json
from flopwatch.stats.design import Design
from flopwatch.stats.procedure import Decision, Stage, decide

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from flopwatch.stats.procedure import Sampler

    Spoil = Callable[["Machine", Sequence[int], np.ndarray], None]

MARGIN = 0.005


class Machine:
    """Measures series of known effects, and keeps what it was asked."""

    def __init__(
        self, effects: Sequence[float], *, deviation: float = 0.001, seed: int = 1, spoil: Spoil | None = None
    ) -> None:
        self.effects = np.array(effects)[:, None]
        self.deviation = deviation
        self.rng = np.random.default_rng(seed)
        self.spoil = spoil
        self.asked: list[tuple[list[int], int]] = []

    def __call__(self, rows: Sequence[int], pairs: int, _stage: Stage) -> np.ndarray:
        self.asked.append((list(rows), pairs))
        table = self.effects[list(rows)] + self.rng.normal(0, self.deviation, (len(rows), pairs))
        if self.spoil is not None:
            self.spoil(self, rows, table)
        return table


def judge(machine: Sampler, count: int, *, margin: float = MARGIN, design: Design | None = None) -> Decision:
    return decide(design or Design(), [margin] * count, machine)


def marks(found: Decision) -> list[Mark]:
    return [series.mark for series in found.series]


def test_a_clean_run_ends_at_the_first_look() -> None:
    machine = Machine([0.0] * 20)
    found = judge(machine, 20)

    assert marks(found) == [Mark.SAME] * 20
    assert machine.asked == [(list(range(20)), 8)]
    assert found.suite is not None
    assert found.suite.mark is Mark.SAME


def test_a_slower_series_is_found_and_measured_again() -> None:
    machine = Machine([0.0, 0.012, 0.0, -0.02, 0.0])
    found = judge(machine, 5)

    assert marks(found) == [Mark.SAME, Mark.SLOWER, Mark.SAME, Mark.FASTER, Mark.SAME]
    assert machine.asked == [(list(range(5)), 8), ([1, 3], 8)]
    assert (found.pairs, found.confirm_pairs, found.series[1].pairs, found.series[0].pairs) == (8, 8, 8, 8)
    assert None not in (found.series[1].lower, found.series[1].upper)  # as few pairs as bound it


def test_what_leans_beside_a_plain_slowdown_is_given_all_pairs() -> None:
    def leaning(machine: Machine, rows: Sequence[int], table: np.ndarray) -> None:
        if len(machine.asked) == 1:
            table[list(rows).index(2), :2] -= 0.012

    machine = Machine([0.03, 0.0, 0.012, 0.0], spoil=leaning)
    found = judge(machine, 4)

    assert marks(found) == [Mark.SLOWER, Mark.SAME, Mark.SLOWER, Mark.SAME]
    # Eight fresh pairs confirm what was plain, which is measured on beside what only the last look flagged.
    assert machine.asked == [([0, 1, 2, 3], 8), ([0, 1, 2, 3], 5), ([0, 2], 8), ([0, 2], 11)]
    assert [series.pairs for series in found.series] == [19, 13, 19, 13]


def test_a_plain_flag_that_eight_pairs_do_not_confirm_gets_all_of_them() -> None:
    def one_slow_process(machine: Machine, _rows: Sequence[int], table: np.ndarray) -> None:
        if len(machine.asked) == 2:
            table[0, 0] -= 0.05

    machine = Machine([0.015, 0.0], spoil=one_slow_process)
    found = judge(machine, 2)

    assert machine.asked == [([0, 1], 8), ([0], 8), ([0], 11)]
    assert marks(found) == [Mark.SLOWER, Mark.SAME]
    assert found.series[0].pairs == 19


def test_the_effect_of_a_flagged_series_comes_from_fresh_pairs_alone() -> None:
    def second_stage_is_slower_still(machine: Machine, _rows: Sequence[int], table: np.ndarray) -> None:
        if len(machine.asked) == 2:
            table += 0.03

    found = judge(Machine([0.02, 0.0], spoil=second_stage_is_slower_still), 2)

    assert found.series[0].estimate == pytest.approx(0.05, abs=0.002)


def test_a_flag_that_fresh_pairs_do_not_confirm_is_no_accusation() -> None:
    def only_at_first(machine: Machine, _rows: Sequence[int], table: np.ndarray) -> None:
        if len(machine.asked) < 2:
            table[0] += 0.02

    found = judge(Machine([0.0] * 3, spoil=only_at_first), 3)

    assert marks(found) == [Mark.SAME] * 3
    assert found.series[0].p_slower <= 0.05
    assert found.series[0].confirm_p is not None
    assert found.series[0].confirm_p > 0.02


def test_a_series_is_accused_by_both_stages_or_not_at_all() -> None:
    # The whole suite is slower, and so fresh pairs of all are measured; the last series shows it in them alone.
    def late(machine: Machine, rows: Sequence[int], table: np.ndarray) -> None:
        if len(machine.asked) == 2:
            table[list(rows).index(9)] += 0.05

    machine = Machine([0.02] * 9 + [0.0], spoil=late)
    found = judge(machine, 10)

    assert machine.asked == [(list(range(10)), 8), (list(range(10)), 8)]
    assert found.suite is not None
    assert found.suite.mark is Mark.SLOWER
    assert found.series[9].confirm_p is None
    assert found.series[9].mark is Mark.UNSURE


def test_a_shift_of_the_whole_suite_is_found_below_what_a_series_shows() -> None:
    found = judge(Machine([0.0015] * 60, deviation=0.003, seed=2), 60, margin=0.0)

    assert found.suite is not None
    assert found.suite.mark is Mark.SLOWER
    assert found.suite.estimate == pytest.approx(0.0015, abs=0.0005)


def test_an_open_series_gets_further_pairs_of_its_own() -> None:
    def two_slow_processes(machine: Machine, rows: Sequence[int], table: np.ndarray) -> None:
        if len(machine.asked) == 1:
            table[list(rows).index(4), :2] += 0.05

    machine = Machine([0.0] * 6, spoil=two_slow_processes)
    found = judge(machine, 6)

    assert marks(found) == [Mark.SAME] * 6
    assert machine.asked == [(list(range(6)), 8), ([4], 12)]
    assert (found.settle_pairs, found.series[4].pairs, found.series[0].pairs) == (12, 20, 8)


def test_settling_never_accuses() -> None:
    def slow_at_last(machine: Machine, _rows: Sequence[int], table: np.ndarray) -> None:
        if len(machine.asked) > 1:
            table += 0.05
        else:
            table[0, 0] += 0.05

    machine = Machine([0.0] * 3, spoil=slow_at_last)
    found = judge(machine, 3)

    assert machine.asked[1:] == [([0], 12), ([0], 12)]
    assert marks(found) == [Mark.UNSURE, Mark.SAME, Mark.SAME]


def test_a_noisy_suite_is_not_settled_one_by_one() -> None:
    machine = Machine([0.0] * 12, deviation=0.05)
    found = judge(machine, 12)

    assert found.settle_pairs == 0
    assert Mark.SLOWER not in marks(found)
    assert Mark.UNSURE in marks(found)


def test_a_proved_slowdown_inside_the_margin_is_a_note() -> None:
    series = judge(Machine([0.003, 0.0], deviation=0.0003), 2).series

    assert (series[0].mark, series[0].inside_margin) == (Mark.SAME, True)
    assert not series[1].inside_margin


def test_without_a_margin_the_same_slowdown_is_an_accusation() -> None:
    series = judge(Machine([0.003, 0.0], deviation=0.0003), 2, margin=0.0).series

    assert (series[0].mark, series[0].inside_margin) == (Mark.SLOWER, False)


def test_each_series_has_a_margin_of_its_own() -> None:
    found = decide(Design(), [0.0, 0.05], Machine([0.02, 0.02]))

    assert marks(found) == [Mark.SLOWER, Mark.UNSURE]


def test_a_series_without_valid_pairs_is_unsure_and_knows_nothing() -> None:
    def broken(_machine: Machine, rows: Sequence[int], table: np.ndarray) -> None:
        table[list(rows).index(0)] = math.inf

    series = judge(Machine([0.0] * 3, spoil=broken), 3).series[0]

    assert (series.mark, series.pairs, series.estimate, series.lower, series.upper) == (
        Mark.UNSURE,
        0,
        None,
        None,
        None,
    )
    assert (series.p_slower, series.deviation, series.detectable) == (1.0, None, None)


def test_a_decision_survives_json() -> None:
    found = judge(Machine([0.02, 0.0]), 2)

    assert from_json(to_json(found), Decision) == found


def test_a_replay_of_the_same_pairs_decides_the_same() -> None:
    assert judge(Machine([0.01] * 8, seed=9), 8) == judge(Machine([0.01] * 8, seed=9), 8)


def test_swapping_the_sides_mirrors_the_verdict() -> None:
    there = judge(Machine([0.02, 0.0]), 2)
    mirrored = Machine([0.02, 0.0])
    back = judge(lambda rows, pairs, stage: -mirrored(rows, pairs, stage), 2)

    assert marks(back) == [Mark.FASTER, Mark.SAME]
    assert there.series[0].estimate == pytest.approx(-(back.series[0].estimate or 0))


def test_a_sampler_that_gives_too_little_is_caught() -> None:
    with pytest.raises(ValueError, match=r"asked for \(2, 8\) log ratios and gave \(2, 7\)"):
        judge(lambda rows, pairs, _stage: np.zeros((len(rows), pairs - 1)), 2)


@pytest.mark.parametrize("margins", [[], [-0.01], [math.nan]])
def test_margins_that_make_no_sense_are_refused(margins: list[float]) -> None:
    with pytest.raises(ValueError, match="need a margin for each series"):
        decide(Design(), margins, Machine([0.0]))


def test_sixty_series_are_decided_in_less_than_a_third_of_a_second() -> None:
    design = Design(pairs=14, first_look=14)
    judge(Machine([0.0] * 60), 60, design=design)  # simulates the detectable slowdown, once a design
    start = time.process_time()
    judge(Machine([0.0] * 60), 60, design=design)

    assert time.process_time() - start < 0.3

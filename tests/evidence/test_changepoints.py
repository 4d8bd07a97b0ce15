from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from evidence import changepoints
from evidence.changepoints import ASV, FINDINGS, FLOPWATCH, OTAVA, PAGE, Findings, blocks, detect, score, update
from evidence.labelled import (
    COMMITS,
    CORRELATED,
    DRIFT,
    HEAVY,
    NORMAL,
    OUTLIERS,
    SCENARIOS,
    SHORT,
    WEATHERS,
    Scenario,
    labelled,
    matches,
    noise,
)

from flopwatch.model import from_json, to_json
from flopwatch.stats.changepoints import change_points

if TYPE_CHECKING:
    from pathlib import Path

#: The median distance of neighbours, in deviations, and how much of a deviation the next commit remembers.
NEIGHBOURS_APART = {NORMAL: 0.954, HEAVY: 0.73, OUTLIERS: 1.0, DRIFT: 0.954, CORRELATED: 0.675}
REMEMBERED = {NORMAL: 0.0, HEAVY: 0.0, OUTLIERS: 0.0, DRIFT: 0.87, CORRELATED: 0.5}


@pytest.fixture(scope="module")
def kept() -> Findings:
    return from_json(FINDINGS.read_bytes(), Findings)


def test_the_page_shows_what_was_found(kept: Findings) -> None:
    found = re.findall(r"<!-- (\w+):begin -->\n(.*?)<!-- \1:end -->", PAGE.read_text(encoding="utf-8"), re.DOTALL)

    assert {name: text.strip() for name, text in found} == {name: text.strip() for name, text in blocks(kept).items()}


def test_the_aims_of_size_and_of_false_points_are_met(kept: Findings) -> None:
    assert (kept.cost.series, kept.cost.commits) == (300, 10_000)
    assert kept.cost.full_seconds < 180
    assert kept.cost.update_seconds < 10
    assert kept.cost.peak_bytes < 2**30
    assert kept.rate_points / kept.rate_commits < 2e-5


def test_flopwatch_finds_no_fewer_steps_than_asv(kept: Findings) -> None:
    scores = {(each.detector, each.scenario): each for each in kept.scores}

    assert {detector for detector, _ in scores} == {FLOPWATCH, ASV, OTAVA}
    for scenario in SCENARIOS:
        assert scores[FLOPWATCH, scenario].matched >= scores[ASV, scenario].matched


def test_what_is_kept_is_found_again(kept: Findings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changepoints, "ASKED_AFTER", ())
    scenario = SCENARIOS[2]
    again = score(FLOPWATCH, scenario, None)
    (before,) = [each for each in kept.scores if (each.detector, each.scenario) == (FLOPWATCH, scenario)]

    assert (again.planted, again.reported, again.matched) == (before.planted, before.reported, before.matched)
    assert (again.delay, before.delay is not None) == (None, True)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=str)
def test_labelled_series_have_their_steps_where_they_say(scenario: Scenario) -> None:
    values, places = labelled(replace(scenario, noise=0.0), np.random.default_rng(1))
    stretches = np.diff(places)

    assert np.flatnonzero(np.diff(values)).tolist() == [place - 1 for place in places]
    assert abs(np.diff(values)[np.array(places) - 1]) == pytest.approx(scenario.step)
    assert max(stretches[::2]) <= 15 if scenario.layout == SHORT else min(stretches) >= 50
    assert COMMITS - places[-1] >= 50


@pytest.mark.parametrize("weather", WEATHERS)
def test_noise_is_of_one_deviation(weather: str) -> None:
    values = noise(weather, np.random.default_rng(2), 4000)
    neighbours = float(np.corrcoef(values[1:], values[:-1])[0, 1])

    assert np.median(abs(np.diff(values))) == pytest.approx(NEIGHBOURS_APART[weather], rel=0.1)
    assert neighbours == pytest.approx(REMEMBERED[weather], abs=0.1)


def test_each_point_finds_one_step() -> None:
    assert matches([48, 52], [50]) == 1
    assert matches([50], [48, 52]) == 1
    assert matches([56], [50]) == 0


def test_detectors_say_where_the_first_value_after_a_step_is() -> None:
    values = np.where(np.arange(120) < 70, 0.0, 0.1) + 0.001 * np.random.default_rng(3).normal(size=120)

    assert [detect(detector, [values, values[:70]], None) for detector in (FLOPWATCH, ASV)] == [[[70], []]] * 2


def test_otava_needs_its_interpreter() -> None:
    with pytest.raises(ValueError, match="the interpreter in which it is installed"):
        detect(OTAVA, [np.zeros(3)], None)


def test_an_update_goes_on_from_what_is_written(tmp_path: Path) -> None:
    series = [np.random.default_rng(seed).normal(size=400) for seed in range(2)]
    for seed, values in enumerate(series):
        np.save(tmp_path / f"{seed}.npy", values)
    cost = update(tmp_path, [to_json(change_points(values[:-1])) for values in series], 3.0)

    assert (cost.series, cost.full_seconds) == (2, 3.0)
    assert cost.state_bytes == sum(len(to_json(change_points(values))) for values in series)

from __future__ import annotations

import pytest
from benchmarks_host.limit import LIMITS_PERCENT, NOISE, Noise, alarms, deviations, false_alarm_rate

from flopwatch.model import from_json


@pytest.fixture(scope="module")
def noise() -> Noise:
    return from_json(NOISE.read_bytes(), Noise)


@pytest.mark.parametrize("module", LIMITS_PERCENT)
def test_a_limit_fails_fewer_than_one_clean_run_in_a_hundred(noise: Noise, module: str) -> None:
    assert noise.runs >= 15
    assert false_alarm_rate(noise.of(module), LIMITS_PERCENT[module]) < 0.01


@pytest.mark.parametrize("module", LIMITS_PERCENT)
def test_a_limit_is_as_low_as_that_allows(noise: Noise, module: str) -> None:
    assert false_alarm_rate(noise.of(module), LIMITS_PERCENT[module] - 5) > 0.01


@pytest.mark.parametrize("module", LIMITS_PERCENT)
def test_no_clean_run_was_over_the_limit(noise: Noise, module: str) -> None:
    assert alarms(noise.of(module), LIMITS_PERCENT[module]) == (0, noise.runs)


def test_every_benchmark_belongs_to_a_module_with_a_limit(noise: Noise) -> None:
    assert {name.partition("::")[0] for name in deviations(noise)} == LIMITS_PERCENT.keys()


def test_a_noisier_benchmark_is_over_a_limit_more_often() -> None:
    quiet = Noise(machine={}, baseline_runs=5, medians={"a": [1.0, 1.01, 0.99, 1.0]})
    noisy = Noise(machine={}, baseline_runs=5, medians={"a": [1.0, 1.2, 0.8, 1.0]})

    assert false_alarm_rate(quiet, 10) < 1e-6
    assert false_alarm_rate(noisy, 10) > 0.1
    assert alarms(noisy, 10) == (1, 4)

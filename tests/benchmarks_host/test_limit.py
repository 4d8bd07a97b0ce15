from __future__ import annotations

import ast
import json
from typing import TYPE_CHECKING

import pytest
from benchmarks_host.limit import LIMITS_PERCENT, NOISE, Noise, alarms, deviations, false_alarm_rate

from flopwatch.model import from_json

if TYPE_CHECKING:
    from pathlib import Path


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


@pytest.mark.parametrize("path", sorted(NOISE.with_name("baseline").glob("*.json")), ids=lambda path: path.stem)
def test_a_baseline_has_every_benchmark(path: Path) -> None:
    """pytest-benchmark compares what both have, so that one which no baseline has would never fail."""
    declared = {
        f"benchmarks_host/{module}::{node.name}"
        for module in LIMITS_PERCENT
        for node in ast.parse(NOISE.with_name(module).read_text(encoding="utf-8")).body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }
    assert {record["fullname"] for record in json.loads(path.read_bytes())["benchmarks"]} == declared


def test_a_noisier_benchmark_is_over_a_limit_more_often() -> None:
    quiet = Noise(machine={}, baseline_runs=5, medians={"a": [1.0, 1.01, 0.99, 1.0]})
    noisy = Noise(machine={}, baseline_runs=5, medians={"a": [1.0, 1.2, 0.8, 1.0]})

    assert false_alarm_rate(quiet, 10) < 1e-6
    assert false_alarm_rate(noisy, 10) > 0.1
    assert alarms(noisy, 10) == (1, 4)

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flopwatch.asv.derived import BANDWIDTH, DERIVATIONS, OCCUPANCY, TFLOPS, Derivation
from flopwatch.suite import METRICS

SECONDS = st.floats(min_value=1e-9, max_value=1e3)


def test_tflops_are_flops_over_seconds_in_units_of_1e12() -> None:
    assert TFLOPS.value(1e-3, 2 * 4096**3) == pytest.approx(137.438953472)


def test_bandwidth_is_bytes_over_seconds_in_units_of_1e9() -> None:
    assert BANDWIDTH.value(1e-3, 4.8e9) == pytest.approx(4800)


def test_occupancy_is_what_is_not_idle() -> None:
    assert OCCUPANCY.value(75.0, 0.0) == 25.0


@given(SECONDS, SECONDS)
def test_more_seconds_are_fewer_tflops(one: float, other: float) -> None:
    first, second = TFLOPS.value(one, 1e12), TFLOPS.value(other, 1e12)

    assert first is not None
    assert second is not None
    assert (first >= second) == (one <= other) or math.isclose(one, other)


@pytest.mark.parametrize("derivation", DERIVATIONS, ids=lambda derivation: derivation.name)
@pytest.mark.parametrize("stored", [None, math.nan, math.inf, -math.inf])
def test_nothing_is_derived_from_nothing(derivation: Derivation, stored: float | None) -> None:
    assert derivation.value(stored, 1e12) is None


@pytest.mark.parametrize(("seconds", "flops"), [(0.0, 1e12), (-1.0, 1e12), (1e-3, 0.0), (1e-3, math.nan)])
def test_throughput_without_time_or_work_is_absent(seconds: float, flops: float) -> None:
    assert TFLOPS.value(seconds, flops) is None


def test_a_step_keeps_its_revisions_and_its_relative_deviation() -> None:
    assert TFLOPS.step((3, 9, 2e-3, 1e-3, 2e-5), 1e12) == (3, 9, 500.0, 1000.0, 5.0)


def test_a_step_without_work_is_absent() -> None:
    assert TFLOPS.step((3, 9, 2e-3, 1e-3, 2e-5), 0.0) is None


def test_every_derivation_starts_from_a_metric_that_is_recorded() -> None:
    assert {derivation.metric for derivation in DERIVATIONS} <= METRICS.keys()

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flopwatch.asv.derived import BANDWIDTH, DERIVATIONS, OCCUPANCY, ROOFLINE, TFLOPS, Derivation
from flopwatch.suite import METRICS

SECONDS = st.floats(min_value=1e-9, max_value=1e3)
#: 1 ms of an H200's tensor cores, and 2 ms of its memory.
WORK = {"flops": [989.4e9, 0.0], "bytes_moved": [4.8e6, 9.6e9]}


def value(derivation: Derivation, stored: float, work: float) -> float:
    return float(derivation.values(stored, work))


def test_tflops_are_flops_over_seconds_in_units_of_1e12() -> None:
    assert value(TFLOPS, 1e-3, 2 * 4096**3) == pytest.approx(137.438953472)


def test_bandwidth_is_bytes_over_seconds_in_units_of_1e9() -> None:
    assert value(BANDWIDTH, 1e-3, 4.8e9) == pytest.approx(4800)


def test_occupancy_is_what_is_not_idle() -> None:
    assert value(OCCUPANCY, 75.0, 0.0) == 25.0


def test_a_call_at_the_roofline_is_at_100_percent_of_it() -> None:
    compute_bound, memory_bound = ROOFLINE.works(WORK, "NVIDIA H200")

    assert value(ROOFLINE, 1e-3, compute_bound) == pytest.approx(100)
    assert value(ROOFLINE, 4e-3, memory_bound) == pytest.approx(50)


def test_each_case_is_held_against_the_peak_of_its_own_operands() -> None:
    work = {"flops": [989.4e9] * 4, "bytes_moved": [1.0] * 4}
    params = [["'8192'"], ["'float16'", "'float8_e4m3fn'"], ["'flopwatch'", "'torch'"]]
    sixteen, _, eight, _ = ROOFLINE.works(work | {"params": params}, "NVIDIA H200")

    assert value(ROOFLINE, 1e-3, sixteen) == pytest.approx(100)
    assert value(ROOFLINE, 1e-3, eight) == pytest.approx(50, rel=1e-4)


@pytest.mark.parametrize("gpu", ["", "none (static h200)", "NVIDIA H100 PCIe"])
def test_a_gpu_whose_peaks_are_not_known_has_no_roofline(gpu: str) -> None:
    assert ROOFLINE.works(WORK, gpu) == []


@given(SECONDS, SECONDS)
def test_more_seconds_are_fewer_tflops(one: float, other: float) -> None:
    first, second = TFLOPS.values([one, other], 1e12).tolist()

    assert (first >= second) == (one <= other) or math.isclose(one, other)


@pytest.mark.parametrize("derivation", DERIVATIONS, ids=lambda derivation: derivation.name)
@pytest.mark.parametrize("stored", [math.nan, math.inf, -math.inf])
def test_nothing_is_derived_from_nothing(derivation: Derivation, stored: float) -> None:
    assert math.isnan(value(derivation, stored, 1e12))


@pytest.mark.parametrize(("seconds", "flops"), [(0.0, 1e12), (-1.0, 1e12), (1e-3, 0.0), (1e-3, math.nan)])
def test_throughput_without_time_or_work_is_absent(seconds: float, flops: float) -> None:
    assert math.isnan(value(TFLOPS, seconds, flops))


def test_each_case_has_its_own_work() -> None:
    assert TFLOPS.values(np.full((2, 3), 1e-3), [1e12, 2e12, 0.0])[:, :2].tolist() == [[1000, 2000], [1000, 2000]]


def test_a_step_keeps_its_revisions_and_its_relative_deviation() -> None:
    assert TFLOPS.step((3, 9, 2e-3, 1e-3, 2e-5), 1e12) == (3, 9, 500.0, 1000.0, 5.0)


def test_a_step_without_work_is_absent() -> None:
    assert TFLOPS.step((3, 9, 2e-3, 1e-3, 2e-5), 0.0) is None


def test_every_derivation_starts_from_a_metric_that_is_recorded() -> None:
    assert {derivation.metric for derivation in DERIVATIONS} <= METRICS.keys()

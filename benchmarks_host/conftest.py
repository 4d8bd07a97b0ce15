"""What the benchmarks need, and what pytest-benchmark keeps of a run: no name of a machine, a user or a branch."""

from __future__ import annotations

import platform
from importlib.metadata import version
from typing import TYPE_CHECKING

import pytest
import torch
from pytest_benchmark.session import PerformanceRegression

from benchmarks_host.interleaved import measure
from benchmarks_host.stand_in import compiler, stand_in_gpu

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from pytest_benchmark.fixture import BenchmarkFixture

    Ratio = Callable[[Callable[[], object]], None]


@pytest.fixture
def ratio(benchmark: BenchmarkFixture) -> Ratio:
    """Benchmark a function in units of the calibration loop."""
    return lambda work: measure(benchmark, work)


@pytest.fixture
def gpu() -> Iterator[str]:
    """Make launches possible: on the real GPU, or on the stand-in."""
    if torch.cuda.is_available():
        yield "cuda"
        return
    if compiler() is None:
        pytest.skip("no C compiler to build the stand-in for libcuda")
    with stand_in_gpu():
        yield "cuda"


def pytest_benchmark_scale_unit() -> tuple[str, float]:
    """Name the unit, to which pytest-benchmark adds an s."""
    return "calibration loop", 1.0


def pytest_benchmark_generate_machine_info() -> dict[str, str]:
    """Say what the ratios depend on."""
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else "stand-in"
    versions = {name: version(name).partition("+")[0] for name in ("numpy", "torch", "triton", "asv")}
    return {"python": platform.python_version(), "machine": platform.machine(), "gpu": gpu, **versions}


def pytest_benchmark_generate_commit_info() -> dict[str, str]:
    """Say nothing of the commit: the baseline is committed with what it measured."""
    return {}


@pytest.hookimpl(wrapper=True)
def pytest_terminal_summary() -> Generator[None, None, None]:
    """End with what pytest-benchmark says of a regression, instead of the traceback of the error that it raises."""
    try:
        yield
    except PerformanceRegression:
        pytest.exit("slower than the baseline by more than the limit", returncode=int(pytest.ExitCode.TESTS_FAILED))


@pytest.hookimpl(tryfirst=True)
def pytest_benchmark_compare_machine_info() -> None:
    """Leave other versions to the table and its limit, instead of a warning for each."""

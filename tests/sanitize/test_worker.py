from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest
import torch

from flopwatch.errors import MachineError
from flopwatch.model import Case
from flopwatch.sanitize import Tool, worker
from flopwatch.sanitize.job import Job
from flopwatch.suite import Suite

if TYPE_CHECKING:
    from collections.abc import Iterator

CASE = Case(suite="Scale", values=("1000", "float32", "flopwatch"))
JOB = Job(tool=Tool.MEMCHECK, benchmarks="benchmarks", device="h200", cases=(CASE,))


def test_the_kernels_of_a_case_that_fails_on_a_gpu_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """By their names a fault in the log is told from those of torch's own kernels."""

    @contextlib.contextmanager
    def launched() -> Iterator[list[str]]:
        yield ["scale_kernel"]

    def call(_suite: Suite, _case: Case) -> None:
        raise RuntimeError("CUDA error: unspecified launch failure")

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(worker, "launched_kernels", launched)
    monkeypatch.setattr(worker, "_call", call)
    with worker.look_on_gpu(JOB) as run:
        report = run(Suite(), CASE)

    assert report.kernels == ("scale_kernel",)
    assert report.failure is not None
    assert report.failure.kind == "RuntimeError"


def test_without_a_gpu_nothing_runs_on_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)

    with pytest.raises(MachineError, match="no GPU"), worker.look_on_gpu(JOB):
        pass

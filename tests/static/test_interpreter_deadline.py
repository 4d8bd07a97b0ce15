# mypy: disable-error-code="no-untyped-def,untyped-decorator"
# ruff: noqa: ANN001, ANN202 - a kernel's arguments are Triton's own types, checked by its compiler

from __future__ import annotations

import os

import pytest
import torch
import triton
import triton.language as tl

from flopwatch.static import interpreter_deadline
from flopwatch.static.not_covered import NotCovered

pytestmark = pytest.mark.skipif(
    os.environ.get("TRITON_INTERPRET") != "1", reason="kernels are not interpreted where there is a GPU"
)


@triton.jit
def _count(x):
    tl.atomic_add(x, 1)


@triton.jit
def _wait(x):
    while tl.load(x) == 0:
        pass


def test_a_launch_within_the_limit_runs_to_its_end(cuda: str) -> None:
    x = torch.zeros(1, device=cuda, dtype=torch.int32)
    _count[(50,)](x)
    assert x.item() == 50


def test_a_grid_that_takes_too_long_is_not_covered(cuda: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interpreter_deadline, "LAUNCH_LIMIT_S", 0.05)
    x = torch.zeros(1, device=cuda, dtype=torch.int32)
    with pytest.raises(NotCovered, match=r"takes longer than 0.05 s .* of \(1000000, 1, 1\)"):
        _count[(1000000,)](x)
    assert 0 < x.item() < 1000000


def test_a_program_that_waits_for_another_is_not_covered(cuda: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interpreter_deadline, "LAUNCH_LIMIT_S", 0.05)
    with pytest.raises(NotCovered, match=r"at program \(0, 0, 0\)"):
        _wait[(2,)](torch.zeros(1, device=cuda, dtype=torch.int32))

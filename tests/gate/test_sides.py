from __future__ import annotations

from typing import TYPE_CHECKING, Self

import pytest

from flopwatch.config import Config
from flopwatch.errors import MachineError
from flopwatch.gate import sides
from flopwatch.gate.sides import Arm, Sides
from flopwatch.measure.client import Code, Mode, NurseryFailed
from flopwatch.model import Failure

if TYPE_CHECKING:
    from pathlib import Path


class Nursery:
    """Stands in for a nursery, of which that of `fails` cannot be forked."""

    fails: Path | None = None

    def __init__(self, code: Code) -> None:
        self.code = code

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def ready(self) -> None:
        if self.code.tree == self.fails:
            raise NurseryFailed(Failure(kind="UsageError", message="CUDA was initialised"))


@pytest.fixture
def both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sides:
    monkeypatch.setattr(sides, "Nursery", Nursery)
    monkeypatch.setattr(sides, "present_gpus", lambda: {"GPU-1": "NVIDIA H200"})
    monkeypatch.setattr(Nursery, "fails", None)
    return Sides(Config(packages=("toy",)), device="h200", base_tree=tmp_path / "a", head_tree=tmp_path / "b")


def forks(both: Sides, mode: Mode = Mode.GPU, *, anew: bool = False) -> list[bool]:
    return [both.worker(mode, arm, anew=anew)._nursery is not None for arm in Arm]


def test_workers_that_measure_are_forked_but_for_those_that_start_anew(both: Sides) -> None:
    both.start_nurseries()
    assert (forks(both), forks(both, anew=True), forks(both, Mode.STATIC)) == ([True] * 2, [False] * 2, [False] * 2)
    assert both.notes == []


@pytest.mark.parametrize("arm", Arm)
def test_where_one_side_cannot_be_forked_both_start_anew_and_it_is_told_once(
    arm: Arm, both: Sides, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Nursery, "fails", both.trees[arm])
    both.start_nurseries()
    assert forks(both) == forks(both) == [False] * 2
    assert both.notes == [f"workers start anew, 3 s slower: {arm.value}: CUDA was initialised"]


def test_without_a_driver_nothing_is_forked(both: Sides, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> dict[str, str]:
        raise MachineError("no NVIDIA driver answers")

    monkeypatch.setattr(sides, "present_gpus", refuse)
    both.start_nurseries()
    assert forks(both) == [False] * 2

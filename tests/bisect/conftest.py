"""Repositories whose commits say how long a call takes, and workers that believe them; tests/measure has real ones."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import pytest
from tests.compare.conftest import FakeWatch, FakeWorker, Gpu, declared
from tests.conftest import ToyRepository

from flopwatch.gate.sides import Arm, Sides
from flopwatch.measure.client import CaseFailed, Mode, Worker
from flopwatch.measure.machine import Snapshot
from flopwatch.model import Case, Choice, Failure

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


FAST, SLOW = 1.00e-5, 1.02e-5
CASE = "Add[1024,flopwatch]"


class BelievingWorker(FakeWorker):
    """Takes as long as its checkout says."""

    def __init__(self, arm: Arm, gpu: Gpu, tree: Path) -> None:
        super().__init__(arm, gpu)
        self.source = (tree / "src" / "toykernels" / "__init__.py").read_text(encoding="utf-8")

    def tune(self, case: Case, pins: Sequence[Choice] = ()) -> tuple[Choice, ...]:
        if "raise" in self.source:
            raise CaseFailed(
                Failure(kind="SuiteError", message=f"no suite {case.suite!r}\n  why: planted"), cast("Worker", self)
            )
        return super().tune(case, pins)

    def visit(self, case: Case, samples: int) -> tuple[float, ...]:
        assert case in self.ready
        self.gpu.visits += 1
        if self.gpu.visits > self.gpu.interrupt_after:
            raise KeyboardInterrupt
        noise = self.offset + self.gpu.random.gauss(0, self.gpu.noise)
        return (self.seconds() * math.exp(noise),) * samples

    def launch(self, _case: Case, samples: int) -> tuple[float, ...]:
        return (2e-5,) * samples

    def seconds(self) -> float:
        (number,) = re.findall(r"^SECONDS = (.*)", self.source, re.MULTILINE)
        return float(number)


@dataclass(kw_only=True)
class Intruded(FakeWatch):
    """Sees another process from some snapshot on."""

    intruder_after: int = 10**9
    taken: int = 0

    def snapshot(self) -> Snapshot:
        self.taken += 1
        processes = (7, 99) if self.taken > self.intruder_after else (7,) if self.taken > 1 else ()
        return Snapshot(time_s=0.0, processes=processes)


@dataclass(kw_only=True)
class Machine:
    """A machine whose workers are stand-ins."""

    gpu: Gpu = field(default_factory=lambda: Gpu(declared=(declared("Add"), declared("Matmul")), noise=0.0005))
    watch: Intruded = field(default_factory=Intruded)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    """Let all workers and the GPU's readings be stand-ins."""
    machine = Machine()

    def worker(sides: Sides, mode: Mode, arm: Arm, *, anew: bool = False) -> Worker:
        assert mode is Mode.GPU
        assert not anew
        return cast("Worker", BelievingWorker(arm, machine.gpu, sides.trees[arm]))

    def watch(_uuid: str) -> Any:  # noqa: ANN401 - it stands in for a Watch
        return machine.watch

    monkeypatch.setattr(Sides, "worker", worker)
    monkeypatch.setattr(Sides, "start_nurseries", lambda _sides: None)
    monkeypatch.setattr("flopwatch.measure.nvml.present_gpus", lambda: {"GPU-0": "NVIDIA H200"})
    monkeypatch.setattr("flopwatch.bisect.times.Watch", watch)
    monkeypatch.setattr("flopwatch.measure.pair.SETTLE_S", 0.0)  # how much noise is drawn must not depend on the time
    return machine


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """A repository that is written commit by commit; each returns its hash."""

    toy: ToyRepository

    def takes(self, seconds: float, subject: str = "") -> str:
        """Commit code that differs from all before and takes so long."""
        unlike = self.toy.git("rev-list", "--all", "--count").strip()
        return self.write(f"SECONDS = {seconds!r}\nCOMMIT = {unlike}\n", subject or f"takes {seconds:g} s")

    def fails(self) -> str:
        unlike = self.toy.git("rev-list", "--all", "--count").strip()
        return self.write(f"raise RuntimeError({unlike})\n", "does not import")

    def write(self, source: str, subject: str) -> str:
        self.toy.kernel.write_text(source, encoding="utf-8")
        return self.toy.commit(subject)

    def also_writes(self, name: str) -> str:
        """Commit code in a file of its own, which merges with any other."""
        (self.toy.kernel.parent / f"{name}.py").write_text(f"NAME = {name!r}\n", encoding="utf-8")
        return self.toy.commit(f"add {name}")


@pytest.fixture
def line(toy: ToyRepository) -> Line:
    return Line(toy=toy)

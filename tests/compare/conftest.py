"""Stand-ins for workers, to test what a comparison makes of known times and numbers; real ones are in tests/measure."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self, cast

import pytest

from flopwatch.config import Config
from flopwatch.gate.sides import Arm, Sides
from flopwatch.measure.client import CaseFailed, Mode, Worker
from flopwatch.measure.machine import Gpu as GpuFacts
from flopwatch.measure.machine import Snapshot
from flopwatch.measure.protocol import DeclaredCase, Hello, Method, Plan, Prepared
from flopwatch.model import Case, Choice, Failure, Numbers

if TYPE_CHECKING:
    from collections.abc import Sequence

UUID = "GPU-4a1f6e2c-0000-1111-2222-333344445555"
PLAN = Plan(method=Method.GRAPH, calls=16, input_sets=16)


def declared(suite: str, provider: str = "flopwatch", *, ceiling: float | None = None) -> DeclaredCase:
    return DeclaredCase(
        case=Case(suite=suite, values=("1024", provider)),
        small=Case(suite=suite, values=("16", provider)),
        own=provider == "flopwatch",
        max_diff_eps=ceiling,
        flops=2e6,
        bytes_moved=1e6,
    )


@dataclass(kw_only=True)
class Gpu:
    """What the stand-ins share: who is how slow, what they return, and what goes wrong. Keys are `Name`s."""

    declared: tuple[DeclaredCase, ...] = ()
    seconds: dict[tuple[str, str], float] = field(default_factory=dict)
    errors_eps: dict[tuple[str, str], float] = field(default_factory=dict)
    failing: dict[tuple[str, str], str] = field(default_factory=dict)
    failing_in_pairs: dict[str, str] = field(default_factory=dict)
    failing_arms: tuple[Arm, ...] = tuple(Arm)
    choices: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    slower: dict[tuple[str, str], float] = field(default_factory=dict)
    import_failures: dict[str, str] = field(default_factory=dict)
    uuid: dict[Arm, str | None] = field(default_factory=lambda: dict.fromkeys(Arm, UUID))
    plans: dict[tuple[str, str], Plan] = field(default_factory=dict)
    noise: float = 0.001
    interrupt_after: int = 10**9
    visits: int = 0
    visited: Arm | None = None
    started: list[Arm] = field(default_factory=list)
    ran: list[tuple[Arm, str, tuple[str, ...]]] = field(default_factory=list)
    random: random.Random = field(default_factory=lambda: random.Random(1))


class FakeWorker:
    """Runs nothing."""

    def __init__(self, arm: Arm, gpu: Gpu) -> None:
        self.arm, self.gpu, self.pid = arm, gpu, 7
        self.offset = gpu.random.gauss(0, gpu.noise)  # of a process
        self.ready: set[Case] = set()
        self.slower = 0.0

    def __enter__(self) -> Self:
        self.gpu.started.append(self.arm)
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def wake(self) -> None:
        pass

    def abandon(self) -> None:
        pass

    @property
    def hello(self) -> Hello:
        return Hello(
            gpu="NVIDIA H200",
            gpu_uuid=self.gpu.uuid[self.arm],
            compute_capability=(9, 0),
            versions={"triton": {Arm.BASE: "3.6.0", Arm.HEAD: "3.9.0"}[self.arm]},
            declared=self.gpu.declared,
            import_failures=self.gpu.import_failures,
        )

    def tune(self, case: Case, pins: Sequence[Choice] = ()) -> tuple[Choice, ...]:
        assert not pins
        self._fail(self.gpu.failing.get(self._name(case)), "ArithmeticError")
        chosen = self.gpu.choices.get(self._name(case))
        if not chosen:
            return ()
        config = chosen.pop(0) if len(chosen) > 1 else chosen[0]
        return (Choice(kernel="k", config=config, timings_us={"tall": 10.0, "wide": 10.1}),)

    def numbers(self, case: Case, *, seed: int = 0, pins: Sequence[Choice] = ()) -> Numbers:
        self.gpu.ran.append((self.arm, case.id, tuple(pin.config for pin in pins)))
        eps = self.gpu.errors_eps.get(self._name(case), 0.25) + 0.01 * seed
        return Numbers(dtype="float16", max_diff=eps / 100, max_diff_eps=eps, finite=math.isfinite(eps), bitwise="0")

    def prepare(
        self, case: Case, plan: Plan | None = None, pins: Sequence[Choice] = (), *, beside: bool = False, lent: str = ""
    ) -> Prepared:
        assert not (beside and lent)
        if self.arm in self.gpu.failing_arms:
            self._fail(self.gpu.failing_in_pairs.get(case.id), "WorkerDied")
        if not beside:
            self.ready.clear()
        self.ready.add(case)
        self.slower = sum(self.gpu.slower.get((self.arm.value, pin.config), 0.0) for pin in pins)
        return Prepared(plan=plan or self.gpu.plans.get(self._name(case), PLAN), choices=tuple(pins))

    def lend(self, case: Case, _to: Worker) -> str:
        return case.id

    def place(self, case: Case) -> None:
        assert case in self.ready

    def release(self, _case: Case) -> None:
        self.ready.clear()

    def visit(self, case: Case, samples: int) -> tuple[float, ...]:
        assert case in self.ready
        self.gpu.visits += 1
        self.gpu.visited = self.arm
        if self.gpu.visits > self.gpu.interrupt_after:
            raise KeyboardInterrupt
        noise = self.slower + self.offset + self.gpu.random.gauss(0, self.gpu.noise)
        return (self.gpu.seconds.get(self._name(case), 1e-5) * math.exp(noise),) * samples

    def launch(self, case: Case, samples: int) -> tuple[float, ...]:
        return (2 * self.gpu.seconds.get(self._name(case), 1e-5),) * samples

    def _name(self, case: Case) -> tuple[str, str]:
        """Return the suite, and the arm, or the provider where it is a peer."""
        return case.suite, self.arm.value if case.provider == "flopwatch" else case.provider

    def _fail(self, message: str | None, kind: str) -> None:
        if message:
            raise CaseFailed(Failure(kind=kind, message=message), cast("Worker", self))


class FakeSides(Sides):
    def __init__(self, gpu: Gpu, config: Config | None = None) -> None:
        self.config, self.gpu, self.notes = config or Config(packages=("toy",)), gpu, []

    def worker(self, mode: Mode, arm: Arm, *, anew: bool = False) -> Worker:
        assert mode is Mode.GPU
        assert not anew
        return cast("Worker", FakeWorker(arm, self.gpu))


@dataclass(kw_only=True)
class FakeWatch:
    """Reads a healthy H200."""

    processes: tuple[int, ...] = (7,)
    clocks_read: int = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def gpu(self) -> GpuFacts:
        return GpuFacts(name="NVIDIA H200", uuid=UUID)

    def clock(self) -> int:
        self.clocks_read += 1
        return 1980

    def reason_bits(self) -> int:
        return 0

    def snapshot(self) -> Snapshot:
        return Snapshot(time_s=0.0, processes=self.processes)


@pytest.fixture
def gpu() -> Gpu:
    """Two suites, each with a peer; nothing differs."""
    return Gpu(declared=tuple(declared(suite, name) for suite in ("Add", "Matmul") for name in ("flopwatch", "torch")))

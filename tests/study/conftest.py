"""Stand-ins for workers and the GPU, so that studies run anywhere in milliseconds."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self, cast

import pytest

from flopwatch.measure.client import CaseFailed
from flopwatch.measure.machine import Gpu as GpuFacts
from flopwatch.measure.machine import Snapshot
from flopwatch.measure.protocol import DeclaredCase, Hello, Method, Plan, Prepared
from flopwatch.model import Case, Choice, Failure, Memory, Numbers
from flopwatch.study import Conclusion
from flopwatch.study.declaration import Declaration

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flopwatch.measure.client import Worker

UUID = "GPU-12345678"
PLAN = Plan(method=Method.GRAPH, calls=1, input_sets=1)
#: How a toy study of a kernel that doubles ends, of parameters n and kind; how it runs stands before.
SCALED = """
    def inputs(self, n, kind, *, seed):
        generator = torch.Generator(device="cuda").manual_seed(seed)
        return torch.randn(int(n), device="cuda", generator=generator), kind

    def reference(self, x, kind):
        return x.double() * 2

    def flops(self, n, kind):
        return int(n)

    def bytes_moved(self, n, kind):
        return 8 * int(n)
"""


def declared(suite: str, *values: str) -> DeclaredCase:
    case = Case(suite=suite, values=values)
    return DeclaredCase(
        case=case, small=case, own=values[-1] == "flopwatch", max_diff_eps=2.0, flops=2e12, bytes_moved=1e9
    )


#: Sizes 1 and 2, orders none, 4 and 8 of ours, and torch.
SWIZZLE = tuple(
    declared("Swizzle", size, order, provider)
    for size in ("1", "2")
    for provider, orders in (("flopwatch", ("none", "4", "8")), ("torch", ("none",)))
    for order in orders
)
WITHIN = Conclusion(says="8 is within 1 % of the best", line="flopwatch 8", than=("flopwatch *",), percent=1.0)
DECLARATION = Declaration(line="order", base="flopwatch 8", conclusions=(WITHIN,))


@dataclass(kw_only=True)
class Gpu:
    """What the stand-ins share: how long each case takes, by its values, and what goes wrong."""

    declared: tuple[DeclaredCase, ...] = SWIZZLE
    seconds: dict[tuple[str, ...], float] = field(default_factory=dict)
    eps: dict[tuple[str, ...], float] = field(default_factory=dict)
    failing: dict[tuple[str, ...], str] = field(default_factory=dict)
    failing_in_rounds: dict[tuple[str, ...], str] = field(default_factory=dict)
    dying_at: str = ""
    growth_bytes: dict[tuple[str, ...], float] = field(default_factory=dict)
    plans: dict[tuple[str, ...], Plan] = field(default_factory=dict)
    forced: dict[tuple[str, ...], Plan] = field(default_factory=dict)
    studies: dict[str, Declaration] = field(default_factory=lambda: {"Swizzle": DECLARATION})
    parameters: dict[str, tuple[str, ...]] = field(default_factory=lambda: {"Swizzle": ("size", "order", "provider")})
    import_failures: dict[str, str] = field(default_factory=dict)
    uuid: str | None = UUID
    noise: float = 0.0005
    drift: float = 0.0
    interrupt_after: int = 10**9
    visited: list[Case] = field(default_factory=list)
    remembered: list[Case] = field(default_factory=list)
    started: int = 0
    waiting: list[int] = field(default_factory=list)
    ended: list[int] = field(default_factory=list)
    random: random.Random = field(default_factory=lambda: random.Random(1))


class FakeWorker:
    """Runs nothing."""

    def __init__(self, gpu: Gpu) -> None:
        self.gpu, self.pid = gpu, 7
        self.number = 0
        self.ready: dict[Case, tuple[str, ...]] = {}

    def __enter__(self) -> Self:
        self.gpu.started += 1
        self.number = self.gpu.started
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def wake(self) -> None:
        """Start before it is asked for anything."""
        self.gpu.waiting.append(self.number)

    def close(self) -> None:
        """End; what has waited is gone."""
        self.gpu.ended.append(self.number)

    @property
    def hello(self) -> Hello:
        gpu = self.gpu
        return Hello(
            gpu="NVIDIA H200",
            gpu_uuid=gpu.uuid,
            compute_capability=(9, 0),
            versions={"triton": "3.6.0"},
            declared=gpu.declared,
            import_failures=gpu.import_failures,
            parameters=gpu.parameters,
            studies=gpu.studies,
        )

    def tune(self, case: Case) -> tuple[Choice, ...]:
        self._fail(self.gpu.failing.get(case.values), "ModuleNotFoundError")
        return (Choice(kernel="k", config=case.values[1]),)

    def numbers(self, case: Case, *, seed: int, pins: Sequence[Choice]) -> Numbers:
        assert seed
        assert [pin.config for pin in pins] == [case.values[1]]
        eps = self.gpu.eps.get(case.values, 0.25)
        return Numbers(dtype="float16", max_diff=eps / 100, max_diff_eps=eps, finite=math.isfinite(eps), bitwise="0")

    def memory(self, case: Case, pins: Sequence[Choice]) -> Memory:
        assert pins
        self.gpu.remembered.append(case)
        return Memory(peak_bytes=100, growth_bytes=self.gpu.growth_bytes.get(case.values, 0.0))

    def prepare(self, case: Case, plan: Plan | None, pins: Sequence[Choice], *, beside: bool) -> Prepared:
        self._fail(self.gpu.failing_in_rounds.get(case.values), "OutOfMemoryError")
        if not beside:
            self.ready.clear()
        self.ready[case] = tuple(pin.config for pin in pins)
        chosen = self.gpu.forced.get(case.values) or plan or self.gpu.plans.get(case.values, PLAN)
        return Prepared(plan=chosen, choices=())

    def release(self, _case: Case) -> None:
        self.ready.clear()

    def visit(self, case: Case, samples: int) -> tuple[float, ...]:
        gpu = self.gpu
        assert case in self.ready
        self._fail("exit status -11" if gpu.dying_at == case.values[0] else None, "WorkerDied")
        gpu.visited.append(case)
        if len(gpu.visited) > gpu.interrupt_after:
            raise KeyboardInterrupt
        noise = gpu.drift * len(gpu.visited) + gpu.random.gauss(0, gpu.noise)
        return (gpu.seconds.get(case.values, 1e-2) * math.exp(noise),) * samples

    def _fail(self, message: str | None, kind: str) -> None:
        if message:
            raise CaseFailed(Failure(kind=kind, message=message), cast("Worker", self))


@dataclass(kw_only=True)
class FakeWatch:
    """Reads a healthy H200."""

    processes: tuple[int, ...] = ()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def gpu(self) -> GpuFacts:
        return GpuFacts(name="NVIDIA H200", uuid=UUID)

    def snapshot(self) -> Snapshot:
        return Snapshot(time_s=0.0, processes=self.processes)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Gpu:
    """A study of which nothing differs; a point takes two cycles, whatever the clock says."""
    monkeypatch.setattr("flopwatch.study.turns.TURNS_S", 0.0)
    return Gpu()

"""A repository of autotuned kernels, and a GPU on which each configuration takes a known time."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, cast

import pytest
from tests.compare.conftest import FakeSides, FakeWatch, FakeWorker, Gpu

from flopwatch.config import Config
from flopwatch.gate.pairs import Observer
from flopwatch.model import Case
from flopwatch.tune.client import Declared, Tunable, in_config
from flopwatch.tune.result import Candidate, TunedCase
from flopwatch.tune.subjects import Subject
from flopwatch.tune.times import Rounds

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from flopwatch.gate.sides import Arm
    from flopwatch.measure.client import Mode, Worker
    from flopwatch.measure.nvml import Watch

KERNELS = '''\
"""Products of square matrices, and scalings."""

import torch
import triton
import triton.language as tl


@triton.autotune(
    [
        triton.Config({"BLOCK": 64}, num_warps=4, num_stages=3),
        triton.Config({"BLOCK": 128}, num_warps=8, num_stages=3),
    ],
    key=["n"],
)
@triton.jit
def square_kernel(a, b, c, n, BLOCK: tl.constexpr):
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    depths = tl.arange(0, 64)
    sums = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for start in range(0, n, 64):
        left = tl.load(a + rows[:, None] * n + start + depths[None, :])
        right = tl.load(b + (start + depths[:, None]) * n + columns[None, :])
        sums = tl.dot(left, right, sums)
    tl.store(c + rows[:, None] * n + columns[None, :], sums.to(tl.float16))


def _keep_even(configs, _given, **_options):
    return [config for config in configs if config.kwargs["BLOCK"] % 256 == 0]


tuned = triton.autotune(
    [triton.Config({"BLOCK": block}, num_warps=4) for block in (256, 512)],
    key=["n"],
    prune_configs_by={"early_config_prune": _keep_even},
)


@tuned
@triton.jit
def one_kernel(x, out, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + offsets, tl.load(x + offsets, mask=offsets < n) * 3, mask=offsets < n)


@tuned
@triton.jit
def other_kernel(x, out, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + offsets, tl.load(x + offsets, mask=offsets < n) * 3, mask=offsets < n)


@triton.jit
def plain_kernel(x, out, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + offsets, tl.load(x + offsets, mask=offsets < n) * 3, mask=offsets < n)


def square(a, b):
    c = torch.empty_like(a)
    n = a.shape[0]
    square_kernel[lambda meta: (triton.cdiv(n, meta["BLOCK"]),) * 2](a, b, c, n)
    return c


def scale(x, kernel):
    out = torch.empty_like(x)
    kernel[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, out, x.numel())
    return out


def scale_plainly(x):
    out = torch.empty_like(x)
    plain_kernel[(triton.cdiv(x.numel(), 256),)](x, out, x.numel(), BLOCK=256)
    return out
'''
SUITES = '''\
"""Their suites."""

import torch
import tunedkernels
from flopwatch import Suite


class Square(Suite):
    """c = a @ b."""

    params = (["float16"], ["512x512", "1024x1024"])
    param_names = ("dtype", "shape")
    small = {"shape": "128x128"}
    providers = {"torch": torch.matmul}
    tuning_space = {"num_stages": (3, 2)}

    def inputs(self, dtype, shape, *, seed):
        generator = torch.Generator(device="cuda").manual_seed(seed)
        size = [int(side) for side in shape.split("x")]
        return tuple(torch.randn(size, device="cuda", generator=generator).half() for _ in "ab")

    def run(self, a, b):
        return tunedkernels.square(a, b)

    def reference(self, a, b):
        return a.double() @ b.double()

    def flops(self, dtype, shape):
        rows, columns = map(int, shape.split("x"))
        return 2 * rows * rows * columns

    def bytes_moved(self, dtype, shape):
        rows, columns = map(int, shape.split("x"))
        return 6 * rows * columns


class Scale(Suite):
    """out = 3 * x."""

    params = (["100000"],)
    param_names = ("n",)

    def inputs(self, n, *, seed):
        return (torch.randn(int(n), device="cuda", generator=torch.Generator(device="cuda").manual_seed(seed)),)

    def run(self, x):
        return tunedkernels.scale(x, tunedkernels.one_kernel)

    def reference(self, x):
        return x.double() * 3

    def flops(self, n):
        return int(n)

    def bytes_moved(self, n):
        return 8 * int(n)


class Twice(Scale):
    """out = 9 * x."""

    def run(self, x):
        return tunedkernels.scale(tunedkernels.scale(x, tunedkernels.one_kernel), tunedkernels.other_kernel)


class Plain(Scale):
    """out = 3 * x, by a kernel that is not tuned."""

    def run(self, x):
        return tunedkernels.scale_plainly(x)
'''
CONFIG = Config(packages=("tunedkernels",), benchmarks="tuned_suites")


@pytest.fixture(scope="session")
def tuned_repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with autotuned kernels and their suites; nothing of a search needs git."""
    root = tmp_path_factory.mktemp("tuned")
    for path, text in (
        ("src/tunedkernels/__init__.py", KERNELS),
        ("tuned_suites/toys.py", SUITES),
        ("tuned_suites/__init__.py", ""),
        ("pyproject.toml", '[tool.flopwatch]\npackages = ["tunedkernels"]\nbenchmarks = "tuned_suites"\n'),
    ):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text, encoding="utf-8")
    return root


CASE = Case(suite="Add", values=("1024", "flopwatch"))


class NoisyWorker(FakeWorker):
    """Draws a mode for each configuration, for as long as the process lives."""

    def __init__(self, arm: Arm, gpu: Gpu) -> None:
        super().__init__(arm, gpu)
        modes = getattr(gpu, "modes", 0.0)
        self.modes: defaultdict[Case, float] = defaultdict(lambda: 1 + gpu.random.gauss(0, modes))

    def visit(self, case: Case, samples: int) -> tuple[float, ...]:
        return tuple(seconds * self.modes[case] for seconds in super().visit(case, samples))


class TunedGpu(Gpu):
    """A GPU whose kernels run in configurations; `modes` is how much a process changes the time of each."""

    modes: float = 0.0


class NoisySides(FakeSides):
    def worker(self, mode: Mode, arm: Arm, *, anew: bool = False) -> Worker:
        super().worker(mode, arm, anew=anew)
        return cast("Worker", NoisyWorker(arm, self.gpu))


def make_rounds(gpu: Gpu, coin: random.Random) -> Rounds:
    return Rounds(
        sides=NoisySides(gpu),
        watch=cast("Watch", FakeWatch()),
        observer=Observer(),
        toss=lambda: coin.random() < 0.5,
        cases={},
        stage="choose",
    )


def config(number: int) -> str:
    return f"B: {number}, num_warps: 4"


def slow(gpu: Gpu, number: int, seconds: float) -> None:
    """Say how long a configuration takes."""
    gpu.seconds["Add", in_config(CASE, config(number)).provider] = seconds


def subject(numbers: Sequence[int], *, ceiling: float | None = None) -> Subject:
    configs = tuple(map(config, numbers))
    declared = Declared(names=("n",), flops=2e6, bytes_moved=1e6, max_diff_eps=ceiling, space={})
    return Subject(
        case=CASE, declared=declared, tunable=Tunable(kernel="k", configs=configs, first=configs[0]), configs=configs
    )


def compiled(of: Subject, pruned: Callable[[str], str] = lambda _: "") -> TunedCase:
    return TunedCase(
        case=of.case,
        kernel="k",
        first=of.tunable.first,
        candidates=tuple(Candidate(config=one, own=True, pruned=pruned(one)) for one in of.configs),
    )

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Self, cast

import pytest
from tests.measure.conftest import write_code

from flopwatch.config import Config, load_config
from flopwatch.gate.numbers import (
    SEEDS,
    _ask_all,
    _asked,
    _numbers,
    check_on_gpu,
    check_small,
)
from flopwatch.gate.sides import Arm, Sides
from flopwatch.measure.client import CaseFailed, Mode, Nursery, Worker
from flopwatch.measure.protocol import DeclaredCase
from flopwatch.model import Case, Choice, Failure, Mark, Memory, Numbers
from flopwatch.verdict import Side

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from tests.conftest import ToyRepository

    from flopwatch.gate.result import CaseVerdict

CASE = Case(suite="Toy", values=("flopwatch",))
NO_ROOM = Failure(kind="OutOfMemoryError", message="CUDA out of memory")


@dataclass(kw_only=True)
class Gpu:
    """What the stand-ins below share: what fails, who is there, and who was asked what."""

    failing: dict[tuple[Arm, str], Failure] = field(default_factory=dict)
    crowded: frozenset[str] = frozenset()
    recovers_after: int = 10**9
    differing: bool = False
    tuned: dict[Arm, str] = field(default_factory=dict)
    together: threading.Barrier | None = None
    open: list[Arm] = field(default_factory=list)
    asked: Counter[tuple[Arm, str, int]] = field(default_factory=Counter)


class FakeWorker:
    """Stands in for a worker on a GPU whose memory may be too small for two."""

    def __init__(self, arm: Arm, gpu: Gpu) -> None:
        self.arm, self.gpu, self.hello = arm, gpu, None

    def __enter__(self) -> Self:
        self.gpu.open.append(self.arm)
        return self

    def __exit__(self, *_: object) -> None:
        self.gpu.open.remove(self.arm)

    def tune(self, _case: Case, _pins: Sequence[Choice]) -> tuple[Choice, ...]:
        self._ask("tune")
        return tuple(Choice(kernel="k", config=config) for arm, config in self.gpu.tuned.items() if arm is self.arm)

    def bits(self, _case: Case, *, seed: int, pins: Sequence[Choice]) -> str:
        assert len(pins) == len(self.gpu.tuned) // len(Arm)
        self._ask("bits")
        return f"{seed}{self.arm.value if self.gpu.differing else ''}"

    def memory(self, _case: Case, _pins: Sequence[Choice]) -> Memory:
        self._ask("memory")
        return Memory(peak_bytes=1 << 20, growth_bytes=0.0)

    def numbers(self, _case: Case, *, seed: int, pins: Sequence[Choice]) -> Numbers:
        assert pins == ()
        self._ask("numbers")
        return Numbers(dtype="float16", max_diff=0.01, max_diff_eps=0.25 + 0.01 * seed, finite=True, bitwise="0")

    def _ask(self, what: str) -> None:
        self.gpu.asked[self.arm, what, len(self.gpu.open)] += 1
        if self.gpu.together is not None and len(self.gpu.open) > 1:
            self.gpu.together.wait()
        if what in self.gpu.crowded and len(self.gpu.open) > 1:
            raise CaseFailed(NO_ROOM)
        failure = self.gpu.failing.get((self.arm, what))
        if (
            failure is not None
            and sum(self.gpu.asked[self.arm, what, sides] for sides in (1, 2)) <= self.gpu.recovers_after
        ):
            raise CaseFailed(failure)


class FakeSides(Sides):
    def __init__(self, gpu: Gpu) -> None:
        self.config, self.gpu = Config(packages=("toy",)), gpu

    def worker(self, mode: Mode, arm: Arm, *, anew: bool = False) -> Worker:
        assert mode in (Mode.GPU, Mode.INTERPRET)
        assert not anew
        return cast("Worker", FakeWorker(arm, self.gpu))


def declared(case: Case = CASE) -> DeclaredCase:
    return DeclaredCase(case=case, small=case, own=True, max_diff_eps=None, flops=1.0, bytes_moved=1.0)


def checked(gpu: Gpu) -> CaseVerdict:
    (verdict,) = check_on_gpu(FakeSides(gpu), [declared()], frozenset(), {})
    assert gpu.open == []
    return verdict


def test_both_sides_run_at_the_same_time_but_tune_one_after_the_other() -> None:
    gpu = Gpu(differing=True, together=threading.Barrier(2, timeout=30))
    verdict = checked(gpu)
    assert (verdict.mark, verdict.head.failure) == (None, None)
    assert gpu.asked == {
        (arm, what, sides): times
        for arm in Arm
        for what, sides, times in (
            ("tune", 1, 1),
            ("bits", 2, len(SEEDS)),
            ("memory", 2, 1),
            ("numbers", 2, len(SEEDS)),
        )
    }


def test_what_calls_no_autotuner_is_not_tuned_and_run_all_the_same() -> None:
    gpu = Gpu()
    (verdict,) = check_on_gpu(FakeSides(gpu), [declared()], frozenset(), {}, untuned=frozenset([CASE]))

    assert verdict.head.bits == tuple(f"{seed}" for seed in SEEDS)
    assert {what for _, what, _ in gpu.asked} == {"bits", "memory"}


def test_a_side_that_does_not_run_in_what_is_pinned_is_told_of_and_takes_no_other_along() -> None:
    gpu = Gpu(tuned={Arm.BASE: "wide", Arm.HEAD: "tall"})
    pins: dict[Case, tuple[Choice, ...]] = {CASE: (Choice(kernel="k", config="wide"),)}
    (verdict,) = check_on_gpu(FakeSides(gpu), [declared()], frozenset(), pins)

    assert [choice.config for side in (verdict.base, verdict.head) for choice in side.choices] == ["wide", "tall"]
    assert verdict.notes == (
        "pinned to no effect on head: k has no configuration wide, and runs in tall",
        "configuration changed: k from wide to tall",
    )


def test_a_verdict_has_the_work_that_the_suite_declares_be_it_measured_or_not() -> None:
    entry = replace(declared(), flops=2.0, bytes_moved=3.0)
    for identical in (frozenset[Case](), frozenset([CASE])):
        (verdict,) = check_on_gpu(FakeSides(Gpu()), [entry], identical, {})
        assert (verdict.identical, verdict.flops, verdict.bytes_moved) == (bool(identical), 2.0, 3.0)


@pytest.mark.parametrize("what", ["bits", "memory", "numbers"])
def test_what_does_not_fit_beside_the_other_side_is_run_alone(what: str) -> None:
    gpu = Gpu(differing=True, crowded=frozenset([what]))
    verdict = checked(gpu)
    assert (verdict.mark, verdict.base.failure, verdict.head.failure) == (None, None, None)
    assert verdict.head.memory is not None
    assert all(gpu.asked[arm, what, 2] == 1 for arm in Arm)
    assert all(gpu.asked[arm, what, 1] == (1 if what == "memory" else len(SEEDS)) for arm in Arm)


@pytest.mark.parametrize("kind", ["WorkerDied", "OutOfMemoryError"])
def test_a_side_that_tunes_at_the_second_attempt_is_not_broken(kind: str) -> None:
    gpu = Gpu(failing={(Arm.HEAD, "tune"): Failure(kind=kind, message="busy")}, recovers_after=1)
    assert checked(gpu).mark is None
    assert gpu.asked[Arm.HEAD, "tune", 1] == 2


@pytest.mark.parametrize(
    ("failure", "attempts"),
    [
        (NO_ROOM, 2),
        (Failure(kind="WorkerDied", message="exit status -11"), 2),
        (Failure(kind="RuntimeError", message="CUDA error: CUBLAS_STATUS_ALLOC_FAILED"), 2),
        (Failure(kind="ArithmeticError", message="no scale today"), 1),
    ],
)
def test_what_fails_alone_as_well_is_broken_with_its_cause(failure: Failure, attempts: int) -> None:
    gpu = Gpu(failing={(Arm.HEAD, "bits"): failure})
    verdict = checked(gpu)
    assert (verdict.mark, verdict.head.failure, verdict.base.failure) == (Mark.BROKEN, failure, None)
    assert (gpu.asked[Arm.HEAD, "bits", 2], gpu.asked[Arm.HEAD, "bits", 1]) == (1, attempts - 1)
    assert gpu.asked[Arm.HEAD, "numbers", 2] == 0


def test_small_cases_are_tried_again_alone_as_well() -> None:
    gpu = Gpu(crowded=frozenset(["numbers"]))
    (verdict,) = check_small(FakeSides(gpu), [declared()], both=True)
    assert (verdict.mark, verdict.base.failure, verdict.head.failure) == (None, None, None)
    assert gpu.asked == {(arm, "numbers", sides): times for arm in Arm for sides, times in ((2, 1), (1, len(SEEDS)))}


def test_small_cases_may_be_run_on_head_alone() -> None:
    gpu = Gpu(failing={(Arm.HEAD, "numbers"): Failure(kind="WorkerDied", message="killed")}, recovers_after=1)
    (verdict,) = check_small(FakeSides(gpu), [declared()], both=False)
    assert (verdict.mark, verdict.head.failure) == (None, None)
    assert verdict.base == verdict.head
    assert gpu.asked == {(Arm.HEAD, "numbers", 1): 1 + len(SEEDS)}


NO_ASM = Failure(kind="NotCovered", message="inline_asm")


@pytest.mark.parametrize(
    ("failing", "mark", "reason"),
    [
        ({Arm.BASE: NO_ASM, Arm.HEAD: NO_ASM}, None, "not covered without a GPU: inline_asm"),
        ({Arm.HEAD: NO_ASM}, Mark.UNSURE, "no longer covered without a GPU: inline_asm"),
        ({Arm.BASE: NO_ASM}, None, "not compared: base is not covered without a GPU: inline_asm"),
        (
            {Arm.BASE: Failure(kind="ImportError", message="new"), Arm.HEAD: NO_ASM},
            None,
            "not covered without a GPU: inline_asm",
        ),
    ],
)
def test_what_the_interpreter_cannot_do_is_neither_passed_nor_held_against_head(
    failing: dict[Arm, Failure], mark: Mark | None, reason: str
) -> None:
    gpu = Gpu(failing={(arm, "numbers"): failure for arm, failure in failing.items()})
    (verdict,) = check_small(FakeSides(gpu), [declared()], both=True)
    assert (verdict.mark, verdict.reason, verdict.compared) == (mark, reason, False)


def test_a_head_that_is_wrong_is_broken_though_base_is_not_covered() -> None:
    gpu = Gpu(failing={(Arm.BASE, "numbers"): NO_ASM})
    (verdict,) = check_small(FakeSides(gpu), [replace(declared(), max_diff_eps=0.1)], both=True)
    assert verdict.mark is Mark.BROKEN
    assert verdict.reason.startswith("new, and wrong")


#: Each function leaves its input as it is on a device; the interpreter can run the last three alone.
FEATURES = """\
import torch
import triton
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.language.extra import libdevice


@triton.jit
def asm_kernel(x, out):
    i = tl.arange(0, 32)
    y = tl.inline_asm_elementwise("mov.b32 $0, $1;", "=r,r", [tl.load(x + i)], dtype=tl.float32, is_pure=True, pack=1)
    tl.store(out + i, y)


@gluon.jit
def gluon_kernel(x, out):
    i = gl.arange(0, 32, layout=gl.BlockedLayout([1], [32], [1], [0]))
    gl.store(out + i, gl.load(x + i))


@triton.jit
def same(x):
    return x


@triton.jit
def map_kernel(x, out):
    i = tl.arange(0, 32)
    tl.store(out + i, tl.map_elementwise(same, tl.load(x + i)))


@triton.jit
def bessel_kernel(x, out):
    i = tl.arange(0, 32)
    a = tl.load(x + i)
    tl.store(out + i, a + 0 * libdevice.jn(2, a))


@triton.jit
def added_kernel(x, out):
    source = tl.make_tensor_descriptor(x, [4, 8], [8, 1], [4, 8])
    target = tl.make_tensor_descriptor(out, [4, 8], [8, 1], [4, 8])
    target.store([0, 0], source.load([0, 0]) * 0)
    target.atomic_add([0, 0], source.load([0, 0]))


@triton.jit
def float8_kernel(x, out):
    i = tl.arange(0, 32)
    tl.store(out + i, tl.load(x + i).to(tl.float8e4b15).to(tl.float32))


@triton.jit
def erf_kernel(x, out):
    i = tl.arange(0, 32)
    a = tl.load(x + i)
    tl.store(out + i, a + libdevice.erf(a) - tl.erf(a))


@triton.jit
def rounded_kernel(x, out):
    i = tl.arange(0, 32)
    tl.store(out + i, tl.load(x + i).to(tl.bfloat16).to(tl.float8e5).to(tl.float32))


@triton.jit
def stray_kernel(x, out):
    i = tl.arange(0, 32)
    tl.store(out + i, tl.load(x + i + 1))


def launch(name, x):
    out = torch.empty_like(x)
    globals()[f"{name}_kernel"][(1,)](x, out, num_warps=1)
    return out
"""
FEATURE_SUITE = """\
import torch
from flopwatch import Suite
from toykernels import launch


class Feature(Suite):
    params = (["asm", "gluon", "map", "bessel", "added", "float8", "erf", "rounded", "stray"],)
    param_names = ("name",)

    def inputs(self, name, *, seed):
        return name, (torch.arange(32.0, device="cuda") % 5).roll(seed)

    def run(self, name, x):
        return launch(name, x)

    def reference(self, name, x):
        return x.double()

    def flops(self, name):
        return 1

    def bytes_moved(self, name):
        return 1
"""


def test_kernels_that_the_interpreter_cannot_run_are_listed_by_what_they_use(
    toy: ToyRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    toy.kernel.write_text(FEATURES, encoding="utf-8")
    toy.suite.write_text(FEATURE_SUITE, encoding="utf-8")
    sides = Sides(load_config(toy.root), device="h200", base_tree=toy.root, head_tree=toy.root)
    names = ("asm", "gluon", "map", "bessel", "added", "float8", "erf", "rounded", "stray")
    entries = [declared(Case(suite="Feature", values=(name, "flopwatch"))) for name in names]
    reasons = {
        verdict.case.values[0]: verdict.reason.removeprefix("not covered without a GPU: ")
        for verdict in check_small(sides, entries, both=False)
    }
    assert reasons == {
        "asm": "inline_asm",
        "gluon": "Gluon",
        "map": "map_elementwise",
        "bessel": "libdevice's __nv_jnf",
        "added": "descriptor.atomic_add",
        "float8": "conversion of fp8e4b15",
        "erf": "",
        "rounded": "",
        "stray": f"wrong on both sides: error inf eps, ceiling {Config().max_diff_eps:g}",
    }


#: There is room for one process that runs `crowds`: another one dies.
CROWDED = '''\
"""Kernels for which there is little room."""

import fcntl
import os

rooms = []


def fair(x):
    return x * 2


def crowds(x):
    if not rooms:
        rooms.append(open(__file__))
        try:
            fcntl.flock(rooms[0], fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os._exit(9)
    return x * 2
'''


@pytest.fixture
def crowded(tmp_path: Path) -> Iterator[Sides]:
    """Two sides of the same code, in real processes."""
    code = write_code(tmp_path, kernels=CROWDED)
    with Nursery(code) as nursery:

        class Crowded(FakeSides):
            def worker(self, mode: Mode, arm: Arm, *, anew: bool = False) -> Worker:
                assert arm in Arm
                assert not anew
                return Worker(mode, code, nursery=nursery)

        yield Crowded(Gpu())


def test_a_process_that_dies_of_the_other_one_loses_no_case(crowded: Sides) -> None:
    cases = [Case(suite="Weather", values=(weather, "flopwatch")) for weather in ("crowds", "fair")]
    before = {arm: dict.fromkeys(cases, Side()) for arm in Arm}
    with contextlib.ExitStack() as stack:
        workers = [stack.enter_context(crowded.worker(Mode.GPU, arm)) for arm in Arm]
        found = _asked(workers, _numbers, before)
    failures = [side.failure for known in found.values() for side in known.values() if side.failure is not None]
    assert [failure.message for failure in failures] == ["exit status 9 during numbers"]

    found = _ask_all(crowded, _numbers, before)
    assert all(
        side.numbers is not None and side.numbers.max_diff == 0 for known in found.values() for side in known.values()
    )

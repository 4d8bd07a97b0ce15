from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.runtime.driver import driver
from triton.runtime.jit import JITFunction

from flopwatch.gate.choices import TIE as GATES_TIE
from flopwatch.kernels import tuner as tuner_module
from flopwatch.kernels.known import known_choices
from flopwatch.kernels.tuner import KIND, TIE, VARIABLE, Tuner
from flopwatch.static.reached import _TUNER_MEMORY as MEMORY

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

SIZES = (16, 32, 64, 128, 256)
HOPPER = GPUTarget("cuda", 90, 32)


def fill(x, n, BLOCK):  # type: ignore[no-untyped-def] # noqa: ANN001, ANN201 - a kernel's
    """Stand for a kernel."""


def flood(x, n, BLOCK):  # type: ignore[no-untyped-def] # noqa: ANN001, ANN201 - a kernel's
    """Stand for another one."""


class Driver:
    """Says which GPU there is, and times launches without one: what a block takes is planted."""

    def __init__(self) -> None:
        self.target = HOPPER
        self.times_ms = {size: float(size) for size in SIZES}
        self.timed: list[int] = []
        self.running = 0
        self.compiled: list[tuple[int, int]] = []

    def get_current_target(self) -> GPUTarget:
        return self.target

    def get_benchmarker(self) -> Callable[..., list[float]]:
        return self.bench

    def bench(self, call: Callable[[], object], quantiles: Sequence[float]) -> list[float]:
        call()
        self.timed.append(self.running)
        return [self.times_ms[self.running]] * len(quantiles)


class Kernel:
    """Tells the driver which configuration runs."""

    def __init__(self, gpu: Driver, function: Callable[..., object]) -> None:
        self.gpu = gpu
        self.fn = JITFunction(function)
        self.arg_names = self.fn.arg_names

    def run(self, *_arguments: object, BLOCK: int, warmup: bool = False, **_options: object) -> None:
        if warmup:
            self.gpu.compiled.append((BLOCK, len(self.gpu.timed)))
        else:
            self.gpu.running = BLOCK


class Calls:
    """Makes tuners, as fresh processes do, and calls them."""

    def __init__(self, gpu: Driver) -> None:
        self.gpu = gpu

    def tuner(self, *, function: Callable[..., object] = fill, sizes: Sequence[int] = SIZES, **options: Any) -> Tuner:  # noqa: ANN401 - its own
        configs = [triton.Config({"BLOCK": size}) for size in sizes]
        made = Tuner(Kernel(self.gpu, function), configs, ["n"], **options)
        made.cache_results = True  # which it is not where kernels are interpreted
        return made

    def run(self, tuner: Tuner, n: int = 100, *, elements: int = 1) -> tuple[int, list[int]]:
        """Return which block a call takes, and which it timed for that."""
        self.gpu.timed = []
        tuner.run(torch.zeros(elements), n, grid=(1,), warmup=False)
        return self.gpu.running, self.gpu.timed


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Calls:
    gpu = Driver()
    monkeypatch.setattr(driver, "_active", gpu)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "NVIDIA H200")
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("TRITON_CACHE_AUTOTUNING", raising=False)
    monkeypatch.delenv(VARIABLE, raising=False)
    return Calls(gpu)


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A table that has 64 for 100 elements, though 16 is faster."""
    choice = {
        "kernel": "fill",
        "key": "100, float32",
        "config": str(triton.Config({"BLOCK": 64}))[: len("BLOCK: 64, ")],
    }
    about = {"versions": {"triton": "3.6.0"}}
    entries = [{"gpu": "NVIDIA H200", "choices": [choice], **about}, {"gpu": "NVIDIA A100", "choices": [], **about}]
    (tmp_path / "gpu.json").write_text(json.dumps({"entries": entries}), encoding="utf-8")
    monkeypatch.setattr(tuner_module, "_choices_of", lambda kernel: known_choices(kernel, tmp_path))


def small(configs: list[triton.Config], _named: Mapping[str, object], **_options: object) -> list[triton.Config]:
    """Leave out what does not fit."""
    return [config for config in configs if config.kwargs["BLOCK"] < 256]


def smallest(configs: list[triton.Config], _named: Mapping[str, object], **_options: object) -> list[triton.Config]:
    return configs[:2]


def largest_first(BLOCK: int, **_arguments: object) -> float:
    return -BLOCK


def test_what_is_timed_is_compiled_before_all_of_it(calls: Calls) -> None:
    tuner = calls.tuner(model=largest_first)
    _chosen, timed = calls.run(tuner)

    assert timed
    assert calls.gpu.compiled == [(size, 0) for size in timed]
    calls.run(tuner)
    assert len(calls.gpu.compiled) == len(timed), "and not again"


def test_what_was_timed_before_is_not_compiled_beforehand(calls: Calls) -> None:
    calls.run(calls.tuner())
    calls.gpu.compiled.clear()

    calls.run(calls.tuner())

    assert calls.gpu.compiled == []


def test_within_another_mode_that_compiles_later_each_is_compiled_when_it_is_timed(calls: Calls) -> None:
    with ThreadPoolExecutor(1) as executor, triton.AsyncCompileMode(executor):
        chosen, timed = calls.run(calls.tuner())

    assert (chosen, timed) == (min(SIZES), list(SIZES))
    assert calls.gpu.compiled == []


def test_what_is_predicted_to_be_slow_is_not_timed(calls: Calls) -> None:
    tuner = calls.tuner(rule=small, model=largest_first)
    assert calls.run(tuner) == (32, [128, 64, 32])
    assert len(tuner.configs) == len(SIZES)


def test_all_that_can_run_is_timed_where_nothing_was_predicted(calls: Calls) -> None:
    calls.gpu.target = GPUTarget("cuda", 80, 32)
    assert calls.run(calls.tuner(rule=small, model=largest_first)) == (16, [16, 32, 64, 128])


@pytest.mark.usefixtures("table")
def test_all_that_can_run_is_timed_on_request(calls: Calls, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "all")
    tuner = calls.tuner(rule=small, model=largest_first)
    assert calls.run(tuner) == (16, [16, 32, 64, 128])


@pytest.mark.usefixtures("table")
def test_a_choice_that_was_measured_before_is_taken_untimed(calls: Calls) -> None:
    tuner = calls.tuner()
    assert calls.run(tuner) == (64, [])
    assert calls.run(tuner, n=101) == (16, list(SIZES))


@pytest.mark.usefixtures("table")
@pytest.mark.parametrize(
    ("gpu", "options"),
    [
        ("NVIDIA H100", {}),
        ("NVIDIA H200", {"kind": lambda _: "odd"}),
        ("NVIDIA H200", {"function": flood}),
        ("NVIDIA H200", {"sizes": (16, 32, 128)}),
        ("NVIDIA H200", {"rule": smallest}),
    ],
    ids=["another GPU", "another kind", "another kernel", "not in the list", "cannot run"],
)
def test_a_choice_that_is_of_something_else_is_not_taken(
    calls: Calls, gpu: str, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: gpu)
    took, timed = calls.run(calls.tuner(**options))
    assert (took, timed[:2]) == (16, [16, 32])


def parity(arguments: Mapping[str, Any]) -> str:
    """Tell calls of an odd number of elements apart."""
    return "odd" if arguments["x"].numel() % 2 else ""


def test_calls_of_another_kind_have_a_choice_of_their_own(calls: Calls) -> None:
    tuner = calls.tuner(kind=parity)
    assert calls.run(tuner, elements=1) == (16, list(SIZES))
    calls.gpu.times_ms[16] = 999.0
    assert calls.run(tuner, elements=2) == (32, list(SIZES))
    assert calls.run(tuner, elements=3) == (16, [])
    assert list(tuner.cache) == [(100, "odd", "torch.float32"), (100, "torch.float32")]


def test_the_next_process_takes_what_was_timed_of_that_kind(calls: Calls) -> None:
    calls.run(calls.tuner(kind=parity), elements=1)
    calls.gpu.times_ms[16] = 999.0
    assert calls.run(calls.tuner(kind=parity), elements=2) == (32, list(SIZES))
    assert calls.run(calls.tuner(kind=parity), elements=3) == (16, [])


def test_the_next_process_takes_what_was_timed_before(calls: Calls) -> None:
    assert calls.run(calls.tuner()) == (16, list(SIZES))
    calls.gpu.times_ms[16] = 999.0
    assert calls.run(calls.tuner()) == (16, [])
    assert calls.run(calls.tuner(), n=200) == (32, list(SIZES))


@pytest.mark.parametrize(
    ("options", "gpu", "target"),
    [
        ({"function": flood}, "NVIDIA H200", HOPPER),
        ({"sizes": (*SIZES[1:], 16)}, "NVIDIA H200", HOPPER),
        ({}, "NVIDIA H100", HOPPER),
        ({}, "NVIDIA H200", GPUTarget("cuda", 100, 32)),
    ],
    ids=["another source", "another list", "another GPU", "another target"],
)
def test_what_was_timed_of_something_else_is_not_taken(
    calls: Calls, options: dict[str, Any], gpu: str, target: GPUTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls.run(calls.tuner())
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: gpu)
    calls.gpu.target = target
    assert len(calls.run(calls.tuner(**options))[1]) == len(SIZES)


def test_what_another_timer_timed_is_kept_on_request_and_apart(calls: Calls, monkeypatch: pytest.MonkeyPatch) -> None:
    def by_another_timer() -> tuple[int, list[int]]:
        tuner = calls.tuner()
        tuner._do_bench = calls.gpu.bench
        return calls.run(tuner)

    by_another_timer()
    assert calls.run(calls.tuner())[1] == [*SIZES]
    assert by_another_timer()[1] == [*SIZES]
    monkeypatch.setenv("TRITON_CACHE_AUTOTUNING", "1")
    assert by_another_timer()[1] == [*SIZES]
    assert by_another_timer()[1] == []


@pytest.mark.parametrize(("slower", "taken"), [(0.9 * TIE, 32), (1.1 * TIE, 64)])
def test_of_those_that_are_as_fast_the_first_in_declared_order_is_taken(
    calls: Calls, slower: float, taken: int
) -> None:
    calls.gpu.times_ms = dict.fromkeys(SIZES, 2.0) | {64: 1.0, 32: 1.0 + slower}
    assert calls.run(calls.tuner()) == (taken, list(SIZES))
    assert calls.run(calls.tuner()) == (taken, [])


def test_where_nothing_fits_one_of_those_that_were_tried_is_taken(calls: Calls) -> None:
    calls.gpu.times_ms = dict.fromkeys(SIZES, float("inf"))
    assert calls.run(calls.tuner(rule=lambda configs, *_named, **_given: configs[2:])) == (64, [64, 128, 256])


def test_a_tie_is_what_the_gate_calls_one() -> None:
    assert TIE == GATES_TIE


def test_what_a_tuner_remembers_of_a_call_is_under_tritons_own_name(calls: Calls) -> None:
    tuner = calls.tuner(kind=lambda _named: "odd")
    assert tuner.nargs is None
    before = vars(tuner).keys() - MEMORY

    calls.run(tuner)
    tuner.nargs = {"n": 100}

    assert vars(tuner).keys() - MEMORY == before
    assert tuner.nargs == {"n": 100, KIND: "odd"}

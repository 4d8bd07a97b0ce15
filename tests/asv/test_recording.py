from __future__ import annotations

import json
import math
import os
import pickle
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from flopwatch import overlay
from flopwatch.asv import recording
from flopwatch.asv.recording import GPU_VARIABLE, ROOT_VARIABLE, Cache, measure, read
from flopwatch.measure.client import CaseFailed, Code, Mode
from flopwatch.model import Case, Failure, KernelFacts, Memory, Numbers, Timing
from flopwatch.suite import METRICS, Suite

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import torch

OURS = Case(suite="Add", values=("4096", "flopwatch"))
PEER = Case(suite="Add", values=("4096", "torch"))
SKIPPED = Case(suite="Add", values=("8192", "torch"))
FACT = KernelFacts(
    kernel="add",
    device="h200",
    config="BLOCK=256",
    variant="",
    chosen=True,
    registers=40,
    spill_store_bytes=4,
    spill_load_bytes=8,
    shared_bytes=1024,
    occupancy=0.5,
)
GOOD = Numbers(dtype="float16", max_diff=1e-3, max_diff_eps=2.0, finite=True, bitwise="")


class Add(Suite):
    params = (["4096", "8192"],)
    param_names = ("n",)
    small = {"n": "64"}  # noqa: RUF012 - a suite's own words
    providers = {"torch": lambda x: x}  # noqa: RUF012 - likewise
    skip_params = (("8192", "torch"),)

    def inputs(self, *values: str, seed: int) -> tuple[Any, ...]:
        raise NotImplementedError(values, seed)

    def run(self, *inputs: Any) -> torch.Tensor:  # noqa: ANN401 - as in Suite
        raise NotImplementedError(inputs)

    def flops(self, *values: str) -> float:
        return float(values[0])

    def bytes_moved(self, *values: str) -> float:
        return 4 * float(values[0])


@dataclass
class Machine:
    """What the workers find: the test sets answers, a `Failure` for one that fails, and reads what was asked."""

    gpu: str | None = "NVIDIA H200"
    timing: object = field(default_factory=lambda: Timing(seconds=(1e-3, 2e-3), method="graph"))
    numbers: object = GOOD
    facts: object = (FACT,)
    asked: list[tuple[Mode, str, str]] = field(default_factory=list)
    code: Code | None = None

    def worker(self, mode: Mode, code: Code) -> Any:  # noqa: ANN401 - stands in for a Worker
        self.code = code

        def answer(what: str, value: object) -> Callable[[Case], object]:
            def ask(case: Case) -> object:
                self.asked.append((mode, what, case.id))
                if isinstance(value, Failure):
                    raise CaseFailed(value)
                return value

            return ask

        return nullcontext(
            SimpleNamespace(
                hello=SimpleNamespace(gpu=self.gpu),
                close=lambda: None,
                time=answer("time", self.timing),
                numbers=answer("numbers", self.numbers),
                memory=answer("memory", Memory(peak_bytes=4096, growth_bytes=0.0)),
                facts=answer("facts", self.facts),
            )
        )


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """Workers that answer as told, and a repository of their own."""
    (tmp_path / "pyproject.toml").write_text('[tool.flopwatch]\npackages = ["kernels"]\n', encoding="utf-8")
    monkeypatch.setenv(ROOT_VARIABLE, str(tmp_path))
    monkeypatch.setenv("ASV_COMMIT", "c0ffee")
    monkeypatch.delenv(overlay.TREE_VARIABLE, raising=False)
    monkeypatch.delenv(GPU_VARIABLE, raising=False)
    found = Machine()
    monkeypatch.setattr(recording, "Worker", found.worker)
    monkeypatch.setattr(recording, "_benchmarks_folder", lambda _: tmp_path / "benchmarks")
    return found


def measured() -> Cache:
    """Measure the suite, and carry the cache through asv's pickle."""
    restored: Cache = pickle.loads(pickle.dumps(measure([Add])))  # noqa: S301 - our own
    return restored


def kept(folder: Path) -> list[dict[str, Any]]:
    path = folder / ".flopwatch" / "failures" / "c0ffee.jsonl"
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def nan(value: object) -> bool:
    return isinstance(value, float) and math.isnan(value)


def test_every_metric_of_our_own_kernel_is_recorded_on_a_gpu(machine: Machine) -> None:
    cache = measured()

    assert machine.gpu
    assert {metric: read(cache, OURS, metric) for metric in METRICS} == {
        "time": {"samples": [1e-3, 2e-3], "number": 1},
        "max_diff": 1e-3,
        "max_diff_eps": 2.0,
        "peak_memory": 4096,
        "registers": 40,
        "spills": 12,
        "shared_memory": 1024,
        "idle_warp_slots": 50.0,
    }


def test_a_peer_has_no_static_facts(machine: Machine) -> None:
    cache = measured()

    assert read(cache, PEER, "time") == {"samples": [1e-3, 2e-3], "number": 1}
    assert [nan(read(cache, PEER, metric)) for metric in ("registers", "spills", "idle_warp_slots")] == [True] * 3
    assert not [asked for asked in machine.asked if asked[1:] == ("facts", PEER.id)]


@pytest.mark.parametrize("metric", METRICS)
def test_a_combination_that_does_not_exist_is_nan(machine: Machine, metric: str) -> None:
    assert nan(read(measured(), SKIPPED, metric))
    assert SKIPPED.id not in {case for _, _, case in machine.asked}


def test_without_a_gpu_only_static_facts_are_recorded(machine: Machine) -> None:
    machine.gpu = None
    cache = measured()

    assert {metric for metric in METRICS if not nan(read(cache, OURS, metric))} == {
        "registers",
        "spills",
        "shared_memory",
        "idle_warp_slots",
    }
    assert {metric for metric in METRICS if not nan(read(cache, PEER, metric))} == set()


def test_where_results_are_labelled_as_without_a_gpu_none_is_used(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(GPU_VARIABLE, "")

    assert nan(read(measured(), OURS, "time"))
    assert Mode.GPU not in {mode for mode, _, _ in machine.asked}


def test_without_a_gpu_each_small_case_is_interpreted_once(machine: Machine) -> None:
    machine.gpu = None
    measured()

    assert [asked for asked in machine.asked if asked[1] == "numbers"] == [
        (Mode.INTERPRET, "numbers", "Add[64,flopwatch]")
    ]


@pytest.mark.parametrize(
    ("numbers", "kind"),
    [
        (replace(GOOD, max_diff_eps=9.0), "WrongNumbers"),
        (replace(GOOD, max_diff=None, max_diff_eps=None, finite=False), "NotFinite"),
        (Failure(kind="IndexError", message="planted"), "IndexError"),
    ],
)
def test_without_a_gpu_wrong_numbers_are_a_failure(machine: Machine, numbers: object, kind: str) -> None:
    machine.gpu, machine.numbers = None, numbers
    cache = measured()

    with pytest.raises(RuntimeError, match=kind):
        read(cache, OURS, "max_diff")
    assert read(cache, OURS, "registers") == 40


def test_numbers_that_the_interpreter_cannot_know_are_no_failure(machine: Machine) -> None:
    machine.gpu, machine.numbers = None, Failure(kind="NotCovered", message="inline_asm")

    value = read(measured(), OURS, "max_diff")
    assert isinstance(value, float)
    assert math.isnan(value)


def test_a_failed_case_raises_its_cause_and_keeps_the_other_metrics(machine: Machine, tmp_path: Path) -> None:
    machine.timing = Failure(kind="OutOfResources", message="shared memory", traceback="where")
    cache = measured()

    with pytest.raises(RuntimeError, match="OutOfResources: shared memory\nwhere"):
        read(cache, OURS, "time")
    assert read(cache, OURS, "max_diff") == 1e-3
    assert [(line["case"], line["metrics"], line["failure"]["kind"]) for line in kept(tmp_path)] == [
        ("Add[4096,flopwatch]", ["time"], "OutOfResources"),
        ("Add[4096,torch]", ["time"], "OutOfResources"),
        ("Add[8192,flopwatch]", ["time"], "OutOfResources"),
    ]


def test_without_a_failure_nothing_is_kept(machine: Machine, tmp_path: Path) -> None:
    measured()

    assert machine.asked
    assert kept(tmp_path) == []


def test_a_result_that_is_not_finite_is_a_failure(machine: Machine) -> None:
    machine.numbers = Numbers(dtype="float16", max_diff=None, max_diff_eps=None, finite=False, bitwise="")

    with pytest.raises(RuntimeError, match="NotFinite"):
        read(measured(), OURS, "max_diff_eps")


@pytest.mark.parametrize(
    ("attribute", "value", "metric"),
    [
        ("timing", Timing(seconds=(1e-3, math.inf), method="graph"), "time"),
        ("numbers", replace(GOOD, max_diff=math.inf), "max_diff"),
    ],
)
def test_an_infinity_never_reaches_asv(machine: Machine, attribute: str, value: object, metric: str) -> None:
    setattr(machine, attribute, value)

    with pytest.raises(RuntimeError, match="NotFinite"):
        read(measured(), OURS, metric)


def test_facts_are_summed_up_over_the_kernels_that_would_run(machine: Machine) -> None:
    machine.facts = (
        FACT,
        replace(FACT, kernel="reduce", registers=96, occupancy=0.25, shared_bytes=512),
        replace(FACT, config="BLOCK=4096", registers=255, occupancy=0.1, shared_bytes=2**20, chosen=False),
    )
    cache = measured()

    assert [read(cache, OURS, metric) for metric in ("registers", "spills", "shared_memory", "idle_warp_slots")] == [
        96,
        24,
        1024,
        75.0,
    ]


def test_a_chosen_configuration_that_does_not_compile_is_a_failure(machine: Machine) -> None:
    machine.facts = (FACT, replace(FACT, kernel="b", failure=Failure(kind="CompilationError", message="planted")))

    with pytest.raises(RuntimeError, match="CompilationError: planted"):
        read(measured(), OURS, "registers")


def test_a_call_that_launches_nothing_has_no_facts(machine: Machine) -> None:
    machine.facts = ()

    assert nan(read(measured(), OURS, "spills"))


def test_the_checkout_is_the_one_that_the_environment_names(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in overlay.environment(tmp_path / "tree", "src", ["kernels", "ops"]).items():
        monkeypatch.setenv(name, value)
    measured()

    assert machine.code is not None
    assert machine.code.tree == tmp_path / "tree"
    assert (machine.code.source, machine.code.packages) == ("src", ("kernels", "ops"))
    assert machine.code.keep_choices


def test_without_the_environment_what_is_installed_is_measured(machine: Machine) -> None:
    assert overlay.TREE_VARIABLE not in os.environ
    measured()

    assert machine.code is not None
    assert machine.code.tree is None

"""Recording with real workers: without a GPU, and on one."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

import pytest
from tests.conftest import HAS_GPU
from tests.record.conftest import ASV_CONF

from flopwatch.config import load_config
from flopwatch.errors import ExitCode, MachineError
from flopwatch.gate.pairs import Observer
from flopwatch.gate.sides import Arm
from flopwatch.model import Case
from flopwatch.record import RecordOptions, run_record
from flopwatch.record.ahead import compile_ahead
from flopwatch.record.checkouts import Checkouts
from flopwatch.record.sidecar import read_cases

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import ToyRepository

#: The cases in asv's order: two dtypes, and of each ours and torch's.
HALF, PEER, SINGLE = range(3)


class Listener(Observer):
    def __init__(self) -> None:
        self.lines: list[str] = []

    def step(self, line: str) -> None:
        self.lines.append(line)


def stored(toy: ToyRepository, commit: str) -> dict[str, list[Any]]:
    """Return the values of each metric."""
    (path,) = toy.root.glob(f"results/*/{commit[:8]}-*.json")
    results = json.loads(path.read_text(encoding="utf-8"))["results"]
    return {name.rpartition("track_")[2]: row[0] for name, row in results.items()}


@pytest.fixture
def asv_toy(toy: ToyRepository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ToyRepository:
    """The toy repository with asv.conf.json."""
    monkeypatch.setenv("HOME", str(tmp_path))
    (toy.root / "asv.conf.json").write_text(json.dumps(ASV_CONF), encoding="utf-8")
    (toy.root / ".gitignore").write_text("/.asv/\n/results/\n", encoding="utf-8")
    toy.commit("asv")
    return toy


@pytest.mark.skipif(HAS_GPU, reason="is about a machine without a GPU")
def test_without_a_gpu_static_facts_and_failures_are_recorded_and_no_times(asv_toy: ToyRepository) -> None:
    asv_toy.edit("x.numel(), factor, BLOCK", "x.numel(), factor + (x.element_size() == 4), BLOCK")
    commit = asv_toy.commit("wrong in float32")
    listener = Listener()

    found = run_record(RecordOptions(), asv_toy.root, observer=listener)

    assert (found.gpu, found.commits[0].cases, found.exit_code) == (None, 4, ExitCode.OK)
    assert any(line.startswith("no GPU here: no times; static facts as compiled for h200") for line in listener.lines)
    values = stored(asv_toy, commit)
    assert values["registers"][HALF] > 0
    assert values["registers"][SINGLE] > 0
    assert math.isnan(values["registers"][PEER])
    assert all(math.isnan(value) for metric in ("time", "peak_memory") for value in values[metric])
    assert math.isnan(values["max_diff"][HALF])
    assert values["max_diff"][SINGLE] is None
    (sidecar,) = asv_toy.root.glob("results/*/*.jsonl")
    compiled = {log.case: [choice.config for choice in log.compiled] for log in read_cases(sidecar)}
    assert compiled["Scale[1000000,float16,flopwatch]"] == ["BLOCK=256,num_stages=3,num_warps=4"]
    assert compiled["Scale[1000000,float16,torch]"] == []
    (failure,) = found.commits[0].failures
    assert (failure.case, failure.failure.kind) == ("Scale[1000000,float32,flopwatch]", "WrongNumbers")


@pytest.mark.skipif(HAS_GPU, reason="is about a machine without a GPU")
def test_without_a_gpu_there_is_no_ratio_to_an_anchor(asv_toy: ToyRepository) -> None:
    with pytest.raises(MachineError, match="ratios to an anchor need a GPU"):
        run_record(RecordOptions(anchor="HEAD"), asv_toy.root)


@pytest.mark.gpu
def test_a_gpu_measures_a_case_in_a_second_and_the_same_code_at_a_ratio_of_one(asv_toy: ToyRepository) -> None:
    commit = asv_toy.commit("the same")

    found = run_record(RecordOptions(anchor="HEAD~1"), asv_toy.root)

    assert (found.exit_code, found.commits[0].failed) == (ExitCode.OK, 0)
    values = stored(asv_toy, commit)
    assert all(0 < seconds < 1e-3 for seconds in values["time"])
    assert all(difference is not None for difference in values["max_diff"])
    assert values["registers"][HALF] > 0
    assert values["ratio_to_anchor"][HALF] == pytest.approx(1, abs=0.02)
    (sidecar,) = asv_toy.root.glob("results/*/*.jsonl")
    logs = read_cases(sidecar)
    assert len(logs) == 4
    assert [log.choices for log in logs if "torch" not in log.case] == [(), ()]  # nothing here is tuned
    # The first case starts the static worker.
    assert all(log.seconds <= 1 for log in logs[1:])


@pytest.mark.skipif(HAS_GPU, reason="is about a machine without a GPU")
def test_what_is_compiled_ahead_is_in_the_cache_from_which_the_gpu_takes_it(
    toy: ToyRepository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "triton"))
    checkouts = Checkouts(load_config(toy.root), device="h200", suites=toy.root / "benchmarks", tree=toy.root)
    cases = [Case(suite="Scale", values=("1000000", dtype, "flopwatch")) for dtype in ("float16", "float32", "none")]
    counts: list[tuple[int, int]] = []
    listener = Listener()
    monkeypatch.setattr(listener, "cases", lambda *found: counts.append(found))

    with checkouts:
        compile_ahead(checkouts, [Arm.HEAD], cases, listener)

    kernels = {path.parent.name for path in (tmp_path / "triton").rglob("*.cubin")}
    assert len(kernels) == 2
    assert counts == [(0, 3), (1, 3), (2, 3), (3, 3)]

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from evidence.slowed import TURNS_VARIABLE

from flopwatch.model import Case
from flopwatch.suite import Discovery, discover

ROOT = Path(__file__).parents[2]
CASE = Case(suite="Matmul", values=("512x512x512", "float16", "flopwatch"))


@pytest.fixture(scope="module")
def slowed() -> Discovery:
    pytest.importorskip("triton")
    before = list(sys.path)
    try:
        return discover(ROOT / "evidence" / "slowed")
    finally:
        sys.path[:] = before


def test_the_slowed_suites_are_the_bundled_ones(slowed: Discovery) -> None:
    before = list(sys.path)
    bundled = discover(ROOT / "benchmarks").suites
    sys.path[:] = before

    assert slowed.failures == {}
    assert {name: list(suite.cases()) for name, suite in slowed.suites.items()} == {
        name: list(suite.cases()) for name, suite in bundled.items()
    }


#: Compiles for a GPU that is not there; the tests' own process has Triton interpret its kernels.
SPIN_TWICE = """
import json, os, sys
from pathlib import Path
from flopwatch.static import pretend_gpu
from flopwatch.suite import discover

suite = discover(Path("evidence/slowed")).suites["Matmul"]()
file = Path(os.environ["FLOPWATCH_SPIN_TURNS"])
with pretend_gpu("h200", tensors="meta") as recorder:
    call = suite.call("flopwatch")
    inputs = suite.inputs("512x512x512", "float16", seed=0)
    assert call(*inputs).shape == (512, 512)
    file.write_text("{}", encoding="utf-8")
    call(*inputs)
    call(*suite.inputs("512x512x512", "float16", seed=1))
launches = [launch for launch in recorder.launches if not launch.tuning]
spins = [launch for launch in launches if launch.kernel == "spin_kernel"]
print(json.dumps({
    "kernels": [launch.kernel for launch in launches],
    "turns": [launch.arguments[1] for launch in spins],
    "binaries": len({launch.binary_hash for launch in spins}),
    "failures": [str(failure.error) for failure in recorder.failures],
}))
"""


def test_a_slowed_case_spins_behind_its_kernel_as_long_as_the_file_says(tmp_path: Path) -> None:
    pytest.importorskip("triton")
    turns = tmp_path / "turns.json"
    turns.write_text(json.dumps({CASE.id: 77}), encoding="utf-8")
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    printed = subprocess.run(
        [sys.executable, "-c", SPIN_TWICE],
        cwd=ROOT,
        env={**environment, TURNS_VARIABLE: str(turns), "FLOPWATCH_KERNELS": "plain"},
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    found = json.loads(printed)

    assert found["kernels"] == ["matmul_kernel", "spin_kernel"] * 3
    assert found["turns"] == ["turns=int:77", "turns=int:77", "turns=int:0"]
    assert (found["binaries"], found["failures"]) == (1, [])  # one binary for any number of turns

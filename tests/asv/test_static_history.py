from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import ToyRepository

#: The cases in asv's order: the parameters, and then the provider (ours, torch).
OURS, PEER = 0, 1


def asv(toy: ToyRepository, *arguments: str, module: str = "asv") -> subprocess.CompletedProcess[str]:
    """Run asv, or another module, as on a machine without a GPU."""
    variables = {**os.environ, "HOME": str(toy.root.parent), "CUDA_VISIBLE_DEVICES": ""}
    return subprocess.run(
        [sys.executable, "-m", module, *arguments],
        cwd=toy.root,
        env=variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )


def stored(toy: ToyRepository, commit: str) -> dict[str, Any]:
    (path,) = toy.root.glob(f"results/*/{commit[:8]}-*.json")
    return values(path)


def values(path: Path) -> dict[str, Any]:
    """Return what a file of results has, one entry a case."""
    results: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))["results"]
    return {name.rpartition(".")[2]: row[0] for name, row in sorted(results.items())}


@pytest.fixture
def recorded(toy: ToyRepository, asv_conf: dict[str, object]) -> ToyRepository:
    """A Triton kernel of which the second commit needs fewer warps, recorded and published without a GPU."""
    (toy.root / "asv.conf.json").write_text(json.dumps(asv_conf), encoding="utf-8")
    toy.edit("num_warps=4", "num_warps=8")
    toy.commit("more warps")
    for command in (("machine", "--yes"), ("run", "ALL"), ("publish",)):
        process = asv(toy, *command)
        assert process.returncode == 0, process.stdout
    return toy


def test_without_a_gpu_static_facts_make_the_history(recorded: ToyRepository) -> None:
    newest, oldest = recorded.git("rev-list", "main").split()
    facts = stored(recorded, newest)

    assert facts["track_registers"][OURS] > 0
    assert facts["track_spills"][OURS] == 0
    assert 0 <= facts["track_idle_warp_slots"][OURS] < 100
    assert all(math.isnan(value) for value in facts["track_time"])
    assert math.isnan(facts["track_registers"][PEER])
    # 256 elements on 8 warps instead of 4: half as many a thread, so fewer registers. Each commit was compiled itself.
    assert facts["track_registers"][OURS] < stored(recorded, oldest)["track_registers"][OURS]
    index = json.loads((recorded.root / "html" / "index.json").read_text(encoding="utf-8"))
    assert "scale.Scale.occupancy" in index["benchmarks"]
    assert {"scale.Scale.tflops", "scale.Scale.track_time"} & index["benchmarks"].keys() == set()
    assert index["params"]["gpu"] == ["none (static h200)"]


def test_flopwatch_record_and_asv_run_agree(toy: ToyRepository, asv_conf: dict[str, object]) -> None:
    (toy.root / "asv.conf.json").write_text(json.dumps(asv_conf), encoding="utf-8")
    commit = toy.commit("asv")
    for module, command in (
        ("asv", ("machine", "--yes", "--machine", "asv")),
        ("asv", ("run", "HEAD^!", "--machine", "asv")),
        ("flopwatch", ("record", "--machine", "flopwatch")),
    ):
        process = asv(toy, *command, module=module)
        assert process.returncode == 0, process.stdout

    paths = {path.parent.name: path for path in toy.root.glob(f"results/*/{commit[:8]}-*.json")}
    assert paths.keys() == {"asv", "flopwatch"}
    assert paths["asv"].name == paths["flopwatch"].name
    assert str(values(paths["asv"])) == str(values(paths["flopwatch"]))  # nan is unlike itself, but not its text
    assert values(paths["asv"])["track_registers"][OURS] > 0

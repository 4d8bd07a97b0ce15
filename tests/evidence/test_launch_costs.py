from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from evidence import launch_costs
from evidence.launch_costs import CALLS, ROUNDS, YARDSTICK, LaunchCosts, kept, least_seconds, told

from flopwatch.measure.machine import Machine
from flopwatch.model import from_json, to_json

if TYPE_CHECKING:
    from collections.abc import Callable

MACHINE = Machine(gpu=None, versions={"torch": "2.11.0"}, cpu_model="Some Processor", cpu_count=16)
COSTS = LaunchCosts(
    machine=MACHINE,
    date="2026-11-25",
    seconds={YARDSTICK: 20e-6, "triton_matmul": 22.3e-6, "flash_attention": 22.5e-6, "torch._scaled_mm": 60e-6}
    | {"triton_matmul of float32, converted": 40e-6},
)


def test_the_least_of_all_rounds_counts_behind_the_first_calls() -> None:
    """On a clock that calls move: the first two of each and a disturbed round cost a second more."""
    now, made = [0.0], {"one": 0, "two": 0}
    waits: list[float] = []

    def call(name: str, cost: float) -> Callable[[], None]:
        def made_one() -> None:
            made[name] += 1
            disturbed = made[name] <= 2 or 3 * CALLS < made[name] <= 4 * CALLS
            now[0] += cost + disturbed

        return made_one

    each = {"one": call("one", 0.25), "two": call("two", 0.5)}
    least = least_seconds(each, lambda: waits.append(now[0]), lambda: now[0])

    assert least == pytest.approx({"one": 0.25, "two": 0.5})
    assert made == {"one": ROUNDS * CALLS + 2, "two": ROUNDS * CALLS + 2}
    assert len(waits) == 2 * ROUNDS + 1


def test_the_goal_is_in_units_of_torch_matmul() -> None:
    text = told([None, COSTS])

    assert text.startswith("no GPU, Some Processor; torch 2.11.0; 2026-11-25:\n")
    assert told([replace(COSTS, kernels="0123")]).startswith(
        "no GPU, Some Processor; torch 2.11.0; 2026-11-25; kernels `0123`:\n"
    )
    assert "| call | of the host | of torch.matmul's | goal: 1.12 |" in text
    assert "| triton_matmul | 22.30 µs | 1.11 | reached |" in text
    assert "| flash_attention | 22.50 µs | 1.12 | **not reached** |" in text
    assert "| torch._scaled_mm | 60.00 µs | 3.00 |  |" in text
    assert "| triton_matmul of float32, converted | 40.00 µs | 2.00 |  |" in text
    assert told([None]).startswith("Not measured yet")


def test_the_newest_is_told(tmp_path: Path) -> None:
    assert kept(tmp_path) is None
    for name, date in (("b", "2026-11-20"), ("a", "2026-11-24")):
        (tmp_path / f"launch-{name}.json").write_bytes(to_json(replace(COSTS, date=date)))

    found = kept(tmp_path)

    assert found is not None
    assert found.date == "2026-11-24"


def test_of_one_day_the_last_by_name_is_told(tmp_path: Path) -> None:
    for name, kernels in (("2026-11-24", "before"), ("2026-11-24T1017", "after")):
        (tmp_path / f"launch-{name}.json").write_bytes(to_json(replace(COSTS, kernels=kernels)))

    found = kept(tmp_path)

    assert found is not None
    assert found.kernels == "after"


def test_without_a_gpu_it_says_so_and_leaves_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flopwatch.measure.nvml.present_gpus", dict)
    out = tmp_path / "launch.json"
    out.write_bytes(b"kept")

    with pytest.raises(SystemExit, match="calls are timed on a GPU\n  why: the driver has none"):
        launch_costs.main([str(out)])

    assert out.read_bytes() == b"kept"


@pytest.mark.gpu
def test_calls_are_timed_on_a_gpu(tmp_path: Path) -> None:
    out = tmp_path / "launch.json"
    root = Path(__file__).parents[2]
    command = [sys.executable, "-m", "evidence.launch_costs", str(out)]
    done = subprocess.run(command, cwd=root, env=dict(os.environ), capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr[-3000:]
    found = from_json(out.read_bytes(), LaunchCosts)
    assert found.machine.gpu is not None
    assert all(1e-6 < seconds < 1e-2 for seconds in found.seconds.values())

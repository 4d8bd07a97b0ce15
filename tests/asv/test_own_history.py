"""What this repository has recorded of itself, as `nox -s dashboard` shows it."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.asv.conftest import Recorded, succeed

ROOT = Path(__file__).parents[2]
SHOWN = ("tflops", "bandwidth", "roofline", "track_max_diff", "track_peak_memory", "track_registers", "track_spills")
#: Of a TFLOPS that no GPU of today has, and of what no roofline allows, but by a cache.
MOST = {"tflops": 2000.0, "roofline": 150.0}


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    folder = tmp_path_factory.mktemp("own")
    own = Recorded(root=folder / "clone", home=folder)
    shallow = subprocess.run(
        ["git", "rev-parse", "--is-shallow-repository"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if shallow.stdout.strip() != "false":
        pytest.skip("needs the history of the repository")
    subprocess.run(["git", "clone", "--quiet", "--shared", str(ROOT), str(own.root)], check=True)
    own.git("checkout", "-q", "-B", "main")
    source = {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])])}
    succeed(own.asv("publish", "--no-pull", env=source))
    return own


def last_values(own: Recorded, machine: str, name: str) -> list[float]:
    """Return the last value of each case of a benchmark on a machine, where it has one."""
    graphs = (own.root / "html" / "graphs").rglob(f"{name}.json")
    (path,) = (path for path in graphs if f"machine-{machine}" in str(path))
    points: list[Any] = json.loads(path.read_bytes())
    return [value for value in points[-1][1] if value is not None]


@pytest.mark.parametrize("quantity", SHOWN)
@pytest.mark.parametrize("suite", ["matmul.Matmul", "attention.Attention"])
@pytest.mark.parametrize("machine", ["h100", "h200"])
def test_recordings_show(machine: str, suite: str, quantity: str, published: Recorded) -> None:
    values = last_values(published, machine, f"{suite}.{quantity}")

    assert len(values) > 0
    assert all(0 <= value <= MOST.get(quantity, value) for value in values)
    assert quantity == "track_spills" or max(values) > 0


def test_the_h100_shows_its_commits_in_units_of_an_anchor(published: Recorded) -> None:
    values = last_values(published, "h100", "matmul.Matmul.track_ratio_to_anchor")

    assert len(values) > 10
    assert all(0.2 < value < 1.02 for value in values)

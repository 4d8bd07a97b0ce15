from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
# The proof is no part of the distribution; `python -m pytest` has the checkout on its path, `pytest` has not.
sys.path.insert(0, str(ROOT))

from evidence.samples import Samples  # noqa: E402 - found by the path above

CASES = tuple(f"Suite[{size},float16,flopwatch]" for size in range(8))
PAIRS = 24


@pytest.fixture(scope="session")
def samples() -> Samples:
    """Return pairs of equal code: cases of 2 us to 2 ms, pairs that err by 0.1 %, in steps of the events' clock."""
    rng = np.random.default_rng(7)
    calls = np.array([64, 32, 16, 8, 4, 2, 1, 1], dtype=np.int32)
    times = np.geomspace(2e-6, 2e-3, len(CASES))[:, None, None, None, None]
    offsets = rng.normal(0, 0.0007, size=(PAIRS, len(CASES), 2, 1, 1, 1))
    seconds = times * np.exp(offsets + rng.normal(0, 0.0005, size=(PAIRS, len(CASES), 2, 2, 3, 6)))
    steps = np.round(seconds * calls[:, None, None, None, None] / 32e-9)
    seconds = steps * 32e-9 / calls[:, None, None, None, None]
    seconds[::3, :, :, 1, 2:] = np.nan  # cases stop after as many cycles as they need
    launches = np.round(rng.uniform(1e-4, 2e-4, size=(PAIRS, len(CASES), 2, 1, 2, 3)), 8)
    launches[:, -2:] = np.nan
    machine = {"gpu": {"name": "NVIDIA H200", "driver": "580.1"}, "versions": {"torch": "2.11.0"}}
    return Samples(
        cases=CASES,
        seconds=seconds.astype(np.float32),
        launch_seconds=launches.astype(np.float32),
        calls=calls,
        about={
            "machine": json.dumps(machine),
            "date": "2026-11-21",
            "command": "python -m evidence.record x.npz",
            "commit": "0123456789abcdef0123456789abcdef01234567",
        },
    )


@pytest.fixture(scope="session")
def recording(samples: Samples, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("evidence") / "aa-2026-11-21.npz"
    samples.save(path)
    return path

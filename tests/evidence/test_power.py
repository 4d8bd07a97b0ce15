from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pytest
from evidence import power
from evidence.replay import Draw, Planted, Screening
from evidence.samples import Samples

from flopwatch.stats import Design

if TYPE_CHECKING:
    from pathlib import Path


def test_large_slowdowns_are_found_and_none_is_not(samples: Samples) -> None:
    found, _ = power.plant(samples.log_ratios(), Design(), (0.005, (0.0, 0.02)), 2, 0)

    assert found.tolist() == [[0] * 8, [2] * 8]


def test_an_answer_that_decide_does_not_give_is_an_error(samples: Samples, monkeypatch: pytest.MonkeyPatch) -> None:
    table, rng = samples.log_ratios(), np.random.default_rng(1)
    screening = Screening(Design(), np.full(8, math.log1p(0.005)), Draw(table, rng)(range(8), Design().pairs))
    planted = Planted(row=3, log_ratio=math.log1p(0.02))

    power.audit(screening, planted, table, rng)
    monkeypatch.setattr(power, "found_by", lambda *_: False)
    with pytest.raises(AssertionError, match="decide says True"):
        power.audit(screening, planted, table, rng)


def test_kernels_that_spin_are_decided_from_their_own_pairs(samples: Samples, tmp_path: Path) -> None:
    slowed = samples.seconds[:, [1, 4]].copy()
    slowed[:, :, 1] *= np.array([1.02, 1.001], dtype=np.float32)[:, None, None, None]
    planted = [
        {"case": samples.cases[row], "asked": asked, "calibrated": asked} for row, asked in ((1, 0.02), (4, 0.001))
    ]
    spun = Samples(
        cases=("1 +2 %", "4 +0.1 %"),
        seconds=slowed,
        launch_seconds=samples.launch_seconds[:, [1, 4]],
        calls=samples.calls[[1, 4]],
        about={**samples.about, "planted": planted},
    )
    path = tmp_path / "spin-2026-11-21.npz"
    spun.save(path)
    for other in ("spin-2026-11-20.npz", "spin-2026-11-21-b.npz"):
        spun.save(tmp_path / other)
    assert [each.name for each in power.spin_recordings(tmp_path / "aa.npz")] == [
        "spin-2026-11-21-b.npz",
        "spin-2026-11-21.npz",
    ]
    series = power.spin_series(Samples.load(path))
    decide = partial(power.plant_spin, samples.log_ratios(), samples.cases, Design(), 3)
    found = [detection for spin in series for detection in decide(spin)]

    assert [(each.case, each.margin, each.found) for each in found[:2]] == [
        (samples.cases[1], 0.005, 3),
        (samples.cases[1], 0.0, 3),
    ]
    assert found[0].measured == pytest.approx(0.02, abs=0.001)
    assert [each.margin for each in found[2:]] == [0.0]  # 0.1 % is inside the margin


def test_without_such_a_recording_there_is_nothing_to_decide(recording: Path) -> None:
    assert power.spin_recordings(recording) == []

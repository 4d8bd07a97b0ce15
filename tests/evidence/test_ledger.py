from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from evidence import ledger
from evidence.ledger import Ledger
from evidence.samples import further_recordings, recordings

from flopwatch.model import from_json, to_json
from flopwatch.stats import Design

if TYPE_CHECKING:
    from pathlib import Path

    from evidence.samples import Samples


def test_clean_runs_are_counted(samples: Samples) -> None:
    table = samples.log_ratios()
    found = ledger.clean_runs(table, Design(), 0.005, 4, 0)
    both = ledger.merge([found, ledger.clean_runs(table, Design(), 0.005, 3, 1)])

    assert (found.runs, found.slower, found.faster) == (4, 0, 0)
    assert sum(found.marks.values()) == 4 * len(table)
    assert found.pairs >= 4 * Design().first_look
    assert (both.runs, sum(both.marks.values())) == (7, 7 * len(table))


def test_a_slot_that_is_favoured_makes_doubt_and_no_false_alarm(samples: Samples) -> None:
    table = samples.log_ratios() + 0.05
    favoured = ledger.clean_runs(table, Design(), 0.005, 3, 0)

    assert (favoured.slower, favoured.faster) == (0, 0)
    assert favoured.marks == {"unsure": 3 * len(table)}


def test_noise_is_described_case_by_case(samples: Samples) -> None:
    found = ledger.noise(samples, Design())

    assert [case.case for case in found] == list(samples.cases)
    assert all(case.deviation == pytest.approx(0.001, rel=0.5) for case in found)
    assert all(0.005 < case.detectable < 0.01 for case in found)
    assert [case.launch_us is None for case in found] == [False] * 6 + [True] * 2


def test_noise_is_told_of_further_pairs_of_the_cases_that_are_sampled_as_before(samples: Samples) -> None:
    last = samples.cases[-1]
    further = replace(
        samples, seconds=samples.seconds * np.array([1, 1.01], dtype=np.float32)[:, None, None, None]
    ).without({last})
    found = ledger.noise(samples, Design(), further=[further])
    before = ledger.noise(samples, Design())

    assert [case.pairs for case in found] == [48] * 7 + [24]
    assert all(case.deviation == pytest.approx(0.01 / 2**0.5, rel=0.1) for case in found[:-1])
    assert found[-1] == before[-1]


def test_further_pairs_lie_beside_a_recording_and_are_no_recordings_themselves(
    recording: Path, samples: Samples, tmp_path: Path
) -> None:
    path = tmp_path / "h200" / recording.name
    path.parent.mkdir()
    for name in (recording.name, "further-2026-11-21.npz", "further-2026-11-20.npz"):
        samples.save(path.with_name(name))

    assert recordings(tmp_path) == [path]
    assert further_recordings(path) == [path.with_name("further-2026-11-21.npz")]


def test_a_ledger_can_be_read_again(recording: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "CHUNK", 3)
    made = ledger.make(recording, 3)

    assert from_json(to_json(made), Ledger) == made
    assert [clean.runs for clean in made.clean] == [3, 3]
    assert made.origin.pairs == 24

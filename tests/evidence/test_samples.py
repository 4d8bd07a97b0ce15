from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from evidence.samples import Samples

from flopwatch.measure.pair import PairSample
from flopwatch.measure.protocol import Method, Plan
from flopwatch.model import Case

if TYPE_CHECKING:
    from pathlib import Path


def test_a_recording_reads_as_it_was_written(samples: Samples, recording: Path) -> None:
    found = Samples.load(recording)

    np.testing.assert_allclose(found.seconds, samples.seconds, rtol=2e-7)
    np.testing.assert_allclose(found.launch_seconds, samples.launch_seconds, rtol=2e-7)
    assert (found.cases, found.about) == (samples.cases, samples.about)


def test_samples_that_are_no_whole_steps_are_kept_more_finely(samples: Samples, tmp_path: Path) -> None:
    odd = Samples(
        cases=samples.cases,
        seconds=samples.seconds + np.float32(1.3e-9),
        launch_seconds=samples.launch_seconds,
        calls=samples.calls,
        about=samples.about,
    )
    odd.save(tmp_path / "odd.npz")

    totals = (Samples.load(tmp_path / "odd.npz").seconds - odd.seconds) * samples.calls[:, None, None, None, None]
    assert np.nanmax(abs(totals)) < 0.6e-9


def test_ratios_are_those_of_the_gate_however_many_cycles_a_case_took() -> None:
    case = Case(suite="Add", values=("16", "flopwatch"))
    plan = Plan(method=Method.GRAPH, calls=4, input_sets=2)
    zero, one = ((1.0, 1.1), (2.0, 2.1), (3.0, 3.3)), ((1.1, 1.1), (2.2, 2.0), (3.5, 3.6))
    turns = [
        ((zero,), (one,)),
        ((zero, (*zero, (1.0, 1.0))), (one, (*one, (1.0, 1.2)))),
        ((((1.0, 1.0, 1.0, 1.2),),), (((1.0, 1.5, 1.5, 1.6),),)),
    ]
    pairs = [PairSample(case=case, plan=plan, seconds=each) for each in turns]
    found = Samples.collect([{case.id: pair} for pair in pairs], [case.id], {})

    assert found.seconds.shape == (3, 1, 2, 2, 4, 4)
    assert found.log_ratios()[0] == pytest.approx([pair.log_ratio for pair in pairs], abs=1e-6)


def test_a_recording_that_does_not_tell_preparations_apart_has_one(
    samples: Samples, recording: Path, tmp_path: Path
) -> None:
    """Those of 2026-11-21 and before are such."""
    with np.load(recording) as data:
        old = {name: data[name] for name in data.files}
    for name in ("steps", "launch_steps"):  # bytes, pairs, cases, slots, preparations, cycles, samples
        old[name] = old[name][:, :, :, :, 0]
    np.savez(tmp_path / "old.npz", **old)

    found = Samples.load(tmp_path / "old.npz").seconds
    np.testing.assert_allclose(found, samples.seconds[:, :, :, :1], rtol=2e-7)


def test_a_pair_with_a_fault_is_kept_but_not_used(tmp_path: Path) -> None:
    case = Case(suite="Add", values=("16", "flopwatch"))
    plan = Plan(method=Method.GRAPH, calls=4, input_sets=2)
    pair = PairSample(case=case, plan=plan, seconds=((((1.0, 1.0),),), (((1.1, 1.1),),)))
    pairs = [{case.id: pair}, {case.id: replace(pair, fault="a throttled GPU")}, {case.id: pair}]
    Samples.collect(pairs, [case.id], {}).save(tmp_path / "x.npz")
    found = Samples.load(tmp_path / "x.npz")

    assert np.isfinite(found.seconds).all()
    assert np.isfinite(found.log_ratios()).tolist() == [[True, False, True]]
    assert np.isfinite(found.only(np.array([1, 2])).log_ratios()).tolist() == [[False, True]]


def test_some_pairs_can_be_kept(samples: Samples) -> None:
    np.testing.assert_array_equal(samples.only(np.array([3, 1])).log_ratios(), samples.log_ratios()[:, [3, 1]])


def test_figures_name_the_file_that_they_come_from(samples: Samples, recording: Path) -> None:
    origin = samples.origin(recording)

    assert (origin.file, origin.gpu, origin.pairs) == ("aa-2026-11-21.npz", "NVIDIA H200", 24)
    assert len(origin.sha256) == 64


def test_what_is_left_out_leaves_the_others_as_they_were(samples: Samples, tmp_path: Path) -> None:
    first, second, *others = samples.cases
    faulty = replace(samples, about={**samples.about, "faults": {first: [0], second: [1]}})
    faulty.without({first}).save(tmp_path / "x.npz")
    found = Samples.load(tmp_path / "x.npz")

    assert found.cases == (second, *others)
    assert found.about["left_out"] == [first]
    np.testing.assert_allclose(found.log_ratios(), faulty.log_ratios()[1:], rtol=1e-3, atol=1e-6)
    np.testing.assert_allclose(found.launch_seconds, samples.launch_seconds[:, 1:], rtol=2e-7)

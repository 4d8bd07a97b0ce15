from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from flopwatch.gate.kernels import launch_changes
from flopwatch.gate.run import GateOptions, run_gate
from flopwatch.report.headline import headline
from flopwatch.static.comparison import Severity
from flopwatch.survey.run import SurveyOptions, run_survey
from flopwatch.survey.store import Store

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import ToyRepository


@pytest.fixture(autouse=True)
def _no_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setenv("FLOPWATCH_TEST", str(tmp_path))  # no other test has such an environment


def test_a_mask_that_is_missing_fails_the_gate_without_a_gpu_and_its_line_is_named(toy: ToyRepository) -> None:
    toy.commit("masked")
    # The last of 3907 programs reads 192 elements past the end of 1000000; its numbers may well be right.
    toy.edit("tl.load(x + offsets, mask=mask)", "tl.load(x + offsets)")
    line = next(
        number
        for number, text in enumerate(toy.kernel.read_text(encoding="utf-8").splitlines(), 1)
        if "tl.load" in text
    )
    result = run_gate(GateOptions(select="float16"), toy.root)

    (stray,) = [change for change in result.fact_changes if change.severity is Severity.FAIL]
    assert stray.fact == "out of bounds"
    assert stray.brief.startswith(f"leaves its tensors: load at {toy.kernel.name}:{line} ends 384 B past x ")
    assert "in 1 program, first (3906, 0, 0), in Scale[1000000,float16,flopwatch]" in stray.brief
    assert launch_changes(result, result.kernels[0].case) == [stray]
    assert result.exit_code == 1
    assert "1 kernel configuration leaves its tensors" in headline(result)


def test_a_survey_of_one_side_tells_what_leaves_its_tensors(toy: ToyRepository) -> None:
    toy.edit("tl.load(x + offsets, mask=mask)", "tl.load(x + offsets)")
    survey = run_survey(SurveyOptions(select="float16"), toy.root, store=Store(toy.root.parent / "kept"))

    (launch,) = survey.launches
    assert "ends 384 B past x" in launch.out_of_bounds[0]
    assert (launch.limit, survey.astray, survey.exit_code) == ("memory", (launch,), 1)

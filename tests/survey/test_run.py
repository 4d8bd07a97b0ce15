from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from flopwatch.errors import UndecidedError, UsageError
from flopwatch.gate.pairs import Observer
from flopwatch.measure.client import Worker
from flopwatch.static.comparison import Severity
from flopwatch.static.recorder import Autotune
from flopwatch.survey.run import SurveyOptions, run_survey
from flopwatch.survey.store import Store

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import ToyRepository

    from flopwatch.survey import Survey


class Steps(Observer):
    """Remembers what it was told."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.done: list[tuple[int, int]] = []

    def step(self, line: str) -> None:
        self.lines.append(line)

    def cases(self, done: int, planned: int) -> None:
        self.done.append((done, planned))


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setenv("FLOPWATCH_TEST", str(tmp_path))  # no other test has such an environment


def survey(toy: ToyRepository, **options: Any) -> Survey:  # noqa: ANN401 - those of SurveyOptions
    return run_survey(SurveyOptions(**options), toy.root, store=Store(toy.root.parent / "kept"))


def without_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let whoever starts a worker from now on fail."""

    def refuse(_worker: Worker) -> None:
        pytest.fail("a worker was started")

    monkeypatch.setattr(Worker, "start", refuse)


def test_a_survey_tells_each_kernel_for_each_device_and_the_next_one_knows_it(
    toy: ToyRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = Steps()
    store = Store(toy.root.parent / "kept")
    options = SurveyOptions(devices=("h200", "a100", "h200"))
    cold = run_survey(options, toy.root, observer=steps, store=store)
    assert (cold.base, cold.head, cold.devices, cold.cases) == (None, "working tree", ("h200", "a100"), 2)
    places = [(fact.device, fact.variant.split(":")[0]) for fact in cold.facts]
    assert places == [("a100", "*fp16"), ("a100", "*fp32"), ("h200", "*fp16"), ("h200", "*fp32")]
    assert all(fact.instructions["all"] > 0 and fact.chosen for fact in cold.facts)
    assert (cold.exit_code, cold.recalled) == (0, 0)
    assert steps.lines == ["compiling for h200, a100"]
    assert (steps.done[0], max(steps.done)) == ((0, 4), (4, 4))
    without_workers(monkeypatch)
    toy.edit("@triton.jit", "# a comment moves every line\n\n@triton.jit")
    warm = run_survey(options, toy.root, store=store)
    assert replace(warm, seconds=0.0, recalled=0) == replace(cold, seconds=0.0)
    assert warm.recalled == 4
    selected = survey(toy, select="float32", devices=("a100",))
    assert [fact.variant.split(":")[0] for fact in selected.facts] == ["*fp32"]


def test_a_kernel_that_no_longer_compiles_regresses_and_its_baseline_drifts(toy: ToyRepository) -> None:
    held = toy.root / "facts.json"
    written = survey(toy, baseline=held, write=True)
    assert written.held is not None
    assert (written.exit_code, written.held.written) == (0, True)
    clean = survey(toy, baseline=held)
    assert (clean.exit_code, clean.drifts, clean.recalled) == (0, (), 2)
    assert survey(toy, base="HEAD").exit_code == 0
    base = toy.commit("held")
    toy.edit("mask=mask) * factor", "mask=mask) * facto")
    survey_of_head = survey(toy, base=base)
    assert [change.severity for change in survey_of_head.fact_changes] == [Severity.FAIL] * 2
    assert (survey_of_head.exit_code, survey_of_head.recalled) == (1, 2)
    drifted = survey(toy, baseline=held)
    assert {drift.found for drift in drifted.drifts if drift.fact == "failure"} == {"CompilationError"}
    assert drifted.exit_code == 1
    alone = survey(toy)
    assert (alone.exit_code, len(alone.unlaunchable)) == (1, 2)
    data = json.loads(held.read_text(encoding="utf-8"))
    held.write_text(json.dumps({**data, "triton": "3.5.0"}), encoding="utf-8")
    other = survey(toy, baseline=held)
    assert other.held is not None
    assert other.held.refusal.startswith("it is of triton 3.5.0, and this is triton ")
    assert (other.drifts, other.exit_code) == ((), 3)


def test_what_changes_of_two_kernels_of_one_name_is_told_of_the_right_one_in_every_case(toy: ToyRepository) -> None:
    other = toy.kernel.with_name("other.py")
    other.write_text(toy.kernel.read_text(encoding="utf-8").replace("* factor", "+ factor"), encoding="utf-8")
    toy.edit("    return out", "    from toykernels import other\n\n    return other.scale(out, factor)")
    suite = toy.suite.read_text(encoding="utf-8")
    alone = suite.replace("class Scale", "class Shift").replace("import scale", "import other")
    assert alone.count("scale(x") == 1
    toy.suite.with_name("shift.py").write_text(alone.replace("scale(x", "other.scale(x"), encoding="utf-8")
    base = toy.commit("two kernels")
    text = other.read_text(encoding="utf-8")
    assert text.count("tl.load(x + offsets, mask=mask) + factor") == 1
    twice = "tl.load(x + offsets, mask=mask) + tl.load(x + offsets + n // 2, mask=offsets < n // 2) + factor"
    other.write_text(text.replace("tl.load(x + offsets, mask=mask) + factor", twice), encoding="utf-8")
    found = survey(toy, base=base, select="float32")
    assert [fact.kernel for fact in found.facts] == ["scale_kernel", "scale_kernel (2)"]
    assert {change.kernel for change in found.fact_changes} == {"scale_kernel (2)"}
    assert "requested bytes" in {change.fact for change in found.fact_changes}
    launches = [(launch.case.suite, launch.kernel) for launch in found.launches]
    assert launches == [("Scale", "scale_kernel"), ("Scale", "scale_kernel (2)"), ("Shift", "scale_kernel (2)")]


def test_host_code_that_only_a_gpu_could_run_is_a_gap(toy: ToyRepository) -> None:
    toy.edit("    out = torch.empty_like(x)", "    x.max().item()\n    out = torch.empty_like(x)")
    found = survey(toy, select="float16")
    (gap,) = found.gaps
    assert (gap.side, gap.device, gap.case.id) == ("head", "h200", "Scale[1000000,float16,flopwatch]")
    assert found.exit_code == 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"write": True}, "--write names no file"),
        ({"baseline": "facts.json", "base": "HEAD"}, "a baseline stands for BASE"),
        ({"baseline": "facts.json", "write": True, "select": "float16"}, "a baseline has every case"),
        ({"baseline": "facts.json"}, "there is no baseline"),
        ({"devices": ("h2000",)}, "no device is called 'h2000'"),
    ],
)
def test_options_that_contradict_each_other_are_refused_before_anything_starts(
    options: dict[str, Any], message: str, toy: ToyRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_workers(monkeypatch)
    if "baseline" in options:
        options = {**options, "baseline": toy.root / options["baseline"]}
    with pytest.raises(UsageError, match=message):
        survey(toy, **options)


def test_a_baseline_of_other_configurations_is_refused(toy: ToyRepository, monkeypatch: pytest.MonkeyPatch) -> None:
    without_workers(monkeypatch)
    held = toy.root / "facts.json"
    held.write_text('{"flopwatch_static": 1, "autotune": "all", "devices": ["h200"], "facts": []}')
    with pytest.raises(UsageError, match="holds the facts of --autotune all"):
        survey(toy, baseline=held, autotune=Autotune.FIRST)


def test_no_selected_case_is_undecided(toy: ToyRepository) -> None:
    with pytest.raises(UndecidedError, match="no case matches 'nothing'"):
        survey(toy, select="nothing")


def test_what_is_known_already_is_told_without_torch() -> None:
    code = "import flopwatch.survey.run, flopwatch.report.static, sys; print({'torch', 'triton'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"

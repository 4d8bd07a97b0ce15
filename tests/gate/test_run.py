from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from dataclasses import replace
from datetime import date
from typing import TYPE_CHECKING, Any

import pytest

from flopwatch.errors import FlopwatchError, SuiteError, UndecidedError
from flopwatch.gate import CaseVerdict, GateResult
from flopwatch.gate.conclusions import WatchedConclusion
from flopwatch.gate.run import GateOptions, run_gate
from flopwatch.gate.static import StaticFindings, find_static
from flopwatch.gate.times import Times
from flopwatch.measure.protocol import Op
from flopwatch.model import Case, Choice, Mark, from_json, to_json
from flopwatch.static.comparison import Severity
from flopwatch.stats import SeriesResult
from flopwatch.waivers import WaiverState

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.conftest import ToyRepository

    from flopwatch.gate.sides import Sides


@pytest.fixture(autouse=True)
def _no_gpu(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide a GPU from the workers: these tests are about what the gate finds out without one, but for those marked."""
    if request.node.get_closest_marker("gpu") is None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")


def gate(toy: ToyRepository, **options: Any) -> GateResult:  # noqa: ANN401 - those of GateOptions
    return run_gate(GateOptions(**options), toy.root)


def marks(result: GateResult) -> set[Mark | None]:
    return {verdict.mark for verdict in result.verdicts}


def test_a_comment_changes_nothing(toy: ToyRepository) -> None:
    toy.edit("@triton.jit", "# a comment moves every line\n\n@triton.jit")
    result = gate(toy)
    assert result.head == "working tree"
    assert result.fact_changes == ()
    assert not marks(result) & {Mark.BROKEN, Mark.SLOWER}


def test_a_planted_wrong_result_is_broken(toy: ToyRepository) -> None:
    toy.edit("mask=mask) * factor", "mask=mask) * factor * 1.01")
    toy.commit("faster, somehow")
    result = gate(toy)
    assert marks(result) == {Mark.BROKEN}
    assert result.exit_code == 1
    assert "eps" in result.verdicts[0].reason


def test_a_planted_exception_is_broken_with_its_cause(toy: ToyRepository) -> None:
    toy.edit("    out = torch.empty_like(x)", "    raise ArithmeticError('no scale today')")
    result = gate(toy)
    assert marks(result) == {Mark.BROKEN}
    assert "ArithmeticError: no scale today" in result.verdicts[0].reason


#: What befalls one case of head each: its name, the host's code, and what is kept of it.
WEATHER = {
    "segfaults": ("import ctypes; ctypes.string_at(0)", "WorkerDied: exit status -11 during numbers"),
    "is_killed": ("import os; os.kill(os.getpid(), 9)", "WorkerDied: exit status -9 during numbers"),
    "exits": ("import os; os._exit(7)", "WorkerDied: exit status 7 during numbers"),
    "hangs": ("import time; time.sleep(600)", "TimedOut: no answer to numbers in 8 s"),
    "raises": ("raise ArithmeticError('no scale today')", "ArithmeticError: no scale today"),
    "has_no_memory": ("bytearray(1 << 62)", "MemoryError"),
    "returns_too_few": ("out = out[1:]", "the result has shape (999,), its reference (1000,)"),
    "returns_nan": ("out = out * float('nan')", "NaN or infinity"),
}
#: Both sides run head's suites: what these inputs meet is nobody's fault.
NO_INPUTS = "has_no_inputs"


#: What only a GPU knows, likewise.
GPU_WEATHER = {
    "strays": ("scale_kernel[(1 << 24,)](x, out, 1 << 40, factor, BLOCK=256)", "illegal memory access"),
    "has_no_room": ("torch.empty(1 << 45, device='cuda')", "OutOfMemoryError"),
    "returns_nan": ("out = out * float('nan')", "NaN or infinity"),
    "is_killed": ("import os; os.kill(os.getpid(), 9)", "WorkerDied: exit status -9 during"),
}


def let_it_rain(toy: ToyRepository, weather: Mapping[str, tuple[str, str]]) -> None:
    """Declare a case for each kind of weather, which befalls it on head, and two that are fair."""
    faults = "".join(f"    if BAD and weather == {name!r}:\n        {fault}\n" for name, (fault, _) in weather.items())
    toy.edit("def scale(x, factor):", "BAD = False\n\n\ndef scale(x, factor, weather):")
    toy.edit("    return out", f"{faults}    return out")
    text = toy.suite.read_text(encoding="utf-8")
    for old, new in {
        '["float16", "float32"]': repr(["fair", *weather, NO_INPUTS, "fair_too"]),
        '"dtype")': '"weather")',
        "n, dtype": "n, weather",
        '    providers = {"torch": torch.mul}\n': "",
        "        generator =": f"        if weather == {NO_INPUTS!r}:\n            raise LookupError('it is gone')\n"
        "        generator =",
        "getattr(torch, dtype)), 3.0": "torch.float32), 3.0, weather",
        "x, factor": "x, factor, weather",
        "getattr(torch, dtype).itemsize": "4",
    }.items():
        assert old in text
        text = text.replace(old, new)
    toy.suite.write_text(text, encoding="utf-8")
    toy.commit("fair")
    toy.edit("BAD = False", "BAD = True")


def test_bad_weather_is_broken_with_its_cause_no_other_case_is_lost_and_none_is_slower(
    toy: ToyRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    let_it_rain(toy, WEATHER)
    for op in (Op.FACTS, Op.KEEP, Op.NUMBERS):
        monkeypatch.setattr(op, "deadline_s", 8.0)

    result = gate(toy)
    found = {verdict.case.values[1]: verdict for verdict in result.verdicts}
    no_inputs = found.pop(NO_INPUTS)

    assert {name for name, verdict in found.items() if verdict.mark is Mark.BROKEN} == set(WEATHER)
    assert [name for name, (_, cause) in WEATHER.items() if cause not in found[name].reason] == []
    assert no_inputs.mark is None
    assert "LookupError: it is gone" in no_inputs.reason
    for fair in (found["fair"], found["fair_too"]):
        assert (fair.reason, fair.head.numbers) == ("", fair.base.numbers)
        assert fair.head.numbers is not None
    assert Mark.SLOWER not in marks(result)
    assert result.exit_code == 1


def test_a_budget_for_times_that_are_not_measured_is_told_of(toy: ToyRepository) -> None:
    toy.edit("@triton.jit", "# a comment moves every line\n\n@triton.jit")
    assert [note for note in gate(toy, budget_s=300.0).notes if "budget" in note] == [
        "without a GPU no time is measured: a budget or pins change nothing"
    ]
    assert [note for note in gate(toy).notes if "budget" in note] == []


def test_pins_of_cases_that_no_suite_declares_are_told_of(toy: ToyRepository) -> None:
    pins: dict[str, tuple[Choice, ...]] = dict.fromkeys(("Scale[1000000,float16,flopwatch]", "Gone[1,flopwatch]"), ())
    result = gate(toy, base="HEAD", pins=pins)
    assert "pinned to no effect: the suites do not declare Gone[1,flopwatch]" in result.notes


def waive_scale(toy: ToyRepository) -> None:
    with (toy.root / "pyproject.toml").open("a", encoding="utf-8") as project:
        project.write(
            '\n[[tool.flopwatch.waivers]]\ncase = "Scale[*"\nreason = "int64"\nowner = "Ada"\n'
            "until = 2026-11-30\nlimit_percent = 5.0\n"
        )


def test_a_waiver_that_has_expired_fails_the_gate_where_no_time_is_judged_too(toy: ToyRepository) -> None:
    waive_scale(toy)
    in_time, late = (gate(toy, base="HEAD", today=date(2026, month, 30)) for month in (11, 12))

    assert (in_time.exit_code, in_time.waivers) == (0, ())
    assert late.exit_code == 2
    assert [use.text.partition(":")[0] for use in late.waivers] == ["expired 30 days ago"]


def test_a_kernel_that_no_longer_compiles_fails_the_gate(toy: ToyRepository) -> None:
    # A loop that changes the type of what it carries: the interpreter runs it, the compiler refuses it.
    toy.edit(
        "    tl.store(out + offsets, tl.load(x + offsets, mask=mask) * factor, mask=mask)",
        "    value = 0\n    for _ in range(tl.num_programs(0) * 0, 1):\n"
        "        value = value + tl.load(x + offsets, mask=mask) * factor\n"
        "    tl.store(out + offsets, value, mask=mask)",
    )
    result = gate(toy)
    assert Mark.BROKEN not in marks(result)  # the numbers, which the interpreter computes, are right
    assert [change.severity for change in result.fact_changes] == [Severity.FAIL] * len(result.fact_changes)
    assert result.exit_code == 1


def test_host_code_that_only_a_gpu_could_run_is_undecided(toy: ToyRepository) -> None:
    toy.edit("    out = torch.empty_like(x)", "    x.max().item()\n    out = torch.empty_like(x)")
    result = gate(toy)
    assert len(result.newly_uncovered) == 2
    assert result.exit_code == 3


def test_a_comment_on_host_code_that_only_a_gpu_could_run_is_no_news(toy: ToyRepository) -> None:
    toy.edit("    out = torch.empty_like(x)", "    x.max().item()\n    out = torch.empty_like(x)")
    toy.commit("needs values")
    toy.edit("    x.max().item()", "    x.max().item()  # needs values")
    result = gate(toy)
    assert {entry.side for entry in result.uncovered} == {"base", "head"}
    assert (result.newly_uncovered, result.exit_code) == ((), 0)


def test_a_suite_may_ask_for_exact_results_and_what_is_wrong_on_both_sides_is_said_not_accused(
    toy: ToyRepository,
) -> None:
    text = toy.suite.read_text(encoding="utf-8").replace("    small =", "    max_diff_eps = 0.0\n    small =")
    toy.suite.write_text(text, encoding="utf-8")
    toy.commit("exact, please")
    result = gate(toy)
    assert marks(result) == {None}
    assert all("wrong on both sides" in verdict.reason for verdict in result.verdicts)


def test_a_changed_launch_is_shown_in_the_facts(toy: ToyRepository) -> None:
    toy.edit("num_warps=4", "num_warps=8")
    result = gate(toy)
    assert any("num_warps=8" in change.text for change in result.fact_changes)
    of_cases = {
        entry.case.values[1]: (result.base_facts[entry.base[0]], result.facts[entry.head[0]])
        for entry in result.kernels
    }
    assert {
        dtype: (base.num_warps, head.num_warps, base.variant[:5], head.variant[:5])
        for dtype, (base, head) in of_cases.items()
    } == {"float16": (4, 8, "*fp16", "*fp16"), "float32": (4, 8, "*fp32", "*fp32")}


def test_a_suite_that_only_head_can_run_is_new_not_broken(toy: ToyRepository) -> None:
    toy.git("mv", "src/toykernels", "src/renamed")
    toy.git("commit", "-qm", "away")
    toy.git("mv", "src/renamed", "src/toykernels")
    toy.commit("and back")
    result = gate(toy)
    assert not marks(result) & {Mark.BROKEN, Mark.SLOWER}
    assert {verdict.reason for verdict in result.verdicts} == {"not compared: new, base does not have it"}
    assert result.exit_code == 3  # nothing could be compared


def test_a_base_that_does_not_import_is_told_with_its_cause_and_accuses_nobody(toy: ToyRepository) -> None:
    toy.edit("import torch\n", "import torch\nraise OSError('no licence')\n")
    toy.commit("cannot be imported")
    toy.edit("raise OSError('no licence')\n", "")
    result = gate(toy)
    assert marks(result) == {Mark.UNSURE}
    assert all("OSError: no licence" in verdict.reason for verdict in result.verdicts)
    assert result.exit_code == 3


def test_a_case_that_head_s_suites_no_longer_declare_is_named(toy: ToyRepository) -> None:
    toy.suite.write_text(toy.suite.read_text(encoding="utf-8").replace('["float16", "float32"]', '["float32"]'))
    result = gate(toy)
    assert [verdict.case.values[1] for verdict in result.verdicts] == ["float32"]
    assert result.notes == ("no longer declared by the suites, so not compared: Scale[1000000,float16,flopwatch]",)
    assert gate(toy, select="float32").notes == ()


def test_a_suite_that_is_gone_is_missed_though_it_does_not_import_on_base(toy: ToyRepository) -> None:
    other = toy.suite.with_name("other.py")
    other.write_text("import no_such_module\n", encoding="utf-8")
    toy.commit("a suite that nobody can import")
    other.unlink()
    (note,) = gate(toy).notes
    assert note.startswith("whether head's suites lack a case of base's benchmarks.other is not known: ")
    assert "No module named 'no_such_module'" in note


def test_commits_can_be_named(toy: ToyRepository) -> None:
    toy.edit("mask=mask) * factor", "mask=mask) * factor * 1.01")
    toy.commit("wrong")
    toy.edit("mask=mask) * factor * 1.01", "mask=mask) * factor")
    toy.commit("right again")
    toy.kernel.unlink()  # the working tree is not looked at
    assert gate(toy, base="HEAD~1", head="HEAD").exit_code == 0
    assert toy.git("worktree", "list").count("\n") == 1


def test_a_selection_runs_what_it_names(toy: ToyRepository) -> None:
    toy.commit("empty")
    by_small_name = gate(toy, select="SCALE[1000,float32,flopwatch]")  # as the report names it without a GPU
    assert [verdict.case.values[1] for verdict in by_small_name.verdicts] == ["float32"]
    by_both_names = gate(toy, select="Matmul or [1000,FLOAT32 or 1000000,float16")
    assert [verdict.case.values[1] for verdict in by_both_names.verdicts] == ["float16", "float32"]
    with pytest.raises(UndecidedError, match="no case matches 'Matmul'"):
        gate(toy, select="Matmul")


def test_a_suite_that_head_cannot_import_is_an_error_that_names_it(toy: ToyRepository) -> None:
    toy.commit("empty")
    toy.suite.write_text("import no_such_module\n", encoding="utf-8")
    with pytest.raises(SuiteError, match="no_such_module"):
        gate(toy)


def test_an_unknown_device_is_an_error_that_lists_the_known(toy: ToyRepository) -> None:
    toy.commit("empty")
    with pytest.raises(FlopwatchError, match="h200"):
        gate(toy, device="voodoo2")


def test_the_command_line_prints_tables_and_writes_json(toy: ToyRepository) -> None:
    settings = toy.root / "pyproject.toml"
    text = settings.read_text(encoding="utf-8").replace(
        "[tool.flopwatch]", "[tool.flopwatch]\nsame_within_percent = 2.0"
    )
    settings.write_text(text, encoding="utf-8")
    toy.commit("empty")
    done = subprocess.run(
        [sys.executable, "-m", "flopwatch", "gate", "-C", str(toy.root), "--json", str(toy.root / "gate.json")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "scale_kernel" in done.stdout
    assert "Scale[1000" in done.stdout
    written = (toy.root / "gate.json").read_bytes()
    result = from_json(written, GateResult)
    assert (result.schema_version, result.head) == (1, "working tree")
    assert (json.loads(written)["exit_code"], result.same_within_percent) == (0, 2.0)
    assert set(result.versions) >= {"python", "torch", "triton", "ptxas"}
    assert json.loads(to_json(result)) == json.loads(written)


def test_an_interrupted_gate_leaves_nothing_behind(toy: ToyRepository) -> None:
    toy.edit("    out = torch.empty_like(x)", "    import time; time.sleep(600)")
    toy.commit("slow")
    command = [sys.executable, "-m", "flopwatch", "gate", "HEAD", "HEAD", "-C", str(toy.root)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as process:
        assert process.stderr is not None
        while "compiling" not in process.stderr.readline():
            assert process.poll() is None
        time.sleep(1)
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 3
    assert toy.git("worktree", "list").count("\n") == 1


@pytest.mark.gpu
def test_on_a_gpu_clean_code_is_not_accused_and_a_planted_slowdown_is(toy: ToyRepository) -> None:
    toy.suite.write_text(
        toy.suite.read_text(encoding="utf-8").replace('["1000000"]', '["1000000", "100000000"]'), encoding="utf-8"
    )
    toy.commit("larger")
    toy.edit("    out = torch.empty_like(x)", "    out = torch.empty_like(x, requires_grad=False)")
    clean = gate(toy, base="HEAD")
    assert clean.unfit == ""
    assert marks(clean) <= {Mark.SAME, Mark.UNSURE}
    assert all(len(verdict.base.bits) == 3 and verdict.base.bits == verdict.head.bits for verdict in clean.verdicts)
    assert all(log.log_ratios for log in clean.pairs)
    toy.edit(
        "    scale_kernel[grid]", "    scale_kernel[grid](x, out, x.numel(), 2.0, BLOCK=256)\n    scale_kernel[grid]"
    )
    slower = gate(toy, base="HEAD")
    assert marks(slower) == {Mark.SLOWER}
    assert slower.exit_code == 1


@pytest.mark.gpu
def test_on_a_gpu_bad_weather_is_broken_with_its_cause_and_the_other_cases_are_measured(toy: ToyRepository) -> None:
    let_it_rain(toy, GPU_WEATHER)

    result = gate(toy)
    found = {verdict.case.values[1]: verdict for verdict in result.verdicts}

    assert result.unfit == ""
    assert {name for name, verdict in found.items() if verdict.mark is Mark.BROKEN} == set(GPU_WEATHER)
    assert [name for name, (_, cause) in GPU_WEATHER.items() if cause not in found[name].reason] == []
    assert "LookupError: it is gone" in found[NO_INPUTS].reason
    assert {found[name].mark for name in ("fair", "fair_too")} <= {Mark.SAME, Mark.UNSURE}
    assert all(found[name].time is not None for name in ("fair", "fair_too"))
    assert result.exit_code == 1


@pytest.mark.gpu
def test_on_a_gpu_the_same_code_is_not_measured(toy: ToyRepository) -> None:
    toy.edit("@triton.jit", "# a comment moves every line\n\n@triton.jit")
    result = gate(toy)
    assert (marks(result), result.pairs, result.exit_code) == ({Mark.SAME}, (), 0)
    assert all(verdict.identical for verdict in result.verdicts)


def on_a_gpu(sides: Sides, select: str) -> StaticFindings:
    """Find out what a machine with a GPU would, but for the GPU."""
    findings = find_static(sides, select)
    return replace(findings, hello=replace(findings.hello, gpu="NVIDIA H200", gpu_uuid="GPU-0"))


def with_conclusion(toy: ToyRepository) -> None:
    project = toy.root / "pyproject.toml"
    claim = '[[tool.flopwatch.conclusions]]\nstudy = "Lengths"\nsays = "short is fast"\n'
    project.write_text(project.read_text(encoding="utf-8") + claim, encoding="utf-8")


def test_without_a_gpu_no_conclusion_is_watched(toy: ToyRepository) -> None:
    with_conclusion(toy)
    result = run_gate(GateOptions(), toy.root, conclude=lambda *_: pytest.fail("there is nothing to measure with"))
    assert result.conclusions == ()


@pytest.mark.parametrize(("unfit", "states"), [("", [WaiverState.WAIVED]), ("another process", [])])
def test_on_an_unfit_machine_no_slowdown_is_waived(
    unfit: str, states: list[WaiverState], toy: ToyRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    waive_scale(toy)
    slower = SeriesResult(
        mark=Mark.SLOWER,
        estimate=0.02,
        lower=0.015,
        upper=0.025,
        pairs=8,
        deviation=0.001,
        detectable=0.007,
        inside_margin=False,
        p_slower=0.0001,
        p_faster=1.0,
        confirm_p=0.0001,
    )
    case = Case(suite="Scale", values=("1000000", "float16", "flopwatch"))
    times = Times(
        verdicts=(CaseVerdict(case=case, mark=Mark.UNSURE if unfit else Mark.SLOWER, time=slower),), unfit=unfit
    )
    monkeypatch.setattr("flopwatch.gate.run.find_static", on_a_gpu)
    monkeypatch.setattr("flopwatch.gate.run._on_gpu", lambda *_: (times, None))
    result = gate(toy, select="float16", today=date(2026, 11, 30))
    assert [use.state for use in result.waivers] == states


@pytest.mark.parametrize(
    ("select", "times", "is_watched"),
    [
        ("", {}, True),
        ("Scale", {}, False),
        ("", {"unfit": "another process"}, False),
        ("", {"interrupted": True}, False),
    ],
)
def test_conclusions_are_watched_where_times_were_judged_and_all_cases_selected(
    select: str, times: dict[str, Any], *, is_watched: bool, toy: ToyRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = (WatchedConclusion(study="Lengths", says="short is fast", reason="of this test"),)
    with_conclusion(toy)
    monkeypatch.setattr("flopwatch.gate.run.find_static", on_a_gpu)
    monkeypatch.setattr("flopwatch.gate.run._on_gpu", lambda *_: (Times(verdicts=(), **times), None))
    result = run_gate(GateOptions(select=select), toy.root, conclude=lambda *_: found)
    assert result.conclusions == (found if is_watched else ())

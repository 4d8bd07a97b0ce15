from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from flopwatch.errors import ExitCode, MachineError, UsageError
from flopwatch.gate.pairs import Observer
from flopwatch.model import Case
from flopwatch.sanitize import CaseReport, Finding, Kind, Tool
from flopwatch.sanitize.run import SanitizeOptions, _placed, choose_tools, run_sanitize
from flopwatch.sanitize.tools import NVIDIA

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import ToyRepository


#: Takes the process along in one of the cases.
DIES = """\
    if x.dtype == torch.float16:
        __import__("os")._exit(7)
    out = torch.empty_like(x)"""


def words(report: CaseReport) -> tuple[str, str] | None:
    return None if report.failure is None else (report.failure.kind, report.failure.message)


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    def present() -> dict[str, str]:
        raise MachineError("no driver")

    monkeypatch.setattr("flopwatch.sanitize.run.present_gpus", present)


@pytest.fixture
def a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flopwatch.sanitize.run.present_gpus", lambda: {"GPU-1": "NVIDIA H200"})


def on_cpu(toy: ToyRepository, *select: str) -> tuple[int, dict[str, CaseReport]]:
    result = run_sanitize(SanitizeOptions(select=select, device="cpu"), toy.root)
    return result.exit_code, {report.case.values[1]: report for report in result.reports}


def test_a_clean_kernel_is_clean_and_cases_run_at_their_small_sizes(toy: ToyRepository) -> None:
    code, reports = on_cpu(toy, "float32")

    assert code == ExitCode.OK
    assert [report.case.id for report in reports.values()] == ["Scale[1000,float32,flopwatch]"]
    assert [report.kernels for report in reports.values()] == [("scale_kernel",)]


def test_at_full_size_a_case_is_the_one_that_the_suite_declares(toy: ToyRepository) -> None:
    result = run_sanitize(SanitizeOptions(select=("float32",), device="cpu", full=True), toy.root)

    assert result.full
    assert [report.case.id for report in result.reports] == ["Scale[1000000,float32,flopwatch]"]
    assert (result.exit_code, [report.kernels for report in result.reports]) == (ExitCode.OK, [("scale_kernel",)])


def test_a_step_says_who_looks_at_how_many_cases(toy: ToyRepository) -> None:
    steps: list[str] = []

    class Steps(Observer):
        def step(self, line: str) -> None:
            steps.append(line)

    run_sanitize(SanitizeOptions(select=("float32",), device="cpu"), toy.root, observer=Steps())

    assert steps[-1] == "interpreter: 1 case of small size"


def test_faults_and_failures_are_results_and_the_next_case_runs(toy: ToyRepository) -> None:
    toy.edit("tl.load(x + offsets, mask=mask)", "tl.load(x + offsets + 1, mask=mask)")
    toy.edit("    out = torch.empty_like(x)", DIES)
    toy.edit("    return out", "    raise RuntimeError('no scale today')")

    code, reports = on_cpu(toy)

    assert code == ExitCode.REGRESSED
    assert words(reports["float16"]) == ("WorkerDied", "exit status 7")
    assert words(reports["float32"]) == ("RuntimeError", "no scale today")
    (finding,) = reports["float32"].findings
    assert (finding.kind, finding.source) == (Kind.OUT_OF_BOUNDS, "src/toykernels/__init__.py:12")


@pytest.mark.usefixtures("no_gpu")
def test_without_a_gpu_the_interpreter_looks_and_what_needs_one_is_refused() -> None:
    assert choose_tools(SanitizeOptions()) == (Tool.INTERPRETER,)
    assert choose_tools(SanitizeOptions(tools=(Tool.TRITON_VIZ, Tool.TRITON_VIZ))) == (Tool.TRITON_VIZ,)
    for options in (SanitizeOptions(device="gpu"), SanitizeOptions(tools=(Tool.INTERPRETER, Tool.RACECHECK))):
        with pytest.raises(MachineError, match="no NVIDIA GPU"):
            choose_tools(options)


@pytest.mark.usefixtures("no_gpu", "asan")
def test_what_is_installed_of_llvms_looks_beside_the_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    assert choose_tools(SanitizeOptions()) == (Tool.INTERPRETER, Tool.ASAN)
    assert choose_tools(SanitizeOptions(device="cpu")) == (Tool.INTERPRETER,)
    monkeypatch.setattr("flopwatch.sanitize.llvm.find_triton_san", lambda: "triton-san")
    on_the_cpu = (Tool.INTERPRETER, Tool.TRITON_SAN, Tool.TRITON_SAN_RACES)
    assert choose_tools(SanitizeOptions(device="cpu")) == on_the_cpu
    assert choose_tools(SanitizeOptions(tools=(Tool.INTERPRETER,))) == (Tool.INTERPRETER,)


@pytest.mark.usefixtures("a_gpu")
def test_on_a_gpu_all_of_compute_sanitizer_looks() -> None:
    assert choose_tools(SanitizeOptions()) == NVIDIA
    assert choose_tools(SanitizeOptions(device="gpu")) == NVIDIA
    assert choose_tools(SanitizeOptions(device="cpu")) == (Tool.INTERPRETER,)


@pytest.mark.usefixtures("a_gpu")
@pytest.mark.parametrize(("device", "tool"), [("cpu", Tool.MEMCHECK), ("gpu", Tool.INTERPRETER)])
def test_a_tool_cannot_look_where_its_kernels_do_not_run(device: str, tool: Tool) -> None:
    with pytest.raises(UsageError, match=tool.value):
        choose_tools(SanitizeOptions(device=device, tools=(tool,)))


def test_what_is_told_names_files_from_the_top_of_the_repository(tmp_path: Path) -> None:
    elsewhere = "/usr/lib/torch/fill.cu:7"
    finding = Finding(
        kind=Kind.RACE,
        what=f"a read at add+0x10 in {tmp_path}/src/add.py:12; a write at {tmp_path}/src/add.py:19; {elsewhere}",
        file=f"{tmp_path}/src/add.py",
        line=12,
    )
    report = CaseReport(case=Case(suite="Add", values=("1",)), tool=Tool.RACECHECK, findings=(finding,))

    (placed,) = _placed(report, tmp_path).findings

    assert placed.file == "src/add.py"
    assert placed.what == f"a read at add+0x10 in src/add.py:12; a write at src/add.py:19; {elsewhere}"

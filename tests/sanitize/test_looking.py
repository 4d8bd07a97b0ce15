from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.sanitize.test_llvm import ON_A_GPU, OVERFLOW

from flopwatch.errors import MachineError
from flopwatch.gate.pairs import Observer
from flopwatch.measure.client import Code
from flopwatch.model import Case, from_json, to_json
from flopwatch.sanitize import CaseReport, Kind, Tool
from flopwatch.sanitize.compute_sanitizer import PRINT_LIMIT
from flopwatch.sanitize.job import Job
from flopwatch.sanitize.looking import Looking, Ran, _output_of

if TYPE_CHECKING:
    from collections.abc import Sequence

FAULTS = Path(__file__).parents[2] / "evidence" / "faults"
CASES = tuple(Case(suite=name, values=("1000", "flopwatch")) for name in ("Sound", "Load", "Store"))
HEAD, END = "========= COMPUTE-SANITIZER\n", "========= ERROR SUMMARY: 0 errors\n"
FAULT = "========= Invalid __global__ read of size 4 bytes\n=========     at load_kernel+0x90 in /x/kernels.py:23\n"


def test_a_process_that_does_not_get_ready_is_tried_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = []

    def run(arguments: Sequence[str], _environment: object) -> tuple[int, str]:
        runs.append(arguments)
        return 1, "Traceback ...\nModuleNotFoundError: No module named 'triton_viz'\n"

    monkeypatch.setattr("flopwatch.sanitize.looking._output_of", run)
    reports = Looking(Tool.TRITON_VIZ, Code(benchmarks=FAULTS), tmp_path).at(CASES, Observer())

    assert len(runs) == 1
    assert {report.failure.message for report in reports if report.failure is not None} == {
        "ModuleNotFoundError: No module named 'triton_viz'"
    }
    assert [report.case for report in reports if report.failure is not None] == list(CASES)


class Worker:
    """Stands in for the process: what each in turn leaves in OUT, and its exit status."""

    def __init__(self, *turns: tuple[int | None, bytes]) -> None:
        self.turns = list(turns)
        self.jobs: list[list[str]] = []

    def __call__(self, arguments: Sequence[str], _environment: object) -> tuple[int | None, str]:
        job, out = map(Path, arguments[-2:])
        self.jobs.append([case.suite for case in from_json(job.read_bytes(), Job).cases])
        returned, text = self.turns.pop(0)
        out.write_bytes(text)
        return returned, ""


def line(case: Case) -> bytes:
    return to_json(CaseReport(case=case, tool=Tool.INTERPRETER)) + b"\n"


def told(worker: Worker, folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[str | None]:
    monkeypatch.setattr("flopwatch.sanitize.looking._output_of", worker)
    reports = Looking(Tool.INTERPRETER, Code(benchmarks=FAULTS), folder).at(CASES, Observer())
    assert [report.case for report in reports] == list(CASES)
    return [None if report.failure is None else report.failure.kind for report in reports]


def test_time_that_other_cases_took_is_not_the_fault_of_the_one_that_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second, third = map(line, CASES)
    together = Worker((None, first), (0, second + third))
    alone = Worker((None, first), (None, b""), (0, third))

    assert told(together, tmp_path, monkeypatch) == [None, None, None]
    assert together.jobs == [["Sound", "Load", "Store"], ["Load", "Store"]]
    assert told(alone, tmp_path, monkeypatch) == [None, "TimedOut", None]


def test_a_report_that_breaks_off_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second, third = map(line, CASES)

    assert told(Worker((1, first + second[:20]), (0, third)), tmp_path, monkeypatch) == [None, "WorkerDied", None]


def test_a_late_process_takes_what_it_started_along(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flopwatch.sanitize.looking.LONGEST_SECONDS", 0.5)
    marker = tmp_path / "alive"
    script = f"(sleep 1.5; touch {marker}) & sleep 60"

    assert _output_of(["/bin/sh", "-c", script], {}) == (None, "")
    time.sleep(2.0)
    assert not marker.exists()


class Sanitizer:
    """Stands in for compute-sanitizer: a program that writes a log and what the worker would.

    Attributes:
        logs: for each suite, what the log says of it.
        runs: the suites of each process.
    """

    def __init__(self, folder: Path) -> None:
        self.logs = {"Load": FAULT}
        self.runs: list[list[str]] = []
        self.end = END
        self.folder = folder

    def run(self, looking: Looking, cases: Sequence[Case], prefix: Sequence[str]) -> Ran:
        """Take the place of `Looking._run`."""
        self.runs.append([case.suite for case in cases])
        log = Path(prefix[prefix.index("--log-file") + 1])
        log.write_text(HEAD + "".join(self.logs.get(case.suite, "") for case in cases) + self.end, encoding="utf-8")
        kernels = {"Load": ("load_kernel",)}
        return Ran(
            reports=[
                CaseReport(case=case, tool=looking.tool, kernels=kernels.get(case.suite, ("sound_kernel",)))
                for case in cases
            ]
        )


@pytest.fixture
def sanitizer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sanitizer:
    stand_in = Sanitizer(tmp_path)
    monkeypatch.setattr("flopwatch.sanitize.looking.find_compute_sanitizer", lambda: "compute-sanitizer")

    def run(looking: Looking, cases: Sequence[Case], prefix: Sequence[str]) -> Ran:
        return stand_in.run(looking, cases, prefix)

    monkeypatch.setattr(Looking, "_run", run)
    return stand_in


def looked(sanitizer: Sanitizer) -> dict[str, CaseReport]:
    looking = Looking(Tool.MEMCHECK, Code(benchmarks=FAULTS), sanitizer.folder)
    return {report.case.suite: report for report in looking.at(CASES, Observer())}


def test_cases_that_are_clean_together_are_not_run_apart(sanitizer: Sanitizer) -> None:
    sanitizer.logs = {}

    assert [report.findings for report in looked(sanitizer).values()] == [(), (), ()]
    assert sanitizer.runs == [["Sound", "Load", "Store"]]


def test_a_fault_in_the_log_is_that_of_the_case_that_shows_it_alone(sanitizer: Sanitizer) -> None:
    reports = looked(sanitizer)

    assert sanitizer.runs == [["Sound", "Load", "Store"], ["Sound"], ["Load"], ["Store"]]
    assert {name: len(report.findings) for name, report in reports.items()} == {"Sound": 0, "Load": 1, "Store": 0}
    assert reports["Load"].findings[0].own


def test_what_fails_nothing_is_told_of_the_case_that_launches_the_kernel(sanitizer: Sanitizer, tmp_path: Path) -> None:
    source = tmp_path / "kernels.py"
    source.write_text("def load_kernel(\n", encoding="utf-8")
    race = f"========= Error: Race reported between Write access at load_kernel+0x90 in {source}:1\n"
    torchs = FAULT.replace("load_kernel", "at::native::fill")
    sanitizer.logs = {"Load": race + torchs}

    reports = looked(sanitizer)

    assert sanitizer.runs == [["Sound", "Load", "Store"]]
    assert [[finding.launched for finding in report.findings] for report in reports.values()] == [
        ["at::native::fill"],
        ["load_kernel"],
        [],
    ]
    assert not any(finding.own for report in reports.values() for finding in report.findings)


def test_a_log_that_breaks_off_is_not_clean(sanitizer: Sanitizer) -> None:
    sanitizer.end, sanitizer.logs = "", {}

    failures = [report.failure for report in looked(sanitizer).values()]

    assert [failure.kind for failure in failures if failure is not None] == ["ToolFailed"] * 3
    assert len(sanitizer.runs) == 4, "together, and each by itself"


def test_a_log_that_is_cut_may_hide_a_fault_behind_what_others_do(sanitizer: Sanitizer) -> None:
    sanitizer.logs = {"Load": FAULT.replace("load_kernel", "at::native::fill") * PRINT_LIMIT}
    looked(sanitizer)

    assert len(sanitizer.runs) == 4


def test_a_log_that_is_cut_says_so(sanitizer: Sanitizer) -> None:
    sanitizer.logs = {"Load": FAULT * PRINT_LIMIT}

    assert looked(sanitizer)["Load"].notes == (f"more faults than the {PRINT_LIMIT:,} that are printed",)


#: What `build.sh` makes of triton-san/template/triton-san.in, as far as it matters here: no interpreter in its first
#: line, and arrays, which only bash has.
DRIVER = """\
# Executes a triton program with triton-san

#!/bin/bash
set -e
sanitizer_type=$1
shift 1
env_args=(TRITON_SHARED_SANITIZER_TYPE="$sanitizer_type" PYTHONPATH="{folder}")
env "${{env_args[@]}}" {runs}
"""
#: In its place: a backend that tells that it was asked.
BACKEND = """\
import os, sys, types

class CPUDriver:
    def __getattr__(self, name):
        raise RuntimeError("triton-shared was asked, for " + os.environ["TRITON_SHARED_SANITIZER_TYPE"])

sys.modules["triton.backends.triton_shared.driver"] = types.SimpleNamespace(CPUDriver=CPUDriver)
"""


def look_with_triton_san(tool: Tool, runs: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> CaseReport:
    """Look at a case where TritonSan is planted, whose driver `runs` something."""
    driver = folder / "triton-san"
    driver.write_text(DRIVER.format(folder=folder, runs=runs), encoding="utf-8")
    driver.chmod(0o755)
    (folder / "sitecustomize.py").write_text(BACKEND, encoding="utf-8")
    monkeypatch.setattr("flopwatch.sanitize.llvm.find_triton_san", lambda: str(driver))
    (report,) = Looking(tool, Code(benchmarks=FAULTS), folder).at(CASES[1:2], Observer())
    return report


def test_what_tritonsan_prints_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "printed").write_text(OVERFLOW, encoding="utf-8")

    report = look_with_triton_san(Tool.TRITON_SAN, f"sh -c 'cat {tmp_path}/printed; exit 1'", tmp_path, monkeypatch)

    assert report.failure is None
    assert [(finding.kind, finding.line) for finding in report.findings] == [(Kind.OUT_OF_BOUNDS, 28)]


@pytest.mark.parametrize(("tool", "asked"), [(Tool.TRITON_SAN, "asan"), (Tool.TRITON_SAN_RACES, "tsan")])
def test_tritonsan_runs_the_case_with_the_backend_for_the_cpu(
    tool: Tool, asked: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = look_with_triton_san(tool, '"$@"', tmp_path, monkeypatch)

    assert report.failure is not None
    assert report.failure.message == f"triton-shared was asked, for {asked}"


@pytest.mark.usefixtures("asan")
def test_addresssanitizer_gets_its_environment_and_its_report_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: dict[str, str] = {}

    def run(_arguments: Sequence[str], environment: dict[str, str]) -> tuple[int, str]:
        given.update(environment)
        return 1, ON_A_GPU

    monkeypatch.setattr("flopwatch.sanitize.looking._output_of", run)
    (report,) = Looking(Tool.ASAN, Code(benchmarks=FAULTS), tmp_path).at(CASES[1:2], Observer())

    assert (given["TRITON_ENABLE_ASAN"], given["HSA_XNACK"]) == ("1", "1")
    assert (given["PYTORCH_NO_HIP_MEMORY_CACHING"], given["ASAN_OPTIONS"]) == ("1", "detect_leaks=0")
    assert report.failure is None
    assert [(finding.kind, finding.block) for finding in report.findings] == [(Kind.OUT_OF_BOUNDS, (10, 0, 0))]


@pytest.mark.gpu
@pytest.mark.parametrize(("suite", "line"), [("Load", "load_kernel"), ("Store", "store_kernel")])
def test_memcheck_finds_a_stray_access_and_its_line(suite: str, line: str, tmp_path: Path) -> None:
    case = Case(suite=suite, values=("1000", "flopwatch"))
    try:
        (report,) = Looking(Tool.MEMCHECK, Code(benchmarks=FAULTS), tmp_path).at([case], Observer())
    except MachineError as error:
        pytest.skip(error.what)

    assert report.failure is None
    (finding,) = [finding for finding in report.findings if finding.own]
    text = (FAULTS / "kernels.py").read_text(encoding="utf-8").splitlines()
    assert (finding.kind, finding.kernel) == (Kind.OUT_OF_BOUNDS, line)
    assert text[finding.line - 1].endswith("FAULT")

from __future__ import annotations

import contextlib
import importlib.metadata
import math
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Self

import pytest
import torch

from flopwatch import doctor
from flopwatch.doctor import DoctorReport, Finding, Severity, TorchAnswer, examine
from flopwatch.errors import FlopwatchError, MachineError
from flopwatch.measure.fitness import Fault
from flopwatch.measure.machine import Gpu, Snapshot, ThrottleReason
from flopwatch.measure.noise import Noise
from flopwatch.model import from_json, to_json
from flopwatch.stats.noise import NoiseFloor

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from tests.conftest import ToyRepository

H200 = Gpu(name="NVIDIA H200", uuid="GPU-1", mig=False, power_limit_w=700.0, default_power_limit_w=700.0)
REST = Snapshot(
    time_s=0.0,
    sm_clock_mhz=1980,
    temperature_c=33,
    margin_c=54,
    free_memory_bytes=140 << 30,
    reasons=(ThrottleReason.IDLE,),
    processes=(),
)
ON_GPU = TorchAnswer(cuda="13.0", uuid="1")


class ToyWatch:
    """Stands in for the driver of one GPU."""

    gpu_record = H200
    rest = REST
    error: MachineError | None = None

    def __init__(self, uuid: str) -> None:
        self.uuid = uuid

    def __enter__(self) -> Self:
        if self.error is not None:
            raise self.error
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def gpu(self) -> Gpu:
        return self.gpu_record

    def snapshot(self) -> Snapshot:
        return self.rest


@pytest.fixture
def plug_in(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Return a function that puts a GPU behind torch and the driver."""

    def plug_in(gpu: Gpu = H200, snapshot: Snapshot = REST, error: MachineError | None = None) -> None:
        watch = type("Watch", (ToyWatch,), {"gpu_record": gpu, "rest": snapshot, "error": error})
        monkeypatch.setattr(doctor, "Watch", watch)
        monkeypatch.setattr(doctor, "ask_torch", lambda: ON_GPU)

    return plug_in


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent() -> dict[str, str]:
        raise MachineError("no NVIDIA driver answers", why="NVML says: NVML Shared Library Not Found")

    monkeypatch.setattr(doctor, "present_gpus", absent)
    monkeypatch.setattr(doctor, "ask_torch", TorchAnswer)


@pytest.fixture
def noise_is(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[float]]:
    """Return a function that says what measuring the noise floor will find, and returns the limits asked for."""

    def noise_is(found: Noise | FlopwatchError) -> list[float]:
        limits = []

        def measure_noise(_worker: object, *, meter: object, limit_s: float) -> Noise:
            assert isinstance(meter, ToyWatch)
            limits.append(limit_s)
            if isinstance(found, FlopwatchError):
                raise found
            return found

        monkeypatch.setattr(doctor, "twins", contextlib.nullcontext)
        monkeypatch.setattr(doctor, "measure_noise", measure_noise)
        return limits

    return noise_is


def floor(
    case: str = "Add[1]", deviation: float = 0.001, seconds: float = 5e-6, detectable: float = 0.0063, pairs: int = 5
) -> NoiseFloor:
    return NoiseFloor(case=case, deviation=deviation, seconds=seconds, detectable=detectable, pairs=pairs)


def of(severity: Severity, findings: Sequence[Finding]) -> list[str]:
    return [finding.what for finding in findings if finding.severity is severity]


def only(severity: Severity, findings: Sequence[Finding]) -> Finding:
    (finding,) = findings
    assert finding.severity is severity
    return finding


def test_an_idle_gpu_and_a_sound_repository_pass(toy: ToyRepository, plug_in: Callable[..., None]) -> None:
    plug_in()
    toy.commit("another")
    report = examine(toy.root)

    assert of(Severity.FAIL, report.findings) == []
    assert "NVIDIA H200 is fit to measure, 33 degrees C" in of(Severity.OK, report.findings)
    assert "[tool.flopwatch]: toykernels; suites in benchmarks" in of(Severity.OK, report.findings)
    assert report.machine.gpu == H200
    assert report.machine.versions["cuda"] == "13.0"
    assert report.snapshot == REST
    assert report.exit_code == 0


@pytest.mark.usefixtures("no_gpu")
def test_no_gpu_is_a_warning_because_the_static_gate_needs_none(toy: ToyRepository) -> None:
    report = examine(toy.root)

    assert "no GPU: the static gate and small numbers only" in of(Severity.WARN, report.findings)
    assert (report.machine.gpu, report.snapshot, report.exit_code) == (None, None, 0)


def test_a_busy_gpu_fails(toy: ToyRepository, plug_in: Callable[..., None]) -> None:
    plug_in(snapshot=replace(REST, processes=(99,)))
    report = examine(toy.root)

    assert of(Severity.FAIL, report.findings) == ["NVIDIA H200 is used by another process (99)"]
    assert report.exit_code == 4


def test_a_report_survives_json(toy: ToyRepository, plug_in: Callable[..., None]) -> None:
    plug_in()
    report = replace(examine(toy.root), noise=(floor(),))

    assert from_json(to_json(report), DoctorReport) == report


def test_a_gpu_that_cannot_be_watched_fails(plug_in: Callable[..., None]) -> None:
    plug_in(error=MachineError("no NVIDIA driver answers", why="NVML says: Driver Not Loaded", todo="run nvidia-smi"))
    gpu, snapshot, findings = doctor.check_gpu(ON_GPU)

    assert (gpu, snapshot) == (None, None)
    assert only(Severity.FAIL, findings).why == "NVML says: Driver Not Loaded"


def test_a_gpu_that_hides_its_processes_is_told(plug_in: Callable[..., None]) -> None:
    plug_in(snapshot=replace(REST, processes=None, reasons=None))
    _, _, findings = doctor.check_gpu(ON_GPU)

    assert of(Severity.WARN, findings) == ["the driver does not tell throttling, other processes"]


def test_a_power_limit_below_the_default_is_told(plug_in: Callable[..., None]) -> None:
    plug_in(replace(H200, power_limit_w=500.0))
    _, _, findings = doctor.check_gpu(ON_GPU)

    assert of(Severity.WARN, findings) == ["the power limit is 500 W, 700 W by default"]


@pytest.mark.parametrize(
    ("answer", "visible", "why"),
    [
        (TorchAnswer(), None, "torch is built without CUDA"),
        (TorchAnswer(cuda="13.0"), "", "CUDA_VISIBLE_DEVICES is ''"),
        (TorchAnswer(cuda="13.0"), None, "torch needs CUDA 13.0"),
        (TorchAnswer(failure="OSError: libtorch"), None, "torch cannot be imported"),
    ],
)
def test_a_gpu_that_torch_does_not_use_is_told_with_the_cause(
    answer: TorchAnswer, visible: str | None, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "present_gpus", lambda: {"GPU-1": "NVIDIA H200"})
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    finding = only(Severity.WARN, doctor.check_gpu(answer)[2])

    assert finding.why.startswith("the driver has NVIDIA H200")
    assert why in finding.why


def test_a_driver_without_a_gpu_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "present_gpus", dict)

    assert only(Severity.WARN, doctor.check_gpu(TorchAnswer(cuda="13.0"))[2]).why == "the driver has none"


def test_torch_is_asked_what_it_was_built_with() -> None:
    assert doctor.ask_torch().cuda == torch.version.cuda


def test_a_torch_that_does_not_import_is_a_failure_with_its_last_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_ASK_TORCH", "raise OSError('libcudart.so.13: cannot open')")
    answer = doctor.ask_torch()

    assert answer.failure == "OSError: libcudart.so.13: cannot open"
    assert of(Severity.FAIL, doctor.check_toolchain({"triton": "3.6.0", "ptxas": "12.8"}, answer)) == [
        "torch cannot be imported"
    ]


@pytest.mark.parametrize("program", ["print('no json')", "raise SystemExit(3)"])
def test_a_torch_that_answers_nonsense_is_a_failure_too(program: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_ASK_TORCH", program)

    assert doctor.ask_torch().failure != ""


def test_a_torch_that_hangs_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_ASK_TORCH", "import time; time.sleep(60)")
    monkeypatch.setattr(doctor, "_DEADLINE_S", 0.2)

    assert "timed out" in doctor.ask_torch().failure


def test_the_toolchain_of_this_environment_is_in_order() -> None:
    versions = {"torch": "2.11.0+cu130", "triton": "3.6.0", "ptxas": "12.8.93"}

    assert of(Severity.OK, doctor.check_toolchain(versions, ON_GPU)) == [
        "torch 2.11.0+cu130, CUDA 13.0",
        "triton 3.6.0, ptxas 12.8.93",
    ]


def test_a_triton_outside_the_range_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.metadata, "version", lambda name: {"triton": "3.5.1"}[name])
    findings = doctor.check_toolchain({"torch": "2.9", "triton": "3.5.1", "ptxas": "12.8"}, ON_GPU)

    assert of(Severity.FAIL, findings) == ["Triton 3.5.1 is installed"]


def test_a_missing_ptxas_fails_and_says_where_it_was_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_PTXAS_PATH", "/nowhere/ptxas")
    findings = doctor.check_toolchain({"torch": "2.11.0", "triton": "3.6.0"}, ON_GPU)

    assert [finding.why for finding in findings if finding.severity is Severity.FAIL] == [
        "TRITON_PTXAS_PATH names none"
    ]


def test_a_folder_outside_git_fails(tmp_path: Path) -> None:
    assert only(Severity.FAIL, doctor.check_repository(tmp_path)).what == f"{tmp_path} is in no git repository"


def test_a_missing_git_fails(toy: ToyRepository, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")

    assert only(Severity.FAIL, doctor.check_repository(toy.root)).what == "git is not installed"


def test_a_repository_of_one_commit_has_nothing_to_compare_with(toy: ToyRepository) -> None:
    assert of(Severity.WARN, doctor.check_repository(toy.root))[0].startswith("nothing to compare")


def test_a_wrong_setting_fails(toy: ToyRepository) -> None:
    (toy.root / "pyproject.toml").write_text("[tool.flopwatch]\npackages = []\nspeed = 1\n", encoding="utf-8")
    (what,) = of(Severity.FAIL, doctor.check_repository(toy.root))

    assert what.endswith("has 2 problems")


def test_a_package_that_is_not_where_the_settings_say_fails(toy: ToyRepository) -> None:
    (toy.root / "pyproject.toml").write_text('[tool.flopwatch]\npackages = ["toykernels", "gone.deep"]\n')

    assert of(Severity.FAIL, doctor.check_repository(toy.root)) == ["the package gone.deep is not in src"]


def test_a_single_module_is_a_package_too(toy: ToyRepository) -> None:
    (toy.root / "src" / "single.py").write_text("", encoding="utf-8")
    (toy.root / "pyproject.toml").write_text('[tool.flopwatch]\npackages = ["single"]\n', encoding="utf-8")

    assert of(Severity.FAIL, doctor.check_repository(toy.root)) == []


def test_a_repository_without_suites_fails(toy: ToyRepository) -> None:
    shutil.rmtree(toy.root / "benchmarks")

    assert of(Severity.FAIL, doctor.check_repository(toy.root)) == ["there is no suite in benchmarks"]


def test_asv_is_not_missed_where_no_history_is_kept(tmp_path: Path) -> None:
    assert only(Severity.OK, doctor.check_history(tmp_path)).what.startswith("no asv.conf.json")


@pytest.mark.parametrize(
    ("version", "severity"),
    [
        ("0.6.6", Severity.OK),
        ("0.6.9", Severity.OK),
        ("0.6.5", Severity.WARN),
        ("0.7.0", Severity.WARN),
        ("1.0", Severity.WARN),
    ],
)
def test_asv_is_checked_against_the_supported_range(
    version: str, severity: Severity, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "asv.conf.json").write_text("{}", encoding="utf-8")
    monkeypatch.setattr(importlib.metadata, "version", lambda _: version)

    assert only(severity, doctor.check_history(tmp_path)).what.startswith(f"asv {version}")


def test_a_history_without_asv_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    (tmp_path / "asv.conf.json").write_text("{}", encoding="utf-8")
    monkeypatch.setattr(importlib.metadata, "version", absent)

    assert only(Severity.WARN, doctor.check_history(tmp_path)).what == "asv is not installed"


@pytest.mark.parametrize(
    ("free_bytes", "severity"), [(2 << 30, Severity.OK), ((2 << 30) - 1, Severity.WARN), (60 << 20, Severity.FAIL)]
)
def test_the_room_for_compiled_kernels_is_checked(
    free_bytes: int, severity: Severity, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def disk_usage(path: Path) -> SimpleNamespace:
        asked.append(path)
        return SimpleNamespace(free=free_bytes)

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "not" / "yet"))
    monkeypatch.setattr(shutil, "disk_usage", disk_usage)

    assert "not/yet" in only(severity, doctor.check_cache()).what
    assert asked == [tmp_path]


def test_the_cache_lies_below_tritons_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRITON_CACHE_DIR", raising=False)
    monkeypatch.setenv("TRITON_HOME", str(tmp_path))
    (finding,) = doctor.check_cache()

    assert str(tmp_path / ".triton" / "cache") in finding.what


def test_a_cache_that_is_no_folder_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "file"))

    assert only(Severity.FAIL, doctor.check_cache()).what.endswith("cannot be written")


def host(tmp_path: Path, cores: int, governor: str, monkeypatch: pytest.MonkeyPatch) -> list[Finding]:
    for policy in ("policy0", "policy1") if governor else ():
        (tmp_path / policy).mkdir()
        (tmp_path / policy / "scaling_governor").write_text(f"{governor}\n", encoding="utf-8")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)), raising=False)
    return doctor.check_host(tmp_path)


@pytest.mark.parametrize(
    ("cores", "governor", "ok", "warned"),
    [
        (16, "performance", ["16 processor cores, governor performance"], []),
        (3, "", ["3 processor cores, no frequency control visible"], []),
        (16, "powersave", [], ["the processor's governor is powersave"]),
        (1, "performance", [], ["1 processor core to run on"]),
        (2, "ondemand", [], ["2 processor cores to run on", "the processor's governor is ondemand"]),
    ],
)
def test_the_cores_and_their_governor_are_checked(
    cores: int, governor: str, ok: list[str], warned: list[str], *, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    findings = host(tmp_path, cores, governor, monkeypatch)

    assert (of(Severity.OK, findings), of(Severity.WARN, findings)) == (ok, warned)


NOISE = Noise(
    log_ratios={
        "Scale[1000000,float16,flopwatch]": (0.001, -0.001),
        "Scale[1000000,float32,flopwatch]": (0.002, 0.002),
    },
    seconds={"Scale[1000000,float16,flopwatch]": 5e-6, "Scale[1000000,float32,flopwatch]": 8e-6},
    declared=2,
    import_failures={},
    faults=(),
)
NOTHING = replace(NOISE, log_ratios={}, seconds={})


def test_the_noise_floor_is_summed_up_in_one_line(
    toy: ToyRepository, plug_in: Callable[..., None], noise_is: Callable[..., list[float]]
) -> None:
    plug_in()
    limits = noise_is(NOISE)
    report = examine(toy.root, noise_limit_s=7.0)
    slowdown = math.expm1(report.noise[1].detectable)

    assert limits == [7.0]
    assert 0.007 < slowdown < 0.009
    assert report.findings[-1] == Finding(
        severity=Severity.OK,
        what=f"noise floor: a pair errs by 0.10 to 0.20 %; a gate here finds slowdowns from {slowdown * 100:.2f} %",
    )
    assert [(found.case, found.pairs) for found in report.noise] == [
        ("Scale[1000000,float16,flopwatch]", 2),
        ("Scale[1000000,float32,flopwatch]", 2),
    ]


def test_the_margins_of_the_repository_count(
    toy: ToyRepository, plug_in: Callable[..., None], noise_is: Callable[..., list[float]]
) -> None:
    plug_in()
    noise_is(NOISE)
    with (toy.root / "pyproject.toml").open("a", encoding="utf-8") as settings:
        settings.write('margins = {"Scale[*float16*" = 3.0}\n')
    tolerant, strict = examine(toy.root, noise_limit_s=7.0).noise

    assert strict.detectable < 0.01
    assert tolerant.detectable > 0.0295


def test_the_noise_floor_is_measured_only_where_it_is_asked_for(
    toy: ToyRepository, plug_in: Callable[..., None], noise_is: Callable[..., list[float]]
) -> None:
    plug_in()
    limits = noise_is(NOISE)
    report = examine(toy.root)

    assert (limits, report.noise) == ([], ())
    assert [finding for finding in report.findings if "noise" in finding.what] == []


@pytest.mark.usefixtures("no_gpu")
def test_without_a_gpu_one_line_says_that_the_noise_floor_takes_one(
    toy: ToyRepository, noise_is: Callable[..., list[float]]
) -> None:
    limits = noise_is(NOISE)
    report = examine(toy.root, noise_limit_s=7.0)

    assert (limits, report.exit_code) == ([], 0)
    assert report.findings[-1] == Finding(
        severity=Severity.OK, what="noise floor: not measured, because that takes a GPU"
    )


def test_on_an_unfit_gpu_nothing_is_measured(
    toy: ToyRepository, plug_in: Callable[..., None], noise_is: Callable[..., list[float]]
) -> None:
    plug_in(snapshot=replace(REST, processes=(99,)))
    limits = noise_is(NOISE)
    report = examine(toy.root, noise_limit_s=7.0)

    assert limits == []
    assert "noise floor: not measured, because NVIDIA H200 is used by another process (99)" == report.findings[-1].what


def test_without_suites_nothing_is_measured_and_the_doctor_goes_on(
    toy: ToyRepository, plug_in: Callable[..., None], noise_is: Callable[..., list[float]]
) -> None:
    plug_in()
    limits = noise_is(NOISE)
    shutil.rmtree(toy.root / "benchmarks")
    report = examine(toy.root, noise_limit_s=7.0)

    assert limits == []
    assert report.findings[-1].what == "noise floor: not measured, because there is no suite in benchmarks"


def test_a_worker_that_does_not_start_fails_without_its_traceback(
    toy: ToyRepository, plug_in: Callable[..., None], noise_is: Callable[..., list[float]]
) -> None:
    plug_in()
    noise_is(FlopwatchError("the gpu worker does not start", why="two suites are called Scale", todo="look:\nline 3"))
    report = examine(toy.root, noise_limit_s=7.0)

    assert report.findings[-1] == Finding(
        severity=Severity.FAIL,
        what="noise floor: not measured, because the gpu worker does not start",
        why="two suites are called Scale",
        todo="flopwatch gate shows its traceback",
    )
    assert report.noise == ()


def test_what_kept_the_noise_floor_from_being_measured_is_a_warning() -> None:
    fault = Fault(what="6 of 6 cases of the noise floor fail", why="Add[1]: RuntimeError: no", todo="correct it")

    assert doctor.check_noise(replace(NOTHING, faults=(fault,)), ()) == [
        Finding(severity=Severity.WARN, what=fault.what, why=fault.why, todo=fault.todo)
    ]


def test_a_suite_that_cannot_be_imported_fails_because_a_gate_would_stop() -> None:
    noise = replace(NOTHING, import_failures={"benchmarks.scale": "ModuleNotFoundError: No module named 'gone'"})
    finding = only(Severity.FAIL, doctor.check_noise(noise, ()))

    assert finding.what == "a suite cannot be imported"
    assert finding.why == "benchmarks.scale: ModuleNotFoundError: No module named 'gone'"


def test_an_error_beyond_the_aim_and_chance_is_a_warning() -> None:
    floors = [floor("Short[1]", 0.004, pairs=10), floor("Long[1]", 0.003, seconds=1e-3, pairs=3)]
    finding = only(Severity.WARN, doctor.check_noise(NOTHING, floors))

    assert "a pair errs by 0.30 to 0.40 %" in finding.what
    assert finding.why == "Long[1] takes 1.000 ms, for which the aim is 0.1 %"


def test_an_error_beyond_the_aim_by_chance_is_none() -> None:
    assert only(Severity.OK, doctor.check_noise(NOTHING, [floor(deviation=0.004, pairs=3)])).why == ""


def test_the_case_that_misses_its_aim_is_named_not_one_that_might_by_chance() -> None:
    floors = [floor("Few[1]", 0.0045, pairs=3), floor("Many[1]", 0.004, pairs=10)]

    assert only(Severity.WARN, doctor.check_noise(NOTHING, floors)).why.startswith("Many[1] ")


def test_one_error_is_no_range() -> None:
    (finding,) = doctor.check_noise(NOTHING, [floor(detectable=math.log1p(0.0123))])

    assert finding.what == "noise floor: a pair errs by 0.10 %; a gate here finds slowdowns from 1.23 %"


def test_examining_never_loads_torch_into_this_process() -> None:
    program = (
        "import sys; from pathlib import Path; from flopwatch.doctor import examine; "
        "examine(Path()); print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert done.stdout == "False\n"


@pytest.mark.gpu
def test_the_gpu_of_this_machine_is_found_and_told(toy: ToyRepository) -> None:
    report = examine(toy.root)

    assert report.machine.gpu is not None
    assert report.machine.gpu.name == torch.cuda.get_device_name(0)
    assert report.snapshot is not None
    assert report.snapshot.temperature_c is not None


@pytest.mark.gpu
def test_the_noise_floor_of_this_machine_is_measured(toy: ToyRepository) -> None:
    gpu, _, _ = doctor.check_gpu(doctor.ask_torch())
    floors, findings = doctor.find_noise(toy.root, gpu, (), 8.0)  # the tests' own process may make the GPU look busy

    assert sorted(found.case for found in floors) == [
        "Scale[1000000,float16,flopwatch]",
        "Scale[1000000,float32,flopwatch]",
    ]
    assert all(1e-6 < found.seconds < 1e-3 and found.pairs >= 2 for found in floors)
    assert all(0 < found.deviation < 0.05 and found.detectable > 0.005 for found in floors)
    assert findings[0].what.startswith("noise floor: a pair errs by")

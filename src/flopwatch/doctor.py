"""What flopwatch can do on this machine and in this repository, and what stands in its way.

Each check is a function that returns findings; none changes anything, and only the noise floor is measured.
"""

from __future__ import annotations

import enum
import importlib.metadata
import math
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from flopwatch import git
from flopwatch.config import Config, load_config
from flopwatch.errors import ExitCode, FlopwatchError, GitError, MachineError, UnsupportedTritonError
from flopwatch.measure import fitness
from flopwatch.measure.client import Code
from flopwatch.measure.machine import Gpu, Machine, Snapshot, read_machine, usable_cores
from flopwatch.measure.noise import Noise, measure_noise, twins
from flopwatch.measure.nvml import Watch, present_gpus
from flopwatch.model import SCHEMA_VERSION, from_json
from flopwatch.static.triton_version import check_triton_version
from flopwatch.stats.noise import NoiseFloor, noise_floors
from flopwatch.units import format_bytes, format_seconds
from flopwatch.verdict import margin_of

if TYPE_CHECKING:
    from collections.abc import Sequence

_DEADLINE_S = 120.0

#: torch is asked in a process of its own: CUDA, once initialised, would stay so in this one, which may go on to fork
#: workers. Whatever torch says at import goes to stderr.
_ASK_TORCH = """
import contextlib, json, sys
with contextlib.redirect_stdout(sys.stderr):
    import torch
    uuid = str(torch.cuda.get_device_properties(0).uuid) if torch.cuda.is_available() else None
print(json.dumps({"cuda": torch.version.cuda, "uuid": uuid}))
"""

#: A compiled kernel takes 0.56 MB of Triton's cache (110 of the bundled ones, triton 3.7.1, compiled for an H200,
#: 2026-11-21: `du` of the cache over its cubins). 60 cases of 20 configurations on two sides take 1.3 GB.
MIN_CACHE_BYTES = 2 << 30

#: Less than this does not hold one case that is tuned over 100 configurations.
LEAST_CACHE_BYTES = 64 << 20

#: base's worker, head's, and the process that gives them turns.
MIN_CORES = 3

_ASV_RANGE = ">=0.6.6,<0.7"
_CPUFREQ = Path("/sys/devices/system/cpu/cpufreq")


class Severity(enum.Enum):
    """How much a finding matters. FAIL: a gate here would stop, or should not be believed."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """One thing that was looked at."""

    severity: Severity
    what: str
    why: str = ""
    todo: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class DoctorReport:
    """All that was found.

    Attributes:
        machine: the fingerprint.
        snapshot: how the GPU did; None without one.
        findings: in the order of the checks.
        noise: the noise floor, where it was measured.
    """

    machine: Machine
    snapshot: Snapshot | None
    findings: tuple[Finding, ...]
    noise: tuple[NoiseFloor, ...] = ()
    schema_version: int = SCHEMA_VERSION

    @property
    def exit_code(self) -> int:
        """4 where anything failed. No GPU is no failure: the static gate and the numbers need none."""
        failed = any(finding.severity is Severity.FAIL for finding in self.findings)
        return int(ExitCode.UNFIT if failed else ExitCode.OK)


@dataclass(frozen=True, kw_only=True, slots=True)
class TorchAnswer:
    """What torch says of CUDA.

    Attributes:
        cuda: the version that it was built with; None for a build without.
        uuid: of its first GPU; None without one.
        failure: why it could not be asked.
    """

    cuda: str | None = None
    uuid: str | None = None
    failure: str = ""


def examine(root: Path, *, noise_limit_s: float = 0.0) -> DoctorReport:
    """Look at the machine, the toolchain and the repository at `root`.

    Args:
        root: a folder of the repository.
        noise_limit_s: for so long, about, the noise floor is measured where nothing stands in the way; 0 leaves it out.
    """
    answer = ask_torch()
    gpu, snapshot, on_gpu = check_gpu(answer)
    machine = read_machine(gpu, {"cuda": answer.cuda} if answer.cuda else {})
    findings = [
        *check_toolchain(machine.versions, answer),
        *on_gpu,
        *check_repository(root),
        *check_history(root),
        *check_cache(),
        *check_host(),
    ]
    noise: tuple[NoiseFloor, ...] = ()
    if noise_limit_s:
        noise, on_noise = find_noise(root, gpu, findings, noise_limit_s)
        findings += on_noise
    return DoctorReport(machine=machine, snapshot=snapshot, findings=tuple(findings), noise=noise)


def ask_torch() -> TorchAnswer:
    """Import torch in a fresh process and return what it says of CUDA."""
    command = [sys.executable, "-P", "-c", _ASK_TORCH]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_DEADLINE_S, check=True)  # noqa: S603 - our own interpreter and program
        return from_json(done.stdout, TorchAnswer)
    except subprocess.CalledProcessError as error:
        lines = error.stderr.strip().splitlines()
        return TorchAnswer(failure=lines[-1] if lines else f"exit status {error.returncode}")
    except (OSError, subprocess.SubprocessError, msgspec.MsgspecError) as error:
        return TorchAnswer(failure=str(error))


def check_toolchain(versions: dict[str, str], answer: TorchAnswer) -> list[Finding]:
    """Look at torch, Triton and its assembler."""
    findings = []
    if answer.failure:
        findings.append(_fail("torch cannot be imported", answer.failure, "install a torch that fits this Python"))
    else:
        cuda = f"CUDA {answer.cuda}" if answer.cuda else "without CUDA"
        findings.append(_ok(f"torch {versions.get('torch', '')}, {cuda}"))
    try:
        check_triton_version()
    except UnsupportedTritonError as error:
        findings.append(_of_error(Severity.FAIL, error))
        return findings
    if "ptxas" in versions:
        findings.append(_ok(f"triton {versions['triton']}, ptxas {versions['ptxas']}"))
    else:
        why = "TRITON_PTXAS_PATH names none" if os.environ.get("TRITON_PTXAS_PATH") else "its wheel has none"
        findings.append(_fail("Triton's ptxas does not run", why, "reinstall triton, or unset TRITON_PTXAS_PATH"))
    return findings


def check_gpu(answer: TorchAnswer) -> tuple[Gpu | None, Snapshot | None, list[Finding]]:
    """Look at the GPU that torch would use; return what it is, how it does, and what stands in the way."""
    if answer.uuid is None:
        return None, None, [_without_gpu(answer)]
    try:
        with Watch(answer.uuid) as watch:
            gpu, snapshot = watch.gpu(), watch.snapshot()
    except MachineError as error:
        return None, None, [_of_error(Severity.FAIL, error)]
    faults = fitness.before(gpu, snapshot)
    findings = [_fail(fault.what, fault.why, fault.todo) for fault in faults]
    if not findings:
        warmth = "" if snapshot.temperature_c is None else f", {snapshot.temperature_c} degrees C"
        findings.append(_ok(f"{gpu.name} is fit to measure{warmth}"))
    if unread := [name for name in ("reasons", "processes", "sm_clock_mhz") if getattr(snapshot, name) is None]:
        what = f"the driver does not tell {', '.join(_UNREAD[name] for name in unread)}"
        findings.append(_warn(what, "fitness is judged without it", "measure where nobody else does"))
    if gpu.power_limit_w and gpu.default_power_limit_w and gpu.power_limit_w < gpu.default_power_limit_w:
        what = f"the power limit is {gpu.power_limit_w:g} W, {gpu.default_power_limit_w:g} W by default"
        findings.append(_warn(what, "times here are not those of a GPU as delivered", "compare only on this machine"))
    return gpu, snapshot, findings


_UNREAD = {"reasons": "throttling", "processes": "other processes", "sm_clock_mhz": "clocks"}


def check_repository(root: Path) -> list[Finding]:
    """Look at git and at what ``[tool.flopwatch]`` names."""
    try:
        top = git.repository_root(root)
    except GitError as error:
        return [_of_error(Severity.FAIL, error)]
    findings = []
    try:
        config = load_config(top)
        findings += _named(config, top)
    except FlopwatchError as error:
        config = Config()
        findings.append(_of_error(Severity.FAIL, error))
    try:
        base = git.default_base(config.main, None, cwd=top)
    except GitError as error:
        findings.append(_of_error(Severity.WARN, error))
    else:
        findings.append(_ok(f"git: the working tree would be compared with {base[:12]}"))
    return findings


def check_history(root: Path) -> list[Finding]:
    """Look at asv, which only the history needs."""
    if not (root / "asv.conf.json").is_file():
        return [_ok("no asv.conf.json: no history is kept, which no gate needs")]
    try:
        version = importlib.metadata.version("asv")
    except importlib.metadata.PackageNotFoundError:
        return [_warn("asv is not installed", "asv.conf.json asks for a history", 'pip install "flopwatch[history]"')]
    number = tuple(int(digits) for digits in re.findall(r"\d+", version)[:3])
    if not (0, 6, 6) <= number < (0, 7):
        what = f"asv {version} is installed"
        return [_warn(what, "its internals change between minor versions", f'pip install "asv{_ASV_RANGE}"')]
    return [_ok(f"asv {version}")]


def check_cache() -> list[Finding]:
    """Look at the folder of Triton's compiled kernels."""
    home = Path(os.environ.get("TRITON_HOME") or Path.home())
    folder = Path(os.environ.get("TRITON_CACHE_DIR") or home / ".triton" / "cache")
    present = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    if not present.is_dir() or not os.access(present, os.W_OK):
        why = f"{present} is not a folder that this user can write to"
        return [_fail(f"Triton's cache {folder} cannot be written", why, "set TRITON_CACHE_DIR to a folder of yours")]
    free = shutil.disk_usage(present).free
    what = f"Triton's cache {folder} has {format_bytes(free)} of disk left"
    if free >= MIN_CACHE_BYTES:
        return [_ok(what)]
    why = f"60 tuned cases take about {format_bytes(MIN_CACHE_BYTES)}"
    finding = _fail if free < LEAST_CACHE_BYTES else _warn
    return [finding(what, why, "make room, or set TRITON_CACHE_DIR to a folder on another disk")]


def check_host(cpufreq: Path = _CPUFREQ) -> list[Finding]:
    """Look at the cores, and at who sets their clock: the cost of a launch is measured on them."""
    cores = usable_cores()
    governors = {path.read_text(encoding="utf-8").strip() for path in cpufreq.glob("policy*/scaling_governor")}
    findings = []
    if cores < MIN_CORES:
        what = f"{cores} processor core{'s' if cores > 1 else ''} to run on"
        why = "two workers and the gate itself take turns; launch costs will scatter"
        findings.append(_warn(what, why, f"give it {MIN_CORES} or more"))
    if governors - {"performance"}:
        what = f"the processor's governor is {', '.join(sorted(governors))}"
        why = "its clock follows the load, and the cost of a launch with it"
        findings.append(_warn(what, why, "on a machine of your own: cpupower frequency-set -g performance"))
    control = "governor performance" if governors else "no frequency control visible"
    return findings or [_ok(f"{cores} processor cores, {control}")]


def find_noise(
    root: Path, gpu: Gpu | None, findings: Sequence[Finding], limit_s: float
) -> tuple[tuple[NoiseFloor, ...], list[Finding]]:
    """Measure the noise floor, unless something was found at which a gate would stop."""
    if gpu is None:
        return (), [_ok("noise floor: not measured, because that takes a GPU")]
    if failed := [finding.what for finding in findings if finding.severity is Severity.FAIL]:
        return (), [_ok(f"noise floor: not measured, because {failed[0]}")]
    try:
        top = git.repository_root(root)
        config = load_config(top)
        code = Code(benchmarks=top / config.benchmarks, tree=top, source=config.source, packages=config.packages)
        with twins(code) as worker, Watch(gpu.uuid) as watch:
            noise = measure_noise(worker, meter=watch, limit_s=limit_s)
    except FlopwatchError as error:
        todo = "flopwatch gate shows its traceback" if "\n" in error.todo else error.todo
        return (), [_fail(f"noise floor: not measured, because {error.what}", error.why, todo)]
    floors = noise_floors(
        noise.log_ratios,
        seconds=noise.seconds,
        margins={case: margin_of(config.margin_of(case)) for case in noise.log_ratios},
        series=noise.declared,
    )
    return floors, check_noise(noise, floors)


def check_noise(noise: Noise, floors: Sequence[NoiseFloor]) -> list[Finding]:
    """Sum up the noise floor, compare it with the aim, and tell what kept it from being measured."""
    findings = []
    if floors:
        low, high = (f"{100 * edge(floor.deviation for floor in floors):.2f}" for edge in (min, max))
        slowdown = math.expm1(max(floor.detectable for floor in floors))
        what = (
            f"noise floor: a pair errs by {low if low == high else f'{low} to {high}'} %"
            f"; a gate here finds slowdowns from {100 * slowdown:.2f} %"
        )
        worst = max(floors, key=lambda floor: (floor.excessive, floor.deviation / floor.aim))
        why = f"{worst.case} takes {format_seconds(worst.seconds)}, for which the aim is {worst.aim * 100:g} %"
        todo = "stop what else runs on this machine; a gate stays honest, but needs more pairs"
        findings.append(_warn(what, why, todo) if worst.excessive else _ok(what))
    if noise.import_failures:
        why = "; ".join(f"{name}: {cause}" for name, cause in noise.import_failures.items())
        findings.append(_fail("a suite cannot be imported", why, "import it in Python to see the traceback"))
    return findings + [_warn(fault.what, fault.why, fault.todo) for fault in noise.faults]


def _without_gpu(answer: TorchAnswer) -> Finding:
    """Say why there is none: no driver, a torch without CUDA, or one that was told to see none."""
    what = "no GPU: the static gate and small numbers only"
    try:
        present = present_gpus()
    except MachineError as error:
        return _warn(what, f"{error.what}; {error.why}", "run on a machine with an NVIDIA GPU to measure time")
    names = ", ".join(present.values())
    if not present:
        return _warn(what, "the driver has none", "run on a machine with an NVIDIA GPU to measure time")
    if answer.failure:
        return _warn(what, f"the driver has {names}, but torch cannot be imported", "repair torch")
    if answer.cuda is None:
        return _warn(what, f"the driver has {names}, but torch is built without CUDA", "install a CUDA build of torch")
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    hidden = f"CUDA_VISIBLE_DEVICES is {visible!r}" if visible is not None else f"torch needs CUDA {answer.cuda}"
    return _warn(what, f"the driver has {names}, but torch sees none; {hidden}", "compare with nvidia-smi")


def _named(config: Config, root: Path) -> list[Finding]:
    """Look for the packages and the suites that the configuration names."""
    findings = []
    for name in config.packages:
        path = root / config.source / Path(*name.split("."))
        if not path.is_dir() and not path.with_suffix(".py").is_file():
            what, why = f"the package {name} is not in {config.source}", "[tool.flopwatch] names it as under test"
            findings.append(_fail(what, why, "correct packages or source in [tool.flopwatch]"))
    if not any((root / config.benchmarks).glob("**/*.py")):
        what, why = f"there is no suite in {config.benchmarks}", "[tool.flopwatch] names it as their folder"
        findings.append(_fail(what, why, "declare one; docs/suites.md shows how"))
    return findings or [_ok(f"[tool.flopwatch]: {', '.join(config.packages)}; suites in {config.benchmarks}")]


def _ok(what: str) -> Finding:
    return Finding(severity=Severity.OK, what=what)


def _warn(what: str, why: str, todo: str) -> Finding:
    return Finding(severity=Severity.WARN, what=what, why=why, todo=todo)


def _fail(what: str, why: str, todo: str) -> Finding:
    return Finding(severity=Severity.FAIL, what=what, why=why, todo=todo)


def _of_error(severity: Severity, error: FlopwatchError) -> Finding:
    return Finding(severity=severity, what=error.what, why=error.why, todo=error.todo)

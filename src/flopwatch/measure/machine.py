"""The machine under a measurement: what it is, and how it does at one moment.

`flopwatch.measure.nvml` reads the GPU's part, `flopwatch.measure.fitness` judges.
"""

from __future__ import annotations

import enum
import importlib.metadata
import importlib.util
import os
import platform
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_DEADLINE_S = 30.0
_RELEASE = re.compile(r"release [\d.]+, V([\d.]+)")


class ThrottleReason(enum.Enum):
    """Why a GPU's clocks are not higher; NVML calls these clocks event reasons.

    SW_POWER_CAP is how an H200 runs any large kernel: it works at its limit of 700 W. APPLICATIONS_CLOCKS is how locked
    clocks show, which NVML does not tell otherwise.
    """

    IDLE = "idle"
    APPLICATIONS_CLOCKS = "applications clocks"
    SW_POWER_CAP = "software power cap"
    HW_SLOWDOWN = "hardware slowdown"
    SYNC_BOOST = "sync boost"
    SW_THERMAL = "software thermal slowdown"
    HW_THERMAL = "hardware thermal slowdown"
    HW_POWER_BRAKE = "hardware power brake"
    DISPLAY = "display clocks"
    OTHER = "other"


#: nvmlClocksEventReason* of nvml.h: 1, 2, 4 and so on, in the order of the enumeration.
_BITS = {1 << position: reason for position, reason in enumerate(ThrottleReason) if reason is not ThrottleReason.OTHER}


def decode_reasons(bits: int) -> tuple[ThrottleReason, ...]:
    """Name the bits of NVML's mask; those above the display's, which drivers of 2026 begin to use, are OTHER.

    >>> [reason.value for reason in decode_reasons(0b1000100)]
    ['software power cap', 'hardware thermal slowdown']
    """
    known = tuple(reason for bit, reason in _BITS.items() if bits & bit)
    return known if bits < max(_BITS) << 1 else (*known, ThrottleReason.OTHER)


@dataclass(frozen=True, kw_only=True, slots=True)
class Gpu:
    """One GPU and its driver; None is what this GPU or driver does not tell.

    Attributes:
        name: the product name.
        uuid: "GPU-" and its number; what to select it by.
        index: NVML's index, which CUDA_VISIBLE_DEVICES does not reorder.
        pci_bus_id: where it is plugged in.
        total_memory_bytes: size of its memory.
        driver: version of the driver.
        cuda_driver: newest CUDA version that the driver runs.
        max_sm_clock_mhz: highest clock of the multiprocessors.
        max_memory_clock_mhz: likewise of the memory.
        application_sm_clock_mhz: the clock that was asked for, if applications clocks are supported.
        application_memory_clock_mhz: likewise of the memory.
        power_limit_w: the limit in force.
        default_power_limit_w: the limit it was delivered with.
        ecc: whether memory is error-corrected.
        mig: whether it is cut into instances.
        temperature_c: when this record was made.
        slowdown_temperature_c: where the hardware slows it down.
    """

    name: str
    uuid: str
    index: int | None = None
    pci_bus_id: str | None = None
    total_memory_bytes: int | None = None
    driver: str | None = None
    cuda_driver: str | None = None
    max_sm_clock_mhz: int | None = None
    max_memory_clock_mhz: int | None = None
    application_sm_clock_mhz: int | None = None
    application_memory_clock_mhz: int | None = None
    power_limit_w: float | None = None
    default_power_limit_w: float | None = None
    ecc: bool | None = None
    mig: bool | None = None
    temperature_c: int | None = None
    slowdown_temperature_c: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Machine:
    """The fingerprint in every result: what must agree for two results to be comparable, and no name of the host.

    Attributes:
        gpu: the GPU; None without one.
        versions: of python, torch, triton, cuda (torch's) and ptxas (Triton's); those that are installed.
        cpu_model: the host's processor.
        cpu_count: its logical cores.
    """

    gpu: Gpu | None
    versions: dict[str, str]
    cpu_model: str
    cpu_count: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Snapshot:
    """A GPU at one moment; None is what it does not tell.

    Attributes:
        time_s: on the monotonic clock.
        sm_clock_mhz: clock of the multiprocessors.
        memory_clock_mhz: clock of the memory.
        temperature_c: of the chip.
        margin_c: degrees left until the hardware slows the chip down.
        power_w: what it draws; from Ampere on a mean over a second.
        free_memory_bytes: memory that nobody holds.
        reasons: why its clocks are not higher.
        processes: ids of those that compute on it, in the driver's namespace, which need not be ours. Without the one
            that asks: it may hold memory there, and waits while its workers measure.
    """

    time_s: float
    sm_clock_mhz: int | None = None
    memory_clock_mhz: int | None = None
    temperature_c: int | None = None
    margin_c: int | None = None
    power_w: float | None = None
    free_memory_bytes: int | None = None
    reasons: tuple[ThrottleReason, ...] | None = None
    processes: tuple[int, ...] | None = None


def read_machine(gpu: Gpu | None, versions: Mapping[str, str] | None = None) -> Machine:
    """Return this machine's fingerprint.

    Args:
        gpu: what NVML says of the GPU.
        versions: those that the workers report, "cuda" above all, which only an imported torch tells; they win over
            what is installed here.
    """
    return Machine(
        gpu=gpu,
        versions={**toolchain_versions(), **(versions or {})},
        cpu_model=_cpu_model(),
        cpu_count=os.cpu_count() or 1,
    )


def usable_cores() -> int:
    """Count the cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def toolchain_versions(ptxas: Path | None = None) -> dict[str, str]:
    """Return the versions of Python, torch, Triton and its ptxas, importing none of them.

    Args:
        ptxas: the assembler to ask, of those that Triton has; None takes `find_ptxas`.
    """
    versions = {"python": platform.python_version()}
    for name in ("torch", "triton"):
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    ptxas = ptxas or find_ptxas()
    if ptxas is not None and (version := _ptxas_version(ptxas)):
        versions["ptxas"] = version
    return versions


def find_ptxas() -> Path | None:
    """Return the assembler that Triton runs, the one of TRITON_PTXAS_PATH or of its own wheel, without importing it.

    For some architectures it runs another one (`flopwatch.measure.compiler.ptxas_for`).
    """
    if named := os.environ.get("TRITON_PTXAS_PATH"):
        path = Path(named)
    else:
        spec = importlib.util.find_spec("triton")
        if spec is None or not spec.submodule_search_locations:
            return None
        path = Path(spec.submodule_search_locations[0], "backends", "nvidia", "bin", "ptxas")
    return path if path.is_file() else None


def _ptxas_version(path: Path) -> str | None:
    command = [str(path), "--version"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_DEADLINE_S, check=True)  # noqa: S603 - Triton's own program
    except (OSError, subprocess.SubprocessError):
        return None
    match = _RELEASE.search(done.stdout)
    return match[1] if match else None


def _cpu_model() -> str:
    """Return the processor's name; where Linux does not know one, as on most Arm hosts, its architecture."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    match = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return match[1].strip() if match else platform.machine()

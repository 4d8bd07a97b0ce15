from __future__ import annotations

import os
import platform
import stat
from typing import TYPE_CHECKING

import msgspec
import pynvml  # type: ignore[import-untyped]  # without type information
import pytest

from flopwatch.measure.machine import (
    Gpu,
    Machine,
    Snapshot,
    ThrottleReason,
    decode_reasons,
    find_ptxas,
    read_machine,
    toolchain_versions,
)
from flopwatch.model import from_json, to_json

if TYPE_CHECKING:
    from pathlib import Path

H200 = Gpu(name="NVIDIA H200", uuid="GPU-4a1f6e2c-0000-1111-2222-333344445555", ecc=True, power_limit_w=700.0)


@pytest.mark.parametrize(
    ("reason", "bit"),
    [
        (ThrottleReason.IDLE, pynvml.nvmlClocksEventReasonGpuIdle),
        (ThrottleReason.APPLICATIONS_CLOCKS, pynvml.nvmlClocksEventReasonApplicationsClocksSetting),
        (ThrottleReason.SW_POWER_CAP, pynvml.nvmlClocksEventReasonSwPowerCap),
        (ThrottleReason.HW_SLOWDOWN, pynvml.nvmlClocksEventReasonHwSlowdown),
        (ThrottleReason.SYNC_BOOST, pynvml.nvmlClocksEventReasonSyncBoost),
        (ThrottleReason.SW_THERMAL, pynvml.nvmlClocksEventReasonSwThermalSlowdown),
        (ThrottleReason.HW_THERMAL, pynvml.nvmlClocksEventReasonHwThermalSlowdown),
        (ThrottleReason.HW_POWER_BRAKE, pynvml.nvmlClocksEventReasonHwPowerBrakeSlowdown),
        (ThrottleReason.DISPLAY, pynvml.nvmlClocksEventReasonDisplayClockSetting),
    ],
)
def test_every_bit_has_the_name_that_nvml_gives_it(reason: ThrottleReason, bit: int) -> None:
    assert decode_reasons(bit) == (reason,)


def test_no_bit_is_no_reason() -> None:
    assert decode_reasons(pynvml.nvmlClocksEventReasonNone) == ()


def test_a_bit_of_a_later_driver_is_not_swallowed() -> None:
    bits = pynvml.nvmlClocksEventReasonSwPowerCap | 1 << 40

    assert decode_reasons(bits) == (ThrottleReason.SW_POWER_CAP, ThrottleReason.OTHER)


def test_a_machine_survives_json() -> None:
    machine = Machine(gpu=H200, versions={"python": "3.12.3", "cuda": "13.0"}, cpu_model="Xeon", cpu_count=16)

    assert from_json(to_json(machine), Machine) == machine


def test_a_snapshot_survives_json() -> None:
    snapshot = Snapshot(time_s=12.5, sm_clock_mhz=1980, reasons=(ThrottleReason.SW_POWER_CAP,), processes=(12, 99))

    assert from_json(to_json(snapshot), Snapshot) == snapshot


def test_a_reason_that_is_unknown_is_an_error_that_names_the_key() -> None:
    with pytest.raises(msgspec.ValidationError, match=r"\$\.reasons"):
        from_json(b'{"time_s": 1.0, "reasons": ["tired"]}', Snapshot)


def test_the_fingerprint_does_not_name_the_host() -> None:
    assert platform.node().encode() not in to_json(read_machine(H200))


def test_versions_of_the_workers_win_over_those_installed_here() -> None:
    machine = read_machine(None, {"cuda": "13.0", "triton": "3.6.0"})

    assert machine.versions["cuda"] == "13.0"
    assert machine.versions["triton"] == "3.6.0"
    assert machine.versions["python"] == platform.python_version()


def test_the_processor_is_named_and_counted() -> None:
    machine = read_machine(None)

    assert machine.cpu_count == os.cpu_count()
    assert machine.cpu_model.strip() == machine.cpu_model != ""


def test_ptxas_is_the_one_of_tritons_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRITON_PTXAS_PATH", raising=False)
    found = find_ptxas()

    assert found is not None
    assert found.parts[-4:] == ("backends", "nvidia", "bin", "ptxas")
    assert toolchain_versions()["ptxas"].split(".")[0] in ("12", "13")


def test_another_ptxas_is_taken_where_triton_would_take_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ptxas = tmp_path / "ptxas"
    ptxas.write_text("#!/bin/sh\necho 'Cuda compilation tools, release 13.1, V13.1.80'\n", encoding="utf-8")
    ptxas.chmod(ptxas.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("TRITON_PTXAS_PATH", str(ptxas))

    assert toolchain_versions()["ptxas"] == "13.1.80"


def test_a_ptxas_that_is_not_there_has_no_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_PTXAS_PATH", str(tmp_path / "ptxas"))

    assert "ptxas" not in toolchain_versions()


def test_a_ptxas_that_does_not_run_has_no_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ptxas").write_text("not a program", encoding="utf-8")
    monkeypatch.setenv("TRITON_PTXAS_PATH", str(tmp_path / "ptxas"))

    assert "ptxas" not in toolchain_versions()

from __future__ import annotations

import ctypes
import os
import sys
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pynvml  # type: ignore[import-untyped]  # without type information
import pytest
import torch

from flopwatch.errors import ExitCode, MachineError
from flopwatch.measure.machine import Gpu, ThrottleReason
from flopwatch.measure.nvml import _NOT_TO_BE_HAD, UNREAD, Watch, full_uuid, present_gpus

if TYPE_CHECKING:
    from collections.abc import Callable

UUID = "GPU-4a1f6e2c-0000-1111-2222-333344445555"
SECOND = "GPU-99999999-0000-1111-2222-333344445555"
H200 = Gpu(
    name="NVIDIA H200",
    uuid=UUID,
    index=0,
    pci_bus_id="00000000:1B:00.0",
    total_memory_bytes=143771 << 20,
    driver="580.159.04",
    cuda_driver="13.0",
    max_sm_clock_mhz=1980,
    max_memory_clock_mhz=3201,
    application_sm_clock_mhz=1980,
    application_memory_clock_mhz=3201,
    power_limit_w=700.0,
    default_power_limit_w=700.0,
    ecc=True,
    mig=False,
    temperature_c=33,
    slowdown_temperature_c=89,
)


@dataclass(kw_only=True)
class Library:
    """Stands in for libnvidia-ml.so: the real bindings call it as they would call the driver's functions.

    `errors` maps the name of a function to the code that it returns; `absent` are those that the driver does not have.
    """

    sm_clock_mhz: int = 1980
    reasons: int = 0
    margin_c: int = 54
    processes: list[int] = field(default_factory=list)
    errors: dict[str, int] = field(default_factory=dict)
    absent: set[str] = field(default_factory=set)
    uuids: tuple[str, ...] = (UUID, SECOND)
    asked: list[int] = field(default_factory=list)
    connections: int = 0

    def __getattr__(self, name: str) -> Callable[..., int]:
        function = _FUNCTIONS.get(name)
        if function is None or name in self.absent:
            raise AttributeError(name)

        def call(*arguments: Any) -> int:  # noqa: ANN401 - C
            if code := self.errors.get(name):
                return code
            return function(self, *arguments) or 0

        return call

    def handle(self, target: Any, index: int) -> int:  # noqa: ANN401 - C
        ctypes.c_void_p.from_buffer(target._obj).value = 0x1000 + index
        return int(pynvml.NVML_SUCCESS)

    def index(self, handle: Any) -> int:  # noqa: ANN401 - C
        address = ctypes.cast(handle, ctypes.c_void_p).value
        assert address is not None
        return address - 0x1000

    def connect(self, by: int) -> int:
        self.connections += by
        return int(pynvml.NVML_SUCCESS)

    def by_uuid(self, uuid: Any, target: Any) -> int:  # noqa: ANN401 - C
        if uuid.value.decode() not in self.uuids:
            return int(pynvml.NVML_ERROR_NOT_FOUND)
        return self.handle(target, self.uuids.index(uuid.value.decode()))

    def clock(self, handle: Any, kind: Any, target: Any) -> None:  # noqa: ANN401 - C
        self.asked.append(self.index(handle))
        clocks = {pynvml.NVML_CLOCK_SM: self.sm_clock_mhz, pynvml.NVML_CLOCK_MEM: 3201}
        target._obj.value = clocks[kind.value]

    def running(self, handle: Any, count: Any, rows: Any) -> int:  # noqa: ANN401 - C
        del handle
        if rows is None:
            count._obj.value = len(self.processes)
            return int(pynvml.NVML_ERROR_INSUFFICIENT_SIZE if self.processes else pynvml.NVML_SUCCESS)
        count._obj.value = len(self.processes)
        for row, process in zip(rows, self.processes, strict=False):
            row.pid = process
        return int(pynvml.NVML_SUCCESS)


def text(value: str) -> Callable[..., None]:
    def write(library: Library, *arguments: Any) -> None:  # noqa: ANN401 - C
        del library
        arguments[-2].value = value.encode()

    return write


def number(*values: int, attribute: str = "value") -> Callable[..., None]:
    """Write each value into the last arguments, in order."""

    def write(library: Library, *arguments: Any) -> None:  # noqa: ANN401 - C
        del library
        for value, target in zip(values, arguments[-len(values) :], strict=True):
            setattr(target._obj, attribute, value)

    return write


def memory(library: Library, handle: object, target: Any) -> None:  # noqa: ANN401 - C
    del library, handle
    target._obj.total, target._obj.free = 143771 << 20, 140000 << 20


def pci(library: Library, handle: object, target: Any) -> None:  # noqa: ANN401 - C
    del library, handle
    target._obj.busId = b"00000000:1B:00.0"


def uuid(library: Library, handle: object, target: Any, size: object) -> None:  # noqa: ANN401 - C
    del size
    target.value = library.uuids[library.index(handle)].encode()


def reasons(library: Library, handle: object, target: Any) -> None:  # noqa: ANN401 - C
    del handle
    target._obj.value = library.reasons


def margin(library: Library, handle: object, target: Any) -> None:  # noqa: ANN401 - C
    del handle
    target._obj.marginTemperature = library.margin_c


def threshold(library: Library, handle: object, kind: Any, target: Any) -> None:  # noqa: ANN401 - C
    del library, handle
    assert kind.value == pynvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN
    target._obj.value = 89


_FUNCTIONS: dict[str, Callable[..., int | None]] = {
    "nvmlInitWithFlags": lambda library, flags: library.connect(1 if flags == 0 else 0),
    "nvmlShutdown": lambda library: library.connect(-1),
    "nvmlDeviceGetHandleByUUID": Library.by_uuid,
    "nvmlDeviceGetHandleByIndex_v2": lambda library, index, target: library.handle(target, index.value),
    "nvmlDeviceGetCount_v2": lambda library, target: setattr(target._obj, "value", len(library.uuids)),
    "nvmlDeviceGetUUID": uuid,
    "nvmlDeviceGetName": text("NVIDIA H200"),
    "nvmlDeviceGetIndex": lambda library, handle, target: setattr(target._obj, "value", library.index(handle)),
    "nvmlDeviceGetPciInfo_v3": pci,
    "nvmlDeviceGetMemoryInfo": memory,
    "nvmlSystemGetDriverVersion": text("580.159.04"),
    "nvmlSystemGetCudaDriverVersion_v2": number(13000),
    "nvmlDeviceGetMaxClockInfo": Library.clock,
    "nvmlDeviceGetClockInfo": Library.clock,
    "nvmlDeviceGetApplicationsClock": Library.clock,
    "nvmlDeviceGetEnforcedPowerLimit": number(700_000),
    "nvmlDeviceGetPowerManagementDefaultLimit": number(700_000),
    "nvmlDeviceGetPowerUsage": number(76_540),
    "nvmlDeviceGetEccMode": number(pynvml.NVML_FEATURE_ENABLED, pynvml.NVML_FEATURE_ENABLED),
    "nvmlDeviceGetMigMode": number(pynvml.NVML_DEVICE_MIG_DISABLE, pynvml.NVML_DEVICE_MIG_ENABLE),
    "nvmlDeviceGetTemperature": number(33),
    "nvmlDeviceGetTemperatureThreshold": threshold,
    "nvmlDeviceGetMarginTemperature": margin,
    "nvmlDeviceGetCurrentClocksEventReasons": reasons,
    "nvmlDeviceGetCurrentClocksThrottleReasons": reasons,
    "nvmlDeviceGetComputeRunningProcesses_v3": Library.running,
}
#: Those that a GPU may well not have: each of its fields is None without them.
OPTIONAL = sorted(name for name in _FUNCTIONS if name.startswith("nvmlDeviceGet") and "Handle" not in name)


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Library:
    stand_in = Library()
    monkeypatch.setattr(pynvml, "nvmlLib", stand_in)
    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
    return stand_in


@pytest.mark.usefixtures("library")
def test_every_field_of_a_gpu_is_read() -> None:
    with Watch(UUID) as watch:
        assert watch.gpu() == H200


def test_a_snapshot_says_how_the_gpu_does(library: Library) -> None:
    library.processes = [412, 99]
    library.reasons = pynvml.nvmlClocksEventReasonSwPowerCap | pynvml.nvmlClocksEventReasonHwThermalSlowdown
    before_s = time.monotonic()
    with Watch(UUID) as watch:
        snapshot = watch.snapshot()

    assert before_s <= snapshot.time_s <= time.monotonic()
    assert (snapshot.sm_clock_mhz, snapshot.memory_clock_mhz) == (1980, 3201)
    assert (snapshot.temperature_c, snapshot.margin_c, snapshot.power_w) == (33, 54, 76.54)
    assert snapshot.free_memory_bytes == 140000 << 20
    assert snapshot.reasons == (ThrottleReason.SW_POWER_CAP, ThrottleReason.HW_THERMAL)
    assert snapshot.processes == (99, 412)


def test_the_process_that_asks_is_not_among_the_others(library: Library) -> None:
    library.processes = [412, os.getpid()]
    with Watch(UUID) as watch:
        assert watch.snapshot().processes == (412,)


def test_an_idle_gpu_has_no_processes_and_not_an_unknown_number(library: Library) -> None:
    assert library.processes == []
    with Watch(UUID) as watch:
        assert watch.snapshot().processes == ()


@pytest.mark.parametrize("code", sorted(_NOT_TO_BE_HAD))
def test_what_a_gpu_does_not_support_is_none(code: int, library: Library) -> None:
    library.errors = dict.fromkeys(OPTIONAL, code)
    with Watch(UUID) as watch:
        gpu, snapshot = watch.gpu(), watch.snapshot()

    assert gpu == Gpu(name="unknown", uuid=UUID, driver="580.159.04", cuda_driver="13.0")
    assert [getattr(snapshot, name) for name in snapshot.__slots__ if name != "time_s"] == [None] * 8


def test_a_function_that_the_driver_does_not_have_leaves_none(library: Library) -> None:
    library.absent = {"nvmlDeviceGetMarginTemperature", "nvmlDeviceGetMigMode", "nvmlDeviceGetPowerUsage"}
    with Watch(UUID) as watch:
        assert watch.gpu().mig is None
        assert watch.snapshot().power_w is None


def test_the_margin_is_computed_where_the_gpu_does_not_tell_it(library: Library) -> None:
    library.errors = {"nvmlDeviceGetMarginTemperature": pynvml.NVML_ERROR_NOT_SUPPORTED}
    with Watch(UUID) as watch:
        assert watch.snapshot().margin_c == 89 - 33


def test_the_codes_that_leave_a_field_empty_are_nvmls() -> None:
    assert {
        pynvml.NVML_ERROR_INVALID_ARGUMENT,
        pynvml.NVML_ERROR_NOT_SUPPORTED,
        pynvml.NVML_ERROR_NO_PERMISSION,
        pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
        pynvml.NVML_ERROR_NO_DATA,
        pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
        pynvml.NVML_ERROR_DEPRECATED,
        pynvml.NVML_ERROR_UNKNOWN,
    } == _NOT_TO_BE_HAD


def test_the_clock_is_read_anew_each_time(library: Library) -> None:
    with Watch(UUID) as watch:
        first = watch.clock()
        library.sm_clock_mhz = 1755

        assert (first, watch.clock()) == (1980, 1755)


def test_the_reasons_are_read_anew_each_time(library: Library) -> None:
    with Watch(UUID) as watch:
        first = watch.reason_bits()
        library.reasons = pynvml.nvmlClocksEventReasonHwSlowdown

        assert (first, watch.reason_bits()) == (0, 8)


def test_a_turn_is_read_without_an_exception_where_the_driver_does_not_tell(library: Library) -> None:
    lost = pynvml.NVML_ERROR_GPU_IS_LOST
    library.errors = {"nvmlDeviceGetClockInfo": lost, "nvmlDeviceGetCurrentClocksEventReasons": lost}
    with Watch(UUID) as watch:
        assert (watch.clock(), watch.reason_bits()) == (UNREAD, UNREAD)


def test_a_driver_from_before_535_has_the_reasons_under_their_old_name(library: Library) -> None:
    library.absent, library.reasons = {"nvmlDeviceGetCurrentClocksEventReasons"}, 4
    with Watch(UUID) as watch:
        assert watch.reason_bits() == 4


def test_the_gpu_is_chosen_by_uuid_as_torch_spells_it(library: Library) -> None:
    with Watch(SECOND.removeprefix("GPU-")) as watch:
        watch.clock()

        assert (watch.uuid, watch.gpu().index, library.asked[0]) == (SECOND, 1, 1)


def test_a_lost_gpu_is_an_unfit_machine_and_not_a_missing_field(library: Library) -> None:
    with Watch(UUID) as watch:
        library.errors = {"nvmlDeviceGetTemperature": pynvml.NVML_ERROR_GPU_IS_LOST}
        with pytest.raises(MachineError, match="GPU is lost") as caught:
            watch.snapshot()

    assert caught.value.exit_code is ExitCode.UNFIT


def test_the_connection_is_closed_even_when_the_gpu_is_lost(library: Library) -> None:
    with pytest.raises(KeyError), Watch(UUID):
        raise KeyError

    assert library.connections == 0


def test_a_gpu_that_the_driver_does_not_have_is_told_with_those_it_has(library: Library) -> None:
    with pytest.raises(MachineError, match=rf"no GPU GPU-0(.|\n)*{SECOND}"), Watch("GPU-0"):
        pass

    assert library.connections == 0


def test_the_gpus_of_a_driver_are_listed_by_uuid(library: Library) -> None:
    assert present_gpus() == {UUID: "NVIDIA H200", SECOND: "NVIDIA H200"}
    assert library.connections == 0


@pytest.mark.parametrize("code", [pynvml.NVML_ERROR_DRIVER_NOT_LOADED, pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH])
def test_a_driver_that_does_not_answer_is_told_with_what_to_do(code: int, library: Library) -> None:
    library.errors = {"nvmlInitWithFlags": code}

    with pytest.raises(MachineError, match=r"no NVIDIA driver answers(.|\n)*do:  run nvidia-smi"), Watch(UUID):
        pass


def test_no_driver_library_is_an_unfit_machine_and_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise OSError(name)

    monkeypatch.setattr(pynvml, "nvmlLib", None)
    monkeypatch.setattr(pynvml, "CDLL", missing)

    with pytest.raises(MachineError, match="NVML Shared Library Not Found"):
        present_gpus()


def test_bindings_that_are_not_installed_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)

    with pytest.raises(MachineError, match="pip install nvidia-ml-py"):
        present_gpus()


@pytest.mark.gpu
def test_torch_and_nvml_speak_of_the_same_gpu() -> None:
    properties = torch.cuda.get_device_properties(0)
    with Watch(str(properties.uuid)) as watch:
        gpu, snapshot = watch.gpu(), watch.snapshot()

    assert gpu.uuid == full_uuid(str(properties.uuid))
    assert gpu.name == properties.name
    assert gpu.total_memory_bytes is not None
    assert gpu.total_memory_bytes >= properties.total_memory
    assert gpu.driver is not None
    assert snapshot.temperature_c is not None
    assert 10 <= snapshot.temperature_c <= 100
    assert snapshot.reasons is not None


@pytest.mark.gpu
def test_a_clock_is_read_in_less_than_a_turn_of_a_pair_takes() -> None:
    # A turn of three launches of the shortest case is a graph replay of 300 us or more, three times.
    with Watch(str(torch.cuda.get_device_properties(0).uuid)) as watch:
        highest = watch.gpu().max_sm_clock_mhz
        watch.clock()
        start_s = time.perf_counter()
        clocks = [watch.clock() for _ in range(100)]
        each_s = (time.perf_counter() - start_s) / 100

    assert highest is not None
    assert 0 < min(clocks) <= max(clocks) <= highest
    assert each_s < 900e-6

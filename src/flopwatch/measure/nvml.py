"""What the NVIDIA driver says of one GPU, through NVML. It is only read: no clock and no setting is ever changed."""

from __future__ import annotations

import contextlib
import ctypes
import os
import time
from typing import TYPE_CHECKING, Any, Self

from flopwatch.errors import MachineError
from flopwatch.measure.machine import Gpu, Snapshot, decode_reasons

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

#: What `Watch.clock` and `Watch.reason_bits` return when the driver did not answer.
UNREAD = -1

#: NVML's codes for what this GPU, driver or user cannot have: invalid argument (an enumeration that an older driver
#: does not know), not supported, no permission, function not found, no data, version mismatch, deprecated, and unknown
#: (what a sandbox answers for calls that it does not pass on).
_NOT_TO_BE_HAD = frozenset({2, 3, 4, 13, 21, 25, 26, 999})


class Watch(contextlib.AbstractContextManager["Watch"]):
    """Reads one GPU while it is entered.

    Args:
        uuid: the GPU, as NVML or torch (`torch.cuda.get_device_properties(0).uuid`, without "GPU-") spells it. An
            index would not do: CUDA_VISIBLE_DEVICES reorders torch's and not NVML's.
    """

    def __init__(self, uuid: str) -> None:
        self.uuid = full_uuid(uuid)

    def __enter__(self) -> Self:
        """Connect to the driver.

        Raises:
            MachineError: there is no NVIDIA driver, or no such GPU.
        """
        self._nvml = nvml = _start()
        try:
            self._gpu = nvml.nvmlDeviceGetHandleByUUID(self.uuid)
        except nvml.NVMLError as error:
            present = _present(nvml)
            nvml.nvmlShutdown()
            raise MachineError(
                f"the driver has no GPU {self.uuid}",
                why=f"{error}; it has {', '.join(f'{name} ({uuid})' for uuid, name in present.items()) or 'none'}",
                todo="a MIG instance cannot be watched: run on a whole GPU"
                if self.uuid.startswith("MIG-")
                else "compare with nvidia-smi -L",
            ) from None
        # Read after every turn of a pair: called without the bindings, which allocate and raise.
        library = nvml.nvmlLib
        self._clock = ctypes.c_uint()
        self._bits = ctypes.c_ulonglong()
        self._clock_target = ctypes.byref(self._clock)
        self._bits_target = ctypes.byref(self._bits)
        self._sm = ctypes.c_uint(nvml.NVML_CLOCK_SM)
        self._read_clock = library.nvmlDeviceGetClockInfo
        self._read_bits = (  # the first since driver 535, the second until CUDA 14
            getattr(library, "nvmlDeviceGetCurrentClocksEventReasons", None)
            or library.nvmlDeviceGetCurrentClocksThrottleReasons
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(self._nvml.NVMLError):  # a lost GPU must not hide the error that tells of it
            self._nvml.nvmlShutdown()

    def clock(self) -> int:
        """Return the clock of the multiprocessors in MHz, `UNREAD` where the driver does not tell."""
        if self._read_clock(self._gpu, self._sm, self._clock_target):
            return UNREAD
        return self._clock.value

    def reason_bits(self) -> int:
        """Return why the clocks are not higher as NVML's mask, `UNREAD` where the driver does not tell."""
        if self._read_bits(self._gpu, self._bits_target):
            return UNREAD
        return self._bits.value

    def snapshot(self) -> Snapshot:
        """Return how the GPU does now.

        Raises:
            MachineError: the GPU is lost.
        """
        nvml = self._nvml
        temperature = self._ask(nvml.nvmlDeviceGetTemperature, nvml.NVML_TEMPERATURE_GPU)
        memory = self._ask(nvml.nvmlDeviceGetMemoryInfo)
        processes = self._ask(nvml.nvmlDeviceGetComputeRunningProcesses_v3)
        bits = self.reason_bits()
        return Snapshot(
            time_s=time.monotonic(),
            sm_clock_mhz=self._ask(nvml.nvmlDeviceGetClockInfo, nvml.NVML_CLOCK_SM),
            memory_clock_mhz=self._ask(nvml.nvmlDeviceGetClockInfo, nvml.NVML_CLOCK_MEM),
            temperature_c=temperature,
            margin_c=self._margin(temperature),
            power_w=_watts(self._ask(nvml.nvmlDeviceGetPowerUsage)),
            free_memory_bytes=None if memory is None else memory.free,
            reasons=None if bits == UNREAD else decode_reasons(bits),
            processes=None if processes is None else tuple(sorted({one.pid for one in processes} - {os.getpid()})),
        )

    def gpu(self) -> Gpu:
        """Return what the GPU is.

        Raises:
            MachineError: the GPU is lost.
        """
        nvml, ask = self._nvml, self._ask
        memory, pci = ask(nvml.nvmlDeviceGetMemoryInfo), ask(nvml.nvmlDeviceGetPciInfo_v3)
        ecc, mig = ask(nvml.nvmlDeviceGetEccMode), ask(nvml.nvmlDeviceGetMigMode)  # each [now, after the next reset]
        return Gpu(
            name=ask(nvml.nvmlDeviceGetName) or "unknown",
            uuid=self.uuid,
            index=ask(nvml.nvmlDeviceGetIndex),
            pci_bus_id=None if pci is None else pci.busId,
            total_memory_bytes=None if memory is None else memory.total,
            driver=self._try(nvml.nvmlSystemGetDriverVersion),
            cuda_driver=cuda_version(self._try(nvml.nvmlSystemGetCudaDriverVersion_v2)),
            max_sm_clock_mhz=ask(nvml.nvmlDeviceGetMaxClockInfo, nvml.NVML_CLOCK_SM),
            max_memory_clock_mhz=ask(nvml.nvmlDeviceGetMaxClockInfo, nvml.NVML_CLOCK_MEM),
            application_sm_clock_mhz=ask(nvml.nvmlDeviceGetApplicationsClock, nvml.NVML_CLOCK_SM),
            application_memory_clock_mhz=ask(nvml.nvmlDeviceGetApplicationsClock, nvml.NVML_CLOCK_MEM),
            power_limit_w=_watts(ask(nvml.nvmlDeviceGetEnforcedPowerLimit)),
            default_power_limit_w=_watts(ask(nvml.nvmlDeviceGetPowerManagementDefaultLimit)),
            ecc=None if ecc is None else bool(ecc[0]),
            mig=None if mig is None else bool(mig[0]),
            temperature_c=ask(nvml.nvmlDeviceGetTemperature, nvml.NVML_TEMPERATURE_GPU),
            slowdown_temperature_c=self._slowdown_temperature(),
        )

    def _margin(self, temperature: int | None) -> int | None:
        """Return the degrees left; Hopper tells them directly and may not tell where its slowdown begins."""
        margin: int | None = self._ask(self._nvml.nvmlDeviceGetMarginTemperature)
        slowdown = self._slowdown_temperature() if margin is None else None
        return margin if slowdown is None or temperature is None else slowdown - temperature

    def _slowdown_temperature(self) -> int | None:
        nvml = self._nvml
        value: int | None = self._ask(nvml.nvmlDeviceGetTemperatureThreshold, nvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN)
        return value

    def _ask(self, function: Callable[..., Any], *arguments: object) -> Any:  # noqa: ANN401 - the bindings are untyped
        return self._try(function, self._gpu, *arguments)

    def _try(self, function: Callable[..., Any], *arguments: object) -> Any:  # noqa: ANN401 - likewise
        try:
            return function(*arguments)
        except self._nvml.NVMLError as error:
            if error.value in _NOT_TO_BE_HAD:
                return None
            raise MachineError(
                f"the GPU {self.uuid} does not answer",
                why=f"NVML says: {error}",
                todo="see dmesg for Xid errors; a lost GPU comes back with a reset or a reboot",
            ) from None


def present_gpus() -> dict[str, str]:
    """Return the GPUs that the driver has: UUID -> name.

    Raises:
        MachineError: there is no NVIDIA driver.
    """
    nvml = _start()
    try:
        return _present(nvml)
    finally:
        nvml.nvmlShutdown()


def require_gpu(refusal: Callable[[str], MachineError]) -> None:
    """Make sure that there is a GPU, before anything is checked out.

    Args:
        refusal: makes an error of why there is none.

    Raises:
        MachineError: that error.
    """
    try:
        present = present_gpus()
    except MachineError as error:
        raise refusal(str(error.what)) from None
    if not present:
        raise refusal("the driver has none")


def full_uuid(uuid: str) -> str:
    """Spell a UUID as NVML does; torch leaves the prefix out.

    >>> full_uuid("4a1f6e2c-0000-1111-2222-333344445555")
    'GPU-4a1f6e2c-0000-1111-2222-333344445555'
    """
    return uuid if uuid.startswith(("GPU-", "MIG-")) else f"GPU-{uuid}"


def cuda_version(number: int | None) -> str | None:
    """Write the driver's number of a CUDA version as people do.

    >>> cuda_version(13010)
    '13.1'
    """
    return None if number is None else f"{number // 1000}.{number % 1000 // 10}"


def _start() -> Any:  # noqa: ANN401 - the bindings are untyped
    """Load the bindings and connect to the driver."""
    try:
        import pynvml  # type: ignore[import-untyped]  # noqa: PLC0415 - without type information; not everybody measures
    except ImportError:
        raise MachineError(
            "the GPU cannot be watched", why="nvidia-ml-py is not installed", todo="pip install nvidia-ml-py"
        ) from None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        raise MachineError(
            "no NVIDIA driver answers",
            why=f"NVML says: {error}",
            todo="run nvidia-smi; in a container, start it with --gpus",
        ) from None
    return pynvml


def _present(nvml: Any) -> dict[str, str]:  # noqa: ANN401 - the bindings are untyped
    found = {}
    for index in range(nvml.nvmlDeviceGetCount()):
        with contextlib.suppress(nvml.NVMLError):  # a GPU that is lost takes no other along
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            found[nvml.nvmlDeviceGetUUID(handle)] = nvml.nvmlDeviceGetName(handle)
    return found


def _watts(milliwatts: int | None) -> float | None:
    return None if milliwatts is None else milliwatts / 1000

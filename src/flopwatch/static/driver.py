"""The driver that Triton talks to when a GPU is pretended: it answers, loads nothing and launches nothing."""

from __future__ import annotations

import importlib
import itertools
from typing import TYPE_CHECKING

import torch
from triton.backends.compiler import GPUTarget
from triton.backends.driver import GPUDriver

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from flopwatch.static.device import Device

# Triton caches kernels and shared memory limits by the device's ordinal alone, so that two devices pretended one after
# the other must not have the same. Real ordinals are small.
_ordinals = itertools.count(1000)

_MAX_THREADS_PER_BLOCK = 1024


class PretendedUtils:
    """What Triton asks of the API of the CUDA or the HIP driver."""

    def __init__(self, device: Device) -> None:
        self.device = device

    def get_device_properties(self, _ordinal: int) -> dict[str, int | str]:
        """Return what the driver would; Triton reads `max_shared_mem` to refuse kernels that do not fit."""
        return {
            **({"arch": self.device.arch} if self.device.is_amd else {}),
            "max_shared_mem": self.device.max_shared_bytes_per_block,
            "max_num_regs": self.device.registers_per_sm,
            "multiprocessor_count": self.device.sms,
            "warpSize": self.device.warp_size,
        }

    def load_binary(self, *_arguments: object) -> tuple[int, int, int, int, int]:
        """Pretend to load a kernel: (module, function, registers, spills, threads a block may have)."""
        return (1, 1, 0, 0, _MAX_THREADS_PER_BLOCK)

    def unload_module(self, _module: object) -> None:
        """Nothing was loaded."""

    def set_printf_fifo_size(self, _size_bytes: int) -> None:
        """Nothing prints."""

    def get_device_capability(self, _ordinal: int) -> tuple[int, int]:
        """Return the compute capability."""
        return self.device.compute_capability


def no_launch(_source: object, _metadata: object) -> Callable[..., None]:
    """Return the launcher of a compiled kernel, which does nothing."""
    return _do_nothing


def _do_nothing(*_arguments: object) -> None:
    pass


class PretendedDriver(GPUDriver):  # type: ignore[misc] # triton has no types
    """Triton's active driver while a GPU is pretended."""

    def __init__(self, device: Device) -> None:
        # Not super().__init__(): it reaches for the real CUDA.
        ordinal = next(_ordinals)
        self.device = device
        self.utils = PretendedUtils(device)
        self.launcher_cls = no_launch
        self.get_current_device: Callable[[], int] = lambda: ordinal
        self.get_current_stream: Callable[..., int] = lambda _ordinal=0: 0
        self.get_device_capability: Callable[..., tuple[int, int]] = lambda _ordinal=0: device.compute_capability
        self.set_current_device: Callable[..., None] = lambda _ordinal: None

    @staticmethod
    def is_active() -> bool:
        """Claim to be the driver."""
        return True

    def get_current_target(self) -> GPUTarget:
        """Return what to compile for."""
        return GPUTarget(self.device.backend, self.device.arch, self.device.warp_size)

    def get_active_torch_device(self) -> torch.device:
        """Return the device of tensors."""
        return torch.device("cuda", 0)

    def get_device_interface(self) -> object:
        """Return the torch module of the backend."""
        return torch.cuda

    def map_python_to_cpp_type(self, ty: str) -> str:
        """Return the C type of an argument."""
        vendor = "amd" if self.device.is_amd else "nvidia"
        # Here and not above: importing it looks for the vendor's libraries.
        module = importlib.import_module(f"triton.backends.{vendor}.driver")
        return str(module.ty_to_cpp(ty))

    def get_benchmarker(self) -> Callable[..., list[float] | float]:
        """Return a timer that calls once and has no time to tell."""
        return benchmark_nothing

    def get_empty_cache_for_benchmark(self) -> torch.Tensor:
        """Return the buffer that a timer clears between calls."""
        return torch.empty(1)

    def clear_cache(self, _cache: torch.Tensor) -> None:
        """Nothing is cached."""


def benchmark_nothing(
    call: Callable[[], object], quantiles: Sequence[float] | None = None, **_options: object
) -> list[float] | float:
    """Call once and return the same constant for everything, so that the first of several wins."""
    call()
    return [1.0] * len(quantiles) if quantiles else 1.0

"""`torch.cuda` and `torch.Generator` answering for a GPU that is not there."""

from __future__ import annotations

import contextlib
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Self

import torch

from flopwatch.static.tensors import CUDA

if TYPE_CHECKING:
    from collections.abc import Callable

    from flopwatch.static.device import Device

_CUDA_VERSION = "12.8"
_HIP_VERSION = "6.4"
_ELAPSED_MS = 1000.0
_DEFAULT_SHARED_BYTES_PER_BLOCK = 48 * 1024


class _AnyGenerator(type(torch.Generator)):  # type: ignore[misc] # its metaclass is `type`
    """Keep ``isinstance(generator, torch.Generator)`` true of generators made elsewhere."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, _RealGenerator)


_RealGenerator = torch.Generator


class PretendedGenerator(torch.Generator, metaclass=_AnyGenerator):
    """A generator of the host that says it is on the device it was asked for."""

    _named: torch.device

    def __new__(cls, device: str | int | torch.device = "cpu") -> Self:
        """Make one on the host, whatever the device."""
        self = super().__new__(cls, device="cpu")  # type: ignore[call-arg] # torch's stub declares __init__ alone
        named = CUDA if isinstance(device, int) else torch.device(device)
        self._named = CUDA if named.type == "cuda" else named
        return self

    @property
    def device(self) -> torch.device:  # type: ignore[override] # torch's stub has an attribute
        """The device it was asked for."""
        return self._named


def patch_torch(device: Device, restore: contextlib.ExitStack) -> None:
    """Let `torch.cuda`, `torch.version` and `torch.Generator` answer for `device` until `restore` closes.

    A build of PyTorch for AMD answers by the same functions; it has a version of HIP, and none of CUDA.
    """
    for name, value in _answers(device).items():
        _replace(torch.cuda, name, value if isinstance(value, type) else _own_function(name, value), restore)
    cuda = None if device.is_amd else torch.version.cuda or _CUDA_VERSION
    _replace(torch.version, "cuda", cuda, restore)
    _replace(torch.version, "hip", torch.version.hip or _HIP_VERSION if device.is_amd else None, restore)
    _replace(torch, "Generator", PretendedGenerator, restore)
    _replace(torch, "compile", _uncompiled, restore)
    if "torch._dynamo" in sys.modules:  # something was compiled before
        restore.enter_context(torch.compiler.set_stance("force_eager"))
    for name, value in _accelerator_answers().items():
        _replace(torch.accelerator, name, _own_function(name, value), restore)


class PretendedStream:
    """A stream on which nothing runs."""

    cuda_stream = 0
    device = CUDA

    def __init__(self, *_arguments: object, **_options: object) -> None:
        """Make one of any device and priority."""

    def synchronize(self) -> None:
        """Nothing is to be waited for."""

    def wait_stream(self, _stream: object) -> None:
        """Likewise."""

    def wait_event(self, _event: object) -> None:
        """Likewise."""

    def query(self) -> bool:
        """Say that all is done."""
        return True

    def record_event(self, event: PretendedEvent | None = None) -> PretendedEvent:
        """Return the event, or a new one."""
        return PretendedEvent() if event is None else event


class PretendedEvent:
    """An event that has always happened, long after the one before."""

    device = CUDA

    def __init__(self, *_arguments: object, **_options: object) -> None:
        """Make one of any kind."""

    def record(self, _stream: object = None) -> None:
        """Nothing is to be noted."""

    def wait(self, _stream: object = None) -> None:
        """Nothing is to be waited for."""

    def synchronize(self) -> None:
        """Likewise."""

    def query(self) -> bool:
        """Say that it has happened."""
        return True

    def elapsed_time(self, _end: object) -> float:
        """Return milliseconds, so many that a timer which repeats until it has seen enough stops after one call."""
        return _ELAPSED_MS


class PretendedGraph:
    """A CUDA graph: what is captured is launched, once, where it is captured."""

    def __init__(self, *_arguments: object, **_options: object) -> None:
        """Make one of any kind."""

    def capture_begin(self, *_arguments: object, **_options: object) -> None:
        """Launches are recorded in any case."""

    def capture_end(self) -> None:
        """Likewise."""

    def replay(self) -> None:
        """Nothing would run."""

    def reset(self) -> None:
        """Nothing is held."""

    def pool(self) -> tuple[int, int]:
        """Return the name of a pool, of which there is one."""
        return (0, 0)


def _answers(device: Device) -> dict[str, Callable[..., object]]:
    properties = device_properties(device)
    stream = PretendedStream()
    host = torch.default_generator
    return {
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "init": _nothing,
        "_lazy_init": _nothing,
        "device_count": lambda: 1,
        "current_device": lambda: CUDA.index,
        "set_device": _nothing,
        "device": lambda _device=None: contextlib.nullcontext(),
        "device_of": lambda _tensor=None: contextlib.nullcontext(),
        "synchronize": _nothing,
        "empty_cache": _nothing,
        "get_device_capability": lambda _device=None: device.compute_capability,
        "get_device_name": lambda _device=None: device.name,
        "get_device_properties": lambda _device=None: properties,
        "get_arch_list": lambda: [device.architecture],
        "is_bf16_supported": lambda *_arguments, **_options: True,
        "current_stream": lambda _device=None: stream,
        "default_stream": lambda _device=None: stream,
        "stream": lambda _stream=None: contextlib.nullcontext(),
        "Stream": PretendedStream,
        "ExternalStream": PretendedStream,
        "Event": PretendedEvent,
        "CUDAGraph": PretendedGraph,
        "graph": lambda *_arguments, **_options: contextlib.nullcontext(),
        "graph_pool_handle": lambda: (0, 0),
        "is_current_stream_capturing": lambda: False,
        "set_stream": _nothing,
        "max_memory_allocated": _no_bytes,
        "max_memory_reserved": _no_bytes,
        "memory_allocated": _no_bytes,
        "memory_reserved": _no_bytes,
        "memory_stats": lambda _device=None: {},
        "reset_peak_memory_stats": _nothing,
        "ipc_collect": _nothing,
        "mem_get_info": lambda _device=None: (device.memory_bytes, device.memory_bytes),
        # One generator serves both host and GPU; seeding either makes what follows deterministic.
        "manual_seed": host.manual_seed,
        "manual_seed_all": host.manual_seed,
        "seed": host.seed,
        "seed_all": host.seed,
        "initial_seed": host.initial_seed,
        "get_rng_state": lambda _device=None: host.get_state(),
        "set_rng_state": lambda state, _device=None: host.set_state(state),
    }


def _accelerator_answers() -> dict[str, Callable[..., object]]:
    stream = PretendedStream()
    return {
        "is_available": lambda: True,
        "current_accelerator": lambda *_arguments, **_options: torch.device(CUDA.type),
        "device_count": lambda: 1,
        "current_device_index": lambda: CUDA.index,
        "set_device_index": _nothing,
        "current_stream": lambda _device=None: stream,
        "set_stream": _nothing,
        "synchronize": _nothing,
    }


def device_properties(device: Device) -> SimpleNamespace:
    """Return what `torch.cuda.get_device_properties` would, under the names of torch 2.11 to 2.15."""
    return SimpleNamespace(
        name=device.name,
        major=device.compute_capability[0],
        minor=device.compute_capability[1],
        total_memory=device.memory_bytes,
        multi_processor_count=device.sms,
        max_threads_per_multi_processor=device.max_warps_per_sm * device.warp_size,
        max_threads_per_block=1024,
        warp_size=device.warp_size,
        L2_cache_size=device.l2_bytes,
        regs_per_multiprocessor=device.registers_per_sm,
        shared_memory_per_block=(
            device.max_shared_bytes_per_block if device.is_amd else _DEFAULT_SHARED_BYTES_PER_BLOCK
        ),
        shared_memory_per_block_optin=device.max_shared_bytes_per_block,
        shared_memory_per_multiprocessor=device.shared_bytes_per_sm,
        max_shared_memory_per_block_optin=device.max_shared_bytes_per_block,
        max_shared_memory_per_multiprocessor=device.shared_bytes_per_sm,
        is_integrated=0,
        is_multi_gpu_board=0,
        # With what a driver says of the chip's settings, which host code cuts off at the colon.
        gcnArchName=f"{device.arch}:sramecc+:xnack-" if device.is_amd else "",
    )


def _replace(owner: Any, name: str, value: object, restore: contextlib.ExitStack) -> None:  # noqa: ANN401 - a module
    restore.callback(setattr, owner, name, getattr(owner, name))
    setattr(owner, name, value)


def _own_function(name: str, answer: Callable[..., object]) -> Callable[..., object]:
    """Return a function that is under no other name: TorchDynamo wants one rule for each function, by name."""

    def function(*arguments: object, **options: object) -> object:
        return answer(*arguments, **options)

    function.__name__ = function.__qualname__ = name
    return function


def _uncompiled(model: Any = None, **_options: object) -> Any:  # noqa: ANN401 - what it was given
    """Stand for `torch.compile`, which would compile for the host: what runs is the code as it was written."""
    return model if model is not None else lambda decorated: decorated


def _no_bytes(*_arguments: object, **_options: object) -> int:
    """Stand for an allocator that was never asked."""
    return 0


def _nothing(*_arguments: object, **_options: object) -> None:
    """Stand for a call whose effect nobody can see."""

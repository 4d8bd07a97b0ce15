"""A GPU's stand-in for what a launch costs the host: Triton's own dispatch and launcher over a driver of no deeds.

`flopwatch.static.pretend_gpu` records what it sees, which costs more than what is measured here. This records nothing:
Triton compiles for an H200, binds, specialises and launches by its own C code, as on a GPU; the calls that would reach
the GPU return at once. Three things are replaced: libcuda (by `libcuda.c`), the memory of tensors "on the GPU" (by the
host's), and the questions which device is current and what it has.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import functools
import operator
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest import mock

import torch
import triton
from triton.runtime.driver import driver as active_driver

from flopwatch.kernels import launch

if TYPE_CHECKING:
    from collections.abc import Iterator

_SOURCE = Path(__file__).with_name("libcuda.c")
_CAPABILITY = (9, 0)
#: An H200's, under a name of its own: what is chosen here is kept for no GPU, and nothing was measured for it before.
_PROPERTIES = SimpleNamespace(
    name="stand-in",
    major=9,
    minor=0,
    multi_processor_count=132,
    shared_memory_per_multiprocessor=233472,
    total_memory=150754820096,
)
_DEVICE = torch.device("cuda", 0)
_STREAM = SimpleNamespace(cuda_stream=0, synchronize=lambda: None)


class StandInTensor(torch.Tensor):
    """A tensor of the host that says it is on the GPU, at no cost for each question about it."""

    is_cuda = True
    device = _DEVICE
    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment] # torch documents it so # noqa: SLF001

    def half(self) -> torch.Tensor:
        """Return a copy that is on the GPU too."""
        return super().half().as_subclass(StandInTensor)

    def to(self, dtype: torch.dtype) -> torch.Tensor:  # type: ignore[override] # all that is asked of it here
        """Return a copy of that dtype that is on the GPU too, or itself."""
        return super().to(dtype).as_subclass(StandInTensor)


def compiler() -> str | None:
    """Return the C compiler that Triton would take; None where there is none."""
    return os.environ.get("CC") or shutil.which("gcc") or shutil.which("clang")


@functools.cache
def load_libcuda() -> ctypes.CDLL:
    """Build the library and load it, so that Triton finds it under the name of the real one."""
    command = compiler()
    if command is None:
        raise RuntimeError("no C compiler: Triton needs one too")
    folder = Path(tempfile.mkdtemp(prefix="flopwatch-libcuda-"))
    atexit.register(shutil.rmtree, folder)  # Triton 3.6 links each kernel's launcher against it
    library = folder / "libcuda.so.1"
    headers = Path(triton.__file__).parent / "backends" / "nvidia" / "include"
    flags = ("-O2", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", f"-I{headers}")
    subprocess.run([command, *flags, "-o", library, _SOURCE], check=True)  # noqa: S603 - our own source
    loaded = ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)
    with triton.knobs.nvidia.scope():
        triton.knobs.nvidia.libcuda_path = str(folder)
        from triton.backends.nvidia.driver import CudaUtils  # noqa: PLC0415 - importing it looks for libcuda

        CudaUtils()  # a singleton
    return loaded


@contextlib.contextmanager
def stand_in_gpu() -> Iterator[ctypes.CDLL]:
    """Launch kernels on nothing.

    Yields:
        The library that stands for libcuda, which can tell what it was given.
    """
    library = load_libcuda()
    with contextlib.ExitStack() as restore:
        for owner, name, value in (
            (torch, "empty", _on_gpu(torch.empty)),
            (torch, "zeros", _on_gpu(torch.zeros)),
            (launch, "PLAIN_TENSORS", launch.PLAIN_TENSORS | {StandInTensor}),
            (torch.cuda, "current_device", _current_device),
            (torch.cuda, "current_stream", lambda _device=None: _STREAM),
            (torch.cuda, "is_current_stream_capturing", lambda: False),
            (torch.cuda, "is_available", lambda: True),
            (torch.cuda, "device_count", lambda: 1),
            (torch.cuda, "get_device_capability", lambda _device=None: _CAPABILITY),
            (torch.cuda, "get_device_properties", lambda _device=None: _PROPERTIES),
            (torch.cuda, "get_device_name", lambda _device=None: _PROPERTIES.name),
            (torch.cuda, "_exchange_device", _exchange_device),
            (torch.cuda, "_maybe_exchange_device", _exchange_device),
        ):
            restore.enter_context(mock.patch.object(owner, name, value))
        from triton.backends.nvidia.driver import CudaDriver  # noqa: PLC0415 - as above

        driver = CudaDriver()
        # PyTorch built for CUDA has a function of C here.
        driver.get_current_stream = operator.index
        driver.get_benchmarker = lambda: _first_wins
        for name in ("_active", "_default"):
            restore.enter_context(mock.patch.object(active_driver, name, driver))
        yield library


def tensor(*shape: int, dtype: torch.dtype = torch.float16) -> torch.Tensor:
    """Return a tensor on the stand-in."""
    return torch.zeros(shape, dtype=dtype).as_subclass(StandInTensor)


def _on_gpu(original: Any) -> Any:  # noqa: ANN401 - torch's own function
    def make(*shape: Any, device: torch.device | str | None = None, **options: Any) -> torch.Tensor:  # noqa: ANN401 - likewise
        made: torch.Tensor = original(*shape, **options)
        return made if device is None else made.as_subclass(StandInTensor)

    return make


def _lazy_init() -> None:
    pass


def _current_device() -> int:
    """Return the device as torch does, which first asks whether CUDA was initialised."""
    _lazy_init()
    return 0


def _exchange_device(_index: int) -> int:
    return 0


def _first_wins(call: Any, quantiles: Any = None, **_options: object) -> Any:  # noqa: ANN401 - what a tuner asks
    """Time nothing: every configuration is compiled and launched once, and the first is chosen."""
    call()
    return [1.0] * len(quantiles) if quantiles else 1.0

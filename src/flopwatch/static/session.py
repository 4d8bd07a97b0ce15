"""Put a pretended GPU together, and take it apart again."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
import torch.utils._device as default_device
import triton
from torch.autograd.function import BackwardCFunction
from triton.runtime.driver import driver as active_driver

from flopwatch.errors import UsageError
from flopwatch.static.capture import Capture
from flopwatch.static.compile_once import CompileOnce, let_go
from flopwatch.static.driver import PretendedDriver
from flopwatch.static.stage_times import time_stages
from flopwatch.static.stages import stop_where_unfit
from flopwatch.static.tensors import PretendedTensors, pretended_tensors
from flopwatch.static.torch_cuda import patch_torch
from flopwatch.static.triton_version import check_triton_version

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flopwatch.static.device import Device
    from flopwatch.static.recorder import Recorder

# Kernels that Triton compiled by itself lie in its cache without ptxas's words; the number changes with their format.
# What does not fit a device has no code (`flopwatch.static.stages`), and may fit another of the same target.
_CACHE_FOLDER = "flopwatch-1-{most_shared_bytes}"

_now_pretending = False
_wanted_default: torch.device | None = None


@contextlib.contextmanager
def pretended(recorder: Recorder, kind: Literal["meta", "cpu"]) -> Iterator[None]:
    """Pretend `recorder`'s device, with tensors of that kind; see `flopwatch.static.pretend.pretend_gpu`."""
    check_triton_version()
    interpreted = kind == "cpu" and triton.knobs.runtime.interpret
    if interpreted:
        from flopwatch.static.interpreter import (  # noqa: PLC0415 - needs interpretation on
            correct_interpreter,
            refuse_compiled,
        )

        correct_interpreter()
    with contextlib.ExitStack() as restore:
        _pretend_one(restore)
        patch_torch(recorder.device, restore)
        _activate(PretendedDriver(recorder.device), restore)
        _use_own_cache(recorder.device, restore)
        stop_where_unfit(recorder.device, restore)
        time_stages(restore)
        Capture(recorder, kind, restore).install()
        if interpreted:
            refuse_compiled(restore)
        tensors = pretended_tensors(kind)
        _follow_autograd(tensors, restore)
        tensors.follow_operators(restore)
        restore.enter_context(tensors)
        _keep_default_device(restore)
        yield


def _pretend_one(restore: contextlib.ExitStack) -> None:
    global _now_pretending  # noqa: PLW0603 - what is patched is global too
    if _now_pretending:
        raise UsageError("a GPU is already pretended", todo="leave its context before you enter another")
    _now_pretending = True

    def stop() -> None:
        global _now_pretending  # noqa: PLW0603 - what is patched is global too
        _now_pretending = False

    restore.callback(stop)


def _activate(driver: PretendedDriver, restore: contextlib.ExitStack) -> None:
    for name in ("_active", "_default"):
        restore.callback(setattr, active_driver, name, getattr(active_driver, name))
        setattr(active_driver, name, driver)


def cache_folder(device: Device) -> str:
    """Return where Triton keeps what it compiles while `device` is pretended: a folder inside its own cache."""
    return str(Path(triton.knobs.cache.dir) / _CACHE_FOLDER.format(most_shared_bytes=device.max_shared_bytes_per_block))


def _use_own_cache(device: Device, restore: contextlib.ExitStack) -> None:
    restore.enter_context(triton.knobs.cache.scope())
    triton.knobs.cache.dir = cache_folder(device)
    if triton.knobs.cache.manager_class is None:  # whoever has chosen another cache keeps it
        triton.knobs.cache.manager_class = CompileOnce
        restore.callback(let_go)  # what failed without a launch


def _follow_autograd(tensors: PretendedTensors, restore: contextlib.ExitStack) -> None:
    """Enter the mode again for the backward of custom functions, which the autograd engine calls without any mode."""
    original = BackwardCFunction.apply

    def apply(context: Any, *gradients: Any) -> Any:  # noqa: ANN401 - the original's
        with tensors.again():
            return original(context, *gradients)  # type: ignore[no-untyped-call] # torch's

    restore.callback(setattr, BackwardCFunction, "apply", original)
    BackwardCFunction.apply = apply  # type: ignore[method-assign] # restored on exit


def _keep_default_device(restore: contextlib.ExitStack) -> None:
    """Have what code set as the default device, such as a suite as it is imported, for the next pretence too."""
    before = default_device.CURRENT_DEVICE
    if _wanted_default is not None:
        torch.set_default_device(_wanted_default)

    def leave() -> None:
        global _wanted_default  # noqa: PLW0603 - torch's own is global too
        _wanted_default = default_device.CURRENT_DEVICE
        torch.set_default_device(before)

    restore.callback(leave)

"""Launch again what was launched before, past Triton's dispatch.

Triton's dispatch finds the compiled kernel anew in each call: it binds the arguments, classes each of them, asks the
autotuner and the heuristics, and evaluates the grid: 16 to 24 us of a host with an H200, where the kernel itself may
take 5. Here the first call of a set of arguments goes through that dispatch, and what it launched is kept under those
arguments, all of them by value and the addresses by what they leave divided by 16. Nothing else decides which kernel
Triton launches, and with which numbers; so a later call with an equal key launches the same, at the cost of a
look-up.

What would be known to Triton's dispatch alone is left to it: hooks of profilers, anything that replaces the dispatch
itself (flopwatch's log of tuners), a debugging mode, another current device or driver (flopwatch's pretended GPU),
kernels that are interpreted or run on AMD (where the size of a tensor matters too), tensors of other classes or without
strides and memory of their own, and modes that stand between torch and its tensors.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from triton import knobs
from triton.runtime.autotuner import Autotuner, Heuristics
from triton.runtime.driver import driver as active_driver
from triton.runtime.jit import JITFunction

if TYPE_CHECKING:
    from collections.abc import Hashable

#: Triton calls a pointer aligned that is a multiple of so many bytes, and of a pointer asks nothing else.
_ALIGNMENT = 16
#: Sets of arguments that a function keeps; with more it begins anew, and pays for Triton's dispatch once each.
CAPACITY = 4096
#: Classes whose tensors are what they say; a subclass may be anything.
PLAIN_TENSORS = frozenset({torch.Tensor, torch.nn.Parameter})


def _own(owner: Any) -> Any:
    """Return the `run` that Triton gave its class, below what says that it wraps it; else what no `run` is."""
    run = getattr(owner.run, "__wrapped__", owner.run)
    code = getattr(run, "__code__", None)
    return run if code is not None and code.co_filename == sys.modules[owner.__module__].__file__ else object()


_RUN = _own(JITFunction)
_TUNED_RUN = _own(Autotuner)
_HEURISTIC_RUN = _own(Heuristics)


@dataclass(frozen=True, kw_only=True, slots=True)
class Launched:
    """What Triton's dispatch launched.

    Attributes:
        compiled: the kernel, as the launch returned it; None where it was interpreted.
        grid: its programs.
        numbers: its arguments that are neither pointers nor constants, in their order; None for one that is not given.
        tuner: Triton's autotuner that chose the configuration; None where nothing was chosen.
    """

    compiled: Any
    grid: tuple[int, ...]
    numbers: tuple[int | float | None, ...]
    tuner: Any = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Launch:
    """What a call launches.

    Attributes:
        compiled: the kernel; Triton (3.9) unloads it once nothing refers to it any more.
        run: launches it.
        grid: programs along three axes.
        numbers: the arguments after the pointers; None for constants, which the kernel was compiled with.
        driver: Triton's, for whose device it was compiled.
        device: that device.
        tuner: chose the configuration, if any did.
        answers: where the tuner had its choices then. In another place there may be another choice.
    """

    compiled: Any
    run: Any
    grid: tuple[int, int, int]
    numbers: tuple[int | float | None, ...]
    driver: Any
    device: int
    tuner: Any
    answers: Any

    def __call__(self, *pointers: int) -> None:
        """Launch on the current stream."""
        stream = self.driver.get_current_stream(self.device)
        function, metadata = self.compiled.function, self.compiled.packed_metadata
        self.run(*self.grid, stream, function, metadata, None, None, None, *pointers, *self.numbers)


class Launches:
    """What calls of one kernel launched, by their arguments.

    Args:
        function: the kernel itself, without autotuner and heuristics.
    """

    def __init__(self, function: Any) -> None:
        self._function = function
        self._kept: dict[Hashable, Launch] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def forget(self) -> None:
        """Have the next call of each set of arguments go through Triton's dispatch, as after choosing anew."""
        self._kept.clear()

    def find(self, key: Hashable) -> Launch | None:
        """Return what a call with this key launched, unless Triton's dispatch may have more to do now."""
        launch = self._kept.get(key)
        if launch is None or not self._is_plain():
            return None
        if launch.tuner is not None and launch.tuner.cache is not launch.answers:
            return None
        driver = active_driver.active
        if driver is not launch.driver or driver.get_current_device() != launch.device:
            return None
        return launch

    def keep(self, key: Hashable | None, launched: Launched, *, pointers: int) -> None:
        """Keep what was launched with the arguments of `key`; where that may not be all that decides, do nothing.

        Args:
            key: as `tensors_key` and every other argument of the call give it; None keeps nothing.
            launched: by Triton's dispatch.
            pointers: of the kernel's arguments, which come first, then the numbers, then its constants.
        """
        function, compiled, numbers = self._function, launched.compiled, launched.numbers
        if key is None or not hasattr(compiled, "packed_metadata"):
            return
        driver = active_driver.active
        if not self._is_plain() or function.used_global_vals or driver.get_current_target().backend != "cuda":
            return
        constants = [parameter.is_constexpr for parameter in function.params]
        given = pointers + len(numbers)
        if any(constants[:given]) or not all(constants[given:]):
            return
        if len(self._kept) >= CAPACITY:
            self._kept.clear()
        x, y, z = (*launched.grid, 1, 1)[:3]
        self._kept[key] = Launch(
            compiled=compiled,
            run=compiled.run,
            grid=(x, y, z),
            numbers=(*numbers, *[None] * (len(constants) - given)),
            driver=driver,
            device=driver.get_current_device(),
            tuner=launched.tuner,
            answers=None if launched.tuner is None else launched.tuner.cache,
        )

    def _is_plain(self) -> bool:
        """Tell whether Triton's dispatch would do nothing but find and launch."""
        runtime = knobs.runtime
        return (
            JITFunction.run is _RUN
            and Autotuner.run is _TUNED_RUN
            and Heuristics.run is _HEURISTIC_RUN
            and not _has_calls(runtime.launch_enter_hook)
            and not _has_calls(runtime.launch_exit_hook)
            and not runtime.debug
            and not knobs.compilation.instrumentation_mode
            and getattr(runtime, "add_stages_inspection_hook", None) is None
            and not self._function.pre_run_hooks
            and not torch._C._len_torch_function_stack()  # noqa: SLF001 - no public name; the modes that are entered
            and not torch._C._len_torch_dispatch_stack()  # noqa: SLF001 - likewise
        )


def tensors_key(*tensors: torch.Tensor) -> tuple[Hashable, ...] | None:
    """Return all that Triton's dispatch looks at of tensors, for `Launches`; None where one is no plain tensor.

    >>> tensors_key(torch.zeros(2, 3))[:3]
    (torch.Size([2, 3]), (3, 1), torch.float32)
    """
    key: list[Hashable] = []
    for tensor in tensors:
        if type(tensor) not in PLAIN_TENSORS:
            return None
        try:
            key += (tensor.shape, tensor.stride(), tensor.dtype, tensor.device, tensor.data_ptr() % _ALIGNMENT)
        except RuntimeError:  # sparse, nested, or wrapped by a transformation of torch.func
            return None
    return tuple(key)


def starts_aligned(tensor: torch.Tensor) -> bool:
    """Tell whether a tensor that is not in the key is as those were that Triton's dispatch saw.

    The allocators of torch align to 512 bytes; one that does not is left to Triton's dispatch.
    """
    return tensor.data_ptr() % _ALIGNMENT == 0


def _has_calls(hook: Any) -> bool:
    return hook is not None and bool(getattr(hook, "calls", True))

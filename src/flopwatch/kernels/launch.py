"""Launch again what was launched before, past Triton's dispatch.

Triton's dispatch finds the compiled kernel anew in each call: it binds the arguments, classes each of them, asks the
autotuner and the heuristics, and evaluates the grid: 16 to 24 us of a host with an H200, where the kernel itself may
take 5. Here the first call of a set of arguments goes through that dispatch, and what it launched is kept under those
arguments, all of them by value and the addresses by what they leave divided by 16. Nothing else decides which kernel
Triton launches, and with which numbers; so a later call with an equal key launches the same, at the cost of a
look-up. Of tensor maps the dispatch is spared the encoding, too (`flopwatch.kernels.tensor_maps`).

What would be known to Triton's dispatch alone is left to it: hooks of profilers, anything that replaces the dispatch
itself (flopwatch's log of tuners), a debugging mode, another current device or driver (flopwatch's pretended GPU),
kernels that are interpreted, run on AMD (where the size of a tensor matters too) or are given memory of their own, a
launcher that is not as those that were read (`flopwatch.kernels.handover`), tensors of other classes or without strides
and memory of their own, and modes that stand between torch and its tensors.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from triton import knobs
from triton.runtime.autotuner import Autotuner, Heuristics
from triton.runtime.driver import driver as active_driver
from triton.runtime.jit import JITFunction

from flopwatch.kernels.handover import Handover, handover_of

if TYPE_CHECKING:
    from collections.abc import Hashable

#: Triton calls a pointer aligned that is a multiple of so many bytes, and of a pointer asks nothing else.
_ALIGNMENT = 16
#: Sets of arguments that a function keeps; with more it begins anew, and pays for Triton's dispatch once each.
CAPACITY = 4096
#: Makes a kernel's pointers of the stream and of those that a call hands over. With them comes what they point into, to
#: be kept until the launch is made: another thread may take the next workspace of the stream in between.
Arrange: TypeAlias = Callable[..., tuple[tuple[int, ...], object]]
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
        pointers: how many of its arguments are pointers, or descriptors of tensors; they come first.
        numbers: its arguments after these, which are no constants; None for one that is not given.
        descriptors: those among the pointers, by their place.
        tuner: Triton's autotuner that chose the configuration; None where nothing was chosen.
        arrange: makes the kernel's pointers of the stream and of those that later calls hand over; None where they are
            the same.
    """

    compiled: Any
    grid: tuple[int, ...]
    pointers: int
    numbers: tuple[int | float | None, ...]
    descriptors: Mapping[int, Any] = field(default_factory=dict)
    tuner: Any = None
    arrange: Arrange | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Launch:
    """What a call launches.

    Attributes:
        compiled: the kernel; Triton (3.9) unloads it once nothing refers to it any more.
        function: it was compiled of, whose hooks Triton calls.
        handover: launches it.
        driver: Triton's, for whose device it was compiled.
        device: that device.
        tuner: chose the configuration, if any did.
        answers: where the tuner had its choices then. In another place there may be another choice.
        arrange: as of `Launched`.
    """

    compiled: Any
    function: Any
    handover: Handover
    driver: Any
    device: int
    tuner: Any
    answers: Any
    arrange: Arrange | None

    def __call__(self, *pointers: int) -> None:
        """Launch on the current stream."""
        stream = self.driver.get_current_stream(self.device)
        if self.arrange is not None:
            pointers, _held = self.arrange(stream, *pointers)
        self.handover(stream, pointers)


class Launches:
    """What calls of one function launched, by their arguments."""

    def __init__(self) -> None:
        self._kept: dict[Hashable, Launch] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def forget(self) -> None:
        """Have the next call of each set of arguments go through Triton's dispatch, as after choosing anew."""
        self._kept.clear()

    def find(self, key: Hashable) -> Launch | None:
        """Return what a call with this key launched, unless Triton's dispatch may have more to do now."""
        launch = self._kept.get(key)
        if launch is None or not _is_plain(launch.function):
            return None
        if launch.tuner is not None and launch.tuner.cache is not launch.answers:
            return None
        driver = active_driver.active
        if driver is not launch.driver or driver.get_current_device() != launch.device:
            return None
        return launch

    def keep(self, key: Hashable | None, launched: Launched) -> None:
        """Keep what was launched with the arguments of `key`; where that may not be all that decides, do nothing.

        Args:
            key: as `tensors_key` and every other argument of the call give it; None keeps nothing.
            launched: by Triton's dispatch.
        """
        compiled, numbers = launched.compiled, launched.numbers
        function = getattr(getattr(compiled, "src", None), "fn", None)
        if key is None or function is None or not hasattr(compiled, "packed_metadata"):
            return
        driver = active_driver.active
        if not _is_plain(function) or function.used_global_vals or driver.get_current_target().backend != "cuda":
            return
        constants = [parameter.is_constexpr for parameter in function.params]
        given = launched.pointers + len(numbers)
        if any(constants[:given]) or not all(constants[given:]):
            return
        x, y, z = (*launched.grid, 1, 1)[:3]
        handover = handover_of(
            compiled,
            (x, y, z),
            [launched.descriptors.get(place) for place in range(launched.pointers)],
            (*numbers, *[None] * (len(constants) - given)),
        )
        if handover is None:
            return
        if len(self._kept) >= CAPACITY:
            self._kept.clear()
        self._kept[key] = Launch(
            compiled=compiled,
            function=function,
            handover=handover,
            driver=driver,
            device=driver.get_current_device(),
            tuner=launched.tuner,
            answers=None if launched.tuner is None else launched.tuner.cache,
            arrange=launched.arrange,
        )


def _is_plain(function: Any) -> bool:
    """Tell whether Triton's dispatch would do nothing but find a kernel of this function and launch it."""
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
        and not function.pre_run_hooks
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

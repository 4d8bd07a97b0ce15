"""Launch again what was launched before, past Triton's dispatch.

Triton's dispatch finds the compiled kernel anew in each call: it binds the arguments, classes each of them, asks the
autotuner and the heuristics, and evaluates the grid: 16 to 24 us of a host with an H200, where the kernel itself may
take 5. Here the first call of a set of arguments goes through that dispatch, and what it launched is kept under those
arguments, all of them by value and the addresses by what they leave divided by 16. Nothing else decides which kernel
Triton launches, and with which numbers; so a later call with an equal key launches the same, at the cost of a
look-up, and what it returns lies as that of the first one did. Of tensor maps the dispatch is spared the encoding, too
(`flopwatch.kernels.tensor_maps`).

What would be known to Triton's dispatch alone is left to it: hooks of profilers, anything that replaces the dispatch
itself (flopwatch's log of tuners), a debugging mode, another current device or driver (flopwatch's pretended GPU),
kernels that are interpreted, run on AMD (where the size of a tensor matters too) or are given memory of their own, a
launcher that is not as those that were read (`flopwatch.kernels.handover`), tensors of other classes or without strides
and memory of their own, and modes that stand between torch and its tensors.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import torch
from torch._C import _len_torch_dispatch_stack, _len_torch_function_stack  # no public names; the modes that are entered
from triton import knobs
from triton.runtime.autotuner import Autotuner, Heuristics
from triton.runtime.driver import driver as active_driver
from triton.runtime.jit import JITFunction

from flopwatch.kernels.handover import Handover, handover_of

#: Triton calls a pointer aligned that is a multiple of so many bytes, and of a pointer asks nothing else.
ALIGNMENT = 16
#: Of a key as `key_of` gives it, where the shape of the first tensor is.
SHAPE = 1
#: Sets of arguments that a function keeps; with more it begins anew, and pays for Triton's dispatch once each.
CAPACITY = 4096
#: Makes a kernel's pointers of the stream, of those that a call hands over and of that of what it returns. With them
#: comes what they point into, to be kept until the launch is made: another thread may take the next workspace of the
#: stream in between.
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
        current_device: asks which one is current.
        current_stream: asks for that of a device.
        tuner: chose the configuration, if any did.
        answers: where the tuner had its choices then. In another place there may be another choice.
        arrange: as of `Launched`.
        shape: of what the call returns.
        strides: likewise.
        dtype: likewise.
    """

    compiled: Any
    function: Any
    handover: Handover
    driver: Any
    device: int
    current_device: Callable[[], int]
    current_stream: Callable[[int], int]
    tuner: Any
    answers: Any
    arrange: Arrange | None
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype


@dataclass(frozen=True, kw_only=True, slots=True)
class Chain:
    """What a call launches that is computed of copies of its operands.

    Attributes:
        copies: makes them, in one piece of memory, that of the first operand at its start.
        second_begins: where that of the second one begins, in bytes.
        key: of what is launched of the copies.
        cut: copies from that what the call returns; None where it is all of it.
    """

    copies: Launch
    second_begins: int
    key: Hashable
    cut: Launch | None


class Launches:
    """What calls of one function launched, by their arguments."""

    def __init__(self) -> None:
        self._kept: dict[Hashable, Launch] = {}
        self._chains: dict[Hashable, Chain] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def forget(self) -> None:
        """Have the next call of each set of arguments go through Triton's dispatch, as after choosing anew."""
        self._kept.clear()
        self._chains.clear()

    def again(self, key: Hashable | None, addresses: tuple[int, ...]) -> torch.Tensor | None:
        """Launch what a call with this key launched, and return what the kernel writes.

        Return None, having launched nothing, where nothing is kept of such a call, or Triton's dispatch may have more
        to do now.

        Args:
            key: as `key_of` gives it.
            addresses: likewise.
        """
        launch = self._kept.get(key)
        if launch is None or not _is_current(launch):
            return None
        return _launched(launch, launch.current_stream(launch.device), addresses)

    def again_of_copies(self, key: Hashable | None, addresses: tuple[int, ...]) -> torch.Tensor | None:
        """Launch what a call with this key launched that is computed of copies, and return what `again` would.

        None where nothing is kept of such a call, or Triton's dispatch may have more to do now; nothing of the copies
        is needed then, if they were made.

        Raises:
            torch.OutOfMemoryError: there is no memory for them.
        """
        chain = self._chains.get(key)
        if chain is None:
            return None
        copies, product = chain.copies, self._kept.get(chain.key)
        if product is None or not _is_current(product):
            return None
        if copies.driver is not product.driver or copies.function.pre_run_hooks:
            return None
        stream = product.current_stream(product.device)
        memory = _launched(copies, stream, addresses)
        if memory is None:
            return None
        start = memory.data_ptr()
        out = _launched(product, stream, (start, start + chain.second_begins))
        if out is None or chain.cut is None:
            return out
        return _launched(chain.cut, stream, (out.data_ptr(),))

    def keep(self, key: Hashable | None, launched: Launched, out: torch.Tensor) -> None:
        """Keep what was launched with the arguments of `key`; where that may not be all that decides, do nothing.

        Args:
            key: as `key_of` gives it; None keeps nothing.
            launched: by Triton's dispatch.
            out: what it writes and the call returns: the one tensor that is not in the key, which says nothing of where
                it starts. The allocators of torch align to 512 bytes; what one wrote that does not is not kept.
        """
        launch = None if key is None else _launch_of(launched, out)
        if launch is None:
            return
        if len(self._kept) >= CAPACITY:
            self._kept.clear()
        self._kept[key] = launch

    def keep_of_copies(
        self,
        key: Hashable | None,
        copies: tuple[Launched, torch.Tensor],
        product: Hashable | None,
        cut: tuple[Launched, torch.Tensor] | None,
        *,
        second_begins: int,
    ) -> None:
        """Keep that a call with `key` is computed of copies of its two operands, or do nothing, as `keep`.

        Args:
            key: as `key_of` gives it; None keeps nothing.
            copies: what makes them, and the memory that they are in.
            product: the key of the call of the copies.
            cut: what copies from the result of that what is returned, and that; None where it is all of it.
            second_begins: as of `Chain`.
        """
        if key is None or product is None:
            return
        made, last = _launch_of(*copies), None if cut is None else _launch_of(*cut)
        if made is None or (cut is not None and last is None):
            return
        if len(self._chains) >= CAPACITY:
            self._chains.clear()
        self._chains[key] = Chain(copies=made, second_begins=second_begins, key=product, cut=last)


def _launch_of(launched: Launched, out: torch.Tensor) -> Launch | None:
    """Return how to launch that again; None where its arguments may not be all that decides."""
    compiled, numbers = launched.compiled, launched.numbers
    function = getattr(getattr(compiled, "src", None), "fn", None)
    if function is None or not hasattr(compiled, "packed_metadata") or out.data_ptr() % ALIGNMENT:
        return None
    driver = active_driver.active
    if not _is_plain(function) or function.used_global_vals or driver.get_current_target().backend != "cuda":
        return None
    constants = [parameter.is_constexpr for parameter in function.params]
    given = launched.pointers + len(numbers)
    if any(constants[:given]) or not all(constants[given:]):
        return None
    x, y, z = (*launched.grid, 1, 1)[:3]
    handover = handover_of(
        compiled,
        (x, y, z),
        [launched.descriptors.get(place) for place in range(launched.pointers)],
        (*numbers, *[None] * (len(constants) - given)),
    )
    if handover is None:
        return None
    return Launch(
        compiled=compiled,
        function=function,
        handover=handover,
        driver=driver,
        device=driver.get_current_device(),
        current_device=_shortest(driver.get_current_device),
        current_stream=driver.get_current_stream,
        tuner=launched.tuner,
        answers=None if launched.tuner is None else launched.tuner.cache,
        arrange=launched.arrange,
        shape=tuple(out.shape),
        strides=out.stride(),
        dtype=out.dtype,
    )


def _launched(launch: Launch, stream: int, addresses: tuple[int, ...]) -> torch.Tensor | None:
    """Launch, and return what the kernel writes; None, having launched nothing, where that lies as it did not."""
    out = empty_on_gpu(launch.shape, launch.strides, launch.dtype)
    pointers = (*addresses, out.data_ptr())
    if pointers[-1] % ALIGNMENT:
        return None
    if launch.arrange is not None:
        pointers, _held = launch.arrange(stream, *pointers)
    launch.handover.launch(*launch.handover.given(stream, *pointers))
    return out


def _is_current(launch: Launch) -> bool:
    """Tell whether Triton's dispatch would find the same now, and do nothing but launch it."""
    return (
        _is_plain(launch.function)
        and (launch.tuner is None or launch.tuner.cache is launch.answers)
        and active_driver.active is launch.driver
        and launch.current_device() == launch.device
    )


def _is_plain(function: Any) -> bool:
    """Tell whether Triton's dispatch would do nothing but find a kernel of this function and launch it."""
    runtime = knobs.runtime
    enter, leave = runtime.launch_enter_hook, runtime.launch_exit_hook  # chains of hooks, or one, or None
    return (
        JITFunction.run is _RUN
        and Autotuner.run is _TUNED_RUN
        and Heuristics.run is _HEURISTIC_RUN
        and not getattr(enter, "calls", enter)
        and not getattr(leave, "calls", leave)
        and not runtime.debug
        and not knobs.compilation.instrumentation_mode
        and runtime.add_stages_inspection_hook is None
        and not function.pre_run_hooks
        and not _len_torch_function_stack()
        and not _len_torch_dispatch_stack()
    )


def key_of(
    first: torch.Tensor, second: torch.Tensor, others: tuple[Hashable, ...] = (), *more: torch.Tensor
) -> tuple[tuple[Hashable, ...] | None, tuple[int, ...]]:
    """Return all that Triton's dispatch looks at of a call, for `Launches`, and where its tensors lie.

    The key is None where a tensor is no plain one.

    Args:
        first: that the kernel reads.
        second: likewise. Both are written out below: a loop over them costs a fifth more (2026-11-23, Python 3.11).
        others: every other argument of the call.
        more: tensors after these, in the order in which the kernel has them.

    >>> key, _ = key_of(torch.zeros(2, 3), torch.zeros(()), (True,))
    >>> key[:4], key[SHAPE]
    (((True,), torch.Size([2, 3]), (3, 1), torch.float32), torch.Size([2, 3]))
    """
    if type(first) not in PLAIN_TENSORS or type(second) not in PLAIN_TENSORS:
        return None, ()
    try:
        start, other_start = first.data_ptr(), second.data_ptr()
        addresses: tuple[int, ...] = (start, other_start)
        # fmt: off
        key: tuple[Hashable, ...] = (
            others,
            first.shape, first.stride(), first.dtype, first.device, start % ALIGNMENT,
            second.shape, second.stride(), second.dtype, second.device, other_start % ALIGNMENT,
        )
        # fmt: on
        for tensor in more:
            if type(tensor) not in PLAIN_TENSORS:
                return None, ()
            address = tensor.data_ptr()
            addresses += (address,)
            key += (tensor.shape, tensor.stride(), tensor.dtype, tensor.device, address % ALIGNMENT)
    except RuntimeError:  # sparse, nested, or wrapped by a transformation of torch.func
        return None, ()
    return key, addresses


def _empty() -> Callable[[tuple[int, ...], tuple[int, ...], torch.dtype], torch.Tensor]:
    """Return what makes a tensor of a shape, strides and a dtype on the current GPU at the least cost to the host.

    That is the function that code of torch.compile calls for the same. Without it torch works out what is asked for,
    and by whom, which `_is_plain` did: 1.0 us by `torch.empty_strided` and 1.3 by `torch.Tensor.new_empty`, where this
    takes 0.4 (2026-11-23, torch 2.13 on a CPU). A torch without GPUs comes here with a stand-in for one, whose memory
    is the host's.
    """
    has_gpus = torch.version.cuda is not None or torch.version.hip is not None
    found = getattr(torch._C._dynamo.guards, "_empty_strided_cuda" if has_gpus else "_empty_strided_cpu", None)  # noqa: SLF001 - as above
    device = "cuda" if has_gpus else "cpu"
    return found or (lambda shape, strides, dtype: torch.empty_strided(shape, strides, dtype=dtype, device=device))


empty_on_gpu = _empty()


def _shortest(ask: Callable[[], int]) -> Callable[[], int]:
    """Return torch's own function of C, where it is torch that is asked for the current device.

    The one in Python asks first whether CUDA was initialised; what is kept was launched.
    """
    return getattr(torch._C, "_cuda_getDevice", ask) if ask is _CURRENT_DEVICE else ask  # noqa: SLF001 - no public name


_CURRENT_DEVICE = torch.cuda.current_device

"""Tensors of a GPU that is not there: ``device="cuda"`` makes them, and they say that they are on it."""

from __future__ import annotations

import contextlib
import weakref
from typing import TYPE_CHECKING, Any, Literal

import torch
import torch.utils._device as default_device
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack

from flopwatch.errors import UsageError
from flopwatch.static.operators import Operators

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

#: The one device that is pretended.
CUDA = torch.device("cuda", 0)

_MOVES = frozenset({"to", "cuda", "cpu"})
_READS = frozenset(
    {"item", "tolist", "numpy", "cpu", "equal", "allclose", "__bool__", "__int__", "__float__", "__index__"}
    | {"__array__", "__contains__"}
)
# Like CUDA's allocator: allocations start at multiples of 512 bytes, far above the addresses of the host.
_FIRST_ADDRESS = 0x7F00_0000_0000
_ALIGNMENT_BYTES = 512


class PretendedTensors(TorchFunctionMode):
    """Redirect what host code asks of CUDA tensors to tensors that exist.

    A torch function mode and not fake tensors: those on "cuda" with ``requires_grad=True`` abort the process on a CPU
    build of torch.
    """

    def __init__(self, kind: Literal["meta", "cpu"]) -> None:
        super().__init__()
        self.home = torch.device(kind)
        #: Modes that are entered with this one where torch has left all of them.
        self.companions: list[TorchFunctionMode] = []
        self._operators: Operators | None = None

    def follow_operators(self, restore: contextlib.ExitStack) -> None:
        """Let registered operators run what they run on a GPU, until `restore` closes."""
        self._operators = Operators(self.any_on_gpu, self.again, restore)

    @contextlib.contextmanager
    def again(self) -> Iterator[None]:
        """Enter this mode, and its companions, in code that torch calls without them."""
        with contextlib.ExitStack() as entered:
            for mode in (self, *self.companions):
                if not any(mode is present for present in _get_current_function_mode_stack()):
                    entered.enter_context(mode)
            yield

    def any_on_gpu(self, *values: object) -> bool:
        """Return whether any tensor in these values pretends to be on the GPU."""
        return any(self.on_gpu(tensor) for tensor in _tensors(values))

    def on_gpu(self, tensor: torch.Tensor) -> bool:
        """Return whether this tensor pretends to be on the GPU."""
        raise NotImplementedError

    def moved(self, source: torch.Tensor, *, to_gpu: bool, result: torch.Tensor) -> torch.Tensor:
        """Return what a move between host and GPU gives, given what torch made of it."""
        raise NotImplementedError

    def made(self, result: object, *, on_gpu: bool | None, inputs: list[torch.Tensor]) -> None:
        """Remember where a new tensor is; `on_gpu` is None where the caller named no device."""
        raise NotImplementedError

    def call(
        self,
        func: Callable[..., Any],
        name: str,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        inputs: list[torch.Tensor],
    ) -> Any:  # noqa: ANN401 - whatever `func` returns
        """Call `func` with devices already redirected."""
        raise NotImplementedError

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: object,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401 - whatever `func` returns
        name = getattr(func, "__name__", "")
        kwargs = dict(kwargs or {})
        if name == "__get__":
            return self._attribute(func, args)
        inputs = list(_tensors((args, kwargs)))
        if inputs and self.on_gpu(inputs[0]):
            match name:
                case "get_device":
                    return CUDA.index
                case "pin_memory":
                    raise RuntimeError("only dense CPU tensors can be pinned")  # what a GPU's own torch says
                case "record_stream":
                    return None
        if name == "pin_memory":
            return inputs[0]
        if name in _MOVES and inputs:
            return self._move(func, name, args, kwargs, inputs)
        if self._operators is not None:
            self._operators.prepare(func)
        kwargs.pop("pin_memory", None)
        wanted = _wanted_device(func, kwargs)
        on_gpu = None if wanted is None else _is_cuda(wanted)
        if on_gpu:
            kwargs["device"] = self.home
        result = self.call(func, name, args, kwargs, inputs)
        self.made(result, on_gpu=on_gpu, inputs=inputs)
        return result

    def _attribute(self, func: Callable[..., Any], args: tuple[Any, ...]) -> Any:  # noqa: ANN401 - its value
        tensor = args[0]
        match getattr(getattr(func, "__self__", None), "__name__", ""):
            case "device" if self.on_gpu(tensor):
                return CUDA
            case "is_cuda":
                return self.on_gpu(tensor)
            case "is_cpu" | "is_meta" if self.on_gpu(tensor):
                return False
        return func(*args)

    def _move(
        self,
        func: Callable[..., Any],
        name: str,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        inputs: list[torch.Tensor],
    ) -> Any:  # noqa: ANN401 - a tensor
        source = inputs[0]
        wanted = next((value for value in (*args[1:], *kwargs.values()) if _names_device(value)), None)
        if name == "cuda":
            # Without the arguments: a device index, or non_blocking, means nothing here.
            to_gpu, func, args, kwargs = True, torch.Tensor.to, (source, self.home), {}
        elif name == "cpu":
            to_gpu = False
        elif wanted is not None:
            to_gpu = _is_cuda(wanted)
        else:
            to_gpu = self.on_gpu(inputs[-1])
        if to_gpu:
            args = tuple(self.home if _names_device(value) else value for value in args)
            kwargs = {key: self.home if _names_device(value) else value for key, value in kwargs.items()}
        result = self.call(func, name, args, kwargs, inputs)
        return self.moved(source, to_gpu=to_gpu, result=result)


class MetaTensors(PretendedTensors):
    """Tensors with shapes, strides and addresses, but no memory and no values."""

    def __init__(self) -> None:
        super().__init__("meta")
        self._addresses: weakref.WeakKeyDictionary[torch.UntypedStorage, int] = weakref.WeakKeyDictionary()
        self._next_address = _FIRST_ADDRESS

    def on_gpu(self, tensor: torch.Tensor) -> bool:
        """Return whether it is a meta tensor."""
        return tensor.device == self.home

    def moved(
        self,
        source: torch.Tensor,  # noqa: ARG002 - as in the base class
        *,
        to_gpu: bool,  # noqa: ARG002 - likewise
        result: torch.Tensor,
    ) -> torch.Tensor:
        """Return torch's own result, which is on the right device."""
        return result

    def made(self, result: object, *, on_gpu: bool | None, inputs: list[torch.Tensor]) -> None:
        """Do nothing: the device says it."""

    def call(
        self,
        func: Callable[..., Any],
        name: str,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        inputs: list[torch.Tensor],
    ) -> Any:  # noqa: ANN401 - whatever `func` returns
        """Call `func`, unless it would need values.

        Raises:
            UsageError: it would.
        """
        if name == "data_ptr" and self.on_gpu(inputs[0]):
            return self._address(inputs[0])
        if name in _READS or (name == "to" and not _stays_meta(args, kwargs)):
            tensor = next((tensor for tensor in inputs if self.on_gpu(tensor)), None)
            if tensor is not None:
                raise UsageError(
                    f"values of a pretended tensor are read ({name}, shape {tuple(tensor.shape)})",
                    why='a GPU pretended with tensors="meta" has shapes and no values',
                    todo='pretend with tensors="cpu" where host code looks at values',
                )
        kwargs.pop("generator", None)  # meta tensors take none, and draw nothing
        return func(*args, **kwargs)

    def _address(self, tensor: torch.Tensor) -> int:
        storage = tensor.untyped_storage()
        address = self._addresses.get(storage)
        if address is None:
            address = self._next_address
            self._addresses[storage] = address
            self._next_address += (storage.nbytes() // _ALIGNMENT_BYTES + 1) * _ALIGNMENT_BYTES
        return address + int(tensor.storage_offset()) * tensor.element_size()


class HostTensors(PretendedTensors):
    """Tensors with values, in the host's memory.

    What was made for the host is remembered by its storage, so that views agree and a tensor that never left the host
    still says so. Everything else claims to be on the GPU, among it what the autograd engine makes out of our sight.
    """

    def __init__(self) -> None:
        super().__init__("cpu")
        self._host_storages: weakref.WeakSet[torch.UntypedStorage] = weakref.WeakSet()

    def on_gpu(self, tensor: torch.Tensor) -> bool:
        """Return whether its storage was not made for the host."""
        storage = _storage(tensor)
        return storage is None or storage not in self._host_storages

    def moved(self, source: torch.Tensor, *, to_gpu: bool, result: torch.Tensor) -> torch.Tensor:
        """Return a copy where the move crosses over, as a real move does."""
        if to_gpu != self.on_gpu(source) and _storage(result) is _storage(source):
            result = result.clone()
        if not to_gpu:
            self._remember_host(result)
        return result

    def made(self, result: object, *, on_gpu: bool | None, inputs: list[torch.Tensor]) -> None:
        """Remember what is on the host: made there by name, or of tensors that all are there, or of none."""
        if on_gpu is None:
            on_gpu = any(self.on_gpu(tensor) for tensor in inputs)
        if not on_gpu:
            for tensor in _tensors(result):
                self._remember_host(tensor)

    def call(
        self,
        func: Callable[..., Any],
        name: str,  # noqa: ARG002 - the other kind looks at it
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        inputs: list[torch.Tensor],  # noqa: ARG002 - the other kind looks at it
    ) -> Any:  # noqa: ANN401 - whatever `func` returns
        """Call `func`."""
        return func(*args, **kwargs)

    def _remember_host(self, tensor: torch.Tensor) -> None:
        storage = _storage(tensor)
        if storage is not None:
            self._host_storages.add(storage)


def pretended_tensors(kind: Literal["meta", "cpu"]) -> PretendedTensors:
    """Return the mode for that kind of tensors."""
    return MetaTensors() if kind == "meta" else HostTensors()


def _stays_meta(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    wanted = next((value for value in (*args[1:], *kwargs.values()) if _names_device(value)), None)
    return wanted is None or (isinstance(wanted, torch.device) and wanted.type == "meta")


def _wanted_device(func: object, kwargs: dict[str, Any]) -> Any:  # noqa: ANN401 - whatever names a device, or None
    """Return the device that the caller named; else the default one where `func` heeds it.

    `torch.set_default_device` and ``with torch.device(...)`` are a mode below all others, which is asked too late.
    """
    wanted = kwargs.get("device")
    default = default_device.CURRENT_DEVICE
    if wanted is None and default is not None and func in default_device._device_constructors():  # noqa: SLF001 - no public name
        return default
    return wanted


def _names_device(value: object) -> bool:
    return isinstance(value, str | torch.device) or type(value) is int


def _is_cuda(value: str | int | torch.device) -> bool:
    return isinstance(value, int) or torch.device(value).type == "cuda"  # a bare index counts CUDA devices


def _storage(tensor: torch.Tensor) -> torch.UntypedStorage | None:
    try:
        return tensor.untyped_storage()
    except NotImplementedError:  # sparse
        return None


def _tensors(value: object) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _tensors(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from _tensors(item)

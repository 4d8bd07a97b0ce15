"""Which code under test a call executes, and what it asks of torch on the way."""

from __future__ import annotations

import contextlib
import sys
from dataclasses import dataclass
from types import CodeType, FrameType, FunctionType
from typing import TYPE_CHECKING, Any

import torch
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack
from triton.runtime.jit import JITFunction

from flopwatch.static.arguments import ArgumentTexts
from flopwatch.static.recorder import UNKNOWN
from flopwatch.static.tensors import PretendedTensors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


@dataclass(frozen=True, kw_only=True, slots=True)
class Executed:
    """A piece of code that ran: its globals and what its free variables held."""

    code: CodeType
    globals: dict[str, Any]
    free: tuple[object, ...]

    @property
    def key(self) -> tuple[int, ...]:
        """Tells functions of the same code apart, which differ in their free variables."""
        return (id(self.code), *map(id, self.free))


def function_key(function: FunctionType) -> tuple[int, ...]:
    """Return the `Executed.key` of a function's calls."""
    return (id(function.__code__), *(id(content) for content in closure_contents(function)))


def closure_contents(function: FunctionType) -> tuple[object, ...]:
    """Return the values of a function's free variables; None for those not assigned yet."""
    contents: list[object] = []
    for cell in function.__closure__ or ():
        try:
            contents.append(cell.cell_contents)
        except ValueError:
            contents.append(None)
    return tuple(contents)


def is_under(name: object, packages: Sequence[str]) -> bool:
    """Tell whether a dotted name is one of the packages or below one.

    >>> is_under("kernels.matmul", ["kernels"]), is_under("kernels_old", ["kernels"])
    (True, False)
    """
    return isinstance(name, str) and any(name == package or name.startswith(f"{package}.") for package in packages)


class TorchCalls(TorchFunctionMode):
    """Write down every torch function that is called, with the layouts and values of its arguments.

    What returns neither a tensor nor nothing only asks, such as `stride`; `working` has the names of all others.
    """

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[str] = []
        self.working: list[str] = []

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: object,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401 - whatever `func` returns
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        if name != "__get__":
            self.calls.append(
                f"{name}({', '.join([*map(_text, args), *(f'{k}={_text(v)}' for k, v in kwargs.items())])})"
            )
        result = func(*args, **kwargs)
        some = result[0] if isinstance(result, tuple) and result else result
        if name != "__get__" and (some is None or isinstance(some, torch.Tensor)):
            self.working.append(name)
        return result


def _text(value: object) -> str:
    """Describe without addresses, which asking for would hand out in an order of its own."""
    if isinstance(value, torch.Tensor):
        return f"{value.dtype}{tuple(value.shape)}{tuple(value.stride()) if value.layout is torch.strided else ''}"
    if isinstance(value, list | tuple):
        return f"({', '.join(map(_text, value))})"
    text = ArgumentTexts().text(value)
    return type(value).__name__ if text.startswith(UNKNOWN) else text


class Watch:
    """What ran while it was watched.

    Attributes:
        packages: the dotted names of the code under test.
        executed: every piece of it that ran, by `Executed.key`, in order.
        torch_calls: every torch function that was called, in order.
        torch_work: of these the names, but for those that only ask something of a tensor.
    """

    def __init__(self, packages: Sequence[str]) -> None:
        self.packages = tuple(packages)
        self.executed: dict[tuple[int, ...], Executed] = {}
        self.torch_calls: list[str] = []
        self.torch_work: list[str] = []
        # Kept alive by the value, so that no other code can come to the same id.
        self._foreign: dict[int, CodeType] = {}

    def called(self, code: CodeType) -> bool:
        """Tell whether code that is not of the packages ran."""
        return id(code) in self._foreign

    def profile(self, frame: FrameType, event: str, _argument: object) -> None:
        """Take note of a call; for `sys.setprofile`."""
        if event != "call" or id(frame.f_code) in self._foreign:
            return
        code = frame.f_code
        if not is_under(frame.f_globals.get("__name__"), self.packages):
            self._foreign[id(code)] = code
            return
        values = frame.f_locals if code.co_freevars else {}
        ran = Executed(code=code, globals=frame.f_globals, free=tuple(values.get(name) for name in code.co_freevars))
        self.executed.setdefault(ran.key, ran)


@contextlib.contextmanager
def watched(packages: Sequence[str]) -> Iterator[Watch]:
    """Watch what this thread runs of `packages`, where a GPU is pretended.

    A profile function that was set before pauses meanwhile. Triton's compiler is not watched: what it makes is known
    by its binaries, and watching it takes longer than it does.
    """
    watch = Watch(packages)
    calls = TorchCalls()
    compile_kernel = JITFunction._do_compile  # noqa: SLF001 - where Triton's compiler begins
    previous = sys.getprofile()
    JITFunction._do_compile = _unprofiled(compile_kernel)  # noqa: SLF001 - likewise
    try:
        with calls, _accompanying(calls):
            sys.setprofile(watch.profile)
            try:
                yield watch
            finally:
                sys.setprofile(previous)
    finally:
        JITFunction._do_compile = compile_kernel  # noqa: SLF001 - likewise
        watch.torch_calls, watch.torch_work = calls.calls, calls.working


@contextlib.contextmanager
def _accompanying(mode: TorchFunctionMode) -> Iterator[None]:
    """Have a mode entered wherever the pretended GPU's is, such as in registered operators and in backward passes."""
    pretended = [present for present in _get_current_function_mode_stack() if isinstance(present, PretendedTensors)]
    for tensors in pretended:
        tensors.companions.append(mode)
    try:
        yield
    finally:
        for tensors in pretended:
            tensors.companions.remove(mode)


def _unprofiled(original: Callable[..., Any]) -> Callable[..., Any]:
    def method(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - the original's
        profile = sys.getprofile()
        sys.setprofile(None)
        try:
            return original(*args, **kwargs)
        finally:
            sys.setprofile(profile)

    return method

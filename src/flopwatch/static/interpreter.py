"""Make Triton's interpreter compute what the device does, and say so where it cannot.

The interpreter of Triton 3.6 to 3.9 keeps bfloat16 as bare bits and calculates with those; it skips
``tl.device_assert``, returns nothing from ``tl.extra.libdevice``, reads beyond the end of a tensor whatever lies there,
and more (docs/interpreter.md). What small kernels find wrong is repaired; what stays wrong ends the kernel that uses
it, as does what the interpreter does not have.
"""

from __future__ import annotations

import enum
import functools
from typing import TYPE_CHECKING, Any

import numpy as np
import triton
from triton.experimental.gluon._runtime import GluonJITFunction
from triton.runtime import interpreter
from triton.runtime.errors import InterpreterError
from triton.runtime.jit import JITFunction

from flopwatch.errors import UsageError
from flopwatch.static.interpreter_bfloat16 import calculate_bfloat16
from flopwatch.static.interpreter_bounds import keep_in_bounds
from flopwatch.static.interpreter_deadline import limit_launches
from flopwatch.static.not_covered import NotCovered

if TYPE_CHECKING:
    import contextlib
    from collections.abc import Callable, Mapping
    from types import TracebackType


class Coverage(enum.Enum):
    """What becomes of a feature: the interpreter has it right, it was repaired, or its kernels are not covered."""

    RIGHT = "right"
    REPAIRED = "repaired"
    NOT_COVERED = "not covered"


@functools.cache
def correct_interpreter() -> Mapping[str, Coverage]:
    """Make interpreted kernels compute what the device does, or end with `NotCovered`; the second call does nothing.

    Small kernels probe the installed version first, so that only what is wrong is replaced, and once more afterwards.

    Returns:
        What became of each feature, by its name.

    Raises:
        UsageError: interpretation is off: Triton was imported without ``TRITON_INTERPRET=1``.
    """
    if not triton.knobs.runtime.interpret:
        raise UsageError(
            "kernels are not interpreted",
            why="TRITON_INTERPRET was not set when Triton was imported",
            todo="set TRITON_INTERPRET=1 before",
        )
    from flopwatch.static.interpreter_features import FEATURES  # noqa: PLC0415 - its kernels need interpretation

    _tell_what_is_missing()
    wrong = [feature for feature in FEATURES if not feature.right()]
    needed = dict.fromkeys(feature.repair for feature in wrong if feature.repair is not None)
    for repair in sorted(needed, key=lambda repair: repair is calculate_bfloat16):  # last, to widen for the others too
        repair()
    still_wrong = [feature for feature in FEATURES if not feature.right()]
    for feature in still_wrong:
        feature.refuse()
    keep_in_bounds()
    limit_launches()
    found = dict.fromkeys((feature.name for feature in FEATURES), Coverage.RIGHT)
    found |= dict.fromkeys((feature.name for feature in wrong), Coverage.REPAIRED)
    return found | dict.fromkeys((feature.name for feature in still_wrong), Coverage.NOT_COVERED)


def refuse_compiled(restore: contextlib.ExitStack) -> None:
    """Refuse to launch, until `restore`, what is compiled although kernels are interpreted: Gluon, which always is.

    Nothing runs it here, so that its outputs would stay as they were.
    """
    original = JITFunction.run

    @functools.wraps(original)
    def run(function: Any, *arguments: Any, warmup: bool, **named: Any) -> Any:  # noqa: ANN401 - untyped triton
        if not warmup:
            raise NotCovered("Gluon" if isinstance(function, GluonJITFunction) else "a kernel that is compiled")
        return original(function, *arguments, warmup=warmup, **named)

    restore.callback(setattr, JITFunction, "run", original)
    JITFunction.run = run


def _tell_what_is_missing() -> None:
    """Let a kernel end with `NotCovered` where the interpreter itself, and not the kernel, is at fault."""

    def missing(_self: object, name: str) -> object:
        raise _Missing(name.removeprefix("create_"))

    interpreter.InterpreterBuilder.__getattr__ = missing
    executor = interpreter.GridExecutor
    executor.__call__ = _telling(executor.__call__)


class _Missing(NotCovered, AttributeError):  # noqa: N818 - as its parent
    """The interpreter has no such operation; who only asks whether it has is told so, as usual."""


def _telling(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def call(self: object, *arguments: Any, **named: Any) -> Any:  # noqa: ANN401 - the kernel's
        try:
            return original(self, *arguments, **named)
        except InterpreterError as error:
            cause = _cause(error)
            if isinstance(cause, NotCovered):
                raise NotCovered(cause.feature) from None
            if isinstance(cause, NotImplementedError) or _is_the_interpreters_own(cause):
                raise NotCovered(f"{type(cause).__name__}: {cause}") from error
            raise

    return call


def _cause(error: BaseException) -> BaseException:
    """Return what was raised first; each function of a kernel wraps it once more."""
    while isinstance(error, InterpreterError) and error.__cause__ is not None:
        error = error.__cause__
    return error


def _is_the_interpreters_own(error: BaseException) -> bool:
    """Tell whether the interpreter broke, rather than the kernel: by the file that raised.

    Assertions are excepted: the interpreter makes them of kernels and their descriptors.
    """
    if isinstance(error, AssertionError):
        return False
    return _file(error.__traceback__) == interpreter.__file__ or type(error).__module__.startswith(np.__name__)


def _file(trace: TracebackType | None) -> str:
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return "" if trace is None else trace.tb_frame.f_code.co_filename

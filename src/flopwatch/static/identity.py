"""Prove, without a GPU, that two checkouts would run exactly the same for a case: then there is nothing to measure.

What is compared: the device code of every launch, byte for byte, with what its launcher hands over; the launches in
their order, each with grid, arguments and the layout and sharing of its memory; the configurations of autotuned
kernels, all of which are compiled and launched; and the host code, by its bytecode and by all data that its names lead
to (`flopwatch.static.reached`), with every torch function it calls. Equal identities mean equal work on the GPU and on
the host. Unequal ones may be false: where anything cannot be told, a case has no identity and is measured.

What is assumed of the two sides:

* the same interpreter, torch, triton, flopwatch, suite files, environment variables and device;
* whatever is not of the packages under test is the same;
* the call is deterministic, and its host code takes the same way on a GPU as on a pretended one. Ways that were not
  taken count too, except for what a kernel that was launched would compile to on them;
* host code does not read what the autotuner chose, its own text or its docstrings;
* at the top of a module, assignments to names, decorators and class bodies only define; other statements count whole.
"""

from __future__ import annotations

import gc
import hashlib
import inspect
from collections import Counter
from dataclasses import dataclass
from types import FunctionType
from typing import TYPE_CHECKING, Any

from flopwatch.static.bytecode import code_facts, nested_code
from flopwatch.static.recorder import UNKNOWN
from flopwatch.static.tree import loaded_effects

if TYPE_CHECKING:
    from collections.abc import Iterable

    from flopwatch.model import Case
    from flopwatch.static.reached import Reached
    from flopwatch.static.recorder import LaunchFailure, Recorder
    from flopwatch.static.watch import Executed, Watch
    from flopwatch.suite import Suite


@dataclass(frozen=True, kw_only=True, slots=True)
class CaseIdentity:
    """What a case runs, as hashes that are equal only where that is the same.

    Attributes:
        fingerprint: of all parts together; empty where the case has no identity.
        kernel_code: of the binaries, in the order of the launches.
        launches: of grids, arguments and calls of torch.
        configurations: of what autotuned kernels choose from, and what does not fit the device.
        host: of the host code and the data it refers to.
        cause: why there is no identity.
        torch_work: the torch functions that it and its inputs call, in order, but for those that only ask something of
            a tensor; known without an identity, too. `launches` has their arguments.
    """

    fingerprint: str = ""
    kernel_code: str = ""
    launches: str = ""
    configurations: str = ""
    host: str = ""
    cause: str = ""
    torch_work: tuple[str, ...] = ()


def is_same(base: CaseIdentity, head: CaseIdentity) -> bool:
    """Tell whether both sides are proved to run the same.

    >>> is_same(CaseIdentity(cause="unknown"), CaseIdentity(cause="unknown"))
    False
    """
    return bool(base.fingerprint) and base.fingerprint == head.fingerprint


def differing_parts(base: CaseIdentity, head: CaseIdentity) -> tuple[str, ...]:
    """Name what differs, for people; empty where the sides are the same or one of them has no identity.

    >>> differing_parts(CaseIdentity(fingerprint="1", host="a"), CaseIdentity(fingerprint="2", host="b"))
    ('host code',)
    """
    if not base.fingerprint or not head.fingerprint:
        return ()
    words = {
        "kernel_code": "kernel code",
        "launches": "launches",
        "configurations": "configurations",
        "host": "host code",
    }
    return tuple(word for part, word in words.items() if getattr(base, part) != getattr(head, part))


def more_torch_work(base: CaseIdentity, head: CaseIdentity) -> tuple[str, ...]:
    """Name the torch functions that head calls more often, each with how many times more, for people.

    >>> more_torch_work(CaseIdentity(torch_work=("empty",)), CaseIdentity(torch_work=("clone", "empty", "clone")))
    ('clone (2 times)',)
    """
    more = Counter(head.torch_work) - Counter(base.torch_work)
    return tuple(f"{name} ({times} times)" if times > 1 else name for name, times in more.items())


def case_identity(recorder: Recorder, watch: Watch, suite: Suite, case: Case) -> CaseIdentity:
    """Return the identity of a case that was called under a pretended GPU.

    Make the inputs and the call inside ``pretend_gpu(device, tensors="meta")`` and, inside that,
    `flopwatch.static.watch.watched`; the same call serves `kernel_facts`. Ask for the identity when both are left,
    where Triton is as the code under test made it.

    Returns:
        The identity, or only its `cause` and `torch_work` where there is none.
    """
    from flopwatch.static.reached import UnknownValueError  # noqa: PLC0415 - torch loads only where it is needed

    torch_work = tuple(watch.torch_work)
    cause = _unknown_launch(recorder) or _reads_clock(watch)
    if cause:
        return CaseIdentity(cause=cause, torch_work=torch_work)
    try:
        host = _host(recorder, watch, suite, case)
    except UnknownValueError as error:
        return CaseIdentity(cause=str(error), torch_work=torch_work)
    except RecursionError:
        return CaseIdentity(cause="host code refers to data that is nested too deeply", torch_work=torch_work)
    parts = {
        "kernel_code": _hash(_binaries(recorder)),
        "launches": _hash(
            [
                *((seen.kernel, seen.grid, seen.config, seen.variant, seen.arguments) for seen in recorder.launches),
                *watch.torch_calls,
            ]
        ),
        "configurations": _hash(
            [
                *((tuning.kernel, tuning.keys, tuning.configs) for tuning in recorder.tunings),
                *((failed.kernel, failed.config, failed.variant, str(failed.error)) for failed in recorder.failures),
            ]
        ),
        "host": host,
    }
    return CaseIdentity(fingerprint=_hash(parts.items()), torch_work=torch_work, **parts)


def _unknown_launch(recorder: Recorder) -> str:
    """Return why nothing can be said of what was launched; empty where something can."""
    for failure in recorder.failures:
        if not _does_not_fit(failure):
            return f"{failure.kernel} does not compile: {type(failure.error).__name__}"
    for launch in recorder.launches:
        if not launch.binary_hash:
            return f"{launch.kernel} is interpreted"
        unknown = [argument for argument in launch.arguments if UNKNOWN in argument.partition("=")[2]]
        if unknown:
            return f"{launch.kernel} is launched with {unknown[0]}, whose contents are not to be had"
    launched = {launch.binary_hash for launch in recorder.launches}
    for key, kernel in recorder.compiled.items():
        if key not in launched:
            return f"{kernel.name} is compiled, and whether anything launches it cannot be seen"
    return ""


def _reads_clock(watch: Watch) -> str:
    """Return that the call decides by times, which a pretended GPU does not have; empty where it does not."""
    from flopwatch.static.torch_cuda import PretendedEvent  # noqa: PLC0415 - heavy

    read = PretendedEvent.elapsed_time.__code__
    return "host code reads how long the GPU took" if watch.called(read) else ""


def _does_not_fit(failure: LaunchFailure) -> bool:
    from triton.runtime.errors import OutOfResources  # noqa: PLC0415 - heavy

    return isinstance(failure.error, OutOfResources)


def _binaries(recorder: Recorder) -> list[object]:
    from flopwatch.static.handles import binary_text  # noqa: PLC0415 - heavy

    texts = {key: binary_text(kernel) for key, kernel in recorder.compiled.items()}
    return [texts[launch.binary_hash] for launch in recorder.launches]


def _host(recorder: Recorder, watch: Watch, suite: Suite, case: Case) -> str:
    """Hash the code that ran and may run, starting from the suite's call and its inputs.

    Most of it is found by name. What ran and is not found so, such as a function that a library keeps, is searched for
    in memory.
    """
    from flopwatch.static.reached import Reached  # noqa: PLC0415 - heavy

    ours = (*watch.packages, type(suite).__module__.partition(".")[0])
    reached = Reached(ours, recorder.kernels)
    _reach_suite(reached, suite, case)
    for tuning in recorder.tunings:
        reached.value(tuning.tuner)
    for kernel in recorder.kernels:
        reached.value(kernel)
    for function in _kept_elsewhere(reached, list(watch.executed.values())):
        reached.value(function)
    return _hash([reached.fingerprint(), *loaded_effects(watch.packages)])


def _reach_suite(reached: Reached, suite: Suite, case: Case) -> None:
    """Walk from the call and from `inputs`, with the attributes of the suite that they name; `reference` stays out."""
    from flopwatch.static.reached import attributes_named  # noqa: PLC0415 - heavy

    call = suite.call(case.provider)
    waiting: list[Any] = [getattr(call, "__func__", call), type(suite).inputs]
    seen: set[str] = set()
    while waiting:
        value = waiting.pop(0)
        reached.value(value)
        function = inspect.unwrap(getattr(value, "__func__", value)) if callable(value) else value
        if isinstance(function, FunctionType):
            found = attributes_named(suite, code_facts(function.__code__).names - seen)
            seen |= found.keys()
            waiting += found.values()


def _kept_elsewhere(reached: Reached, executed: list[Executed]) -> list[FunctionType]:
    """Return the functions that ran and are not reached, sorted; each is reachable from some library's memory.

    Code nested in code that ran is part of it, and what runs while a module is imported is covered by its effects.

    Raises:
        UnknownValueError: there is no function of code that ran.
    """
    from flopwatch.static.reached import UnknownValueError  # noqa: PLC0415 - heavy
    from flopwatch.static.watch import function_key  # noqa: PLC0415 - heavy

    inside = _nested(ran for ran in executed if _is_function(ran))
    missing = {
        ran.key: ran
        for ran in executed
        if ran.key not in reached.functions and _is_function(ran) and id(ran.code) not in inside
    }
    if not missing:
        return []
    referrers = gc.get_referrers(*(ran.code for ran in missing.values()))
    found = {
        key: value for value in referrers if isinstance(value, FunctionType) and (key := function_key(value)) in missing
    }
    importing = _nested(ran for ran in executed if not _is_function(ran))
    for key, ran in missing.items():
        if key not in found and id(ran.code) not in importing:
            name = f"{ran.globals.get('__name__')}.{ran.code.co_qualname}"
            raise UnknownValueError(f"{name} ran, and no function of it is left")
    return sorted(found.values(), key=lambda function: (function.__module__, code_facts(function.__code__).text))


def _is_function(ran: Executed) -> bool:
    return bool(ran.code.co_flags & inspect.CO_OPTIMIZED)


def _nested(executed: Iterable[Executed]) -> set[int]:
    return {id(code) for ran in executed for code in nested_code(ran.code)}


def _hash(parts: Iterable[object]) -> str:
    return hashlib.sha256(repr(list(parts)).encode()).hexdigest()[:16]

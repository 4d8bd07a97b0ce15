"""Everything that host code can come to by the names in it, written down without addresses."""

from __future__ import annotations

import copyreg
import functools
import hashlib
import importlib.util
import inspect
import sys
import threading
from pathlib import PurePath
from types import (
    BuiltinFunctionType,
    ClassMethodDescriptorType,
    FunctionType,
    GetSetDescriptorType,
    MappingProxyType,
    MemberDescriptorType,
    MethodDescriptorType,
    MethodType,
    MethodWrapperType,
    ModuleType,
    WrapperDescriptorType,
)
from typing import TYPE_CHECKING, Any

import torch
from triton.compiler.compiler import CompiledKernel
from triton.runtime.autotuner import Autotuner
from triton.runtime.jit import JITCallable, JITFunction

from flopwatch.static.bytecode import CodeFacts, code_facts
from flopwatch.static.handles import binary_text
from flopwatch.static.tree import package_roots
from flopwatch.static.watch import closure_contents, function_key, is_under

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

# More objects than any launcher refers to (the bundled attention: some 400), and fewer than take a second.
_MOST_OBJECTS = 50_000

_DYNAMIC = frozenset({"globals", "eval", "exec", "__import__", "import_module", "modules", "currentframe", "_getframe"})
_DYNAMIC_OF_MODULES = frozenset({"getattr", "vars", "__dict__", "attrgetter"})
_PLACES = frozenset({"__file__", "__path__", "__spec__", "__loader__", "__cached__", "__builtins__", "__doc__"})
_CLASS_NOISE = frozenset(
    {"__dict__", "__weakref__", "__doc__", "__module__", "__annotations__", "__firstlineno__", "_abc_impl"}
    | {"__static_attributes__", "__annotate__", "__annotate_func__", "__annotations_cache__"}
)
_DESCRIPTORS = (
    ClassMethodDescriptorType,
    GetSetDescriptorType,
    MemberDescriptorType,
    MethodDescriptorType,
    MethodWrapperType,
    WrapperDescriptorType,
)
_LOCKS = (type(threading.Lock()), type(threading.RLock()))
# What an autotuner remembers of its calls. The pretended ones are not to be told from those before.
_TUNER_MEMORY = frozenset(
    {"cache", "configs_timings", "best_config", "bench_time", "nargs", "restore_copies", "do_bench"}
)
_MISSING = object()


class UnknownValueError(Exception):
    """Host code refers to something of which nothing certain can be said."""


class Reached:
    """Walks from functions to all that their names lead to, and writes a canonical text of it.

    Of the packages under test, functions count by their bytecode and classes by all they contain; what belongs to
    anybody else counts by its name, for it is the same on both sides. Data counts by value. An object that was written
    before is written as its number: the text tells the whole graph, whichever order a set or the memory has. A launched
    kernel counts by how it is launched, since its code is known from the binary; other kernels count by their bytecode.

    Raises:
        UnknownValueError: from every method; something that is reached cannot be written down.
    """

    def __init__(self, packages: Sequence[str], kernels: Iterable[Any]) -> None:
        self.packages = tuple(packages)
        self.functions: set[tuple[int, ...]] = set()
        self._kernels = list(kernels)
        self._numbers: dict[int, int] = {}
        self._kept: list[object] = []  # so that no two objects ever have the same id
        self._path: list[str] = []
        self._text: list[str] = []
        self._roots = sorted({str(root) for root in package_roots(packages).values()}, key=len, reverse=True)

    def fingerprint(self) -> str:
        """Hash all that was written."""
        return hashlib.sha256("\n".join(self._text).encode()).hexdigest()[:16]

    def value(self, value: Any) -> None:  # noqa: ANN401 - anything
        """Write an object and what it leads to."""
        if value is None or type(value) in {bool, int, float, complex, str, bytes}:
            self._write(type(value).__name__, self._placeless(value))
        elif isinstance(value, torch.dtype | torch.device | PurePath):
            self._write(type(value).__name__, self._placeless(str(value)))
        elif type(value) in {tuple, frozenset}:
            self._container(value)  # without a number: whether equal constants are one object is the compiler's matter
        elif id(value) in self._numbers:
            self._write("again", self._numbers[id(value)])
        else:
            if len(self._numbers) > _MOST_OBJECTS:
                raise self._unknown(f"leads to more than {_MOST_OBJECTS} objects")
            self._numbers[id(value)] = len(self._numbers)
            self._kept.append(value)
            self._object(value)

    def _object(self, value: Any) -> None:  # noqa: ANN401, C901, PLR0912 - anything; one kind a branch
        match value:
            case list() | dict() | set() if type(value) in {list, dict, set}:
                self._container(value)
            case MappingProxyType():
                self._container(dict(value))
            case FunctionType():
                self._function(value)
            case MethodType():
                self._all("method", value.__func__, value.__self__)
            case type():
                self._class(value)
            case ModuleType():
                if is_under(value.__name__, self.packages):
                    raise self._unknown(f"passes the module {value.__name__} on")
                self._write("module", value.__name__)
            case staticmethod() | classmethod():
                self._all(type(value).__name__, value.__func__)
            case property():
                self._all("property", value.fget, value.fset, value.fdel)
            case functools.cached_property():
                self._all("cached", value.func)
            case functools._lru_cache_wrapper():  # noqa: SLF001 - there is no public name
                self._all("cached", value.__wrapped__, value.cache_parameters())
            case BuiltinFunctionType():
                self._write("builtin", value.__qualname__)
                if not isinstance(value.__self__, ModuleType):
                    self.value(value.__self__)
            case torch.Tensor():
                self._tensor(value)
            case JITCallable():
                self._kernel(value)
            case CompiledKernel():
                self._write("compiled", value.name, *binary_text(value))
            case Autotuner():
                state = {name: item for name, item in vars(value).items() if name not in _TUNER_MEMORY}
                self._all("autotuner", type(value), state)
            case torch._ops.OpOverload() | torch._ops.OpOverloadPacket():  # noqa: SLF001 - no public names
                self._write("operator", str(value))
            case _ if isinstance(value, _DESCRIPTORS):
                self._write("descriptor", value.__qualname__)
            case _ if isinstance(value, _LOCKS):
                self._write("lock")
            case _:
                self._reduced(value)

    def _container(self, value: Any) -> None:  # noqa: ANN401 - a builtin container
        self._write(type(value).__name__, len(value))
        match value:
            case dict():
                for key, item in value.items():
                    self.value(key)
                    self.value(item)
            case set() | frozenset():
                self._write(sorted(map(self._alone, value)))
            case _:
                for item in value:
                    self.value(item)

    def _alone(self, value: object) -> str:
        """Return the hash of one element of a set, which has no place among the others."""
        inner = Reached(self.packages, self._kernels)
        inner.functions = self.functions
        inner.value(value)
        return inner.fingerprint()

    def _function(self, function: FunctionType) -> None:
        name = f"{function.__globals__.get('__name__')}.{function.__code__.co_qualname}"
        self.functions.add(function_key(function))
        if any(function is kernel.fn for kernel in self._kernels):
            self._write("launched", name)
            return
        with _Step(self._path, name):
            if not is_under(function.__globals__.get("__name__"), self.packages):
                # Not its code, which both sides share, but what a decorator or factory bound it to.
                self._all("foreign", name, *closure_contents(function))
                return
            facts = code_facts(function.__code__)
            self._write("function", facts.text)
            self._globals(facts, function.__globals__)
            self._all(
                "bound",
                function.__defaults__,
                function.__kwdefaults__,
                vars(function),
                *closure_contents(function),
            )

    def _globals(self, facts: CodeFacts, names: dict[str, Any]) -> None:
        dynamic = facts.names & _DYNAMIC
        if dynamic:
            raise self._unknown(f"looks names up while it runs ({', '.join(sorted(dynamic))})")
        for name in sorted(facts.names & names.keys()):
            self._write("name", name)
            with _Step(self._path, name):
                self._named(name, names[name], facts, seen=set())
        for level, name in sorted(facts.imports):
            full = importlib.util.resolve_name("." * level + name, names.get("__package__") or "") if level else name
            if not is_under(full, self.packages):
                continue
            if full not in sys.modules:
                raise self._unknown(f"imports {full}, which this call did not")
            self._named(full, sys.modules[full], facts, seen=set())

    def _named(self, name: str, value: Any, facts: CodeFacts, *, seen: set[int]) -> None:  # noqa: ANN401 - anything
        """Write what a name holds; of a module under test, what the code's names find in it."""
        if name in _PLACES:
            self._write("place")
            return
        if not (isinstance(value, ModuleType) and is_under(value.__name__, self.packages)):
            self.value(value)
            return
        if name in facts.bare or facts.names & _DYNAMIC_OF_MODULES:
            raise self._unknown(f"looks names of the module {value.__name__} up while it runs")
        if id(value) in seen:
            return
        seen.add(id(value))
        for attribute in sorted(facts.names):
            held = getattr(value, attribute, _MISSING)
            if held is not _MISSING:
                self._write("attribute", value.__name__, attribute)
                self._named(attribute, held, facts, seen=seen)

    def _class(self, value: type) -> None:
        self._write("class", value.__module__, value.__qualname__)
        if not is_under(value.__module__, self.packages):
            return
        with _Step(self._path, value.__qualname__):
            self._all("bases", type(value), *value.__bases__)
            for name, item in sorted(vars(value).items()):
                if name not in _CLASS_NOISE:
                    self._all(name, item)

    def _kernel(self, kernel: Any) -> None:  # noqa: ANN401 - untyped triton
        launched = any(kernel is other for other in self._kernels)
        self._write("kernel", kernel.__name__, launched)
        with _Step(self._path, kernel.__name__):
            if isinstance(kernel, JITFunction):
                options = ("version", "do_not_specialize", "do_not_specialize_on_alignment", "debug", "noinline")
                hooks = ("_repr", "launch_metadata", "pre_run_hooks")
                self._all("options", [getattr(kernel, name) for name in options + hooks], kernel.arg_names)
            if not launched:
                self.value(kernel.fn)

    def _tensor(self, tensor: torch.Tensor) -> None:
        home = tensor.untyped_storage().device.type
        self._write("tensor", tensor.dtype, tuple(tensor.shape), tuple(tensor.stride()), home)
        if home == "cpu":
            self._write(hashlib.sha256(tensor.detach().contiguous().view(torch.uint8).numpy().tobytes()).hexdigest())
        elif home != "meta":
            raise self._unknown("holds a tensor whose values are on a device")

    def _reduced(self, value: Any) -> None:  # noqa: ANN401 - anything
        """Write an object as pickling takes it apart."""
        try:
            reduce: Callable[[Any], Any] | None = copyreg.dispatch_table.get(type(value))
            parts = reduce(value) if reduce else value.__reduce_ex__(4)
        except Exception as error:
            kind = f"{type(value).__module__}.{type(value).__qualname__}"
            raise self._unknown(f"holds an object of {kind}, whose contents are not to be had") from error
        if isinstance(parts, str):
            self._write(type(value).__module__, type(value).__qualname__, parts)
            return
        make, arguments, state, items, pairs = (*parts, None, None, None)[:5]
        self._all("object", make, arguments, state, list(items or ()), list(pairs or ()))

    def _all(self, word: str, *values: object) -> None:
        self._write(word, len(values))
        for value in values:
            self.value(value)

    def _write(self, *words: object) -> None:
        self._text.append(repr(words))

    def _placeless(self, value: object) -> object:
        """Return a text without the folder of the checkout, which differs between two of them."""
        if isinstance(value, str):
            for root in self._roots:
                value = value.replace(root, "<source>")
        return value

    def _unknown(self, what: str) -> UnknownValueError:
        return UnknownValueError(f"{' > '.join(self._path[-4:])} {what}" if self._path else what)


class _Step:
    """A step of the way to a value, for messages."""

    def __init__(self, path: list[str], name: str) -> None:
        self._path = path
        self._name = name

    def __enter__(self) -> None:
        self._path.append(self._name)

    def __exit__(self, kind: object, *_rest: object) -> None:
        self._path.pop()


def attributes_named(owner: object, names: Iterable[str]) -> dict[str, object]:
    """Return what `names` find on an object or its class, descriptors as they are."""
    found = {name: inspect.getattr_static(owner, name, _MISSING) for name in sorted(set(names))}
    return {name: value for name, value in found.items() if value is not _MISSING}

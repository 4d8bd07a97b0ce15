"""The Triton kernels of a repository and the functions that launch them, read from the source: nothing is imported."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

Function: TypeAlias = "ast.FunctionDef | ast.AsyncFunctionDef"

#: Calls through whose first argument a kernel reads and writes memory.
_LOADS = frozenset({"load", "make_block_ptr", "make_tensor_descriptor"})
_STORES = frozenset({"store", "atomic_add", "atomic_max", "atomic_min", "atomic_cas", "atomic_xchg"})
#: Functions of these names are no entry points, or not those that a first suite should begin with.
_LATE = ("bwd", "backward", "grad", "bench", "test", "main")


@dataclass(frozen=True, kw_only=True, slots=True)
class Kernel:
    """A function that Triton compiles.

    Attributes:
        name: of the function.
        path: of its file, relative to the repository.
        line: where it begins.
        parameters: their names, in order.
        loads: the parameters that it reads memory through.
        stores: the parameters that it writes memory through.
        gluon: whether it is written in Gluon, which Triton's interpreter does not run.
        multiplies: whether it has a matrix product.
    """

    name: str
    path: str
    line: int
    parameters: tuple[str, ...]
    loads: frozenset[str]
    stores: frozenset[str]
    gluon: bool = False
    multiplies: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Launcher:
    """A Python function that launches kernels, itself or through functions of its module.

    Attributes:
        name: what callers call it.
        path: of its file, relative to the repository.
        line: where it begins.
        node: its definition; of an autograd function, that of `forward`.
        kernels: the names of what it launches.
        skip: parameters at the front that the caller does not give, such as the context of an autograd function.
    """

    name: str
    path: str
    line: int
    node: Function
    kernels: tuple[str, ...]
    skip: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Module:
    """What one file defines.

    Attributes:
        path: relative to the repository.
        kernels: its kernels.
        functions: its other functions, by name.
        applied: the `forward` of its autograd functions, by what callers call: ``Softmax.apply``, and
            names given to it.
    """

    path: str
    kernels: tuple[Kernel, ...] = ()
    functions: dict[str, Function] = field(default_factory=dict)
    applied: dict[str, Function] = field(default_factory=dict)


def read_module(path: str, source: bytes) -> Module | None:
    r"""Read one file; None where it is no Python, or has nothing to do with Triton.

    >>> read_module("a.py", b"import triton\n\n@triton.jit\ndef f(x):\n    pass\n").kernels[0].name
    'f'
    """
    if b"triton" not in source:
        return None
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return None
    kernels: list[Kernel] = []
    functions: dict[str, Function] = {}
    applied: dict[str, Function] = {}
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            dialect = _dialect(node)
            if dialect:
                kernels.append(_kernel(node, path, gluon=dialect == "gluon"))
            else:
                functions[node.name] = node
        elif isinstance(node, ast.ClassDef):
            applied |= {
                f"{node.name}.apply": method
                for method in node.body
                if isinstance(method, ast.FunctionDef) and method.name == "forward" and _is_static(method)
            }
        elif isinstance(node, ast.Assign) and (forward := applied.get(ast.unparse(node.value))):
            applied |= {target.id: forward for target in node.targets if isinstance(target, ast.Name)}
    return Module(path=path, kernels=tuple(kernels), functions=functions, applied=applied)


def find_launchers(modules: Sequence[Module]) -> tuple[Launcher, ...]:
    """Return the functions that launch a kernel, those first that a suite should begin with.

    These are public ones, and no backward passes or benchmarks.
    """
    kernels = {kernel.name for module in modules for kernel in module.kernels}
    found = [launcher for module in modules for launcher in _launchers(module, kernels)]
    return tuple(sorted(found, key=_rank))


def launched(node: ast.AST, kernels: Mapping[str, object] | set[str]) -> Iterator[tuple[str, ast.Call]]:
    """Yield the launches ``kernel[grid](...)`` below a node: the kernel's name, and the call."""
    for call in ast.walk(node):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Subscript):
            name = last_name(call.func.value)
            if name in kernels:
                yield name, call


def last_name(node: ast.AST) -> str:
    """Return ``b`` of ``b`` and of ``a.b``, else nothing."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def parameters_of(node: Function) -> list[ast.arg]:
    """Return the parameters that may be given by position."""
    return [*node.args.posonlyargs, *node.args.args]


def _launchers(module: Module, kernels: set[str]) -> Iterator[Launcher]:
    callables = {**module.functions, **module.applied}
    own = {name: {kernel for kernel, _ in launched(node, kernels)} for name, node in callables.items()}
    for _ in callables:  # a chain of calls is no longer than that
        for name, node in callables.items():
            for call in ast.walk(node):
                if isinstance(call, ast.Call):
                    own[name] |= own.get(ast.unparse(call.func), set())
    for name, node in callables.items():
        if own[name] and name.isidentifier():
            yield Launcher(
                name=name,
                path=module.path,
                line=node.lineno,
                node=node,
                kernels=tuple(sorted(own[name])),
                skip=int(name in module.applied),
            )


def _rank(launcher: Launcher) -> tuple[bool, bool, str, int]:
    late = any(word in launcher.name.lower() for word in _LATE)
    return late, launcher.name.startswith("_"), launcher.path, launcher.line


def _is_static(method: ast.FunctionDef) -> bool:
    return any(last_name(decorator) == "staticmethod" for decorator in method.decorator_list)


def _dialect(node: Function) -> str:
    """Return "triton" or "gluon" for a kernel, "" for any other function."""
    for decorator in node.decorator_list:
        called = decorator.func if isinstance(decorator, ast.Call) else decorator
        words = ast.unparse(called).split(".")
        if words[-1] == "jit" and words[0] in ("jit", "triton", "gluon"):
            return "gluon" if words[0] == "gluon" else "triton"
    return ""


def _kernel(node: Function, path: str, *, gluon: bool) -> Kernel:
    parameters = tuple(argument.arg for argument in parameters_of(node))
    assigned: dict[str, list[ast.expr]] = {}
    for statement in ast.walk(node):
        if isinstance(statement, ast.Assign):
            for target in statement.targets:
                assigned.setdefault(last_name(target), []).append(statement.value)
        elif isinstance(statement, ast.AugAssign):
            assigned.setdefault(last_name(statement.target), []).append(statement.value)
    through: dict[bool, set[str]] = {False: set(), True: set()}
    for call in ast.walk(node):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute):
            name = call.func.attr
            if name in _LOADS | _STORES:
                # desc.load([...]) reads through what it is called on, tl.load(pointer) through its first argument.
                places = [call.func.value, *call.args[:1]]
                bases = {base for place in places for base in _bases(place, parameters, assigned, frozenset())}
                through[name in _STORES] |= bases
    text = ast.unparse(node)
    return Kernel(
        name=node.name,
        path=path,
        line=node.lineno,
        parameters=parameters,
        loads=frozenset(through[False]),
        stores=frozenset(through[True]),
        gluon=gluon,
        multiplies=".dot(" in text or "mma" in text,
    )


def _bases(
    node: ast.expr, parameters: Sequence[str], assigned: Mapping[str, list[ast.expr]], seen: frozenset[str]
) -> set[str]:
    """Return the parameters that an address begins with: of ``x + row * stride``, which is ``x``."""
    match node:
        case ast.Name(id=name):
            if name in parameters:
                return {name}
            values = [] if name in seen else assigned.get(name, [])
            return {base for value in values for base in _bases(value, parameters, assigned, seen | {name})}
        case ast.BinOp(left=left, right=right):
            return _bases(left, parameters, assigned, seen) or _bases(right, parameters, assigned, seen)
        case ast.Call(func=ast.Attribute(value=value, attr=attr), args=args, keywords=keywords):
            if attr in _LOADS:
                given = [*args[:1], *(keyword.value for keyword in keywords if keyword.arg == "base")]
                return {base for argument in given for base in _bases(argument, parameters, assigned, seen)}
            return _bases(value, parameters, assigned, seen)
        case ast.Subscript(value=value):
            return _bases(value, parameters, assigned, seen)
    return set()

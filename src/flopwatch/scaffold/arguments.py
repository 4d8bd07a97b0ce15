"""What a launch function wants to be called with, guessed from its source; a trial decides whether a guess is right."""

from __future__ import annotations

import ast
import keyword
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from flopwatch.scaffold.kernels import Function, Kernel, Launcher, Module, last_name, launched, parameters_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

#: A dimension of a parameter, or a name that a function gives to one.
Node: TypeAlias = "tuple[str, str, int]"

#: What only a tensor is asked for.
_ATTRIBUTES = frozenset(
    [
        "shape",
        "stride",
        "numel",
        "device",
        "dtype",
        "element_size",
        "contiguous",
        "is_contiguous",
        "is_cuda",
        "data_ptr",
        "ndim",
        "dim",
        "size",
        "view",
        "reshape",
        "is_floating_point",
        "new_empty",
    ]
)
_LIKE = frozenset({"empty_like", "zeros_like", "ones_like", "full_like", "from_tensor"})
_MOST_DIMENSIONS = 5
#: What is passed for a number that has no default.
_NUMBERS = {"float": "0.5", "int": "2", "bool": "True"}


@dataclass(frozen=True, kw_only=True, slots=True)
class TensorGuess:
    """A tensor argument: its name and, for each dimension, the name of its size; `output` where it is only written."""

    name: str
    dimensions: tuple[str, ...]
    output: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Guess:
    """One way to call a launch function.

    Attributes:
        arguments: names, in order; those with a default are left out, and so is all behind the first of them.
        tensors: those that are tensors.
        numbers: those that are not -> what is passed.
        defaults: the defaults that are floating-point numbers, which a formula may need, such as an epsilon.
        sizes: the names of all sizes, in the order in which they come.
        returns: what is taken of the result: "" all of it, "[0]" the first of several, or the name of an output.
    """

    arguments: tuple[str, ...]
    tensors: tuple[TensorGuess, ...]
    numbers: dict[str, str] = field(default_factory=dict)
    defaults: tuple[float, ...] = ()
    sizes: tuple[str, ...] = ()
    returns: str = ""

    @property
    def inputs(self) -> tuple[TensorGuess, ...]:
        """The tensors that the function reads."""
        return tuple(tensor for tensor in self.tensors if not tensor.output)


class CannotTell(Exception):  # noqa: N818 - an answer, not an error: the suite becomes a template that says so
    """The arguments cannot be told from the source; the message says why."""


@dataclass(slots=True)
class _Evidence:
    """What the source says of one parameter."""

    tensor: bool = False
    kind: str = ""
    exact_rank: int = 0
    least_rank: int = 0
    leading: bool = False
    loaded: bool = False
    stored: bool = False


class _Reader:
    """Gathers evidence on the parameters of a function, and of those of its module that it hands them to."""

    def __init__(self, module: Module, kernels: Mapping[str, Kernel]) -> None:
        self.functions = {**module.functions, **module.applied}
        self.applied = module.applied
        self.kernels = kernels
        self.parents: dict[Node, Node] = {}
        self.known: dict[str, dict[str, _Evidence]] = {}

    def find(self, node: Node) -> Node:
        while (parent := self.parents.get(node, node)) != node:
            node = parent
        return node

    def join(self, first: Node, second: Node) -> None:
        first, second = self.find(first), self.find(second)
        if first != second:
            # A name that somebody chose is the better representative.
            keep, drop = (second, first) if second[2] < 0 <= first[2] else (first, second)
            self.parents[drop] = keep

    def read(self, name: str, node: Function) -> dict[str, _Evidence]:
        if name in self.known:
            return self.known[name]
        found = self.known[name] = {argument.arg: _annotated(argument) for argument in _arguments(node)}
        for child in ast.walk(node):
            match child:
                case ast.Attribute(value=ast.Name(id=owner), attr=attr) if owner in found and attr in _ATTRIBUTES:
                    found[owner].tensor = True
                case ast.Assign(targets=[target], value=value):
                    self._assigned(name, found, target, value)
                case ast.Compare(left=left, ops=[ast.Eq()], comparators=[right]):
                    self._equated(name, found, left, right)
                case ast.Subscript() | ast.Call():
                    if place := _dimension(child, found):
                        owner, index = place
                        rank = index + 1 if index >= 0 else -index
                        found[owner].tensor = True
                        found[owner].leading |= index < 0
                        found[owner].least_rank = max(found[owner].least_rank, rank)
                    if isinstance(child, ast.Call):
                        self._called(name, found, child)
        for kernel, call in launched(node, self.kernels):
            self._launched(found, self.kernels[kernel], call)
        return found

    def _assigned(self, name: str, found: dict[str, _Evidence], target: ast.expr, value: ast.expr) -> None:
        names = [element.id if isinstance(element, ast.Name) else "_" for element in getattr(target, "elts", [target])]
        owner = _whole_shape(value, found)
        if owner and isinstance(target, ast.Tuple | ast.List):
            if any(isinstance(element, ast.Starred) for element in target.elts):
                return
            found[owner].tensor = True
            found[owner].exact_rank = len(names)
            for index, size in enumerate(names):
                if size.strip("_"):
                    self.join((name, owner, index), (name, size, -1))
            return
        values = value.elts if isinstance(value, ast.Tuple) else [value]
        for size, each in zip(names, values, strict=False):
            if (place := _dimension(each, found)) and place[1] >= 0 and size.strip("_"):
                self.join((name, *place), (name, size, -1))

    def _equated(self, name: str, found: dict[str, _Evidence], left: ast.expr, right: ast.expr) -> None:
        first, second = _dimension(left, found), _dimension(right, found)
        if first and second and min(first[1], second[1]) >= 0:
            self.join((name, *first), (name, *second))
        whole = _whole_shape(left, found), _whole_shape(right, found)
        if all(whole):
            for index in range(_MOST_DIMENSIONS):
                self.join((name, whole[0], index), (name, whole[1], index))

    def _called(self, name: str, found: dict[str, _Evidence], call: ast.Call) -> None:
        given = [argument.id if isinstance(argument, ast.Name) else "" for argument in call.args]
        if last_name(call.func) in _LIKE and given and given[0] in found:
            found[given[0]].tensor = True
        called = ast.unparse(call.func)
        if called in self.functions and called != name:
            inner = self.read(called, self.functions[called])
            theirs = list(inner)[int(called in self.applied) :]  # less the context
            pairs = [*zip(given, theirs, strict=False)]
            pairs += [
                (keyword_.value.id, keyword_.arg)
                for keyword_ in call.keywords
                if isinstance(keyword_.value, ast.Name) and keyword_.arg
            ]
            for own, their in pairs:
                if own in found and their in inner:
                    _merge(found[own], inner[their])
                    for index in range(_MOST_DIMENSIONS):
                        self.join((called, their, index), (name, own, index))

    def _launched(self, found: dict[str, _Evidence], kernel: Kernel, call: ast.Call) -> None:
        given = [*zip(call.args, kernel.parameters, strict=False)]
        given += [(keyword_.value, keyword_.arg) for keyword_ in call.keywords if keyword_.arg]
        for argument, parameter in given:
            own = last_name(argument) if isinstance(argument, ast.Name) else ""
            if own in found:
                found[own].loaded |= parameter in kernel.loads
                found[own].stored |= parameter in kernel.stores
                if parameter in kernel.loads | kernel.stores:
                    found[own].tensor = True
                else:
                    found[own].kind = found[own].kind or "float"


def guesses(launcher: Launcher, module: Module, kernels: Mapping[str, Kernel]) -> Iterator[Guess]:
    """Yield the ways to call a launch function, the likeliest first.

    Raises:
        CannotTell: no way is known.
    """
    reader = _Reader(module, kernels)
    evidence = reader.read(launcher.name, launcher.node)
    arguments, defaults = _required(launcher)
    numbers: dict[str, str] = {}
    for argument in arguments:
        entry = evidence[argument]
        if not entry.tensor:
            if entry.kind not in _NUMBERS:
                raise CannotTell(f"nothing tells whether {argument} is a tensor or a number")
            numbers[argument] = _NUMBERS[entry.kind]
    tensors = [argument for argument in arguments if argument not in numbers]
    if not tensors:
        raise CannotTell("it takes no tensor")
    returns, outputs = _result(launcher.node, {name: evidence[name] for name in tensors})
    seen = []
    for ranks, last in _ranks(tensors, evidence):
        named = _named(launcher.name, reader, ranks, last)
        guess = Guess(
            arguments=tuple(arguments),
            tensors=tuple(TensorGuess(name=name, dimensions=named[name], output=name in outputs) for name in tensors),
            numbers=numbers,
            defaults=defaults,
            sizes=tuple(dict.fromkeys(size for name in tensors for size in named[name])),
            returns=returns,
        )
        if guess not in seen:
            seen.append(guess)
            yield guess


def _required(launcher: Launcher) -> tuple[list[str], tuple[float, ...]]:
    """Return the arguments that must be given, and the floating-point defaults of the others."""
    node = launcher.node
    if any(default is None for default in node.args.kw_defaults):
        raise CannotTell("it has arguments that must be given by name")
    parameters = parameters_of(node)
    required = parameters[launcher.skip : len(parameters) - len(node.args.defaults)]
    constants = [
        default.value
        for default in (*node.args.defaults, *node.args.kw_defaults)
        if isinstance(default, ast.Constant) and isinstance(default.value, float)
    ]
    return [argument.arg for argument in required], tuple(constants)


def _result(node: Function, tensors: Mapping[str, _Evidence]) -> tuple[str, frozenset[str]]:
    """Return what to take as the result, and the arguments that are only written."""
    values = [
        child.value for child in ast.walk(node) if isinstance(child, ast.Return) and child.value and not _is_none(child)
    ]
    if values:
        return ("[0]" if all(isinstance(value, ast.Tuple) for value in values) else ""), frozenset()
    written = [name for name, entry in tensors.items() if entry.stored and not entry.loaded]
    if len(written) != 1 or len(tensors) == 1:
        raise CannotTell("it returns nothing, and which of its arguments is the result is not clear")
    return written[0], frozenset(written)


def _is_none(statement: ast.Return) -> bool:
    return isinstance(statement.value, ast.Constant) and statement.value.value is None


def _ranks(
    tensors: Sequence[str], evidence: Mapping[str, _Evidence]
) -> Iterator[tuple[dict[str, int], frozenset[str]]]:
    """Yield numbers of dimensions, and the tensors that only have the last dimension of the first one."""
    unknown = [name for name in tensors if not evidence[name].exact_rank and not evidence[name].least_rank]
    # Who counts dimensions from the last one leaves room for some before.
    for more in (1, 0) if any(evidence[name].leading for name in tensors) else (0, 1):
        ranks = {name: evidence[name].exact_rank or max(evidence[name].least_rank, 1) + more for name in tensors}
        anchor = max((ranks[name] for name in tensors if name not in unknown), default=ranks[tensors[0]])
        ranks |= dict.fromkeys(unknown, anchor)
        yield ranks, frozenset()
        last = frozenset(unknown) - {tensors[0]}
        if last and anchor > 1:
            yield ranks | dict.fromkeys(last, 1), last


def _named(
    function: str, reader: _Reader, ranks: Mapping[str, int], last: frozenset[str]
) -> dict[str, tuple[str, ...]]:
    """Give each dimension the name of its size; those that nothing tells of are as in the first tensor of the rank."""
    anchors: dict[int, list[Node]] = {}
    places: dict[str, list[Node]] = {}
    first = next(iter(ranks))
    shared = Counter(reader.find((function, name, index)) for name, rank in ranks.items() for index in range(rank))
    for name, rank in ranks.items():
        own = [reader.find((function, name, index)) for index in range(rank)]
        if name in last:
            own = [places[first][-1]]
        anchor = anchors.setdefault(rank, own)
        places[name] = [
            there if here[2] >= 0 and shared[here] == 1 else here for here, there in zip(own, anchor, strict=True)
        ]
    classes = list(dict.fromkeys(node for nodes in places.values() for node in nodes))
    names: dict[Node, str] = {}
    unnamed = {1: ("n",), 2: ("rows", "columns")}.get(len(classes)) or [f"n{index}" for index in range(len(classes))]
    taken = set(ranks) | {"self", "shape", "dtype", "seed", "generator", "torch"}
    for index, node in enumerate(classes):
        wanted = node[1].lower() if node[2] < 0 else unnamed[index]
        while wanted in taken or keyword.iskeyword(wanted) or not wanted.isidentifier():
            wanted = f"{wanted}_size" if wanted.isidentifier() else f"n{index}"
        taken.add(wanted)
        names[node] = wanted
    return {name: tuple(names[node] for node in nodes) for name, nodes in places.items()}


def _merge(own: _Evidence, their: _Evidence) -> None:
    own.tensor |= their.tensor
    own.kind = own.kind or their.kind
    own.exact_rank = own.exact_rank or their.exact_rank
    own.leading |= their.leading
    own.least_rank = max(own.least_rank, their.least_rank)
    own.loaded |= their.loaded
    own.stored |= their.stored


def _arguments(node: Function) -> list[ast.arg]:
    return [*parameters_of(node), *node.args.kwonlyargs]


def _annotated(argument: ast.arg) -> _Evidence:
    words = ast.unparse(argument.annotation) if argument.annotation else ""
    return _Evidence(tensor="Tensor" in words, kind=words if words in _NUMBERS else "")


def _whole_shape(node: ast.expr, found: Mapping[str, _Evidence]) -> str:
    """Return ``x`` of ``x.shape`` and of ``x.size()``."""
    match node:
        case ast.Attribute(value=ast.Name(id=owner), attr="shape") if owner in found:
            return owner
        case ast.Call(func=ast.Attribute(value=ast.Name(id=owner), attr="size"), args=[]) if owner in found:
            return owner
    return ""


def _dimension(node: ast.AST, found: Mapping[str, _Evidence]) -> tuple[str, int] | None:
    """Return ``x`` and 1 of ``x.shape[1]``, ``x.size(1)`` and ``x.stride(1)``."""
    match node:
        case ast.Subscript(value=ast.Attribute(value=ast.Name(id=owner), attr="shape"), slice=place):
            pass
        case ast.Call(func=ast.Attribute(value=ast.Name(id=owner), attr="size" | "stride"), args=[place]):
            pass
        case _:
            return None
    try:
        index = ast.literal_eval(place)
    except (ValueError, TypeError):
        return None
    return (owner, index) if owner in found and isinstance(index, int) else None

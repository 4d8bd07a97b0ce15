"""Read the TTIR of a compiled kernel: functions, blocks, operations, their types and their source lines.

The text is read, and not the operations through ``triton._C.libtriton.ir``: its bindings (3.6 to 3.9) give neither
dense constants, nor types, nor locations, and the text of one kernel differs between these versions in names only and
in how a descriptor's type is written.
"""

from __future__ import annotations

import re
from pathlib import PurePath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

from flopwatch.static.traffic.program import Block, Function, Module, Operation, Region, Type

_NAME = r"%[\w$.-]+"
_USE = re.compile(rf"{_NAME}(?:#\d+)?")
_RESULTS = re.compile(rf"^({_NAME}(?::\d+)?(?:, {_NAME}(?::\d+)?)*) = ")
_OPERATION = re.compile(r'^"?([a-z_]\w*\.[\w.]+)"?')
_FUNCTION = re.compile(r"^tt\.func (?:(public|private|nested) )?@([^\s(]+|\"[^\"]+\")\(")
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
_LABEL = re.compile(r"^\^(\w+)(?:\((.*)\))?:")
_SUCCESSOR = re.compile(rf"\^(\w+)(?:\(({_USE.pattern}(?:, {_USE.pattern})*) : [^)]*\))?")
_LOCATION = re.compile(r"^(#loc\w*) = loc\((.*)\)$")
_FILE = re.compile(r'^"(.*)":(\d+):(\d+)$')
_NAMED = re.compile(r'^"[^"]*"\((.*)\)$')
_CALL_SITE = re.compile(r"^callsite\((#loc\w*) at (#loc\w*)\)$")
_TENSOR = re.compile(r"^(?:tensor<)?((?:\d+x)*)(.+?)>?$")
_FOR = re.compile(rf"^scf\.for (?:unsigned )?({_NAME}) = ({_USE.pattern}) to ({_USE.pattern}) step ({_USE.pattern})")
_PAIR = re.compile(rf"({_NAME}) = ({_USE.pattern})")
_TRITONS_OWN = "triton/language/"
_TRUTHS = {"true": 1, "false": 0}


class TtirError(ValueError):
    """The text is not the TTIR that this module reads."""


def parse_type(text: str) -> Type:
    """Return the type that a text names.

    >>> parse_type("tensor<128x1x!tt.ptr<f16>>")
    Type(shape=(128, 1), element='!tt.ptr<f16>')
    >>> parse_type("!tt.tensordesc<tensor<128x64xf16>>") == parse_type("!tt.tensordesc<128x64xf16>")
    True
    """
    text = text.strip()
    if text.startswith("!tt.tensordesc<"):
        block = parse_type(text.removeprefix("!tt.tensordesc<").removesuffix(">"))
        return Type(shape=block.shape, element=f"!tt.tensordesc<{block.element}>")
    if not text.startswith("tensor<") and not text[:1].isdecimal():
        return Type(shape=(), element=text)
    inner = text.removeprefix("tensor<")
    inner = split_list(inner.removesuffix(">") if text.startswith("tensor<") else inner)[0]
    sizes = re.match(r"(?:\d+x)*", inner)
    shape = sizes[0] if sizes else ""
    return Type(shape=tuple(int(size) for size in shape.split("x") if size), element=inner[len(shape) :])


def split_list(text: str) -> list[str]:
    """Split at the commas that are in no brackets.

    >>> split_list("tensor<2x!tt.ptr<f16, 1>>, i32")
    ['tensor<2x!tt.ptr<f16, 1>>', 'i32']
    """
    parts, depth, start = [], 0, 0
    for place, character in enumerate(text):
        if character in "<([{":
            depth += 1
        elif character in ">)]}" and text[place - 1] != "-":
            depth -= 1
        elif character == "," and depth == 0:
            parts.append(text[start:place].strip())
            start = place + 1
    last = text[start:].strip()
    return [*parts, last] if last else parts


def parse_ttir(text: str) -> Module:
    """Read a module.

    Raises:
        TtirError: the text is not TTIR, or has no function that is launched.
    """
    try:
        return _Reader(text).module()
    except (IndexError, KeyError, AttributeError) as error:
        raise TtirError(f"TTIR cannot be read: {type(error).__name__}: {error}") from error


class _Reader:
    """Goes through the lines once. Names are those of the block, or of those around it."""

    def __init__(self, text: str) -> None:
        lines = text.splitlines()
        self.locations = {found[1]: found[2] for line in lines if (found := _LOCATION.match(line))}
        self.lines = [_without_locations(_tamed(line.strip())) for line in lines if not line.startswith("#")]
        self.place = 0
        self.types: dict[int, Type] = {}
        self.scopes: list[dict[str, tuple[int, ...]]] = []

    def module(self) -> Module:
        functions: dict[str, Function] = {}
        entry = None
        while self.place < len(self.lines):
            line = self.lines[self.place][0]
            found = _FUNCTION.match(line)
            self.place += 1
            if found:
                function = self.function(found[2].strip('"'), line)
                functions[function.name] = function
                if found[1] == "public":
                    entry = function
        if entry is None:
            raise TtirError("TTIR has no public function")
        return Module(functions, entry, self.types)

    def function(self, name: str, line: str) -> Function:
        start = line.index("(") + 1
        depth, end = 1, start
        while depth:
            depth += {"(": 1, ")": -1}.get(line[end], 0)
            end += 1
        self.scopes = [{}]
        parameters = self.arguments(line[start : end - 1])
        function = Function(name, parameters, Region([Block("bb0", ())]))
        if line.endswith("{"):
            self.region(function.body)
            self.place += 1
        return function

    def arguments(self, text: str) -> tuple[int, ...]:
        ids = []
        for part in split_list(text):
            name, _, rest = part.partition(": ")
            ids.append(self.define(name, [parse_type(rest.partition(" {")[0])])[0])
        return tuple(ids)

    def define(self, name: str, types: list[Type]) -> tuple[int, ...]:
        ids = tuple(range(len(self.types), len(self.types) + len(types)))
        self.types.update(zip(ids, types, strict=True))
        self.scopes[-1][name] = ids
        return ids

    def use(self, name: str) -> int:
        name, _, index = name.partition("#")
        for scope in reversed(self.scopes):
            if name in scope:
                return scope[name][int(index or 0)]
        raise TtirError(f"{name} is used and nowhere defined")

    def uses(self, text: str) -> tuple[int, ...]:
        return tuple(self.use(name) for name in _USE.findall(text))

    def region(self, region: Region) -> str:
        """Read the lines up to the one that closes the region, which is returned and not passed."""
        while True:
            line, location = self.lines[self.place]
            if line.startswith("}"):
                return line
            self.place += 1
            label = _LABEL.match(line)
            if label:
                arguments = self.arguments(label[2] or "")
                last = region.blocks[-1]
                if len(region.blocks) == 1 and not last.operations and not last.arguments:
                    region.blocks[-1] = Block(label[1], arguments)
                else:
                    region.blocks.append(Block(label[1], arguments))
            elif line:
                region.blocks[-1].operations.append(self.operation(line, location))

    def operation(self, line: str, location: str) -> Operation:
        results = _RESULTS.match(line)
        text = line[results.end() :] if results else line
        operation = _OPERATION.match(text)
        if operation is None:
            raise TtirError(f"a line of TTIR is not understood: {line[:200]}")
        name = operation[1]
        text = name + _STRING.sub('""', text[operation.end() :])
        successors = tuple(
            (label, self.uses(given) if given else ())
            for label, given in (_SUCCESSOR.findall(text) if name.startswith("cf.") else ())
        )
        used = text.partition("^")[0] if successors else text
        heads: list[tuple[str, Type]] = []
        if name == "scf.for":
            operands = self.for_operands(text, heads)
        elif name == "scf.while":
            pairs = _PAIR.findall(text)
            operands = tuple(self.use(value) for _, value in pairs)
            types = [parse_type(part) for part in split_list(_parenthesised(text.partition(") : ")[2]))]
            heads = [(argument, kind) for (argument, _), kind in zip(pairs, types, strict=True)]
        else:
            operands = self.uses(used)
        regions = []
        while text.endswith("{"):
            regions.append(Region([Block("bb0", ())]))
            self.scopes.append({})
            if heads:
                ids = tuple(self.define(argument, [kind])[0] for argument, kind in heads)
                regions[-1].blocks[0] = Block("bb0", ids)
                heads = []
            end = self.region(regions[-1])
            self.scopes.pop()
            location = self.lines[self.place][1]
            self.place += 1
            if not end.endswith("{"):
                text += " " + end
                break
        ids = self.results(results[1], name, text, operands) if results else ()
        return Operation(name, ids, operands, text, tuple(regions), successors, self.line_of(location))

    def for_operands(self, text: str, heads: list[tuple[str, Type]]) -> tuple[int, ...]:
        found = _FOR.match(text)
        if found is None:
            raise TtirError(f"a loop of TTIR is not understood: {text[:200]}")
        pairs = _PAIR.findall(text[found.end() :].partition(" -> ")[0])
        heads.append((found[1], self.types[self.use(found[2])]))
        heads.extend((argument, self.types[self.use(value)]) for argument, value in pairs)
        return (*map(self.use, found.groups()[1:]), *(self.use(value) for _, value in pairs))

    def results(self, names: str, name: str, text: str, operands: tuple[int, ...]) -> tuple[int, ...]:
        count = sum(int(part.partition(":")[2] or 1) for part in names.split(", "))
        types = self.result_types(name, text, operands)
        types = (types * count)[:count] if len(types) < count else types[:count]
        ids: list[int] = []
        for part in names.split(", "):
            each, _, several = part.partition(":")
            ids.extend(self.define(each, types[len(ids) : len(ids) + int(several or 1)]))
        return tuple(ids)

    def result_types(self, name: str, text: str, operands: tuple[int, ...]) -> list[Type]:
        if name == "arith.constant" and text.rpartition(" ")[2] in _TRUTHS:
            return [Type(shape=(), element="i1")]
        if name in {"scf.for", "scf.while", "scf.if"}:
            head = text.partition("{")[0]
            return [parse_type(part) for part in split_list(_parenthesised(head.rpartition(" -> ")[2]))]
        tail = text.rpartition(" : ")[2]
        arrow = max(tail.rfind(" -> "), tail.rfind(" to "))
        if arrow >= 0:
            last = tail[arrow + 4 :].strip()
            return [parse_type(part) for part in split_list(_parenthesised(last) if last.startswith("(") else last)]
        if name == "tt.make_tensor_descriptor":
            return [parse_type("!tt.tensordesc" + split_list(tail)[-1])]
        if name == "tt.addptr":
            return [self.types[operands[0]]]
        kind = parse_type(split_list(tail)[-1])
        if name in {"arith.cmpi", "arith.cmpf"}:
            return [Type(shape=kind.shape, element="i1")]
        if name == "tt.load":
            return [Type(shape=kind.shape, element=kind.pointee)]
        return [kind]

    def line_of(self, location: str) -> str:
        """Return the line of the kernel's own code, and of Triton's library only where there is no other."""
        lines = list(self.lines_of(location))
        return next((f"{PurePath(file).name}:{line}" for file, line in lines if _TRITONS_OWN not in file), "") or next(
            (f"{PurePath(file).name}:{line}" for file, line in lines), ""
        )

    def lines_of(self, location: str) -> Iterator[tuple[str, str]]:
        text = self.locations.get(location, location)
        file, named, call = _FILE.match(text), _NAMED.match(text), _CALL_SITE.match(text)
        if file:
            yield file[1], file[2]
        elif named:
            yield from self.lines_of(named[1])
        elif call:
            yield from self.lines_of(call[1])
            yield from self.lines_of(call[2])


def _tamed(line: str) -> str:
    """Return a line of whose strings nothing can be taken for code.

    >>> _tamed('tt.print "loc(%a) {" : %n')
    'tt.print "loc__a_ _" : %n'
    """
    return _STRING.sub(lambda found: re.sub(r"[(){}%^]", "_", found[0]), line)


def _parenthesised(text: str) -> str:
    """Return what the first parentheses hold, or the text where there are none.

    >>> _parenthesised("(i32, tensor<2xf32>) -> (i1)"), _parenthesised("i32")
    ('i32, tensor<2xf32>', 'i32')
    """
    start = text.find("(")
    return text if start < 0 else text[start + 1 : text.index(")", start)]


def _without_locations(line: str) -> tuple[str, str]:
    """Return a line without its locations, and the last of these.

    >>> _without_locations('^bb0(%a: i32 loc("a"(#loc1)), %b: i32 loc(#loc2)):')
    ('^bb0(%a: i32, %b: i32):', '#loc2')
    """
    parts, location, place = [], "", 0
    while True:
        start = line.find(" loc(", place)
        if start < 0:
            parts.append(line[place:])
            return "".join(parts), location
        parts.append(line[place:start])
        depth, end = 1, start + len(" loc(")
        while depth and end < len(line):
            depth += {"(": 1, ")": -1}.get(line[end], 0)
            end += 1
        location, place = line[start + len(" loc(") : end - 1], end

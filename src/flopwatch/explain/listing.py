"""The text of a kernel at one level as lines that say the same wherever its source lies, each with where it came from.

What is left out: file names, locations, debug information, addresses, comments, and the modules that the names of
functions begin with. A kernel whose file moves, or moves within its file, comes to the same lines.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

#: Of what Triton itself brings along, such as `tl.cdiv`: who reads a difference wants the line of the kernel.
_TRITONS_OWN = "/triton/language/"
_MODULE = re.compile(r"@(?:[A-Za-z_]\w*\.)+(?=\w+__)|(?:\w+?_\$_)+")

_MLIR_ALIAS = re.compile(r"(#loc\d*) = loc\((.*)\)$")
_MLIR_FILE = re.compile(r'"([^"]*)":(\d+):\d+')
_MLIR_USE = re.compile(r"#loc\d*\b")
_MLIR_END = re.compile(r" loc\(([^()]*)\)$")

_LLVM_DEFINITION = re.compile(r"!(\d+) = (?:distinct )?!\w+\((.*)\)$")
_LLVM_FIELD = re.compile(r'(\w+): (?:!(\d+)|"([^"]*)"|(\d+))')
_LLVM_DEBUG = re.compile(r",? !dbg !(\d+)")

_FILE = re.compile(r'\s*\.file\s+(\d+)\s+"([^"]*)"(?:\s+"([^"]*)")?')
_LOC = re.compile(r"\s*\.loc\s+(\d+)\s+(\d+)")
_AT = re.compile(r"([\w.-]+):(\d+):\d+")
_SECTIONS = frozenset({".text", ".data", ".bss"})
_LABEL = re.compile(r"\$?\.?L_*(?:tmp|func_begin|func_end|info_string)\d+:")
_SASS_FILE = re.compile(r'\s*//## File "([^"]*)", line (\d+)(?: inlined at "([^"]*)", line (\d+))?')
_SASS_ADDRESS = re.compile(r"/\*[0-9a-f]{4,}\*/\s*")

#: What numbers a line's values, registers and labels by level: after one new instruction all of them are others.
_NUMBERED = {
    "ttir": re.compile(r"%[\w.$-]+(?:#\d+)?"),
    "ttgir": re.compile(r"%[\w.$-]+(?:#\d+)?"),
    "llir": re.compile(r"%\d+|!\d+|#\d+"),
    "ptx": re.compile(r"%[a-z]+\d+|\$L__BB\d+_\d+"),
    "sass": re.compile(r"\b(?:UR|UP|R|P|B|SB)\d+\b|\.L_x_\d+"),
    "amdgcn": re.compile(r"\b[vsa](?:\d+\b|\[\d+:\d+\])|\.LBB\d+_\d+"),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """A line of a listing: what it says, and the file and line of source that it was made of, where that is known."""

    text: str
    file: str = ""
    line: int = 0


def listing(level: str, text: str) -> list[Line]:
    """Read a kernel's text at a level of `flopwatch.static.ir.LEVELS`.

    >>> text = '''#loc1 = loc("/home/ada/kernels.py":7:20)
    ... module {
    ...   %pid = tt.get_program_id x : i32 loc(#loc1)
    ... }'''
    >>> [line.text for line in listing("ttir", text)], listing("ttir", text)[1].line
    (['module {', '  %pid = tt.get_program_id x : i32', '}'], 7)
    """
    return [
        replace(line, text=_MODULE.sub(_without_module, line.text).rstrip())
        for line in _READERS[level](text.splitlines())
        if line.text.strip()
    ]


def masked(level: str, text: str) -> str:
    """Return a line without the numbers of values and registers, by which it is recognised among others.

    >>> masked("ptx", "add.s32 %r40, %r39, 127;")
    'add.s32 %, %, 127;'
    """
    return _NUMBERED[level].sub("%", text)


def _without_module(found: re.Match[str]) -> str:
    return "@" if found[0].startswith("@") else ""


def _placed(text: str, places: Sequence[tuple[str, int]]) -> Line:
    """Return a line of the innermost place that is not in Triton's own library, or of the innermost where all are."""
    own = [place for place in places if _TRITONS_OWN not in place[0]]
    file, line = (own or list(places) or [("", 0)])[0]
    return Line(text=text, file=file, line=line)


def _mlir(lines: list[str]) -> Iterator[Line]:
    aliases = {found[1]: found[2] for line in lines if (found := _MLIR_ALIAS.match(line))}
    for line in lines:
        if _MLIR_ALIAS.match(line):
            continue
        end = _MLIR_END.search(line)
        yield _placed(_without_locations(line), _mlir_places(end[1], aliases) if end else [])


def _mlir_places(location: str, aliases: dict[str, str], depth: int = 0) -> list[tuple[str, int]]:
    """Return where a location leads to, the innermost first; a name of it has a location of its own."""
    if depth > len(aliases):
        return []
    places = [(found[1], int(found[2])) for found in _MLIR_FILE.finditer(location)]
    for name in _MLIR_USE.findall(location):
        places += _mlir_places(aliases.get(name, ""), aliases, depth + 1)
    return places


def _without_locations(line: str) -> str:
    """Cut every `` loc(...)`` out of a line, whatever is nested in it."""
    kept = []
    while (start := line.find(" loc(")) >= 0:
        kept.append(line[:start])
        depth, quoted, end = 0, False, len(line)
        for index in range(start + len(" loc"), len(line)):
            character = line[index]
            quoted ^= character == '"'
            depth += 0 if quoted else {"(": 1, ")": -1}.get(character, 0)
            if not depth:
                end = index + 1
                break
        line = line[end:]
    return "".join([*kept, line])


def _llvm(lines: list[str]) -> Iterator[Line]:
    nodes = {found[1]: found[2] for line in lines if (found := _LLVM_DEFINITION.match(line))}
    fields = {
        key: {name: (node, text, number) for name, node, text, number in _LLVM_FIELD.findall(body)}
        for key, body in nodes.items()
    }
    for line in lines:
        if line.startswith(("!", "; ModuleID", "source_filename")) or line.lstrip().startswith("#dbg_"):
            continue
        found = _LLVM_DEBUG.search(line)
        yield _placed(_LLVM_DEBUG.sub("", line), _llvm_places(found[1], fields) if found else [])


def _llvm_places(node: str, fields: dict[str, dict[str, tuple[str, str, str]]]) -> list[tuple[str, int]]:
    """Return the chain of places of a location, the innermost first."""
    places = []
    for _ in range(len(fields)):
        of = fields.get(node, {})
        if "line" not in of:
            break
        if file := _llvm_file(node, fields):
            places.append((file, int(of["line"][2])))
        node = of.get("inlinedAt", ("",))[0]
    return places


def _llvm_file(node: str, fields: dict[str, dict[str, tuple[str, str, str]]]) -> str:
    """Return the file of a location: its own, or that of the nearest scope that has one; "" where none has."""
    for _ in range(len(fields)):
        of = fields.get(node, {})
        if "filename" in of:
            return "/".join(of[name][1] for name in ("directory", "filename") if name in of)
        node = of.get("file", of.get("scope", ("",)))[0]
    return ""


def _assembly(lines: list[str], comment: str) -> Iterator[Line]:
    """Read what has directives for lines: PTX, and AMD's assembly."""
    files = {found[1]: "/".join(filter(None, found.groups()[1:])) for line in lines if (found := _FILE.match(line))}
    by_name = {path.rpartition("/")[2]: path for path in files.values()}
    places: list[tuple[str, int]] = []
    is_debug = False
    for line in lines:
        code, _, said = line.partition(comment)
        if ".section" in code or code.strip() in _SECTIONS:
            is_debug = ".debug_" in code and "}" not in code
        if loc := _LOC.match(code):
            chain = [(by_name.get(name, name), int(number)) for name, number in _AT.findall(said)]
            places = chain or [(files.get(loc[1], ""), int(loc[2]))]
        elif not (is_debug or ".debug_" in code or _FILE.match(code) or _LABEL.match(code.strip())):
            yield _placed(code, places)
        is_debug &= code.strip() != "}"


def _ptx(lines: list[str]) -> Iterator[Line]:
    return _assembly(lines, "//")


def _amdgcn(lines: list[str]) -> Iterator[Line]:
    return _assembly(lines, ";")


def _sass(lines: list[str]) -> Iterator[Line]:
    """Read nvdisasm's listing; several places in a row are those of one instruction, the innermost first."""
    places: list[tuple[str, int]] = []
    is_new = True
    for line in lines:
        if found := _SASS_FILE.match(line):
            places = [*([] if is_new else places), (found[1], int(found[2]))]
            places += [(found[3], int(found[4]))] if found[3] else []
            is_new = False
        elif not line.lstrip().startswith("//"):
            is_new = True
            yield _placed(_SASS_ADDRESS.sub("", line), places)


_READERS: dict[str, Callable[[list[str]], Iterator[Line]]] = {
    "ttir": _mlir,
    "ttgir": _mlir,
    "llir": _llvm,
    "ptx": _ptx,
    "amdgcn": _amdgcn,
    "sass": _sass,
}

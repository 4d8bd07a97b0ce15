"""What a code object does, without where it stands: no file, no lines, no docstring."""

from __future__ import annotations

import dis
import functools
from dataclasses import dataclass
from types import CodeType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

# Python 3.13 marks code that has a docstring.
_HAS_DOCSTRING = 0x4000000
_LOADS_GLOBAL = frozenset({"LOAD_GLOBAL", "LOAD_NAME"})
_READS_ATTRIBUTE = frozenset({"LOAD_ATTR", "LOAD_METHOD"})


@dataclass(frozen=True, kw_only=True, slots=True)
class CodeFacts:
    """One code object and those nested in it.

    Attributes:
        text: the instructions with their constants, and every name.
        names: all names of globals and attributes.
        imports: (level, module) of each import statement.
        bare: globals of which the code takes more than an attribute.
    """

    text: str
    names: frozenset[str]
    imports: frozenset[tuple[int, str]]
    bare: frozenset[str]


@functools.cache
def code_facts(code: CodeType) -> CodeFacts:
    """Return what the code does.

    Constants are written where they are loaded and not by their index, which shifts with a docstring.

    >>> def one():
    ...     "Return 1."
    ...     return 1
    >>> code_facts(one.__code__).text == code_facts(compile("def one(): return 1", "", "exec").co_consts[0]).text
    True
    """
    instructions = list(dis.get_instructions(code))
    following = [*instructions[1:], None]
    facts = [code_facts(constant) for constant in code.co_consts if isinstance(constant, CodeType)]
    return CodeFacts(
        text=repr((_head(code), [_instruction_text(instruction) for instruction in instructions])),
        names=frozenset(code.co_names).union(*(fact.names for fact in facts)),
        imports=frozenset(
            (instructions[index - 2].argval, instruction.argval)
            for index, instruction in enumerate(instructions)
            if instruction.opname == "IMPORT_NAME"
        ).union(*(fact.imports for fact in facts)),
        bare=frozenset(
            instruction.argval
            for instruction, after in zip(instructions, following, strict=True)
            if instruction.opname in _LOADS_GLOBAL and (after is None or after.opname not in _READS_ATTRIBUTE)
        ).union(*(fact.bare for fact in facts)),
    )


def nested_code(code: CodeType) -> Iterator[CodeType]:
    """Yield the code objects nested in one, at any depth.

    Not among the facts: those are the same for equal code objects, of which the nested ones are not the same objects.
    """
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from nested_code(constant)


def _head(code: CodeType) -> tuple[object, ...]:
    return (
        code.co_name,
        code.co_argcount,
        code.co_posonlyargcount,
        code.co_kwonlyargcount,
        code.co_flags & ~_HAS_DOCSTRING,
        code.co_names,
        code.co_varnames,
        code.co_freevars,
        code.co_cellvars,
        code.co_exceptiontable,
    )


def _instruction_text(instruction: dis.Instruction) -> tuple[str, object]:
    if instruction.opcode in dis.hasconst:
        return instruction.opname, _constant_text(instruction.argval)
    return instruction.opname, instruction.arg


def _constant_text(value: object) -> str:
    match value:
        case CodeType():
            return code_facts(value).text
        case tuple():
            return f"({', '.join(map(_constant_text, value))})"
        case frozenset():
            return f"{{{', '.join(sorted(map(_constant_text, value)))}}}"
    return f"{type(value).__name__}:{value!r}"

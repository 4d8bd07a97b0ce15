"""Results that somebody else's code may have written: a closed schema, read with the standard library alone.

A pull request's kernels run in the process that is measured, so that what it leaves behind is theirs to forge. Nothing
here believes a length, a name or a number: what is not of the form of `docs/json.md`, key by key, is refused, and what
is, is bounded. The schema is that of the records, by their annotations, so that it cannot fall behind them; which
record it is, a gate's or that of sanitizers, a key decides that the other does not have.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import functools
import json
import math
import re
import types
import typing
from collections import Counter
from typing import TYPE_CHECKING, Any, NoReturn

from flopwatch.errors import UndecidedError
from flopwatch.gate import GateResult
from flopwatch.model import SCHEMA_VERSION
from flopwatch.report.bounds import (
    COUNTS,
    KEYS,
    LENGTHS,
    MAX_BYTES,
    MAX_CHARACTERS,
    MAX_CONFIGURATIONS,
    MAX_DEPTH,
    MAX_DIGITS,
    MAX_ENTRIES,
    MAX_KEYS,
    NAMES,
    RANGES,
)
from flopwatch.sanitize import Sanitized

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

#: Strings in JSON text, and what opens and closes outside of them.
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_BRACKET = re.compile(rb"[\[\]{}]")


class _Refused(Exception):  # noqa: N818 - it never leaves this module
    """Says which key is wrong, and how."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"{path}: {problem}")


def load_result(path: Path) -> GateResult | Sanitized:
    """Read a file, no more of it than a result may have: of a gate, or of sanitizers.

    Raises:
        UndecidedError: it cannot be read, or is refused.
    """
    try:
        if not path.exists():
            raise refused(f"there is no file {path.name}")
        if not path.is_file():
            raise refused("it is no regular file")
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise refused(error.strerror or "it cannot be read") from None
    return _read(data)


def read_result(data: bytes) -> GateResult:
    """Read the result of a gate that anybody may have written.

    Raises:
        UndecidedError: it is not of the form that `flopwatch gate --json` writes; the cause names the key.

    >>> read_result(b"{}")
    Traceback (most recent call last):
    ...
    flopwatch.errors.UndecidedError: the result is refused
      why: $: the key base is missing
      do:  write it with --json of this version of flopwatch, and hand it over unchanged
    """
    result = _read(data)
    if isinstance(result, Sanitized):
        raise refused("$: it is of sanitizers, and not of a gate")
    return result


def refused(why: str) -> UndecidedError:
    """Return the error that says why a result is not believed."""
    return UndecidedError(
        "the result is refused",
        why=why,
        todo="write it with --json of this version of flopwatch, and hand it over unchanged",
    )


def _read(data: bytes) -> GateResult | Sanitized:
    """Read a result by the key that its kind alone has: no kind that a file claims is believed."""
    try:
        value = _parse(data)
        if isinstance(value, dict) and "reports" in value:
            found = typing.cast("Sanitized", _record(value, Sanitized, "$"))
            _check_sanitized(found)
            return found
        result = typing.cast("GateResult", _record(value, GateResult, "$"))
        _check_whole(result)
    except _Refused as error:
        raise refused(str(error)) from None
    return result


def _parse(data: bytes) -> object:
    if len(data) > MAX_BYTES:
        raise _Refused("$", f"more than {MAX_BYTES >> 20} MiB")
    _check_depth(data)
    try:
        return json.loads(
            data.decode("utf-8"),
            object_pairs_hook=_unique,
            parse_int=_integer,
            parse_float=_finite,
            parse_constant=_constant,
        )
    except UnicodeDecodeError:
        raise _Refused("$", "no UTF-8") from None
    except json.JSONDecodeError as error:
        raise _Refused("$", f"no JSON: {error.msg} in line {error.lineno}") from None


def _check_depth(data: bytes) -> None:
    """Refuse deep nesting before the parser, which recurses, meets it."""
    depth = 0
    for bracket in _BRACKET.finditer(_STRING.sub(b"", data)):
        depth += 1 if bracket[0] in b"[{" else -1
        if depth > MAX_DEPTH:
            raise _Refused("$", f"more than {MAX_DEPTH} levels deep")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise _Refused("$", "an object has a key twice")
    return found


def _integer(text: str) -> int:
    if len(text.lstrip("-")) > MAX_DIGITS:
        raise _Refused("$", f"an integer of more than {MAX_DIGITS} digits")
    return int(text)


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise _Refused("$", "a number that is not finite")
    return value


def _constant(_text: str) -> NoReturn:
    raise _Refused("$", "a number that is not finite")


def _record(value: object, kind: type, path: str) -> object:
    """Read a record, of which every key must be known, and every one that has no default be there."""
    if not isinstance(value, dict):
        raise _Refused(path, "no object")
    fields = {field.name: field for field in dataclasses.fields(kind)}
    if unknown := value.keys() - fields.keys():
        raise _Refused(path, f"{len(unknown)} unknown keys" if len(unknown) > 1 else "an unknown key")
    hints = _hints(kind)
    found = {}
    for name, field in fields.items():
        if name in value:
            found[name] = _value(value[name], hints[name], kind, name, f"{path}.{name}")
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise _Refused(path, f"the key {name} is missing")
    derived = {name: found.pop(name) for name, field in fields.items() if not field.init and name in found}
    made = kind(**found)
    for name, said in derived.items():
        if said != getattr(made, name):
            raise _Refused(f"{path}.{name}", f"{said}, but the rest comes to {getattr(made, name)}")
    return typing.cast("object", made)


@functools.cache
def _hints(kind: type) -> Mapping[str, Any]:
    return typing.get_type_hints(kind)


def _value(value: object, hint: Any, owner: type, name: str, path: str) -> object:  # noqa: ANN401 - an annotation is any object
    """Read a value of one annotation of a record."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        if value is None and types.NoneType in arguments:
            return None
        (hint,) = (kind for kind in arguments if kind is not types.NoneType)
        return _value(value, hint, owner, name, path)
    if origin is tuple:
        found = _entries(value, arguments[0], owner, name, path)
        if arguments[-1] is not Ellipsis and len(found) != len(arguments):
            raise _Refused(path, f"not {len(arguments)} entries")
        return found
    if origin is dict:
        return _mapping(value, arguments[1], owner, name, path)
    if dataclasses.is_dataclass(hint):
        return _record(value, typing.cast("type", hint), path)
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        if not isinstance(value, str) or value not in {member.value for member in hint}:
            raise _Refused(path, f"none of {', '.join(member.value for member in hint)}")
        return hint(value)
    return _READERS[hint](value, owner, name, path)


def _entries(value: object, hint: Any, owner: type, name: str, path: str) -> tuple[object, ...]:  # noqa: ANN401 - likewise
    if not isinstance(value, list):
        raise _Refused(path, "no list")
    if len(value) > COUNTS.get(name, MAX_ENTRIES):
        raise _Refused(path, f"more than {COUNTS.get(name, MAX_ENTRIES)} entries")
    return tuple(_value(entry, hint, owner, name, f"{path}[{index}]") for index, entry in enumerate(value))


def _mapping(value: object, hint: Any, owner: type, name: str, path: str) -> dict[str, object]:  # noqa: ANN401 - likewise
    if not isinstance(value, dict):
        raise _Refused(path, "no object")
    if len(value) > MAX_KEYS.get(name, MAX_ENTRIES):
        raise _Refused(path, f"more than {MAX_KEYS.get(name, MAX_ENTRIES)} keys")
    keys = KEYS.get((owner, name))
    for key in value:
        _check_text(key, keys, MAX_CHARACTERS, f"{path}, a key")
    # A key may be anything: the path does not repeat it.
    return {key: _value(entry, hint, owner, name, f"{path}, a value") for key, entry in value.items()}


def _text(value: object, owner: type, name: str, path: str) -> str:
    if not isinstance(value, str):
        raise _Refused(path, "no string")
    _check_text(value, NAMES.get((owner, name)), LENGTHS.get(name, MAX_CHARACTERS), path)
    return value


def _check_text(text: str, pattern: str | None, length: int, path: str) -> None:
    if len(text) > length:
        raise _Refused(path, f"more than {length} characters")
    if pattern is not None and not re.fullmatch(pattern, text):
        raise _Refused(path, "characters that such a name does not have")
    if not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
        raise _Refused(path, "half a character")


def _number(value: object, _owner: type, name: str, path: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _Refused(path, "no number")
    low, high = RANGES.get(name, (-math.inf, math.inf))
    if not low <= value <= high:
        raise _Refused(path, f"not between {low:g} and {high:g}")
    return float(value)


def _whole(value: object, _owner: type, name: str, path: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise _Refused(path, "no integer")
    low, high = RANGES.get(name, (0, math.inf))
    if not low <= value <= high:
        raise _Refused(path, f"not between {low:g} and {high:g}")
    return value


def _flag(value: object, _owner: type, _name: str, path: str) -> bool:
    if not isinstance(value, bool):
        raise _Refused(path, "neither true nor false")
    return value


def _date(value: object, _owner: type, _name: str, path: str) -> dt.date:
    if isinstance(value, str) and re.fullmatch("[0-9]{4}-[0-9]{2}-[0-9]{2}", value):
        try:
            return dt.date.fromisoformat(value)
        except ValueError:
            pass
    raise _Refused(path, "no date such as 2026-12-31")


_READERS: dict[Any, Callable[[object, type, str, str], object]] = {
    str: _text,
    float: _number,
    int: _whole,
    bool: _flag,
    dt.date: _date,
}


def _check_whole(result: GateResult) -> None:
    """Refuse what no single key shows."""
    _check_version(result.schema_version)
    if len({verdict.case for verdict in result.verdicts}) < len(result.verdicts):
        raise _Refused("$.verdicts", "a case twice")
    if any(not verdict.case.values for verdict in result.verdicts):
        raise _Refused("$.verdicts", "a case without values")
    for name, facts in (("facts", result.facts), ("base_facts", result.base_facts)):
        alike = Counter((fact.kernel, fact.device, fact.variant) for fact in facts)
        if alike and max(alike.values()) > MAX_CONFIGURATIONS:
            raise _Refused(f"$.{name}", f"more than {MAX_CONFIGURATIONS} configurations of a kernel")
    _check_kernels(result)
    for index, found in enumerate(result.conclusions):
        if not all(look.beside and all(each.log_ratios for each in look.beside) for look in found.looks):
            raise _Refused(f"$.conclusions[{index}]", "a look at nothing")


def _check_version(version: int) -> None:
    if version != SCHEMA_VERSION:
        raise _Refused("$.schema_version", f"{version}, and this version reads {SCHEMA_VERSION}")


def _check_sanitized(result: Sanitized) -> None:
    """Refuse what no single key of sanitizers shows."""
    _check_version(result.schema_version)
    if len({(report.case, report.tool) for report in result.reports}) < len(result.reports):
        raise _Refused("$.reports", "a case twice, by the same tool")
    if any(not report.case.values for report in result.reports):
        raise _Refused("$.reports", "a case without values")
    if not result.tools.keys() >= {report.tool.value for report in result.reports}:
        raise _Refused("$.tools", "a tool is missing that looked")


def _check_kernels(result: GateResult) -> None:
    """Refuse positions that lead to no fact, or to one several times."""
    if len({entry.case for entry in result.kernels}) < len(result.kernels):
        raise _Refused("$.kernels", "a case twice")
    sizes = {"base": len(result.base_facts), "head": len(result.facts)}
    for index, entry in enumerate(result.kernels):
        lists = {side: (getattr(entry, side), getattr(entry, f"{side}_trials")) for side in sizes}
        for side, (launched, trials) in lists.items():
            positions = [*launched, *trials]
            if any(position >= sizes[side] for position in positions):
                raise _Refused(f"$.kernels[{index}]", f"a position beyond the facts of {side}")
            if len(set(positions)) < len(positions):
                raise _Refused(f"$.kernels[{index}]", f"a fact of {side} twice")
        if any(position >= len(result.fact_changes) for position in entry.changes):
            raise _Refused(f"$.kernels[{index}].changes", "a position beyond the changes")

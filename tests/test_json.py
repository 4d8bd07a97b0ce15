"""The JSON of a gate's result, as `docs/json.md` describes it, is that of the records."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import re
import types
import typing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from flopwatch.gate import GateResult
from flopwatch.model import SCHEMA_VERSION, from_json, to_json

PAGE = (Path(__file__).parent.parent / "docs" / "json.md").read_text(encoding="utf-8")
WORDS: dict[Any, str] = {str: "string", int: "integer", float: "number", bool: "boolean", dt.date: "date", None: "null"}


def word(hint: Any) -> str:  # noqa: ANN401 - an annotation is any object
    """Name a type as the page does.

    >>> word(tuple[str, ...] | None), word(dict[str, float])
    ('list of string, or null', 'object of number')
    """
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        kinds = [word(kind) for kind in arguments if kind is not types.NoneType]
        return ", or ".join([*kinds, "null"] if types.NoneType in arguments else kinds)
    if origin is tuple:
        return f"list of {word(arguments[0])}"
    if origin is dict:
        return f"object of {word(arguments[1])}"
    return WORDS[hint] if hint in WORDS else f"[{hint.__name__}](#{hint.__name__.lower()})"


def records(start: type, found: dict[str, type] | None = None) -> dict[str, type]:
    """Return every record and enumeration that a record is made of, by name."""
    found = {} if found is None else found
    if start.__name__ in found:
        return found
    found[start.__name__] = start
    for hint in typing.get_type_hints(start).values() if dataclasses.is_dataclass(start) else ():
        for kind in _flat(hint):
            if dataclasses.is_dataclass(kind) or (isinstance(kind, type) and issubclass(kind, enum.Enum)):
                records(typing.cast("type", kind), found)
    return found


def _flat(hint: Any) -> list[Any]:  # noqa: ANN401 - likewise
    return [kind for argument in typing.get_args(hint) for kind in _flat(argument)] or [hint]


def sections(page: str) -> dict[str, list[list[str]]]:
    """Return the rows of each section's table, cell by cell."""
    found: dict[str, list[list[str]]] = {}
    for section in re.split(r"^## ", page, flags=re.MULTILINE)[1:]:
        title, _, body = section.partition("\n")
        rows = [line.strip("|").split(" | ") for line in body.splitlines() if line.startswith("| `")]
        found[title.strip()] = [[cell.strip() for cell in row] for row in rows]
    return found


RECORDS = records(GateResult)


def test_the_page_has_every_record_and_no_other() -> None:
    assert sorted(RECORDS) == sorted(name for name in sections(PAGE) if name not in {"Versions", "Reading it"})


@pytest.mark.parametrize("name", RECORDS)
def test_each_key_has_its_type(name: str) -> None:
    record = RECORDS[name]
    rows = sections(PAGE)[name]
    if issubclass(record, enum.Enum):
        assert [row[0] for row in rows] == [f"`{member.value}`" for member in record]
        return
    hints = typing.get_type_hints(record)
    expected = [[f"`{field.name}`", word(hints[field.name])] for field in dataclasses.fields(record)]  # type: ignore[arg-type] # a class of `records` that is no enumeration
    assert expected == [row[:2] for row in rows]
    assert all(len(row) == 3 and row[2] for row in rows)


def test_the_version_is_the_one_described() -> None:
    assert f"version {SCHEMA_VERSION}" in sections_text("Versions")


def test_the_example_can_be_read() -> None:
    (example,) = re.findall(r"^```json\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    result = from_json(example, GateResult)
    assert [verdict.case.id for verdict in result.verdicts] == ["Matmul[4096x4096x4096,float16,flopwatch]"]


def test_the_exit_code_follows_from_the_rest_and_old_files_have_none() -> None:
    (example,) = re.findall(r"^```json\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    result = from_json(example, GateResult)
    assert result.exit_code == 1
    assert from_json(to_json(result), GateResult) == result
    old = msgspec.json.decode(example)
    del old["exit_code"], old["same_within_percent"]
    assert from_json(msgspec.json.encode(old), GateResult) == result
    assert from_json(example.replace('"exit_code": 1', '"exit_code": 0'), GateResult) == result
    assert dataclasses.replace(result, verdicts=()).exit_code == 3


def test_a_key_of_the_wrong_type_is_named() -> None:
    (example,) = re.findall(r"^```json\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    with pytest.raises(msgspec.ValidationError, match=r"\$\.verdicts\[0\]\.case\.suite"):
        from_json(example.replace('"Matmul"', "7"), GateResult)


def test_the_python_on_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (example,) = re.findall(r"^```json\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    (tmp_path / "gate.json").write_text(example, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    (code,) = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    names: dict[str, Any] = {}
    exec(code, names)  # noqa: S102 - the page's own example
    assert names["slower"] == ["Matmul[4096x4096x4096,float16,flopwatch]"]
    assert names["schema"]["$ref"] == "#/$defs/GateResult"


def sections_text(title: str) -> str:
    return PAGE.partition(f"## {title}\n")[2].partition("\n## ")[0]

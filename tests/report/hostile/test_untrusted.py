from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flopwatch.errors import UndecidedError
from flopwatch.model import to_json
from flopwatch.report.agreement import contradictions
from flopwatch.report.bounds import MAX_BYTES
from flopwatch.report.markdown import COMMENT_BYTES, comment
from flopwatch.report.reported import Reported
from flopwatch.report.untrusted import load_result, read_result

if TYPE_CHECKING:
    from pathlib import Path

    from flopwatch.gate import GateResult

#: Anything that JSON can say, and numbers that it should not.
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


def read_or_refuse(data: bytes) -> GateResult | None:
    try:
        return read_result(data)
    except UndecidedError:
        return None


def places(value: Any, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:  # noqa: ANN401 - JSON
    """Return the path of every value of a table, that of the table first."""
    steps: list[tuple[str | int, Any]] = []
    if isinstance(value, dict):
        steps = list(value.items())
    elif isinstance(value, list):
        steps = list(enumerate(value[:2]))
    return [path, *(place for step, inner in steps for place in places(inner, (*path, step)))]


def test_what_the_gate_writes_is_read_as_it_was(honest: GateResult) -> None:
    assert read_result(to_json(honest)) == honest
    assert read_result(to_json(honest, indent=2)) == honest


def test_a_file_without_what_has_a_default_is_read(honest: GateResult) -> None:
    table = json.loads(to_json(honest))
    for key in ("exit_code", "same_within_percent", "notes", "waivers", "interrupted", "schema_version"):
        del table[key]
    assert read_result(json.dumps(table).encode()).verdicts == honest.verdicts


def test_a_file_of_before_the_roofline_is_read(honest: GateResult) -> None:
    table = json.loads(to_json(honest))
    for verdict in table["verdicts"]:
        del verdict["flops"], verdict["bytes_moved"]
    expected = tuple(replace(verdict, flops=None, bytes_moved=None) for verdict in honest.verdicts)
    assert read_result(json.dumps(table).encode()).verdicts == expected


@pytest.mark.parametrize("key", ["flops", "bytes_moved"])
def test_work_that_nothing_can_do_is_refused_by_its_key(key: str, honest: GateResult) -> None:
    table = json.loads(to_json(honest))
    for value in (-1.0, 1.1e24):
        table["verdicts"][1][key] = value
        with pytest.raises(UndecidedError) as caught:
            read_result(json.dumps(table).encode())
        assert caught.value.why == f"$.verdicts[1].{key}: not between 0 and 1e+24"


@pytest.mark.parametrize(
    ("name", "is_read"), [("norm (2)", True), ("norm (x)", False), ("norm (2) (3)", False), ("norm(2)", False)]
)
def test_a_kernel_may_have_a_number_behind_its_name(name: str, is_read: bool, honest: GateResult) -> None:
    table = json.loads(to_json(honest))
    for fact in (*table["facts"], *table["base_facts"], *table["fact_changes"]):
        fact["kernel"] = name
    if is_read:
        assert {fact.kernel for fact in read_result(json.dumps(table).encode()).facts} == {name}
    else:
        with pytest.raises(UndecidedError, match=r"kernel: characters that such a name does not have"):
            read_result(json.dumps(table).encode())


def test_the_refusal_names_the_key_and_repeats_nothing(honest: GateResult) -> None:
    table = json.loads(to_json(honest))
    table["verdicts"][2]["case"]["suite"] = "<b>x</b>"
    with pytest.raises(UndecidedError) as caught:
        read_result(json.dumps(table).encode())
    assert caught.value.why == "$.verdicts[2].case.suite: characters that such a name does not have"


def test_a_key_that_is_not_known_is_not_repeated(honest: GateResult) -> None:
    with pytest.raises(UndecidedError) as caught:
        read_result(to_json(honest)[:-1] + b',"@all <b>":1}')
    assert caught.value.why == "$: an unknown key"


def test_an_exit_code_that_the_rest_does_not_bear_out_is_refused(honest: GateResult) -> None:
    with pytest.raises(UndecidedError, match=r"\$\.exit_code: 0, but the rest comes to 1"):
        read_result(to_json(honest).replace(b'"exit_code":1', b'"exit_code":0'))


def test_no_more_of_a_file_is_read_than_a_result_may_have(tmp_path: Path) -> None:
    path = tmp_path / "sparse.json"
    with path.open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(UndecidedError, match=f"more than {MAX_BYTES >> 20} MiB"):
        load_result(path)


@pytest.mark.parametrize(("name", "why"), [("", "no regular file"), ("missing.json", "there is no file missing.json")])
def test_what_is_no_file_is_refused(name: str, why: str, tmp_path: Path) -> None:
    with pytest.raises(UndecidedError, match=why):
        load_result(tmp_path / name)


@given(data=st.binary(max_size=300))
@settings(max_examples=150, deadline=None)
def test_no_bytes_crash_the_reader(data: bytes) -> None:
    assert read_or_refuse(data) is None


@given(data=st.data())
@settings(max_examples=150, deadline=None)
def test_whatever_is_put_anywhere_is_read_or_refused_and_shown(data: st.DataObject, honest: GateResult) -> None:
    table = json.loads(to_json(honest))
    path = data.draw(st.sampled_from(places(table)[1:]))
    place = table
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = data.draw(ANYTHING)
    result = read_or_refuse(json.dumps(table).encode())
    if result is not None:
        problems = list(contradictions(result))
        text = comment([Reported(result=None if problems else result, refusal="; ".join(problems))])
        assert len(text.encode()) <= COMMENT_BYTES
        assert text.startswith("<!-- flopwatch:gate -->\n### ")

"""The table of planted faults, in docs/guide/sanitizing.md, holds."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from evidence.sanitizers import (
    COLUMNS,
    FAULTS,
    NOT_RUN,
    NUMBERS,
    ROWS,
    TRAFFIC,
    Cell,
    columns_of,
    compare,
    lines_at_fault,
    table,
    with_cells,
)

from flopwatch.sanitize import Tool

PAGE = Path(__file__).parents[2] / "docs" / "guide" / "sanitizing.md"
WITHOUT_A_GPU = [Tool.INTERPRETER.value, NUMBERS, TRAFFIC]


@pytest.fixture(scope="module")
def documented() -> dict[str, dict[str, str]]:
    return columns_of(PAGE.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def found() -> dict[str, dict[str, str]]:
    return table([*compare(WITHOUT_A_GPU)][-1].cells)


@pytest.mark.parametrize("column", WITHOUT_A_GPU)
def test_the_table_says_what_is_found(
    column: str, found: dict[str, dict[str, str]], documented: dict[str, dict[str, str]]
) -> None:
    assert {fault: cells[column] for fault, cells in found.items()} == {
        fault: cells[column] for fault, cells in documented.items()
    }


@pytest.mark.skipif(importlib.util.find_spec("triton_viz") is None, reason="triton-viz is not installed")
def test_the_table_says_what_triton_viz_finds(documented: dict[str, dict[str, str]]) -> None:
    column = Tool.TRITON_VIZ.value

    assert {fault: cells[column] for fault, cells in table([*compare([column])][-1].cells).items()} == {
        fault: cells[column] for fault, cells in documented.items()
    }


def test_nobody_finds_anything_where_nothing_is_wrong(documented: dict[str, dict[str, str]]) -> None:
    assert set(documented["nothing"].values()) <= {"no", NOT_RUN}


def test_the_interpreter_misses_no_planted_fault(documented: dict[str, dict[str, str]]) -> None:
    found = {fault: cells["interpreter"] for fault, cells in documented.items()}

    assert found.pop("nothing") == "no"
    assert set(found.values()) <= {"its line", "yes"}


def test_every_suite_has_a_row(documented: dict[str, dict[str, str]]) -> None:
    text = (FAULTS / "suites.py").read_text(encoding="utf-8")

    assert [line.split()[1].partition("(")[0] for line in text.splitlines() if line.startswith("class ")] == list(ROWS)
    assert list(documented) == list(ROWS.values())


def test_every_faulty_kernel_marks_one_line() -> None:
    text = (FAULTS / "kernels.py").read_text(encoding="utf-8")
    kernels = [line.removeprefix("def ").partition("(")[0] for line in text.splitlines() if line.startswith("def ")]

    assert {len(lines_at_fault(kernel)) for kernel in kernels if kernel != "sound_kernel"} == {1}
    assert lines_at_fault("sound_kernel") == set()


def test_what_did_not_run_stays_as_it_is() -> None:
    page = "Before.\n\n| fault | memcheck | interpreter |\n| --- | --- | --- |\n| nothing | yes | yes |\n\nAfter.\n"
    cells = [Cell(fault="Sound", tool="interpreter", verdict="no"), Cell(fault="Load", tool="memcheck", verdict="line")]

    rows = columns_of(with_cells(page, table(cells)))

    assert rows["nothing"]["memcheck"] == "yes"
    assert rows["nothing"]["interpreter"] == "no"
    assert rows["a load one element behind the tensor"]["memcheck"] == "its line"
    assert rows["a load one element behind the tensor"]["racecheck"] == NOT_RUN
    assert tuple(rows["nothing"]) == COLUMNS
